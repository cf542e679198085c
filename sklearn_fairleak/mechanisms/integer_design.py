"""Public values as integers, so that sums over the secret are exact.

Values in [0, 1] are rounded to a grid of 2^-20 (binary values need no rounding) before the
secret is touched; the sensitivity is that of the rounded values. Sums of integers below 2^53
are exact in binary64 in any order, so one BLAS product gives them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..queries import FairnessQuery
from ..row_blocks import largest_and_smallest, map_row_blocks

__all__ = ["IntegerDesign", "group_sums"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_FINEST_GRID_BITS = 20
_EXACT_BITS = 53
#: Bits by which designs scale values up when they centre them.
_HEADROOM_BITS = 10


@dataclass(frozen=True, eq=False)
class IntegerDesign:
    """Hold weighted values and weights as whole numbers of a public grid.

    Parameters
    ----------
    values : ndarray of shape (n_models, n_subset)
        Whole numbers (in float64): weight times value, in units of ``unit``.
    weights : ndarray of shape (n_subset,) or None
        Whole numbers: weights in the same unit; None means ``grid`` for everyone.
    grid : int
        One individual of weight ``max_weight`` and value 1 counts this much.
    max_weight : float
        Largest sample weight (public).
    """

    values: FloatArray
    weights: FloatArray | None
    grid: int
    max_weight: float

    @property
    def unit(self) -> float:
        """What 1 in the design means in the weighted sum of values."""
        return self.max_weight / self.grid

    @property
    def n_models(self) -> int:
        """Number of value rows."""
        return int(self.values.shape[0])

    def weight_row(self) -> FloatArray:
        """Return the weights as a row of whole numbers, shape (n_subset,)."""
        if self.weights is None:
            return np.full(self.values.shape[1], float(self.grid))
        return self.weights

    def total_weight(self) -> int:
        """Return the public sum of the integer weights."""
        if self.weights is None:
            return self.grid * int(self.values.shape[1])
        return int(self.weights.sum())

    @classmethod
    def from_query(cls, query: FairnessQuery) -> IntegerDesign:
        """Round a query's public values and weights to the grid.

        The grid is 2^-20, and coarser for more than 2^23 individuals, so that centred sums
        over everyone stay below 2^53.
        """
        binary = query.weights is None and query.is_binary
        bits = _EXACT_BITS - 1 - _HEADROOM_BITS - query.n_subset.bit_length()
        grid = 1 if binary else 2 ** min(_FINEST_GRID_BITS, bits)
        if query.weights is None:
            values = query.values if grid == 1 else _rounded(query.values, grid)
            return cls(values, None, grid, 1.0)
        top = float(query.weights.max())
        weights = query.weights / top
        values = np.rint(query.values * (weights * grid))
        return cls(values, np.rint(weights * grid), grid, top)


def _rounded(values: FloatArray, grid: int) -> FloatArray:
    """Round to whole multiples of 1/grid, a few rows at a time."""
    out = np.empty_like(values)

    def quantise(rows: FloatArray, where: slice) -> None:
        np.multiply(rows, float(grid), out=out[where])
        np.rint(out[where], out=out[where])

    map_row_blocks(quantise, values)
    return out


def group_sums(rows: FloatArray, members: npt.NDArray[np.bool_]) -> IntArray:
    """Sum integer rows over the members of a group, exactly.

    Parameters
    ----------
    rows : ndarray of shape (..., n_subset)
        Whole numbers whose absolute sums are below 2^53.
    members : ndarray of bool of shape (n_subset,)
        Secret membership.

    Returns
    -------
    ndarray of int64 of shape (...)

    Raises
    ------
    OverflowError
        If the largest possible sum is not below 2^53 (decided from public rows only).
    """
    high, low = largest_and_smallest(np.atleast_2d(rows))
    largest = max(high, -low)
    if largest * rows.shape[-1] >= 2.0**_EXACT_BITS:
        raise OverflowError(
            f"Sums of {rows.shape[-1]} whole numbers up to {largest:g} may exceed 2^53 and lose exactness."
        )
    return np.asarray(np.rint(rows @ members.astype(np.float64)), dtype=np.int64)
