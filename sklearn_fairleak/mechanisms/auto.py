"""Choose the mechanism of least expected error from public inputs."""

from __future__ import annotations

from fractions import Fraction
from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions, validate_parameter_constraints

from ..accounting import PrivacyLoss
from ..groups import Groups
from ..noise import Noise
from ..queries import QueryBatch
from .base import Mechanism
from .noisy_sums import NoisySums
from .randomized_response import RandomizedResponse
from .release import Release

__all__ = ["Auto"]


class Auto(Mechanism):
    """Stand for whichever of noisy sums and randomised response errs least.

    With delta = 0 the candidates are pure; with delta > 0 Gaussian noise joins them. The
    mechanisms of the paper are never chosen: wherever they could win, noisy sums err less.

    Parameters
    ----------
    minority_share : float, default=0.1
        Public guess of the smaller group's share.
    bounds : {"clip", "none"}, default="clip"
        Passed on to the chosen mechanism.

    Examples
    --------
    >>> from sklearn_fairleak.mechanisms import Auto
    >>> Auto().choose(1000, 1, epsilon=1.0).name, Auto().choose(1000, 300, epsilon=1.0).name
    ('noisy_sums', 'randomized_response')
    """

    name: ClassVar[str] = "auto"
    many_groups: ClassVar[bool] = True
    releases_groups: ClassVar[bool] = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "minority_share": [Interval(Real, 0, 0.5, closed="right")],
        "bounds": [StrOptions({"clip", "none"})],
    }

    def __init__(self, *, minority_share: float = 0.1, bounds: str = "clip") -> None:
        self.minority_share = minority_share
        self.bounds = bounds

    def candidates(self, delta: float) -> list[Mechanism]:
        """Return the mechanisms to choose from."""
        validate_parameter_constraints(self._parameter_constraints, self.get_params(), type(self).__name__)
        found: list[Mechanism] = [NoisySums(bounds=self.bounds), RandomizedResponse(bounds=self.bounds)]
        if delta > 0:
            found.append(NoisySums("gaussian", bounds=self.bounds))
        return found

    def choose(self, n_samples: int, n_queries: int, epsilon: float, delta: float = 0.0) -> Mechanism:
        """Choose for ``n_queries`` separate answers that share (epsilon, delta)."""
        return min(
            self.candidates(delta),
            key=lambda mechanism: mechanism.error_scale(
                n_samples, n_queries, epsilon, delta, minority_share=self.minority_share
            ),
        )

    def choose_for(self, batch: QueryBatch, n_statuses: int, epsilon: Fraction, delta: Fraction) -> Mechanism:
        """Choose for one joint release that may spend all of (epsilon, delta)."""

        def variance(mechanism: Mechanism) -> float:
            loss = mechanism.privacy_loss(epsilon, delta, 1)
            assert isinstance(mechanism, NoisySums | RandomizedResponse)
            return mechanism.predicted_variance(batch, loss, n_statuses)

        return min(self.candidates(float(delta)), key=variance)

    def privacy_loss(self, epsilon: Fraction, delta: Fraction, n_queries: int) -> PrivacyLoss:
        """Return the cost of one answer of the mechanism that a single release would choose."""
        return NoisySums(bounds=self.bounds).privacy_loss(epsilon, delta, n_queries)

    def release(
        self,
        batch: QueryBatch,
        groups: Groups,
        loss: PrivacyLoss,
        noise: Noise,
        *,
        advantaged: int = 1,
    ) -> Release:
        """Choose for this batch alone and release; see :meth:`Mechanism.release`."""
        chosen = self.choose_for(batch, groups.n_statuses, loss.epsilon, Fraction(0))
        return chosen.release(batch, groups, loss, noise, advantaged=advantaged)

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
        """Return the least expected error of the candidates."""
        return min(
            mechanism.error_scale(
                n_samples, n_queries, epsilon, delta, minority_share=minority_share, n_models=n_models
            )
            for mechanism in self.candidates(delta)
        )
