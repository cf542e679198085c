"""Terms, choices and outcomes as JSON-able data, so that nothing else crosses between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

import numpy as np

from .accounts import AccountSettings
from .choices import Choice, FirstWithin, LeastGap, PrivateChoice, WithinTest
from .mechanisms import MECHANISMS, Mechanism

__all__ = [
    "choice_from_plain",
    "choice_to_plain",
    "outcome_from_plain",
    "outcome_to_plain",
    "settings_from_plain",
    "settings_to_plain",
]

_CHOICES: dict[str, type[LeastGap] | type[WithinTest] | type[FirstWithin]] = {
    choice.name: choice for choice in (LeastGap, WithinTest, FirstWithin)
}
#: Digits of a numerator or denominator: a client must not make us compute with huge numbers.
_MOST_DIGITS = 400


def settings_to_plain(settings: AccountSettings) -> dict[str, Any]:
    """Write terms as JSON-able data; mechanisms go by name and parameters."""
    mechanism = settings.mechanism
    if MECHANISMS.get(mechanism.name) is not type(mechanism):
        raise ValueError(
            f"mechanism={mechanism!r} is not in the registry; only registered mechanisms can be asked for over "
            "a connection."
        )
    plain = asdict(replace(settings, mechanism=None))  # type: ignore[arg-type]
    return plain | {"mechanism": [mechanism.name, mechanism.get_params(deep=False)]}


def settings_from_plain(plain: Mapping[str, Any]) -> AccountSettings:
    """Rebuild terms from :func:`settings_to_plain`, trusting nothing."""
    name, params = plain["mechanism"]
    if name not in MECHANISMS:
        raise ValueError(f"unknown mechanism {name!r}")
    mechanism: Mechanism = MECHANISMS[name](**params)
    rest = {key: value for key, value in plain.items() if key != "mechanism"}
    if rest.get("bounds") is not None:
        rest["bounds"] = tuple(rest["bounds"])
    return AccountSettings(mechanism=mechanism, **rest)


def choice_to_plain(choice: Choice) -> dict[str, Any]:
    """Write a choice as JSON-able data; fractions go as text."""
    fields = vars(choice)
    return {name: str(value) if isinstance(value, Fraction) else value for name, value in fields.items()}


def choice_from_plain(plain: Mapping[str, Any]) -> LeastGap | WithinTest | FirstWithin:
    """Rebuild a choice from :func:`choice_to_plain`, trusting nothing."""
    kind = _CHOICES.get(str(plain.get("name")))
    if kind is None:
        raise ValueError(f"unknown choice {plain.get('name')!r}")
    epsilon, ratio = _fraction(plain["epsilon"]), bool(plain["ratio"])
    if not epsilon > 0:
        raise ValueError(f"epsilon of a choice must be positive, got {float(epsilon):g}.")
    if kind is not LeastGap:
        return kind(epsilon, max_gap=_fraction(plain["max_gap"]), ratio=ratio)  # type: ignore[call-arg]
    penalties, share = plain["penalties"], float(plain["minority_share"])
    if penalties is not None:
        penalties = tuple(float(penalty) for penalty in penalties)
        if not np.isfinite(penalties).all():
            raise ValueError("penalties must be finite.")
    if not 0.0 < share <= 0.5:
        raise ValueError(f"minority_share must be in (0, 0.5], got {share!r}.")
    return LeastGap(epsilon, penalties, share, ratio)


def outcome_to_plain(outcome: PrivateChoice) -> dict[str, Any]:
    """Write the outcome of a choice as JSON-able data."""
    return asdict(outcome)


def outcome_from_plain(plain: Mapping[str, Any]) -> PrivateChoice:
    """Rebuild an outcome from :func:`outcome_to_plain`."""
    passed = plain["passed"]
    return PrivateChoice(**{**plain, "passed": None if passed is None else tuple(passed)})


def _fraction(text: Any) -> Fraction:
    """Read an exact number of reasonable size."""
    if not isinstance(text, str) or len(text) > _MOST_DIGITS:
        raise ValueError("exact numbers are sent as short texts such as '1/3'.")
    return Fraction(text)
