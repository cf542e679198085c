"""What answers cost: pure, approximate and concentrated differential privacy, added up.

Losses of single releases come in; the total that each individual has paid goes out. Sums are
exact rationals; conversions are rounded in the safe direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, inf, log

import numpy as np

__all__ = ["UNIT", "PrivacyLoss", "rho_for", "split", "zcdp_epsilon"]

Number = int | float | Fraction

#: Losses are kept as whole multiples of this, so that parts add up to the whole exactly.
UNIT = Fraction(1, 2**50)


@dataclass(frozen=True)
class PrivacyLoss:
    """What a release, or several together, cost each individual in them.

    Parameters
    ----------
    epsilon : Fraction, default=0
        Sum of the epsilons of pure and approximate releases, in nats.
    delta : Fraction, default=0
        Sum of the deltas of approximate releases.
    rho : Fraction, default=0
        Sum of the zero-concentrated costs of Gaussian releases.
    pure_rho : Fraction, default=0
        Sum of epsilon²/2 over the pure and approximate releases: what they cost if counted
        as zero-concentrated.

    Raises
    ------
    ValueError
        If a part is negative.

    References
    ----------
    Bun & Steinke, "Concentrated Differential Privacy", TCC 2016 (composition, and epsilon²/2
    for pure releases).

    Examples
    --------
    >>> from sklearn_fairleak.accounting import PrivacyLoss
    >>> total = PrivacyLoss.pure(0.5) * 2
    >>> total.fits(1.0), total.fits(0.99)
    (True, False)
    """

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    pure_rho: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if min(self.epsilon, self.delta, self.rho, self.pure_rho) < 0:
            raise ValueError(
                "A privacy loss must not be negative, got "
                f"epsilon={float(self.epsilon)}, delta={float(self.delta)}, rho={float(self.rho)}, "
                f"pure_rho={float(self.pure_rho)}. What has been released cannot be taken back."
            )

    @classmethod
    def pure(cls, epsilon: Number) -> PrivacyLoss:
        """Return the cost of an epsilon-private release."""
        return cls.approx(epsilon, 0)

    @classmethod
    def approx(cls, epsilon: Number, delta: Number) -> PrivacyLoss:
        """Return the cost of an (epsilon, delta)-private release."""
        exact = Fraction(epsilon)
        return cls(exact, Fraction(delta), pure_rho=exact * exact / 2)

    @classmethod
    def zcdp(cls, rho: Number) -> PrivacyLoss:
        """Return the cost of a rho-zero-concentrated private release."""
        return cls(rho=Fraction(rho))

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        return PrivacyLoss(
            self.epsilon + other.epsilon,
            self.delta + other.delta,
            self.rho + other.rho,
            self.pure_rho + other.pure_rho,
        )

    def __mul__(self, times: int) -> PrivacyLoss:
        return PrivacyLoss(self.epsilon * times, self.delta * times, self.rho * times, self.pure_rho * times)

    __rmul__ = __mul__

    def __bool__(self) -> bool:
        return bool(self.epsilon or self.delta or self.rho)

    def to_epsilon(self, delta: Number) -> float:
        """Return an epsilon at which the total is (epsilon, delta)-private, rounded up.

        The smaller of two valid conversions: the pure part added to the converted Gaussian
        part, or everything converted together.

        Parameters
        ----------
        delta : float
            Probability at which the guarantee may fail.

        Returns
        -------
        float
            ``inf`` if no epsilon fits.
        """
        left = Fraction(delta) - self.delta
        if left < 0:
            return inf
        at = _down(left)
        together = zcdp_epsilon(_up(self.rho + self.pure_rho), at)
        gaussian = zcdp_epsilon(_up(self.rho), at)
        return together if gaussian == inf else min(together, _up(self.epsilon + Fraction(gaussian)))

    def fits(self, epsilon: Number, delta: Number = 0) -> bool:
        """Say whether the total is within (epsilon, delta); exact where it is pure."""
        if self.delta > Fraction(delta):
            return False
        if not self.rho and self.epsilon <= Fraction(epsilon):
            return True
        needed = self.to_epsilon(delta)
        return needed < inf and Fraction(needed) <= Fraction(epsilon)

    def units(self) -> tuple[int, int, int, int]:
        """Return the four sums as whole multiples of :data:`UNIT`, rounded up."""
        return (
            ceil(self.epsilon / UNIT),
            ceil(self.delta / UNIT),
            ceil(self.rho / UNIT),
            ceil(self.pure_rho / UNIT),
        )

    @classmethod
    def from_units(cls, epsilon: int, delta: int, rho: int, pure_rho: int) -> PrivacyLoss:
        """Rebuild a loss from :meth:`units`."""
        return cls(epsilon * UNIT, delta * UNIT, rho * UNIT, pure_rho * UNIT)


def split(epsilon: Number, delta: Number, parts: int) -> tuple[Fraction, Fraction]:
    """Return the share of one of several answers, rounded down to the grid.

    Parameters
    ----------
    epsilon, delta : float
        What all answers may cost together.
    parts : int
        Number of answers.

    Returns
    -------
    epsilon, delta : Fraction

    Raises
    ------
    ValueError
        If there is not at least one part.

    Examples
    --------
    >>> from sklearn_fairleak.accounting import split
    >>> share, _ = split(1.0, 0.0, 3)
    >>> 3 * share <= 1 < 3 * share + 3 * share / 2**40
    True
    """
    if parts < 1:
        raise ValueError(f"A budget is split into at least 1 part, got {parts}.")
    return (
        floor(Fraction(epsilon) / parts / UNIT) * UNIT,
        floor(Fraction(delta) / parts / UNIT) * UNIT,
    )


def zcdp_epsilon(rho: float, delta: float) -> float:
    r"""Return an epsilon for which rho-zCDP implies (epsilon, delta)-privacy, rounded up.

    Parameters
    ----------
    rho : float
        Zero-concentrated cost, not negative.
    delta : float
        Probability at which the guarantee may fail, not negative.

    Returns
    -------
    float
        ``inf`` if no epsilon fits.

    Raises
    ------
    ValueError
        If rho or delta is negative or not a number.

    Notes
    -----
    For every :math:`\alpha > 1`,
    :math:`\epsilon = \alpha\rho + \ln(1-1/\alpha) + \ln(1/(\alpha\delta))/(\alpha-1)`.

    References
    ----------
    Canonne, Kamath & Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS
    2020, arXiv 2004.00010, Corollary 13.

    Examples
    --------
    >>> from sklearn_fairleak.accounting import zcdp_epsilon
    >>> round(zcdp_epsilon(0.1, 1e-6), 2)
    2.14
    """
    if not (rho >= 0 and delta >= 0):
        raise ValueError(f"rho and delta must not be negative, got rho={rho!r} and delta={delta!r}.")
    if rho == 0:
        return 0.0
    if delta == 0:
        return inf
    if delta >= 1:
        return 0.0

    def epsilon(t: np.ndarray | float) -> np.ndarray | float:
        # alpha = 1 + t
        return (1 + t) * rho - np.log1p(1 / t) - (np.log1p(t) + log(delta)) / t

    low, high = log(1e-6), log(1e9)
    for _ in range(6):
        grid = np.linspace(low, high, 201)
        values = np.asarray(epsilon(np.exp(grid)))
        k = int(np.argmin(values))
        low, high = grid[max(0, k - 1)], grid[min(200, k + 1)]
    best = float(values[k])
    return max(0.0, best) * (1 + 1e-12) + 1e-15


def rho_for(epsilon: Number, delta: Number) -> Fraction:
    """Return the largest rho whose conversion fits (epsilon, delta), rounded down.

    Parameters
    ----------
    epsilon, delta : float
        What may be spent; delta > 0.

    Returns
    -------
    Fraction
        Smaller by about 1e-12 of itself than what would just fit, so that parts of it, added
        up and converted in floating point, still do.

    Raises
    ------
    ValueError
        If delta is not positive.

    Examples
    --------
    >>> from sklearn_fairleak.accounting import rho_for, zcdp_epsilon
    >>> rho = float(rho_for(1.0, 1e-6))
    >>> zcdp_epsilon(rho, 1e-6) <= 1.0 < zcdp_epsilon(1.001 * rho, 1e-6)
    True
    """
    if not Fraction(delta) > 0:
        raise ValueError(f"Concentrated privacy needs delta > 0, got {delta!r}.")
    at, target = _down(Fraction(delta)), float(epsilon) * (1 - 2.0**-40)
    low, high = 0.0, float(epsilon) + 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if zcdp_epsilon(middle, at) <= target:
            low = middle
        else:
            high = middle
    return floor(Fraction(low) / UNIT) * UNIT


def _up(value: Fraction) -> float:
    """Return a float that is not below an exact number."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else float(np.nextafter(nearest, inf))


def _down(value: Fraction) -> float:
    """Return a float that is not above an exact number."""
    return -_up(-value)
