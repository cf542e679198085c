"""What every mechanism is: parameters, noise, and an executable guarantee."""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from ..accounting import PrivacyLoss, split
from ..groups import Groups
from ..noise import Noise
from ..queries import QueryBatch
from .release import Release

__all__ = ["Mechanism", "minority_size", "range_limit"]

#: Gaps beyond [-1, 1] are impossible, so no expected error is larger than this.
_WORST_ERROR = 2.0


class Mechanism(BaseEstimator, ABC):
    """Turn a question and secret groups into a private release.

    A mechanism is added by one module with one subclass and one line in the registry
    (:mod:`sklearn_fairleak.mechanisms`). Subclasses give the class attributes below and
    the three methods ``release``, ``privacy_loss``, ``error_scale``.

    Attributes
    ----------
    name : str
        Registry name.
    is_private : bool
        Whether the mechanism protects anybody.
    many_groups : bool
        Whether more than two groups, a missing status and sample weights are supported.
    releases_groups : bool
        Whether group means come out, and not only the gap between two groups.
    """

    name: ClassVar[str]
    is_private: ClassVar[bool] = True
    many_groups: ClassVar[bool] = False
    releases_groups: ClassVar[bool] = False

    def privacy_loss(self, epsilon: Fraction, delta: Fraction, n_queries: int) -> PrivacyLoss:
        """Return what one of ``n_queries`` answers costs, so that all fit (epsilon, delta).

        The default is pure differential privacy by basic composition.
        """
        return PrivacyLoss.pure(split(epsilon, Fraction(0), n_queries)[0])

    @abstractmethod
    def release(
        self,
        batch: QueryBatch,
        groups: Groups,
        loss: PrivacyLoss,
        noise: Noise,
        *,
        advantaged: int = 1,
    ) -> Release:
        """Answer the batch at a privacy loss of at most ``loss`` to each individual.

        Parameters
        ----------
        batch : QueryBatch
            The public question.
        groups : Groups
            The secret groups of the evaluation set, in its order.
        loss : PrivacyLoss
            What the release may cost.
        noise : Noise
            Where randomness comes from.
        advantaged : int, default=1
            Code of the advantaged group, for mechanisms of two groups.

        Returns
        -------
        Release
        """

    @abstractmethod
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
        """Return the expected absolute error of one statistical parity gap.

        Only public inputs: ``minority_share`` is a guess, never the truth.

        Parameters
        ----------
        n_samples : int
            Size of the evaluation set.
        n_queries : int
            Number of answers that share (epsilon, delta).
        epsilon, delta : float
            The whole guarantee.
        minority_share : float, default=0.1
            Guessed share of the smaller group.
        n_models : int, default=1
            Models asked about in one joint release.
        """


def range_limit(error: float) -> float:
    """Cap an expected error at what clipping to the possible range leaves."""
    return float(min(error, _WORST_ERROR)) if np.isfinite(error) else _WORST_ERROR


def minority_size(n_samples: int, minority_share: float) -> int:
    """Return the public guess of the smaller group's size, at least 1."""
    if not 0.0 < minority_share <= 0.5:
        raise ValueError(f"minority_share must be in (0, 0.5], got {minority_share!r}.")
    return max(1, round(minority_share * n_samples))
