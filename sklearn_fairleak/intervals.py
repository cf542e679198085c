"""How far a released value may be from the exact one, from public data alone.

A release and its public noise law come in; limits and bias-corrected ranges go out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .mechanisms.release import Release

__all__ = ["corrected_gaps", "corrected_range", "gap_intervals", "range_limits"]

FloatArray = npt.NDArray[np.float64]

_DRAWS = 8000
#: Draws that rebuild what the noise may have been; they say nothing new about anybody.
_SEED = 20230612
#: Rows times draws handled at once, so that memory stays bounded.
_CELLS = 2_000_000
#: Means below this are taken for it where logarithms are needed.
_SMALLEST = 1e-9


def gap_intervals(
    release: Release,
    rows: npt.NDArray[np.int64],
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
        If ``sampling`` is asked of a mechanism that releases no group means.
    """
    # Each part of an answer gets its share of the error, so that the worst part is covered.
    confidence = 1.0 - (1.0 - confidence) / rows.shape[1]
    if release.gaps is not None:
        if sampling:
            raise ValueError(
                f"A mechanism with {release.law} noise on the gap tells no group sizes, so sampling error is "
                "unknown. Use 'noisy_sums' or 'randomized_response'."
            )
        signed = _additive(release, confidence)[rows]
    else:
        blocks = [_row_limits(part, confidence, ratio, advantaged, sampling) for part in _blocks(release)]
        signed = np.concatenate(blocks)[rows]
    low, high = signed[..., 0], signed[..., 1]
    if ratio:
        least, most = _magnitudes(low, high)
        return np.stack([np.exp(-most).min(axis=1), np.exp(-least).min(axis=1)], axis=1)
    if not absolute:
        if rows.shape[1] == 1:
            return np.asarray(signed[:, 0])
        return np.stack([low.min(axis=1), high.max(axis=1)], axis=1)
    least, most = _magnitudes(low, high)
    return np.stack([least.max(axis=1), most.max(axis=1)], axis=1)


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


def corrected_gaps(release: Release, rows: npt.NDArray[np.int64]) -> FloatArray:
    """Return bias-corrected largest minus smallest group means, shape (n_models,)."""
    ranges = []
    for part in _blocks(release):
        draws = part.simulate(_DRAWS, np.random.default_rng(_SEED))
        ranges.append(corrected_range(part.means(), draws))
    return np.asarray(np.concatenate(ranges)[rows].max(axis=1))


def _blocks(release: Release) -> Iterator[Release]:
    """Split a release so that draws of a few rows at a time are held in memory."""
    assert release.sums is not None
    n_rows, n_groups = release.sums.shape
    step = max(1, _CELLS // (_DRAWS * n_groups))
    for start in range(0, n_rows, step):
        part = slice(start, start + step)
        arrays = {
            name: getattr(release, name)[part] for name in ("sums", "counts", "totals", "weights", "noise")
        }
        yield replace(release, **arrays)


def _row_limits(
    release: Release, confidence: float, ratio: bool, advantaged: int, sampling: bool
) -> FloatArray:
    """Return limits of signed gaps, or of differences of logarithms, shape (n_rows, 2)."""
    rng = np.random.default_rng(_SEED)
    means, draws = release.means(), release.simulate(_DRAWS, rng)
    if sampling:
        assert release.counts is not None
        sizes = np.maximum(release.counts, 1.0)
        inner = np.clip(draws, 0.0, 1.0)
        # One success and one failure more keep groups of equal values from looking certain.
        shifted = (inner * sizes + 1.0) / (sizes + 2.0)
        draws = draws + rng.standard_normal(draws.shape) * np.sqrt(shifted * (1.0 - shifted) / sizes)
        draws = draws if release.bounds == "none" else np.clip(draws, 0.0, 1.0)
    if ratio:
        means, draws = np.log(np.maximum(means, _SMALLEST)), np.log(np.maximum(draws, _SMALLEST))
    if means.shape[1] > 2:
        limits = range_limits(means, draws, confidence)
        return limits if ratio or release.bounds == "none" else np.clip(limits, 0.0, 1.0)
    gaps = draws[..., advantaged] - draws[..., 1 - advantaged]
    tail = (1.0 - confidence) / 2.0
    low = np.quantile(gaps, tail, axis=0, method="lower")
    return np.stack([low, np.quantile(gaps, 1.0 - tail, axis=0, method="higher")], axis=1)


def _magnitudes(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Turn limits of signed values into limits of their absolute values."""
    least = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    return least, np.maximum(np.abs(low), np.abs(high))


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
