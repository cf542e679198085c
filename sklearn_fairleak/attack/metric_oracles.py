"""Attacks through every metric, with fairlearn's own functions as oracles.

Most metrics compare rates of decisions that the attacker chooses, so an answer tells how many of the
accepted are in one group (`count_search`). What differs is who is reached: equal opportunity tells
nothing about people with y = 0, precision tells about everyone in two rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..queries import canonical_metric
from .count_search import Hypothesis, SearchStopped, search_counts
from .group_sums import finish, learned_nothing, reason_of
from .many_groups import MultiGroupReconstruction, reveal_groups, reveal_groups_by_difference
from .reconstruction import Reconstruction
from .transcript import OracleStopped, Transcript

__all__ = ["reveal_through_metric"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Queries that tell apart what the two rounds about precision leave open.
_TIE_BREAKERS = 4
_SEVERAL = "several assignments explain all answers"
_NONE = "nothing explains the answers: they are not exact, or of another metric"


def reveal_through_metric(
    oracle: Callable[[FloatArray], Any],
    metric: str,
    y: npt.ArrayLike | None,
    n: int,
    *,
    signed: bool | None = None,
    group_labels: Any = None,
    method: str = "between_groups",
    agg: str = "worst_case",
    hard_labels: bool = True,
    base: npt.ArrayLike | None = None,
    max_shift: float | None = None,
    max_accuracy_loss: float | None = None,
) -> Reconstruction | MultiGroupReconstruction:
    """Recover everyone whom a metric reaches, from exact answers to chosen 0/1 predictions.

    Parameters
    ----------
    oracle : callable
        ``oracle(y_pred) -> float``: a fairlearn metric with labels and attributes filled in, for
        instance. For ``metric="by_group"``, a mapping from group label to value.
    metric : str
        A metric of `sklearn_fairleak.queries.METRICS`, an alias, or one of these with ``_difference``
        or ``_ratio`` appended; or, for any number of groups, ``"by_group"`` (every group's mean
        prediction or selection rate) or ``"group_difference"`` (largest less smallest mean
        prediction of 3 to 5 groups).
    y : array-like of shape (n_individuals,) or None
        True labels in {0, 1}; needed by all but statistical parity and the group metrics.
    n : int
        Number of individuals.
    signed : bool, default=None
        Whether differences carry a sign. None: no, as in fairlearn.
    group_labels : list, default=None
        Labels of the groups, for ``"by_group"``; those of the answers by default.
    method : {"between_groups", "to_overall"}, default="between_groups"
        What fairlearn's ``method`` is.
    agg : {"worst_case", "mean"}, default="worst_case"
        What fairlearn's ``agg`` of equalized odds is.
    hard_labels : bool, default=True
        Submit 0/1 predictions only; for ``"by_group"``, False needs far fewer queries.
    base : array-like of shape (n_individuals,), default=None
        Predictions of a model that shift and loss of accuracy are measured against; all 0 by default.
    max_shift, max_accuracy_loss : float, default=None
        These attacks submit models far from any base model: limits below 1 are refused before
        anything is asked.

    Returns
    -------
    Reconstruction or MultiGroupReconstruction
        Individuals out of the metric's reach have score 0.5 and are not determined. Absolute answers
        and ratios give partitions; the larger part is then called advantaged.

    Raises
    ------
    ValueError
        If the metric is unknown, labels are missing or malformed, or a limit cannot be honoured.
    OracleStopped
        If the oracle does not answer the first query.

    Examples
    --------
    >>> import numpy as np
    >>> from fairlearn.metrics import equal_opportunity_difference
    >>> from sklearn_fairleak.attack.metric_oracles import reveal_through_metric
    >>> y, race = np.arange(40) % 2, np.arange(40) % 5 > 0
    >>> reveal_through_metric(
    ...     lambda h: equal_opportunity_difference(y, h, sensitive_features=race),
    ...     "equal_opportunity_difference", y, 40,
    ... )
    Reconstruction(20 of 40 individuals determined by 16 answers, verified)
    """
    _refuse_limits(metric, max_shift=max_shift, max_accuracy_loss=max_accuracy_loss)
    near = np.zeros(n) if base is None else np.asarray(base, dtype=np.float64)
    if near.shape != (n,):
        raise ValueError(f"base must hold {n} predictions; got an array of shape {near.shape}.")
    if metric == "by_group":
        return reveal_groups(oracle, n, group_labels=group_labels, hard_labels=hard_labels, base=near, y=y)
    if metric == "group_difference":
        return reveal_groups_by_difference(oracle, n, base=near, y=y)
    name, ratio = canonical_metric(metric)
    labels = _labels(y, n, name)
    asked = Transcript(oracle, near, None if y is None else labels.astype(np.float64))
    halved = name == "equalized_odds" and agg == "mean"
    kind = _Kind(bool(signed) and not ratio, ratio, method == "to_overall", 0.5 if halved else 1.0)
    try:
        if name in ("predictive_parity", "negative_predictive_parity"):
            return _through_precision(asked, labels, kind, negative=name == "negative_predictive_parity")
        if name == "equalized_odds":
            return _through_equalized_odds(asked, labels, kind)
        return _through_rates(asked, name, labels, kind)
    except OracleStopped as stop:
        if not asked.n_queries:
            raise
        return learned_nothing(asked, n, reason_of(stop))


def _refuse_limits(metric: str, **limits: float | None) -> None:
    """Refuse, before any query, to stay closer to a base model than these attacks can."""
    for name, limit in limits.items():
        if limit is not None and limit < 1.0:
            raise ValueError(
                f"{name}={limit!r} cannot be honoured: metric={metric!r} is attacked with models far from "
                "any base model. Leave the limit out, or attack statistical parity by positional.run."
            )


@dataclass(frozen=True)
class _Kind:
    """Hold how an answer combines the values of two groups."""

    signed: bool
    ratio: bool
    to_overall: bool
    scale: float

    def combine(self, value1: Any, value0: Any, overall: Any) -> FloatArray:
        """Return the answer to values of the advantaged and the other group."""
        if self.ratio and self.to_overall:
            parts = [np.minimum(v / overall, overall / v) for v in (value1, value0)]
            return np.asarray(np.minimum(*parts))
        if self.ratio:
            highest = np.maximum(value1, value0)
            return np.asarray(np.where(highest > 0, np.minimum(value1, value0) / highest, 1.0))
        if self.to_overall:
            return np.asarray(self.scale * np.maximum(abs(value1 - overall), abs(value0 - overall)))
        gap = self.scale * (value1 - value0)
        return np.asarray(gap if self.signed else np.abs(gap))


def _labels(y: npt.ArrayLike | None, n: int, name: str) -> IntArray:
    """Return true labels as integers, checked."""
    if y is None:
        if name != "statistical_parity":
            raise ValueError(f"metric={name!r} depends on the true labels; give them as y.")
        return np.zeros(n, dtype=np.int64)
    labels = np.asarray(y)
    if labels.shape != (n,) or not np.isin(labels, (0, 1)).all():
        raise ValueError(f"y must hold {n} labels in {{0, 1}}; got an array of shape {labels.shape}.")
    return labels.astype(np.int64)


def _named(hypothesis: Hypothesis, total: int, size: int) -> bool:
    """Of two that differ in the groups' names, keep the one whose advantaged group is the larger."""
    if 2 * hypothesis.n_advantaged != size:
        return 2 * hypothesis.n_advantaged > size
    return 2 * hypothesis.base_count >= total


def _search_rates(ask: Callable[[IntArray], float], size: int, kind: _Kind) -> list[Hypothesis]:
    """Find the groups of people from comparisons of their acceptance rates."""

    def predict(key: tuple[int, ...], counts: IntArray, total: int) -> FloatArray:
        n1 = key[0]
        rate1, rate0 = counts / n1, (total - counts) / (size - n1)
        return kind.combine(rate1, rate0, total / size)

    hypotheses = [Hypothesis((n1,), n1) for n1 in range(1, size)]
    # Decisions of all kinds of neighbours: neither group is likely to be all accepted or all refused.
    base = (np.arange(size) * 5 % 7 < 3).astype(np.int64)
    canonical = None if kind.signed else lambda hypothesis, total: _named(hypothesis, total, size)
    return search_counts(ask, base, hypotheses, predict, canonical=canonical)


def _report(
    asked: Transcript, n: int, reach: IntArray, fit: list[IntArray], kind: _Kind, *messages: str
) -> Reconstruction:
    """Put the found members in their places."""
    if not fit:
        return learned_nothing(asked, n, _NONE, *messages)
    scores, determined = np.full(n, 0.5), np.zeros(n, dtype=bool)
    same = (np.array(fit) == fit[0]).all(axis=0)
    scores[reach], determined[reach] = np.where(same, fit[0], 0.5), same
    if len(fit) > 1:
        messages = (*messages, _SEVERAL)
    if reach.size < n:
        messages = (*messages, f"the metric does not reach {n - reach.size} of {n} individuals")
    sizes = (int((fit[0] == 0).sum()), int(fit[0].sum()))
    return finish(
        asked,
        scores,
        determined,
        group_sizes=sizes if len(fit) == 1 else None,
        verified=len(fit) == 1,
        orientation_known=kind.signed,
        messages=messages,
    )


def _kept(reason: str) -> str:
    """Say that the oracle stopped midway."""
    return f"{reason}; what was read until then is kept"


def _report_partly(
    asked: Transcript, n: int, reach: IntArray, fit: list[IntArray], kind: _Kind, stop: OracleStopped
) -> Reconstruction:
    """Report whom all explanations fix alike, after the oracle stopped."""
    scores, determined = np.full(n, 0.5), np.zeros(n, dtype=bool)
    if fit:
        same = (np.array(fit) == fit[0]).all(axis=0) & (fit[0] >= 0)
        scores[reach], determined[reach] = np.where(same, fit[0], 0.5), same
    return finish(
        asked,
        scores,
        determined,
        group_sizes=None,
        verified=False,
        orientation_known=kind.signed,
        messages=(_kept(reason_of(stop)),),
    )


def _through_rates(asked: Transcript, name: str, labels: IntArray, kind: _Kind) -> Reconstruction:
    """Attack a metric that compares the rates of decisions, errors or losses."""
    n = labels.size
    reach = np.arange(n)
    if name in ("equal_opportunity", "false_positive_rate_parity"):
        reach = np.flatnonzero(labels == (name == "equal_opportunity"))
    _require(reach, name)
    own = labels[reach]

    def ask(decisions: IntArray) -> float:
        predictions = np.zeros(n)
        if name == "accuracy_parity":
            predictions[reach] = np.where(decisions == 1, own, 1 - own)
        elif name == "bounded_loss_parity":
            predictions[reach] = np.where(decisions == 1, 1 - own, own)
        else:
            predictions[reach] = decisions
        return asked(predictions)

    try:
        fit = [h.members for h in _search_rates(ask, reach.size, kind)]
    except SearchStopped as stop:
        return _report_partly(asked, n, reach, [h.members for h in stop.hypotheses], kind, stop)
    return _report(asked, n, reach, fit, kind)


def _through_equalized_odds(asked: Transcript, labels: IntArray, kind: _Kind) -> Reconstruction:
    """Read the people of either label while the other's rates are equal: all refused, or all accepted."""
    n = labels.size
    scores, determined = np.full(n, 0.5), np.zeros(n, dtype=bool)
    verified, messages, sizes = True, [], np.zeros(2, dtype=np.int64)
    for label in (1, 0):
        reach = np.flatnonzero(labels == label)
        _require(reach, "equalized_odds")

        def ask(decisions: IntArray, reach: IntArray = reach) -> float:
            # The other label's difference is then 0, and its ratio 1.
            predictions = np.full(n, 1.0 if kind.ratio else 0.0)
            predictions[reach] = decisions
            return asked(predictions)

        try:
            part = _report(asked, n, reach, [h.members for h in _search_rates(ask, reach.size, kind)], kind)
        except SearchStopped as stop:
            part = _report_partly(asked, n, reach, [h.members for h in stop.hypotheses], kind, stop)
        except OracleStopped as stop:
            if not asked.n_queries:
                raise
            part = _report_partly(asked, n, reach, [], kind, stop)
        scores[reach], determined[reach] = part.scores[reach], part.determined[reach]
        verified &= part.verified
        sizes += part.group_sizes or (0, 0)
        if asked.stopped is not None:
            messages.append(_kept(asked.stopped))
            break
        messages += [m for m in part.messages if m in (_SEVERAL, _NONE)]
    if not kind.signed:
        messages.append("answers do not tell which parts of the two labels belong to one group")
    return finish(
        asked,
        scores,
        determined,
        group_sizes=(int(sizes[0]), int(sizes[1])) if verified and kind.signed else None,
        verified=verified,
        orientation_known=kind.signed,
        messages=tuple(messages),
    )


def _through_precision(asked: Transcript, labels: IntArray, kind: _Kind, *, negative: bool) -> Reconstruction:
    """Read first the y = 0 people with all y = 1 accepted, then the others; in between, no group is empty."""
    n = labels.size
    truth = 1 - labels if negative else labels
    positive, others = np.flatnonzero(truth == 1), np.flatnonzero(truth == 0)
    _require(positive, "predictive_parity")
    _require(others, "predictive_parity")
    p, f = positive.size, others.size

    def submit(accepted: IntArray) -> float:
        predictions = np.zeros(n)
        predictions[accepted] = 1.0
        return asked(1.0 - predictions if negative else predictions)

    def precision_of(true1: Any, true0: Any, false1: Any, false0: Any) -> FloatArray:
        size1, size0 = true1 + false1, true0 + false0
        overall = (true1 + true0) / (size1 + size0)
        return kind.combine(true1 / size1, true0 / size0, overall)

    def of_others(key: tuple[int, ...], counts: IntArray, total: int) -> FloatArray:
        return precision_of(key[0], p - key[0], counts, total - counts)

    def of_positive(key: tuple[int, ...], counts: IntArray, total: int) -> FloatArray:
        return precision_of(counts, total - counts, key[1], f - key[1])

    everyone = submit(np.arange(n))
    hypotheses = []
    for p1 in range(1, p):
        f1 = np.arange(1, f)
        possible = f1[np.abs(precision_of(p1, p - p1, f1, f - f1) - everyone) <= 1e-11]
        hypotheses += [Hypothesis((p1, int(k)), int(k)) for k in possible]
    if not kind.signed:
        hypotheses = [
            h for h in hypotheses if 2 * sum(h.key) > n or (2 * sum(h.key) == n and 2 * h.key[0] >= p)
        ]
    alternate = np.arange(f) % 2
    found: list[Hypothesis] = []
    try:
        found = search_counts(
            lambda d: submit(np.concatenate([positive, others[d == 1]])), alternate, hypotheses, of_others
        )
        second = search_counts(
            lambda d: submit(np.concatenate([others, positive[d == 1]])),
            np.arange(p) % 2,
            [Hypothesis(h.key, h.key[0]) for h in found],
            of_positive,
        )
    except OracleStopped as stop:
        return _partly_through_precision(asked, positive, others, found, kind, stop)
    fit = []
    for first in found:
        for h in second:
            if first.key == h.key:
                members = np.zeros(n, dtype=np.int64)
                members[positive], members[others] = h.members, first.members
                fit.append(members)
                if not kind.signed and 2 * h.key[0] == p and 2 * h.key[1] == f:
                    # Groups alike in both labels: the two rounds have named them independently.
                    fit.append(np.where(truth == 1, 1 - members, members))
    rng = np.random.default_rng(n)
    for _ in range(_TIE_BREAKERS if len(fit) > 1 else 0):
        accepted = rng.random(n) < 0.5
        try:
            answer = submit(np.flatnonzero(accepted))
        except OracleStopped as stop:
            return _report_partly(asked, n, np.arange(n), fit, kind, stop)
        fit = [a for a in fit if _explains(a, accepted, truth, answer, kind)]
    different: list[IntArray] = []
    for a in fit:
        known = [*different, *(1 - b for b in different)] if not kind.signed else different
        if not any(np.array_equal(a, b) for b in known):
            different.append(a)
    return _report(asked, n, np.arange(n), different, kind)


def _partly_through_precision(
    asked: Transcript,
    positive: IntArray,
    others: IntArray,
    found: list[Hypothesis],
    kind: _Kind,
    stop: OracleStopped,
) -> Reconstruction:
    """Report whom the first round, and what there was of the second, fix."""
    n = positive.size + others.size
    partly = stop.hypotheses if isinstance(stop, SearchStopped) else []
    fit = []
    for h in partly or found:
        members = np.full(n, -1, dtype=np.int64)
        if not found:
            members[others] = h.members
            fit.append(members)
            continue
        for first in [f for f in found if f.key == h.key]:
            members = np.full(n, -1, dtype=np.int64)
            members[others] = first.members
            balanced = 2 * h.key[0] == positive.size and 2 * h.key[1] == others.size
            if partly and (kind.signed or not balanced):
                members[positive] = h.members
            fit.append(members)
    return _report_partly(asked, n, np.arange(n), fit, kind, stop)


def _explains(members: IntArray, accepted: BoolArray, truth: IntArray, answer: float, kind: _Kind) -> bool:
    """Predict a gap in precision; one that is undefined excludes nothing."""
    values = []
    for group in (members == 1, members == 0, members >= 0):
        chosen = accepted & group
        if not chosen.any():
            return True
        values.append(truth[chosen].mean())
    if kind.ratio and 0.0 in values:
        return True
    return abs(float(kind.combine(*values)) - answer) <= 1e-11


def _require(reach: IntArray, name: str) -> None:
    """Refuse subsets in which nothing can be compared."""
    if reach.size < 2:
        raise ValueError(f"metric={name!r} needs at least 2 individuals in its subset.")
