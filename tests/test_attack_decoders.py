"""Solvers and recovery from exact answers, against known attributes, brute force and the peers."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_fairleak.attack.certainty import twins
from sklearn_fairleak.attack.decoders import (
    gap_coefficients,
    gap_scale,
    largest_entries,
    predict_gaps,
    rounding_tolerance,
    solve_amp,
    solve_box,
    solve_l1,
    solve_linear,
)
from sklearn_fairleak.attack.enumeration import consistent_attributes
from sklearn_fairleak.attack.recovery import decode_exact, likely_sizes, sizes_from_pairs


def population(n, n_disadvantaged, seed):
    """Base predictions of a realistic shape, and attributes."""
    rng = np.random.default_rng(seed)
    base = 1.0 / (1.0 + np.exp(1.5 - 1.8 * rng.normal(size=n)))
    attributes = np.ones(n, dtype=int)
    attributes[rng.choice(n, n_disadvantaged, replace=False)] = 0
    return base, attributes, rng


def perturbed(n, m, n_disadvantaged, seed):
    base, attributes, rng = population(n, n_disadvantaged, seed)
    H = np.clip(base + rng.uniform(-0.1, 0.1, (m, n)), 0.0, 1.0)
    return H, attributes, predict_gaps(H, attributes)


def brute_force(H, answers, tolerance):
    """All assignments that explain the answers, from the definition of the gap."""
    fits = []
    for assignment in product([0, 1], repeat=H.shape[1]):
        a = np.array(assignment)
        if 0 < a.sum() < a.size and np.abs(predict_gaps(H, a) - answers).max() <= tolerance:
            fits.append(assignment)
    return sorted(fits)


def test_gap_is_centred_membership_times_the_scale():
    H, a, answers = perturbed(30, 5, 7, 0)
    centred = H - H.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(gap_scale(7, 23) * centred @ a, answers, atol=1e-14)
    np.testing.assert_allclose(H @ gap_coefficients(a), answers, atol=1e-14)


def test_linear_solver_needs_one_row_less_than_individuals():
    rng = np.random.default_rng(0)
    a = np.array([0, 0, 1, 1, 1, 1])
    H = rng.random((5, 6))
    solution = solve_linear(H, predict_gaps(H, a))
    assert solution.rank == 6
    assert solution.reached.all()
    np.testing.assert_allclose(solution.coefficients, gap_coefficients(a), atol=1e-10)


def test_linear_solver_reaches_only_who_is_singled_out():
    rng = np.random.default_rng(0)
    n = 40
    a = (np.arange(n) >= 10).astype(int)
    base = rng.random(n)
    H = np.vstack([base, base, base])
    H[1, 3] += 1e-6
    H[2, 20] += 1e-6
    solution = solve_linear(H, predict_gaps(H, a))
    assert np.flatnonzero(solution.reached).tolist() == [3, 20]
    np.testing.assert_allclose(solution.coefficients[[3, 20]], [-1 / 10, 1 / 30], rtol=1e-6)


@pytest.mark.parametrize("m", [35, 40])
def test_papers_program_and_the_box_recover_enough_perturbed_answers(m):
    H, a, answers = perturbed(100, m, 10, 4)
    relaxed = solve_l1(H, answers, (10, 90), box=True)
    np.testing.assert_allclose(relaxed, a, atol=1e-5)
    box = solve_box(H, answers, (10, 90), tolerance=rounding_tolerance(H))
    assert box.tolist() == a.tolist()


def test_papers_program_has_the_least_l1_norm():
    # Its value can't exceed that of the truth, which is feasible, and it must satisfy the answers.
    H, _, answers = perturbed(60, 15, 6, 1)
    s = (1.0 - solve_l1(H, answers, (6, 54))) * gap_scale(6, 54)
    assert np.abs(s).sum() <= 6 * gap_scale(6, 54) + 1e-9
    np.testing.assert_allclose(H @ s, H.sum(axis=1) / 54 - answers, atol=1e-7)


def test_message_passing_solves_several_sizes_at_once():
    H, a, answers = perturbed(300, 120, 30, 2)
    x, solved = solve_amp(H, answers, [250, 270, 280], tolerance=rounding_tolerance(H))
    assert solved == 1
    assert largest_entries(x[:, 1], 270).tolist() == a.astype(bool).tolist()


def test_message_passing_admits_defeat_with_too_few_answers():
    H, _, answers = perturbed(300, 20, 30, 2)
    x, solved = solve_amp(H, answers, 270, tolerance=rounding_tolerance(H))
    assert solved is None
    assert np.all((x >= 0) & (x <= 1))


@pytest.mark.parametrize("n_disadvantaged", [30, 150, 270])
def test_sizes_are_found_from_the_variance_of_the_answers(n_disadvantaged):
    H, a, answers = perturbed(300, 200, n_disadvantaged, 3)
    assert (n_disadvantaged, 300 - n_disadvantaged) in likely_sizes(H, answers)
    found = decode_exact(H, answers)
    assert found.exact
    assert found.group_sizes == (n_disadvantaged, 300 - n_disadvantaged)
    assert found.attributes.tolist() == a.tolist()


def test_sizes_are_read_from_two_models_that_differ_in_one_individual():
    base, a, _ = population(50, 8, 0)
    H = np.tile(base, (2, 1))
    H[1, 4] = 1.0 - H[1, 4]
    assert sizes_from_pairs(H, predict_gaps(H, a)) == (8, 42)


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(2, 7),
    m=st.integers(1, 3),
    levels=st.sampled_from([2, 3, 5]),
    seed=st.integers(0, 10_000),
)
def test_exhaustion_equals_brute_force(n, m, levels, seed):
    rng = np.random.default_rng(seed)
    H = rng.integers(0, levels, (m, n)) / (levels - 1)
    a = np.append(rng.permutation(np.append(rng.integers(0, 2, n - 2), 1)), 0)
    answers = predict_gaps(H, a)
    tolerance = rounding_tolerance(H)
    expected = brute_force(H, answers, tolerance)
    fits = consistent_attributes(H, answers, tolerance)
    assert sorted(map(tuple, fits.astype(int).tolist())) == expected
    found = decode_exact(H, answers, signed=True)
    if np.ptp(H, axis=1).any():
        share = np.mean(expected, axis=0)
        np.testing.assert_allclose(found.scores, share, atol=1e-12)
        assert found.determined.tolist() == ((share == 0) | (share == 1)).tolist()


def test_exhaustion_admits_that_there_are_too_many():
    # One answer about ten of forty people leaves millions of assignments.
    H = np.zeros((1, 40))
    H[0, :10] = 1.0
    a = np.arange(40) % 2
    assert consistent_attributes(H, predict_gaps(H, a), 1e-12, sizes=(20, 20)) is None


def test_one_full_precision_answer_determines_thirty_people():
    rng = np.random.default_rng(1)
    a = (rng.random(30) < 0.7).astype(int)
    H = rng.random((1, 30))
    found = decode_exact(H, predict_gaps(H, a), patient=True)
    assert found.exact
    assert found.attributes.tolist() == a.tolist()


def test_indistinguishable_people_are_not_determined():
    H, a, _ = perturbed(60, 60, 12, 5)
    a[:4] = [0, 1, 1, 1]
    H[:, 1] = H[:, 0]
    H[:, 2] = H[:, 0]
    H[:, 3] = H[:, 0]
    assert twins(H)[:4].tolist() == [0, 0, 0, 0]
    found = decode_exact(H, predict_gaps(H, a), sizes=(int((a == 0).sum()), int(a.sum())))
    assert found.verified
    assert not found.determined[:4].any()
    assert found.determined[4:].all()
    np.testing.assert_allclose(found.scores[:4], 0.75)
    assert found.attributes[4:].tolist() == a[4:].tolist()
    assert any("told apart" in message for message in found.messages)


def test_too_few_hard_labels_do_not_count_as_certain():
    # Many assignments explain two counts; whichever is found must not be called determined.
    rng = np.random.default_rng(0)
    H = rng.integers(0, 2, (2, 80)).astype(float)
    a = (np.arange(80) >= 20).astype(int)
    found = decode_exact(H, predict_gaps(H, a), sizes=(20, 60))
    assert not found.determined.any()
    assert found.messages


def test_contradictory_answers_are_said_to_be():
    H, _, answers = perturbed(20, 25, 5, 6)
    answers[3] += 0.25
    found = decode_exact(H, answers)
    assert not found.verified
    assert not found.determined.any()
    assert any("contradict" in message for message in found.messages)


def test_absolute_answers_are_oriented_by_the_group_sizes():
    H, a, _ = perturbed(100, 60, 20, 7)
    H = 0.4 * H + 0.5 * a
    answers = predict_gaps(H, a)
    assert (answers > 0).all()
    found = decode_exact(H, answers, signed=False, sizes=(20, 80))
    assert found.exact
    assert found.orientation_known
    assert found.attributes.tolist() == a.tolist()
    turned = decode_exact(H, np.abs(predict_gaps(H, 1 - a)), signed=False, sizes=(80, 20))
    assert turned.attributes.tolist() == (1 - a).tolist()
    partition = decode_exact(H, answers, signed=False)
    assert partition.verified
    assert not partition.orientation_known


def test_rounded_answers_are_decoded_within_their_rounding():
    H, a, answers = perturbed(100, 110, 20, 8)
    found = decode_exact(H, np.round(answers, 6), decimals=6, sizes=(20, 80))
    assert found.verified
    assert found.attributes.tolist() == a.tolist()


def test_prior_reaches_people_that_answers_leave_open():
    H = np.array([[1.0, 0.0, 0.0, 0.0]])
    found = decode_exact(H, np.array([1.0 / 2]), prior=np.array([0.5, 0.9, 0.1, 0.1]))
    # The first is one of two advantaged; the other advantaged one has odds 9 : 1/9 : 1/9.
    assert found.determined.tolist() == [True, False, False, False]
    np.testing.assert_allclose(found.scores, [1.0, 81 / 83, 1 / 83, 1 / 83])


@pytest.mark.statistical
def test_message_passing_is_exact_at_a_quarter_of_the_individuals():
    exact = 0
    for seed in range(20):
        H, a, answers = perturbed(1000, 250, 104, seed)
        found = decode_exact(H, answers, sizes=(104, 896))
        assert not found.verified or found.attributes.tolist() == a.tolist()
        exact += found.exact
    assert exact >= 17
