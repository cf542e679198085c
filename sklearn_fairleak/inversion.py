"""Limits and corrected estimates of comparisons of groups, by inverting a test.

Noisy sums and draws of their errors come in. A value is within the limits if the estimate is
no further from it than estimates are, with the wanted probability, where that value is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .contrasts import Contrast

__all__ = [
    "N_DRAWS",
    "GroupSums",
    "corrected",
    "holds",
    "invert",
    "laplace_draws",
    "normal_draws",
    "uniform_draws",
]

FloatArray = npt.NDArray[np.float64]

N_DRAWS = 1024
#: Draws that rebuild what the noise may have been; they say nothing new about anybody.
_SEED = 20230612
_EXPANSIONS = 24
_BISECTIONS = 10
_REFINEMENTS = 5
#: Disparity is estimated as 0 where limits of this confidence hold 0. No estimate that cannot be
#: negative is unbiased; here the bias is least at its worst, over equal and different groups.
_NO_DISPARITY = 0.75
#: Sobol sequences in more dimensions than this are no better than random points.
_SOBOL_COLUMNS = 64
_TINY = 1e-300


def uniform_draws(n_columns: int) -> FloatArray:
    """Return evenly spread points of the unit cube, shape (N_DRAWS, n_columns)."""
    if n_columns > _SOBOL_COLUMNS:
        return np.maximum(np.random.default_rng(_SEED).random((N_DRAWS, n_columns)), 2.0**-60)
    return _sobol_points(n_columns)


@lru_cache(maxsize=8)
def _sobol_points(n_columns: int) -> FloatArray:
    """Keep points, which take longer to make than to use."""
    from scipy.stats import qmc

    points = qmc.Sobol(n_columns, seed=np.random.default_rng(_SEED)).random(N_DRAWS)
    points = np.clip(points, 2.0**-40, 1.0 - 2.0**-40)
    points.setflags(write=False)
    return np.asarray(points)


def normal_draws(uniform: FloatArray) -> FloatArray:
    """Turn uniform draws into standard normal ones."""
    from scipy.special import ndtri

    return np.asarray(ndtri(uniform))


def laplace_draws(uniform: FloatArray, scales: FloatArray | None = None) -> FloatArray:
    """Turn uniform draws into Laplace ones of scale 1, discrete where whole steps have a scale."""
    tail = np.minimum(uniform, 1.0 - uniform)
    smooth = -np.log(2.0 * tail)
    if scales is not None:
        safe = np.where(scales > 0, scales, 1.0)
        steps = np.maximum(np.floor(-safe * np.log(tail * (1.0 + np.exp(-1.0 / safe)))), 0.0)
        smooth = np.where(scales > 0, steps / safe, smooth)
    return np.asarray(np.where(uniform < 0.5, -smooth, smooth))


class GroupSums:
    """Noisy sums and counts of the groups of several answers, and draws of their errors.

    Parameters
    ----------
    sums, counts : ndarray of shape (n_answers, n_parts, n_groups)
        Noisy, consistent with public totals, and not clipped.
    sum_errors, count_errors : ndarray of shape (n_draws, n_answers or 1, n_parts, n_groups)
        Errors that sums and counts may carry.
    weights : ndarray of shape (n_answers, n_parts)
        Public total of all counts of a part.
    """

    def __init__(
        self,
        sums: FloatArray,
        counts: FloatArray,
        sum_errors: FloatArray,
        count_errors: FloatArray,
        weights: FloatArray,
    ) -> None:
        self.sums, self.counts = sums, counts
        self.sum_errors, self.count_errors, self.weights = sum_errors, count_errors, weights
        total = weights[..., None]
        self.sizes = np.clip(counts, 0.0, total)
        floor = np.minimum(1.0, total / sums.shape[-1])
        self.means = np.clip(sums / np.maximum(counts, floor), 0.0, 1.0)
        spread = (sum_errors - self.means * count_errors).var(axis=0)
        self.variances = spread / np.maximum(self.sizes, floor) ** 2 + _TINY

    def standardised(
        self, contrast: Contrast, u: FloatArray, means: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return how far below u estimates lie: those released, and those drawn where u is exact.

        ``means`` are what exact means look like but for u; by default, as they were released.
        """
        asked = np.broadcast_to(u[:, None], self.sums.shape[:2])
        means = contrast.nearest(self.means if means is None else means, self.variances, asked)
        drawn = contrast.excess(means * self.sizes + self.sum_errors, self.sizes + self.count_errors, asked)
        scale = drawn.std(axis=0) + _TINY
        released = contrast.excess(self.sums, self.counts, asked)
        return -(released / scale).max(axis=-1), -(drawn / scale).max(axis=-1)

    def rejects(self, contrast: Contrast, u: FloatArray, confidence: float) -> FloatArray:
        """Return how much farther from u than they should be estimates are, relatively; below 0 accepts."""
        released, drawn = self.standardised(contrast, u)
        reach = np.quantile(np.abs(drawn), confidence, axis=0) + 1e-9
        return np.asarray((np.abs(released) - reach) / reach)

    def shrunk_means(self) -> FloatArray:
        """Return means less of their spread that noise explains (positive-part James-Stein)."""
        precision = 1.0 / self.variances
        centre = (self.means * precision).sum(axis=-1, keepdims=True) / precision.sum(axis=-1, keepdims=True)
        apart = self.means - centre
        spread = (apart * apart * precision).sum(axis=-1, keepdims=True)
        kept = 1.0 - (self.means.shape[-1] - 1) / np.maximum(spread, _TINY)
        return np.asarray(centre + np.sqrt(np.maximum(kept, 0.0)) * apart)

    def estimate(self, contrast: Contrast) -> FloatArray:
        """Return u of the released means, shape (n_answers,)."""
        parts = contrast.value(self.means)
        return np.asarray(np.take_along_axis(parts, np.abs(parts).argmax(axis=-1)[:, None], axis=-1)[:, 0])


def invert(data: GroupSums, contrast: Contrast, confidence: float) -> FloatArray:
    """Return limits of u.

    The limits hold the estimate, and all values that the test does not reject between it and
    the first rejected one. Where the test rejects no end of the possible range, as when a group
    may be empty, they are that end.

    Parameters
    ----------
    data : GroupSums
        Noisy sums and what their errors may be.
    contrast : Contrast
        How groups are compared.
    confidence : float
        Wanted coverage of the exact value.

    Returns
    -------
    ndarray of shape (n_answers, 2)
    """
    start, step = data.estimate(contrast), _first_step(data)
    sides = []
    for end in (contrast.low, contrast.high):
        limit = np.full_like(start, end)
        sides.append(_edge(lambda u: data.rejects(contrast, u, confidence), start, limit, step))
    return np.stack(sides, axis=1)


def holds(data: GroupSums, contrast: Contrast, confidence: float, u: FloatArray) -> npt.NDArray[np.bool_]:
    """Say whether the limits of :func:`invert` hold values, without finding the limits.

    Parameters
    ----------
    data, contrast, confidence
        As for :func:`invert`.
    u : ndarray of shape (n_answers,)
        Values.

    Returns
    -------
    ndarray of bool of shape (n_answers,)
    """
    end = np.where(u > data.estimate(contrast), contrast.high, contrast.low)
    within = (u >= contrast.low) & (u <= contrast.high)
    accepted = data.rejects(contrast, u, confidence) <= 0.0
    return np.asarray(within & (accepted | (data.rejects(contrast, end, confidence) <= 0.0)))


def corrected(data: GroupSums, contrast: Contrast) -> FloatArray:
    """Estimate u without what noise adds to the largest of several comparisons.

    The estimate is the u under which drawn estimates lie as far from u, on average, as the
    released one does (a parametric bootstrap), and 0 where there is no evidence of disparity.

    Parameters
    ----------
    data, contrast
        As for :func:`invert`.

    Returns
    -------
    ndarray of shape (n_answers,)

    References
    ----------
    Gourieroux, Monfort & Renault, "Indirect Inference", Journal of Applied Econometrics 1993.
    """
    none, shrunk = np.full(data.sums.shape[0], contrast.low), data.shrunk_means()
    start, step = data.estimate(contrast), _first_step(data)
    low, high = np.maximum(start - 8.0 * step, none), np.minimum(start + 2.0 * step, contrast.high)
    for _ in range(_BISECTIONS + 4):
        middle = (low + high) / 2.0
        released, drawn = data.standardised(contrast, middle, shrunk)
        below = released < drawn.mean(axis=0)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    equal = data.rejects(contrast, none, _NO_DISPARITY) <= 0.0
    return np.where(equal, none, (low + high) / 2.0)


def _first_step(data: GroupSums) -> FloatArray:
    """Return about the width of the limits, to begin a search with."""
    return np.asarray(2.0 * np.sqrt(data.variances.max(axis=(1, 2))) + 1e-9)


def _edge(
    rejects: Callable[[FloatArray], FloatArray], start: FloatArray, end: FloatArray, step: FloatArray
) -> FloatArray:
    """Search from accepted values towards an end of the range for where acceptance stops."""
    last = rejects(end)
    whole = last <= 0.0
    inner, outer, searching = start.copy(), end.copy(), ~whole
    below, above = np.full_like(start, -1.0), np.maximum(last, 1e-6)
    for power in range(_EXPANSIONS):
        if not searching.any():
            break
        reach = np.minimum(step * 2.0 ** (power - 1), np.abs(end - start))
        trial = start + np.sign(end - start) * reach
        found = rejects(trial)
        good = searching & (found <= 0.0)
        stop = searching & ~good
        inner, below = np.where(good, trial, inner), np.where(good, found, below)
        outer, above = np.where(stop, trial, outer), np.where(stop, found, above)
        searching = good
    for _ in range(_REFINEMENTS):
        # Rejection grows nearly linearly: where it would be zero, but not next to an end.
        share = np.clip(below / (below - above), 0.1, 0.9)
        trial = inner + share * (outer - inner)
        found = rejects(trial)
        good = found <= 0.0
        inner, below = np.where(good, trial, inner), np.where(good, found, below)
        outer, above = np.where(good, outer, trial), np.where(good, above, found)
    share = np.clip(below / (below - above), 0.0, 1.0)
    return np.where(whole, end, inner + share * (outer - inner))
