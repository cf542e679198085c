"""Intervals cover what they say, and max minus min is corrected for noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.coverage import LEVELS, Trials
from sklearn_fairleak import FairnessAuditor
from sklearn_fairleak.contrasts import Differences, Largest, Ratios, SignedDifference, Smallest
from sklearn_fairleak.groups import Groups
from sklearn_fairleak.intervals import corrected_gaps, gap_intervals, limits_hold
from sklearn_fairleak.inversion import GroupSums, corrected, invert, uniform_draws
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


def normal_groups(means, sd, n_answers):
    """Group means of known sizes with independent normal errors."""
    k, rng = len(means), np.random.default_rng(1)
    sums = np.asarray(means) + sd * rng.standard_normal((n_answers, 1, k))
    errors = sd * norm.ppf(uniform_draws(k)).reshape(-1, 1, 1, k)
    return GroupSums(
        sums, np.ones_like(sums), errors, np.zeros_like(errors), np.full((n_answers, 1), float(k))
    )


def test_signed_limits_of_known_sizes_are_normal_limits():
    data = normal_groups([0.3, 0.5], 0.02, 20)
    limits = invert(data, SignedDifference(1), 0.95)
    gaps = data.sums[:, 0, 1] - data.sums[:, 0, 0]
    reach = norm.ppf(0.975) * 0.02 * 2**0.5
    np.testing.assert_allclose(limits, np.stack([gaps - reach, gaps + reach], axis=1), atol=reach / 50)


def test_limits_of_one_mean_are_fieller_limits():
    # (s - v c)^2 <= q^2 (a^2 + v^2 b^2), solved for v, for independent normal errors of sd a and b.
    s, c, a, b, q = 30.0, 80.0, 4.0, 5.0, norm.ppf(0.95)
    z = norm.ppf(uniform_draws(2))
    errors = (z * [a, b]).T.reshape(2, -1, 1, 1, 1)
    data = GroupSums(np.full((1, 1, 1), s), np.full((1, 1, 1), c), *errors, np.full((1, 1), 500.0))
    roots = np.roots([c * c - q * q * b * b, -2 * s * c, s * s - q * q * a * a])
    np.testing.assert_allclose(invert(data, Largest(), 0.9)[0], np.sort(roots), atol=2e-3)


def test_limits_of_a_magnitude_hold_zero_and_end_where_nothing_is_known():
    # Four errors of the same size as the smallest group: its mean may be anything.
    data = normal_groups([0.5, 0.5], 2.0, 5)
    np.testing.assert_array_equal(invert(data, Differences(), 0.9)[:, 1], 1.0)


@pytest.mark.parametrize("contrast", [Differences(), Ratios()], ids=["difference", "ratio"])
def test_limits_hold_what_the_test_accepts(contrast):
    data = normal_groups([0.3, 0.4, 0.6], 0.03, 50)
    limits = invert(data, contrast, 0.9)
    for u in (0.2, 0.3, 0.5):
        accepted = data.rejects(contrast, np.full(50, u), 0.9) <= 0
        assert np.mean(accepted == ((limits[:, 0] <= u) & (u <= limits[:, 1]))) > 0.95


@pytest.mark.parametrize("contrast", [Differences(), Ratios(), Smallest(), Largest()])
@pytest.mark.parametrize("u", [0.0, 0.1, 0.5, 0.9])
def test_nearest_means_have_the_wanted_disparity(contrast, u):
    rng = np.random.default_rng(0)
    means, variances = rng.random((30, 1, 4)), rng.random((30, 1, 4)) + 0.1
    moved = contrast.nearest(means, variances, np.full((30, 1), u))
    np.testing.assert_allclose(contrast.value(moved), u, atol=1e-12)
    assert moved.min() >= -1e-12
    assert moved.max() <= 1 + 1e-12


def test_without_noise_nothing_is_corrected():
    release = Release(
        law="none",
        sums=np.array([[0.2, 0.5, 0.9]]),
        counts=np.ones((1, 3)),
        totals=np.full(1, np.nan),
        weights=np.full(1, np.inf),
        noise=np.zeros((1, 2, 1)),
    )
    np.testing.assert_allclose(corrected_gaps(release, np.array([[0]])), [0.7])
    np.testing.assert_allclose(corrected_gaps(release, np.array([[0]]), ratio=True), [0.2 / 0.9])


@pytest.mark.parametrize("pattern", [(0.0, 1.0), (0.0, 0.0, 0.0, 1.0), (0.0, 0.5, 0.5, 1.0)])
@pytest.mark.parametrize("gap", [0.0, 0.01, 0.02, 0.04, 0.08, 0.2])
def test_corrected_difference_has_less_bias_than_equal_groups_leave(pattern, gap):
    # No estimate that cannot be negative is unbiased at 0. What is asked: wherever the groups are,
    # the bias is at most a third (of two groups, half) of what noise adds where they are equal.
    means = 0.4 + gap * np.asarray(pattern)
    data = normal_groups(means, 0.02, 300)
    equal = normal_groups(np.full(len(pattern), 0.4), 0.02, 300)
    naive = np.ptp(equal.sums, axis=-1).mean()
    left = corrected(data, Differences()).mean() - gap
    assert abs(left) <= naive / (3 if len(pattern) > 2 else 2)


@pytest.mark.parametrize("mechanism", RELEASES_GROUPS)
@pytest.mark.parametrize("metric", ["statistical_parity", "statistical_parity_ratio", "equalized_odds"])
def test_limits_with_an_empty_group_say_nothing_for_certain(mechanism, metric):
    found = Trials(mechanism, metric, 2, 300, 0.0, trials=60, delta=1e-6)
    for level in LEVELS:
        assert found.coverage(level) >= level - 0.01 - 3 * (level * (1 - level) / 60) ** 0.5


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


def test_answers_are_corrected_one_by_one():
    race = ["a", "b", "c", "d"] * 50
    scorer = FairnessAuditor(race, ids=range(1, 201), groups=list("abcd"), epsilon=2).scorer(
        metric="statistical_parity_ratio", mechanism="noisy_sums", epsilon=1.0
    )
    answers = scorer.answer_many([[1, 1, 1, 1, 0, 0, 0, 0] * 25])
    assert answers.corrected_values[0] >= answers.values[0]
    assert answers[0].corrected == answers.corrected_values[0]
    assert answers[0].interval(0.9, sampling=True)[0] <= answers[0].interval(0.9)[0]


CASES = [
    *(("laplace", metric, 2) for metric in ("statistical_parity", "equalized_odds")),
    ("attribute_conceal", "statistical_parity", 2),
    ("smooth_laplace", "statistical_parity", 2),
    *(
        (mechanism, metric, n_groups)
        for mechanism in RELEASES_GROUPS
        for metric, n_groups in (
            ("statistical_parity", 2),
            ("statistical_parity", 4),
            ("equalized_odds", 2),
            ("statistical_parity_ratio", 2),
        )
    ),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("mechanism", "metric", "n_groups"), CASES)
@pytest.mark.parametrize(("n", "share"), [(200, 0.01), (1000, 0.05), (1000, 0.3)])
def test_coverage_is_not_below_nominal(mechanism, metric, n_groups, n, share):
    found = Trials(mechanism, metric, n_groups, n, share, trials=TRIALS, delta=1e-6, seed=n + n_groups)
    for level in LEVELS:
        assert found.coverage(level) >= level - 0.01 - 3 * (level * (1 - level) / TRIALS) ** 0.5


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("mechanism", "metric", "n_groups"), [case for case in CASES if case[0] in RELEASES_GROUPS]
)
def test_limits_are_not_needlessly_wide(mechanism, metric, n_groups):
    found = Trials(mechanism, metric, n_groups, 5000, 0.3, trials=TRIALS, delta=1e-6, seed=n_groups)
    for level in LEVELS:
        assert found.coverage(level) <= level + 0.02 + 3 * (level * (1 - level) / TRIALS) ** 0.5


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", RELEASES_GROUPS)
def test_signed_limits_cover(mechanism):
    found = Trials(mechanism, "statistical_parity", 2, 1000, 0.3, trials=TRIALS, delta=1e-6, seed=7)
    for level in LEVELS:
        error = 3 * (level * (1 - level) / TRIALS) ** 0.5
        low, high = found.limits(level, absolute=False).T
        inside = np.mean((low <= -found.truth) & (-found.truth <= high))
        assert level - 0.01 - error <= inside <= level + 0.02 + error


@pytest.mark.parametrize(
    ("mechanism", "metric", "n_groups", "share"),
    [
        ("noisy_sums", "equalized_odds", 2, 0.05),
        ("randomized_response", "statistical_parity", 3, 0.05),
        (NoisySums("gaussian"), "statistical_parity_ratio", 2, 0.02),
        ("laplace", "statistical_parity", 2, 0.3),
    ],
)
def test_what_limits_hold_is_known_without_them(mechanism, metric, n_groups, share):
    found = Trials(mechanism, metric, n_groups, 500, share, trials=40, delta=1e-6)
    low, high = found.limits(0.9).T
    for value in (0.02, found.truth, 0.6):
        held = limits_hold(found.release, found.rows, 0.9, np.full(40, value), ratio=found.ratio)
        assert np.mean(held == ((low - 1e-9 <= value) & (value <= high + 1e-9))) >= 0.95


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", RELEASES_GROUPS)
def test_correction_removes_most_bias_of_equal_groups(mechanism):
    found = Trials(mechanism, "statistical_parity", 4, 4000, 0.25, trials=150, delta=1e-6, gap=0.0)
    plain, left = found.biases()
    assert abs(left) <= 0.4 * plain
