"""What an audit will cost and how far off its answers will be, before anything is asked.

Public guesses come in; every mechanism answers a stand-in audit that follows them, and its
mean error goes out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, log
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from sklearn.utils._param_validation import Interval, validate_params

from .groups import Groups
from .mechanisms import MECHANISMS, Auto, Mechanism, NoisySums
from .mechanisms.base import minority_size
from .mechanisms.sum_designs import TYPICAL_GAP
from .noise import SeededNoise
from .queries import QueryBatch, make_queries

__all__ = ["plan", "ways_to_reach"]

FloatArray = npt.NDArray[np.float64]

#: Stand-in audits of more individuals are not drawn: errors are scaled from this size.
_LARGEST_STAND_IN = 50_000
#: Releases of a mechanism whose errors are averaged: at most, at least, and elements of all.
_MOST_RELEASES, _FEWEST_RELEASES, _ELEMENTS = 1000, 32, 10**7
#: Relative standard error at which the mean is known well enough, for a table and while searching.
_PRECISION, _SEARCH_PRECISION = 0.05, 0.08
#: Different stand-ins that the releases are about.
_STAND_INS = 4
_LARGEST_EPSILON, _LARGEST_N = 100.0, 10**8

_GUESSES: dict[str, list[Any]] = {
    "n_samples": [Interval(Integral, 2, None, closed="left")],
    "n_queries": [Interval(Integral, 1, None, closed="left")],
    "n_models": [Interval(Integral, 1, None, closed="left")],
    "epsilon": [Interval(Real, 0, None, closed="neither")],
    "delta": [Interval(Real, 0, 1, closed="left")],
    "minority_share": [Interval(Real, 0, 0.5, closed="right")],
    "positive_rate": [Interval(Real, 0, 1, closed="neither")],
    "disagreement": [Interval(Real, 0, 1, closed="both")],
}


@validate_params(_GUESSES, prefer_skip_nested_validation=True)
def plan(
    n_samples: int,
    *,
    n_queries: int = 1,
    n_models: int = 1,
    epsilon: float = 1.0,
    delta: float = 0.0,
    minority_share: float = 0.1,
    positive_rate: float = 0.25,
    disagreement: float = 0.05,
) -> Any:
    """Compare the mechanisms' expected errors from public guesses, free of charge.

    Parameters
    ----------
    n_samples : int
        Size of the evaluation set (a test fold, in a cross-validation).
    n_queries : int, default=1
        Separate answers that include one individual and share the budget.
    n_models : int, default=1
        Models asked about in each joint release (``answer_many``).
    epsilon, delta : float, default=1.0 and 0.0
        The whole guarantee to each individual.
    minority_share : float, default=0.1
        Guessed share of the smaller group, in (0, 0.5].
    positive_rate : float, default=0.25
        Share of positive predictions.
    disagreement : float, default=0.05
        Share of individuals on whom a model of a joint release differs from the others'
        common answer.

    Returns
    -------
    DataFrame
        Indexed by mechanism, best first: ``expected_error``, the mean absolute error of a
        statistical parity gap; whether the mechanism is ``private``; its ``guarantee``.

    Raises
    ------
    ValueError
        If a guess is out of its range.

    Warns
    -----
    UserWarning
        If every private answer would be mostly noise.

    Notes
    -----
    Each mechanism answers many times about label predictions drawn from the guesses, with a
    gap of 0.1 between the groups, until the mean error's own standard error is about 5 %.
    More than 50 000 individuals are scaled from that size. Probability predictions err
    a little less than labels.

    Examples
    --------
    >>> from sklearn_fairleak.planning import plan
    >>> plan(1000, n_queries=300).index[0]
    'randomized_response'
    """
    import pandas as pd

    situation = _Situation(
        n_samples, n_queries, n_models, epsilon, delta, minority_share, positive_rate, disagreement
    )
    rows = []
    for name, mechanism in _mechanisms(delta).items():
        guarantee = "none"
        if mechanism.is_private:
            relaxed = name in ("smooth_laplace", "noisy_sums, gaussian") or (name == "auto" and delta)
            guarantee = "(epsilon, delta)" if relaxed else "epsilon"
        rows.append((name, situation.error_of(mechanism), mechanism.is_private, guarantee))
    table = pd.DataFrame(rows, columns=["mechanism", "expected_error", "private", "guarantee"])
    private = table[table["private"]].sort_values("expected_error", kind="stable")
    if float(private["expected_error"].min()) > 0.5:
        warnings.warn(
            f"With n_samples={n_samples} every private answer is mostly noise: its expected error is more than "
            "half of the possible range. Use more individuals, fewer answers or a larger epsilon.",
            UserWarning,
            stacklevel=2,
        )
    return pd.concat([private, table[~table["private"]]]).set_index("mechanism")


@validate_params(
    _GUESSES | {"wanted_error": [Interval(Real, 0, None, closed="neither")]},
    prefer_skip_nested_validation=True,
)
def ways_to_reach(
    wanted_error: float,
    n_samples: int,
    *,
    n_queries: int = 1,
    n_models: int = 1,
    epsilon: float = 1.0,
    delta: float = 0.0,
    minority_share: float = 0.1,
    positive_rate: float = 0.25,
    disagreement: float = 0.05,
) -> dict[str, float | int | None]:
    """Say what to change, one thing at a time, for ``auto`` to reach an expected error.

    Parameters
    ----------
    wanted_error : float
        Largest acceptable mean absolute error of a statistical parity gap.
    n_samples, n_queries, n_models, epsilon, delta, minority_share, positive_rate, disagreement
        As in :func:`plan`.

    Returns
    -------
    dict
        ``expected_error`` as things are; ``epsilon`` and ``n_samples``, the least that
        suffice, and ``n_queries``, the most that can be afforded (each None if it cannot help
        alone: epsilon up to 100, 10^8 individuals, one answer); ``jointly``, the expected error if all
        answers are asked for in one joint release (None if there is one answer).

    Examples
    --------
    >>> from sklearn_fairleak.planning import ways_to_reach
    >>> ways = ways_to_reach(0.02, 1000, n_queries=10)
    >>> ways["epsilon"] > 1.0, ways["n_samples"] > 1000, ways["n_queries"] < 10
    (True, True, True)
    """
    now = _Situation(
        n_samples, n_queries, n_models, epsilon, delta, minority_share, positive_rate, disagreement
    )
    auto = Auto(minority_share=minority_share)

    def error(**changes: Any) -> float:
        return replace(now, precision=_SEARCH_PRECISION, **changes).error_of(auto)

    jointly = replace(now, n_queries=1, n_models=n_queries * n_models) if n_queries > 1 else None
    return {
        "expected_error": now.error_of(auto),
        "epsilon": _least(lambda x: error(epsilon=x), wanted_error, epsilon, _LARGEST_EPSILON),
        "n_samples": _whole(_least(lambda x: error(n_samples=ceil(x)), wanted_error, n_samples, _LARGEST_N)),
        "n_queries": _most(lambda k: error(n_queries=k) <= wanted_error, n_queries),
        "jointly": None if jointly is None else jointly.error_of(auto),
    }


@dataclass(frozen=True)
class _Situation:
    """Hold the public guesses, and let mechanisms answer about stand-ins that follow them."""

    n_samples: int
    n_queries: int
    n_models: int
    epsilon: float
    delta: float
    minority_share: float
    positive_rate: float
    disagreement: float
    precision: float = _PRECISION

    def error_of(self, mechanism: Mechanism) -> float:
        """Return the mean absolute error of a mechanism's signed gaps."""
        if not mechanism.is_private:
            return self._rough(mechanism)
        if self.n_samples > _LARGEST_STAND_IN:
            small = replace(self, n_samples=_LARGEST_STAND_IN)
            return small.error_of(mechanism) * self._rough(mechanism) / small._rough(mechanism)
        if isinstance(mechanism, Auto) and self.n_queries > 1:
            chosen = mechanism.choose(self.n_samples, self.n_queries, self.epsilon, self.delta)
            return self.error_of(chosen)
        mechanisms = [self._resolved(mechanism, k) for k in range(_STAND_INS)]
        most = max(_FEWEST_RELEASES, min(_MOST_RELEASES, _ELEMENTS // (self.n_samples * self.n_models)))
        errors: list[float] = []
        while len(errors) < most:
            errors += [
                self._error_of_release(mechanisms[k % _STAND_INS], k)
                for k in range(len(errors), len(errors) + _STAND_INS)
            ]
            mean = float(np.mean(errors))
            # At a large epsilon most answers carry no noise at all, and their mean takes long to settle.
            settled = float(np.std(errors)) <= self.precision * mean * len(errors) ** 0.5
            if len(errors) >= _FEWEST_RELEASES and settled:
                break
        return mean

    def _resolved(self, mechanism: Mechanism, number: int) -> Mechanism:
        """Return what ``auto`` stands for when it is asked about a stand-in."""
        if not isinstance(mechanism, Auto):
            return mechanism
        batch, _, _ = self._stand_in(number)
        return mechanism.choose_for(batch, 2, Fraction(self.epsilon), Fraction(self.delta))

    def _stand_in(self, number: int) -> tuple[QueryBatch, Groups, FloatArray]:
        """Return one of the stand-ins, in turn."""
        return _stand_in(
            self.n_samples,
            self.n_models,
            self.minority_share,
            self.positive_rate,
            self.disagreement,
            number % _STAND_INS,
        )

    def _error_of_release(self, mechanism: Mechanism, number: int) -> float:
        """Return the mean absolute error of one release about one of the stand-ins."""
        batch, groups, truth = self._stand_in(number)
        budget = Fraction(self.epsilon), Fraction(self.delta)
        loss = mechanism.privacy_loss(*budget, self.n_queries)
        # Nothing here is secret, and the same plan should say the same twice.
        release = mechanism.release(batch, groups, loss, SeededNoise(0, b"plan %d" % number))
        gaps = release.gaps
        if gaps is None:
            means = release.means()
            gaps = means[:, 1] - means[:, 0]
        return float(np.abs(gaps - truth).mean())

    def _rough(self, mechanism: Mechanism) -> float:
        """Return the closed-form error, which grows with the number of individuals as the true one does."""
        return mechanism.error_scale(
            self.n_samples,
            self.n_queries,
            self.epsilon,
            self.delta,
            minority_share=self.minority_share,
            n_models=self.n_models,
        )


@lru_cache(maxsize=2 * _STAND_INS)
def _stand_in(
    n_samples: int, n_models: int, minority_share: float, positive_rate: float, disagreement: float, seed: int
) -> tuple[QueryBatch, Groups, FloatArray]:
    """Draw label predictions of near-identical models about two groups, and their true gaps."""
    rng = np.random.default_rng(seed)
    codes = np.ones(n_samples, dtype=np.int64)
    codes[: minority_size(n_samples, minority_share)] = 0
    gap = min(TYPICAL_GAP, positive_rate, 1.0 - positive_rate)
    rates = positive_rate + gap * np.where(codes == 1, minority_share, minority_share - 1.0)
    rates = np.clip(rates, 0.0, 1.0)
    base = rng.random(n_samples) < rates
    labels = np.repeat(base[None], n_models, axis=0)
    if n_models > 1:
        again = rng.random(labels.shape) < disagreement / np.maximum(
            2.0 * rates * (1.0 - rates), disagreement
        )
        labels = np.where(again, rng.random(labels.shape) < rates, labels)
    batch = make_queries("statistical_parity", labels.astype(np.float64))
    truth = labels[:, codes == 1].mean(axis=1) - labels[:, codes == 0].mean(axis=1)
    return batch, Groups(codes, (0, 1)), truth


def _mechanisms(delta: float) -> dict[str, Mechanism]:
    """Return the mechanisms that a budget allows."""
    found: dict[str, Mechanism] = {}
    for name, mechanism_class in MECHANISMS.items():
        if name == "smooth_laplace" and not delta > 0:
            continue
        found[name] = mechanism_class()
    if delta > 0:
        found["noisy_sums, gaussian"] = NoisySums("gaussian")
    return found


def _least(error: Callable[[float], float], wanted: float, low: float, limit: float) -> float | None:
    """Return about the least number that brings a falling error to what is wanted; None beyond the limit."""

    def excess(log_x: float) -> float:
        return log(max(error(exp(log_x)), 1e-9 * wanted) / wanted)

    start = end = log(low)
    above = excess(start)
    if above <= 0.0:
        return low
    # Errors fall like 1/x, or like its root.
    while excess(end) > 0.0:
        if exp(end) >= limit:
            return None
        end = min(end + above + 0.4, log(limit) + 1e-9)
    return exp(end if end == start else float(brentq(excess, start, end, xtol=0.02)) + 0.01)


def _most(suffices: Callable[[int], bool], high: int) -> int | None:
    """Return the largest number of answers that suffices; None if not even one does."""
    if suffices(high):
        return high
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if suffices(middle) else (low, middle)
    return low or None


def _whole(number: float | None) -> int | None:
    """Round a number of individuals up."""
    return None if number is None else ceil(number)
