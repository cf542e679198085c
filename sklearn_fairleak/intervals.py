"""How far a released value may be from the exact one, from public data alone.

A release and its public noise law come in; limits go out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .mechanisms.release import Release
from .metrics import combine_rows

__all__ = ["gap_intervals"]

FloatArray = npt.NDArray[np.float64]

_DRAWS = 4000
#: Draws that rebuild what the noise may have been; they say nothing new about anybody.
_SEED = 20230612


def gap_intervals(
    release: Release,
    rows: npt.NDArray[np.int64],
    confidence: float,
    *,
    ratio: bool,
    absolute: bool,
    advantaged: int,
) -> FloatArray:
    """Return limits of every model's answer.

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

    Returns
    -------
    ndarray of shape (n_models, 2)
    """
    # Each part of an answer gets its share of the error, so that the worst part is covered.
    confidence = 1.0 - (1.0 - confidence) / rows.shape[1]
    if release.gaps is not None:
        signed = _additive(release, confidence)[rows]
    elif ratio or release.means().shape[1] > 2:
        return _simulated(release, rows, confidence, ratio)
    else:
        means = release.simulate(_DRAWS, np.random.default_rng(_SEED))
        draws = means[..., advantaged] - means[..., 1 - advantaged]
        tail = (1.0 - confidence) / 2.0
        signed = np.quantile(draws, [tail, 1.0 - tail], axis=0).T[rows]
    if not absolute and rows.shape[1] == 1:
        return np.asarray(signed[:, 0])
    low, high = signed[..., 0], signed[..., 1]
    least = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    most = np.maximum(np.abs(low), np.abs(high))
    if absolute:
        return np.stack([least.max(axis=1), most.max(axis=1)], axis=1)
    return np.stack([low.min(axis=1), high.max(axis=1)], axis=1)


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


def _simulated(release: Release, rows: npt.NDArray[np.int64], confidence: float, ratio: bool) -> FloatArray:
    """Return limits of a combination of many means from what they may have been."""
    means = release.simulate(_DRAWS, np.random.default_rng(_SEED))
    draws = combine_rows(means, rows, ratio=ratio)
    tail = (1.0 - confidence) / 2.0
    return np.asarray(np.quantile(draws, [tail, 1.0 - tail], axis=0).T)
