"""Exact metrics against fairlearn's own functions and hand-worked values."""

import fairlearn.metrics as fm
import numpy as np
import pandas as pd
import pytest
from fairlearn.reductions import AbsoluteLoss, SquareLoss
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, precision_score

from sklearn_fairleak import leakage_score
from sklearn_fairleak import metrics as ours


def draw(seed, n=300, groups=3, weights=False):
    rng = np.random.default_rng(seed)
    y, p = rng.integers(0, 2, n), rng.integers(0, 2, n)
    a = rng.choice(list("abcdef")[:groups], n)
    w = rng.random(n) if weights else None
    return y, p, a, w


@pytest.mark.parametrize("groups", [2, 3, 5])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("statistical_parity_difference", fm.demographic_parity_difference),
        ("equal_opportunity_difference", fm.equal_opportunity_difference),
        ("equalized_odds_difference", fm.equalized_odds_difference),
    ],
)
def test_differences_equal_fairlearn(name, peer, groups, weights):
    for seed in range(5):
        y, p, a, w = draw(seed, groups=groups, weights=weights)
        value = getattr(ours, name)(y, p, sensitive_features=a, sample_weight=w)
        assert value == pytest.approx(peer(y, p, sensitive_features=a, sample_weight=w), abs=1e-12)


@pytest.mark.parametrize(
    ("metric", "peer"),
    [
        ("statistical_parity", fm.demographic_parity_ratio),
        ("equal_opportunity", fm.equal_opportunity_ratio),
        ("equalized_odds", fm.equalized_odds_ratio),
    ],
)
def test_ratios_equal_fairlearn(metric, peer):
    for seed in range(5):
        y, p, a, w = draw(seed, weights=True)
        value = ours.fairness_ratio(metric, y, p, sensitive_features=a, sample_weight=w)
        assert value == pytest.approx(peer(y, p, sensitive_features=a, sample_weight=w), abs=1e-12)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize(
    ("metric", "base"),
    [
        ("false_positive_rate_parity", fm.false_positive_rate),
        ("accuracy_parity", accuracy_score),
        ("predictive_parity", precision_score),
        (
            "negative_predictive_parity",
            lambda y, p, sample_weight=None: precision_score(1 - y, 1 - p, sample_weight=sample_weight),
        ),
    ],
)
def test_other_metrics_equal_a_metric_frame(metric, base, weights):
    for seed in range(5):
        y, p, a, w = draw(seed, weights=weights)
        frame = fm.MetricFrame(
            metrics=base,
            y_true=y,
            y_pred=p,
            sensitive_features=a,
            sample_params=None if w is None else {"sample_weight": w},
        )
        value = ours.fairness_gap(metric, y, p, sensitive_features=a, sample_weight=w)
        assert value == pytest.approx(frame.difference(), abs=1e-12)


@pytest.mark.parametrize(("loss", "peer"), [("absolute", AbsoluteLoss), ("squared", SquareLoss)])
def test_bounded_loss_equals_fairlearn_losses(loss, peer):
    rng = np.random.default_rng(0)
    y, p, a = rng.normal(size=200), rng.normal(size=200), rng.choice(["f", "m"], 200)
    losses = pd.Series(peer(-1, 1.5).eval(pd.Series(y), pd.Series(p)))
    means = losses.groupby(a).mean()
    value = ours.bounded_loss_parity_difference(y, p, sensitive_features=a, bounds=(-1, 1.5), loss=loss)
    assert value == pytest.approx(means.max() - means.min(), abs=1e-12)


def test_probabilities_give_mean_predictions():
    rng = np.random.default_rng(1)
    p, a = rng.random(100), rng.choice(["f", "m"], 100)
    frame = fm.MetricFrame(metrics=fm.mean_prediction, y_true=p, y_pred=p, sensitive_features=a)
    value = ours.statistical_parity_difference(None, p, sensitive_features=a, absolute=False)
    assert value == pytest.approx(frame.by_group["m"] - frame.by_group["f"], abs=1e-12)


def test_signed_gap_follows_the_advantaged_group():
    kwargs = {"sensitive_features": ["f", "f", "m", "m"], "absolute": False}
    assert ours.fairness_gap("statistical_parity", None, [1, 0, 0, 0], **kwargs) == -0.5
    assert ours.fairness_gap("statistical_parity", None, [1, 0, 0, 0], advantaged="f", **kwargs) == 0.5


def test_signed_gap_of_three_groups_is_refused_by_the_number_of_labels():
    with pytest.raises(ValueError, match="exactly 2 groups, got 3 group labels"):
        ours.fairness_gap(
            "statistical_parity", None, [1, 0, 1], sensitive_features=list("abc"), absolute=False
        )


def test_signed_equalized_odds_keeps_the_sign_of_the_worst_part():
    y, p, a = [1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0], ["f", "m", "f", "f", "m", "m"]
    assert ours.fairness_gap("equalized_odds", y, p, sensitive_features=a, absolute=False) == -1.0


def test_ratio_is_one_where_every_group_value_is_zero():
    assert ours.fairness_ratio("statistical_parity", None, [0] * 4, sensitive_features=[0, 0, 1, 1]) == 1.0


def test_exact_metric_of_an_empty_group_is_refused():
    with pytest.raises(ValueError, match="undefined"):
        ours.equal_opportunity_difference([1, 1, 0], [1, 0, 1], sensitive_features=["f", "f", "m"])


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60))
@settings(max_examples=100, deadline=None)
def test_leakage_is_balanced_accuracy(pairs):
    truth, guess = map(list, zip(*pairs, strict=True))
    shares = [np.mean([g == t for t, g in pairs if t == label]) for label in (False, True) if label in truth]
    assert leakage_score(truth, guess) == pytest.approx(np.mean(shares))


@pytest.mark.parametrize("bad", [([0, 1], [0, 1, 1]), ([], []), ([[0, 1]], [[0, 1]])])
def test_leakage_refuses_columns_that_do_not_match(bad):
    with pytest.raises(ValueError, match="same length"):
        leakage_score(*bad)
