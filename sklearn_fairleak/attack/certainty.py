"""Is a reconstruction that explains all answers the only one?

Answers may fit by accident, or leave individuals open: those with equal predictions in every query
can change places, small circles of rarely moved individuals can, and too few answers fit many
assignments. What is said to be determined must survive all three questions.
"""

from __future__ import annotations

from dataclasses import replace
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from .decoders import gap_scale, rounding_tolerance
from .enumeration import consistent_attributes, enumerable
from .reconstruction import Reconstruction

__all__ = ["confirm", "judge_certainty", "movable", "twins"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

#: Bits by which the answers must exceed the uncertainty before a verified vector counts as the only one.
_MARGIN_BITS = 30.0
#: Rows of at most so many distinct values can cancel by chance.
_FEW_LEVELS = 40
#: Expected number of circles of individuals who could change places, below which there are none.
_RARE = 1e-6
#: Numbers of the linear program that looks for individuals who could.
_PROGRAM = 400_000


def judge_certainty(
    H: FloatArray,
    advantaged: BoolArray,
    relaxed: FloatArray,
    tolerance: float,
    prior: FloatArray | None = None,
) -> tuple[FloatArray, BoolArray, tuple[str, ...]]:
    """Say who is determined by an assignment that explains all answers.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    advantaged : ndarray of bool of shape (n_individuals,)
        The assignment.
    relaxed : ndarray of shape (n_individuals,)
        The estimate that it was rounded from, kept as scores where answers are too few.
    tolerance : float
        Largest error of an answer.
    prior : ndarray of shape (n_individuals,), default=None
        Prior probability of being advantaged.

    Returns
    -------
    scores : ndarray of shape (n_individuals,)
    certain : ndarray of bool of shape (n_individuals,)
    messages : tuple of str
    """
    n = advantaged.size
    scores = advantaged.astype(np.float64)
    certain = np.ones(n, dtype=bool)
    messages: list[str] = []
    classes = twins(H)
    counts = np.bincount(classes)
    share = np.bincount(classes, weights=scores) / counts
    mixed = (share[classes] > 0.0) & (share[classes] < 1.0)
    if mixed.any():
        scores[mixed] = share[classes][mixed]
        if prior is not None:
            scores[mixed] = _share_by_prior(classes, mixed, share, prior)
        certain &= ~mixed
        messages.append(
            f"{int(mixed.sum())} individuals have the same predictions as others in every query and cannot "
            "be told apart from them; their score is the share of the advantaged among them"
        )
    p = float(advantaged.mean())
    centre = np.median(H, axis=0)
    moves = H - centre
    bits = _row_bits(np.vstack([centre, moves]), tolerance, p)
    if _surplus(moves, bits, p) < _MARGIN_BITS:
        messages.append("the answers are too few to exclude other assignments")
        return np.clip(relaxed, 0.0, 1.0), np.zeros(n, dtype=bool), tuple(messages)
    loose = _loose(moves, bits[0], p)
    if _few_levels(moves) and _expected_circles(moves, p) > _RARE:
        loose |= _changeable(H, advantaged, tolerance)
    if (loose & certain).any():
        certain &= ~loose
        messages.append(
            f"{int(loose.sum())} individuals differ too little between queries to exclude that some of them "
            "change places"
        )
    return scores, certain, tuple(messages)


def confirm(found: Reconstruction, H: FloatArray, prior: FloatArray | None = None) -> Reconstruction:
    """Return a verified reconstruction with only those determined who could not change places.

    Parameters
    ----------
    found : Reconstruction
        Verified against the answers to `H`.
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    prior : ndarray of shape (n_individuals,), default=None
        Prior probability of being advantaged.

    Returns
    -------
    Reconstruction
    """
    advantaged = found.scores > found.threshold
    tolerance = rounding_tolerance(H)
    scores, certain, messages = judge_certainty(H, advantaged, found.scores, tolerance, prior)
    return replace(found, scores=scores, determined=found.determined & certain).with_message(*messages)


def _share_by_prior(classes: IntArray, mixed: BoolArray, share: FloatArray, prior: FloatArray) -> FloatArray:
    """Spread the known count of a class of twins by the prior odds of its members."""
    from scipy.optimize import brentq
    from scipy.special import expit, logit

    out = np.empty(classes.size)
    odds = logit(np.clip(prior, 1e-9, 1.0 - 1e-9))
    for label in np.unique(classes[mixed]):
        members = classes == label
        target = share[label]
        shift = brentq(lambda t, o=odds[members], s=target: expit(o + t).mean() - s, -60.0, 60.0)
        out[members] = expit(odds[members] + shift)
    return out[mixed]


def twins(H: FloatArray) -> IntArray:
    """Label individuals so that those with equal predictions in every query share a label."""
    columns = np.ascontiguousarray(H.T + 0.0)
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(column.tobytes(), len(seen)) for column in columns], dtype=np.int64)


def _surplus(moves: FloatArray, bits: FloatArray, p: float) -> float:
    """Bits of the answers beyond those needed to name one assignment out of all of that size.

    Rows are differences from their median, which is a row of its own: models close to each other tell only
    how they differ. Dependent rows tell nothing twice.
    """
    from scipy.special import gammaln

    m, n = moves.shape
    ones = round(p * n)
    assignments = gammaln(n + 1) - gammaln(ones + 1) - gammaln(n - ones + 1)
    need = assignments / np.log(2) + np.log2(n)
    if bits.sum() - need < _MARGIN_BITS:
        return float(bits.sum() - need)
    told = np.sort(bits[1:])[::-1]
    enough = int(np.searchsorted(np.cumsum(told), need + _MARGIN_BITS)) + 1
    best = np.argsort(-bits[1:], kind="stable")[: 2 * enough + 10]
    # The rank of a few of the best rows mostly settles it; that of all is expensive.
    for index in (best, np.arange(m)):
        rows = moves[index]
        rank = int(np.linalg.matrix_rank(rows - rows.mean(axis=1, keepdims=True)))
        surplus = float(np.sort(bits[1:][index])[::-1][:rank].sum() - need)
        if surplus >= _MARGIN_BITS:
            return surplus
    return surplus + float(bits[0])


def _row_bits(rows: FloatArray, tolerance: float, p: float) -> FloatArray:
    """Entropy of the answer to each row, for a random group of share `p`."""
    n = rows.shape[1]
    spread = rows.std(axis=1) / np.sqrt(n * p * (1.0 - p))
    width = 2.0 * np.pi * np.e
    bits = 0.5 * np.log2(width * np.square(spread / (2.0 * tolerance)) + 1.0)
    for i, row in enumerate(rows):
        sizes = np.sort(np.unique(row, return_counts=True)[1])[:-1]
        if sizes.size <= _FEW_LEVELS:
            variance = sizes * p * (1.0 - p) * (1.0 - sizes / n)
            entropy = 0.5 * np.log2(width * (variance + 1.0 / 12.0))
            bits[i] = min(bits[i], float(np.maximum(entropy, 0.0).sum()))
    return np.asarray(bits)


def _loose(moves: FloatArray, bits: float, p: float) -> BoolArray:
    """Mark individuals whom no model moves, if one answer about the base model cannot tell them apart."""
    still = ~moves.any(axis=0)
    need = -still.sum() * (p * np.log2(p) + (1.0 - p) * np.log2(1.0 - p))
    return np.asarray(still & (need > bits - _MARGIN_BITS), dtype=bool)


def _few_levels(moves: FloatArray) -> bool:
    """Whether sums of moves can cancel by chance, as those of hard labels do."""
    return all(np.unique(row).size <= _FEW_LEVELS for row in moves)


def _expected_circles(moves: FloatArray, p: float) -> float:
    """Expected number of small sets of individuals who could change places without any answer showing it.

    In a circle of k individuals, each moved by a model with probability q up or down, all m sums must cancel.
    The least moved individuals have the most to do with it, so q is theirs.
    """
    m, n = moves.shape
    active = np.sort(np.count_nonzero(moves, axis=0) / m)
    total = 0.0
    for k in range(2, min(n, 16) + 1):
        q = min(0.5, float(active[:k].mean()))
        cancel = sum(
            comb(k, 2 * i) * q ** (2 * i) * (1.0 - q) ** (k - 2 * i) * comb(2 * i, i) / 4.0**i
            for i in range(k // 2 + 1)
        )
        fit = sum(comb(k, i) * p**i * (1.0 - p) ** (k - i) for i in range(1, k))
        total += comb(n, k) * fit * 2.0**k * cancel**m
    return total


def _changeable(H: FloatArray, advantaged: BoolArray, tolerance: float) -> BoolArray:
    """Mark individuals who could be in the other group, as far as a look at all of them can tell."""
    n = advantaged.size
    open_ = movable(H, advantaged) if H.size <= _PROGRAM else np.ones(n, dtype=bool)
    count = int(open_.sum())
    if count == 0 or not enumerable(count, sizes_known=True):
        return open_
    # Everybody else is fixed: list the assignments of the few that are not.
    sizes = (int((~advantaged).sum()), int(advantaged.sum()))
    fits = consistent_attributes(
        H[:, open_],
        H[:, open_] @ advantaged[open_].astype(np.float64),
        tolerance / float(gap_scale(*sizes)) + 1e-9,
        sizes=(count - int(advantaged[open_].sum()), int(advantaged[open_].sum())),
        sums=True,
    )
    if fits is not None:
        open_[open_] = np.any(fits != advantaged[open_], axis=0)
    return open_


def movable(H: FloatArray, advantaged: BoolArray) -> BoolArray:
    """Mark individuals whose membership can move within [0, 1] while all answers and the sizes stay.

    Directions of movement form a cone, so one linear program finds all of them at once: those that can
    move can all move by a full unit together, once the direction is scaled.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    advantaged : ndarray of bool of shape (n_individuals,)
        An assignment that explains the answers.

    Returns
    -------
    ndarray of bool of shape (n_individuals,)
        Nobody else can be in the other group.
    """
    from scipy.optimize import linprog

    n = advantaged.size
    towards = np.where(advantaged, -1.0, 1.0)
    rows = np.vstack([H, np.ones((1, n))]) * towards
    program: dict[str, Any] = {
        "A_eq": np.hstack([rows, rows]),
        "b_eq": np.zeros(rows.shape[0]),
        "bounds": [(0.0, 1.0)] * n + [(0.0, None)] * n,
        "method": "highs",
    }
    result = linprog(np.concatenate([-np.ones(n), np.zeros(n)]), **program)
    if result.x is None:
        return np.ones(n, dtype=bool)
    return np.asarray(result.x[:n] > 1e-6)
