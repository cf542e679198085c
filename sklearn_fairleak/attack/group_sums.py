"""From a gap to the sum over a group: the integers behind an answer, and how exact it is.

If all predictions are whole multiples of a step, so is their sum over the advantaged group. With
``T`` the (public) sum over everyone and ``S`` that over the ``N1`` advantaged, both in steps,

    gap = step * (S / N1 - (T - S) / N0),  so  S = (gap / step * N1 * N0 + T * N1) / n.

For the right ``N1``, ``S`` is a whole number: that finds the group sizes, reads ``S`` in spite of
the rounding of floating point, and shows when an answer is not what it should be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .reconstruction import Reconstruction
from .transcript import OracleStopped, Transcript

__all__ = [
    "GroupSum",
    "answer_error",
    "finish",
    "half_ulp",
    "learned_nothing",
    "possible_sums",
    "read_sum",
    "reason_of",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class GroupSum:
    """Hold one explanation of an answer.

    Parameters
    ----------
    n_advantaged : int
        Size of the advantaged group.
    sign : int
        1, or -1 where an absolute answer hides a negative gap.
    total : int
        Sum over the advantaged group, in steps.
    """

    n_advantaged: int
    sign: int
    total: int


def half_ulp(x: float) -> float:
    """Return the largest error of rounding a number of this size to double precision."""
    return 2.0 ** (math.frexp(x)[1] - 54) if x > 0.0 else 0.0


def answer_error(n: int, n_advantaged: int, group_sum: float, total: float) -> float:
    """Bound the rounding error of a gap whose group sums are exact: two quotients, one difference.

    Sums of dyadic numbers are exact in double precision in whatever order they are taken, so this
    holds for NumPy's pairwise sums as for fairlearn's dot products.

    Examples
    --------
    >>> answer_error(4, 2, 1.0, 1.0) == 2.0**-54 + 0.5 * 2.0**-54
    True
    """
    mean1, mean0 = group_sum / n_advantaged, (total - group_sum) / (n - n_advantaged)
    return half_ulp(mean1) + half_ulp(mean0) + half_ulp(max(mean1, mean0)) / 2.0


def read_sum(answer: float, total: int, bits: int, n: int, n_advantaged: int) -> tuple[int, float]:
    """Return the sum over the advantaged in steps of ``2**-bits``, and the distance to a whole number."""
    mantissa, scale = answer.as_integer_ratio()
    steps = n_advantaged * (n - n_advantaged) << bits
    numerator = mantissa * steps + total * n_advantaged * scale
    denominator = n * scale
    whole = (2 * numerator + denominator) // (2 * denominator)
    return whole, abs(numerator - whole * denominator) / denominator


def possible_sums(
    answer: float,
    total: int,
    bits: int,
    n: int,
    *,
    tolerance: float,
    signs: tuple[int, ...] = (1,),
    group_sizes: tuple[int, int] | None = None,
) -> list[GroupSum]:
    """List the group sizes, signs and sums that an answer allows.

    Parameters
    ----------
    answer : float
        Gap, or its absolute value.
    total : int
        Sum of all predictions in steps of ``2**-bits``.
    bits : int
        Predictions are multiples of ``2**-bits``.
    n : int
        Number of individuals.
    tolerance : float
        Largest error of the answer.
    signs : tuple of int, default=(1,)
        Signs that the gap may have.
    group_sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Group sizes, where they are known.

    Returns
    -------
    list of GroupSum
        Of two that give the same absolute answers, (N1, A) and (N0, 1 - A), the one with
        ``N1 >= N0``.
    """
    n1 = np.arange(1, n, dtype=np.longdouble)
    n0 = n - n1
    steps = np.longdouble(2.0) ** bits
    found = []
    for sign in signs:
        x = (np.longdouble(sign * answer) * n1 * n0 * steps + total * n1) / n
        whole = np.rint(x)
        possible = np.abs(x - whole) * n <= tolerance * n1 * n0 * steps
        possible &= (whole >= 0) & (whole <= total) & (whole <= n1 * steps) & (total - whole <= n0 * steps)
        found += [GroupSum(int(k) + 1, sign, int(whole[k])) for k in np.flatnonzero(possible)]
    if group_sizes is not None:
        return [
            s for s in found if s.n_advantaged == group_sizes[1] and (s.sign > 0 or 2 * group_sizes[1] != n)
        ]
    if len(signs) == 2:
        return [s for s in found if 2 * s.n_advantaged > n or (2 * s.n_advantaged == n and s.sign > 0)]
    return found


def reason_of(stop: OracleStopped) -> str:
    """Return why the oracle stopped, in its own words where two transcripts are nested."""
    inner = stop.__cause__
    return str(inner) if isinstance(inner, OracleStopped) else str(stop)


def finish(
    asked: Transcript,
    scores: FloatArray,
    determined: BoolArray,
    *,
    group_sizes: tuple[int, int] | None,
    verified: bool,
    orientation_known: bool = True,
    messages: tuple[str, ...] = (),
) -> Reconstruction:
    """Put what was learned together with what it cost."""
    if not orientation_known:
        messages = (*messages, "absolute answers fix the two groups, not which is the advantaged one")
    return Reconstruction(
        scores,
        determined,
        asked.answers,
        asked.n_queries,
        group_sizes=group_sizes,
        verified=verified,
        orientation_known=orientation_known,
        max_shift=asked.max_shift,
        accuracy_loss=max(0.0, asked.accuracy_loss),
        queries=asked.queries,
        messages=messages,
    )


def learned_nothing(asked: Transcript, n: int, *messages: str) -> Reconstruction:
    """Return that nobody is determined, and why."""
    return finish(
        asked,
        np.full(n, 0.5),
        np.zeros(n, dtype=bool),
        group_sizes=None,
        verified=False,
        messages=messages,
    )
