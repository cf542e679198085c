"""The attack as an estimator: strategies end to end, oracles of every kind, bad input."""

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_fairleak.attack import AttributeRevealAttack, NoiseLaw, Reconstruction
from sklearn_fairleak.attack.decoders import predict_gaps
from sklearn_fairleak.attack.designs import (
    balanced_flips,
    base_predictions,
    linear_design,
    perturbed_models,
    single_acceptances,
    size_probe,
)
from sklearn_fairleak.attack.probing import plan_attack
from sklearn_fairleak.attack.reductions import reduce_metric
from sklearn_fairleak.attack.transcript import OracleStopped, Transcript
from sklearn_fairleak.metrics import leakage_score


def population(n, n_disadvantaged, seed=0):
    rng = np.random.default_rng(seed)
    base = 1.0 / (1.0 + np.exp(1.5 - 1.8 * rng.normal(size=n)))
    attributes = np.ones(n, dtype=int)
    attributes[rng.choice(n, n_disadvantaged, replace=False)] = 0
    return base, attributes


class Oracle:
    """A statistical parity oracle that counts, and refuses what is no prediction."""

    def __init__(self, attributes, *, absolute=False, decimals=None, noise=None):
        self.attributes = attributes
        self.absolute = absolute
        self.decimals = decimals
        self.noise = noise
        self.calls = 0

    def __call__(self, y_pred):
        assert y_pred.min() >= 0
        assert y_pred.max() <= 1
        self.calls += 1
        gap = y_pred[self.attributes == 1].mean() - y_pred[self.attributes == 0].mean()
        gap = abs(gap) if self.absolute else gap
        gap = gap if self.noise is None else gap + self.noise()
        return gap if self.decimals is None else round(gap, self.decimals)


@parametrize_with_checks([AttributeRevealAttack()])
def test_scikit_learn_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("strategy", ["single", "double", "linear", "compressed_sensing"])
@pytest.mark.parametrize(("n", "n_disadvantaged"), [(3, 1), (20, 12), (100, 10)])
def test_strategies_reveal_everyone(strategy, n, n_disadvantaged):
    base, a = population(n, n_disadvantaged)
    oracle = Oracle(a)
    attack = AttributeRevealAttack(strategy, signed=True, random_state=0).run(oracle, base)
    assert attack.leakage(a) == 1.0
    assert attack.attributes_.tolist() == a.tolist()
    assert attack.group_sizes_ == (n_disadvantaged, n - n_disadvantaged)
    assert attack.reconstruction_.exact
    assert attack.reconstruction_.orientation_known
    assert attack.n_queries_ == oracle.calls
    assert attack.n_features_in_ == n


@pytest.mark.parametrize("strategy", ["single", "double", "linear", "compressed_sensing", "noisy"])
def test_design_then_fit_equals_the_oracle_round_trip(strategy):
    base, a = population(60, 20)
    attack = AttributeRevealAttack(
        strategy,
        signed=True,
        random_state=0,
        noise_law=NoiseLaw("laplace", 1e-4) if strategy == "noisy" else None,
    )
    H = attack.design(base)
    assert H.min() >= 0
    assert H.max() <= 1
    attack.fit(H, predict_gaps(H, a))
    assert attack.leakage(a) == 1.0
    new = np.random.default_rng(1).random((5, 60))
    np.testing.assert_allclose(attack.predict(new), predict_gaps(new, a), atol=1e-3)
    assert attack.score(new, predict_gaps(new, a)) > 0.99


def test_targets_alone_are_revealed():
    base, a = population(50, 10)
    wanted = np.flatnonzero(a == 0)[:2]
    for strategy, cost in (("single", 2), ("double", 3)):
        attack = AttributeRevealAttack(strategy, target=wanted).run(Oracle(a), base)
        assert attack.n_queries_ == cost
        assert np.flatnonzero(attack.reconstruction_.determined).tolist() == wanted.tolist()
        assert attack.attributes_[wanted].tolist() == [0, 0]
        others = np.setdiff1d(np.arange(50), wanted)
        assert np.all(attack.scores_[others] == 0.5)
        assert attack.group_sizes_ == (10, 40)


@pytest.mark.parametrize("strategy", ["double", "linear", "compressed_sensing", "absolute"])
@pytest.mark.parametrize(
    "limits", [{"stealth": True}, {"max_shift": 0.03}, {"max_shift": 0.01, "max_accuracy_loss": 0.0}]
)
def test_limits_on_the_submitted_models_are_honoured(strategy, limits):
    base, a = population(80, 20, seed=3)
    labels = (base + np.random.default_rng(0).normal(scale=0.3, size=80) > 0.5).astype(int)
    seen = []

    def oracle(h):
        seen.append(h)
        gap = h[a == 1].mean() - h[a == 0].mean()
        return abs(gap) if strategy == "absolute" else gap

    attack = AttributeRevealAttack(strategy, signed=None if strategy == "absolute" else True, **limits)
    attack.run(oracle, base, labels)
    found = attack.reconstruction_
    shift = max(np.abs(h - base).max() for h in seen)
    assert found.max_shift == pytest.approx(shift)
    assert shift <= limits.get("max_shift", 1e-5)
    loss = max(np.mean((base >= 0.5) == labels) - np.mean((h >= 0.5) == labels) for h in seen)
    assert found.accuracy_loss == pytest.approx(max(0.0, loss))
    assert loss <= limits.get("max_accuracy_loss", 1.0)
    assert found.verified
    assert max(attack.leakage(a), 1 - attack.leakage(a)) == 1.0


def test_hard_label_flips_stay_within_the_accuracy_limit():
    base, a = population(200, 30, seed=1)
    labels = (base + np.random.default_rng(0).normal(scale=0.3, size=200) > 0.5).astype(float)
    hard = (base >= 0.5).astype(float)
    H = balanced_flips(hard, labels, 50, 0.02, np.random.default_rng(0))
    assert set(np.unique(H)) == {0.0, 1.0}
    losses = np.mean(hard == labels) - np.mean(labels == H, axis=1)
    assert losses.max() <= 0.02 + 1e-12
    attack = AttributeRevealAttack(
        "compressed_sensing",
        hard_labels=True,
        max_accuracy_loss=0.02,
        n_queries=120,
        signed=True,
        random_state=0,
    ).run(Oracle(a), base, labels)
    assert attack.leakage(a) == 1.0
    assert attack.reconstruction_.accuracy_loss <= 0.02 + 1e-12


@pytest.mark.parametrize(("n_disadvantaged", "known"), [(10, True), (50, True), (50, False)])
def test_absolute_gaps_give_the_partition_and_sizes_name_it(n_disadvantaged, known):
    base, a = population(100, n_disadvantaged, seed=2)
    sizes = (n_disadvantaged, 100 - n_disadvantaged) if known else None
    attack = AttributeRevealAttack("absolute", group_sizes=sizes, random_state=0).run(
        Oracle(a, absolute=True), base
    )
    found = attack.reconstruction_
    assert found.exact
    assert max(attack.leakage(a), 1 - attack.leakage(a)) == 1.0
    assert found.orientation_known == (known and n_disadvantaged != 50)
    if found.orientation_known:
        assert attack.leakage(a) == 1.0


def test_absolute_gaps_around_a_fair_base_model():
    base, a = np.full(60, 0.5), population(60, 15)[1]
    attack = AttributeRevealAttack("absolute", group_sizes=(15, 45), random_state=0).run(
        Oracle(a, absolute=True), base
    )
    assert attack.leakage(a) == 1.0


@pytest.mark.parametrize(
    ("metric", "reached"),
    [
        ("equal_opportunity", lambda y: y == 1),
        ("false_positive_rate_parity", lambda y: y == 0),
        ("accuracy_parity", lambda y: y >= 0),
        ("bounded_loss_parity", lambda y: y >= 0),
    ],
)
def test_other_metrics_reach_whom_they_reach(metric, reached):
    base, a = population(90, 25, seed=4)
    labels = np.random.default_rng(0).integers(0, 2, 90)
    reach = reached(labels)
    hard = metric == "accuracy_parity"

    def oracle(h):
        value = {
            "accuracy_parity": (h == labels).astype(float),
            "bounded_loss_parity": np.abs(h - labels),
        }.get(metric, h)
        return value[reach & (a == 1)].mean() - value[reach & (a == 0)].mean()

    attack = AttributeRevealAttack("linear", metric=metric, hard_labels=hard, signed=True).run(
        oracle, base, labels
    )
    assert attack.attributes_[reach].tolist() == a[reach].tolist()
    assert np.all(attack.scores_[~reach] == 0.5)
    assert np.array_equal(attack.reconstruction_.determined, reach)
    new = np.random.default_rng(1).integers(0, 2, (4, 90)).astype(float)
    np.testing.assert_allclose(attack.predict(new), [oracle(h) for h in new], atol=1e-9)
    again = AttributeRevealAttack("linear", metric=metric, hard_labels=hard, signed=True)
    H = again.design(base, labels)
    again.fit(H, [oracle(h) for h in H], labels=labels)
    assert again.attributes_[reach].tolist() == a[reach].tolist()


@pytest.mark.parametrize(
    "metric",
    ["equalized_odds_difference", "demographic_parity_ratio", "equalized_odds_ratio"],
)
def test_metrics_that_are_not_linear_are_attacked_through_fairlearn(metric):
    import fairlearn.metrics

    _, a = population(60, 18, seed=6)
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 60)
    function = getattr(fairlearn.metrics, metric)

    def oracle(h):
        return function(labels, h, sensitive_features=a)

    attack = AttributeRevealAttack(metric=metric, hard_labels=True).run(oracle, rng.random(60), labels)
    found = attack.reconstruction_
    assert found.verified
    sure = found.determined
    assert sure.all() or found.messages
    # Each label's people are a partition of their own in equalised odds.
    for part in (labels == 1, labels == 0) if "odds" in metric else (labels >= 0,):
        guess, truth = attack.attributes_[part & sure], a[part & sure]
        assert np.array_equal(guess, truth) or np.array_equal(guess, 1 - truth)
    if leakage_score(a, attack.attributes_) in (0.0, 1.0):
        H = rng.integers(0, 2, (4, 60))
        np.testing.assert_allclose(attack.predict(H), [oracle(h) for h in H], atol=1e-12)
    with pytest.raises(ValueError, match="cannot be honoured"):
        AttributeRevealAttack(metric=metric, stealth=True).run(oracle, rng.random(60), labels)


def test_reductions_are_inverse_to_each_other():
    labels = np.array([1.0, 0.0, 1.0, 0.0])
    base = np.array([0.1, 0.2, 0.3, 0.4])
    for metric in ("statistical_parity", "equal_opportunity", "accuracy_parity", "bounded_loss_parity"):
        reduction = reduce_metric(metric, labels, 4)
        values = reduction.to_values(base)
        np.testing.assert_allclose(reduction.to_predictions(values, base), base, atol=1e-15)
    assert reduce_metric("predictive_parity", labels, 4) is None
    with pytest.raises(ValueError, match="depends on the true labels"):
        reduce_metric("equal_opportunity", None, 4)


def test_base_model_is_fitted_on_frames_with_categories():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "age": rng.integers(20, 60, 80),
            "job": pd.Categorical(rng.choice(["a", "b"], 80)),
            "town": rng.choice(["x", "y"], 80),
        }
    )
    y = (X["age"] > 40).astype(int)
    a = rng.integers(0, 2, 80)
    attack = AttributeRevealAttack("compressed_sensing", signed=True, random_state=0).run(Oracle(a), X, y)
    assert attack.leakage(a) == 1.0
    assert attack.reconstruction_.max_shift <= 0.1
    model = LogisticRegression().fit(X[["age"]], y)
    base, labels = base_predictions(X[["age"]], None, model, False)
    np.testing.assert_allclose(base, model.predict_proba(X[["age"]])[:, 1])
    assert labels is None


def test_an_oracle_that_stops_leaves_what_was_learned():
    base, a = population(60, 20)

    def oracle(h):
        if oracle.calls == 10:
            raise RuntimeError("the budget is used up")
        oracle.calls += 1
        return h[a == 1].mean() - h[a == 0].mean()

    oracle.calls = 0
    attack = AttributeRevealAttack("double", signed=True)
    with pytest.warns(UserWarning, match="the budget is used up"):
        attack.run(oracle, base)
    found = attack.reconstruction_
    assert attack.n_queries_ == 10
    assert found.determined.sum() == 9
    assert attack.attributes_[:9].tolist() == a[:9].tolist()
    assert any("the budget is used up" in message for message in found.messages)


def test_a_strategy_that_keeps_what_it_read_warns_once():
    base, a = population(200, 40)

    def oracle(h):
        oracle.calls += 1
        if oracle.calls > 3:
            raise TimeoutError("no more answers")
        return h[a == 1].mean() - h[a == 0].mean()

    oracle.calls = 0
    with pytest.warns(UserWarning, match="no more answers") as caught:
        attack = AttributeRevealAttack("positional", signed=True).run(oracle, base)
    assert len(caught) == 1
    sure = attack.reconstruction_.determined
    assert 10 < sure.sum() < 200
    assert attack.attributes_[sure].tolist() == a[sure].tolist()


@pytest.mark.parametrize("answer", [np.nan, np.inf, "no"])
def test_an_oracle_without_numbers_ends_the_attack(answer):
    base, _ = population(20, 5)
    attack = AttributeRevealAttack("linear")
    with pytest.warns(UserWarning, match="ended early"):
        attack.run(lambda h: answer, base)
    assert attack.n_queries_ == 0
    assert len(attack.reconstruction_.messages) == 1
    assert np.all(attack.scores_ == 0.5)
    assert not attack.reconstruction_.determined.any()


def test_constant_predictions_reveal_nothing_and_say_so():
    H = np.full((5, 10), 0.3)
    attack = AttributeRevealAttack().fit(H, np.zeros(5))
    assert np.all(attack.scores_ == 0.5)
    assert any("constant" in message for message in attack.reconstruction_.messages)


def test_contradictory_answers_are_said_to_be():
    H = np.vstack([np.eye(6), np.eye(6)])
    answers = np.concatenate([np.full(6, 0.3), np.full(6, -0.4)])
    attack = AttributeRevealAttack("single").fit(H, answers)
    assert not attack.reconstruction_.verified
    assert any("contradict" in message for message in attack.reconstruction_.messages)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"strategy": "magic"}, "strategy"),
        ({"n_queries": 0}, "n_queries"),
        ({"noise": 0.0}, "noise"),
        ({"max_shift": 2.0}, "max_shift"),
        ({"decimals": -1}, "decimals"),
        ({"noise_law": "laplace"}, "noise_law"),
        ({"group_sizes": (0, 3)}, "group_sizes"),
        ({"group_sizes": (1, 2, 3)}, "group_sizes"),
        ({"prior": [0.5, 2.0, 0.1]}, "prior"),
        ({"prior": [0.5]}, "prior"),
        ({"metric": "predictive_parity"}, "not linear"),
        ({"metric": "unfairness"}, "not supported"),
        ({"decoder": "magic"}, "decoder"),
    ],
)
def test_bad_parameters_are_named(parameters, match):
    with pytest.raises(ValueError, match=match):
        AttributeRevealAttack(**parameters).fit(np.eye(3), [0.5, 0.5, -1.0])


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda a: a.fit(np.eye(3), [0.1, 0.2]), ValueError, "inconsistent numbers"),
        (lambda a: a.fit(np.eye(3), [0.1, np.nan, 0.2]), ValueError, "NaN"),
        (lambda a: a.fit(np.ones(3), [0.1, 0.2, 0.3]), ValueError, "2D array"),
        (lambda a: a.run("metric", np.full(5, 0.5)), TypeError, "callable"),
        (lambda a: a.run(lambda h: 0.0, np.array([0.5])), ValueError, "at least 2"),
        (lambda a: a.run(lambda h: 0.0, np.array([0.5, 1.5])), ValueError, r"\[0, 1\]"),
        (lambda a: a.run(lambda h: 0.0, np.eye(4)), ValueError, "Give y"),
        (lambda a: a.run(lambda h: 0.0, np.eye(4), [1, 1, 1, 1]), ValueError, "one label"),
        (lambda a: a.design(np.full(5, 0.5)), ValueError, "use run"),
    ],
)
def test_bad_input_is_refused(call, error, match):
    with pytest.raises(error, match=match):
        call(AttributeRevealAttack())


def test_limits_that_cannot_be_honoured_are_refused():
    with pytest.raises(ValueError, match="Use 'double'"):
        AttributeRevealAttack("single", stealth=True).run(lambda h: 0.1, np.full(5, 0.5))
    with pytest.raises(ValueError, match="cannot be honoured"):
        AttributeRevealAttack("linear", hard_labels=True, stealth=True).run(lambda h: 0.1, np.full(5, 0.5))
    with pytest.raises(ValueError, match="flips one label"):
        AttributeRevealAttack("linear", hard_labels=True, max_accuracy_loss=0.1).design(np.full(5, 0.5))
    with pytest.raises(ValueError, match="does not reach"):
        AttributeRevealAttack("double", metric="equal_opportunity", target=1).design(
            np.full(4, 0.5), [1, 0, 1, 0]
        )
    with pytest.raises(ValueError, match="target"):
        AttributeRevealAttack("single", target=7).run(lambda h: 0.1, np.full(5, 0.5))


def test_prior_from_a_classifier_is_fused():
    rng = np.random.default_rng(0)
    n = 200
    a = (rng.random(n) < 0.7).astype(int)
    X = rng.normal(size=(n, 3))
    X[:, 0] += 1.5 * a
    proxy = LogisticRegression().fit(X, a)
    y = (X[:, 1] > 0).astype(int)
    noise = np.random.default_rng(1)
    scores = []
    for prior in (None, proxy):
        oracle = Oracle(a, noise=lambda: noise.normal(scale=0.05))
        attack = AttributeRevealAttack(
            "noisy", n_queries=60, noise_law=NoiseLaw("gaussian", 0.05), prior=prior, random_state=0
        ).run(oracle, X, y)
        scores.append(attack.leakage(a))
    assert scores[1] > scores[0] + 0.03


def test_clones_and_pickles():
    base, a = population(40, 10)
    attack = AttributeRevealAttack("compressed_sensing", group_sizes=(10, 30), signed=True, random_state=0)
    assert clone(attack).get_params() == attack.get_params()
    attack.run(Oracle(a), base)
    again = pickle.loads(pickle.dumps(attack))
    assert again.attributes_.tolist() == attack.attributes_.tolist()
    assert not hasattr(clone(attack), "attributes_")


def test_seeded_attacks_repeat_themselves():
    base, _ = population(40, 10)
    designs = [AttributeRevealAttack("compressed_sensing", random_state=3).design(base) for _ in range(2)]
    assert np.array_equal(*designs)


def test_reconstruction_shows_no_secret_and_does_not_change():
    found = Reconstruction(
        np.array([1.0, 0.2]), np.array([True, False]), np.array([0.123]), 1, group_sizes=(1, 1)
    )
    assert "0.123" not in repr(found)
    assert "group_sizes" not in repr(found)
    assert found.swapped().scores.tolist() == [0.0, 0.8]
    with pytest.raises(FrozenInstanceError):
        found.n_queries = 2
    with pytest.raises(ValueError, match="one entry per individual"):
        Reconstruction(np.zeros(3), np.zeros(2, bool), np.zeros(1), 1)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        Reconstruction(np.array([np.nan]), np.zeros(1, bool), np.zeros(1), 1)


def test_transcript_measures_what_was_submitted():
    base = np.array([0.2, 0.8])
    ask = Transcript(lambda h: h[0] - h[1], base, np.array([0.0, 1.0]))
    ask([0.6, 0.8])
    assert ask.max_shift == pytest.approx(0.4)
    assert ask.accuracy_loss == pytest.approx(0.5)
    assert ask.queries.tolist() == [[0.6, 0.8]]
    with pytest.raises(OracleStopped):
        Transcript(lambda h: None, base)(base)


def test_designs_are_what_they_say():
    base = np.array([0.2, 0.5, 0.9])
    assert single_acceptances(3, [2]).tolist() == [[0, 0, 1]]
    assert np.allclose(linear_design(base), [[1, 0.5, 0.9], [0.2, 0, 0.9], [0.2, 0.5, 0]])
    H = perturbed_models(base, 200, 0.1, np.random.default_rng(0), keep_decisions=True)
    assert np.abs(H - base).max() <= 0.1
    assert np.array_equal(H >= 0.5, np.tile(base >= 0.5, (200, 1)))
    pair = size_probe(base, 0.1)
    assert np.count_nonzero(pair[0] != pair[1]) == 1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("positional", True, None)),
        ({"absolute": True}, ("positional", False, None)),
        ({"decimals": 3}, ("positional", True, 3)),
        ({"noise": np.random.default_rng(0).normal}, ("noisy", None, None)),
    ],
)
def test_probing_tells_what_kind_of_oracle_it_is(settings, expected):
    base, a = population(50, 12)
    plan = plan_attack(Oracle(a, **settings), base)
    assert (plan.strategy, plan.decimals) == (expected[0], expected[2])
    if expected[1] is not None:
        assert plan.signed == expected[1]


@pytest.mark.parametrize("settings", [{}, {"absolute": True}, {"decimals": 6}, {"decimals": 3}])
def test_auto_reveals_everyone_or_says_what_it_could_not(settings):
    base, a = population(100, 12, seed=5)
    attack = AttributeRevealAttack(random_state=0).run(Oracle(a, **settings), base)
    found = attack.reconstruction_
    leakage = attack.leakage(a)
    if not found.orientation_known:
        leakage = max(leakage, 1.0 - leakage)
    assert leakage == 1.0 or (not found.exact and found.messages)
    if settings.get("decimals") is None:
        assert found.exact
        assert leakage == 1.0


def test_passive_attack_reads_honest_models():
    pytest.importorskip("fpylll")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    y = (X[:, 0] + rng.normal(size=40) > 0).astype(int)
    a = rng.permutation(np.repeat([0, 1], [8, 32]))
    attack = AttributeRevealAttack("passive", n_queries=6, signed=True, random_state=0).run(Oracle(a), X, y)
    found = attack.reconstruction_
    assert attack.leakage(a) == 1.0 or not found.exact


def test_probing_finds_out_that_only_labels_are_answered():
    base, a = population(50, 12)

    def refuses(h):
        if np.any((h != 0) & (h != 1)):
            raise ValueError("labels, please")
        return h[a == 1].mean() - h[a == 0].mean()

    def counts(h):
        return (h[a == 1] == 1).mean() - (h[a == 0] == 1).mean()

    for oracle in (refuses, counts):
        plan = plan_attack(Transcript(oracle, base), base)
        assert plan.hard_labels
        assert plan.strategy == "coin_weighing"
        attack = AttributeRevealAttack(random_state=0).run(oracle, base)
        assert attack.leakage(a) == 1.0
