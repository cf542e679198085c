"""Read people from rounded answers: rounding is no defence.

An answer rounded to d decimals still tells a sum to a fraction of what one person adds, if
``1/N0 + 1/N1`` exceeds ``10^-d``; detecting matrices with that many bits below one person then
need fewer queries than people. Where rounding is coarser than a person, scaling a model's
predictions until its rounded answer jumps measures its gap to any precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .detecting_matrix import DetectingMatrix
from .digit_base import digit_base
from .digit_reader import DigitReader
from .group_sums import finish, learned_nothing, possible_sums, read_sum, reason_of
from .reconstruction import Reconstruction
from .transcript import OracleStopped, Transcript

__all__ = ["run"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Bits to which a gap is measured nearly to double precision, and at first for the group sizes.
_FULL, _FIRST = 46, 9
#: Error of a gap found by full bisection, in units of that of an exact answer.
_BISECTED = 256.0


def run(
    oracle: Callable[[FloatArray], Any],
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
    """Recover everyone from answers rounded to a number of decimals.

    Parameters
    ----------
    oracle : callable
        ``oracle(y_pred) -> float``, rounded.
    base : array-like of shape (n_individuals,)
        Predictions of a realistic model, in [0, 1]. Only used where shifts are limited, or where
        rounding is coarser than a person.
    y : array-like of shape (n_individuals,), default=None
        True labels in {0, 1}, to report the loss of accuracy.
    signed : bool or None, default=True
        Whether answers are signed. Other answers are read by scaling, at about one query a person.
    decimals : int, default=None
        Decimals of the answers, 0 to 12.
    stealth : bool, default=False
        Keep every prediction within 1e-6 of the base model's.
    max_shift : float, default=None
        Largest distance of a prediction from the base model's. By default there is no limit.
    max_accuracy_loss : float, default=None
        If given, no decision at 1/2 is changed and predictions stay within 0.1.
    group_sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Found from the answers, at some 20 queries, where not given.
    random_state : int or numpy.random.Generator, default=None
        Chooses the models whose gaps tell the group sizes.
    progress : callable, default=None
        Called with (queries answered, queries in all).

    Returns
    -------
    Reconstruction

    Raises
    ------
    ValueError
        If ``decimals`` is missing or out of range.
    OracleStopped
        If the oracle does not answer the first query.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack import rounded
    >>> race = np.random.default_rng(0).random(200) < 0.9
    >>> found = rounded.run(
    ...     lambda h: round(h[race].mean() - h[~race].mean(), 4), np.full(200, 0.5), decimals=4,
    ...     group_sizes=(int((~race).sum()), int(race.sum())),
    ... )
    >>> found, bool(np.array_equal(found.attributes, race))
    (Reconstruction(200 of 200 individuals determined by 20 answers, verified), True)
    """
    if decimals is None or not 0 <= decimals <= 12:
        raise ValueError(
            f"decimals must be the number of decimals of the answers, 0 to 12; got {decimals!r}."
        )
    h = np.asarray(base, dtype=np.float64)
    limited = stealth or max_shift is not None or max_accuracy_loss is not None
    start = digit_base(h, stealth=stealth, max_shift=max_shift)
    labels = None if y is None else np.asarray(y, dtype=np.float64)
    asked = _Bisecting(oracle, h, labels, decimals)
    rng = np.random.default_rng(random_state)
    try:
        if signed:
            steps = np.minimum(np.floor(np.ldexp(h, start.bits)), (1 << start.bits) - 1).astype(np.int64)
            # A rise by a whole step crosses decisions at 1/2, one by half a step does not.
            room = 1 if stealth or max_accuracy_loss is not None else 0
            found = _by_design(asked, steps, start.bits, room, limited, decimals, group_sizes, rng, progress)
            if found is not None:
                return found
        if limited:
            return learned_nothing(
                asked,
                h.size,
                "answers are rounded more coarsely than the allowed shift moves them for a person",
            )
        reader = DigitReader(
            asked, start, signed=signed, group_sizes=group_sizes, progress=progress, level=_BISECTED
        )
        return reader.read_all()
    except OracleStopped as stop:
        if not asked.n_queries:
            raise
        return learned_nothing(asked, h.size, reason_of(stop))


class _Bisecting(Transcript):
    """Measure the exact gap of a model from rounded answers to its scaled copies."""

    def __init__(
        self, oracle: Callable[[FloatArray], Any], base: FloatArray, labels: FloatArray | None, decimals: int
    ) -> None:
        super().__init__(oracle, base, labels)
        self._unit = 10.0**-decimals
        self.precision = _FULL

    def ask(self, y_pred: FloatArray) -> float:
        """Return the rounded answer itself."""
        return super().__call__(y_pred)

    def __call__(self, y_pred: npt.ArrayLike) -> float:
        """Return the gap to `precision` bits: scale predictions down until the rounded answer jumps."""
        values = np.asarray(y_pred, dtype=np.float64)
        answer = self.ask(values)
        size = round(abs(answer) / self._unit)
        if size == 0:
            raise OracleStopped("a gap is rounded to 0, so no scaling of its predictions shows it")
        threshold = (size - 0.5) * self._unit
        low, high = (size - 0.5) / (size + 0.5), 1.0
        while high - low > 2.0**-self.precision:
            middle = 0.5 * (low + high)
            if round(abs(self.ask(values * middle)) / self._unit) >= size:
                high = middle
            else:
                low = middle
        return math.copysign(threshold / (0.5 * (low + high)), answer)


def _by_design(
    asked: _Bisecting,
    steps: IntArray,
    bits: int,
    room: int,
    limited: bool,
    decimals: int,
    group_sizes: tuple[int, int] | None,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] | None,
) -> Reconstruction | None:
    """Read everyone by a detecting matrix; None if rounding is coarser than a person."""
    n, bits = steps.size, 0 if not limited else bits
    steps = steps if limited else np.zeros(n, dtype=np.int64)
    sizes = group_sizes
    if sizes is None and not limited:
        sizes = _sizes_by_scaling(asked, n, decimals, rng)
    # Without the sizes, groups of equal size are the least favourable.
    effect = (1.0 / sizes[0] + 1.0 / sizes[1] if sizes else 4.0 / n) * 2.0 ** -(bits + room)
    extra = math.floor(math.log2(effect * 10.0**decimals) - 1e-9)
    if extra < 0:
        return None
    design = DetectingMatrix(n, extra)
    grid = bits + room + design.bits
    values = np.ldexp(steps.astype(np.float64), -bits)
    total = int(steps.sum()) << (room + design.bits)
    rows = [np.zeros(n, dtype=np.int64)] if limited else []
    rows += list(design.weights.astype(np.int64))
    answers = []
    for k, row in enumerate(rows):
        answers.append(asked.ask(values + np.ldexp(row.astype(np.float64), -grid)))
        if progress is not None:
            progress(k + 1, len(rows))
    tolerance = 0.5 * 10.0**-decimals + 1e-14
    fits = []
    for n1 in [sizes[1]] if sizes else range(1, n):
        unit = n1 * (n - n1) / n * 2.0**grid
        read = [
            read_sum(answer, total + int(row.sum()), grid, n, n1)
            for answer, row in zip(answers, rows, strict=True)
        ]
        if max(residual for _, residual in read) > min(0.5, tolerance * unit):
            continue
        sums = [whole for whole, _ in read]
        unknowns = design.solve([whole - (sums[0] if limited else 0) for whole in sums[limited:]])
        if unknowns is None or int(unknowns.sum()) != n1:
            continue
        if not limited or int(steps[unknowns == 1].sum()) << (room + design.bits) == sums[0]:
            fits.append(unknowns)
    if len(fits) != 1:
        message = "several group sizes explain all answers" if fits else "the answers contradict each other"
        return learned_nothing(asked, n, message + ", or are not rounded as was said" * (not fits))
    n1 = int(fits[0].sum())
    return finish(
        asked, fits[0].astype(np.float64), np.ones(n, dtype=bool), group_sizes=(n - n1, n1), verified=True
    )


def _sizes_by_scaling(
    asked: _Bisecting, n: int, decimals: int, rng: np.random.Generator
) -> tuple[int, int] | None:
    """Find the group sizes by measuring the gaps of random models ever more closely."""
    possible: set[int] | None = None
    for attempt in range(12):
        chosen = rng.permutation(n)[: max(1, n // 2 + attempt)]
        while math.gcd(chosen.size, n) > 1 and chosen.size > 1:
            chosen = chosen[:-1]
        values = np.zeros(n)
        values[chosen] = 1.0
        asked.precision = min(_FULL, _FIRST + n.bit_length() + 4 * attempt)
        try:
            gap = asked(values)
        except OracleStopped:
            if not asked.n_queries:
                raise
            continue
        tolerance = abs(gap) * 2.0**-asked.precision + 1e-13
        found = {s.n_advantaged for s in possible_sums(gap, chosen.size, 0, n, tolerance=tolerance)}
        possible = found if possible is None else possible & found
        asked.precision = _FULL
        if len(possible) == 1:
            n1 = possible.pop()
            return n - n1, n1
        if not possible:
            return None
    return None
