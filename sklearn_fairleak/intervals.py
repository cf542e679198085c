"""How far a released value may be from the exact one, from public data alone.

A release and its public noise law come in; limits and bias-corrected answers go out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from .contrasts import Contrast, Differences, Ratios, SignedDifference, ToOverall
from .inversion import (
    N_DRAWS,
    GroupSums,
    corrected,
    holds,
    invert,
    laplace_draws,
    normal_draws,
    uniform_draws,
)
from .mechanisms.release import Release

__all__ = ["corrected_gaps", "gap_intervals", "limits_hold", "reports_together"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Answers times draws times contrasts handled at once, so that memory stays bounded.
_CELLS = 4_000_000


def gap_intervals(
    release: Release,
    rows: IntArray,
    confidence: float,
    *,
    ratio: bool,
    absolute: bool,
    advantaged: int,
    sampling: bool = False,
) -> FloatArray:
    """Return limits of every model's answer.

    The mean of an empty group is taken as 1/2. Mechanisms whose noise scale is secret
    (``attribute_conceal``, ``smooth_laplace``) publish its worst case, so their limits are
    wider than needed.

    Parameters
    ----------
    release : Release
        What was released.
    rows : ndarray of shape (n_models, n_parts)
        Rows that make up each answer.
    confidence : float
        Wanted coverage of the exact answer.
    ratio, absolute, advantaged
        How rows were combined, see :func:`~sklearn_fairleak.metrics.combine_rows`.
    sampling : bool, default=False
        Cover the value of the population that individuals were drawn from, too.

    Returns
    -------
    ndarray of shape (n_models, 2)

    Raises
    ------
    ValueError
        If ``sampling`` is asked of a mechanism that releases no group sizes.

    Notes
    -----
    Limits hold every value that a test does not reject: the test asks whether released sums
    could come from group means nearest to theirs among those of exactly that value. Its
    statistic is linear in the noisy sums (Fieller), so it holds with counts that are noisy or
    near zero, and it is calibrated by draws of the known noise. Values cannot be negative, which
    ordering by distance allows for (Feldman and Cousins).

    References
    ----------
    Fieller, "Some Problems in Interval Estimation", JRSS B 1954. Feldman & Cousins, "Unified
    Approach to the Classical Statistical Analysis of Small Signals", Physical Review D 1998.
    """
    if sampling and (release.gaps is not None or release.law == "none"):
        raise ValueError(
            f"A mechanism with {release.law} noise on the gap tells no group sizes, so sampling error is "
            "unknown. Use 'noisy_sums' or 'randomized_response'."
        )
    if absolute or ratio:
        contrast = Ratios() if ratio else Differences()
        if release.gaps is None:
            limits = _inverted(release, rows, contrast, confidence, sampling)
        else:
            limits = _inverted(release, rows, _magnitude(rows), confidence, False) * 2.0
        return 1.0 - limits[:, ::-1] if ratio else limits
    # Each part of a signed answer gets its share of the error, so that the worst part is covered.
    single, share = np.unique(rows)[:, None], confidence ** (1.0 / rows.shape[1])
    signed = np.empty((int(rows.max()) + 1, 2))
    if release.gaps is not None:
        signed[single[:, 0]] = _additive(release, share)[single[:, 0]]
    else:
        signed[single[:, 0]] = _inverted(release, single, SignedDifference(advantaged), share, sampling)
    return np.stack([signed[rows, 0].min(axis=1), signed[rows, 1].max(axis=1)], axis=1)


def limits_hold(
    release: Release, rows: IntArray, confidence: float, values: FloatArray, *, ratio: bool = False
) -> npt.NDArray[np.bool_]:
    """Say whether limits of absolute gaps or of ratios hold given values, at a sixth of the cost of limits.

    Parameters
    ----------
    release, rows, confidence, ratio
        As for :func:`gap_intervals`; not for exact answers.
    values : ndarray of shape (n_models,)
        Gaps or ratios.

    Returns
    -------
    ndarray of bool of shape (n_models,)
    """
    contrast = Ratios() if ratio else Differences() if release.gaps is None else _magnitude(rows)
    asked = 1.0 - values if ratio else values if release.gaps is None else values / 2.0
    found, start = [], 0
    for data in _group_sums(release, rows, sampling=False):
        stop = start + data.sums.shape[0]
        found.append(holds(data, contrast, confidence, asked[start:stop]))
        start = stop
    return np.concatenate(found)


def corrected_gaps(release: Release, rows: IntArray, *, ratio: bool = False) -> FloatArray:
    """Return gaps or ratios less what noise adds to disparity.

    Parameters
    ----------
    release : Release
        What was released.
    rows : ndarray of shape (n_models, n_parts)
        Rows that make up each answer.
    ratio : bool, default=False
        Smallest over largest group mean, instead of their difference.

    Returns
    -------
    ndarray of shape (n_models,)
    """
    contrast = Ratios() if ratio else Differences() if release.gaps is None else _magnitude(rows)
    parts = [
        data.estimate(contrast) if release.law == "none" else corrected(data, contrast)
        for data in _group_sums(release, rows, sampling=False)
    ]
    values = np.concatenate(parts)
    if ratio:
        return 1.0 - values
    return values if release.gaps is None else values * 2.0


def _sampling_errors(means: FloatArray, sizes: FloatArray, z: FloatArray) -> FloatArray:
    """Return errors of group sums when individuals are drawn from a population.

    Parameters
    ----------
    means, sizes : ndarray of shape (..., n_groups)
        Group means in [0, 1], and sizes.
    z : ndarray of shape (n_draws, ..., n_groups)
        Standard normal draws.

    Returns
    -------
    ndarray of the shape of ``z``
    """
    sizes = np.maximum(sizes, 1.0)
    # One success and one failure more keep groups of equal values from looking certain.
    shifted = (means * sizes + 1.0) / (sizes + 2.0)
    return np.asarray(z * np.sqrt(sizes * shifted * (1.0 - shifted)))


def _magnitude(rows: IntArray) -> ToOverall:
    """Return the comparison of gaps, moved to [0, 1], with no gap."""
    contrast = ToOverall(np.full((1, rows.shape[1]), 0.5), ratio=False)
    contrast.high = 0.5
    return contrast


def _inverted(
    release: Release, rows: IntArray, contrast: Contrast, confidence: float, sampling: bool
) -> FloatArray:
    """Return limits of u of every answer, shape (n_answers, 2)."""
    parts = []
    for data in _group_sums(release, rows, sampling=sampling):
        if release.law == "none":
            value = data.estimate(contrast)
            parts.append(np.stack([value, value], axis=1))
        else:
            parts.append(invert(data, contrast, confidence))
    return np.concatenate(parts)


def _group_sums(release: Release, rows: IntArray, *, sampling: bool) -> Iterator[GroupSums]:
    """Yield sums and draws of their errors for some answers at a time."""
    n_groups = 1 if release.sums is None else release.sums.shape[1]
    contrasts = rows.shape[1] * max(2, n_groups * (n_groups - 1))
    step = max(1, _CELLS // (N_DRAWS * contrasts))
    for start in range(0, rows.shape[0], step):
        some = rows[start : start + step]
        yield _noisy_gaps(release, some) if release.gaps is not None else _noisy_sums(release, some, sampling)


def _noisy_gaps(release: Release, rows: IntArray) -> GroupSums:
    """Make signed gaps the sums of one group of size 1, moved to [0, 1]."""
    assert release.gaps is not None
    assert release.scale is not None
    uniform = uniform_draws(rows.shape[1])[:, None]
    unit = np.tan(np.pi * (uniform - 0.5)) if release.law == "cauchy" else laplace_draws(uniform)
    errors = (release.scale[rows] / 2.0 * unit)[..., None]
    sums = (release.gaps[rows][..., None] + 1.0) / 2.0
    return GroupSums(sums, np.ones_like(sums), errors, np.zeros_like(errors), np.ones(rows.shape))


def _noisy_sums(release: Release, rows: IntArray, sampling: bool) -> GroupSums:
    """Make noisy sums consistent with public totals, and draw the errors they carry then."""
    assert release.sums is not None
    assert release.counts is not None
    assert release.totals is not None
    assert release.weights is not None
    assert release.noise is not None
    factors, weights = release.noise[rows], release.weights[rows]
    sums, counts = release.sums[rows], release.counts[rows]
    n_groups, told = sums.shape[2], not np.isnan(release.totals).any()
    if release.law == "none":
        nothing = np.zeros((1, *sums.shape))
        return GroupSums(sums, counts, nothing, nothing, weights)
    if told:
        sums = sums + (release.totals[rows] - sums.sum(axis=2))[..., None] / n_groups
        counts = counts + (weights - counts.sum(axis=2))[..., None] / n_groups
    mirrored = told and n_groups == 2
    drawn, n_parts, n_sources = 1 if mirrored else n_groups, rows.shape[1], factors.shape[3]
    n_noise = n_parts * drawn * n_sources
    uniform = uniform_draws(n_noise + n_parts * n_groups * sampling)
    unit = uniform[:, :n_noise].reshape(N_DRAWS, 1, n_parts, drawn, n_sources)
    if release.law == "laplace":
        # Counts of whole individuals carry discrete noise of whole steps.
        steps = np.where(_are_whole(release.totals, release.weights), np.abs(factors[:, :, 1]), 0.0)
        z = laplace_draws(unit, steps[:, :, None])
    else:
        z = normal_draws(unit)
        if release.keep is not None and not mirrored:
            other = (1.0 - release.keep) / (n_groups - told)
            used = max(release.keep * (1.0 - release.keep), other * (1.0 - other))
            # The release's factors allow for the variance that consistency takes from its errors.
            used *= n_groups / (n_groups - 1) if told else 1.0
            z = reports_together(release.keep, counts, weights, told=told) / used**0.5 @ z
    errors = z @ np.swapaxes(factors, 2, 3)
    sum_errors, count_errors = errors[..., 0], errors[..., 1]
    if mirrored:
        sum_errors = np.concatenate([-sum_errors, sum_errors], axis=3)
        count_errors = np.concatenate([-count_errors, count_errors], axis=3)
    elif told:
        sum_errors = sum_errors - sum_errors.mean(axis=3, keepdims=True)
        count_errors = count_errors - count_errors.mean(axis=3, keepdims=True)
    data = GroupSums(sums, counts, sum_errors, count_errors, weights)
    if not sampling:
        return data
    more = normal_draws(uniform[:, n_noise:]).reshape(N_DRAWS, 1, n_parts, n_groups)
    sum_errors = sum_errors + _sampling_errors(data.means, data.sizes, more)
    return GroupSums(sums, counts, sum_errors, count_errors, weights)


def reports_together(keep: float, counts: FloatArray, weights: FloatArray, *, told: bool) -> FloatArray:
    """Return a root of the covariance of one individual's reports, shape (..., n_groups, n_groups).

    A report of one group is none of another; how likely each is depends on the groups' sizes.

    Parameters
    ----------
    keep : float
        Probability at which the true status is reported.
    counts : ndarray of shape (..., n_groups)
        Estimated sizes of groups.
    weights : ndarray of shape (...)
        Public size of all.
    told : bool
        Whether everybody is in one of the groups.
    """
    n_groups = counts.shape[-1]
    n_statuses = n_groups if told else n_groups + 1
    other = (1.0 - keep) / (n_statuses - 1)
    shares = np.clip(counts / np.maximum(weights, 1e-12)[..., None], 0.0, 1.0)
    rest = np.maximum(1.0 - shares.sum(axis=-1, keepdims=True), 1e-9)
    shares = np.concatenate([shares, rest], axis=-1)[..., :n_statuses]
    shares = shares / np.maximum(shares.sum(axis=-1, keepdims=True), 1e-9)
    odds = np.full((n_statuses, n_statuses), other) + np.eye(n_statuses) * (keep - other)
    each = odds[:, :, None] * np.eye(n_statuses) - odds[:, :, None] * odds[:, None, :]
    together = np.einsum("...s,sgh->...gh", shares, each)[..., :n_groups, :n_groups]
    values, vectors = np.linalg.eigh(together)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def _are_whole(totals: FloatArray, weights: FloatArray) -> bool:
    """Say whether public totals look like those of whole numbers, which get discrete noise."""
    known = np.concatenate([totals[~np.isnan(totals)], weights])
    return bool(np.isfinite(known).all() and np.all(known == np.rint(known)))


def _additive(release: Release, confidence: float) -> FloatArray:
    """Return signed limits of gaps with additive noise, shape (n_rows, 2)."""
    assert release.gaps is not None
    assert release.scale is not None
    if release.law == "cauchy":
        width = np.tan(np.pi * confidence / 2.0)
    else:
        width = -np.log(1.0 - confidence)
    reach = release.scale * width
    limits = np.stack([release.gaps - reach, release.gaps + reach], axis=1)
    return np.asarray(limits if release.bounds == "none" else np.clip(limits, -1.0, 1.0))
