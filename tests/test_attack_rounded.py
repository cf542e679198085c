"""Rounding is no defence: everyone is read from rounded answers, or the attack says why not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_attack_positional import exact_oracle, people, same_partition

from sklearn_fairleak.attack import AttributeRevealAttack, positional, rounded
from sklearn_fairleak.attack.detecting_matrix import rows_needed
from sklearn_fairleak.attack.transcript import OracleStopped


def rounded_oracle(a, decimals, absolute=False):
    """Answer with so many decimals."""
    oracle = exact_oracle(a, absolute)
    return lambda h: round(oracle(h), decimals)


@pytest.mark.parametrize(("decimals", "most"), [(2, 253), (3, 156), (4, 109), (6, 64)])
def test_a_thousand_people_of_known_group_sizes(decimals, most):
    base, _, a = people(1000, 0.104, 0)
    found = rounded.run(rounded_oracle(a, decimals), base, decimals=decimals, group_sizes=(104, 896))
    assert found.exact
    assert np.array_equal(found.attributes, a)
    assert found.n_queries <= most


@pytest.mark.parametrize("decimals", [2, 3, 4, 6])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.5])
def test_group_sizes_come_from_the_answers(decimals, share):
    base, _, a = people(100, share, 1)
    found = rounded.run(rounded_oracle(a, decimals), base, decimals=decimals, random_state=0)
    assert found.exact
    assert np.array_equal(found.attributes, a)
    assert found.group_sizes == (int((a == 0).sum()), int(a.sum()))


@pytest.mark.parametrize(("decimals", "max_shift"), [(4, 0.1), (6, 0.1), (6, 0.01)])
def test_shifts_are_limited(decimals, max_shift):
    base, y, a = people(100, 0.2, 0)
    submitted = []

    def oracle(h):
        submitted.append(h)
        return rounded_oracle(a, decimals)(h)

    for limit in (None, 0.0):
        submitted.clear()
        found = rounded.run(
            oracle, base, y=y, decimals=decimals, max_shift=max_shift, max_accuracy_loss=limit
        )
        assert found.exact
        assert np.array_equal(found.attributes, a)
        assert found.max_shift <= max_shift
        assert found.n_queries <= rows_needed(100, 0) + 1
        if limit is not None:
            assert found.accuracy_loss == 0.0
            assert all(np.array_equal(h >= 0.5, base >= 0.5) for h in submitted)


def test_scaling_reads_answers_coarser_than_a_person():
    base, _, a = people(300, 0.5, 0)
    base = np.clip(base + 0.4 * a, 0.0, 1.0)
    found = rounded.run(rounded_oracle(a, 1), base, decimals=1, random_state=0)
    assert 10**-1 > 4 / 300
    assert found.exact
    assert np.array_equal(found.attributes, a)


def test_absolute_rounded_answers_are_read_by_scaling():
    base, _, a = people(80, 0.3, 0)
    base = np.clip(base + 0.3 * a, 0.0, 1.0)
    found = rounded.run(rounded_oracle(a, 2, True), base, decimals=2, signed=False)
    assert found.exact
    assert same_partition(found, a)
    assert not found.orientation_known


def test_rounding_above_the_allowed_shift_is_reported():
    base, _, a = people(200, 0.3, 0)
    found = rounded.run(rounded_oracle(a, 2), base, decimals=2, stealth=True)
    assert not found.determined.any()
    assert "more coarsely" in found.messages[0]


def test_answers_that_are_not_rounded_as_said_are_reported():
    base, _, a = people(100, 0.3, 0)
    rng = np.random.default_rng(0)
    found = rounded.run(
        lambda h: exact_oracle(a)(h) + rng.normal(0, 0.01), base, decimals=4, group_sizes=(30, 70)
    )
    assert not found.verified
    assert not found.determined.any()
    assert "contradict" in found.messages[0]


@pytest.mark.parametrize("decimals", [None, -1, 13])
def test_decimals_must_be_given(decimals):
    with pytest.raises(ValueError, match="decimals"):
        rounded.run(lambda h: 0.0, [0.2, 0.4], decimals=decimals)


def test_an_oracle_that_stops():
    base, _, a = people(100, 0.3, 0)
    calls = itertools.count()

    def oracle(h):
        if next(calls) == 9:
            raise RuntimeError("no budget left")
        return rounded_oracle(a, 4)(h)

    found = rounded.run(oracle, base, decimals=4, group_sizes=(30, 70))
    assert not found.determined.any()
    assert "no budget left" in found.messages[0]
    with pytest.raises(OracleStopped):
        rounded.run(lambda h: float("nan"), base, decimals=4, group_sizes=(30, 70))


def test_positional_hands_rounded_answers_over():
    base, y, a = people(100, 0.3, 0)
    found = positional.run(rounded_oracle(a, 4), base, decimals=4, group_sizes=(30, 70))
    assert np.array_equal(found.attributes, a)
    attack = AttributeRevealAttack("positional", decimals=4, signed=True).run(rounded_oracle(a, 4), base, y)
    assert attack.leakage(a) == 1.0
