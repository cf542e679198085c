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

__all__ = ["best_block", "find_subset"]

IntArray = npt.NDArray[np.int64]

#: Subsets of one size of half a block that are listed at most.
_MOST_SUBSETS = 1_000_000
#: Expected number of wrong subsets of the right sum that is tolerated in a search.
_MOST_COINCIDENCES = 0.05
#: Masks of half a block are kept in 63 bits.
_MOST_PEOPLE = 120


def find_subset(weights: IntArray, total: int, *, splits: int = 1) -> IntArray | None:
    """Find the smallest subset of weights with a given sum.

    Parameters
    ----------
    weights : ndarray of int of shape (n_people,)
        Positive weights, at most 120 of them.
    total : int
        Sum to find.
    splits : int, default=1
        Ways to divide the weights into two halves that are tried: a subset with too many members
        in one half to be listed is evenly divided in another.

    Returns
    -------
    ndarray of int or None
        Positions of the subset; None unless there is one, small enough to be no coincidence.

    References
    ----------
    E. Horowitz & S. Sahni, "Computing partitions with applications to the knapsack problem",
    Journal of the ACM 21 (1974).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack.subset_sums import find_subset
    >>> weights = np.random.default_rng(0).integers(1, 2**40, 60)
    >>> find_subset(weights, int(weights[[3, 17, 44, 59]].sum())).tolist()
    [3, 17, 44, 59]
    """
    order, rng = np.arange(weights.size), np.random.default_rng(weights.size)
    for _ in range(splits):
        hits = _smallest_hits(weights[order], total)
        if hits:
            return np.sort(order[hits[0]]) if len(hits) == 1 else None
        order = rng.permutation(weights.size)
    return None


def _smallest_hits(weights: IntArray, total: int) -> list[IntArray]:
    """Return the subsets of the smallest size with a given sum, of those that one split lists."""
    half = weights.size // 2
    left, right = _Half(weights[:half]), _Half(weights[half:])
    bits = math.log2(float(weights.max(initial=1)))
    for size in range(_most_members(weights.size, bits) + 1):
        hits = [hit for k in range(size + 1) for hit in left.matches(k, right, size - k, total)]
        if hits:
            masks = [own | other << half for own, other in hits]
            return [
                np.array([i for i in range(weights.size) if mask >> i & 1], dtype=np.int64) for mask in masks
            ]
    return []


class _Half:
    """List the subsets of half a block, size by size and sorted by their sums, as far as they are needed."""

    def __init__(self, weights: IntArray) -> None:
        self._weights = weights
        self._unsorted = [(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))]
        self._sorted: list[tuple[IntArray, IntArray]] = []

    def subsets(self, size: int) -> tuple[IntArray, IntArray] | None:
        """Return sums and bit masks of the subsets of a size, None if there are none or too many."""
        people = self._weights.size
        if size > people or math.comb(people, size) > _MOST_SUBSETS:
            return None
        while len(self._sorted) <= size:
            k = len(self._sorted)
            if k:
                sums, masks = self._unsorted[-1]
                parent, person = _extensions(people, k)
                bit = np.left_shift(np.int64(1), person.astype(np.int64))
                self._unsorted.append((sums[parent] + self._weights[person], masks[parent] | bit))
            sums, masks = self._unsorted[-1]
            order = np.argsort(sums)
            self._sorted.append((sums[order], masks[order]))
        return self._sorted[size]

    def matches(self, size: int, other: _Half, other_size: int, total: int) -> list[tuple[int, int]]:
        """Return pairs of subsets of the two halves, of given sizes, that add up to a total."""
        own, others = self.subsets(size), other.subsets(other_size)
        if own is None or others is None:
            return []
        swap = own[0].size > others[0].size
        (needles, needle_masks), (hay, hay_masks) = (others, own) if swap else (own, others)
        wanted = total - needles
        at = np.searchsorted(hay, wanted)
        hits = []
        for i in np.flatnonzero(hay[np.minimum(at, hay.size - 1)] == wanted):
            j = int(at[i])
            while j < hay.size and hay[j] == wanted[i]:
                pair = int(needle_masks[i]), int(hay_masks[j])
                hits.append(pair[::-1] if swap else pair)
                j += 1
        return hits


@lru_cache(maxsize=256)
def best_block(share: float, bits: int) -> int:
    """Return the size of blocks that costs the fewest queries, at a share of the smaller group.

    A block whose members are too many to be searched for is read digit by digit, up to `bits` people
    a query, until what is left can be.

    Examples
    --------
    >>> from sklearn_fairleak.attack.subset_sums import best_block
    >>> best_block(0.02, 42) > best_block(0.1, 42) > best_block(0.3, 42)
    True
    """
    sizes = np.arange(8, _MOST_PEOPLE + 1)
    read = np.array([_chance(int(size), bits, share) for size in sizes])
    return int(sizes[np.argmin((1.0 + (1.0 - read) * np.maximum(sizes / bits - 0.8, 0.5)) / sizes)])


def _chance(people: int, bits: int, share: float) -> float:
    """Return the chance that a block has few enough members, in both halves, to be searched."""
    from scipy.stats import binom

    half = people - people // 2
    listed = max(k for k in range(half + 1) if math.comb(half, min(k, half // 2)) <= _MOST_SUBSETS)
    few = binom.cdf(_most_members(people, bits), people, share)
    return float(few * binom.cdf(listed, half, share) ** 2)


def _most_members(people: int, bits: float) -> int:
    """Return how many members of a block can be found without coincidences."""
    subsets, most = 1, 0
    while most < people:
        subsets += math.comb(people, most + 1)
        # Sums of a few weights spread over about twice the largest weight.
        if subsets > 2.0 * _MOST_COINCIDENCES * 2.0**bits:
            break
        most += 1
    return most


@lru_cache(maxsize=16)
def _extensions(people: int, size: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
    """List how each subset of a size extends one of a person less by a person after its last."""
    last = np.array([-1]) if size == 1 else _extensions(people, size - 1)[1].astype(np.int64)
    room = people - 1 - last
    parent = np.repeat(np.arange(last.size), room)
    start = np.repeat(np.cumsum(room) - room, room)
    person = last[parent] + 1 + np.arange(parent.size) - start
    return parent.astype(np.int32), person.astype(np.int8)
