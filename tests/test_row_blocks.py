"""Sums over blocks of a large matrix are those of NumPy over all of it."""

from __future__ import annotations

import numpy as np
import pytest

from sklearn_fairleak.row_blocks import largest_and_smallest, map_row_blocks, row_moments, sum_over_rows


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (700, 10_001), (50, 100_000), (2, 2**22)])
def test_moments_and_sums_equal_those_of_the_whole_matrix(shape):
    matrix = np.random.default_rng(0).integers(0, 2**20, shape).astype(float)
    moments = row_moments(matrix)
    assert (moments.low, moments.high) == (matrix.min(), matrix.max())
    assert largest_and_smallest(matrix) == (matrix.max(), matrix.min())
    np.testing.assert_array_equal(moments.sums, matrix.sum(axis=1))
    np.testing.assert_allclose(moments.squares, (matrix**2).sum(axis=1), rtol=1e-14)
    np.testing.assert_array_equal(
        sum_over_rows(lambda block, rows, columns: np.abs(block), matrix), matrix.sum(axis=0)
    )


def test_a_function_is_told_where_its_block_lies():
    matrix = np.arange(700.0)[:, None] + np.arange(10_001.0)

    def difference(block, rows, columns):
        return block - (np.arange(700.0)[rows, None] + np.arange(10_001.0)[columns])

    assert not sum_over_rows(difference, matrix).any()
    found = map_row_blocks(lambda rows, where: rows[:, 0] - np.arange(700.0)[where], matrix)
    assert not np.concatenate(found).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_single_bad_value_is_seen(value):
    matrix = np.full((700, 10_001), 0.5)
    matrix[699, 10_000] = value
    matrix[0, 0] = -value
    moments = row_moments(matrix)
    assert not (moments.low >= 0.0 and moments.high <= 1.0)
