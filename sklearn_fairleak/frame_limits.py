"""Limits and corrected values of every metric of a private frame, from its noisy group sums.

Noisy whole sums and the law of their noise come in; values, limits and means without the bias of
noise go out. All of it is post-processing of one release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from .contrasts import Contrast, Differences, Largest, Ratios, Smallest, ToOverall
from .group_metrics import GroupMetric
from .intervals import reports_together
from .inversion import N_DRAWS, GroupSums, corrected, invert, laplace_draws, normal_draws, uniform_draws

__all__ = [
    "NoisyCells",
    "consistent",
    "laplace_errors",
    "like_result",
    "normal_errors",
    "report_errors",
]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NoisyCells:
    """Noisy sums of the groups in every cell of the control features.

    Parameters
    ----------
    sums : ndarray of shape (n_cells, n_groups, n_rows)
        Noisy sums that add up to the public totals.
    errors : ndarray of shape (n_draws, n_cells, n_groups, n_rows)
        Errors they may carry.
    totals : ndarray of shape (n_cells, n_rows)
        Public sums of everybody.
    sizes : ndarray of shape (n_cells,)
        Public numbers of individuals.
    """

    sums: FloatArray
    errors: FloatArray
    totals: FloatArray
    sizes: FloatArray

    def values(self, metric: GroupMetric, decoder: FloatArray) -> FloatArray:
        """Return noisy values of a metric, shape (n_cells, n_groups)."""
        return metric.evaluate(self.sums @ decoder.T)

    def limits(
        self,
        metric: GroupMetric,
        decoder: FloatArray,
        confidence: float,
        what: str,
        method: str,
        *,
        sampling: bool,
    ) -> FloatArray:
        """Return limits of a result of a frame.

        Parameters
        ----------
        metric, decoder
            What is measured, and how its vectors are read from rows.
        confidence : float
            Wanted coverage of each value.
        what, method : str
            See :meth:`~sklearn_fairleak.PrivateMetricFrame.interval`.
        sampling : bool
            Cover values of the population that individuals were drawn from, too.

        Returns
        -------
        ndarray of shape (n_cells, 2), or (n_cells, n_groups, 2) by group
        """
        if what == "overall":
            return self._overall_limits(metric, decoder, confidence, sampling)
        simple = what in ("by_group", "group_min", "group_max")
        ratio = what == "ratio"
        data, low, width = self._compared(metric, decoder, simple=simple, ratio=ratio, sampling=sampling)
        if what == "by_group":
            limits = invert(_cell_by_cell(data), Largest(), confidence).reshape(*self.sums.shape[:2], 2)
            width = width[:, None]
        elif what in ("group_min", "group_max"):
            limits = invert(data, Smallest() if what == "group_min" else Largest(), confidence)
            limits = 1.0 - limits[:, ::-1] if what == "group_min" else limits
        else:
            contrast: Contrast = Ratios() if ratio else Differences()
            if method == "to_overall":
                contrast = ToOverall(self._unit_overall(metric, decoder, low, width), ratio=ratio)
            limits = invert(data, contrast, confidence)
            if ratio:
                known = metric.is_count or metric.low >= 0.0
                return 1.0 - limits[:, ::-1] if known else np.full_like(limits, [-np.inf, np.inf])
            low = 0.0
        limits = low + width[..., None] * limits
        return np.sqrt(np.maximum(limits, 0.0)) if simple and metric.root else limits

    def corrected_means(self, metric: GroupMetric, decoder: FloatArray) -> FloatArray:
        """Return values nearest to the noisy ones of which the spread has no bias, (n_cells, n_groups)."""
        data, low, width = self._compared(metric, decoder, simple=False, ratio=False, sampling=False)
        spread = corrected(data, Differences())[:, None]
        moved = Differences().nearest(data.means, data.variances, spread)[:, 0]
        return np.asarray(low + width[:, None] * moved)

    def corrected_to_overall(self, metric: GroupMetric, decoder: FloatArray, *, ratio: bool) -> FloatArray:
        """Return differences from the overall value, or ratios to it, less the bias of noise, (n_cells,)."""
        data, low, width = self._compared(metric, decoder, simple=False, ratio=ratio, sampling=False)
        contrast = ToOverall(self._unit_overall(metric, decoder, low, width), ratio=ratio)
        u = corrected(data, contrast)
        return 1.0 - u if ratio else u * width

    def _compared(
        self, metric: GroupMetric, decoder: FloatArray, *, simple: bool, ratio: bool, sampling: bool
    ) -> tuple[GroupSums, float, FloatArray]:
        """Return a metric's sums and counts with errors, and what 0 and 1 of their quotient stand for."""
        n_cells, n_groups, _ = self.sums.shape
        spread = self._sampling_sd(metric, decoder) if sampling else None
        low, width = metric.low, np.full(n_cells, metric.high - metric.low)
        if metric.is_count:
            low, width = 0.0, np.maximum(self.sizes, 1.0)
        if len(metric.terms) == 1 and not metric.is_count and (simple or not metric.root):
            above, below = (np.asarray(side) @ decoder for side in metric.terms[0])
            sums, counts = self.sums @ above, self.sums @ below
            errors, count_errors = self.errors @ above, self.errors @ below
            weights = self.totals @ below
            if spread is not None:
                spread = spread * np.maximum(counts, 0.0)
        else:
            errors = self.values(metric, decoder) - metric.evaluate((self.sums - self.errors) @ decoder.T)
            sums, top = self.values(metric, decoder), width
            if metric.root:
                width = top = width**0.5
            sums, errors = (sums - low) / top[:, None], errors / top[:, None]
            counts, count_errors = np.ones_like(sums), np.zeros_like(errors)
            weights = np.full(n_cells, float(n_groups))
        if spread is not None:
            z = normal_draws(uniform_draws(n_cells * n_groups)).reshape(-1, n_cells, n_groups)
            # Another order than that of the noise, whose points are the same.
            errors = errors + z[np.random.default_rng(0).permutation(len(z))] * spread
        if ratio and not metric.is_count and low > 0.0:
            # Ratios are of values, not of shares of their range.
            top_value = low + width[:, None]
            sums = (low * counts + width[:, None] * sums) / top_value
            errors = (low * count_errors + width[:, None] * errors) / top_value
        data = GroupSums(
            sums[:, None], counts[:, None], errors[:, :, None], count_errors[:, :, None], weights[:, None]
        )
        return data, low, width

    def _unit_overall(
        self, metric: GroupMetric, decoder: FloatArray, low: float, width: FloatArray
    ) -> FloatArray:
        """Return the public overall value in the units of the compared means, shape (n_cells, 1)."""
        overall = metric.evaluate(self.totals @ decoder.T)
        return np.clip((overall - low) / width, 0.0, 1.0)[:, None]

    def _overall_limits(
        self, metric: GroupMetric, decoder: FloatArray, confidence: float, sampling: bool
    ) -> FloatArray:
        """Return limits of public values: none, but for individuals being a sample."""
        values = metric.evaluate(self.totals @ decoder.T)
        if not sampling:
            return np.stack([values, values], axis=1)
        one = self.totals[:, None]
        everybody = NoisyCells(one, np.zeros((N_DRAWS, *one.shape)), self.totals, self.sizes)
        data, low, width = everybody._compared(metric, decoder, simple=True, ratio=False, sampling=True)
        limits = low + width[:, None] * invert(data, Largest(), confidence)
        return np.sqrt(np.maximum(limits, 0.0)) if metric.root else limits

    def _sampling_sd(self, metric: GroupMetric, decoder: FloatArray) -> FloatArray:
        """Return standard deviations of unit values over samples of individuals, (n_cells, n_groups).

        Every individual adds to one row at most (or to a row and its complement), so rows add up
        like counts. One individual more in each row keeps groups of equal values from looking
        certain.
        """
        top = 1.0 if metric.weights is None else float(metric.weights.max())
        influence = np.zeros(self.sums.shape)
        for over, under in metric.terms:
            above = np.asarray(over) @ decoder
            if under is None:
                influence = influence + above / np.maximum(self.sizes, 1.0)[:, None, None]
                continue
            below = np.asarray(under) @ decoder
            size = np.maximum(self.sums @ below, top)[..., None]
            mean = np.clip((self.sums @ above)[..., None] / size, 0.0, 1.0)
            influence = influence + (above - mean * below) / size / len(metric.terms)
        variance = top * ((np.maximum(self.sums, 0.0) + top) * influence**2).sum(axis=2)
        return np.asarray(np.sqrt(variance))


def consistent(sums: FloatArray, totals: FloatArray, n_groups: int) -> FloatArray:
    """Make sums of all groups that add up to public totals, shape (..., n_groups, n_rows)."""
    if sums.shape[-2] < n_groups:
        return np.concatenate([totals - sums, sums], axis=-2)
    return sums + (totals - sums.sum(axis=-2, keepdims=True)) / n_groups


def laplace_errors(shape: tuple[int, ...], scales: FloatArray) -> FloatArray:
    """Return discrete Laplace errors of whole rows, shape (n_draws, *shape)."""
    uniform = uniform_draws(int(np.prod(shape))).reshape(N_DRAWS, *shape)
    return laplace_draws(uniform, scales) * scales


def normal_errors(shape: tuple[int, ...], sds: FloatArray) -> FloatArray:
    """Return rounded normal errors of whole rows, shape (n_draws, *shape)."""
    return np.rint(normal_draws(uniform_draws(int(np.prod(shape)))).reshape(N_DRAWS, *shape) * sds)


def report_errors(
    rows: list[FloatArray], estimates: FloatArray, totals: FloatArray, keep: float, other: float
) -> FloatArray:
    """Return errors of sums over randomised responses, shape (n_draws, n_cells, n_groups, n_rows).

    Parameters
    ----------
    rows : list of ndarray of shape (n_rows, n_individuals of a cell)
        Public whole-number rows.
    estimates, totals : ndarray of shape (n_cells, n_groups, n_rows) and (n_cells, n_rows)
        Estimated sums of groups, and public ones of everybody.
    keep, other : float
        Probabilities of reporting one's own group, and each other one.
    """
    z = normal_draws(uniform_draws(estimates.size)).reshape(N_DRAWS, *estimates.shape)
    together = reports_together(keep, estimates.sum(axis=2), totals.sum(axis=1), told=True)
    errors = np.empty_like(z)
    for number, members in enumerate(rows):
        values, vectors = np.linalg.eigh(members @ members.T)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        errors[:, number] = together[number] @ (z[:, number] @ root.T) / (keep - other)
    return errors


def _cell_by_cell(data: GroupSums) -> GroupSums:
    """Make every group's mean an answer of its own."""

    def flat(array: FloatArray) -> FloatArray:
        return array.reshape(*array.shape[:-3], -1, 1, 1)

    weights = np.repeat(data.weights, data.sums.shape[2], axis=0)
    return GroupSums(
        flat(data.sums), flat(data.counts), flat(data.sum_errors), flat(data.count_errors), weights
    )


def like_result(result: Any, values: FloatArray) -> Any:
    """Give values the type and labels of a result."""
    if isinstance(result, pd.DataFrame):
        return pd.DataFrame(values, index=result.index, columns=result.columns)
    if isinstance(result, pd.Series):
        return pd.Series(np.ravel(values), index=result.index, name=result.name)
    return float(np.ravel(values)[0])
