"""Every metric, with fairlearn's own functions as oracles: everyone in reach is recovered."""

from __future__ import annotations

import itertools

import fairlearn.metrics as fm
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, mean_absolute_error, precision_score

from sklearn_fairleak.attack.many_groups import reveal_groups, reveal_groups_by_difference
from sklearn_fairleak.attack.metric_oracles import reveal_through_metric
from sklearn_fairleak.attack.transcript import OracleStopped
from sklearn_fairleak.metrics import fairness_gap


def precision(y_true, y_pred):
    """Precision, 0 where nobody is accepted."""
    return precision_score(y_true, y_pred, zero_division=0)


def negative_predictive_value(y_true, y_pred):
    """Precision of refusals."""
    return precision_score(1 - np.asarray(y_true), 1 - np.asarray(y_pred), zero_division=0)


def framed(metric, aggregate):
    """Aggregate a metric over groups as fairlearn's MetricFrame does."""

    def measure(y, h, *, sensitive_features):
        frame = fm.MetricFrame(metrics=metric, y_true=y, y_pred=h, sensitive_features=sensitive_features)
        if aggregate == "signed":
            return float(frame.by_group[1]) - float(frame.by_group[0])
        return float(frame.ratio() if aggregate == "ratio" else frame.difference(method=aggregate))

    return measure


def mean_odds(y, h, *, sensitive_features):
    """Equalized odds, averaged over the labels."""
    return fm.equalized_odds_difference(y, h, sensitive_features=sensitive_features, agg="mean")


CASES = [
    ("demographic_parity_difference", {}, fm.demographic_parity_difference),
    ("demographic_parity_ratio", {}, fm.demographic_parity_ratio),
    ("statistical_parity", {"signed": True}, framed(fm.selection_rate, "signed")),
    ("statistical_parity", {"method": "to_overall"}, framed(fm.selection_rate, "to_overall")),
    ("equal_opportunity_difference", {}, fm.equal_opportunity_difference),
    ("equal_opportunity_ratio", {}, fm.equal_opportunity_ratio),
    ("false_positive_rate_parity", {}, framed(fm.false_positive_rate, "between_groups")),
    ("equalized_odds_difference", {}, fm.equalized_odds_difference),
    ("equalized_odds_difference", {"agg": "mean"}, mean_odds),
    ("equalized_odds_ratio", {}, fm.equalized_odds_ratio),
    ("predictive_parity", {}, framed(precision, "between_groups")),
    ("predictive_parity", {"signed": True}, framed(precision, "signed")),
    ("predictive_parity", {"method": "to_overall"}, framed(precision, "to_overall")),
    ("predictive_parity_ratio", {}, framed(precision, "ratio")),
    ("negative_predictive_parity", {}, framed(negative_predictive_value, "between_groups")),
    ("negative_predictive_parity", {"signed": True}, framed(negative_predictive_value, "signed")),
    ("accuracy_parity", {}, framed(accuracy_score, "between_groups")),
    ("accuracy_parity", {"signed": True}, framed(accuracy_score, "signed")),
    ("accuracy_parity_ratio", {}, framed(accuracy_score, "ratio")),
    ("bounded_loss_parity", {}, framed(mean_absolute_error, "between_groups")),
    ("bounded_loss_parity", {"signed": True}, framed(mean_absolute_error, "signed")),
]


def audit(n, share, seed):
    """Labels and attributes."""
    rng = np.random.default_rng(seed)
    a = np.ones(n, dtype=int)
    a[rng.choice(n, round(share * n), replace=False)] = 0
    return rng.integers(0, 2, n), a


def reached(metric, y):
    """Who a metric can tell anything about, in parts whose names are free of each other."""
    positive, others = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    if "opportunity" in metric:
        return [positive]
    if "false_positive" in metric:
        return [others]
    return [positive, others] if "odds" in metric else [np.arange(y.size)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("metric", "options", "measure"), CASES)
@pytest.mark.parametrize(("n", "share"), [(16, 0.5), (41, 0.2)])
def test_everyone_in_reach_is_recovered(metric, options, measure, n, share):
    y, a = audit(n, share, n)
    found = reveal_through_metric(
        lambda h: measure(y, h.astype(int), sensitive_features=a), metric, y, n, **options
    )
    assert found.verified
    parts = reached(metric, y)
    everyone = np.sort(np.concatenate(parts))
    assert np.array_equal(np.flatnonzero(found.determined), everyone)
    assert (found.scores[~found.determined] == 0.5).all()
    for part in parts:
        right = np.array_equal(found.attributes[part], a[part])
        if not options.get("signed"):
            right |= np.array_equal(found.attributes[part], 1 - a[part])
        assert right
    assert found.orientation_known == bool(options.get("signed"))
    assert found.n_queries < 2 * everyone.size


@pytest.mark.parametrize("metric", ["statistical_parity", "equalized_odds", "equal_opportunity"])
def test_our_own_signed_metrics_name_the_groups(metric):
    y, a = audit(40, 0.3, 0)
    found = reveal_through_metric(
        lambda h: fairness_gap(metric, y, h, sensitive_features=a, absolute=False), metric, y, 40, signed=True
    )
    assert found.verified
    assert np.array_equal(found.attributes[found.determined], a[found.determined])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n_groups", [2, 3, 4, 6])
@pytest.mark.parametrize(("hard", "metric"), [(False, fm.mean_prediction), (True, fm.selection_rate)])
def test_all_groups_at_once_by_group(n_groups, hard, metric):
    rng = np.random.default_rng(n_groups)
    names = np.array(["a", "b", "c", "d", "e", "f"])
    groups = names[np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, 90)])]

    def oracle(h):
        return fm.MetricFrame(metrics=metric, y_true=h, y_pred=h, sensitive_features=groups).by_group

    found = reveal_through_metric(oracle, "by_group", None, groups.size, hard_labels=hard)
    assert found.verified
    assert found.determined.all()
    assert np.array_equal(np.array(found.group_labels)[found.codes], groups)
    assert found.n_queries <= (40 if hard else 3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n_groups", [3, 4, 5])
def test_groups_from_the_largest_difference_alone(n_groups):
    rng = np.random.default_rng(n_groups)
    groups = np.concatenate([np.arange(n_groups), np.minimum(rng.geometric(0.5, 120) - 1, n_groups - 1)])
    groups = rng.permutation(groups)

    def oracle(h):
        frame = fm.MetricFrame(metrics=fm.mean_prediction, y_true=h, y_pred=h, sensitive_features=groups)
        return frame.difference()

    found = reveal_through_metric(oracle, "group_difference", None, groups.size)
    assert found.verified
    for code in range(n_groups):
        assert len(np.unique(groups[found.codes == code])) == 1
    assert len(found.group_labels) == n_groups
    assert found.n_queries < groups.size / 2


def test_inexact_answers_are_reported_not_guessed():
    y, a = audit(40, 0.3, 0)
    rng = np.random.default_rng(0)

    def noisy(h):
        return fm.demographic_parity_difference(y, h, sensitive_features=a) + rng.normal(0, 1e-3)

    for metric in ("statistical_parity", "predictive_parity"):
        found = reveal_through_metric(noisy, metric, y, 40)
        assert not found.verified
        assert not found.determined.any()
        assert any("nothing explains" in message for message in found.messages)
    groups = np.arange(60) % 3
    found = reveal_groups(lambda h: {g: h[groups == g].mean() + rng.normal(0, 1e-3) for g in range(3)}, 60)
    assert not found.verified
    assert found.messages
    found = reveal_groups_by_difference(lambda h: np.ptp([h[groups == g].mean() for g in range(3)]), 60)
    assert found.verified


def test_an_oracle_that_stops():
    y, a = audit(40, 0.3, 0)
    calls = itertools.count()

    def oracle(h):
        if next(calls) == 5:
            raise RuntimeError("no budget left")
        return fm.demographic_parity_difference(y, h, sensitive_features=a)

    found = reveal_through_metric(oracle, "statistical_parity", None, 40)
    assert not found.determined.any()
    assert "no budget left" in found.messages[0]
    with pytest.raises(OracleStopped):
        reveal_through_metric(lambda h: float("nan"), "statistical_parity", None, 40)


def test_malformed_input_is_refused():
    with pytest.raises(ValueError, match="depends on the true labels"):
        reveal_through_metric(lambda h: 0.0, "equal_opportunity", None, 4)
    with pytest.raises(ValueError, match="labels in"):
        reveal_through_metric(lambda h: 0.0, "equal_opportunity", [1, 2, 1, 2], 4)
    with pytest.raises(ValueError, match="at least 2 individuals"):
        reveal_through_metric(lambda h: 0.0, "equal_opportunity", [1, 0, 0, 0], 4)
    with pytest.raises(ValueError, match="metric"):
        reveal_through_metric(lambda h: 0.0, "no_such_metric", [1, 0, 1, 0], 4)


class Stops:
    """Answer a number of queries, then raise."""

    def __init__(self, oracle, after):
        self.oracle, self.left = oracle, after

    def __call__(self, h):
        if not self.left:
            raise RuntimeError("no budget left")
        self.left -= 1
        return self.oracle(h)


@pytest.mark.parametrize(
    "metric",
    ["statistical_parity", "equal_opportunity", "accuracy_parity", "predictive_parity", "equalized_odds"],
)
def test_what_was_read_before_an_oracle_stops_is_kept(metric):
    y, a = audit(30, 0.3, 1)
    y = np.asarray(y)

    def oracle(h):
        return fairness_gap(metric, y, h, sensitive_features=a, absolute=False)

    whole = reveal_through_metric(oracle, metric, y, 30, signed=True)
    assert whole.verified
    known = []
    for after in range(1, whole.n_queries):
        found = reveal_through_metric(Stops(oracle, after), metric, y, 30, signed=True)
        assert found.n_queries == after
        assert not found.verified
        assert any("no budget left" in message for message in found.messages)
        assert np.array_equal(found.attributes[found.determined], a[found.determined])
        assert np.all(found.scores[~found.determined] == 0.5)
        known.append(int(found.determined.sum()))
    assert known[0] <= 2
    assert known[-1] > 0


@pytest.mark.parametrize(("hard_labels", "n", "least"), [(False, 150, 88), (True, 24, 1)])
def test_groups_read_before_an_oracle_stops_are_kept(hard_labels, n, least):
    groups = np.random.default_rng(3).permutation(np.arange(n) % 5 % 3)

    def oracle(h):
        return {g: h[groups == g].mean() for g in range(3)}

    whole = reveal_groups(oracle, n, hard_labels=hard_labels)
    assert whole.verified
    assert np.array_equal(whole.codes, groups)
    assert whole.max_shift == (1.0 if hard_labels else 0.5)
    known = []
    for after in range(max(1, whole.n_queries - 12), whole.n_queries):
        found = reveal_groups(Stops(oracle, after), n, hard_labels=hard_labels)
        assert found.n_queries == after
        assert not found.verified
        assert "no budget left" in found.messages[0]
        assert np.array_equal(found.codes[found.determined], groups[found.determined])
        known.append(int(found.determined.sum()))
    assert known[-1] >= least
    with pytest.raises(OracleStopped, match="no budget left"):
        reveal_groups(Stops(oracle, 0), n, hard_labels=hard_labels)


def test_people_read_by_the_largest_difference_before_an_oracle_stops_are_kept():
    groups = np.random.default_rng(3).permutation(np.arange(60) % 5 % 3)

    def oracle(h):
        return np.ptp([h[groups == g].mean() for g in range(3)])

    whole = reveal_groups_by_difference(oracle, 60)
    assert whole.verified
    for after in range(1, whole.n_queries):
        found = reveal_groups_by_difference(Stops(oracle, after), 60)
        assert found.n_queries == after
        assert found.determined.any()
        assert np.array_equal(found.codes[found.determined], whole.codes[found.determined])
    with pytest.raises(OracleStopped, match="no budget left"):
        reveal_groups_by_difference(Stops(oracle, 0), 60)


@pytest.mark.parametrize("metric", ["statistical_parity", "by_group", "group_difference"])
@pytest.mark.parametrize("limit", ["max_shift", "max_accuracy_loss"])
def test_limits_that_cannot_be_honoured_are_refused_before_any_query(metric, limit):
    oracle = Stops(lambda h: 0.0, 0)
    with pytest.raises(ValueError, match=f"{limit}=0.1 cannot be honoured"):
        reveal_through_metric(oracle, metric, None, 30, **{limit: 0.1})


def test_shift_and_accuracy_are_measured_against_the_base_model():
    y, a = audit(30, 0.3, 1)
    base = np.full(30, 0.5)

    def oracle(h):
        return fm.demographic_parity_difference(y, h, sensitive_features=a)

    found = reveal_through_metric(oracle, "statistical_parity", y, 30, base=y)
    losses = [float(np.mean(h != y)) for h in found.queries]
    assert found.accuracy_loss == pytest.approx(max(losses))
    assert found.max_shift == 1.0
    assert reveal_through_metric(oracle, "statistical_parity", y, 30, base=base).max_shift == 0.5
    with pytest.raises(ValueError, match="30 predictions"):
        reveal_through_metric(oracle, "statistical_parity", y, 30, base=base[:9])
