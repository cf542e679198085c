"""Read dozens of people from the digits of one answer.

A base model's predictions come in; models that add a different power of two to each person of
a block go to the oracle; the bits of the answers, which are people, go out.

With a base on the grid 2^-g and a block of K people raised by 2^-(g+1), …, 2^-(g+K), the sum
over the advantaged group changes by a sum of distinct powers of two: its binary digits say
who is in the group. All sums are exact in binary64, so the only error is that of the means
and their difference, which bounds K.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from .reconstruction import Reconstruction

__all__ = ["run"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Bits of the grid that the base model is floored to: at most 1/16 away, no decision changed.
_GRID_BITS = 4
#: With these, every prediction stays within 1e-6.
_STEALTH_BITS = 20
#: A sum may be this far from a whole number of grid steps and still be read.
_READABLE = 0.3


@dataclass(frozen=True)
class _Sizes:
    """A possible number of advantaged people, the sign of answers, and the base's sum over them."""

    n1: int
    sign: int
    base_sum: int


def run(
    oracle: Callable[[FloatArray], float],
    base: npt.ArrayLike,
    *,
    y: Any = None,
    signed: bool | None = True,
    decimals: int | None = None,
    stealth: bool = False,
    max_shift: float | None = None,
    max_accuracy_loss: float | None = None,
    group_sizes: tuple[int, int] | None = None,
    random_state: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Reconstruction:
    """Recover everyone from exact answers about probability predictions.

    Parameters
    ----------
    oracle : callable
        ``oracle(y_pred) -> float``, the gap or its absolute value in double precision.
    base : array-like of shape (n_individuals,)
        Predictions of a realistic model, in [0, 1].
    y : array-like of shape (n_individuals,), default=None
        Not used: no decision at 1/2 is changed, so no accuracy is lost.
    signed : bool or None, default=True
        Whether answers are signed. None is taken as unknown, which is treated as unsigned
        unless an answer is negative.
    decimals : int, default=None
        Must be None: this attack reads the last bits of answers.
    stealth : bool, default=False
        Keep every prediction within 1e-6 of the base model's.
    max_shift : float, default=None
        Largest allowed distance of a prediction from the base model's.
    max_accuracy_loss : float, default=None
        Always honoured: no accuracy is lost.
    group_sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Found from the base model's answer where not given.
    random_state : object, default=None
        Not used: the attack is deterministic.
    progress : callable, default=None
        Called with (blocks done, blocks in all).

    Returns
    -------
    Reconstruction

    Raises
    ------
    ValueError
        If answers are rounded, or ``max_shift`` is too small for double precision.
    """
    h0 = np.asarray(base, dtype=np.float64)
    n = h0.size
    bits = _grid_bits(stealth, max_shift)
    grid, total = _coprime_base(h0, bits)
    base_values = np.ldexp(grid.astype(np.float64), -bits)
    asked: list[tuple[IntArray, float]] = []
    answers: list[float] = []

    def ask(values: FloatArray) -> float:
        answers.append(float(oracle(values)))
        return answers[-1]

    first = ask(base_values)
    signs = (1,) if signed or first < 0 else (1, -1)
    sizes = _possible_sizes(first, total, bits, n, signs, group_sizes)
    if not sizes:
        return _nothing(n, answers, "the base model's answer fits no group sizes: it is not exact")
    length = min(_block_length(n, size, total, bits) for size in sizes)
    blocks = [np.arange(start, min(start + length, n)) for start in range(0, n, length)]
    for k, block in enumerate(blocks):
        asked.append((block, ask(_raised(base_values, block, bits))))
        if progress is not None:
            progress(k + 1, len(blocks))
    return _decide(ask, asked, answers, sizes, grid, total, bits, n, signed, group_sizes)


def _grid_bits(stealth: bool, max_shift: float | None) -> int:
    """Return the coarsest grid whose flooring and raising stay within the allowed shift."""
    bits = _STEALTH_BITS if stealth else _GRID_BITS
    if max_shift is not None:
        # A prediction loses less than a step by flooring, or gains at most a step.
        bits = max(bits, math.ceil(-math.log2(max_shift)))
    if bits > 40:
        raise ValueError(f"max_shift={max_shift!r} leaves no room for digits in double precision.")
    return bits


def _coprime_base(h0: FloatArray, bits: int) -> tuple[IntArray, int]:
    """Floor the base to the grid, nudging single steps until its sum tells the group sizes.

    The answer's fraction has the denominator N1 N0, and sizes are told apart if twice the sum
    shares no factor with n.
    """
    n, top = h0.size, (1 << bits) - 2
    grid = np.minimum(np.floor(np.ldexp(h0, bits)), top + 1).astype(np.int64)
    loss = np.ldexp(h0, bits) - grid
    # Nudge those who lost most by flooring, and nobody across a decision at 1/2.
    half = 1 << (bits - 1)
    free = np.flatnonzero((grid < top) & (grid + 1 != half))
    free = free[np.argsort(-loss[free], kind="stable")][:64]
    total = int(grid.sum())
    shared = [math.gcd(2 * (total + j), n) for j in range(free.size + 1)]
    nudged = int(np.argmin(shared))
    grid[free[:nudged]] += 1
    return grid, total + nudged


def _raised(base: FloatArray, block: IntArray, bits: int) -> FloatArray:
    """Add 2^-(g+1), 2^-(g+2), … to the people of a block."""
    values = base.copy()
    values[block] += np.ldexp(1.0, -(bits + 1 + np.arange(block.size)))
    return values


def _possible_sizes(
    answer: float,
    total: int,
    bits: int,
    n: int,
    signs: tuple[int, ...],
    group_sizes: tuple[int, int] | None,
) -> list[_Sizes]:
    """Return every N1 for which the base's sum over the advantaged is a whole number of steps."""
    n1 = np.arange(1, n, dtype=np.longdouble)
    n0 = n - n1
    steps = np.longdouble(2.0) ** bits
    found = []
    for sign in signs:
        x = (np.longdouble(sign * answer) * n1 * n0 * steps + total * n1) / n
        whole = np.rint(x)
        error = np.abs(x - whole) * n / (n1 * n0 * steps)
        possible = (error <= 4 * 2.0**-53) & (whole >= 0) & (whole <= total)
        possible &= (whole <= n1 * steps) & (total - whole <= n0 * steps)
        found += [_Sizes(int(k) + 1, sign, int(whole[k])) for k in np.flatnonzero(possible)]
    if group_sizes is not None:
        return [size for size in found if size.n1 == group_sizes[1]]
    if len(signs) == 2:
        # (N1, A) with one sign and (N0, 1 - A) with the other give the same absolute answers.
        found = [size for size in found if 2 * size.n1 >= n]
    return found


def _block_length(n: int, size: _Sizes, total: int, bits: int) -> int:
    """Return how many people the rounding error of both means and their difference leaves room for."""
    n1, n0 = size.n1, n - size.n1
    step = 2.0**-bits
    mean1, mean0 = (size.base_sum + 1) * step / n1, (total - size.base_sum + 1) * step / n0
    error = _half_ulp(mean1) + _half_ulp(mean0) + _half_ulp(max(mean1, mean0)) / 2
    digits = math.floor(math.log2((1 / n1 + 1 / n0) / (4 * error)))
    # Group sums must be exact in 53 bits, with a bit to spare.
    if digits + math.log2(max(mean1 * n1, mean0 * n0, step)) > 52.5:
        digits -= 1
    return int(max(1, min(digits - bits, 52 - bits, n)))


def _half_ulp(x: float) -> float:
    """Return the largest rounding error of a number of this size."""
    return 2.0 ** (math.frexp(x)[1] - 54) if x > 0 else 0.0


def _read(
    answer: float, block: IntArray, size: _Sizes, total: int, bits: int, n: int, signs: tuple[int, ...]
) -> tuple[IntArray | None, float]:
    """Read a block's members from an answer, in exact arithmetic, and the distance to a whole number."""
    k = block.size
    n1, n0 = size.n1, n - size.n1
    steps = 1 << (bits + k)
    raised_total = (total << k) + (1 << k) - 1
    best: tuple[IntArray | None, float] = (None, 1.0)
    for sign in signs:
        x = (sign * Fraction(answer) * n1 * n0 * steps + raised_total * n1) / n
        whole = round(x)
        digits, residual = whole - (size.base_sum << k), abs(float(x - whole))
        if 0 <= digits < 1 << k and residual < best[1]:
            members = [(digits >> (k - 1 - j)) & 1 for j in range(k)]
            best = np.array(members, dtype=np.int64), residual
    return best


def _decide(
    ask: Callable[[FloatArray], float],
    asked: list[tuple[IntArray, float]],
    answers: list[float],
    sizes: list[_Sizes],
    grid: IntArray,
    total: int,
    bits: int,
    n: int,
    signed: bool | None,
    group_sizes: tuple[int, int] | None,
) -> Reconstruction:
    """Choose the group sizes that explain all answers, and ask again about blocks that were not read."""
    unsigned = len({size.sign for size in sizes}) == 2 or not (signed or min(answers) < 0)
    signs = (1, -1) if unsigned else (1,)
    ranked = []
    for size in sizes:
        own = signs if unsigned else (size.sign,)
        read = [_read(answer, block, size, total, bits, n, own) for block, answer in asked]
        failed = sum(members is None or residual > _READABLE for members, residual in read)
        members_total = sum(int(members.sum()) for members, _ in read if members is not None)
        ranked.append((failed, members_total != size.n1, max(r for _, r in read), size, read, own))
    ranked.sort(key=lambda entry: entry[:3])
    failed, _, _, size, read, own = ranked[0]
    ambiguous = sum(entry[:2] == (0, False) for entry in ranked) > 1
    attributes = np.full(n, -1, dtype=np.int64)
    base_values = np.ldexp(grid.astype(np.float64), -bits)
    for (block, _), (members, residual) in zip(asked, read, strict=True):
        if members is not None and residual <= _READABLE:
            attributes[block] = members
        else:
            _halve(ask, attributes, block, base_values, size, total, bits, n, own)
    known = attributes >= 0
    consistent = bool(known.all()) and int(attributes.sum()) == size.n1
    messages = []
    if not known.all():
        messages.append(f"{int((~known).sum())} individuals could not be read: answers are not exact enough")
    elif not consistent:
        messages.append(
            "the recovered members do not add up to the group sizes: answers contradict each other"
        )
    if ambiguous:
        messages.append("several group sizes explain all answers")
    orientation = not unsigned or (group_sizes is not None and group_sizes[0] != group_sizes[1])
    if not orientation:
        messages.append("absolute answers fix the two groups, not which is the advantaged one")
    scores = np.where(known, attributes, 0.5).astype(np.float64)
    certain = known & consistent & (not ambiguous)
    return Reconstruction(
        scores,
        certain,
        np.array(answers),
        len(answers),
        group_sizes=(n - size.n1, size.n1),
        verified=consistent and not ambiguous,
        orientation_known=orientation,
        messages=tuple(messages),
    )


def _halve(
    ask: Callable[[FloatArray], float],
    attributes: IntArray,
    block: IntArray,
    base_values: FloatArray,
    size: _Sizes,
    total: int,
    bits: int,
    n: int,
    signs: tuple[int, ...],
) -> None:
    """Ask about halves of a block that was not read, down to single people."""
    if block.size == 1:
        return
    for part in np.array_split(block, 2):
        members, residual = _read(ask(_raised(base_values, part, bits)), part, size, total, bits, n, signs)
        if members is not None and residual <= _READABLE:
            attributes[part] = members
        else:
            _halve(ask, attributes, part, base_values, size, total, bits, n, signs)


def _nothing(n: int, answers: list[float], message: str) -> Reconstruction:
    """Return that nothing was learned, and why."""
    return Reconstruction(
        np.full(n, 0.5), np.zeros(n, dtype=bool), np.array(answers), len(answers), messages=(message,)
    )
