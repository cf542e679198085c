"""Displays draw what they are given."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import selection_rate, true_positive_rate

from sklearn_fairleak import AttributeRevealAttack, FairnessAuditor, PrivateMetricFrame
from sklearn_fairleak.displays import (
    GroupMetricDisplay,
    LeakageCurveDisplay,
    LedgerDisplay,
    PrivacyUtilityDisplay,
    ReconstructionDisplay,
)
from sklearn_fairleak.planning import plan

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def test_leakage_curves_from_results_and_from_an_estimator():
    results = pd.DataFrame(
        {"queries": [10, 20, 10, 20], "attack": list("aabb"), "leakage": [0.5, 0.9, 0.6, 1.0]}
    )
    display = LeakageCurveDisplay.from_results(results)
    curves = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in display.ax_.lines}
    assert curves["a"] == [0.5, 0.9]
    assert curves["b"] == [0.6, 1.0]
    rng = np.random.default_rng(0)
    race, base = rng.integers(0, 2, 40), rng.random(40)
    display = LeakageCurveDisplay.from_estimator(
        AttributeRevealAttack("compressed_sensing", random_state=0),
        lambda h: h[race == 1].mean() - h[race == 0].mean(),
        base,
        race,
        n_queries=[4, 39],
        ax=display.ax_,
    )
    assert display.leakage["compressed_sensing"][1] == 1.0
    with pytest.raises(ValueError, match="one value for each"):
        LeakageCurveDisplay([1, 2], {"a": [1.0]})


def test_privacy_utility_curves_are_the_plan():
    display = PrivacyUtilityDisplay.from_plan(1000, epsilon=(0.5, 1.0), delta=1e-6)
    line = next(line for line in display.ax_.lines if line.get_label() == "laplace")
    assert np.asarray(line.get_ydata()).tolist() == [
        plan(1000, epsilon=e, delta=1e-6).loc["laplace", "expected_error"] for e in (0.5, 1.0)
    ]
    assert "smooth_laplace" in display.error
    table = pd.DataFrame({"epsilon": [1, 1, 2], "mechanism": list("aaa"), "error": [0.1, 0.3, 0.1]})
    assert PrivacyUtilityDisplay.from_results(table).error["a"].tolist() == pytest.approx([0.2, 0.1])


def test_reconstruction_shows_every_person_once():
    scores, truth = np.array([0.9, 0.1, 0.5, 0.7]), np.array([1, 0, 0, 1])
    display = ReconstructionDisplay.from_predictions(truth, scores)
    drawn = {line.get_label(): sorted(line.get_ydata()) for line in display.ax_.lines}
    assert drawn["true group 0"] == [0.1, 0.5]
    assert drawn["true group 1"] == [0.7, 0.9]
    with pytest.raises(ValueError, match="same length"):
        ReconstructionDisplay(scores, truth[:-1])


def test_ledger_shows_quantiles_of_what_was_spent():
    ids = [f"p{i}" for i in range(100)]
    auditor = FairnessAuditor(["b", "w"] * 50, ids=ids, epsilon=1.0)
    scorer = auditor.scorer(n_queries=4)
    scorer.answer(np.arange(100) % 2)
    scorer.answer(np.arange(50) % 2, sample_ids=ids[:50])
    display = LedgerDisplay.from_ledger(auditor.ledger)
    assert sorted(set(display.spent.tolist())) == [0.25, 0.5]
    assert display.answers.tolist() == [0.25, 0.25]


def test_group_values_have_their_intervals():
    display = GroupMetricDisplay(["a", "b"], [0.2, 0.4], [[0.1, 0.3], [0.3, 0.6]], metric="rate").plot()
    assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == ["a", "b"]
    segments = display.ax_.containers[0].lines[2][0].get_segments()
    assert np.allclose([s[:, 1] for s in segments], [[0.1, 0.3], [0.3, 0.6]])
    with pytest.raises(ValueError, match="2 groups and 1 values"):
        GroupMetricDisplay(["a", "b"], [0.1])


@pytest.mark.parametrize("metric", [None, "rate"])
def test_a_frame_is_drawn_with_its_own_limits(metric):
    kind = selection_rate if metric is None else {"rate": selection_rate, "other": true_positive_rate}
    frame = PrivateMetricFrame(
        metrics=kind,
        y_true=[0, 1] * 200,
        y_pred=[0, 1, 1, 1] * 100,
        sensitive_features=["f", "m"] * 200,
    )
    display = GroupMetricDisplay.from_frame(frame, metric, confidence=0.9)
    values, limits = frame.by_group, frame.interval(0.9)
    if metric is not None:
        values, limits = values[metric], [limit[metric] for limit in limits]
    assert display.groups == ["f", "m"]
    np.testing.assert_array_equal(display.values, values)
    np.testing.assert_array_equal(display.intervals, np.column_stack(limits))
    if metric is not None:
        with pytest.raises(ValueError, match="several metrics"):
            GroupMetricDisplay.from_frame(frame)
