"""Private versions of fairlearn's scalar metrics equal the originals without noise."""

from __future__ import annotations

import fairlearn.metrics as fl
import numpy as np
import pytest
import sklearn
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import cross_validate

from sklearn_fairleak import NotPrivateWarning, PrivacyBudgetExceeded, PrivacyLedger, make_private_metric

NAMED = [
    f"{family}_{transform}"
    for family in ("demographic_parity", "equalized_odds", "equal_opportunity")
    for transform in ("difference", "ratio")
    if hasattr(fl, f"{family}_{transform}")
]


def data(n=600, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, n), rng.integers(0, 2, n), rng.choice(["a", "b", "c"], n)


def exact(metric):
    return make_private_metric(metric, mechanism="exact")


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("method", ["between_groups", "to_overall"])
def test_exact_version_equals_fairlearn(name, method):
    y, p, g = data()
    options = {"method": method}
    original = getattr(fl, name)
    settings = [options]
    if name.startswith("equalized"):
        settings = [{**options, "agg": agg} for agg in ("worst_case", "mean")]
    for chosen in settings:
        with pytest.warns(NotPrivateWarning):
            value = exact(original)(y, p, sensitive_features=g, **chosen)
        assert value == pytest.approx(original(y, p, sensitive_features=g, **chosen), abs=1e-12)


@pytest.mark.parametrize("transform", ["difference", "ratio", "group_min", "group_max"])
def test_derived_metrics_equal_fairlearn(transform):
    y, p, g = data()
    w = np.random.default_rng(1).random(y.size)
    derived = fl.make_derived_metric(
        metric=accuracy_score, transform=transform, sample_param_names=["sample_weight"]
    )
    with pytest.warns(NotPrivateWarning):
        value = exact(derived)(y, p, sensitive_features=g, sample_weight=w)
    assert value == pytest.approx(derived(y, p, sensitive_features=g, sample_weight=w), abs=1e-12)


def test_unsupported_metric_names_the_supported_ones():
    with pytest.raises(ValueError, match="demographic_parity_difference"):
        make_private_metric(accuracy_score)


@pytest.mark.parametrize("option", [{"method": "no"}, {"agg": "no"}])
def test_unknown_option_is_refused(option):
    y, p, g = data()
    private = make_private_metric(fl.demographic_parity_difference, groups=["a", "b", "c"])
    with pytest.raises(ValueError, match="must be one of"):
        private(y, p, sensitive_features=g, **option)


def test_calls_share_a_ledger():
    y, p, g = data()
    private = make_private_metric(
        fl.demographic_parity_difference, groups=["a", "b", "c"], ledger=PrivacyLedger(epsilon=1.0)
    )
    first = private(y, p, sensitive_features=g)
    assert private(y, p, sensitive_features=g) == first
    with pytest.raises(PrivacyBudgetExceeded):
        private(y, 1 - p, sensitive_features=g)


def test_works_in_make_scorer():
    y, _, g = data()
    private = make_private_metric(fl.demographic_parity_difference, groups=["a", "b", "c"])
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(private, greater_is_better=False).set_score_request(sensitive_features=True)
        model = DummyClassifier(strategy="constant", constant=1).fit(y[:, None], y)
        routed = cross_validate(model, y[:, None], y, scoring=scorer, params={"sensitive_features": g})
        assert np.all((routed["test_score"] >= -1.0) & (routed["test_score"] <= 0.0))
