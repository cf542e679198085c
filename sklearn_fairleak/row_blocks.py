"""Work through a large matrix in blocks of rows that stay in the cache, in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["map_row_blocks"]

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
    if matrix.size < _PARALLEL:
        return [function(matrix[where], where) for where in slices]
    # A thread takes many blocks at a time, so that handing them out costs nothing.
    workers = os.cpu_count() or 1
    share = -(-len(slices) // (4 * workers))
    groups = [slices[k : k + share] for k in range(0, len(slices), share)]

    def work(group: list[slice]) -> list[T]:
        return [function(matrix[where], where) for where in group]

    with ThreadPoolExecutor(workers) as pool:
        return [result for results in pool.map(work, groups) for result in results]


def largest_and_smallest(matrix: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the largest and the smallest element; NaN if any is NaN."""
    pairs = np.array(map_row_blocks(lambda rows, where: (rows.max(), rows.min()), matrix))
    return float(pairs[:, 0].max()), float(pairs[:, 1].min())
