"""Find the few weights that add up to a given sum, by meeting in the middle.

Among B people of whom about t are in the smaller group, there are far fewer subsets of size t than
2^B. Random weights of q bits tell them apart once q exceeds the logarithm of their number, and
sorted lists of the sums of half as many people find the right one.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["SubsetSums", "longest_block"]

IntArray = npt.NDArray[np.int64]

#: Subsets of half a block that are listed at most.
_MOST_SUBSETS = 1_500_000
#: Expected number of wrong subsets of the right sum that is tolerated in a block.
_MOST_COINCIDENCES = 1e-3


class SubsetSums:
    """Find small subsets of weights by their sum.

    Parameters
    ----------
    weights : ndarray of int of shape (n_people,)
        Positive weights; at most 124 of them.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack.subset_sums import SubsetSums
    >>> weights = np.random.default_rng(0).integers(1, 2**40, 60)
    >>> SubsetSums(weights).find(int(weights[[3, 17, 44, 59]].sum())).tolist()
    [3, 17, 44, 59]
    """

    def __init__(self, weights: IntArray) -> None:
        self._weights = np.asarray(weights, dtype=np.int64)
        self._half = self._weights.size // 2

    def find(self, total: int) -> IntArray | None:
        """Return the members of the subset with this sum, None unless there is one plausible subset."""
        spread = float(self._weights.sum())
        left, right = self._weights[: self._half], self._weights[self._half :]
        for most in range(self._weights.size + 1):
            pairs = _count(left.size, most) * _count(right.size, most)
            if max(_count(left.size, most), _count(right.size, most)) > _MOST_SUBSETS:
                return None
            if pairs / spread > _MOST_COINCIDENCES:
                return None
            if most < 2 and self._weights.size > 8:
                continue
            sums_left, masks_left = _subset_sums(left, most)
            sums_right, masks_right = _subset_sums(right, most)
            order = np.argsort(sums_right, kind="stable")
            sorted_right = sums_right[order]
            first = np.searchsorted(sorted_right, total - sums_left, side="left")
            last = np.searchsorted(sorted_right, total - sums_left, side="right")
            hits = np.flatnonzero(last > first)
            if hits.size:
                if hits.size > 1 or last[hits[0]] - first[hits[0]] > 1:
                    return None
                mask_left = int(masks_left[hits[0]])
                mask_right = int(masks_right[order[first[hits[0]]]])
                members = [i for i in range(left.size) if mask_left >> i & 1]
                members += [self._half + i for i in range(right.size) if mask_right >> i & 1]
                return np.array(members, dtype=np.int64)
        return None


def longest_block(share: float, bits: int) -> int:
    """Return how many people's weights one answer holds, at a share of the smaller group.

    Examples
    --------
    >>> from sklearn_fairleak.attack.subset_sums import longest_block
    >>> longest_block(0.02, 42) > longest_block(0.1, 42) > longest_block(0.3, 42)
    True
    """
    best = 0
    for size in range(8, 121):
        mean, spread = share * size / 2, math.sqrt(share * (1.0 - share) * size / 2)
        most = math.ceil(mean + 1.8 * spread)
        subsets = _count(size - size // 2, most)
        if subsets > _MOST_SUBSETS or subsets**2 / (size * 2.0 ** (bits - 1)) > _MOST_COINCIDENCES:
            break
        best = size
    return best


def _count(people: int, most: int) -> int:
    """Count the subsets of at most so many people."""
    return sum(math.comb(people, k) for k in range(min(people, most) + 1))


@lru_cache(maxsize=8)
def _shapes(people: int, most: int) -> tuple[tuple[IntArray, IntArray], ...]:
    """List how each subset of k + 1 people extends one of k by a person after its last."""
    levels: list[tuple[IntArray, IntArray]] = []
    last = np.array([-1], dtype=np.int64)
    for _ in range(most):
        room = people - 1 - last
        parent = np.repeat(np.arange(last.size), room)
        start = np.repeat(np.cumsum(room) - room, room)
        person = last[parent] + 1 + np.arange(parent.size) - start
        levels.append((parent, person))
        last = person
    return tuple(levels)


def _subset_sums(weights: IntArray, most: int) -> tuple[IntArray, IntArray]:
    """Return the sums of all subsets of at most so many weights, and the subsets as bit masks."""
    sums, masks = [np.zeros(1, dtype=np.int64)], [np.zeros(1, dtype=np.int64)]
    for parent, person in _shapes(weights.size, min(most, weights.size)):
        sums.append(sums[-1][parent] + weights[person])
        masks.append(masks[-1][parent] | (np.int64(1) << person))
    return np.concatenate(sums), np.concatenate(masks)
