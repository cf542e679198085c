"""Detecting matrices: the fewest sums over chosen subsets that tell every 0/1 vector apart.

Row ``t`` is a subset of bits, and so is the mask ``S`` that a few columns share. Of all rows, only
those whose restriction to ``S`` is an odd subset weigh a column, so the alternating sum of the
answers over the subsets of ``S`` isolates its columns; it is a superincreasing sum, whose digits
are the unknowns. With ``r`` bits of resolution below one unit, a mask of ``k`` bits hosts ``k + r``
columns instead of ``k``.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

__all__ = ["DetectingMatrix", "rows_needed"]

IntArray = npt.NDArray[np.int64]

#: Finer weights could overflow sums of 64-bit integers.
_MOST_BITS = 30


def rows_needed(n: int, bits: int = 0) -> int:
    """Return how many sums tell n unknown bits, about ``2 n / log2(n)`` at zero extra bits.

    Examples
    --------
    >>> from sklearn_fairleak.attack.detecting_matrix import rows_needed
    >>> [rows_needed(n) for n in (100, 1000, 10_000)]
    [39, 252, 1879]
    """
    rows = hosted = 0
    while hosted < n:
        rows += 1
        hosted += rows.bit_count() + bits
    return rows


class DetectingMatrix:
    """Design sums of 0/1 unknowns, and solve for the unknowns exactly.

    Parameters
    ----------
    n : int
        Number of unknowns.
    bits : int, default=0
        Weights are multiples of ``2**-bits`` in [0, 1]; subsets at 0.

    References
    ----------
    B. Lindström, "On a combinatorial problem in number theory", Canadian Mathematical Bulletin 8
    (1965). D. G. Cantor & W. H. Mills, "Determination of a subset from certain combinatorial
    properties", Canadian Journal of Mathematics 18 (1966).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack.detecting_matrix import DetectingMatrix
    >>> design = DetectingMatrix(5)
    >>> design.weights.shape
    (4, 5)
    >>> design.solve(design.weights @ np.array([1, 0, 0, 1, 1])).tolist()
    [1, 0, 0, 1, 1]
    """

    def __init__(self, n: int, bits: int = 0) -> None:
        self.n, self.bits = n, min(bits, _MOST_BITS)
        self.n_rows = rows_needed(n, self.bits)
        # Masks of many bits first: they host the most columns.
        self._columns: dict[int, range] = {}
        first = 0
        for mask in sorted(range(1, self.n_rows + 1), key=int.bit_count, reverse=True):
            last = min(n, first + mask.bit_count() + self.bits)
            if last > first:
                self._columns[mask] = range(first, last)
            first = last

    @cached_property
    def weights(self) -> IntArray:
        """Weights in units of ``2**-bits``, integers of shape (n_rows, n)."""
        unit = 1 << self.bits
        rows = np.arange(1, self.n_rows + 1)
        weights = np.zeros((self.n_rows, self.n), dtype=np.int64 if self.bits else np.int8)
        for mask, columns in self._columns.items():
            odd = _odd_submasks(mask)
            rank = np.full(mask + 1, -1, dtype=np.int64)
            rank[odd] = np.arange(odd.size)
            own = rank[rows & mask][:, None]
            # Column k weighs 2^k units in all, one unit at most in each odd subset.
            whole, part = np.divmod(np.int64(1) << np.arange(len(columns)), unit)
            heavy = np.where(own < whole, unit, np.where(own == whole, part, 0))
            weights[:, columns.start : columns.stop] = np.where(own < 0, 0, heavy)
        return weights

    def solve(self, sums: npt.ArrayLike) -> IntArray | None:
        """Return the 0/1 unknowns whose weighted sums are given, None if there are none.

        Parameters
        ----------
        sums : array-like of int of shape (n_rows,)
            In units of ``2**-bits``.
        """
        residual = np.concatenate([[0], np.asarray(sums, dtype=np.int64)])
        unknowns = np.zeros(self.n, dtype=np.int64)
        n_bits = self.n_rows.bit_length()
        by_size: dict[int, list[int]] = {}
        for mask in self._columns:
            by_size.setdefault(mask.bit_count(), []).append(mask)
        for size in sorted(by_size, reverse=True):
            table = np.zeros(1 << n_bits, dtype=np.int64)
            table[: self.n_rows + 1] = residual
            for b in range(n_bits):
                # Moebius transform: alternating sums over the subsets of every mask.
                pairs = table.reshape(-1, 2, 1 << b)
                pairs[:, 1] -= pairs[:, 0]
            solved: list[int] = []
            for mask in by_size[size]:
                columns = self._columns[mask]
                value = int(table[mask]) * (1 if size % 2 else -1)
                if not 0 <= value < 1 << len(columns):
                    return None
                solved += [column for k, column in enumerate(columns) if value >> k & 1]
            if solved:
                unknowns[solved] = 1
                residual[1:] -= self.weights[:, solved].sum(axis=1, dtype=np.int64)
        return unknowns if not residual.any() else None


def _odd_submasks(mask: int) -> IntArray:
    """List the subsets of a mask with an odd number of bits."""
    subsets = np.zeros(1, dtype=np.int64)
    odd = np.zeros(1, dtype=bool)
    for b in range(mask.bit_length()):
        if mask >> b & 1:
            subsets = np.concatenate([subsets, subsets | (1 << b)])
            odd = np.concatenate([odd, ~odd])
    return subsets[odd]
