"""Honest models give people away: lattice reduction on answers nobody designed."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
from test_attack_positional import exact_oracle

from sklearn_fairleak.attack import passive

pytest.importorskip("fpylll")


def honest_answers(n, few, m, seed):
    """Predictions of logistic models of one data set, trained on resamples, and their exact gaps."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2000, 5))
    y = X @ rng.normal(size=5) + rng.logistic(size=2000) > 0.5
    a = np.ones(n, dtype=int)
    a[rng.choice(n, few, replace=False)] = 0
    H = []
    for _ in range(m):
        rows = rng.integers(n, 2000, 1000)
        H.append(LogisticRegression().fit(X[rows], y[rows]).predict_proba(X[:n])[:, 1])
    return np.array(H), np.array([exact_oracle(a)(h) for h in H]), a


@pytest.mark.parametrize(("n", "few", "m"), [(20, 5, 2), (40, 8, 3), (60, 6, 4)])
def test_honest_models_reveal_everyone(n, few, m):
    H, answers, a = honest_answers(n, few, m, 0)
    for truth, sign, sizes in ((a, 1, (few, n - few)), (1 - a, -1, (n - few, few))):
        found = passive.decode(H, sign * answers, group_sizes=sizes)
        assert found.exact
        assert np.array_equal(found.attributes, truth)
        assert found.n_queries == m


def test_group_sizes_are_searched_for():
    H, answers, a = honest_answers(24, 6, 3, 1)
    found = passive.decode(H, answers)
    assert found.exact
    assert found.group_sizes == (6, 18)
    assert np.array_equal(found.attributes, a)


def test_groups_of_equal_size():
    H, answers, a = honest_answers(24, 12, 3, 2)
    found = passive.decode(H, answers, group_sizes=(12, 12))
    assert found.exact
    assert np.array_equal(found.attributes, a)


def test_too_few_or_inexact_answers_determine_nobody():
    H, answers, _ = honest_answers(40, 12, 4, 0)
    for rows, values in ((H, np.round(answers, 6)), (H, answers + 1e-3)):
        found = passive.decode(rows, values, group_sizes=(12, 28))
        assert not found.verified
        assert not found.determined.any()
        assert (found.scores == 0.5).all()
        assert "too few answers" in found.messages[0]


def test_malformed_input_is_refused():
    with pytest.raises(ValueError, match="one row of predictions per answer"):
        passive.decode(np.zeros((2, 5)), np.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        passive.decode(np.zeros((1, 5)), [np.nan])


def test_the_missing_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without_fpylll(name, *args, **kwargs):
        if name == "fpylll":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_fpylll)
    with pytest.raises(ImportError, match=r"sklearn-fairleak\[lattice\]"):
        passive.decode(np.random.default_rng(0).random((1, 5)), [0.1])


@pytest.mark.statistical
def test_eight_honest_models_reveal_a_hundred_and_twenty_people():
    H, answers, a = honest_answers(120, 12, 8, 0)
    found = passive.decode(H, answers, group_sizes=(12, 108))
    assert found.exact
    assert np.array_equal(found.attributes, a)
