"""Which comparisons of group means make up an answer, as functions of group sums and counts.

A hypothesis such as "the largest difference is u" becomes contrasts of sums and counts that
have mean zero where it holds exactly, and the group means nearest to the estimated ones under it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

__all__ = ["Contrast", "Differences", "Largest", "Ratios", "SignedDifference", "Smallest", "ToOverall"]

FloatArray = npt.NDArray[np.float64]

#: With more groups than this their extremes are compared, instead of every pair.
_MANY = 10
#: Standard deviations by which comparisons that are not the worst may be worse than they look.
ALLOWANCE = 1.0


class Contrast(ABC):
    """One way to compare groups; arrays have shape (..., n_parts, n_groups).

    The parameter u grows with disparity: a difference, or one less a ratio. An answer is the
    largest u of its parts.
    """

    #: Least and largest possible u.
    low, high = 0.0, 1.0

    @abstractmethod
    def excess(self, sums: FloatArray, counts: FloatArray, u: FloatArray) -> FloatArray:
        """Return contrasts, positive where disparity is above u, shape (..., n_contrasts)."""

    @abstractmethod
    def value(self, means: FloatArray) -> FloatArray:
        """Return u of every part, shape (..., n_parts)."""

    @abstractmethod
    def move(self, means: FloatArray, variances: FloatArray, u: FloatArray) -> FloatArray:
        """Return nearby means of which every part has disparity u exactly."""

    def nearest(self, means: FloatArray, variances: FloatArray, u: FloatArray) -> FloatArray:
        """Return nearby means of which the worst part has disparity u exactly.

        Parts of less disparity than u are known up to noise only; they are taken for a little
        worse than they look, because what could be worst, too, makes limits wider.
        """
        own = self.value(means)
        moved = self.move(means, variances, u)
        cost = ((moved - means) ** 2 / variances).sum(axis=-1)
        # Parts of more disparity must come down; if none has enough, the cheapest goes up.
        low = own < u
        cheapest = np.arange(own.shape[-1]) == np.argmin(np.where(low, cost, -1.0), axis=-1)[..., None]
        change = ~low | (np.all(low, axis=-1, keepdims=True) & cheapest)
        share = np.minimum(1.0, ALLOWANCE / np.sqrt(np.maximum(cost, 1e-12)))
        between = means + share[..., None] * (moved - means)
        return np.where(change[..., None], moved, between)


class Differences(Contrast):
    """Largest minus smallest group mean."""

    def excess(self, sums: FloatArray, counts: FloatArray, u: FloatArray) -> FloatArray:
        if sums.shape[-1] > _MANY:
            return self.value(_plain_means(sums, counts)) - u
        i, j = _pairs(sums.shape[-1])
        below, above = counts[..., i], counts[..., j]
        return _flat(below * sums[..., j] - above * sums[..., i] - u[..., None] * below * above)

    def value(self, means: FloatArray) -> FloatArray:
        return np.asarray(np.ptp(means, axis=-1))

    def move(self, means: FloatArray, variances: FloatArray, u: FloatArray) -> FloatArray:
        least, most, (i, j) = _extremes(means, variances, u, ratio=False)
        share = _at(variances, i) / (_at(variances, i) + _at(variances, j))
        lowest = np.clip(least + (most - least - u) * share, 0.0, 1.0 - u)
        return _within(means, lowest, lowest + u, i, j)


class Ratios(Contrast):
    """One less the smallest over the largest group mean."""

    def excess(self, sums: FloatArray, counts: FloatArray, u: FloatArray) -> FloatArray:
        if sums.shape[-1] > _MANY:
            return self.value(_plain_means(sums, counts)) - u
        i, j = _pairs(sums.shape[-1])
        kept = 1.0 - u[..., None]
        return _flat(kept * counts[..., i] * sums[..., j] - counts[..., j] * sums[..., i])

    def value(self, means: FloatArray) -> FloatArray:
        highest = means.max(axis=-1)
        return np.where(highest > 0, 1.0 - means.min(axis=-1) / np.where(highest > 0, highest, 1.0), 0.0)

    def move(self, means: FloatArray, variances: FloatArray, u: FloatArray) -> FloatArray:
        least, most, (i, j) = _extremes(means, variances, u, ratio=True)
        kept = 1.0 - u
        spread = kept * kept * _at(variances, j)
        residual = kept * most - least
        total = _at(variances, i) + spread
        highest = np.clip(most - residual * kept * _at(variances, j) / total, 0.0, 1.0)
        return _within(means, kept * highest, highest, i, j)


class SignedDifference(Contrast):
    """Mean of one group less that of the other."""

    low = -1.0

    def __init__(self, advantaged: int) -> None:
        self.advantaged = advantaged

    def excess(self, sums: FloatArray, counts: FloatArray, u: FloatArray) -> FloatArray:
        j, i = self.advantaged, 1 - self.advantaged
        below, above = counts[..., i], counts[..., j]
        return np.asarray(below * sums[..., j] - above * sums[..., i] - u * below * above)

    def value(self, means: FloatArray) -> FloatArray:
        return np.asarray(means[..., self.advantaged] - means[..., 1 - self.advantaged])

    def move(self, means: FloatArray, variances: FloatArray, u: FloatArray) -> FloatArray:
        j, i = self.advantaged, 1 - self.advantaged
        share = variances[..., i] / variances.sum(axis=-1)
        gap = means[..., j] - means[..., i] - u
        lowest = np.clip(means[..., i] + gap * share, np.maximum(0.0, -u), np.minimum(1.0, 1.0 - u))
        moved = np.empty_like(means)
        moved[..., i], moved[..., j] = lowest, lowest + u
        return moved


class Smallest(Contrast):
    """One less the smallest group mean."""

    def excess(self, sums: FloatArray, counts: FloatArray, u: FloatArray) -> FloatArray:
        return _flat((1.0 - u[..., None]) * counts - sums)

    def value(self, means: FloatArray) -> FloatArray:
        return np.asarray(1.0 - means.min(axis=-1))

    def move(self, means: FloatArray, variances: FloatArray, u: FloatArray) -> FloatArray:
        target = 1.0 - u[..., None]
        cost = (means - target) ** 2 / variances
        chosen = np.argmin(np.where(means >= target, cost, -1.0), axis=-1)
        moved = np.maximum(means, target)
        np.put_along_axis(moved, chosen[..., None], np.broadcast_to(target, moved.shape)[..., :1], axis=-1)
        return moved


class Largest(Smallest):
    """The largest group mean."""

    def excess(self, sums: FloatArray, counts: FloatArray, u: FloatArray) -> FloatArray:
        return super().excess(counts - sums, counts, u)

    def value(self, means: FloatArray) -> FloatArray:
        return super().value(1.0 - means)

    def move(self, means: FloatArray, variances: FloatArray, u: FloatArray) -> FloatArray:
        return 1.0 - super().move(1.0 - means, variances, u)


class ToOverall(Contrast):
    """Largest difference of a group mean from a public overall one, or one less the smallest ratio.

    Parameters
    ----------
    overall : ndarray of shape (..., n_parts)
        Public means of everybody.
    ratio : bool
        Ratios instead of differences.
    """

    def __init__(self, overall: FloatArray, *, ratio: bool) -> None:
        self.overall, self.ratio = overall[..., None], ratio

    def _limits(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the means between which disparity is at most u."""
        if not self.ratio:
            return self.overall - u[..., None], self.overall + u[..., None]
        kept = np.maximum(1.0 - u[..., None], 1e-12)
        return self.overall * kept, self.overall / kept

    def excess(self, sums: FloatArray, counts: FloatArray, u: FloatArray) -> FloatArray:
        least, most = self._limits(u)
        return _flat(np.concatenate([least * counts - sums, sums - most * counts], axis=-1))

    def value(self, means: FloatArray) -> FloatArray:
        if not self.ratio:
            return np.asarray(np.abs(means - self.overall).max(axis=-1))
        low, high = np.minimum(means, self.overall), np.maximum(means, self.overall)
        return np.asarray(np.where(high > 0, 1.0 - low / np.where(high > 0, high, 1.0), 0.0).max(axis=-1))

    def move(self, means: FloatArray, variances: FloatArray, u: FloatArray) -> FloatArray:
        least, most = self._limits(u)
        inner = np.clip(means, np.maximum(least, 0.0), np.minimum(most, 1.0))
        reach = np.where((most - means > means - least) & (least >= 0.0) | (most > 1.0), least, most)
        reach = np.clip(reach, 0.0, 1.0)
        outside = (means < least) | (means > most)
        cost = np.where(outside, -1.0, (reach - means) ** 2 / variances)
        chosen = np.argmin(cost, axis=-1)[..., None]
        ends = np.where(outside, inner, reach)
        np.put_along_axis(inner, chosen, np.take_along_axis(ends, chosen, axis=-1), axis=-1)
        return inner


def _pairs(n_groups: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return all ordered pairs of different groups."""
    i, j = np.nonzero(~np.eye(n_groups, dtype=bool))
    return i, j


def _plain_means(sums: FloatArray, counts: FloatArray) -> FloatArray:
    """Divide sums by counts, where there is something to divide by."""
    return np.clip(sums / np.maximum(counts, 0.5), 0.0, 1.0)


def _flat(contrasts: FloatArray) -> FloatArray:
    """Put the contrasts of all parts side by side."""
    return contrasts.reshape(*contrasts.shape[:-2], -1)


def _at(values: FloatArray, which: npt.NDArray[np.int64]) -> FloatArray:
    """Return one group's value."""
    return np.take_along_axis(values, which[..., None], axis=-1)[..., 0]


def _extremes(
    means: FloatArray, variances: FloatArray, u: FloatArray, *, ratio: bool
) -> tuple[FloatArray, FloatArray, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Find the pair of groups that has disparity u at the least cost, or most above it."""
    i, j = _pairs(means.shape[-1])
    kept = 1.0 - u[..., None] if ratio else np.ones_like(u)[..., None]
    gap = kept * means[..., j] - means[..., i] - (0.0 if ratio else u[..., None])
    score = gap / np.sqrt(variances[..., i] + kept * kept * variances[..., j])
    best = np.argmax(score, axis=-1)
    first, second = i[best], j[best]
    return _at(means, first), _at(means, second), (first, second)


def _within(
    means: FloatArray,
    lowest: FloatArray,
    highest: FloatArray,
    i: npt.NDArray[np.int64],
    j: npt.NDArray[np.int64],
) -> FloatArray:
    """Keep all means between those of the extreme pair."""
    moved = np.clip(means, lowest[..., None], highest[..., None])
    np.put_along_axis(moved, i[..., None], lowest[..., None], axis=-1)
    np.put_along_axis(moved, j[..., None], highest[..., None], axis=-1)
    return moved
