r"""What a choice gives away: which model, or pass and fail, instead of a gap.

Public questions and secret groups come in; the number of a model, or one bit, goes out. With
weights w, a public centre c = T/W (total over weight) and :math:`\lambda = \sum_{a=1} w(u - c)`,
the gap is :math:`W\lambda/(W_1 W_0)`. So the least gap is the least :math:`|\lambda|`, and a gap
is within t exactly if :math:`|\lambda| - t W_1 W_0/W \le 0`: sums over the secret without a
division, in whole numbers, decided by coins of probability exp(-gamma) without floating point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .accounting import PrivacyLoss
from .groups import Groups
from .mechanisms import Auto
from .mechanisms.integer_design import IntegerDesign, group_sums
from .metrics import combine_rows
from .noise import Noise
from .queries import FairnessQuery, QueryBatch

__all__ = [
    "Choice",
    "ChoiceMethods",
    "FirstWithin",
    "GapWatch",
    "LeastGap",
    "PrivateChoice",
    "WithinTest",
    "excesses",
    "gap_numerators",
    "permute_and_flip",
]

#: Exponential noise is drawn in steps of this part of a sensitivity.
_GRID = 2**20
#: Share of epsilon for the threshold: 1/(1 + 2^(2/3)) minimises the variance of the difference.
_THRESHOLD_SHARE = Fraction(387, 1000)


@dataclass(frozen=True)
class PrivateChoice:
    """What was chosen, and what it cost. ``int(choice)`` is the model, ``bool(choice)`` says pass.

    Attributes
    ----------
    index : int or None
        Number of the chosen model; None if no model was within the limit, or for a test.
    passed : tuple of bool or None
        Outcome of a test of each model.
    metric, mechanism : str
        What was asked, and how it was chosen.
    epsilon : float
        What the choice cost each individual in it, in nats (pure differential privacy).
    n_models, n_samples : int
        Number of models and of individuals.
    is_private : bool
        False for seeded choices.
    replayed : bool
        Whether the same choice had been made before, so that this one was free.
    """

    index: int | None
    passed: tuple[bool, ...] | None
    metric: str
    mechanism: str
    epsilon: float
    n_models: int
    n_samples: int
    is_private: bool = True
    replayed: bool = False

    def __bool__(self) -> bool:
        return self.index is not None if self.passed is None else all(self.passed)

    def __index__(self) -> int:
        if self.index is None:
            raise ValueError("No model was chosen: none was within the limit.")
        return self.index

    def __int__(self) -> int:
        return self.__index__()


class Choice(Protocol):
    """A private choice: its name, its public terms, and how it is made."""

    @property
    def name(self) -> str:
        """What histories call it."""

    @property
    def epsilon(self) -> Fraction:
        """What the choice costs, in nats."""

    def terms(self) -> tuple[Any, ...]:
        """Return every public parameter that the choice depends on."""

    def release(self, batch: QueryBatch, groups: Groups, noise: Noise) -> dict[str, Any]:
        """Choose, at a cost of epsilon to each individual."""


class ChoiceMethods:
    """Private choices as methods of whatever asks on behalf of a caller."""

    def select_least_biased(self: Any, Y_pred: Any, y_true: Any = None, **settings: Any) -> PrivateChoice:
        """Choose the least biased of several models; see :func:`.select_least_biased`."""
        from .selection import select_least_biased

        return select_least_biased(Y_pred, y_true, auditor=self, **settings)

    def passes_threshold(
        self: Any, y_pred: Any, max_gap: float, y_true: Any = None, **settings: Any
    ) -> PrivateChoice:
        """Say whether a model's gap is within a limit; see :func:`.passes_threshold`."""
        from .selection import passes_threshold

        return passes_threshold(y_pred, max_gap, y_true, auditor=self, **settings)

    def first_within(
        self: Any, Y_pred: Any, max_gap: float, y_true: Any = None, **settings: Any
    ) -> PrivateChoice:
        """Find the first model whose gap is within a limit; see :func:`.first_within`."""
        from .selection import first_within

        return first_within(Y_pred, max_gap, y_true, auditor=self, **settings)


def is_linear(batch: QueryBatch, groups: Groups, ratio: bool) -> bool:
    """Say whether gaps can be told apart by sums over one of two groups (public)."""
    return groups.n_statuses == 2 and groups.n_groups == 2 and not ratio


def gap_numerators(query: FairnessQuery) -> tuple[IntegerDesign, list[int], int, list[int]]:
    r"""Write :math:`W\lambda` of every row in whole numbers, and bound what one individual moves.

    Parameters
    ----------
    query : FairnessQuery
        Public values, one row a model.

    Returns
    -------
    design : IntegerDesign
        Values v and weights w as whole numbers.
    totals : list of int
        Sum of v of each row, T.
    weight : int
        Sum of w, W.
    sensitivities : list of int
        Bound of max_j |W v_j - T w_j| of each row, exact for unweighted questions.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.choices import gap_numerators
    >>> from sklearn_fairleak.queries import FairnessQuery
    >>> gap_numerators(FairnessQuery(np.array([[1.0, 0.0, 0.0, 0.0]])))[1:]
    ([1], 4, [3])
    """
    design = IntegerDesign.from_query(query)
    weight = design.total_weight()
    totals = [int(total) for total in design.values.sum(axis=1)]
    if design.weights is None:
        highest, lowest = design.values.max(axis=1), design.values.min(axis=1)
        bounds = [
            max(abs(weight * int(high) - total * design.grid), abs(weight * int(low) - total * design.grid))
            for high, low, total in zip(highest, lowest, totals, strict=True)
        ]
        return design, totals, weight, bounds
    bounds = []
    for row, total in zip(design.values, totals, strict=True):
        moved = float(np.abs(weight * row - total * design.weights).max())
        # Two products and a difference of floats err by less than this.
        slack = 2.0**-50 * (weight * float(row.max()) + total * float(design.weights.max()))
        bounds.append(math.ceil(moved + slack) + 1)
    return design, totals, weight, bounds


def excesses(batch: QueryBatch, groups: Groups, max_gap: Fraction) -> list[Fraction]:
    r"""Return by how much each model's gap exceeds a limit, in units of what one individual moves.

    Not above 0 exactly if the gap is at most ``max_gap``; one individual moves each entry by at
    most 1. The bound of :math:`|\lambda| - tW_1W_0/W` is
    :math:`\max_j |w_j(u_j - c)| + t\max_j w_j(W - w_j)/W`, for each part of the metric.

    Parameters
    ----------
    batch : QueryBatch
        The public question.
    groups : Groups
        The two secret groups of the evaluation set.
    max_gap : Fraction
        Largest allowed gap of values in [0, 1].

    Returns
    -------
    list of Fraction, one a model
    """
    upper, lower = max_gap.numerator, max_gap.denominator
    rows: list[Fraction] = []
    for query in batch.queries:
        design, totals, weight, bounds = gap_numerators(query)
        members = query.restrict(groups.codes) == 1
        weights = design.weight_row()
        inside = int(group_sums(weights, members))
        sums = group_sums(design.values, members).tolist()
        heaviest = int(weights.max())
        # w(W - w) grows up to w = W/2.
        spread = heaviest * (weight - heaviest) if 2 * heaviest <= weight else -(-weight * weight // 4)
        for moved, total, bound in zip(sums, totals, bounds, strict=True):
            excess = lower * abs(weight * moved - total * inside) - upper * inside * (weight - inside)
            # A constant row and a limit of 0 leave nothing that anybody could move.
            rows.append(Fraction(excess, max(1, lower * bound + upper * spread)))
    return [max(rows[k] for k in parts) for parts in batch.rows.tolist()]


@dataclass(frozen=True)
class LeastGap:
    r"""Choose the model of least absolute gap by report-noisy-max with exponential noise.

    Each model's score :math:`-|\lambda_i| - p_i` gets exponential noise, and the largest sum wins.
    Where all models have the same sensitivity this is the permute-and-flip mechanism.

    Parameters
    ----------
    epsilon : Fraction
        Privacy parameter of the choice.
    penalties : tuple of float, default=None
        Public penalties of the models, in units of the gap.
    minority_share : float, default=0.1
        Public guess of the smaller group's share, by which penalties are compared with gaps.
    ratio : bool, default=False
        Choose by the ratio of group means instead of their gap.

    References
    ----------
    McKenna & Sheldon, "Permute-and-Flip: A New Mechanism for Differentially Private
    Selection", NeurIPS 2020, arXiv 2010.12603. Ding, Kifer, Steinke, Wang, Xiao & Zhang, "The
    Permute-and-Flip Mechanism is Identical to Report-Noisy-Max with Exponential Noise", 2021,
    arXiv 2105.07260.
    """

    epsilon: Fraction
    penalties: tuple[float, ...] | None = None
    minority_share: float = 0.1
    ratio: bool = False
    name: str = "permute_and_flip"

    def terms(self) -> tuple[Any, ...]:
        """Return every public parameter that the choice depends on."""
        return self.name, self.epsilon, self.penalties, self.minority_share, self.ratio

    def release(self, batch: QueryBatch, groups: Groups, noise: Noise) -> dict[str, Any]:
        """Choose, at a cost of epsilon to each individual."""
        if len(batch.queries) > 1 or not is_linear(batch, groups, self.ratio):
            answered = _released_badness(self.epsilon, batch, groups, noise, self.ratio)
            if self.penalties is not None:
                answered = answered + np.asarray(self.penalties) / batch.scale
            return {"index": int(answered.argmin())}
        query = batch.queries[0]
        design, totals, weight, bounds = gap_numerators(query)
        members = query.restrict(groups.codes) == 1
        inside = int(group_sums(design.weight_row(), members))
        sums = group_sums(design.values, members).tolist()
        badness = [abs(weight * moved - total * inside) for moved, total in zip(sums, totals, strict=True)]
        if self.penalties is not None:
            share = Fraction(self.minority_share)
            unit = weight * weight * share * (1 - share) / Fraction(batch.scale)
            badness = [
                bad + round(unit * Fraction(penalty))
                for bad, penalty in zip(badness, self.penalties, strict=True)
            ]
        return {"index": permute_and_flip(badness, bounds, self.epsilon, noise)}


def permute_and_flip(
    badness: Sequence[int], sensitivities: Sequence[int], epsilon: Fraction, noise: Noise
) -> int:
    r"""Choose among integer scores, the lowest most probably.

    Parameters
    ----------
    badness : sequence of int
        Secret scores.
    sensitivities : sequence of int
        How far one individual moves each score at most; public.
    epsilon : Fraction
        Privacy parameter of the choice, in nats.
    noise : Noise
        Where randomness comes from.

    Returns
    -------
    int

    Notes
    -----
    Given the noise of all others, model i wins if its noise exceeds some limit. One individual
    moves that limit by at most :math:`s_i = \Delta_i + \max_{k\ne i}\Delta_k`, and exponential
    noise of scale :math:`s_i/\epsilon` exceeds a limit moved by :math:`s_i` with
    :math:`e^{-\epsilon}` times the probability at least. The noise is a whole number of steps of
    :math:`s_i 2^{-20}`, so this holds exactly.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from sklearn_fairleak.choices import permute_and_flip
    >>> from sklearn_fairleak.noise import SecureNoise
    >>> permute_and_flip([5000, 0, 7000], [1, 1, 1], Fraction(1), SecureNoise())
    1
    """
    ranked = sorted(sensitivities, reverse=True)
    largest, second = ranked[0], ranked[min(1, len(ranked) - 1)]
    widest = sensitivities.index(largest)
    steps = noise.discrete_exponential(_GRID / epsilon, len(badness)).tolist()
    noisy = [
        bad * _GRID - (own + (second if k == widest else largest)) * step
        for k, (bad, own, step) in enumerate(zip(badness, sensitivities, steps, strict=True))
    ]
    return noisy.index(min(noisy))


@dataclass(frozen=True)
class WithinTest:
    r"""Say whether a model's gap is at most ``max_gap``: one bit from one draw.

    The truth is reported unless a coin of probability :math:`e^{-\epsilon|x|}/2` turns it, where
    x is the excess over the limit in units of what one individual moves: the sign of x with
    Laplace noise, without drawing the noise.

    Parameters
    ----------
    epsilon : Fraction
        Privacy parameter of the test.
    max_gap : Fraction
        Limit of the absolute gap, or the least ratio.
    ratio : bool, default=False
        Test the ratio of group means instead of their gap.
    """

    epsilon: Fraction
    max_gap: Fraction
    ratio: bool = False
    name: str = "threshold_test"

    def terms(self) -> tuple[Any, ...]:
        """Return every public parameter that the test depends on."""
        return self.name, self.epsilon, self.max_gap, self.ratio

    def release(self, batch: QueryBatch, groups: Groups, noise: Noise) -> dict[str, Any]:
        """Test every model of the batch, at a joint cost of epsilon to each individual."""
        limit = self.max_gap / Fraction(batch.scale)
        if not is_linear(batch, groups, self.ratio):
            badness = _released_badness(self.epsilon, batch, groups, noise, self.ratio)
            bar = -float(self.max_gap) if self.ratio else float(limit)
            return {"passed": (badness <= bar).tolist()}
        found = excesses(batch, groups, limit)
        share = self.epsilon / len(found)
        passed = []
        for excess in found:
            turned, fair = noise.bernoulli_exp(share * abs(excess)), bool(noise.words(1)[0] >> np.uint64(63))
            passed.append((excess <= 0) != (turned and fair))
        return {"passed": passed}


class GapWatch:
    r"""Test models one at a time until the first passes; only that one costs anything.

    The sparse vector technique with one-sided noise: the limit moves once by an exponential
    variable of scale :math:`1/\epsilon_1`, and a model at excess x passes with probability
    :math:`e^{-(\epsilon_2/2)\max(z, 0)}`, z being x plus the moved limit. Both are centred at
    their medians.

    Parameters
    ----------
    epsilon : Fraction
        Privacy parameter of all tests together.
    noise : Noise
        Where randomness comes from.

    Notes
    -----
    One individual moves every x by at most 1. Answers "fail, …, fail, pass at k" with limit noise r
    are at least as probable on the neighbour with r + 1, up to :math:`e^{\epsilon_1}` for the limit
    and :math:`e^{\epsilon_2}` for the test that passed, which moved by 2 at most. Only moves to
    the right are needed, so noise on one side is enough; it has half the variance of Laplace noise.

    References
    ----------
    Dwork & Roth, "The Algorithmic Foundations of Differential Privacy", 2014, Algorithm 1.
    Lyu, Su & Li, "Understanding the Sparse Vector Technique for Differential Privacy", VLDB 2017.
    """

    def __init__(self, epsilon: Fraction, noise: Noise) -> None:
        threshold = epsilon * _THRESHOLD_SHARE
        self._rate = (epsilon - threshold) / 2
        self._noise = noise
        drawn = Fraction(int(noise.discrete_exponential(_GRID / threshold, 1)[0]), _GRID)
        centre = Fraction(math.log(2.0)) * (1 / self._rate - 1 / threshold)
        self._limit = drawn + centre
        self._over = False

    @property
    def is_over(self) -> bool:
        """Whether a model has passed."""
        return self._over

    def passes(self, excess: Fraction) -> bool:
        """Test one model, given its excess over the limit; refuse after the first pass."""
        if self._over:
            raise RuntimeError("A model has passed; further tests need a new watch and a new epsilon.")
        self._over = self._noise.bernoulli_exp(self._rate * max(Fraction(0), excess + self._limit))
        return self._over


@dataclass(frozen=True)
class FirstWithin:
    """Find the first model whose gap is at most ``max_gap``, at the cost of one test.

    Parameters
    ----------
    epsilon : Fraction
        Privacy parameter of all tests together.
    max_gap : Fraction
        Limit of the absolute gap, or the least ratio.
    ratio : bool, default=False
        Test the ratio of group means instead of their gap.
    """

    epsilon: Fraction
    max_gap: Fraction
    ratio: bool = False
    name: str = "sparse_vector"

    def terms(self) -> tuple[Any, ...]:
        """Return every public parameter that the answer depends on."""
        return self.name, self.epsilon, self.max_gap, self.ratio

    def release(self, batch: QueryBatch, groups: Groups, noise: Noise) -> dict[str, Any]:
        """Test the models in order, at a joint cost of epsilon to each individual."""
        limit = self.max_gap / Fraction(batch.scale)
        if not is_linear(batch, groups, self.ratio):
            badness = _released_badness(self.epsilon, batch, groups, noise, self.ratio)
            bar = -float(self.max_gap) if self.ratio else float(limit)
            within = np.flatnonzero(badness <= bar)
            return {"index": int(within[0]) if within.size else None}
        watch = GapWatch(self.epsilon, noise)
        for k, excess in enumerate(excesses(batch, groups, limit)):
            if watch.passes(excess):
                return {"index": k}
        return {"index": None}


def _released_badness(
    epsilon: Fraction, batch: QueryBatch, groups: Groups, noise: Noise, ratio: bool
) -> npt.NDArray[np.float64]:
    """Answer all models in one joint release, where no sum over one group tells their order."""
    mechanism = Auto().choose_for(batch, groups.n_statuses, epsilon, Fraction(0))
    released = mechanism.release(batch, groups, PrivacyLoss.pure(epsilon), noise)
    values = combine_rows(released.means(), batch.rows, ratio=ratio)
    return -values if ratio else values
