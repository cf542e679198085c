"""Hard labels: detecting matrices tell every 0/1 vector, and limits on accuracy hold."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_attack_positional import exact_oracle, people, same_partition

from sklearn_fairleak.attack import AttributeRevealAttack, coin_weighing
from sklearn_fairleak.attack.detecting_matrix import DetectingMatrix, rows_needed
from sklearn_fairleak.attack.transcript import OracleStopped


def label_oracle(a, absolute=False):
    """Answer about hard labels only, by fairlearn's selection rates."""
    from fairlearn.metrics import MetricFrame, selection_rate

    def oracle(h):
        assert set(np.unique(h)) <= {0.0, 1.0}
        rates = MetricFrame(metrics=selection_rate, y_true=h, y_pred=h, sensitive_features=a).by_group
        gap = float(rates[1]) - float(rates[0])
        return abs(gap) if absolute else gap

    return oracle


@pytest.mark.parametrize(("n", "bits"), [(1, 0), (4, 0), (9, 0), (10, 1), (12, 3)])
def test_every_vector_has_sums_of_its_own(n, bits):
    design = DetectingMatrix(n, bits)
    assert design.weights.min() >= 0
    assert design.weights.max() <= 1 << bits
    vectors = np.array(list(itertools.product((0, 1), repeat=n)))
    sums = vectors @ design.weights.astype(np.int64).T
    assert len(np.unique(sums, axis=0)) == len(vectors)
    for vector, own in zip(vectors, sums, strict=True):
        assert np.array_equal(design.solve(own), vector)


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 400), bits=st.integers(0, 14), seed=st.integers(0, 1000))
def test_random_vectors_are_solved(n, bits, seed):
    design = DetectingMatrix(n, bits)
    x = (np.random.default_rng(seed).random(n) < 0.3).astype(np.int64)
    assert design.weights.shape == (rows_needed(n, bits), n)
    assert np.array_equal(design.solve(design.weights.astype(np.int64) @ x), x)


def test_impossible_sums_have_no_solution():
    design = DetectingMatrix(20)
    sums = design.weights.astype(np.int64) @ np.ones(20, dtype=np.int64)
    assert design.solve(sums + 1) is None


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_every_assignment_of_few_people_is_read(n, absolute):
    for bits, base in itertools.product(
        itertools.product((0, 1), repeat=n), (np.zeros(n), np.arange(n) % 2.0)
    ):
        a = np.array(bits)
        if a.sum() in (0, n):
            continue
        found = coin_weighing.run(exact_oracle(a, absolute), base, signed=not absolute)
        if found.verified:
            assert same_partition(found, a) if absolute else np.array_equal(found.attributes, a)
        else:
            assert found.messages
            decided = found.determined
            assert np.array_equal(found.attributes[decided], a[decided]) or np.array_equal(
                found.attributes[decided], 1 - a[decided]
            )


@pytest.mark.parametrize("share", [0.05, 0.104, 0.3, 0.5])
@pytest.mark.parametrize(("n", "queries"), [(100, 40), (1000, 253)])
def test_everyone_is_read_from_hard_labels(n, queries, share):
    base, _, a = people(n, share, 1)
    found = coin_weighing.run(exact_oracle(a), base)
    assert found.exact
    assert np.array_equal(found.attributes, a)
    assert found.n_queries <= queries
    absolute = coin_weighing.run(exact_oracle(a, True), base, signed=False)
    assert absolute.exact
    assert same_partition(absolute, a)
    assert not absolute.orientation_known


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("limit", [0.0, 0.01, 0.05])
def test_no_submitted_model_loses_more_accuracy_than_allowed(limit, absolute):
    base, y, a = people(400, 0.2, 0)
    accuracy = np.mean((base >= 0.5) == (y > 0.5))
    lost = []

    def oracle(h):
        lost.append(accuracy - np.mean((h >= 0.5) == (y > 0.5)))
        return exact_oracle(a, absolute)(h)

    found = coin_weighing.run(oracle, base, y=y, signed=not absolute, max_accuracy_loss=limit)
    assert found.exact
    assert same_partition(found, a)
    assert max(lost) <= limit + 1e-12
    assert found.accuracy_loss <= limit + 1e-12


def test_a_thousand_people_within_one_percent_of_accuracy():
    base, y, a = people(1000, 0.104, 0)
    found = coin_weighing.run(exact_oracle(a), base, y=y, max_accuracy_loss=0.01)
    assert found.exact
    assert found.n_queries <= 551


def test_fairlearn_selection_rates_as_oracle():
    base, _, a = people(60, 0.2, 0)
    for absolute in (False, True):
        found = coin_weighing.run(label_oracle(a, absolute), base, signed=not absolute)
        assert found.exact
        assert same_partition(found, a)


def test_limits_that_hard_labels_cannot_honour_are_refused():
    base, _, a = people(50, 0.2, 0)
    with pytest.raises(ValueError, match="cannot be honoured"):
        coin_weighing.run(exact_oracle(a), base, stealth=True)
    with pytest.raises(ValueError, match="needs the true labels"):
        coin_weighing.run(exact_oracle(a), base, max_accuracy_loss=0.1)
    with pytest.raises(ValueError, match="allows no label to change"):
        coin_weighing.run(exact_oracle(a), base, y=base >= 0.5, max_accuracy_loss=0.0)
    with pytest.raises(ValueError, match="predictions in \\[0, 1\\]"):
        coin_weighing.run(exact_oracle(a), [0.1, np.nan])


def test_noise_is_reported_not_guessed():
    base, _, a = people(100, 0.2, 0)
    rng = np.random.default_rng(0)
    found = coin_weighing.run(lambda h: exact_oracle(a)(h) + rng.normal(0, 0.01), base)
    assert not found.verified
    assert not found.determined.any()
    assert found.messages


def test_an_oracle_that_stops():
    base, y, a = people(200, 0.2, 0)
    calls = itertools.count()

    def oracle(h):
        if next(calls) == 60:
            raise RuntimeError("no budget left")
        return exact_oracle(a)(h)

    found = coin_weighing.run(oracle, base, y=y, max_accuracy_loss=0.0)
    assert 0 < found.determined.sum() < 200
    assert np.array_equal(found.attributes[found.determined], a[found.determined])
    assert "no budget left" in found.messages[0]
    with pytest.raises(OracleStopped):
        coin_weighing.run(lambda h: float("nan"), base)


def test_the_estimator_submits_hard_labels():
    base, y, a = people(100, 0.2, 0)
    attack = AttributeRevealAttack("coin_weighing", signed=True, hard_labels=True).run(
        label_oracle(a), base, y
    )
    assert attack.leakage(a) == 1.0
