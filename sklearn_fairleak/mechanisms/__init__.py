"""Mechanisms: parameters, noise, and an executable guarantee, one a module."""

from __future__ import annotations

from .attribute_conceal import AttributeConceal
from .auto import Auto
from .base import Mechanism
from .exact import Exact, Rounded
from .laplace import Laplace
from .noisy_sums import NoisySums
from .randomized_response import RandomizedResponse
from .release import Release
from .smooth_laplace import SmoothLaplace

__all__ = [
    "MECHANISMS",
    "AttributeConceal",
    "Auto",
    "Exact",
    "Laplace",
    "Mechanism",
    "NoisySums",
    "RandomizedResponse",
    "Release",
    "Rounded",
    "SmoothLaplace",
    "get_mechanism",
]

#: The registry: adding a mechanism is adding its module and its class here.
MECHANISMS: dict[str, type[Mechanism]] = {
    mechanism.name: mechanism
    for mechanism in (
        Exact,
        Rounded,
        Laplace,
        AttributeConceal,
        SmoothLaplace,
        NoisySums,
        RandomizedResponse,
        Auto,
    )
}


def get_mechanism(mechanism: str | Mechanism) -> Mechanism:
    """Return a mechanism by name, or the instance itself.

    Parameters
    ----------
    mechanism : str or Mechanism
        A name of :data:`MECHANISMS` or an instance with its own parameters.

    Returns
    -------
    Mechanism

    Raises
    ------
    ValueError
        If the name is unknown.

    Examples
    --------
    >>> from sklearn_fairleak.mechanisms import get_mechanism
    >>> get_mechanism("laplace")
    Laplace()
    """
    if isinstance(mechanism, Mechanism):
        return mechanism
    if isinstance(mechanism, str) and mechanism in MECHANISMS:
        return MECHANISMS[mechanism]()
    raise ValueError(
        f"mechanism must be one of {sorted(MECHANISMS)} or a Mechanism instance, got {mechanism!r}."
    )
