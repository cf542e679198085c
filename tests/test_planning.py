"""Expected errors are those that auditors of real data make."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from sklearn_fairleak import FairnessAuditor, NotPrivateWarning
from sklearn_fairleak.datasets import load_adult
from sklearn_fairleak.planning import plan, ways_to_reach


@pytest.fixture(scope="module")
def adult():
    """Race of 1000 people, and the labels that ten near-identical models predict for them."""
    data = load_adult(subset="train")
    X = data.data.select_dtypes("number").to_numpy(dtype=float)
    X = StandardScaler().fit_transform(X)
    race = (np.asarray(data.sensitive_features) == np.unique(data.sensitive_features)[-1]).astype(int)
    rng = np.random.default_rng(0)
    some = rng.permutation(len(X))[:1000]
    labels = []
    for _ in range(10):
        train = rng.permutation(len(X))[:2000]
        model = LogisticRegression().fit(X[train], np.asarray(data.target)[train])
        labels.append(model.predict_proba(X[some])[:, 1] > 0.4)
    return race[some], np.array(labels, dtype=float)


def measured(race, H, mechanism, *, n_queries=1, epsilon=1.0, delta=0.0, repeats=200):
    """Mean error of fresh auditors' answers about one model, or about all of them at once."""
    truth = H[:, race == 1].mean(axis=1) - H[:, race == 0].mean(axis=1)
    errors = []
    for seed in range(repeats):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            warnings.simplefilter("ignore", UserWarning)
            auditor = FairnessAuditor(
                race, ids=np.arange(race.size) + 1, epsilon=epsilon, delta=delta, random_state=seed
            )
            scorer = auditor.scorer(mechanism=mechanism, n_queries=n_queries, absolute=False)
            errors.append(np.abs(scorer.answer_many(H).values - truth))
    return float(np.mean(errors))


def test_the_same_guesses_give_the_same_plan():
    first, again = (plan(300, n_queries=3, delta=1e-6) for _ in range(2))
    assert first.equals(again)
    assert {"smooth_laplace", "noisy_sums, gaussian"} <= set(first.index)
    assert not first.loc["exact", "private"]


def test_errors_of_large_audits_follow_from_smaller_ones():
    table = plan(2 * 10**6)["expected_error"]
    smaller = plan(50_000)["expected_error"]
    # Noise on sums does not depend on the number of people; a private copy's grows like its root.
    assert table["noisy_sums"] == pytest.approx(smaller["noisy_sums"] / 40, rel=0.01)
    assert table["randomized_response"] == pytest.approx(smaller["randomized_response"] / 40**0.5, rel=0.01)


def test_what_suffices_suffices():
    guesses = {"n_queries": 6, "minority_share": 0.2}
    ways = ways_to_reach(0.02, 800, **guesses)
    assert ways["expected_error"] == plan(800, **guesses).loc["auto", "expected_error"]
    reached = plan(800, **guesses | {"epsilon": ways["epsilon"]}).loc["auto", "expected_error"]
    assert reached == pytest.approx(0.02, rel=0.15)
    assert plan(ways["n_samples"], **guesses).loc["auto", "expected_error"] == pytest.approx(0.02, rel=0.15)
    assert plan(800, **guesses | {"n_queries": ways["n_queries"]}).loc["auto", "expected_error"] <= 0.023
    assert ways["jointly"] == plan(800, n_models=6, minority_share=0.2).loc["auto", "expected_error"]


def test_one_thing_alone_may_not_suffice():
    assert ways_to_reach(0.01, 100, n_queries=5)["n_queries"] is None
    assert ways_to_reach(1e-8, 10**5)["n_samples"] is None
    assert ways_to_reach(0.9, 50, n_queries=2)["n_queries"] == 2


@pytest.mark.parametrize(
    ("guess", "value"),
    [
        ("n_samples", 1),
        ("n_queries", 0),
        ("epsilon", 0.0),
        ("epsilon", float("nan")),
        ("delta", 1.0),
        ("minority_share", 0.7),
        ("positive_rate", 0.0),
        ("disagreement", 1.5),
    ],
)
def test_impossible_guesses_are_named(guess, value):
    with pytest.raises(ValueError, match=guess):
        plan(**{"n_samples": 100} | {guess: value})


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("n_models", "n_queries", "epsilon", "delta"),
    [(1, 1, 1.0, 1e-6), (1, 10, 1.0, 0.0), (10, 1, 5.0, 0.0)],
)
def test_expected_errors_are_those_measured_on_adult(adult, n_models, n_queries, epsilon, delta):
    race, H = adult
    H = H[:n_models]
    share = min(race.mean(), 1 - race.mean())
    rate = H.mean(axis=0)
    table = plan(
        race.size,
        n_queries=n_queries,
        n_models=n_models,
        epsilon=epsilon,
        delta=delta,
        minority_share=share,
        positive_rate=H.mean(),
        disagreement=float(np.minimum(rate, 1 - rate).mean()),
    )["expected_error"]
    for mechanism in ("auto", "noisy_sums", "randomized_response", "attribute_conceal", "laplace"):
        found = measured(race, H, mechanism, n_queries=n_queries, epsilon=epsilon, delta=delta)
        assert table[mechanism] == pytest.approx(found, rel=0.15), mechanism
