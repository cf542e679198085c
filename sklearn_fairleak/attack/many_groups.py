"""Attacks on answers about more than two groups: every group's mean, or only the largest gap."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from .decoders import gap_scale
from .detecting_matrix import DetectingMatrix
from .recovery import decode_exact
from .transcript import OracleStopped, Transcript

__all__ = ["MultiGroupReconstruction", "reveal_groups", "reveal_groups_by_difference"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: People in the digits of one mean: 53 bits, less the size of a group and a margin.
_DIGITS = 44
#: Largest distance of a group's sum from a whole number, in last digits.
_WHOLE = 0.05
#: Bits of a difference of two means that can be relied on.
_TERNARY_BITS = 33
#: Combinations of group sizes that are compared where the oracle stopped midway.
_MOST_COMBINATIONS = 10_000


@dataclass(frozen=True, eq=False)
class MultiGroupReconstruction:
    """Hold which of several groups each individual is in.

    Parameters
    ----------
    codes : ndarray of int of shape (n_individuals,)
        Position in `group_labels`; -1 where it is not determined.
    group_labels : tuple
        Labels of the groups, or numbers where answers do not name them.
    n_queries : int
        Answers used.
    verified : bool
        Whether everyone is in exactly one group and all answers agree.
    messages : tuple of str
        What could not be determined.
    max_shift, accuracy_loss : float
        Largest distance of a submitted prediction, and largest loss of accuracy, against the base model.
    """

    codes: IntArray
    group_labels: tuple[Any, ...]
    n_queries: int
    verified: bool
    messages: tuple[str, ...] = ()
    max_shift: float = 0.0
    accuracy_loss: float = 0.0

    @property
    def determined(self) -> npt.NDArray[np.bool_]:
        """Whether an individual's group was found."""
        return np.asarray(self.codes >= 0)

    def __repr__(self) -> str:
        state = "verified" if self.verified else "not verified"
        return (
            f"MultiGroupReconstruction({int(self.determined.sum())} of {self.codes.size} individuals in "
            f"{len(self.group_labels)} groups determined by {self.n_queries} answers, {state})"
        )


class _Asked:
    """Ask for answers of any kind, and measure what was submitted against the base model."""

    def __init__(self, oracle: Callable[[FloatArray], Any], n: int, base: Any, y: Any) -> None:
        self._oracle = oracle
        near = np.zeros(n) if base is None else np.asarray(base, dtype=np.float64)
        labels = None if y is None else np.asarray(y, dtype=np.float64)
        self._transcript = Transcript(lambda h: 0.0, near, labels)

    def __call__(self, values: FloatArray) -> Any:
        """Submit one model."""
        number = self._transcript.n_queries + 1
        try:
            answer = self._oracle(values.copy())
        except OracleStopped:
            raise
        except Exception as error:
            reason = f"the oracle raised {type(error).__name__} at query {number}: {error}"
            raise OracleStopped(reason) from error
        self._transcript(values)
        return answer

    def report(
        self, codes: IntArray, labels: Iterable[Any], verified: bool, messages: Iterable[str]
    ) -> MultiGroupReconstruction:
        """Put what was learned together with what it cost."""
        spent = self._transcript
        return MultiGroupReconstruction(
            codes,
            tuple(labels),
            spent.n_queries,
            verified,
            tuple(messages),
            spent.max_shift,
            max(0.0, spent.accuracy_loss),
        )


def reveal_groups(
    oracle: Callable[[FloatArray], Any],
    n: int,
    *,
    group_labels: Any = None,
    hard_labels: bool = False,
    base: Any = None,
    y: Any = None,
) -> MultiGroupReconstruction:
    """Recover everyone's group from the mean prediction of every group.

    Parameters
    ----------
    oracle : callable
        ``oracle(y_pred)`` returns a mapping (or Series) from group label to mean prediction, such as
        fairlearn's ``MetricFrame(...).by_group``.
    n : int
        Number of individuals.
    group_labels : list, default=None
        Labels of the groups; those of the first answer by default.
    hard_labels : bool, default=False
        Submit 0/1 predictions only, for selection rates.
    base : array-like of shape (n_individuals,), default=None
        Predictions that the shift is measured against; all 0 by default.
    y : array-like of shape (n_individuals,), default=None
        True labels, to measure the loss of accuracy.

    Returns
    -------
    MultiGroupReconstruction
        If the oracle stops midway, with those whom the answers until then fix.

    Raises
    ------
    OracleStopped
        If the oracle does not answer the first query.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack.many_groups import reveal_groups
    >>> race = np.arange(100) % 3
    >>> reveal_groups(lambda h: {g: h[race == g].mean() for g in range(3)}, 100)
    MultiGroupReconstruction(100 of 100 individuals in 3 groups determined by 3 answers, verified)
    """
    design = DetectingMatrix(n) if hard_labels else None
    if design is not None:
        rows = [row.astype(np.float64) for row in design.weights]
    else:
        blocks = [np.arange(i, min(i + _DIGITS, n)) for i in range(0, n, _DIGITS)]
        rows = []
        for block in blocks:
            values = np.zeros(n)
            values[block] = np.ldexp(1.0, -1 - np.arange(block.size))
            rows.append(values)
    asked = _Asked(oracle, n, base, y)
    answers: list[Any] = []
    for row in rows:
        try:
            answers.append(asked(row))
        except OracleStopped as stop:
            if not answers:
                raise
            labels = tuple(answers[0].keys() if group_labels is None else group_labels)
            table = np.array([[float(answer[label]) for label in labels] for answer in answers])
            codes = _read_partly(table, np.array(rows[: len(answers)]), hard_labels)
            return asked.report(codes, labels, False, [f"{stop}; what was read until then is kept"])
    labels = tuple(answers[0].keys() if group_labels is None else group_labels)
    scale = 1.0 if hard_labels else 2.0**_DIGITS
    codes = np.full(n, -1, dtype=np.int64)
    taken = np.zeros(n, dtype=np.int64)
    messages = []
    for code, label in enumerate(labels):
        means = np.array([float(answer[label]) for answer in answers])
        members = None
        for size in range(1, n + 1):
            sums = means * (size * scale)
            if np.abs(sums - np.rint(sums)).max() > _WHOLE:
                continue
            whole = [int(s) for s in np.rint(sums)]
            found = _from_digits(whole, n) if design is None else design.solve(whole)
            if found is not None and int(found.sum()) == size:
                members = found
                break
        if members is None:
            messages.append(f"the members of group number {code} were not found: its answers are not exact")
            continue
        codes[members == 1] = code
        taken += members
    verified = not messages and bool((taken == 1).all())
    if not messages and not verified:
        messages.append("the answers contradict each other: someone is in no group, or in several")
    return asked.report(np.where(taken == 1, codes, -1), labels, verified, messages)


def _read_partly(means: FloatArray, rows: FloatArray, hard_labels: bool) -> IntArray:
    """Read those whom some of the answers fix, if only one combination of group sizes explains these.

    `means` has one column a group.
    """
    (m, n), n_groups = rows.shape, means.shape[1]
    scale = 1.0 if hard_labels else 2.0**_DIGITS
    read = n if hard_labels else min(n, m * _DIGITS)
    options: list[list[tuple[int, IntArray | None]]] = []
    for code in range(n_groups):
        own: list[tuple[int, IntArray | None]] = []
        for size in range(1, n):
            sums = means[:, code] * (size * scale)
            if np.abs(sums - np.rint(sums)).max() > _WHOLE:
                continue
            members = None if hard_labels else _from_digits([int(s) for s in np.rint(sums)], n)
            if hard_labels or (members is not None and int(members.sum()) <= size):
                own.append((size, members))
        options.append(own)
    nobody = np.full(n, -1, dtype=np.int64)
    if math.prod(len(own) for own in options) > _MOST_COMBINATIONS:
        return nobody
    possible = []
    for chosen in product(*options):
        if sum(size for size, _ in chosen) != n:
            continue
        if hard_labels:
            counts = sum(np.rint(means[:, code] * size) for code, (size, _) in enumerate(chosen))
            possible += [chosen] if np.array_equal(counts, rows.sum(axis=1)) else []
        else:
            taken = np.sum([members for _, members in chosen if members is not None], axis=0)
            possible += [chosen] if np.all(taken[:read] == 1) else []
    if len(possible) != 1:
        return nobody
    codes = nobody.copy()
    for code, (size, members) in enumerate(possible[0]):
        if members is not None:
            codes[:read][members[:read] == 1] = code
            continue
        gaps = gap_scale(n - size, size) * size * (means[:, code] - rows.mean(axis=1))
        found = decode_exact(rows, gaps, sizes=(n - size, size), thorough=False)
        if found.verified:
            codes[found.determined & (found.attributes == 1)] = code
    return codes


def _from_digits(sums: list[int], n: int) -> IntArray | None:
    """Read one block's members from each sum."""
    members = np.zeros(n, dtype=np.int64)
    for k, value in enumerate(sums):
        if not 0 <= value < 1 << _DIGITS:
            return None
        digits = [value >> (_DIGITS - 1 - j) & 1 for j in range(_DIGITS)]
        own = members[k * _DIGITS : (k + 1) * _DIGITS]
        if any(digits[own.size :]):
            return None
        own[:] = digits[: own.size]
    return members


def reveal_groups_by_difference(
    oracle: Callable[[FloatArray], Any], n: int, *, base: Any = None, y: Any = None
) -> MultiGroupReconstruction:
    """Recover 3 to 5 groups from the largest less the smallest mean prediction alone.

    Two groups at a time are held at the top and at the bottom by one known person each; other
    people's small predictions then add to the top, take from the bottom, or do neither: ternary
    digits.

    Parameters
    ----------
    oracle : callable
        ``oracle(y_pred) -> float``: fairlearn's ``MetricFrame(...).difference()`` of the mean
        prediction.
    n : int
        Number of individuals.
    base, y : array-like of shape (n_individuals,), default=None
        Predictions and labels that shift and loss of accuracy are measured against.

    Returns
    -------
    MultiGroupReconstruction
        Groups are numbered in the order in which their first members appear. If the oracle stops
        midway, with those who were read until then.

    Raises
    ------
    OracleStopped
        If the oracle does not answer the first query.
    """
    asked = _Asked(oracle, n, base, y)

    def ask(values: FloatArray) -> float:
        return float(asked(values))

    codes = np.full(n, -1, dtype=np.int64)
    sizes: list[int] = []
    try:
        _read_by_difference(ask, codes, sizes)
    except OracleStopped as stop:
        if not (codes >= 0).any():
            raise
        return asked.report(
            codes, range(len(sizes)), False, [f"{stop}; those who were read until then are kept"]
        )
    n_groups = len(sizes)
    verified = bool((codes >= 0).all()) and np.bincount(codes, minlength=n_groups).tolist() == sizes
    messages = () if verified else ("the answers contradict each other, or are not exact",)
    return asked.report(codes, range(n_groups), verified, messages)


def _read_by_difference(ask: Callable[[FloatArray], float], codes: IntArray, sizes: list[int]) -> None:
    """Find one member of every group and its size, then everyone else, two groups at a time."""
    n = codes.size
    first: list[int] = []
    for person in range(n):
        if sum(sizes) == n:
            break
        alone = np.zeros(n)
        alone[person] = 1.0
        size = round(1.0 / ask(alone))
        for code, (other, its_size) in enumerate(zip(first, sizes, strict=True)):
            if its_size == size:
                both = alone.copy()
                both[other] = 1.0
                if abs(ask(both) - 2.0 / size) < 1e-9:
                    codes[person] = code
                    break
        else:
            codes[person] = len(first)
            first.append(person)
            sizes.append(size)
    n_groups = len(first)
    pairs = [(2 * i, 2 * i + 1) for i in range(n_groups // 2)] + [(0, n_groups - 1)] * (n_groups % 2)
    for top, bottom in pairs:
        _read_pair(ask, codes, first, sizes, top, bottom)


def _read_pair(
    ask: Callable[[FloatArray], float],
    codes: IntArray,
    first: list[int],
    sizes: list[int],
    top: int,
    bottom: int,
) -> None:
    """Find the members of two groups among those who are in none yet."""
    up, down = 1.0 / sizes[top], 1.0 / sizes[bottom]
    steps = sorted([(-down, bottom), (0.0, -1), (up, top)])
    # Digits stay apart if what follows one adds up to less than the smallest step between two.
    ratio = 1.02 * (1.0 + (up + down) / min(up, down))
    length = max(1, int(_TERNARY_BITS / math.log2(ratio)))
    unread = np.flatnonzero(codes < 0)
    for start in range(0, unread.size, length):
        block = unread[start : start + length]
        values = np.full(codes.size, 0.5)
        values[first[top]], values[first[bottom]] = 1.0, 0.0
        values[block] += min(0.1, 0.1 / max(sizes)) * ratio ** -np.arange(block.size, dtype=np.float64)
        weights = values[block] - 0.5
        rest = ask(values) - 0.5 * (up + down)
        for k, person in enumerate(block):
            tail = float(weights[k + 1 :].sum())
            misfit = [
                max(rest - step * weights[k] - up * tail, -down * tail - (rest - step * weights[k]))
                for step, _ in steps
            ]
            step, code = steps[int(np.argmin(misfit))]
            rest -= step * weights[k]
            codes[person] = code
