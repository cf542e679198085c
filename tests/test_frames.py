"""PrivateMetricFrame against fairlearn's MetricFrame, and its privacy over all neighbours."""

from __future__ import annotations

import warnings
from fractions import Fraction
from functools import partial
from itertools import product

import fairlearn.metrics as fl
import numpy as np
import pandas as pd
import pytest
import sklearn.metrics as sk

from sklearn_fairleak import NotPrivateWarning, PrivacyBudgetExceeded, PrivacyLedger, PrivateMetricFrame
from sklearn_fairleak.group_metrics import describe_metric
from sklearn_fairleak.mechanisms import NoisySums
from sklearn_fairleak.sum_release import SharedSums

METRICS = {
    "rate": fl.selection_rate,
    "tpr": fl.true_positive_rate,
    "fpr": fl.false_positive_rate,
    "accuracy": sk.accuracy_score,
    "balanced": sk.balanced_accuracy_score,
    "precision": sk.precision_score,
    "f2": partial(sk.fbeta_score, beta=2.0),
    "loss": sk.zero_one_loss,
    "count": fl.count,
    "mean": fl.mean_prediction,
}
rng = np.random.default_rng(0)
N = 900
Y, P, W = rng.integers(0, 2, N), rng.integers(0, 2, N), rng.random(N)
SEX, RACE, CITY = (rng.choice(labels, N) for labels in (["f", "m"], ["a", "b", "c"], ["x", "y"]))
FEATURES = {
    "two": pd.Series(SEX, name="sex"),
    "three": RACE,
    "crossed": pd.DataFrame({"sex": SEX, "race": RACE}),
}


def same(ours, theirs, tolerance):
    if isinstance(theirs, pd.DataFrame):
        pd.testing.assert_frame_equal(
            ours.astype(float), theirs.astype(float), rtol=tolerance, atol=tolerance
        )
    elif isinstance(theirs, pd.Series):
        pd.testing.assert_series_equal(
            ours.astype(float), theirs.astype(float), rtol=tolerance, atol=tolerance
        )
    else:
        assert ours == pytest.approx(theirs, abs=tolerance)


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("control", [None, CITY], ids=["whole", "control"])
@pytest.mark.parametrize("metrics", [METRICS, fl.selection_rate], ids=["several", "one"])
@pytest.mark.parametrize("mechanism", ["exact", "noisy_sums"])
def test_values_without_noise_equal_fairlearn(feature, control, metrics, mechanism):
    weights = {"sample_weight": W}
    options = {
        "metrics": metrics,
        "y_true": Y,
        "y_pred": P,
        "sensitive_features": FEATURES[feature],
        "control_features": control,
        "sample_params": {"rate": weights, "f2": weights} if isinstance(metrics, dict) else weights,
    }
    theirs = fl.MetricFrame(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = PrivateMetricFrame(mechanism=mechanism, epsilon=1e7, **options)
    tolerance = 0.0 if mechanism == "exact" else 2e-5
    same(ours.overall, theirs.overall, 1e-12)
    same(ours.by_group, theirs.by_group, tolerance)
    for aggregate in ("difference", "ratio"):
        for method in ("between_groups", "to_overall"):
            ours_value, theirs_value = (getattr(frame, aggregate)(method=method) for frame in (ours, theirs))
            same(ours_value, theirs_value, tolerance)
    same(ours.group_min(), theirs.group_min(), tolerance)
    same(ours.group_max(), theirs.group_max(), tolerance)
    assert ours.control_levels == theirs.control_levels
    assert ours.sensitive_levels == theirs.sensitive_levels


def test_losses_with_public_bounds_equal_fairlearn():
    y, p = rng.random(N) * 10, rng.random(N) * 10
    metrics = {"mae": sk.mean_absolute_error, "mse": sk.mean_squared_error}
    theirs = fl.MetricFrame(metrics=metrics, y_true=y, y_pred=p, sensitive_features=SEX)
    with pytest.warns(UserWarning, match="barely protects"):
        ours = PrivateMetricFrame(
            metrics=metrics, y_true=y, y_pred=p, sensitive_features=SEX, bounds=(0, 10), epsilon=1e7
        )
    same(ours.by_group, theirs.by_group, 1e-4)


@pytest.mark.parametrize("n_statuses", [2, 3])
def test_any_neighbour_costs_at_most_epsilon(n_statuses):
    n, epsilon = 6, Fraction(7, 10)
    draw = np.random.default_rng(3)
    y, p, w, q = draw.integers(0, 2, n), np.array([0, 1, 1, 0, 1, 0]), draw.random(n), draw.random(n)
    metrics = [
        describe_metric(fl.true_positive_rate, y, p),
        describe_metric(sk.accuracy_score, y, p, weights=w),
        describe_metric(fl.mean_prediction, y, q, weights=w),
        describe_metric(fl.count, y, p),
    ]
    shared = SharedSums(metrics)
    scales = shared.scales(epsilon, n_statuses)
    released = range(1, 2) if n_statuses == 2 else range(n_statuses)
    worst = Fraction(0)
    for codes in product(range(n_statuses), repeat=n):
        before = np.array(codes)
        sums = [shared.whole_sums(before == group) for group in released]
        for person, new in product(range(n), range(n_statuses)):
            after = before.copy()
            after[person] = new
            cost = Fraction(0)
            for group, old in zip(released, sums, strict=True):
                moved = np.abs(shared.whole_sums(after == group) - old)
                cost += sum((Fraction(int(m)) / b for m, b in zip(moved, scales, strict=True)), Fraction(0))
            worst = max(worst, cost)
    assert epsilon * Fraction(8, 10) < worst <= epsilon


def test_metrics_of_the_confusion_matrix_share_one_unit_of_sensitivity():
    described = [describe_metric(METRICS[name], Y, P) for name in ("rate", "tpr", "fpr", "accuracy", "count")]
    shared = SharedSums(described)
    assert shared.rows.shape[0] == 4
    assert set(shared.scales(Fraction(1), 2)) == {Fraction(1)}


def test_a_frame_is_one_charge_to_everyone():
    ledger = PrivacyLedger(epsilon=1.0)
    options = {"metrics": METRICS, "y_true": Y, "y_pred": P, "sensitive_features": SEX, "ledger": ledger}
    first = PrivateMetricFrame(epsilon=0.75, **options)
    assert float(ledger.remaining()) == 0.25
    again = PrivateMetricFrame(epsilon=0.75, **options)
    assert again.replayed
    same(again.by_group, first.by_group, 0.0)
    with pytest.raises(PrivacyBudgetExceeded):
        PrivateMetricFrame(epsilon=0.5, **options)


def test_unsupported_metric_names_the_supported_ones():
    with pytest.raises(ValueError, match="selection_rate"):
        PrivateMetricFrame(metrics=sk.roc_auc_score, y_true=Y, y_pred=P, sensitive_features=SEX)


def test_string_labels_need_the_positive_one():
    words = np.where(P == 1, "yes", "no")
    options = {"metrics": fl.selection_rate, "y_true": words, "y_pred": words, "sensitive_features": SEX}
    with pytest.raises(ValueError, match="pos_label"):
        PrivateMetricFrame(**options)
    assert PrivateMetricFrame(pos_label="yes", **options).overall == pytest.approx(P.mean())


def test_rate_of_nobody_is_not_zero():
    y = np.where(SEX == "f", 0, Y)
    with pytest.warns(NotPrivateWarning):
        frame = PrivateMetricFrame(
            metrics=fl.true_positive_rate, y_true=y, y_pred=P, sensitive_features=SEX, mechanism="exact"
        )
    assert np.isnan(frame.by_group["f"])
    assert not np.isnan(frame.by_group["m"])


def test_declared_but_empty_groups_appear():
    with pytest.warns(NotPrivateWarning):
        frame = PrivateMetricFrame(
            metrics=fl.selection_rate,
            y_true=Y,
            y_pred=P,
            sensitive_features=SEX,
            groups=["f", "m", "x"],
            random_state=0,
        )
    assert list(frame.by_group.index) == ["f", "m", "x"]
    # Whatever a rate of nobody is taken for, it is within the limits with high probability.
    low, high = frame.interval(0.999)
    assert low["x"] == 0.0
    assert high["x"] == 1.0


def test_pandas_inputs_are_matched_by_label():
    index = [f"p{i}" for i in range(N)]
    p, y, sex = (pd.Series(column, index=index) for column in (P, Y, SEX))
    with pytest.warns(NotPrivateWarning):
        frame = PrivateMetricFrame(
            metrics=fl.selection_rate, y_true=y, y_pred=p, sensitive_features=sex[::-1], mechanism="exact"
        )
    same(
        frame.by_group,
        fl.MetricFrame(
            metrics=fl.selection_rate, y_true=Y, y_pred=P, sensitive_features=SEX
        ).by_group.rename_axis(frame.by_group.index.name),
        0.0,
    )
    with pytest.raises(ValueError, match="index"):
        PrivateMetricFrame(
            metrics=fl.selection_rate, y_true=y, y_pred=p, sensitive_features=sex.rename(lambda i: i + "x")
        )


def test_difference_of_equal_groups_is_nearly_unbiased():
    race = np.repeat(list("abcd"), 50)
    errors = []
    for seed in range(40):
        with pytest.warns(NotPrivateWarning):
            frame = PrivateMetricFrame(
                metrics=fl.selection_rate,
                y_true=np.ones(200),
                y_pred=np.tile([0, 1], 100),
                sensitive_features=race,
                groups=list("abcd"),
                random_state=seed,
            )
        assert frame.group_max() - frame.group_min() == pytest.approx(frame.difference(), abs=1e-9)
        assert frame.ratio() == pytest.approx(frame.group_min() / frame.group_max(), abs=1e-9)
        spread = frame.by_group.max() - frame.by_group.min()
        errors.append((spread, frame.difference(), 1 - frame.ratio()))
    naive, corrected, ratio = np.mean(errors, axis=0)
    assert corrected < naive / 2
    assert ratio < naive


@pytest.mark.parametrize("control", [None, CITY], ids=["whole", "control"])
@pytest.mark.parametrize("mechanism", ["noisy_sums", "randomized_response", NoisySums("gaussian")])
def test_limits_have_the_shape_of_results_and_hold_exact_ones(control, mechanism):
    options = {
        "metrics": {name: METRICS[name] for name in ("tpr", "balanced", "f2", "count")},
        "y_true": Y,
        "y_pred": P,
        "sensitive_features": pd.Series(SEX, name="sex"),
        "control_features": control,
    }
    theirs = fl.MetricFrame(**options)
    with pytest.warns(NotPrivateWarning):
        ours = PrivateMetricFrame(mechanism=mechanism, delta=1e-6, epsilon=2.0, random_state=1, **options)
    results = [("by_group", None), ("overall", None), ("group_min", None), ("group_max", None)]
    results += [(what, m) for what in ("difference", "ratio") for m in ("between_groups", "to_overall")]
    for what, method in results:
        exact = getattr(theirs, what)
        if what not in ("by_group", "overall"):
            exact = exact(method=method) if method else exact()
        widths = []
        for sampling in (False, True):
            low, high = ours.interval(0.999, what, method=method or "between_groups", sampling=sampling)
            assert low.index.equals(exact.index)
            low, high, value = (np.asarray(x, dtype=float) for x in (low, high, exact))
            assert np.all((low <= value + 1e-9) & (value <= high + 1e-9))
            widths.append(high - low)
        assert np.mean(widths[1] >= widths[0] - 1e-9) > 0.9


def test_sampling_limits_of_public_values_are_binomial():
    frame = PrivateMetricFrame(metrics=fl.selection_rate, y_true=Y, y_pred=P, sensitive_features=SEX)
    low, high = frame.interval(0.95, "overall", sampling=True)
    reach = 1.96 * (P.mean() * (1 - P.mean()) / N) ** 0.5
    assert high - low == pytest.approx(2 * reach, rel=0.02)
    assert frame.interval(0.95, "overall") == (frame.overall, frame.overall)


def test_exact_frames_know_no_sampling_limits():
    with pytest.warns(NotPrivateWarning):
        frame = PrivateMetricFrame(
            metrics=fl.selection_rate, y_true=Y, y_pred=P, sensitive_features=SEX, mechanism="exact"
        )
    with pytest.raises(ValueError, match="n_boot"):
        frame.interval(sampling=True)


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ["noisy_sums", "randomized_response", NoisySums("gaussian")])
@pytest.mark.parametrize("feature", ["two", "three"])
def test_intervals_cover(mechanism, feature):
    metrics = {name: METRICS[name] for name in ("tpr", "balanced")}
    options = {"metrics": metrics, "y_true": Y, "y_pred": P, "sensitive_features": FEATURES[feature]}
    options["groups"] = None if feature == "two" else ["a", "b", "c"]
    truth = fl.MetricFrame(**{name: value for name, value in options.items() if name != "groups"})
    trials, hits = 80, {}
    for seed in range(trials):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = PrivateMetricFrame(mechanism=mechanism, delta=1e-6, random_state=seed, **options)
        for what in ("by_group", "difference", "ratio", "group_min", "group_max"):
            low, high = frame.interval(0.9, what)
            exact = truth.by_group if what == "by_group" else getattr(truth, what)()
            inside = ((low <= exact + 1e-9) & (exact <= high + 1e-9)).to_numpy()
            hits.setdefault(what, []).append(inside.reshape(-1, len(metrics)).mean(axis=0))
    for found in hits.values():
        # 4 standard errors below 90 %, and not much above.
        error = 4 * (0.9 * 0.1 / trials) ** 0.5
        assert np.all(np.mean(found, axis=0) > 0.9 - error)
        assert np.all(np.mean(found, axis=0) < 0.92 + error)


def test_plot_draws_error_bars():
    pytest.importorskip("matplotlib").use("Agg")
    frame = PrivateMetricFrame(metrics=METRICS, y_true=Y, y_pred=P, sensitive_features=SEX)
    axes = np.ravel(frame.plot())
    assert len(axes) == len(METRICS)
    assert all(len(ax.containers) == 1 for ax in axes)


@pytest.mark.filterwarnings("ignore:The frame is not private")
@pytest.mark.parametrize("shape", [lambda v: pd.DataFrame({"y": v}), lambda v: np.asarray(v)[:, None]])
def test_labels_and_predictions_may_be_tables_of_one_column(shape):
    y_true, y_pred, groups = [0, 1] * 50, [0, 1, 1, 1] * 25, ["f", "m"] * 50
    frames = [
        PrivateMetricFrame(
            metrics=fl.true_positive_rate,
            y_true=form(y_true),
            y_pred=form(y_pred),
            sensitive_features=groups,
            mechanism="exact",
        )
        for form in (list, shape)
    ]
    pd.testing.assert_series_equal(frames[0].by_group, frames[1].by_group)
    with pytest.raises(ValueError, match="1-D column"):
        PrivateMetricFrame(
            metrics=fl.true_positive_rate,
            y_true=np.zeros((100, 2)),
            y_pred=y_pred,
            sensitive_features=groups,
            mechanism="exact",
        )
