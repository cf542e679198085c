"""Digits of answers: everyone is read exactly, or the attack says what is not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sklearn_fairleak.attack import AttributeRevealAttack, positional
from sklearn_fairleak.attack.digit_base import digit_base
from sklearn_fairleak.attack.group_sums import answer_error, possible_sums, read_sum
from sklearn_fairleak.attack.subset_sums import best_block, find_subset
from sklearn_fairleak.attack.transcript import OracleStopped


def people(n, share, seed):
    """Draw predictions like those of a model, and attributes with a minority share."""
    rng = np.random.default_rng(seed)
    a = np.ones(n, dtype=int)
    a[rng.choice(n, max(1, round(share * n)), replace=False)] = 0
    base = np.clip(rng.beta(0.6, 2.6, n) + 0.03 * a, 0.0, 1.0)
    return base, (rng.random(n) < base).astype(float), a


def exact_oracle(a, absolute=False):
    """Answer as NumPy computes gaps."""
    members = a == 1

    def oracle(h):
        gap = float(h[members].mean() - h[~members].mean())
        return abs(gap) if absolute else gap

    return oracle


def fairlearn_oracle(a, absolute=False):
    """Answer as fairlearn computes gaps."""
    from fairlearn.metrics import MetricFrame, mean_prediction

    def oracle(h):
        frame = MetricFrame(metrics=mean_prediction, y_true=h, y_pred=h, sensitive_features=a)
        gap = float(frame.by_group[1]) - float(frame.by_group[0])
        return abs(gap) if absolute else gap

    return oracle


def same_partition(found, a):
    """Whether attributes are right, or right with the groups' names exchanged."""
    return np.array_equal(found.attributes, a) or np.array_equal(found.attributes, 1 - a)


@pytest.mark.parametrize("run", [positional.run, positional.run_sparse])
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_every_assignment_of_few_people_is_read(run, absolute, n):
    rng = np.random.default_rng(n)
    bases = [np.full(n, 0.3), np.zeros(n), np.ones(n), np.arange(n) % 2.0, rng.random(n)]
    for bits, base in itertools.product(itertools.product((0, 1), repeat=n), bases):
        a = np.array(bits)
        if a.sum() in (0, n):
            continue
        found = run(exact_oracle(a, absolute), base, signed=not absolute)
        assert found.exact
        assert same_partition(found, a) if absolute else np.array_equal(found.attributes, a)
        assert found.max_shift <= 0.125


@pytest.mark.parametrize(("n", "most"), [(100, 5), (1000, 26)])
@pytest.mark.parametrize("share", [0.05, 0.104, 0.3, 0.5])
@pytest.mark.parametrize("absolute", [False, True])
def test_everyone_is_read_in_few_queries_without_changing_a_decision(n, most, share, absolute):
    for seed in range(3):
        base, y, a = people(n, share, seed)
        found = positional.run(exact_oracle(a, absolute), base, y=y, signed=not absolute)
        assert found.exact
        assert same_partition(found, a)
        assert found.n_queries <= most
        assert found.max_shift <= 0.1
        assert found.accuracy_loss == 0.0
        assert found.orientation_known is not absolute


def test_stealth_stays_within_a_millionth_of_the_base_model():
    base, y, a = people(1000, 0.104, 0)
    submitted = []

    def oracle(h):
        submitted.append(h)
        return exact_oracle(a)(h)

    found = positional.run(oracle, base, y=y, stealth=True)
    assert found.exact
    assert np.array_equal(found.attributes, a)
    assert found.n_queries <= 41
    assert max(np.abs(h - base).max() for h in submitted) <= 1e-6
    assert all(np.array_equal(h >= 0.5, base >= 0.5) for h in submitted)


def test_stealth_shifts_stay_small_for_every_kind_of_base():
    rng = np.random.default_rng(0)
    for n in (3, 10, 50):
        a = np.arange(n) % 3 // 2
        for base in (np.zeros(n), np.ones(n), np.full(n, 0.5), rng.integers(0, 2, n) * 1.0, rng.random(n)):
            for run in (positional.run, positional.run_sparse):
                found = run(exact_oracle(a), base, stealth=True)
                assert found.exact
                assert found.max_shift <= 1e-6


@pytest.mark.parametrize("max_shift", [0.5, 0.1, 0.01, 1e-4, 1e-8])
def test_max_shift_is_honoured(max_shift):
    base, _, a = people(60, 0.3, 1)
    found = positional.run(exact_oracle(a), base, max_shift=max_shift)
    assert found.exact
    assert np.array_equal(found.attributes, a)
    assert found.max_shift <= max_shift


def test_a_shift_below_double_precision_is_refused():
    with pytest.raises(ValueError, match="no room for digits"):
        positional.run(lambda h: 0.0, [0.2, 0.4], max_shift=1e-14)


@pytest.mark.parametrize("base", [[0.1, np.nan], [0.1, 1.2], [[0.1, 0.2]], [0.5]])
def test_malformed_predictions_are_refused(base):
    with pytest.raises(ValueError, match="predictions in \\[0, 1\\]"):
        positional.run(lambda h: 0.0, base)


def test_fairlearn_as_oracle():
    base, _, a = people(100, 0.104, 3)
    for absolute in (False, True):
        found = positional.run(fairlearn_oracle(a, absolute), base, signed=not absolute)
        assert found.exact
        assert same_partition(found, a)
        assert found.n_queries <= 5


def test_group_sizes_name_the_parts_of_an_absolute_answer():
    base, _, a = people(90, 0.2, 0)
    for truth in (a, 1 - a):
        sizes = (int((truth == 0).sum()), int(truth.sum()))
        found = positional.run(exact_oracle(truth, True), base, signed=False, group_sizes=sizes)
        assert found.orientation_known
        assert found.exact
        assert np.array_equal(found.attributes, truth)


def test_a_negative_answer_tells_that_answers_are_signed():
    base, _, a = people(80, 0.3, 0)
    oracle = exact_oracle(a if exact_oracle(a)(base) < 0 else 1 - a)
    found = positional.run(oracle, base, signed=None)
    assert found.orientation_known
    assert found.exact


def test_sparse_weights_need_fewer_queries_for_a_small_minority():
    for share, most in ((0.02, 12), (0.104, 18)):
        base, _, a = people(1000, share, 5)
        found = positional.run_sparse(exact_oracle(a), base, random_state=0)
        assert found.exact
        assert np.array_equal(found.attributes, a)
        assert found.n_queries <= most


@pytest.mark.parametrize("noise", [1e-15, 1e-12, 1e-9, 1e-6])
def test_blocks_shrink_until_a_noisy_oracle_is_read(noise):
    base, _, a = people(120, 0.3, 0)
    rng = np.random.default_rng(0)
    found = positional.run(lambda h: exact_oracle(a)(h) + noise * rng.uniform(-1, 1), base)
    assert found.verified
    assert np.array_equal(found.attributes, a)


def test_an_oracle_that_sums_inexactly_is_read():
    base, _, a = people(300, 0.2, 0)
    v = np.where(a == 1, 1.0 / a.sum(), -1.0 / (a == 0).sum())
    found = positional.run(lambda h: float(v @ h), base)
    assert found.exact
    assert np.array_equal(found.attributes, a)


@pytest.mark.parametrize("scale", [0.003, 0.3])
def test_noise_above_a_person_is_reported_not_guessed(scale):
    base, _, a = people(120, 0.3, 0)
    rng = np.random.default_rng(1)
    found = positional.run(lambda h: exact_oracle(a)(h) + scale * rng.standard_cauchy(), base)
    assert not found.verified
    assert not found.determined.any()
    assert (found.scores == 0.5).all()
    assert found.messages


def test_answers_about_changing_people_contradict_each_other():
    base, _, a = people(200, 0.3, 0)
    calls = itertools.count()
    other = np.random.default_rng(9).permutation(a)
    found = positional.run(lambda h: exact_oracle(a if next(calls) < 4 else other)(h), base)
    assert not found.verified
    assert found.messages


def test_wrong_group_sizes_are_not_believed():
    base, _, a = people(100, 0.3, 0)
    found = positional.run(exact_oracle(a), base, group_sizes=(5, 95))
    assert not found.verified
    assert "not those given" in found.messages[0]


@pytest.mark.parametrize("stop", ["raise", "nan"])
def test_what_was_read_before_the_oracle_stops_is_kept(stop):
    base, _, a = people(200, 0.104, 0)
    calls = itertools.count(1)

    def oracle(h):
        if next(calls) >= 4:
            if stop == "nan":
                return float("nan")
            raise RuntimeError("no budget left")
        return exact_oracle(a)(h)

    found = positional.run(oracle, base)
    assert 0 < found.determined.sum() < 200
    assert np.array_equal(found.attributes[found.determined], a[found.determined])
    assert (found.scores[~found.determined] == 0.5).all()
    assert not found.verified
    assert "query 4" in found.messages[0]


def test_an_oracle_that_never_answers_raises():
    with pytest.raises(OracleStopped, match="no finite number at query 1"):
        positional.run(lambda h: float("nan"), [0.2, 0.4, 0.6])


def test_progress_reaches_everyone():
    base, _, a = people(100, 0.3, 0)
    seen = []
    positional.run(exact_oracle(a), base, progress=lambda done, n: seen.append((done, n)))
    assert seen[-1] == (100, 100)
    assert seen == sorted(seen)


def test_the_estimator_runs_both_variants():
    base, y, a = people(150, 0.1, 0)
    for strategy in ("positional", "positional_sparse"):
        attack = AttributeRevealAttack(strategy, signed=True, random_state=0).run(exact_oracle(a), base, y)
        assert attack.leakage(a) == 1.0


def test_the_base_decides_like_the_model_and_its_sum_is_coprime_to_n():
    rng = np.random.default_rng(0)
    for n in (10, 96, 1000):
        h = rng.random(n)
        for settings in ({}, {"stealth": True}, {"max_shift": 0.02}):
            base = digit_base(h, **settings)
            assert np.array_equal(base.values >= 0.5, h >= 0.5)
            assert np.gcd(base.total, n) == 1


def test_sums_are_read_in_exact_arithmetic():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(3, 300))
        steps = rng.integers(0, 1 << 30, n)
        a = rng.integers(0, 2, n)
        a[:2] = 0, 1
        h = np.ldexp(steps.astype(float), -30)
        n1, total, own = int(a.sum()), int(steps.sum()), int(steps[a == 1].sum())
        answer = exact_oracle(a)(h)
        whole, residual = read_sum(answer, total, 30, n, n1)
        assert whole == own
        bound = answer_error(n, n1, own * 2.0**-30, total * 2.0**-30)
        assert residual * n / (n1 * (n - n1) * 2.0**30) <= bound
        found = possible_sums(answer, total, 30, n, tolerance=bound)
        assert (n1, own) in {(s.n_advantaged, s.total) for s in found}


def test_subsets_are_found_by_their_sum_or_not_at_all():
    rng = np.random.default_rng(0)
    for size in (2, 9, 40, 63):
        weights = rng.integers(1, 1 << 42, size)
        for k in (0, 1, 3, 5):
            subset = np.sort(rng.choice(size, min(k, size), replace=False))
            assert np.array_equal(find_subset(weights, int(weights[subset].sum())), subset)
    assert find_subset(weights, -1) is None
    assert find_subset(np.array([5, 5, 7, 9] * 6), 5) is None


def test_blocks_are_longer_the_smaller_the_minority():
    sizes = [best_block(share, 42) for share in (0.01, 0.05, 0.1, 0.2)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] > 42


@pytest.mark.statistical
@pytest.mark.parametrize(("make_oracle", "data_sets"), [(exact_oracle, 200), (fairlearn_oracle, 60)])
def test_many_data_sets_are_all_read(make_oracle, data_sets):
    for seed in range(data_sets):
        n = 1000 if seed % 5 == 0 else 100
        share = 0.05 + 0.45 * (seed % 10) / 9
        base, y, a = people(n, share, seed)
        absolute = seed % 2 == 1
        found = positional.run(make_oracle(a, absolute), base, y=y, signed=not absolute)
        assert found.exact
        assert same_partition(found, a) if absolute else np.array_equal(found.attributes, a)
