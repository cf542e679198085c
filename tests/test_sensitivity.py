"""Sensitivity: closed forms against brute force, and the paper's errors with counterexamples."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_fairleak.sensitivity import global_sensitivity, local_sensitivity, smooth_sensitivity


def gap(h, a):
    """Signed gap; the mean of an empty group is 1/2."""
    one = h[a == 1].mean() if (a == 1).any() else 0.5
    zero = h[a == 0].mean() if (a == 0).any() else 0.5
    return one - zero


def brute_local(n0, n1, *, absolute=False, allow_empty=False):
    """Largest change of the gap over all values in {0, 1} and all changes of one individual.

    The signed gap is linear in the values, so its change is largest at corners.
    """
    a = np.array([0] * n0 + [1] * n1)
    worst = 0.0
    for j in {0, n0 + n1 - 1}:  # individuals of a group are alike
        b = a.copy()
        b[j] ^= 1
        if not allow_empty and (b.min() == b.max() or a.min() == a.max()):
            continue
        for corner in product((0.0, 1.0), repeat=n0 + n1):
            h = np.array(corner)
            x, y = gap(h, a), gap(h, b)
            worst = max(worst, abs(abs(x) - abs(y)) if absolute else abs(x - y))
    return worst


def corner_local(n0, n1):
    """Largest signed change over corner values, by counts: quick for any size."""
    worst = 0.0
    for smaller, larger in ((n0, n1), (n1, n0)):
        if smaller < 2:
            continue
        for v, ones_in, ones_out in product((0, 1), (0, smaller - 1), (0, larger)):
            before = ones_out / larger - (ones_in + v) / smaller
            after = (ones_out + v) / (larger + 1) - ones_in / (smaller - 1)
            worst = max(worst, abs(after - before))
    return worst


@pytest.mark.parametrize(("n0", "n1"), [(k, n - k) for n in range(3, 9) for k in range(1, n)])
def test_local_is_the_brute_force_maximum(n0, n1):
    assert local_sensitivity(n0, n1) == pytest.approx(brute_local(n0, n1), abs=1e-12)
    assert corner_local(n0, n1) == pytest.approx(brute_local(n0, n1), abs=1e-12)


@pytest.mark.parametrize(("n0", "n1"), [(k, n - k) for n in range(3, 9) for k in range(1, n)])
def test_absolute_local_bounds_binary_values_and_is_attained_where_q_divides_n(n0, n1):
    bound, found = local_sensitivity(n0, n1, absolute=True), brute_local(n0, n1, absolute=True)
    assert found <= bound + 1e-12
    q = max(min(n0, n1), 2)
    if (n0 + n1) % q == 0:
        assert found == pytest.approx(bound, abs=1e-12)


@given(st.integers(3, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))), st.data())
@settings(max_examples=300, deadline=None)
def test_real_values_never_exceed_the_bounds(sizes, data):
    n, n0 = sizes
    h = np.array(data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n)))
    a = np.array([0] * n0 + [1] * (n - n0))
    j = data.draw(st.integers(0, n - 1))
    b = a.copy()
    b[j] ^= 1
    if b.min() == b.max():
        return
    x, y = gap(h, a), gap(h, b)
    assert abs(x - y) <= local_sensitivity(n0, n - n0) + 1e-12
    assert abs(abs(x) - abs(y)) <= local_sensitivity(n0, n - n0, absolute=True) + 1e-12
    assert abs(x - y) <= global_sensitivity(n) + 1e-12


def test_absolute_local_is_attained_by_real_values():
    """The sign turns: |gap| goes from 0 to n/(q(n-q+1)) for a suitable real value."""
    for n0, n1 in ((3, 4), (2, 5), (3, 7)):
        # Group 0 all at 0 but the moving individual at 1; group 1 at the mean that makes the gap 0.
        h = np.array([1.0] + [0.0] * (n0 - 1) + [1.0 / n0] * n1)
        a = np.array([0] * n0 + [1] * n1)
        b = a.copy()
        b[0] = 1
        assert gap(h, a) == pytest.approx(0, abs=1e-12)
        assert abs(gap(h, b)) == pytest.approx(local_sensitivity(n0, n1, absolute=True), abs=1e-12)


@pytest.mark.parametrize("n", range(3, 60))
@pytest.mark.parametrize("absolute", [False, True])
def test_global_is_the_largest_local(n, absolute):
    sizes = np.arange(1, n)
    assert global_sensitivity(n, absolute=absolute) == pytest.approx(
        local_sensitivity(sizes, n - sizes, absolute=absolute).max(), abs=1e-12
    )


@pytest.mark.parametrize("n", range(3, 61))
@pytest.mark.parametrize("absolute", [False, True])
def test_smooth_is_smooth_and_above_local_at_every_size(n, absolute):
    """Neighbouring sizes differ by one; empty groups are part of the signed domain."""
    sizes = np.arange(1 if absolute else 0, n if absolute else n + 1)
    for beta in (0.001, 0.02, 1 / 6, 1.0, 5.0):
        smooth = smooth_sensitivity(sizes, n - sizes, beta, absolute=absolute)
        assert np.all(smooth >= local_sensitivity(sizes, n - sizes, absolute=absolute) - 1e-12)
        assert np.all(np.abs(np.diff(np.log(smooth))) <= beta + 1e-9)


@pytest.mark.parametrize("n", range(3, 9))
@pytest.mark.parametrize("beta", [0.001, 0.2, 2.0])
@pytest.mark.parametrize("absolute", [False, True])
def test_smooth_is_the_smallest_smooth_bound(n, beta, absolute):
    """It equals the maximum of local sensitivities discounted by the distance to their sizes."""
    for n0 in range(1, n):
        best = max(
            local_sensitivity(k, n - k, absolute=absolute) * np.exp(-beta * abs(k - n0)) for k in range(1, n)
        )
        assert smooth_sensitivity(n0, n - n0, beta, absolute=absolute) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("n", [3, 4, 5, 6, 7])
def test_changes_to_and_from_an_empty_group_are_within_the_bounds(n):
    assert brute_local(0, n, allow_empty=True) <= local_sensitivity(0, n) + 1e-12
    assert brute_local(1, n - 1, allow_empty=True) <= global_sensitivity(n) + 1e-12


@pytest.mark.parametrize("n", range(3, 9))
@pytest.mark.parametrize("beta", [0.001, 0.2, 2.0])
def test_next_to_an_empty_group_the_smooth_bound_is_the_smallest_too(n, beta):
    sizes = range(n + 1)
    for n0 in (0, n):
        best = max(local_sensitivity(k, n - k) * np.exp(-beta * abs(k - n0)) for k in sizes)
        assert smooth_sensitivity(n0, n - n0, beta) == pytest.approx(best, abs=1e-12)
        assert local_sensitivity(n0, n - n0) == pytest.approx(0.5 + 1 / n)


def test_gaps_are_signed_unless_said_otherwise():
    for bound, sizes in ((global_sensitivity, (9,)), (local_sensitivity, (1, 8))):
        assert bound(*sizes) == bound(*sizes, absolute=False) > bound(*sizes, absolute=True)
    assert smooth_sensitivity(1, 8, 0.1) == smooth_sensitivity(1, 8, 0.1, absolute=False)
    assert smooth_sensitivity(1, 8, 0.1) > smooth_sensitivity(1, 8, 0.1, absolute=True)


@pytest.mark.parametrize("bound", [global_sensitivity, local_sensitivity, smooth_sensitivity])
def test_messages_name_the_argument(bound):
    good = {"n": 9} if bound is global_sensitivity else {"n_disadvantaged": 4, "n_advantaged": 5}
    more = {"beta": 0.1} if bound is smooth_sensitivity else {}
    for name in [*good, "n_queries"]:
        with pytest.raises(ValueError, match=rf"^{name} must be a non-negative whole number"):
            bound(**good | more | {name: 2.5})
    assert bound(**{name: np.uint8(size) for name, size in good.items()}, **more) == bound(**good, **more)


def test_several_queries_add_up_and_arrays_broadcast():
    assert global_sensitivity(10, 5) == pytest.approx(5 * global_sensitivity(10))
    assert local_sensitivity(3, 7, 4) == pytest.approx(4 * local_sensitivity(3, 7))
    assert smooth_sensitivity(3, 7, 0.1, 4) == pytest.approx(4 * smooth_sensitivity(3, 7, 0.1))
    assert smooth_sensitivity([[3], [4]], [7, 8, 9], 0.1).shape == (2, 3)
    assert isinstance(global_sensitivity(10), float)
    assert local_sensitivity(2, 9) == local_sensitivity(9, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: global_sensitivity(2), "with 2, no change"),
        (lambda: local_sensitivity(1, 1), "with 2, no change"),
        (lambda: smooth_sensitivity(1, 1, 0.1), "with 2, no change"),
        (lambda: global_sensitivity(3.5), "whole number"),
        (lambda: global_sensitivity("3"), "whole number"),
        (lambda: global_sensitivity(True), "whole number"),
        (lambda: global_sensitivity(np.nan), "whole number"),
        (lambda: smooth_sensitivity(2, 3, np.nan), "beta must be positive"),
        (lambda: smooth_sensitivity(2, 3, [0.1, -0.1]), "beta must be positive"),
        (lambda: local_sensitivity(-1, 5), "whole number"),
        (lambda: global_sensitivity(5, 0), "n_queries must be at least 1"),
        (lambda: local_sensitivity(2, 3, 0), "n_queries must be at least 1"),
        (lambda: smooth_sensitivity(2, 3, 0.1, 0), "n_queries must be at least 1"),
        (lambda: smooth_sensitivity(2, 3, 0.0), "beta must be positive"),
        (lambda: smooth_sensitivity(2, 3, np.inf), "beta must be positive"),
        (lambda: smooth_sensitivity(0, 3, 0.1, absolute=True), "non-empty groups"),
        (lambda: local_sensitivity(0, 3, absolute=True), "non-empty groups"),
    ],
)
def test_bad_sizes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


class TestErrorsOfThePaper:
    """Printed formulas of Hamman, Chen & Dutta (2023), each with a counterexample."""

    def test_local_with_the_larger_group_disadvantaged(self):
        printed = 1 / 4 + 1 / (2 + 1)
        assert brute_local(4, 2) == pytest.approx(7 / 10)
        assert printed == pytest.approx(7 / 12)
        assert printed < brute_local(4, 2)

    def test_local_with_a_group_of_one_is_larger_than_needed(self):
        assert brute_local(1, 5) + 0.4 < 1 / 1 + 1 / (5 + 1)

    def test_absolute_local(self):
        h, a, b = np.array([0, 1, 0, 1.0]), np.array([0, 0, 1, 1]), np.array([1, 0, 1, 1])
        change = abs(abs(gap(h, b)) - abs(gap(h, a)))
        assert change == pytest.approx(2 / 3)
        assert change > 1 / 2  # printed: 1 / N0

    def test_absolute_global(self):
        assert brute_local(2, 2, absolute=True) == pytest.approx(global_sensitivity(4, absolute=True))
        assert brute_local(2, 2, absolute=True) > 1 / 2  # printed: m / 2

    def test_equal_opportunity_needs_the_size_of_the_subset(self):
        n, positives = 4, 3
        assert brute_local(2, positives - 2) == pytest.approx(1.0)
        assert 1 / 2 + 1 / (n - 1) < 1.0  # printed: with all n
        assert global_sensitivity(positives) == pytest.approx(1.0)

    def test_smooth_jumps_at_a_group_of_one(self):
        n, beta = 100, 1 / 6
        printed = [
            max(1 / (n - k + 1) + 1 / k, np.exp(-beta * (k - 2)) * (1 / (n - 1) + 0.5)) for k in (1, 2)
        ]
        assert abs(np.log(printed[0] / printed[1])) > 3 * beta
        ours = [smooth_sensitivity(k, n - k, beta) for k in (1, 2)]
        assert abs(np.log(ours[0] / ours[1])) <= beta

    def test_theorem_6_as_printed_exceeds_epsilon(self):
        """Exact loss of Cauchy noise between sizes 2 and 1, at n = 4, epsilon = 0.1."""
        n, epsilon = 4, 0.1
        s1, s2 = (
            6 / epsilon * max(1 / (n - k + 1) + 1 / k, np.exp(-epsilon * (k - 2) / 6) * (1 / (n - 1) + 0.5))
            for k in (1, 2)
        )
        shift = local_sensitivity(2, 2)
        loss = np.arccosh(1 + (shift**2 + (s1 - s2) ** 2) / (2 * s1 * s2))
        assert loss == pytest.approx(0.406, abs=5e-4)
        assert loss > 4 * epsilon

    def test_absolute_smooth_is_below_local_at_39_of_49_sizes(self):
        n, beta = 100, 1 / 6
        sizes = np.arange(2, n // 2 + 1)
        printed = np.maximum(1 / sizes, np.exp(-beta * (sizes - 2)) / 2)
        local = local_sensitivity(sizes, n - sizes, absolute=True)
        assert sizes.size == 49
        assert (printed < local - 1e-12).sum() == 39
