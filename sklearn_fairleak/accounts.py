"""The terms under which a scorer asks: fixed when it is made, and checked at the door."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from .exceptions import NotPrivateWarning
from .mechanisms import Auto, Exact, Mechanism
from .queries import QueryBatch

__all__ = ["AccountSettings", "check_budget", "warn_not_private", "warn_of_noise", "warn_refused"]

#: Above this epsilon an attacker's best guess of one attribute is right 88 % of the time.
_WEAK_EPSILON = 2.0


@dataclass(frozen=True)
class AccountSettings:
    """The terms under which one scorer asks: fixed when the scorer is made.

    Attributes
    ----------
    metric : str
        What may be asked.
    mechanism : Mechanism
        How it is answered.
    epsilon, delta : float
        The whole guarantee to each individual for ``n_queries`` answers.
    n_queries : int
        Answers that may include one individual.
    absolute : bool
        Whether answers are absolute gaps.
    advantaged : object
        Label of the advantaged group.
    pos_label : object
        The positive label.
    bounds : tuple of two floats or None
        Public bounds of real-valued predictions.
    loss : str
        Loss of ``bounded_loss_parity``.
    random_state : int or None
        A seed makes answers reproducible and not private.
    """

    metric: str = "statistical_parity"
    mechanism: Mechanism = field(default_factory=Auto)
    epsilon: float = 1.0
    delta: float = 0.0
    n_queries: int = 1
    absolute: bool = True
    advantaged: Any = None
    pos_label: Any = None
    bounds: tuple[float, float] | None = None
    loss: str = "absolute"
    random_state: int | None = None

    @property
    def is_private(self) -> bool:
        """Whether answers under these terms protect anybody."""
        flawed = getattr(self.mechanism, "calibration", "tight") == "paper"
        return self.mechanism.is_private and self.random_state is None and not flawed


def check_budget(epsilon: float, delta: float, n_queries: int = 1) -> None:
    """Refuse budgets that mean nothing, and warn of one that barely protects.

    Raises
    ------
    ValueError
        If epsilon is not a positive finite number, delta is outside [0, 1), or n_queries is
        less than 1.
    """
    if not (
        isinstance(epsilon, int | float | np.number | Fraction)
        and np.isfinite(float(epsilon))
        and epsilon > 0
    ):
        raise ValueError(f"epsilon must be a positive finite number, got {epsilon!r}.")
    if not (isinstance(delta, int | float | np.number | Fraction) and 0 <= delta < 1):
        raise ValueError(f"delta must be in [0, 1), got {delta!r}.")
    if isinstance(n_queries, bool) or not isinstance(n_queries, int | np.integer) or n_queries < 1:
        raise ValueError(f"n_queries must be an integer of at least 1, got {n_queries!r}.")
    if epsilon > _WEAK_EPSILON:
        ceiling = 1.0 / (1.0 + np.exp(-float(epsilon)))
        warnings.warn(
            f"epsilon={float(epsilon):g} barely protects: an attacker may guess an attribute right with "
            f"probability up to {ceiling:.3f}. Use at most {_WEAK_EPSILON:g}.",
            UserWarning,
            stacklevel=3,
        )


def warn_not_private(settings: AccountSettings) -> None:
    """Say loudly that answers under these terms protect nobody."""
    if settings.random_state is not None:
        reason = "random_state is set: whoever knows or guesses the seed can subtract the noise"
    elif isinstance(settings.mechanism, Exact):
        reason = f"mechanism={settings.mechanism.name!r} adds no noise"
    else:
        reason = "calibration='paper' does not give the stated epsilon"
    warnings.warn(f"Answers are not private: {reason}.", NotPrivateWarning, stacklevel=4)


def warn_of_noise(settings: AccountSettings, batch: QueryBatch) -> bool:
    """Say, from public numbers, if answers are mostly noise; return whether it was said."""
    smallest = min(query.n_subset for query in batch.queries)
    if smallest < 3 or not settings.mechanism.is_private:
        return False
    error = settings.mechanism.error_scale(
        smallest, settings.n_queries, float(settings.epsilon), float(settings.delta)
    )
    if error < 1.0:
        return False
    warnings.warn(
        f"The noise of an answer about {smallest} individuals, at epsilon={float(settings.epsilon):g} for "
        f"n_queries={settings.n_queries}, exceeds the range of possible gaps: scores say next to nothing. "
        "Use larger folds, fewer answers, answer_many, or PrivateFairSearchCV.",
        UserWarning,
        stacklevel=4,
    )
    return True


def warn_refused(settings: AccountSettings, n_refused: int) -> None:
    """Say where somebody looks that scores are missing: a worker's own warnings are lost."""
    warnings.warn(
        f"PrivacyBudgetExceeded: the budget epsilon={float(settings.epsilon):g} for "
        f"n_queries={settings.n_queries} answers is used up; {n_refused} question(s) of this "
        "scorer were refused so far. Scores are missing: do not choose among the others.",
        UserWarning,
        stacklevel=4,
    )
