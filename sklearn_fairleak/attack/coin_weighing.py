"""Recover everyone from 0/1 decisions: which coins are false, by as few weighings as can be.

Once the group sizes are known, the gap of a model with hard labels tells how many of the accepted
are advantaged. Flipping the decisions of subsets taken from a detecting matrix tells everyone in
about ``2 n / log2(n)`` queries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .detecting_matrix import DetectingMatrix
from .group_sums import GroupSum, finish, learned_nothing, possible_sums, read_sum, reason_of
from .reconstruction import Reconstruction
from .transcript import OracleStopped, Transcript

__all__ = ["run"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Largest error of an exact answer: two means, a difference, and sums in any order.
_EXACT = 32.0 * 2.0**-53


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
    """Recover everyone from exact answers about hard labels.

    Parameters
    ----------
    oracle : callable
        ``oracle(y_pred) -> float``; gets predictions of 0.0 and 1.0 only.
    base : array-like of shape (n_individuals,)
        Predictions of a realistic model; decisions at 1/2 are what queries differ from.
    y : array-like of shape (n_individuals,), default=None
        True labels in {0, 1}; needed where accuracy is limited.
    signed : bool or None, default=True
        Whether answers are signed. None is taken as unsigned unless the base's answer is negative.
    decimals : int, default=None
        Decimals of rounded answers. Single people must show: ``1/N0 + 1/N1`` above the rounding.
    stealth : bool, default=False
        Cannot be had with hard labels.
    max_shift : float, default=None
        Must be 1 or None: a decision moves by 1.
    max_accuracy_loss : float, default=None
        Largest loss of accuracy of a submitted model. People whom the base model gets wrong are read
        first, at no loss; then flips of others are made up for by flips of those.
    group_sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Found from the answers where not given.
    random_state : object, default=None
        Not used: the attack is deterministic.
    progress : callable, default=None
        Called with (people read, people in all).

    Returns
    -------
    Reconstruction

    Raises
    ------
    ValueError
        If the limits on shift or accuracy allow no label to change, or labels are missing.
    OracleStopped
        If the oracle does not answer the first query.

    References
    ----------
    B. Lindström (1965) and D. G. Cantor & W. H. Mills (1966), see `DetectingMatrix`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack import coin_weighing
    >>> rng = np.random.default_rng(0)
    >>> race, base = rng.random(100) < 0.9, rng.random(100)
    >>> found = coin_weighing.run(lambda h: h[race].mean() - h[~race].mean(), base)
    >>> found, bool(np.array_equal(found.attributes, race))
    (Reconstruction(100 of 100 individuals determined by 40 answers, verified), True)
    """
    scores = np.asarray(base, dtype=np.float64)
    if scores.ndim != 1 or scores.size < 2 or not np.all((scores >= 0.0) & (scores <= 1.0)):
        raise ValueError(
            "base must be one column of at least 2 predictions in [0, 1], without NaN; got an array of "
            f"shape {scores.shape}."
        )
    if stealth or (max_shift is not None and max_shift < 1.0):
        raise ValueError("Hard labels move by 1: stealth and max_shift < 1 cannot be honoured.")
    if max_accuracy_loss is not None and y is None:
        raise ValueError("max_accuracy_loss needs the true labels y.")
    truth = None if y is None else (np.asarray(y, dtype=np.float64) > 0.5).astype(np.int64)
    labels = (scores >= 0.5).astype(np.int64)
    asked = Transcript(oracle, labels.astype(np.float64), None if truth is None else truth.astype(np.float64))
    tolerance = _EXACT if decimals is None else _EXACT + 0.5 * 10.0**-decimals
    # Whoever resolves signs is flipped back and forth, which costs least for a mistake.
    anchor = 0 if truth is None or not (labels != truth).any() else int(np.flatnonzero(labels != truth)[-1])
    scales = _Scales(asked, labels, signed, group_sizes, tolerance, anchor)
    scales.weigh_base()
    try:
        for block, design, flips in _plan(labels, truth, max_accuracy_loss, unsigned=scales.unsigned):
            if not scales.weigh(block, design, flips):
                break
            if progress is not None:
                progress(int((scales.alive[0].attributes >= 0).sum()), labels.size)
    except OracleStopped as stop:
        return scales.report(f"{reason_of(stop)}; who was read until then is kept")
    return scales.report()


def _plan(
    labels: IntArray, truth: IntArray | None, max_accuracy_loss: float | None, *, unsigned: bool
) -> list[tuple[IntArray, DetectingMatrix, IntArray]]:
    """Deal people into blocks, each with a design and those whose flips make up for lost accuracy."""
    nobody = np.array([], dtype=np.int64)
    if max_accuracy_loss is None or truth is None:
        return [(np.arange(labels.size), DetectingMatrix(labels.size), nobody)]
    wrong, right = np.flatnonzero(labels != truth), np.flatnonzero(labels == truth)
    spare = int(max_accuracy_loss * labels.size + 1e-9)
    makeup = wrong[: wrong.size - 1] if unsigned and wrong.size else wrong
    allowed = spare + makeup.size - (1 if unsigned and not wrong.size else 0)
    if right.size and allowed < 1:
        raise ValueError(
            f"max_accuracy_loss={max_accuracy_loss!r} allows no label to change: the base model makes no "
            "mistake that could be undone in exchange."
        )
    blocks = [(wrong, DetectingMatrix(wrong.size), nobody)] if wrong.size else []
    while right.size:
        design = _largest_design(right.size, allowed)
        blocks.append((right[: design.n], design, makeup))
        right = right[design.n :]
    return blocks


def _largest_design(n: int, most: int) -> DetectingMatrix:
    """Return the design for the most people of which no row weighs more than allowed."""
    low, high = 1, n
    while low < high:
        middle = (low + high + 1) // 2
        heaviest = DetectingMatrix(middle).weights.sum(axis=1, dtype=np.int64).max()
        low, high = (middle, high) if heaviest <= most else (low, middle - 1)
    return DetectingMatrix(low)


class _Explanation:
    """Hold group sizes that explain the answers so far, and whom they let us read."""

    def __init__(self, found: GroupSum, n: int) -> None:
        self.n1, self.n0, self.base_count = found.n_advantaged, n - found.n_advantaged, found.total
        self.attributes = np.full(n, -1, dtype=np.int64)
        self.anchor: int | None = None


class _Scales:
    """Ask for counts of advantaged people, for every group size that is still possible."""

    def __init__(
        self,
        asked: Transcript,
        labels: IntArray,
        signed: bool | None,
        group_sizes: tuple[int, int] | None,
        tolerance: float,
        anchor: int,
    ) -> None:
        self._asked, self._labels, self._anchor = asked, labels, anchor
        self._signed, self._group_sizes, self._tolerance = signed, group_sizes, tolerance
        self.unsigned = not signed
        self.alive: list[_Explanation] = []

    def weigh_base(self) -> None:
        """Ask about the base model: which group sizes explain its answer?"""
        n = self._labels.size
        first = self._asked(self._labels.astype(np.float64))
        self.unsigned = not self._signed and first >= 0.0
        possible = possible_sums(
            first,
            int(self._labels.sum()),
            0,
            n,
            tolerance=self._tolerance,
            signs=(1, -1) if self.unsigned else (1,),
            group_sizes=self._group_sizes,
        )
        unique = {(found.n_advantaged, found.total): found for found in possible}
        self.alive = [_Explanation(found, n) for found in unique.values()]

    def weigh(self, block: IntArray, design: DetectingMatrix, makeup: IntArray) -> bool:
        """Read a block; False if nothing explains the answers."""
        sums: dict[int, list[int]] = {id(e): [] for e in self.alive}
        for row in design.weights:
            chosen = block[row > 0]
            # As many mistakes are undone as decisions are spoiled.
            flipped = np.concatenate([chosen, makeup[: chosen.size]])
            counts = self._counts(flipped)
            kept = []
            for explanation, count in zip(self.alive, counts, strict=True):
                if count is not None:
                    known = makeup[: chosen.size]
                    gain = count - explanation.base_count
                    gain -= int(((1 - 2 * self._labels[known]) * explanation.attributes[known]).sum())
                    sums[id(explanation)].append(gain + int(self._labels[chosen].sum()))
                    kept.append(explanation)
            self.alive = kept
            if not kept:
                return False
        kept = []
        for explanation in self.alive:
            unknowns = design.solve(sums[id(explanation)])
            if unknowns is not None:
                own = self._labels[block]
                explanation.attributes[block] = np.where(own == 1, 1 - unknowns, unknowns)
                kept.append(explanation)
        self.alive = kept
        return bool(kept)

    def _counts(self, flipped: IntArray) -> list[int | None]:
        """Return how many accepted people are advantaged, for every explanation."""
        options = self._options(flipped)
        if all(len(option) <= 1 for option in options):
            return [option[0] if option else None for option in options]
        # An absolute answer fits a positive and a negative gap: one flip more tells which.
        anchor = self._anchor
        self._read_anchor()
        toggled = np.setxor1d(flipped, [anchor])
        accepted = self._labels[anchor] if anchor in flipped else 1 - self._labels[anchor]
        again = self._options(toggled)
        counts: list[int | None] = []
        for explanation, option, after in zip(self.alive, options, again, strict=True):
            step = (explanation.anchor or 0) * (1 if accepted else -1)
            fitting = [count for count in option if count + step in after]
            counts.append(fitting[0] if len(fitting) == 1 else None)
        return counts

    def _read_anchor(self) -> None:
        """Find the group of the person whose flips resolve signs, or name it where names are free."""
        anchor = self._anchor
        if all(e.anchor is not None for e in self.alive):
            return
        options = self._options(np.array([anchor]))
        up = self._labels[anchor] == 0
        for explanation, option in zip(self.alive, options, strict=True):
            fitting = [a for a in (1, 0) if explanation.base_count + (a if up else -a) in option]
            explanation.anchor = fitting[0] if fitting else 0

    def _options(self, flipped: IntArray) -> list[list[int]]:
        """Submit the base model with flipped decisions; list the counts that its answer allows."""
        labels = self._labels.copy()
        labels[flipped] = 1 - labels[flipped]
        answer, total = self._asked(labels.astype(np.float64)), int(labels.sum())
        options = []
        for e in self.alive:
            counts: list[int] = []
            unit = e.n1 * e.n0 / labels.size
            for sign in (1, -1) if self.unsigned else (1,):
                count, residual = read_sum(sign * answer, total, 0, labels.size, e.n1)
                possible = max(0, total - e.n0) <= count <= min(total, e.n1)
                if possible and residual <= min(0.49, self._tolerance * unit) and count not in counts:
                    counts.append(count)
            options.append(counts)
        return options

    def report(self, *messages: str) -> Reconstruction:
        """Keep explanations that add up, and say who is determined."""
        n = self._labels.size
        done = [e for e in self.alive if e.attributes.min() >= 0]
        fit = [
            e
            for e in done
            if int(e.attributes.sum()) == e.n1 and int(e.attributes[self._labels == 1].sum()) == e.base_count
        ]
        if done and not fit and not messages:
            messages = ("the answers contradict each other",)
        alive = fit or self.alive
        if not alive:
            return learned_nothing(
                self._asked,
                n,
                *messages,
                "no group sizes explain the answers: they contradict each other, or are not exact",
            )
        readings = np.array([e.attributes for e in alive])
        agreed = (readings[0] >= 0) & (readings == readings[0]).all(axis=0)
        if not agreed.all():
            messages = (*messages, f"{int((~agreed).sum())} of {n} individuals were not read")
        sizes = {(e.n0, e.n1) for e in alive}
        named = not self.unsigned or (
            self._group_sizes is not None and self._group_sizes[0] != self._group_sizes[1]
        )
        contradictory = any("contradict" in message for message in messages)
        return finish(
            self._asked,
            np.where(agreed, readings[0], 0.5).astype(np.float64),
            agreed & (not contradictory),
            group_sizes=sizes.pop() if len(sizes) == 1 else None,
            verified=len(fit) == 1,
            orientation_known=named,
            messages=messages,
        )
