"""How far a released value may be from the exact one, from public data alone.

A release and its public noise law come in; limits and bias-corrected answers go out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from .contrasts import Contrast, Differences, Ratios, SignedDifference, ToOverall
from .inversion import N_DRAWS, GroupSums, corrected, invert, uniform_draws
from .mechanisms.release import Release

__all__ = ["corrected_gaps", "gap_intervals", "sampling_errors"]

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


def sampling_errors(means: FloatArray, sizes: FloatArray, z: FloatArray) -> FloatArray:
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
    unit = np.tan(np.pi * (uniform - 0.5)) if release.law == "cauchy" else _laplace(uniform)
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
        z = _laplace(unit, steps[:, :, None])
    else:
        z = _normal(unit)
        if release.keep is not None and not mirrored:
            z = _across_groups(release.keep, counts, weights, told) @ z
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
    more = _normal(uniform[:, n_noise:]).reshape(N_DRAWS, 1, n_parts, n_groups)
    sum_errors = sum_errors + sampling_errors(data.means, data.sizes, more)
    return GroupSums(sums, counts, sum_errors, count_errors, weights)


def _across_groups(keep: float, counts: FloatArray, weights: FloatArray, told: bool) -> FloatArray:
    """Return how errors of reported groups go together, relative to those of the release.

    A report of one group is none of another; how likely each is depends on the groups' sizes.
    """
    n_groups = counts.shape[2]
    n_statuses = n_groups if told else n_groups + 1
    other = (1.0 - keep) / (n_statuses - 1)
    shares = np.clip(counts / weights[..., None], 0.0, 1.0)
    rest = np.maximum(1.0 - shares.sum(axis=2, keepdims=True), 0.0)
    shares = np.concatenate([shares, rest], axis=2)[:, :, :n_statuses]
    shares = shares / shares.sum(axis=2, keepdims=True)
    odds = np.full((n_statuses, n_statuses), other) + np.eye(n_statuses) * (keep - other)
    each = odds[:, :, None] * np.eye(n_statuses) - odds[:, :, None] * odds[:, None, :]
    together = np.einsum("aps,sgh->apgh", shares, each)[:, :, :n_groups, :n_groups]
    used = max(keep * (1.0 - keep), other * (1.0 - other)) * (n_groups / (n_groups - 1) if told else 1.0)
    values, vectors = np.linalg.eigh(together / used)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[:, :, None, :])


def _are_whole(totals: FloatArray, weights: FloatArray) -> bool:
    """Say whether public totals look like those of whole numbers, which get discrete noise."""
    known = np.concatenate([totals[~np.isnan(totals)], weights])
    return bool(np.isfinite(known).all() and np.all(known == np.rint(known)))


def _normal(uniform: FloatArray) -> FloatArray:
    """Turn uniform draws into standard normal ones."""
    from scipy.special import ndtri

    return np.asarray(ndtri(uniform))


def _laplace(uniform: FloatArray, scales: FloatArray | None = None) -> FloatArray:
    """Turn uniform draws into Laplace ones of scale 1, discrete where whole steps have a scale."""
    tail = np.minimum(uniform, 1.0 - uniform)
    smooth = -np.log(2.0 * tail)
    if scales is not None:
        safe = np.where(scales > 0, scales, 1.0)
        steps = np.maximum(np.floor(-safe * np.log(tail * (1.0 + np.exp(-1.0 / safe)))), 0.0)
        smooth = np.where(scales > 0, steps / safe, smooth)
    return np.asarray(np.where(uniform < 0.5, -smooth, smooth))


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


def range_limits(values: FloatArray, draws: FloatArray, confidence: float) -> FloatArray:
    """Return limits of the largest minus the smallest of several noisy values.

    A range moves by no more than the range of the errors.

    Parameters
    ----------
    values : ndarray of shape (..., n_groups)
        Noisy values.
    draws : ndarray of shape (n_draws, ..., n_groups)
        What the exact values may be.
    confidence : float
        Wanted coverage.

    Returns
    -------
    ndarray of shape (..., 2)
    """
    spread = np.ptp(values, axis=-1)
    reach = np.quantile(np.ptp(draws - values, axis=-1), confidence, axis=0)
    return np.stack([np.maximum(spread - reach, 0.0), spread + reach], axis=-1)


def corrected_range(values: FloatArray, draws: FloatArray) -> FloatArray:
    """Estimate the largest minus the smallest of several values that carry noise.

    Noise makes a range too large. How much is found by adding noise anew to values that
    are shrunk to their mean by what the noise explains of their variance.

    Parameters
    ----------
    values : ndarray of shape (..., n_groups)
        Noisy values.
    draws : ndarray of shape (n_draws, ..., n_groups)
        What the exact values may be.

    Returns
    -------
    ndarray of shape (...)
        Not negative.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.intervals import corrected_range
    >>> rng = np.random.default_rng(0)
    >>> noisy = 0.5 + 0.02 * rng.standard_normal(4)
    >>> draws = noisy + 0.02 * rng.standard_normal((4000, 4))
    >>> bool(corrected_range(noisy, draws) < np.ptp(noisy))
    True
    """
    errors = draws - values
    centre = values.mean(axis=-1, keepdims=True)
    spread = ((values - centre) ** 2).sum(axis=-1, keepdims=True)
    centred = errors - errors.mean(axis=-1, keepdims=True)
    explained = (centred**2).sum(axis=-1, keepdims=True).mean(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        kept = np.where(spread > 0, np.maximum(0.0, 1.0 - explained / spread), 0.0)
    shrunk = centre + np.sqrt(kept) * (values - centre)
    bias = np.ptp(shrunk + errors, axis=-1).mean(axis=0) - np.ptp(shrunk, axis=-1)
    return np.maximum(np.ptp(values, axis=-1) - bias, 0.0)
