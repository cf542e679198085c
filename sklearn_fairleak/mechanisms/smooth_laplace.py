"""Laplace noise by smooth sensitivity: Theorem 7 of the paper, corrected."""

from __future__ import annotations

from fractions import Fraction
from math import log
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions, validate_parameter_constraints

from ..accounting import PrivacyLoss, split
from ..groups import Groups
from ..noise import Noise
from ..queries import QueryBatch
from ..sensitivity import global_sensitivity, smooth_sensitivity
from .base import Mechanism, minority_size, range_limit
from .gaps import query_gaps, require_two_groups, snap, within_bounds
from .release import Release

__all__ = ["SmoothLaplace"]


class SmoothLaplace(Mechanism):
    r"""Add Laplace noise scaled to a smooth bound of the local sensitivity.

    Parameters
    ----------
    bounds : {"clip", "none"}, default="clip"
        Keep answers within [-1, 1], or not.

    Notes
    -----
    With m gaps, :math:`\beta = \epsilon/(4(m + \ln(2/\delta)))` and noise of scale
    :math:`2mS/\epsilon`. Dilating the noise first costs :math:`\epsilon/2` outside an event
    of probability at most :math:`\delta/2` (the l1 norm of the noise is a Gamma variable),
    then sliding it costs :math:`\epsilon/2`, purely. The scale depends on the secret, so
    intervals use the public worst case. Noise is floating point, rounded to a public grid:
    a reference mechanism.

    References
    ----------
    Theorem 7 of Hamman, Chen & Dutta, FAccT 2023, arXiv 2211.02139. Nissim, Raskhodnikova
    & Smith, "Smooth Sensitivity and Sampling in Private Data Analysis", STOC 2007.

    Examples
    --------
    >>> from sklearn_fairleak.mechanisms import SmoothLaplace
    >>> SmoothLaplace().error_scale(10_000, 1, epsilon=1.0, delta=1e-6) < 0.01
    True
    """

    name: ClassVar[str] = "smooth_laplace"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"bounds": [StrOptions({"clip", "none"})]}

    def __init__(self, *, bounds: str = "clip") -> None:
        self.bounds = bounds

    def privacy_loss(self, epsilon: Fraction, delta: Fraction, n_queries: int) -> PrivacyLoss:
        """Return the (epsilon, delta) cost of one of ``n_queries`` answers."""
        validate_parameter_constraints(self._parameter_constraints, self.get_params(), type(self).__name__)
        if not delta > 0:
            raise ValueError("mechanism='smooth_laplace' needs delta > 0, got delta=0.")
        share = split(epsilon, delta, n_queries)
        if not share[1] > 0:
            raise ValueError(
                f"delta={float(delta):.3g} is too small for {n_queries} answer(s) of mechanism='smooth_laplace': each "
                "needs at least 2^-50, the step in which losses are counted."
            )
        return PrivacyLoss.approx(*share)

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
        epsilon = float(loss.epsilon) / batch.multiplicity
        delta = float(loss.delta) / batch.multiplicity
        # Public sizes are checked, and the widest scale known, before the secret is touched.
        widest = [
            2.0 * m * float(global_sensitivity(query.n_subset)) / epsilon
            for query in batch.queries
            for m in [query.values.shape[0]]
            for _ in range(m)
        ]
        gaps = []
        for part in query_gaps(batch, groups, advantaged):
            m = part.gaps.size
            smooth = smooth_sensitivity(part.n_disadvantaged, part.n_advantaged, _beta(m, epsilon, delta))
            gaps.append(part.gaps + 2.0 * m * float(smooth) / epsilon * noise.laplace(m))
        return Release(
            law="laplace",
            gaps=within_bounds(snap(np.concatenate(gaps)), self.bounds),
            scale=np.asarray(widest),
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
        """Return the expected absolute error, at a guessed group size."""
        smaller, m = minority_size(n_samples, minority_share), n_models
        epsilon, delta = epsilon / n_queries, delta / n_queries
        smooth = smooth_sensitivity(smaller, n_samples - smaller, _beta(m, epsilon, delta))
        return range_limit(2.0 * m * float(smooth) / epsilon)


def _beta(n_models: int, epsilon: float, delta: float) -> float:
    """Return the smoothness that m-dimensional Laplace noise can hide."""
    return epsilon / (4.0 * (n_models + log(2.0 / delta)))
