"""Add noise to group sums and counts, which are linear in the secret.

With two groups only the advantaged group's sums are released (the others follow from public
totals). The sensitivity of linear sums is the largest column of a public matrix, so there is
nothing smooth, undefined or data-dependent to bound.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.utils._param_validation import StrOptions, validate_parameter_constraints

from ..accounting import PrivacyLoss, rho_for, split
from ..groups import Groups
from ..noise import Noise
from ..queries import FairnessQuery, QueryBatch
from ..row_blocks import sum_over_rows
from .base import Mechanism, minority_size, range_limit
from .integer_design import IntegerDesign, group_sums
from .release import Release
from .sum_designs import (
    CENTRE_GRID,
    SumDesign,
    calibrated_scales,
    candidate_designs,
    column_norms,
)

__all__ = ["NoisySums"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_ELLIPSOID_GRID = 2**20


class NoisySums(Mechanism):
    r"""Release noisy group sums and counts; every gap is post-processing.

    Parameters
    ----------
    noise : {"laplace", "gaussian"}, default="laplace"
        Discrete Laplace noise gives pure differential privacy; discrete Gaussian noise
        gives zero-concentrated differential privacy, converted to (epsilon, delta).
    design : {"auto", "pair", "sums", "residuals", "diagonal", "ellipsoid"}, default="auto"
        What is released. ``"auto"`` predicts the error of each from public data.
        ``"pair"`` (one model, Laplace): sums of h and of 1 - h. ``"sums"`` (Laplace):
        centred sums and a weighted count. ``"residuals"`` (Laplace): a base model's sum, a
        count, and what each model adds. ``"diagonal"`` and ``"ellipsoid"`` (Gaussian):
        the same noise for each sum, or noise shaped to the batch's geometry.
    bounds : {"clip", "none"}, default="clip"
        Keep group means within [0, 1], or not.

    Notes
    -----
    A change of one individual's group moves the released sums by one column of the public
    integer matrix (by two columns of opposite sign with more than two groups). Discrete
    Laplace noise of scales :math:`b_i` costs :math:`\max_j \sum_i |P_{ij}|/b_i`; discrete
    Gaussian noise of variance :math:`\sigma^2` costs
    :math:`\rho = \max_j \|P_j\|^2/(2\sigma^2)`.

    References
    ----------
    Canonne, Kamath & Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS
    2020, arXiv 2004.00010. Li, Hay, Rastogi, Miklau & McGregor, "Optimizing Linear Counting
    Queries Under Differential Privacy", PODS 2010 (strategy matrices).

    Examples
    --------
    >>> from sklearn_fairleak.mechanisms import NoisySums
    >>> NoisySums().error_scale(10_000, 1, epsilon=1.0) < 0.001
    True
    """

    name: ClassVar[str] = "noisy_sums"
    many_groups: ClassVar[bool] = True
    releases_groups: ClassVar[bool] = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "noise": [StrOptions({"laplace", "gaussian"})],
        "design": [StrOptions({"auto", "pair", "sums", "residuals", "diagonal", "ellipsoid"})],
        "bounds": [StrOptions({"clip", "none"})],
    }

    def __init__(self, noise: str = "laplace", *, design: str = "auto", bounds: str = "clip") -> None:
        self.noise = noise
        self.design = design
        self.bounds = bounds

    def privacy_loss(self, epsilon: Fraction, delta: Fraction, n_queries: int) -> PrivacyLoss:
        """Return the cost of one of ``n_queries`` answers: pure, or zCDP for Gaussian noise."""
        validate_parameter_constraints(self._parameter_constraints, self.get_params(), type(self).__name__)
        if self.noise == "laplace":
            return super().privacy_loss(epsilon, delta, n_queries)
        if not delta > 0:
            raise ValueError(
                "noise='gaussian' needs delta > 0, got delta=0. Use noise='laplace' for pure privacy."
            )
        return PrivacyLoss.zcdp(split(rho_for(epsilon, delta), 0, n_queries)[0])

    def release(
        self,
        batch: QueryBatch,
        groups: Groups,
        loss: PrivacyLoss,
        noise: Noise,
        *,
        advantaged: int = 1,
    ) -> Release:
        """Release noisy sums of every row; see :meth:`Mechanism.release`."""
        budget = self._budget(batch, loss)
        blocks = [self._release_query(query, groups, budget, noise) for query in batch.queries]
        joined: dict[str, Any] = {
            name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]
        }
        return Release(law=self.noise, bounds=self.bounds, **joined)

    def predicted_variance(self, batch: QueryBatch, loss: PrivacyLoss, n_statuses: int = 2) -> float:
        """Predict the mean variance of a centred group sum from public data, in individuals."""
        budget = self._budget(batch, loss) / (2 if n_statuses > 2 else 1)
        designs = [self._design(IntegerDesign.from_query(query.sample), budget) for query in batch.queries]
        return float(np.mean([design.variance for design in designs]))

    def error_scale(
        self,
        n_samples: int,
        n_queries: int,
        epsilon: float,
        delta: float = 0.0,
        *,
        minority_share: float = 0.1,
        n_models: int = 1,
    ) -> float:
        """Return the expected absolute error of a gap; see :meth:`Mechanism.error_scale`.

        The values are taken to have a mean of about 1/4 and, in a joint release of many
        models, to be unrelated (the worst case: near-identical models cost less).
        """
        loss = self.privacy_loss(Fraction(epsilon), Fraction(delta), n_queries)
        mean, m = 0.25, n_models
        if self.noise == "gaussian":
            root = (m * 0.5) ** 0.5 + 0.1 * m**0.5
            variance = root**2 / (2 * float(loss.rho))
        elif m == 1:
            variance = 2.0 * ((1 - mean) ** 2 + mean**2 + 0.01) / float(loss.epsilon) ** 2
        else:
            variance = 2.0 * ((m / 2) ** (2 / 3) + 0.07 ** (1 / 3)) ** 3 / float(loss.epsilon) ** 2
        smaller = minority_size(n_samples, minority_share)
        gap = variance**0.5 * n_samples / (smaller * max(1, n_samples - smaller))
        return range_limit(gap * (0.8 if self.noise == "gaussian" else 0.75))

    def reader(self, query: FairnessQuery, n_statuses: int, budget: Fraction) -> Any:
        """Return the calibrated release of one query: its whole numbers, noise and read-out.

        With more than two statuses a change moves two groups at once, so each group gets
        half of the budget (an L1 norm doubles, a squared L2 norm doubles).
        """
        integers = IntegerDesign.from_query(query)
        if n_statuses > 2:
            budget = budget / 2
        reader = _LaplaceReader if self.noise == "laplace" else _GaussianReader
        return reader(integers, self._design(integers, budget), budget)

    def _budget(self, batch: QueryBatch, loss: PrivacyLoss) -> Fraction:
        """Share a release's loss among the queries that one individual may be part of."""
        return (loss.epsilon if self.noise == "laplace" else loss.rho) / batch.multiplicity

    def _design(self, integers: IntegerDesign, budget: Fraction) -> SumDesign:
        """Choose the design of least predicted error, or the one asked for."""
        designs = candidate_designs(integers, float(budget), self.noise)
        if self.design != "auto":
            designs = [design for design in designs if design.kind == self.design]
            if not designs:
                raise ValueError(
                    f"design={self.design!r} is not available for noise={self.noise!r} and "
                    f"{integers.n_models} model(s)."
                )
        return min(designs, key=lambda design: design.variance)

    def _release_query(
        self, query: FairnessQuery, groups: Groups, budget: Fraction, noise: Noise
    ) -> dict[str, FloatArray]:
        """Release the rows of one query for every group that public totals do not tell."""
        complement = groups.n_statuses == 2
        read = self.reader(query, groups.n_statuses, budget)
        codes = query.restrict(groups.codes)
        totals, weight = query.totals(), query.total_weight
        n_rows = totals.size
        if complement:
            sums, counts = read(codes == 1, noise)
            all_sums = np.stack([totals - sums, sums], axis=1)
            all_counts = np.stack([weight - counts, counts], axis=1)
        else:
            pairs = [read(codes == group, noise) for group in range(groups.n_groups)]
            all_sums = np.stack([sums for sums, _ in pairs], axis=1)
            all_counts = np.stack([counts for _, counts in pairs], axis=1)
        known = not groups.has_missing_status
        return {
            "sums": all_sums,
            "counts": all_counts,
            "totals": totals if known else np.full(n_rows, np.nan),
            "weights": np.full(n_rows, weight),
            "noise": read.noise,
        }


class _LaplaceReader:
    """Calibrate a Laplace design on all columns, and read noisy sums of a group."""

    def __init__(self, integers: IntegerDesign, design: SumDesign, epsilon: Fraction) -> None:
        if design.kind == "residuals" and integers.grid == 1:
            integers = IntegerDesign(integers.values * _ELLIPSOID_GRID, None, _ELLIPSOID_GRID, 1.0)
        self.integers, self.design = integers, design
        grid, unit, kind = integers.grid, integers.unit, design.kind
        weight_row, c = integers.weight_row(), design.centres
        self.base = np.rint(_column_means(integers.values)) if kind == "residuals" else None
        if kind == "pair":
            self.scales = calibrated_scales([grid], [grid / float(epsilon)], epsilon)
            b = float(self.scales[0])
            self.noise = np.array([[[b, 0.0], [b, b]]]) * unit
            return
        if self.base is None:
            norms = [_centred_norm(integers.values, weight_row, c), grid]
            wanted = [design.spread[0] * CENTRE_GRID * grid, design.spread[1] * grid]
        else:
            base_norm = _centred_norm(self.base[None], weight_row, c)
            norms = [base_norm, grid, column_norms(integers.values, squared=False, base=self.base)]
            spread = design.spread
            wanted = [spread[0] * CENTRE_GRID * grid, spread[1] * grid, spread[2] * grid]
        self.scales = calibrated_scales(norms, wanted, epsilon)
        reach = [float(scale) for scale in self.scales]
        n_models, n_sources = integers.n_models, len(reach)
        self.noise = np.zeros((n_models, 2, n_sources))
        self.noise[:, 0, 0] = reach[0] / CENTRE_GRID
        self.noise[:, 0, 1] = c / CENTRE_GRID * reach[1]
        self.noise[:, 1, 1] = reach[1]
        if n_sources == 3:
            self.noise[:, 0, 2] = reach[2] * (1 - 1 / n_models) ** 0.5
        self.noise *= unit

    def parts(self, members: npt.NDArray[np.bool_]) -> list[IntArray]:
        """Return the secret whole numbers that noise of ``scales`` is added to."""
        integers, c = self.integers, self.design.centres
        sums, count = group_sums(integers.values, members), group_sums(integers.weight_row(), members)
        if self.design.kind == "pair":
            return [np.append(sums, count - sums)]
        if self.base is None:
            return [CENTRE_GRID * sums - c * count, np.atleast_1d(count)]
        base = group_sums(self.base, members)
        return [np.atleast_1d(CENTRE_GRID * base - c * count), np.atleast_1d(count), sums - base]

    def __call__(self, members: npt.NDArray[np.bool_], noise: Noise) -> tuple[FloatArray, FloatArray]:
        """Return noisy weighted sums and counts of the members."""
        noisy = [
            part + noise.discrete_laplace(scale, part.size)
            for part, scale in zip(self.parts(members), self.scales, strict=True)
        ]
        unit, m, c = self.integers.unit, self.integers.n_models, self.design.centres
        if self.design.kind == "pair":
            return np.asarray(noisy[0][:1] * unit), np.asarray(noisy[0].sum(keepdims=True) * unit)
        values = (noisy[0] + c * noisy[1]) / CENTRE_GRID
        if self.base is not None:
            # Residuals from the mean model add up to nothing: what they add up to is noise.
            values = values + (noisy[2] - noisy[2].mean())
        return values * unit, np.full(m, float(noisy[1][0]) * unit)


class _GaussianReader:
    """Calibrate a Gaussian design on all columns, and read noisy sums of a group."""

    def __init__(self, integers: IntegerDesign, design: SumDesign, rho: Fraction) -> None:
        self.integers, self.design = integers, design
        weight_row, c, grid = integers.weight_row(), design.centres, integers.grid
        centred = CENTRE_GRID * integers.values - c[:, None] * weight_row
        if design.kind == "diagonal":
            a, b = design.spread
            self.count_factor = max(1, round(CENTRE_GRID * (a / b) ** 0.5))
            self.rows = np.vstack([centred, self.count_factor * weight_row])
            decode = np.eye(integers.n_models + 1) / CENTRE_GRID
            decode[-1] *= CENTRE_GRID / self.count_factor
        else:
            assert design.axes is not None
            assert design.widths is not None
            assert design.importance is not None
            points = np.vstack([centred / CENTRE_GRID, weight_row]) * (design.importance / grid)[:, None]
            self.rows = np.rint((design.axes / design.widths).T @ points * _ELLIPSOID_GRID)
            decode = (design.axes * design.widths) / design.importance[:, None] * (grid / _ELLIPSOID_GRID)
        largest = column_norms(self.rows, squared=True)
        self.sigma2 = Fraction(max(1, largest)) / (2 * rho)
        # Rows of `decode` read centred sums and the count; add the centre back.
        decode[:-1] += (c / CENTRE_GRID)[:, None] * decode[-1]
        self.decode = decode * integers.unit
        scaled = self.decode * float(self.sigma2) ** 0.5
        variance, shared = (scaled[:-1] ** 2).sum(axis=1), scaled[:-1] @ scaled[-1]
        count_sd = float((scaled[-1] ** 2).sum()) ** 0.5
        self.noise = np.zeros((integers.n_models, 2, 2))
        self.noise[:, 0, 0] = np.sqrt(np.maximum(variance - (shared / count_sd) ** 2, 0.0))
        self.noise[:, 0, 1] = shared / count_sd
        self.noise[:, 1, 1] = count_sd

    def parts(self, members: npt.NDArray[np.bool_]) -> IntArray:
        """Return the secret whole numbers that noise of variance ``sigma2`` is added to."""
        return group_sums(self.rows, members)

    def __call__(self, members: npt.NDArray[np.bool_], noise: Noise) -> tuple[FloatArray, FloatArray]:
        """Return noisy weighted sums and counts of the members."""
        read = self.decode @ (self.parts(members) + noise.discrete_gaussian(self.sigma2, self.rows.shape[0]))
        return read[:-1], np.full(read.size - 1, read[-1])


def _column_means(values: FloatArray) -> FloatArray:
    """Return the mean model of a batch."""
    return sum_over_rows(lambda block, rows, columns: block, values) / values.shape[0]


def _centred_norm(values: FloatArray, weight_row: FloatArray, centres: IntArray) -> int:
    """Bound the column sums of |1024 value - centre * weight| over all columns."""
    spread = np.broadcast_to(centres, values.shape[:1]).astype(np.float64)
    return column_norms(values, squared=False, centres=spread, weights=weight_row)
