"""Read people from any answer that depends on how many of the chosen are advantaged.

A hypothesis fixes what is not asked (group sizes, say); under it, an answer allows some counts.
Subsets from a detecting matrix turn counts into people; hypotheses that allow no count, or no 0/1
solution, drop out. Nothing about the answer need be linear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .decoders import gap_scale
from .detecting_matrix import DetectingMatrix
from .recovery import decode_exact
from .transcript import OracleStopped

__all__ = ["Hypothesis", "SearchStopped", "search_counts"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Largest error of an answer; neighbouring counts differ by more for up to some 10^4 people.
_TOLERANCE = 1e-11
#: More explanations than this, of a search that was cut short, are not decoded.
_MOST_PARTIAL = 8


class SearchStopped(OracleStopped):
    """Raise when the oracle stops in the middle of a search, with what its answers had told.

    Parameters
    ----------
    reason : str
        Why the oracle stopped.
    hypotheses : list of Hypothesis
        Those that explain the answers until then, with the members that these fix, -1 for others.
    """

    def __init__(self, reason: str, hypotheses: list[Hypothesis]) -> None:
        super().__init__(reason)
        self.hypotheses = hypotheses


@dataclass(eq=False)
class Hypothesis:
    """Say what an answer's parameters may be.

    Parameters
    ----------
    key : tuple of int
        Parameters of the answer.
    n_advantaged : int
        Number of advantaged people among those looked for.
    base_count : int
        Number of them whom the base decisions accept.
    members : ndarray of int of shape (n_people,)
        1 for the advantaged, -1 where not read.
    """

    key: tuple[int, ...]
    n_advantaged: int
    base_count: int = 0
    members: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    anchor: int | None = None


Predict = Callable[[tuple[int, ...], IntArray, int], FloatArray]


def search_counts(
    ask: Callable[[IntArray], float],
    base: IntArray,
    hypotheses: Iterable[Hypothesis],
    predict: Predict,
    *,
    canonical: Callable[[Hypothesis, int], bool] | None = None,
) -> list[Hypothesis]:
    """Find the members of the advantaged group among people whose decisions can be chosen.

    Parameters
    ----------
    ask : callable
        ``ask(decisions) -> float`` for 0/1 decisions of shape (n_people,).
    base : ndarray of int of shape (n_people,)
        Decisions that queries flip.
    hypotheses : iterable of Hypothesis
        What the parameters may be.
    predict : callable
        ``predict(key, counts, n_accepted)``: the answers if so many of the accepted were advantaged.
    canonical : callable, default=None
        ``canonical(hypothesis, n_accepted)``: False for one of two that differ in names only.

    Returns
    -------
    list of Hypothesis
        Those that explain all answers, with their members.

    Raises
    ------
    SearchStopped
        If the oracle stops after the first answer.
    """
    n, total = base.size, int(base.sum())
    answer = ask(base)
    alive = []
    for hypothesis in hypotheses:
        for count in _options(hypothesis, answer, total, n, predict):
            found = Hypothesis(hypothesis.key, hypothesis.n_advantaged, count, np.full(n, -1, dtype=np.int64))
            if canonical is None or canonical(found, total):
                alive.append(found)
    design = DetectingMatrix(n)
    sums: dict[int, list[int]] = {id(hypothesis): [] for hypothesis in alive}
    for row in design.weights:
        decisions = np.where(row > 0, 1 - base, base)
        kept = []
        try:
            counted = _counts(ask, base, decisions, alive, predict)
        except OracleStopped as stop:
            read = len(sums[id(alive[0])]) if alive else 0
            partly = [_partly(h, base, design.weights[:read] > 0, sums[id(h)]) for h in alive]
            raise SearchStopped(str(stop), partly if len(alive) <= _MOST_PARTIAL else []) from stop
        for hypothesis, count in counted:
            sums[id(hypothesis)].append(count - hypothesis.base_count + int(base[row > 0].sum()))
            kept.append(hypothesis)
        alive = kept
    fit = []
    for hypothesis in alive:
        unknowns = design.solve(sums[id(hypothesis)])
        if unknowns is not None:
            hypothesis.members = np.where(base == 1, 1 - unknowns, unknowns)
            if (
                int(hypothesis.members.sum()) == hypothesis.n_advantaged
                and int(hypothesis.members[base == 1].sum()) == hypothesis.base_count
            ):
                fit.append(hypothesis)
    return fit


def _partly(hypothesis: Hypothesis, base: IntArray, flipped: BoolArray, sums: list[int]) -> Hypothesis:
    """Find whom the counts until now fix, as if they were gaps: whatever the metric was."""
    n, n1 = base.size, hypothesis.n_advantaged
    members = np.full(n, -1, dtype=np.int64)
    if 0 < n1 < n:
        decisions = np.vstack([base, np.where(flipped, 1 - base, base)])
        changes = np.array(sums, dtype=np.int64) - (flipped & (base == 1)).sum(axis=1)
        counts = hypothesis.base_count + np.concatenate([[0], changes])
        gaps = gap_scale(n - n1, n1) * (counts - decisions.mean(axis=1) * n1)
        found = decode_exact(decisions.astype(np.float64), gaps, sizes=(n - n1, n1), thorough=False)
        if found.verified:
            members[found.determined] = found.attributes[found.determined]
    return Hypothesis(hypothesis.key, n1, hypothesis.base_count, members)


def _options(hypothesis: Hypothesis, answer: float, total: int, n: int, predict: Predict) -> list[int]:
    """List the counts that an answer allows."""
    low, high = max(0, total - (n - hypothesis.n_advantaged)), min(total, hypothesis.n_advantaged)
    counts = np.arange(low, high + 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.abs(predict(hypothesis.key, counts, total) - answer)
    return [int(count) for count in counts[error <= _TOLERANCE]]


def _counts(
    ask: Callable[[IntArray], float],
    base: IntArray,
    decisions: IntArray,
    alive: list[Hypothesis],
    predict: Predict,
) -> list[tuple[Hypothesis, int]]:
    """Ask for a count; if an answer allows several, flip one person more to tell them apart."""
    n, total = base.size, int(decisions.sum())
    answer = ask(decisions)
    options = [_options(h, answer, total, n, predict) for h in alive]
    if all(len(option) <= 1 for option in options):
        return [(h, option[0]) for h, option in zip(alive, options, strict=True) if option]
    if any(h.anchor is None for h in alive):
        _read_anchor(ask, base, alive, predict)
    step = 1 - 2 * int(decisions[0])
    toggled = decisions.copy()
    toggled[0] = 1 - toggled[0]
    again = ask(toggled)
    found = []
    for hypothesis, option in zip(alive, options, strict=True):
        after = _options(hypothesis, again, total + step, n, predict)
        fitting = [count for count in option if count + step * (hypothesis.anchor or 0) in after]
        if len(fitting) == 1:
            found.append((hypothesis, fitting[0]))
    return found


def _read_anchor(
    ask: Callable[[IntArray], float], base: IntArray, alive: list[Hypothesis], predict: Predict
) -> None:
    """Find the group of the first person, or name it where names are free."""
    toggled = base.copy()
    toggled[0] = 1 - toggled[0]
    step, total = 1 - 2 * int(base[0]), int(toggled.sum())
    answer = ask(toggled)
    for hypothesis in alive:
        after = _options(hypothesis, answer, total, base.size, predict)
        fitting = [member for member in (1, 0) if hypothesis.base_count + step * member in after]
        hypothesis.anchor = fitting[0] if fitting else 0
