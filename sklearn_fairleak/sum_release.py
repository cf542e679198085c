"""One joint private release of the group sums that several metrics share.

Group metrics come in; whole-number rows, exact discrete noise, and noisy group sums go out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np
import numpy.typing as npt

from .group_metrics import GroupMetric
from .mechanisms.integer_design import group_sums
from .noise import Noise, flip_probability

__all__ = ["SharedSums", "add_noise", "count_reports", "grid_of", "on_grid", "report_odds"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_FINEST_GRID_BITS = 20
_EXACT_BITS = 52


@dataclass(frozen=True, eq=False)
class _Block:
    """Whole-number rows of which each individual adds at most ``norm`` in all."""

    rows: FloatArray
    unit: float
    norm: int
    squared: int


class SharedSums:
    """Plan which public rows are summed by group, so that metrics share what they have in common.

    Indicators are split into the atoms of their algebra: an individual is in one atom at most,
    so any number of metrics of the confusion matrix cost what one count costs. A real-valued
    vector v is summed as the pair v and 1 - v.

    Parameters
    ----------
    metrics : sequence of GroupMetric
        What is to be released.
    counts : ndarray of shape (n_samples,), default=None
        How many individuals each sample stands for; None means one.
    """

    def __init__(self, metrics: Sequence[GroupMetric], counts: IntArray | None = None) -> None:
        self.counts = counts
        self.blocks: list[_Block] = []
        self.decoders: list[FloatArray] = []
        by_weights: dict[bytes | None, list[int]] = {}
        for k, metric in enumerate(metrics):
            key = None if metric.weights is None else metric.weights.tobytes()
            by_weights.setdefault(key, []).append(k)
        parts: list[list[tuple[int, FloatArray]]] = [[] for _ in metrics]
        start = 0
        for members in by_weights.values():
            weights = metrics[members[0]].weights
            flat = np.concatenate([metrics[k].vectors for k in members])
            real = [metrics[k].summed and row == 0 for k in members for row in range(len(metrics[k].vectors))]
            codes, reads = self._plan(flat, np.array(real), weights, start)
            position = 0
            for k in members:
                for _ in metrics[k].vectors:
                    parts[k].append((position, reads[position]))
                    position += 1
            start = codes
        self.n_rows = start
        for vectors in parts:
            decoder = np.zeros((len(vectors), start))
            for row, (_, read) in enumerate(vectors):
                decoder[row, : read.size] = read
            self.decoders.append(decoder)
        self.rows = np.concatenate([block.rows for block in self.blocks])
        self.units = np.concatenate([np.full(len(block.rows), block.unit) for block in self.blocks])

    def scales(self, epsilon: Fraction, n_statuses: int) -> list[Fraction]:
        """Return the Laplace scale of each row, so that all rows cost at most epsilon.

        With more than two statuses a change moves two groups.
        """
        moves = 2 if n_statuses > 2 else 1
        out: list[Fraction] = []
        for block in self.blocks:
            exact = Fraction(max(1, block.norm) * moves * len(self.blocks)) / epsilon
            rounded = Fraction(ceil(exact * 2**16), 2**16)
            out += [rounded] * len(block.rows)
        return out

    def variances(self, rho: Fraction, n_statuses: int) -> list[Fraction]:
        """Return the Gaussian variance of each row, so that all rows cost at most rho."""
        moves = 2 if n_statuses > 2 else 1
        out: list[Fraction] = []
        for block in self.blocks:
            exact = Fraction(max(1, block.squared) * moves * len(self.blocks)) / (2 * rho)
            out += [Fraction(ceil(exact * 2**16), 2**16)] * len(block.rows)
        return out

    def whole_sums(self, members: npt.NDArray[np.bool_]) -> IntArray:
        """Return the secret whole sums of a group, shape (n_rows,)."""
        if self.counts is not None:
            # Rows already hold sums over many individuals, which the grid keeps below 2^52.
            return np.asarray(self.rows[:, members].astype(np.int64).sum(axis=1), dtype=np.int64)
        return group_sums(self.rows, members)

    def totals(self, cell: npt.NDArray[np.bool_]) -> IntArray:
        """Return the public whole sums of a cell of control features, shape (n_rows,)."""
        return self.whole_sums(cell)

    def _plan(
        self, vectors: FloatArray, real: npt.NDArray[np.bool_], weights: FloatArray | None, start: int
    ) -> tuple[int, list[FloatArray]]:
        """Add the blocks of vectors of one weighting; return the next row and how to read each vector."""
        n = vectors.shape[1]
        counts = np.ones(n) if self.counts is None else self.counts.astype(np.float64)
        top = 1.0 if weights is None else float(weights.max())
        fine = grid_of(int(counts.sum()))
        whole = ~real & np.all((vectors == 0) | (vectors == 1), axis=1)
        reads: list[FloatArray] = [np.zeros(0)] * len(vectors)
        if whole.any():
            grid = 1 if weights is None else fine
            share = counts if weights is None else np.rint(weights / top * grid) * counts
            patterns, where = _atoms(vectors[whole])
            kept = np.flatnonzero(patterns.any(axis=0))
            rows = np.stack([(where == atom) * share for atom in kept]) if kept.size else np.zeros((1, n))
            self.blocks.append(_Block(rows, top / grid, grid, grid * grid))
            for row, vector in enumerate(np.flatnonzero(whole)):
                read = np.zeros(start + len(rows))
                if kept.size:
                    read[start:] = patterns[row, kept]
                reads[vector] = read
            start += len(rows)
        for vector in np.flatnonzero(~whole):
            share = np.full(n, float(fine)) if weights is None else np.rint(weights / top * fine)
            if real[vector]:
                value, share = np.rint(vectors[vector] * share * counts), share * counts
            else:
                value, share = on_grid(vectors[vector], share) * counts, share * counts
            self.blocks.append(_Block(np.stack([value, share - value]), top / fine, fine, fine * fine))
            read = np.zeros(start + 2)
            read[start] = 1.0
            reads[vector] = read
            start += 2
        return start, reads


def grid_of(n_individuals: int) -> int:
    """Return the number of steps in [0, 1] to which real values are rounded."""
    return int(2 ** min(_FINEST_GRID_BITS, _EXACT_BITS - n_individuals.bit_length()))


def on_grid(values: FloatArray, share: FloatArray) -> FloatArray:
    """Round values in [0, 1] to steps of 1/share, halves up: a rule that query engines share."""
    return np.asarray(np.floor(values * share + 0.5))


def _atoms(indicators: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return the distinct columns of indicators, shape (n_vectors, n_atoms), and the one of each sample."""
    if len(indicators) > 62:
        patterns, where = np.unique(indicators, axis=1, return_inverse=True)
        return patterns, np.asarray(where).reshape(-1)
    # The first vector leads, so that atoms come in the order of their columns.
    numbers = (2 ** np.arange(len(indicators) - 1, -1, -1, dtype=np.int64)) @ indicators.astype(np.int64)
    _, first, where = np.unique(numbers, return_index=True, return_inverse=True)
    return indicators[:, first], np.asarray(where).reshape(-1)


def add_noise(
    shared: SharedSums,
    codes: IntArray,
    n_statuses: int,
    cells: Sequence[npt.NDArray[np.bool_]],
    noise: Noise,
    *,
    law: str,
    budget: Fraction,
) -> list[list[list[int]]]:
    """Release noisy whole sums, shape (n_cells, n_released groups, n_rows), as plain data.

    With two statuses only the second group is released: the first follows from public totals.
    Cells are disjoint, so each has the whole budget.
    """
    if law == "laplace":
        draw: Callable[[Fraction, int], IntArray] = noise.discrete_laplace
        each = shared.scales(budget, n_statuses)
    else:
        each = shared.variances(budget, n_statuses)
        draw = noise.discrete_gaussian
    released = range(1, 2) if n_statuses == 2 else range(n_statuses)
    out = []
    for cell in cells:
        groups = []
        for group in released:
            sums = shared.whole_sums(cell & (codes == group))
            noisy = [int(s) + int(draw(scale, 1)[0]) for s, scale in zip(sums, each, strict=True)]
            groups.append(noisy)
        out.append(groups)
    return out


def count_reports(
    shared: SharedSums, reported: IntArray, n_statuses: int, cells: Sequence[npt.NDArray[np.bool_]]
) -> list[list[list[int]]]:
    """Sum rows over reported groups: what a randomised copy tells, as plain data."""
    return [
        [shared.whole_sums(cell & (reported == group)).tolist() for group in range(n_statuses)]
        for cell in cells
    ]


def report_odds(epsilon: Fraction, n_statuses: int) -> tuple[float, float]:
    """Return the probabilities of reporting one's own group and each other one."""
    flip = float(flip_probability(epsilon, n_statuses))
    return 1.0 - flip, flip / (n_statuses - 1)
