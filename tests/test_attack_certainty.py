"""What counts as determined: circles, twins and too few answers, against brute force."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_fairleak.attack.certainty import judge_certainty, movable, twins
from sklearn_fairleak.attack.decoders import predict_gaps, rounding_tolerance
from sklearn_fairleak.attack.designs import balanced_flips
from sklearn_fairleak.attack.recovery import decode_exact


def test_people_who_can_change_places_in_a_circle_are_not_determined():
    rng = np.random.default_rng(0)
    n, m = 64, 90
    a = rng.permutation(np.repeat([0, 1], n // 2))
    a[:4] = [1, 1, 0, 0]
    H = rng.integers(0, 2, (m, n)).astype(float)
    # The first two together are moved as the third alone, and the fourth never: 1100 looks like 0011.
    H[:, :4] = 0.0
    H[0, [0, 2]] = H[1, [1, 2]] = 1.0
    other = a.copy()
    other[:4] = [0, 0, 1, 1]
    answers = predict_gaps(H, a)
    np.testing.assert_allclose(predict_gaps(H, other), answers, atol=1e-15)
    found = decode_exact(H, answers, sizes=(int((a == 0).sum()), int(a.sum())))
    assert found.verified
    assert not found.determined[:4].any()
    assert found.determined[4:].all()
    assert found.attributes[4:].tolist() == a[4:].tolist()


@settings(deadline=None, max_examples=60)
@given(n=st.integers(2, 8), m=st.integers(1, 4), seed=st.integers(0, 10_000))
def test_movable_marks_everybody_who_differs_in_another_fitting_assignment(n, m, seed):
    rng = np.random.default_rng(seed)
    H = rng.integers(0, 2, (m, n)).astype(float)
    a = rng.integers(0, 2, n).astype(bool)
    marked = movable(H, a)
    for other in product([False, True], repeat=n):
        b = np.array(other)
        if b.sum() == a.sum() and np.allclose(H @ b, H @ a):
            assert marked[a != b].all()
    # Nobody is marked without a reason: a direction that the answers do not see.
    if np.linalg.matrix_rank(np.vstack([H, np.ones(n)])) == n:
        assert not marked.any()


@pytest.mark.parametrize("seed", range(12))
def test_rarely_flipped_labels_are_never_determined_wrongly(seed):
    rng = np.random.default_rng(seed)
    n = 60
    labels = rng.integers(0, 2, n).astype(float)
    base = np.where(rng.random(n) < 0.85, labels, 1.0 - labels)
    a = rng.permutation(np.repeat([0, 1], n // 2))
    H = balanced_flips(base, labels, 36, 0.02, rng)
    found = decode_exact(H, predict_gaps(H, a), signed=True)
    sure = found.determined
    assert found.attributes[sure].tolist() == a[sure].tolist()


def test_twins_share_a_label():
    H = np.array([[0.0, 1.0, 0.0, -0.0], [0.5, 0.2, 0.5, 0.5]])
    assert twins(H).tolist() == [0, 1, 0, 0]


def test_people_no_model_moves_are_told_apart_by_one_answer_only_if_few():
    rng = np.random.default_rng(1)
    n, still = 150, 120
    a = (rng.random(n) < 0.5).astype(bool)
    base = rng.random(n)
    H = np.tile(base, (60, 1))
    H[1:, still:] = rng.random((59, n - still))
    scores, certain, messages = judge_certainty(H, a, a.astype(float), rounding_tolerance(H))
    assert not certain[:still].any()
    assert messages
    assert scores.shape == (n,)
