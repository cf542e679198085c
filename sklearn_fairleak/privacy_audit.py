"""Measure, from the outside, how much privacy a mechanism really gives.

A mechanism goes in as a black box; a lower bound of its epsilon comes out, with the pair of
neighbouring data sets and the event that prove it. A bound above the claim is a fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import beta as beta_law

from .groups import Groups
from .mechanisms import Mechanism, get_mechanism
from .noise import SecureNoise
from .queries import make_queries

__all__ = ["PrivacyAudit", "audit_privacy", "epsilon_lower_bound"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
#: ``mechanism(values, codes)``: predictions of shape (n_models, n), secret codes of shape (n,).
BlackBox = Callable[[FloatArray, IntArray], Any]

#: Pairs of neighbours that are tried in the first round, and draws of each.
_PILOT_DRAWS = 200
#: Candidate thresholds of each feature.
_THRESHOLDS = 40


@dataclass(frozen=True, eq=False)
class PrivacyAudit:
    """What an audit found.

    Attributes
    ----------
    epsilon_lower : float
        The mechanism is not (epsilon, delta)-private for any epsilon below this, at the
        stated confidence.
    epsilon, delta : float
        The claim.
    confidence : float
        Probability that the bound holds.
    passed : bool
        Whether the bound is at most the claim.
    values : ndarray of shape (n_models, n_individuals)
        Predictions of the witness.
    codes, neighbour : ndarray of shape (n_individuals,)
        The two data sets of the witness; they differ in one individual.
    event : str
        The event whose probabilities differ, in words.
    n_draws : int
        Outputs drawn from each of the two data sets for the final bound.
    """

    epsilon_lower: float
    epsilon: float
    delta: float
    confidence: float
    values: FloatArray = field(repr=False)
    codes: IntArray = field(repr=False)
    neighbour: IntArray = field(repr=False)
    event: str
    n_draws: int

    @property
    def passed(self) -> bool:
        """Whether no violation was proved."""
        return self.epsilon_lower <= self.epsilon


def audit_privacy(
    mechanism: str | Mechanism | BlackBox,
    *,
    epsilon: float,
    delta: float = 0.0,
    metric: str = "statistical_parity",
    y_true: Any = None,
    n_individuals: int = 4,
    n_models: int = 1,
    pairs: Sequence[tuple[Any, Any, Any]] | None = None,
    n_draws: int = 20_000,
    confidence: float = 0.999,
    random_state: int | None = None,
) -> PrivacyAudit:
    r"""Bound a mechanism's epsilon from below by watching its outputs.

    Parameters
    ----------
    mechanism : str, Mechanism or callable
        A mechanism of ours, which then answers ``metric``, or any function
        ``mechanism(values, codes)`` of predictions (n_models, n_individuals) and secret group
        codes (n_individuals,). Its output may be a number, an array or None; NaN, exceptions
        and array lengths are outputs too.
    epsilon, delta : float
        The claim. Ours are asked to keep it.
    metric : str, default="statistical_parity"
        What a mechanism of ours answers.
    y_true : array-like of shape (n_individuals,), default=None
        Labels, for metrics of labels.
    n_individuals : int, default=4
        Size of the data sets that are searched: all neighbours and binary predictions up to
        6, beyond that hill-climbing over predictions and sizes.
    n_models : int, default=1
        Models in one release.
    pairs : sequence of (values, codes, neighbour), default=None
        Pairs to try instead of the search.
    n_draws : int, default=20000
        Outputs of each data set for the final bound; as many again choose the event.
    confidence : float, default=0.999
        Probability that the bound holds.
    random_state : int, default=None
        Randomness of the search. The mechanism's own noise is never seeded.

    Returns
    -------
    PrivacyAudit

    Notes
    -----
    One half of the draws chooses a pair and an event E (thresholds of outputs, atoms, a
    learned classifier's score); the other half bounds its probabilities by Clopper and
    Pearson, each at half of the error: :math:`\epsilon \ge \ln((p_{low}-\delta)/q_{high})`.
    The choice is made on other draws, so it needs no correction.

    References
    ----------
    Ding, Wang, Wang, Zhang & Kifer, "Detecting Violations of Differential Privacy", CCS
    2018. Jagielski, Ullman & Oprea, "Auditing Differentially Private Machine Learning",
    NeurIPS 2020 (Clopper-Pearson bounds).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.privacy_audit import audit_privacy
    >>> def half_noise(values, codes):
    ...     return codes.sum() + np.random.default_rng().laplace(scale=0.5)
    >>> audit_privacy(half_noise, epsilon=1.0, n_draws=4000, random_state=0).passed
    False
    """
    if n_individuals < 3:
        raise ValueError(f"n_individuals must be at least 3, got {n_individuals}.")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence!r}.")
    if n_draws < 100:
        raise ValueError(f"n_draws must be at least 100, got {n_draws}.")
    rng = np.random.default_rng(random_state)
    box = _black_box(mechanism, epsilon, delta, metric, y_true)
    if pairs is not None:
        candidates = [
            (np.atleast_2d(np.asarray(values, dtype=np.float64)), _codes(one), _codes(other))
            for values, one, other in pairs
        ]
    else:
        candidates = list(_candidate_pairs(n_individuals, n_models, rng))
    values, codes, neighbour = _worst_pair(box, candidates, delta, rng, climb=pairs is None)
    # Either order of the pair may show the larger ratio.
    train = _outputs(box, values, codes, n_draws), _outputs(box, values, neighbour, n_draws)
    event = _choose_event(*train, delta, rng)
    hits = [event.holds(_outputs(box, values, data, n_draws)).sum() for data in (codes, neighbour)]
    if event.reversed:
        hits.reverse()
    bound = epsilon_lower_bound(int(hits[0]), int(hits[1]), n_draws, delta=delta, confidence=confidence)
    return PrivacyAudit(
        epsilon_lower=bound,
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        values=values,
        codes=codes,
        neighbour=neighbour,
        event=event.name,
        n_draws=n_draws,
    )


def epsilon_lower_bound(
    hits: int, neighbour_hits: int, n_draws: int, *, delta: float = 0.0, confidence: float = 0.999
) -> float:
    r"""Bound epsilon from the counts of one event under two neighbouring data sets.

    Parameters
    ----------
    hits, neighbour_hits : int
        How often the event happened under each.
    n_draws : int
        Draws under each.
    delta : float, default=0.0
        Of the claim.
    confidence : float, default=0.999
        Probability that the bound holds.

    Returns
    -------
    float
        Never negative.

    Examples
    --------
    >>> from sklearn_fairleak.privacy_audit import epsilon_lower_bound
    >>> round(epsilon_lower_bound(7311, 2689, 10_000), 2)
    0.93
    """
    tail = (1.0 - confidence) / 2.0
    low = float(beta_law.ppf(tail, hits, n_draws - hits + 1)) if hits else 0.0
    high = (
        float(beta_law.ppf(1.0 - tail, neighbour_hits + 1, n_draws - neighbour_hits))
        if (neighbour_hits < n_draws)
        else 1.0
    )
    if low - delta <= 0.0:
        return 0.0
    return max(0.0, math.log((low - delta) / high))


def _codes(codes: Any) -> IntArray:
    """Return group codes as integers."""
    return np.asarray(codes, dtype=np.int64)


def _black_box(
    mechanism: str | Mechanism | BlackBox, epsilon: float, delta: float, metric: str, y_true: Any
) -> BlackBox:
    """Return a function of values and codes; ours release everything that they publish."""
    if callable(mechanism) and not isinstance(mechanism, Mechanism):
        return mechanism
    chosen = get_mechanism(mechanism)
    loss = chosen.privacy_loss(Fraction(epsilon), Fraction(delta), 1)

    def release(values: FloatArray, codes: IntArray) -> FloatArray:
        batch = make_queries(metric, values, y_true)
        released = chosen.release(batch, Groups(codes, (0, 1)), loss, SecureNoise())
        shown = [released.gaps, released.sums, released.counts, released.scale, released.noise]
        return np.concatenate([np.ravel(part) for part in shown if part is not None])

    return release


def _candidate_pairs(
    n: int, n_models: int, rng: np.random.Generator
) -> Iterator[tuple[FloatArray, IntArray, IntArray]]:
    """Yield neighbouring data sets and predictions, the extreme ones first."""
    sizes = range(1, n) if n <= 6 else sorted({1, 2, 3, n // 10, n // 4, n // 2, n - 3, n - 2})
    for n_zero in sizes:
        codes = np.array([0] * n_zero + [1] * (n - n_zero))
        neighbour = codes.copy()
        neighbour[0] = 1
        if n <= 6 and n_models == 1:
            # Individuals of a group are alike, so counts of ones are enough.
            for mover, zeros, ones in product((0, 1), range(n_zero), range(n - n_zero + 1)):
                row = np.zeros(n)
                row[0] = mover
                row[1 : 1 + zeros] = 1
                row[n_zero : n_zero + ones] = 1
                yield row[None], codes, neighbour
        else:
            for moved, zero, one in product((0.0, 1.0), repeat=3):
                row = np.where(codes == 0, zero, one).astype(np.float64)
                row[0] = moved
                yield np.tile(row, (n_models, 1)), codes, neighbour
            yield rng.integers(0, 2, (n_models, n)).astype(np.float64), codes, neighbour


def _worst_pair(
    box: BlackBox,
    candidates: list[tuple[FloatArray, IntArray, IntArray]],
    delta: float,
    rng: np.random.Generator,
    *,
    climb: bool,
) -> tuple[FloatArray, IntArray, IntArray]:
    """Return the pair whose outputs differ most in a few draws, improved by hill-climbing."""

    def score(pair: tuple[FloatArray, IntArray, IntArray]) -> float:
        values, codes, neighbour = pair
        draws = _outputs(box, values, codes, _PILOT_DRAWS), _outputs(box, values, neighbour, _PILOT_DRAWS)
        return _choose_event(*draws, delta, rng, learned=False).score

    if len(candidates) == 1:
        return candidates[0]
    ranked = sorted(((score(pair), k) for k, pair in enumerate(candidates)), reverse=True)
    # The best of a noisy round are compared once more.
    best = max(ranked[:5], key=lambda entry: entry[0] + score(candidates[entry[1]]))
    top, pair = best[0], candidates[best[1]]
    if climb and pair[0].shape[1] > 6:
        for _ in range(20):
            values = pair[0].copy()
            j = int(rng.integers(values.shape[1]))
            values[:, j] = 1.0 - values[:, j]
            trial = values, pair[1], pair[2]
            found = score(trial)
            if found > top:
                top, pair = found, trial
    return pair


def _outputs(box: BlackBox, values: FloatArray, codes: IntArray, size: int) -> FloatArray:
    """Draw outputs as rows of numbers; exceptions, NaN and lengths become numbers too."""
    rows = []
    for _ in range(size):
        try:
            out = box(values, codes)
            numbers = np.atleast_1d(np.asarray(np.nan if out is None else out, dtype=np.float64)).ravel()
            kind = 0.0
        except Exception as error:
            numbers = np.array([np.nan])
            kind = float(sum(map(ord, type(error).__name__)))
        rows.append(np.concatenate([[kind, float(numbers.size), float(np.isnan(numbers).sum())], numbers]))
    width = max(row.size for row in rows)
    table = np.zeros((size, width))
    for k, row in enumerate(rows):
        table[k, : row.size] = np.nan_to_num(row, nan=-1e300)
    return table


@dataclass(frozen=True, eq=False)
class _Event:
    """A set of outputs: a feature on one side of a threshold, or equal to an atom."""

    name: str
    feature: Callable[[FloatArray], FloatArray]
    low: float
    high: float
    reversed: bool
    score: float

    def holds(self, outputs: FloatArray) -> npt.NDArray[np.bool_]:
        """Say for each output whether the event happened."""
        shown = self.feature(outputs)
        return np.asarray((shown >= self.low) & (shown <= self.high))


def _choose_event(
    first: FloatArray, second: FloatArray, delta: float, rng: np.random.Generator, *, learned: bool = True
) -> _Event:
    """Return the event whose bound is largest on training draws."""
    width = max(first.shape[1], second.shape[1])
    features: list[tuple[str, Callable[[FloatArray], FloatArray]]] = [
        (f"output {k - 3}" if k >= 3 else ("exception", "length", "NaN")[k], partial(_column, k=k))
        for k in range(min(width, 40))
    ]
    if learned and width > 4:
        features.append(("a classifier's score", _classifier(first, second, width)))
    best: _Event | None = None
    for name, feature in features:
        a, b = feature(first), feature(second)
        pooled = np.concatenate([a, b])
        edges = np.unique(np.quantile(pooled, np.linspace(0.0, 1.0, _THRESHOLDS)))
        events = [(-np.inf, edge) for edge in edges] + [(edge, np.inf) for edge in edges]
        levels, counts = np.unique(pooled, return_counts=True)
        common = levels[np.argsort(-counts)[:_THRESHOLDS]]
        events += [(level, level) for level in common if counts[levels == level][0] > 5]
        for low, high in events:
            p, q = (float(((x >= low) & (x <= high)).mean()) for x in (a, b))
            for one, other, backwards in ((p, q, False), (q, p, True)):
                score = _training_score(one, other, len(a), delta)
                if best is None or score > best.score:
                    word = f"{name} = {low:.6g}" if low == high else f"{name} in [{low:.6g}, {high:.6g}]"
                    best = _Event(word, feature, low, high, backwards, score)
    assert best is not None
    return best


def _training_score(p: float, q: float, n: int, delta: float) -> float:
    """Estimate the bound that an event will give, with three standard errors taken off each side."""
    low = p - 3.0 * math.sqrt(max(p * (1 - p), 1 / n) / n) - delta
    high = q + 3.0 * math.sqrt(max(q * (1 - q), 1 / n) / n)
    return math.log(low / high) if low > 0 else -math.inf


def _column(table: FloatArray, k: int) -> FloatArray:
    """Return a column, or zeros where outputs are shorter."""
    return table[:, k] if k < table.shape[1] else np.zeros(len(table))


def _classifier(first: FloatArray, second: FloatArray, width: int) -> Callable[[FloatArray], FloatArray]:
    """Learn to tell the two data sets apart from whole outputs."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    def padded(table: FloatArray) -> FloatArray:
        return np.pad(table[:, :width], ((0, 0), (0, max(0, width - table.shape[1]))))

    size = min(len(first), 5000)
    X = np.concatenate([padded(first[:size]), padded(second[:size])])
    y = np.repeat([1, 0], size)
    model = HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=8, random_state=0).fit(X, y)
    return lambda table: np.asarray(model.predict_proba(padded(table))[:, 1], dtype=np.float64)
