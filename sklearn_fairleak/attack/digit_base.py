"""A base model with room for digits: predictions floored to a dyadic grid, no decision changed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["DigitBase", "digit_base"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Grid of the default: at most 1/16 away from the base model.
_GRID_BITS = 4
#: Grid of the stealthy attack: within 1e-6.
_STEALTH_BITS = 20
#: A finer grid leaves too few of the 53 bits of a double for people.
_MOST_BITS = 40
#: People moved by a step so that the base model's answer tells the group sizes.
_MOST_NUDGED = 64


@dataclass(frozen=True)
class DigitBase:
    """Hold predictions on the grid ``2**-bits``.

    Parameters
    ----------
    steps : ndarray of int of shape (n_individuals,)
        Predictions in steps.
    bits : int
        The step is ``2**-bits``; what a block adds to a prediction stays below a step.
    lifted : ndarray of bool of shape (n_individuals,)
        Who was moved up by a step after flooring, and has room for half a step only.
    """

    steps: IntArray
    bits: int
    lifted: BoolArray

    @property
    def n(self) -> int:
        """Number of individuals."""
        return int(self.steps.size)

    @property
    def total(self) -> int:
        """Sum of all predictions in steps."""
        return int(self.steps.sum())

    @property
    def values(self) -> FloatArray:
        """Predictions."""
        return np.ldexp(self.steps.astype(np.float64), -self.bits)


def digit_base(base: npt.ArrayLike, *, stealth: bool = False, max_shift: float | None = None) -> DigitBase:
    """Floor a model's predictions to a grid so that digits fit in above and sizes can be told.

    Parameters
    ----------
    base : array-like of shape (n_individuals,)
        Predictions in [0, 1].
    stealth : bool, default=False
        Stay within 1e-6, digits included.
    max_shift : float, default=None
        Largest distance from the base model, digits included; 0.1 by default.

    Returns
    -------
    DigitBase
        Flooring and any rise below a step cross no decision at 1/2. The base's sum shares as few
        factors with n as possible, because group sizes that are multiples of a shared factor
        explain the answer too.

    Raises
    ------
    ValueError
        If predictions are not in [0, 1], or ``max_shift`` leaves no room for digits.

    Examples
    --------
    >>> from sklearn_fairleak.attack.digit_base import digit_base
    >>> digit_base([0.3, 0.55, 0.9]).values.tolist()
    [0.25, 0.5, 0.875]
    """
    h = np.asarray(base, dtype=np.float64)
    if h.ndim != 1 or h.size < 2 or not np.all((h >= 0.0) & (h <= 1.0)):
        raise ValueError(
            "base must be one column of at least 2 predictions in [0, 1], without NaN; got an array of "
            f"shape {h.shape}."
        )
    bits = _STEALTH_BITS if stealth else _GRID_BITS
    strict = stealth or max_shift is not None
    if max_shift is not None:
        if max_shift <= 0.0:
            raise ValueError(f"max_shift must be positive, got {max_shift!r}: no model could differ.")
        bits = max(bits if stealth else 1, math.ceil(-math.log2(max_shift)))
    if bits >= _MOST_BITS:
        raise ValueError(
            f"max_shift={max_shift!r} leaves no room for digits in double precision; allow at least 1e-11."
        )
    found = _floored(h, bits, strict)
    if found is None:
        # A finer grid keeps even those within the allowed shift who had no room for a step.
        found = _floored(h, bits + 1, None)
        assert found is not None
    return found


def _floored(h: FloatArray, bits: int, strict: bool | None) -> DigitBase | None:
    """Floor to a grid and move a few people by one step; None if they would move too far."""
    n, top = h.size, (1 << bits) - 1
    scaled = np.ldexp(h, bits)
    steps = np.minimum(np.floor(scaled), top).astype(np.int64)
    loss = scaled - steps
    free = (steps < top) & (steps + 1 != 1 << (bits - 1))
    if strict:
        # Up by a step, less the loss, plus digits below half a step or the loss: within a step.
        free &= loss >= 0.5
    move = 1
    if strict is None and not free.any():
        free, move = steps == top, -1
    movable = np.flatnonzero(free)
    movable = movable[np.argsort(-loss[movable], kind="stable")][:_MOST_NUDGED]
    total = int(steps.sum())
    shared = [math.gcd(total + move * j, n) for j in range(movable.size + 1)]
    nudged = int(np.argmin(shared))
    if strict is not None and shared[nudged] > 1:
        return None
    lifted = np.zeros(n, dtype=bool)
    lifted[movable[:nudged]] = True
    return DigitBase(steps + move * lifted, bits, lifted)
