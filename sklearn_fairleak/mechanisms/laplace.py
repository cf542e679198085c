"""Laplace noise by global sensitivity: Theorems 3 and 4 of the paper, corrected."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions, validate_parameter_constraints

from ..accounting import PrivacyLoss
from ..groups import Groups
from ..noise import Noise
from ..queries import QueryBatch
from ..sensitivity import global_sensitivity
from .base import Mechanism, range_limit
from .gaps import query_gaps, require_two_groups, within_bounds
from .release import Release

__all__ = ["Laplace"]

_GRID = 2**20


class Laplace(Mechanism):
    r"""Add discrete Laplace noise of the gap's global sensitivity.

    Parameters
    ----------
    bounds : {"clip", "none"}, default="clip"
        Keep answers within [-1, 1], or not.

    Notes
    -----
    One individual of n moves a gap by at most :math:`G = 1/2 + 1/(n-1)`, n being the size
    of the metric's subset; m gaps of one joint release by mG together. Gaps are rounded to
    multiples of 2^-20, which adds one step a gap to the sensitivity, so that the noise is
    exact. The absolute gap is post-processing of the signed one.

    References
    ----------
    Theorems 3 and 4 of Hamman, Chen & Dutta, FAccT 2023, arXiv 2211.02139 (with the right
    n for equal opportunity).

    Examples
    --------
    >>> from sklearn_fairleak.mechanisms import Laplace
    >>> round(Laplace().error_scale(1000, 1, epsilon=1.0), 3)
    0.501
    """

    name: ClassVar[str] = "laplace"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"bounds": [StrOptions({"clip", "none"})]}

    def __init__(self, *, bounds: str = "clip") -> None:
        self.bounds = bounds

    def privacy_loss(self, epsilon: Fraction, delta: Fraction, n_queries: int) -> PrivacyLoss:
        """Return the pure cost of one of ``n_queries`` answers."""
        validate_parameter_constraints(self._parameter_constraints, self.get_params(), type(self).__name__)
        return super().privacy_loss(epsilon, delta, n_queries)

    def release(
        self,
        batch: QueryBatch,
        groups: Groups,
        loss: PrivacyLoss,
        noise: Noise,
        *,
        advantaged: int = 1,
    ) -> Release:
        """Release noisy gaps; see :meth:`Mechanism.release`."""
        require_two_groups(self.name, batch, groups)
        epsilon = loss.epsilon / batch.multiplicity
        # Public sizes are checked before the secret is touched.
        bounds = [global_sensitivity(query.n_subset) for query in batch.queries]
        gaps, scales = [], []
        for bound, part in zip(bounds, query_gaps(batch, groups, advantaged), strict=True):
            m = part.gaps.size
            steps = np.rint(part.gaps * _GRID).astype(np.int64)
            scale = Fraction(m * (ceil(bound * _GRID) + 1)) / epsilon
            gaps.append((steps + noise.discrete_laplace(scale, m)) / _GRID)
            scales.append(np.full(m, float(scale) / _GRID))
        return Release(
            law="laplace",
            gaps=within_bounds(np.concatenate(gaps), self.bounds),
            scale=np.concatenate(scales),
            bounds=self.bounds,
        )

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
        """Return the expected absolute error; see :meth:`Mechanism.error_scale`."""
        return range_limit(float(global_sensitivity(n_samples, n_queries * n_models)) / epsilon)
