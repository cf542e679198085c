"""Ask block after block and read people from the digits, checking every answer against all others."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .digit_base import DigitBase
from .group_sums import (
    GroupSum,
    answer_error,
    finish,
    learned_nothing,
    possible_sums,
    read_sum,
    reason_of,
)
from .reconstruction import Reconstruction
from .subset_sums import best_block, find_subset
from .transcript import OracleStopped, Transcript

__all__ = ["DigitReader"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: How much noisier than exact sums in double precision an oracle may be before the attack gives up.
_NOISE_LEVELS = tuple(16.0**k for k in range(10))
#: Rounding error of an answer of order one, in units of 2^-53: used where group sizes are unknown.
_ULPS = 4.0
#: More explanations of the base model's answer than this are narrowed down by a query about one person.
_MOST_EXPLANATIONS = 40
#: Queries spent on telling apart explanations that are left at the end.
_TIE_BREAKERS = 8
#: Complete readings that may contradict themselves before the oracle is taken to.
_MOST_CONTRADICTIONS = 2
#: Weights of fewer bits do not tell subsets apart.
_FEWEST_WEIGHT_BITS = 16
#: Ways to halve a block whose members were not found at first.
_SPLITS = 4
#: A sum further than this from a whole number is not taken for one, whatever the noise.
_READABLE = 0.3


class _Explanation:
    """Hold group sizes and a base sum that explain the base model's answer, and whom they let us read."""

    def __init__(self, found: GroupSum, base: DigitBase, unsigned: bool) -> None:
        self.n1, self.sign, self.base_sum = found.n_advantaged, found.sign, found.total
        self.n0 = base.n - self.n1
        self.attributes = np.full(base.n, -1, dtype=np.int8)
        self.failures = 0
        gap = abs(self.base_sum * base.n - base.total * self.n1)
        # Digits stay below a step in either group; as long as the gap is larger, its sign is the base's.
        both = unsigned and gap < max(self.n1, self.n0)
        self.signs = (1, -1) if both else (self.sign,)
        step = 2.0**-base.bits
        self.error = answer_error(base.n, self.n1, (self.base_sum + 1) * step, (base.total + 1) * step)

    def capacity(self, base: DigitBase, level: float) -> int:
        """Return how many digits the rounding error of an answer leaves room for."""
        digits = math.floor(math.log2((1.0 / self.n1 + 1.0 / self.n0) / (4.0 * self.error * level)))
        largest = max(self.base_sum, base.total - self.base_sum) + 1
        # Group sums must be exact in 53 bits.
        digits = min(digits, 53 - largest.bit_length() + base.bits)
        return min(digits - base.bits, 52 - base.bits)

    def consistent(self, base: DigitBase) -> bool:
        """Whether everyone is read and adds up to the group size and to the base model's answer."""
        if self.attributes.min() < 0 or int(self.attributes.sum()) != self.n1:
            return False
        return int(base.steps[self.attributes == 1].sum()) == self.base_sum


class DigitReader:
    """Recover attributes from the digits of answers.

    Parameters
    ----------
    asked : Transcript
        The oracle.
    base : DigitBase
        Base model with room for digits.
    signed : bool or None
        Whether answers are signed; None if only a negative answer would tell.
    group_sizes : tuple of (n_disadvantaged, n_advantaged) or None
        Group sizes, where they are known.
    progress : callable or None
        Called with (people read, people in all).
    sparse_weights : numpy.random.Generator, default=None
        Draws weights for blocks longer than the digits of an answer, for a small minority.
    level : float, default=1.0
        Error of an answer, in units of that of exact sums in double precision.
    """

    def __init__(
        self,
        asked: Transcript,
        base: DigitBase,
        *,
        signed: bool | None,
        group_sizes: tuple[int, int] | None,
        progress: Callable[[int, int], None] | None,
        sparse_weights: np.random.Generator | None = None,
        level: float = 1.0,
    ) -> None:
        self._asked, self._base, self._values = asked, base, base.values
        self._signed, self._group_sizes, self._progress = signed, group_sizes, progress
        self._sparse_weights, self._least_level = sparse_weights, level
        self._level = level
        self._unsigned = not signed
        self._alive: list[_Explanation] = []
        self._messages: list[str] = []

    def read_all(self) -> Reconstruction:
        """Ask until everyone is read and all answers agree, or say what could not be read."""
        n = self._base.n
        first = self._asked(self._values)
        self._unsigned = not self._signed and first >= 0.0
        contradictions = 0
        try:
            for level in _NOISE_LEVELS:
                if level < self._least_level:
                    continue
                self._level = level
                if not self._explain(first) or not self._read_blocks():
                    continue
                found = self._conclude()
                if found.verified or contradictions >= _MOST_CONTRADICTIONS:
                    return found
                contradictions += 1
        except OracleStopped as stop:
            return self._partly(f"{reason_of(stop)}; what was read until then is kept")
        if contradictions:
            return self._partly("the answers contradict each other")
        reason = "the answers are not exact enough to read single people"
        if self._group_sizes is not None:
            reason += ", or the group sizes are not those given"
        return learned_nothing(self._asked, n, reason)

    def _explain(self, first: float) -> bool:
        """List what the base model's answer allows, with a query about one person if that is too much."""
        tolerance = _ULPS * 2.0**-53 * self._level
        possible = possible_sums(
            first,
            self._base.total,
            self._base.bits,
            self._base.n,
            tolerance=tolerance,
            signs=(1, -1) if self._unsigned else (1,),
            group_sizes=self._group_sizes,
        )
        self._alive = [_Explanation(found, self._base, self._unsigned) for found in possible]
        if len(self._alive) > _MOST_EXPLANATIONS:
            person = np.array([0])
            answer = self._ask_digits(person)
            self._alive = [e for e in self._alive if self._read_digits(answer, person, e) is not None]
        return 0 < len(self._alive) <= 10 * _MOST_EXPLANATIONS

    def _read_blocks(self) -> bool:
        """Read everyone, halving blocks that cannot be read; False if the oracle is noisier than assumed."""
        length = min(e.capacity(self._base, self._level) for e in self._alive)
        if length < 1:
            return False
        n = self._base.n
        people = np.arange(n)
        if self._sparse_weights is not None:
            people = self._read_sparse_blocks(length, self._sparse_weights)
        pending = deque(np.array_split(people, math.ceil(people.size / length)) if people.size else [])
        allowed, unread = 2 + len(pending) // 20, 0
        while pending:
            block = pending.popleft()
            answer = self._ask_digits(block)
            if self._learn(block, [self._read_digits(answer, block, e) for e in self._alive]):
                continue
            unread += 1
            if unread > allowed or block.size == 1:
                return False
            pending.extend(np.array_split(block, 2))
        return True

    def _learn(self, block: IntArray, readings: list[IntArray | None]) -> bool:
        """Keep what explanations read, and drop those that could not read where others could."""
        if all(reading is None for reading in readings):
            return False
        kept = []
        for explanation, reading in zip(self._alive, readings, strict=True):
            if reading is not None:
                explanation.attributes[block] = reading
                kept.append(explanation)
        self._alive = kept
        if self._progress is not None:
            self._progress(int((self._alive[0].attributes >= 0).sum()), self._base.n)
        return True

    def _read_sparse_blocks(self, length: int, rng: np.random.Generator) -> IntArray:
        """Read blocks longer than an answer's digits; return the people that are left for digits."""
        n = self._base.n
        if n <= length or length < _FEWEST_WEIGHT_BITS:
            return np.arange(n)
        size = min(best_block(min(e.n1, e.n0) / n, length) for e in self._alive)
        if size <= length:
            return np.arange(n)
        hard = []
        for block in np.array_split(np.arange(n), math.ceil(n / size)):
            weights = rng.integers(2, 1 << length, block.size) >> self._base.lifted[block]
            answer = self._ask(block, weights, length)
            if not self._search(block, weights, answer, length):
                hard.append((block, weights, answer))
        hard = [block for block in hard if not self._search(*block, length, splits=_SPLITS)]
        while hard:
            # An answer's digits, dealt out to all such blocks, leave few enough for their own answers to tell.
            shares = [length * (i + 1) // len(hard) - length * i // len(hard) for i in range(len(hard))]
            people = np.concatenate(
                [
                    block[self._alive[0].attributes[block] < 0][:share]
                    for (block, _, _), share in zip(hard, shares, strict=True)
                ]
            )
            answer = self._ask_digits(people)
            if not self._learn(people, [self._read_digits(answer, people, e) for e in self._alive]):
                break
            hard = [
                block
                for block in hard
                if (self._alive[0].attributes[block[0]] < 0).any()
                and not self._search(*block, length, splits=_SPLITS)
            ]
        return np.flatnonzero(self._alive[0].attributes < 0)

    def _search(
        self, block: IntArray, weights: IntArray, answer: float, length: int, *, splits: int = 1
    ) -> bool:
        """Let every explanation look for a block's members of the smaller group."""
        return self._learn(
            block, [self._read_weights(answer, block, weights, length, e, splits) for e in self._alive]
        )

    def _ask(self, block: IntArray, weights: IntArray, bits: int) -> float:
        """Submit the base model with a block raised by weights below a step."""
        values = self._values.copy()
        values[block] += np.ldexp(weights.astype(np.float64), -(self._base.bits + bits))
        return self._asked(values)

    def _ask_digits(self, block: IntArray) -> float:
        """Submit the base model with a block raised by 1/2, 1/4, ... of a step."""
        return self._ask(block, np.int64(1) << np.arange(block.size - 1, -1, -1), block.size)

    def _read_digits(self, answer: float, block: IntArray, explanation: _Explanation) -> IntArray | None:
        """Read a block's members in binary, None if an explanation does not allow one reading only."""
        k = block.size
        sums = self._sums(answer, (1 << k) - 1, k, explanation)
        if len(sums) != 1:
            return None
        return np.array([sums[0] >> (k - 1 - j) & 1 for j in range(k)], dtype=np.int64)

    def _read_weights(
        self,
        answer: float,
        block: IntArray,
        weights: IntArray,
        bits: int,
        explanation: _Explanation,
        splits: int,
    ) -> IntArray | None:
        """Find a block's members of the smaller group by the sum of their weights."""
        raised = int(weights.sum())
        sums = self._sums(answer, raised, bits, explanation)
        if len(sums) != 1:
            return None
        smaller = int(explanation.n1 < explanation.n0)
        members = explanation.attributes[block].astype(np.int64)
        rest = (sums[0] if smaller else raised - sums[0]) - int(weights[members == smaller].sum())
        unknown = np.flatnonzero(members < 0)
        few = find_subset(weights[unknown], rest, splits=splits)
        if few is None:
            return None
        members[unknown] = 1 - smaller
        members[unknown[few]] = smaller
        return members

    def _sums(self, answer: float, raised: int, bits: int, explanation: _Explanation) -> list[int]:
        """Return what the raised people of the advantaged group may add up to, in last digits."""
        base, n1, n0 = self._base, explanation.n1, explanation.n0
        unit = n1 * n0 / base.n * 2.0 ** (base.bits + bits)
        tolerance = min(_READABLE, 2.0 * self._level * explanation.error * unit)
        found = []
        for sign in explanation.signs:
            total = (base.total << bits) + raised
            whole, residual = read_sum(sign * answer, total, base.bits + bits, base.n, n1)
            own = whole - (explanation.base_sum << bits)
            if residual <= tolerance and 0 <= own <= raised and own not in found:
                found.append(own)
        return found

    def _conclude(self) -> Reconstruction:
        """Keep the explanations that add up, ask on while there are several, and report."""
        base = self._base
        self._alive = [e for e in self._alive if e.consistent(base)] or self._alive
        rng = np.random.default_rng(base.n)
        for _ in range(_TIE_BREAKERS):
            if len(self._alive) == 1:
                break
            length = min(e.capacity(base, self._level) for e in self._alive)
            block = rng.permutation(base.n)[: max(1, min(length, base.n) // 2)]
            answer = self._ask_digits(block)
            agree = []
            for explanation in self._alive:
                reading = self._read_digits(answer, block, explanation)
                if reading is not None and np.array_equal(reading, explanation.attributes[block]):
                    agree.append(explanation)
            self._alive = agree or self._alive
        consistent = [e for e in self._alive if e.consistent(base)]
        if not consistent:
            return self._partly("the answers contradict each other")
        if len(consistent) > 1:
            return self._partly("several group sizes explain all answers")
        return self._report(consistent, verified=True)

    def _partly(self, *messages: str) -> Reconstruction:
        """Report those whom all remaining explanations read alike, without a check of the whole."""
        contradictory = any("contradict" in message for message in messages)
        return self._report(self._alive, verified=False, messages=messages, trusted=not contradictory)

    def _report(
        self,
        explanations: list[_Explanation],
        *,
        verified: bool,
        messages: tuple[str, ...] = (),
        trusted: bool = True,
    ) -> Reconstruction:
        """Say who is determined, by how many answers, and what is left open."""
        if not explanations:
            return learned_nothing(self._asked, self._base.n, *messages)
        readings = np.array([e.attributes for e in explanations])
        agreed = (readings[0] >= 0) & (readings == readings[0]).all(axis=0)
        if not agreed.all():
            open_ = int((~agreed).sum())
            messages = (*messages, f"{open_} of {self._base.n} individuals were not read")
        sizes = {(e.n0, e.n1) for e in explanations}
        named = not self._unsigned or (
            self._group_sizes is not None and self._group_sizes[0] != self._group_sizes[1]
        )
        return finish(
            self._asked,
            np.where(agreed, readings[0], 0.5).astype(np.float64),
            agreed & trusted,
            group_sizes=sizes.pop() if len(sizes) == 1 else None,
            verified=verified,
            orientation_known=named,
            messages=messages,
        )
