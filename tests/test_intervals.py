"""Intervals cover what they say, and max minus min is corrected for noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.coverage import LEVELS, measure
from sklearn_fairleak import FairnessAuditor
from sklearn_fairleak.groups import Groups
from sklearn_fairleak.intervals import corrected_range, gap_intervals, range_limits
from sklearn_fairleak.mechanisms import NoisySums, get_mechanism
from sklearn_fairleak.mechanisms.release import Release
from sklearn_fairleak.noise import SeededNoise
from sklearn_fairleak.queries import make_queries

TRIALS = 150
RELEASES_GROUPS = ["noisy_sums", "randomized_response", NoisySums("gaussian")]


def test_laplace_and_cauchy_limits_have_closed_forms():
    rows = np.array([[0]])
    for law, width in (("laplace", np.log(20.0)), ("cauchy", np.tan(0.95 * np.pi / 2))):
        release = Release(law=law, gaps=np.array([0.1]), scale=np.array([0.01]), bounds="none")
        limits = gap_intervals(release, rows, 0.95, ratio=False, absolute=False, advantaged=1)
        np.testing.assert_allclose(limits, [[0.1 - 0.01 * width, 0.1 + 0.01 * width]])


def test_range_moves_by_no_more_than_the_range_of_errors():
    values, draws = np.array([0.2, 0.5, 0.6]), np.array([[0.1, 0.5, 0.6], [0.2, 0.5, 0.7]])
    np.testing.assert_allclose(range_limits(values, draws, 1.0), [0.3, 0.5])


def test_range_without_noise_is_not_corrected():
    values = np.array([[0.2, 0.5, 0.9]])
    np.testing.assert_allclose(corrected_range(values, np.repeat(values[None], 5, axis=0)), [0.7])


@pytest.mark.parametrize(("gap", "left"), [(0.0, 0.5), (0.2, 0.7)])
def test_corrected_range_is_less_biased(gap, left):
    rng = np.random.default_rng(0)
    truth = np.array([0.5, 0.5, 0.5, 0.5 + gap])
    noisy = truth + 0.02 * rng.standard_normal((500, 4))
    draws = noisy + 0.02 * rng.standard_normal((400, 500, 4))
    naive, corrected = np.ptp(noisy, axis=1).mean() - gap, corrected_range(noisy, draws).mean() - gap
    assert abs(corrected) < left * naive


@pytest.mark.parametrize("mechanism", RELEASES_GROUPS)
@pytest.mark.parametrize("metric", ["statistical_parity", "statistical_parity_ratio"])
def test_limits_with_an_empty_group_say_nothing_for_certain(mechanism, metric):
    covered = measure(mechanism, metric, 2, 300, 0.0, trials=20, delta=1e-6)
    assert covered[1] >= 0.8


def test_many_rows_equal_one_at_a_time():
    rng = np.random.default_rng(0)
    batch = make_queries("statistical_parity", rng.random((300, 50)), None)
    mechanism = get_mechanism("noisy_sums")
    loss = mechanism.privacy_loss(Fraction(1), Fraction(0), 1)
    groups = Groups(np.arange(50) % 2, ("a", "b"))
    release = mechanism.release(batch, groups, loss, SeededNoise(0, b""))
    limits = gap_intervals(release, batch.rows, 0.9, ratio=False, absolute=True, advantaged=1)
    assert limits.shape == (300, 2)
    assert np.all(limits[:, 0] <= limits[:, 1])


def test_sampling_makes_intervals_wider_where_groups_are_told():
    race, rng = ["a", "b"] * 200, np.random.default_rng(0)
    y_pred = rng.integers(0, 2, 400)
    scorer = FairnessAuditor(race, ids=range(1, 401)).scorer(mechanism="noisy_sums")
    answers = scorer.answer_many([y_pred])
    noise, both = answers.interval(0.95), answers.interval(0.95, sampling=True)
    # The sampling error of a gap between two groups of 200 is about 1/20.
    assert np.ptp(both) > np.ptp(noise)
    assert both[0, 1] > 0.08
    gaps = FairnessAuditor(race, ids=range(1, 401)).scorer(mechanism="laplace").answer_many([y_pred])
    with pytest.raises(ValueError, match="group sizes"):
        gaps.interval(sampling=True)


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", [*RELEASES_GROUPS, "laplace", "attribute_conceal", "smooth_laplace"])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.3])
def test_coverage_is_not_below_nominal(mechanism, share):
    covered = measure(mechanism, "statistical_parity", 2, 1000, share, trials=TRIALS, delta=1e-6)
    for level, found in zip(LEVELS, covered, strict=True):
        assert found >= level - 0.01 - 3 * (level * (1 - level) / TRIALS) ** 0.5


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", RELEASES_GROUPS)
def test_coverage_of_several_groups(mechanism):
    covered = measure(mechanism, "statistical_parity", 4, 1000, 0.1, trials=TRIALS, delta=1e-6)
    for level, found in zip(LEVELS, covered, strict=True):
        assert found >= level - 0.01 - 3 * (level * (1 - level) / TRIALS) ** 0.5
