"""Work through a large matrix in blocks of rows that stay in the cache, in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["RowMoments", "largest_and_smallest", "map_row_blocks", "row_moments", "sum_over_rows"]

T = TypeVar("T")

#: Elements of a block: half a megabyte of float64.
_BLOCK = 2**16
#: Below so many elements threads cost more than they save.
_PARALLEL = 2**22


def map_row_blocks(function: Callable[[npt.NDArray[Any], slice], T], matrix: npt.NDArray[Any]) -> list[T]:
    """Apply a function to consecutive blocks of rows.

    NumPy releases the interpreter lock inside large operations, so threads share the work.

    Parameters
    ----------
    function : callable
        ``function(rows, where)`` with a block of rows and their slice.
    matrix : ndarray of shape (n_rows, n_columns)
        What to work through.

    Returns
    -------
    list
        Results in the order of the blocks.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.row_blocks import map_row_blocks
    >>> map_row_blocks(lambda rows, where: float(rows.sum()), np.ones((3, 2)))
    [6.0]
    """
    n_rows = matrix.shape[0]
    step = max(1, _BLOCK // max(1, matrix.shape[1]))
    slices = [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
    return _shared_out(lambda where: function(matrix[where], where), slices, matrix.size)


def _shared_out(work: Callable[[slice], T], slices: list[slice], size: int) -> list[T]:
    """Do work on each slice, in threads where ``size`` elements are worth them."""
    if size < _PARALLEL:
        return [work(where) for where in slices]
    # A thread takes many slices at a time, so that handing them out costs nothing.
    workers = os.cpu_count() or 1
    share = -(-len(slices) // (4 * workers))
    groups = [slices[k : k + share] for k in range(0, len(slices), share)]
    with ThreadPoolExecutor(workers) as pool:
        return [
            result for results in pool.map(lambda group: list(map(work, group)), groups) for result in results
        ]


def sum_over_rows(
    function: Callable[[npt.NDArray[Any], slice, slice], npt.NDArray[Any]], matrix: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Add up what a function makes of each element, over the rows of every column.

    Parameters
    ----------
    function : callable
        ``function(block, rows, columns)`` with a block and where it lies; it returns an array
        of the block's shape.
    matrix : ndarray of shape (n_rows, n_columns)
        What to work through.

    Returns
    -------
    ndarray of shape (n_columns,)

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.row_blocks import sum_over_rows
    >>> sum_over_rows(lambda block, rows, columns: block**2, np.full((3, 2), 2.0))
    array([12., 12.])
    """
    n_rows, n_columns = matrix.shape
    width, height = 2**13, max(1, _BLOCK // min(2**13, n_columns))

    def strip(columns: slice) -> npt.NDArray[np.float64]:
        total = np.zeros(columns.stop - columns.start)
        for start in range(0, n_rows, height):
            rows = slice(start, min(start + height, n_rows))
            total += function(matrix[rows, columns], rows, columns).sum(axis=0)
        return total

    strips = [slice(start, min(start + width, n_columns)) for start in range(0, n_columns, width)]
    return np.concatenate(_shared_out(strip, strips, matrix.size))


@dataclass(frozen=True, eq=False)
class RowMoments:
    """What one pass over a matrix tells of it.

    Parameters
    ----------
    low, high : float
        Smallest and largest element; NaN if any is NaN.
    sums, squares : ndarray of shape (n_rows,)
        Sums of each row's elements, and of their squares.
    """

    low: float
    high: float
    sums: npt.NDArray[np.float64]
    squares: npt.NDArray[np.float64]


def row_moments(matrix: npt.NDArray[np.float64]) -> RowMoments:
    """Read a matrix once: its range, and each row's sum and sum of squares.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.row_blocks import row_moments
    >>> moments = row_moments(np.array([[0.0, 1.0, 0.5]]))
    >>> moments.high, moments.sums, moments.squares
    (1.0, array([1.5]), array([1.25]))
    """

    n_rows, n_columns = matrix.shape
    # Several long rows at a time: calls of NumPy from two threads wait for each other.
    width, height = 2**15, max(1, 2 * _BLOCK // min(2**15, n_columns))
    sums, squares = np.zeros(n_rows), np.zeros(n_rows)

    def band(rows: slice) -> tuple[Any, Any]:
        low, high = [], []
        # What is not finite is the caller's to refuse.
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, n_columns, width):
                block = matrix[rows, start : start + width]
                squares[rows] += np.einsum("ij,ij->i", block, block)
                sums[rows] += block.sum(axis=1)
                low.append(block.min())
                high.append(block.max())
        return np.min(low), np.max(high)

    bands = [slice(start, min(start + height, n_rows)) for start in range(0, n_rows, height)]
    low, high = zip(*_shared_out(band, bands, matrix.size), strict=True)
    return RowMoments(float(np.min(low)), float(np.max(high)), sums, squares)


def largest_and_smallest(matrix: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the largest and the smallest element; NaN if any is NaN."""
    pairs = np.array(map_row_blocks(lambda rows, where: (rows.max(), rows.min()), matrix))
    return float(pairs[:, 0].max()), float(pairs[:, 1].min())
