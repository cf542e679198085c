"""Answers without protection: exact, or rounded as many institutions do."""

from __future__ import annotations

from fractions import Fraction
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, validate_parameter_constraints

from ..accounting import PrivacyLoss
from ..groups import Groups
from ..metrics import group_means
from ..noise import Noise
from ..queries import QueryBatch
from .base import Mechanism
from .release import Release

__all__ = ["Exact", "Rounded"]


class Exact(Mechanism):
    """Release exact group means: no protection, for baselines and attacks.

    Examples
    --------
    >>> from sklearn_fairleak.mechanisms import Exact
    >>> Exact().is_private
    False
    """

    name: ClassVar[str] = "exact"
    is_private: ClassVar[bool] = False
    many_groups: ClassVar[bool] = True
    releases_groups: ClassVar[bool] = True

    def privacy_loss(self, epsilon: Fraction, delta: Fraction, n_queries: int) -> PrivacyLoss:
        """Return no loss: exact answers are outside every budget."""
        return PrivacyLoss()

    def release(
        self,
        batch: QueryBatch,
        groups: Groups,
        loss: PrivacyLoss,
        noise: Noise,
        *,
        advantaged: int = 1,
    ) -> Release:
        """Release exact group means.

        Raises
        ------
        ValueError
            If a group is empty in the subset, where the metric is undefined.
        """
        means = self._round(group_means(batch, groups.codes, groups.n_groups))
        if np.isnan(means).any():
            raise ValueError("A group has no individual in the metric's subset, so the metric is undefined.")
        ones = np.ones_like(means)
        n_rows = means.shape[0]
        return Release(
            law="none",
            sums=means,
            counts=ones,
            totals=np.full(n_rows, np.nan),
            weights=np.full(n_rows, np.inf),
            noise=np.zeros((n_rows, 2, 1)),
            bounds="none",
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
        """Return 0: exact answers have no error."""
        return 0.0

    def _round(self, means: Any) -> Any:
        """Leave exact means as they are."""
        return means


class Rounded(Exact):
    """Release answers rounded to some decimals: no protection either.

    Parameters
    ----------
    decimals : int, default=3
        Number of decimals of the group means.

    Examples
    --------
    >>> from sklearn_fairleak.mechanisms import Rounded
    >>> Rounded(decimals=2).error_scale(1000, 1, epsilon=1.0)
    0.0025
    """

    name: ClassVar[str] = "rounded"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "decimals": [Interval(Integral, 0, 15, closed="both")]
    }

    def __init__(self, decimals: int = 3) -> None:
        self.decimals = decimals

    def privacy_loss(self, epsilon: Fraction, delta: Fraction, n_queries: int) -> PrivacyLoss:
        """Return no loss: rounded answers are outside every budget."""
        validate_parameter_constraints(self._parameter_constraints, self.get_params(), type(self).__name__)
        return PrivacyLoss()

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
        """Return the mean absolute rounding error of one gap."""
        return 0.25 * 10.0**-self.decimals

    def _round(self, means: Any) -> Any:
        """Round group means."""
        return np.round(means, self.decimals)
