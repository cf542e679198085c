"""Which whole-number rows a batch's sums are released through, and at which noise.

A public integer design comes in; candidate :class:`SumDesign` objects with their predicted
error come out. Nothing here sees the secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, sqrt

import numpy as np
import numpy.typing as npt

from ..queries import planning_columns
from ..row_blocks import sum_over_rows
from .ellipsoid import optimal_ellipsoid
from .integer_design import IntegerDesign

__all__ = [
    "CENTRE_GRID",
    "SumDesign",
    "calibrated_scales",
    "candidate_designs",
    "column_norms",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Centres are multiples of 1/1024, so that centred values stay whole numbers.
CENTRE_GRID = 2**10
#: Guess of |SP|, which says how much an error in the group sizes matters.
TYPICAL_GAP = 0.1
#: Beyond this many models the ellipsoid's eigenvectors cost more than they gain.
_MAX_ELLIPSOID_MODELS = 400
_EXACT = 2.0**53


@dataclass(frozen=True, eq=False)
class SumDesign:
    """One way to release the sums of a batch.

    Parameters
    ----------
    kind : {"pair", "sums", "residuals", "diagonal", "ellipsoid"}
        What is released.
    variance : float
        Predicted variance of a centred group sum, in individuals.
    centres : ndarray of shape (n_models,) or (1,)
        What is subtracted from the values, in 1/1024.
    spread : tuple of float
        Relative noise of the released parts, before calibration.
    axes, widths, importance : ndarray, default=None
        The ellipsoid: orthonormal axes, noise along them, and coordinate weights.
    """

    kind: str
    variance: float
    centres: IntArray
    spread: tuple[float, ...] = ()
    axes: FloatArray | None = None
    widths: FloatArray | None = None
    importance: FloatArray | None = None


def candidate_designs(integers: IntegerDesign, budget: float, law: str) -> list[SumDesign]:
    """Return candidate designs with their predicted variance.

    Parameters
    ----------
    integers : IntegerDesign
        Public values and weights.
    budget : float
        Pure epsilon (Laplace) or rho (Gaussian) of the release.
    law : {"laplace", "gaussian"}
        Law of the noise.
    """
    # The chosen design is bounded over all columns; a few are enough to compare designs.
    columns = planning_columns(*integers.values.shape)
    values = integers.values[:, columns] / integers.grid
    weights = integers.weight_row()[columns] / integers.grid
    means = integers.values.sum(axis=1) / integers.total_weight()
    if law == "laplace":
        return _laplace_designs(values, weights, means, budget)
    return _gaussian_designs(values, weights, means, budget)


def _laplace_designs(
    values: FloatArray, weights: FloatArray, means: FloatArray, epsilon: float
) -> list[SumDesign]:
    """Compare a pair of sums, sums with a weighted count, and a base model with residuals."""
    n_models = values.shape[0]
    none = np.zeros(1, dtype=np.int64)
    designs = []
    if n_models == 1:
        centre = float(means[0])
        variance = 2.0 * ((1.0 - centre) ** 2 + centre**2 + TYPICAL_GAP**2) / epsilon**2
        designs.append(SumDesign("pair", variance, none))
    for share in np.linspace(0.0, 1.0, 6):
        centres = _on_grid(0.5 + share * (means - 0.5))
        c = centres / CENTRE_GRID
        norm = float(np.abs(values - c[:, None] * weights).sum(axis=0).max())
        distance = float(np.mean((means - c) ** 2)) + TYPICAL_GAP**2
        scales = least_scales((norm, 1.0), (1.0, distance), epsilon)
        variance = 2.0 * (scales[0] ** 2 + distance * scales[1] ** 2)
        designs.append(SumDesign("sums", variance, centres, scales))
    if n_models > 1:
        base = values.mean(axis=0)
        residual = float(np.abs(values - base).sum(axis=0).max())
        middle = float(means.mean())
        for share in np.linspace(0.0, 1.0, 6):
            centres = _on_grid(np.array([0.5 + share * (middle - 0.5)]))
            middle_c = float(centres[0]) / CENTRE_GRID
            norm = float(np.abs(base - middle_c * weights).max())
            distance = (middle - middle_c) ** 2 + TYPICAL_GAP**2
            importance = (1.0, distance, 1.0 - 1.0 / n_models)
            scales = least_scales((norm, 1.0, residual), importance, epsilon)
            variance = 2.0 * sum(k * b * b for k, b in zip(importance, scales, strict=True))
            designs.append(SumDesign("residuals", variance, centres, scales))
    return designs


def _gaussian_designs(
    values: FloatArray, weights: FloatArray, means: FloatArray, rho: float
) -> list[SumDesign]:
    """Compare equal noise for every sum with noise shaped to the batch."""
    n_models = values.shape[0]
    designs = []
    for share in np.linspace(0.0, 1.0, 6):
        centres = _on_grid(0.5 + share * (means - 0.5))
        c = centres / CENTRE_GRID
        norm = float(((values - c[:, None] * weights) ** 2).sum(axis=0).max())
        distance = float(np.mean((means - c) ** 2)) + TYPICAL_GAP**2
        # Least mean variance a + distance * b subject to norm / a + 1 / b <= 2 rho.
        root = sqrt(norm) + sqrt(distance)
        a, b = sqrt(max(norm, 1e-12)) * root / (2 * rho), root / sqrt(distance) / (2 * rho)
        designs.append(SumDesign("diagonal", a + distance * b, centres, (a, b)))
    if 1 < n_models <= _MAX_ELLIPSOID_MODELS:
        centres = _on_grid(means)
        points = np.vstack([values - (centres / CENTRE_GRID)[:, None] * weights, weights[None]])
        importance = np.ones(n_models + 1)
        importance[-1] = sqrt(n_models) * TYPICAL_GAP
        axes, widths = optimal_ellipsoid(points * importance[:, None])
        variance = float((widths**2).sum()) / n_models / (2 * rho)
        designs.append(
            SumDesign("ellipsoid", variance, centres, axes=axes, widths=widths, importance=importance)
        )
    return designs


def least_scales(
    norms: tuple[float, ...], importance: tuple[float, ...], epsilon: float
) -> tuple[float, ...]:
    """Minimise sum k_i b_i^2 subject to sum a_i / b_i = epsilon (Lagrange: b ~ (a/k)^(1/3))."""
    raw = [(max(a, 1e-9) / k) ** (1 / 3) for a, k in zip(norms, importance, strict=True)]
    used = sum(max(a, 1e-9) / b for a, b in zip(norms, raw, strict=True))
    return tuple(b * used / epsilon for b in raw)


def calibrated_scales(norms: list[int], scales: list[float], epsilon: Fraction) -> list[Fraction]:
    """Round noise scales up until whole-number norms cost at most epsilon, exactly.

    Parameters
    ----------
    norms : list of int
        Largest column sum of each released part, in whole numbers.
    scales : list of float
        Wanted noise scales, in the same whole numbers.
    epsilon : Fraction
        What they may cost together.
    """
    exact = [Fraction(max(1, ceil(scale * 2**16)), 2**16) for scale in scales]
    used = sum((Fraction(a) / b for a, b in zip(norms, exact, strict=True)), Fraction(0))
    if used > epsilon:
        factor = used / epsilon
        exact = [Fraction(ceil(b * factor * 2**16), 2**16) for b in exact]
    return exact


def column_norms(
    rows: FloatArray,
    *,
    squared: bool,
    centres: FloatArray | None = None,
    weights: FloatArray | None = None,
    base: FloatArray | None = None,
) -> int:
    """Return the largest column sum of absolute values (or squares), rounded up to an integer.

    With ``centres`` the rows are 1024 times themselves minus centre times ``weights``; with
    ``base`` they are what is left of them without it.

    Sums of whole numbers below 2^53 are exact; larger ones are inflated by more than
    floating point can lose.
    """

    def size(part: FloatArray, where: slice, columns: slice) -> FloatArray:
        if centres is not None and weights is not None:
            part = CENTRE_GRID * part - centres[where, None] * weights[columns]
        elif base is not None:
            part = part - base[columns]
        return part * part if squared else np.abs(part)

    # Whole numbers: the order in which blocks are added does not matter.
    total = sum_over_rows(size, rows)
    largest = float(total.max())
    if largest >= _EXACT:
        largest *= 1.0 + (rows.shape[0] + 2) * 2.0**-50
    return ceil(largest)


def _on_grid(centres: FloatArray) -> IntArray:
    """Round centres to multiples of 1/1024."""
    return np.asarray(np.rint(centres * CENTRE_GRID), dtype=np.int64)
