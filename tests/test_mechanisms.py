"""Mechanisms: output laws against exact ones, errors, bounds, and refusals from public facts."""

from collections import Counter
from fractions import Fraction
from itertools import product
from math import exp, log, sinh

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_fairleak.accounting import PrivacyLoss
from sklearn_fairleak.exceptions import NotPrivateWarning
from sklearn_fairleak.groups import Groups
from sklearn_fairleak.mechanisms import (
    MECHANISMS,
    AttributeConceal,
    Auto,
    Exact,
    Laplace,
    NoisySums,
    RandomizedResponse,
    Release,
    Rounded,
    SmoothLaplace,
    get_mechanism,
)
from sklearn_fairleak.mechanisms.attribute_conceal import cauchy_alpha
from sklearn_fairleak.mechanisms.ellipsoid import optimal_ellipsoid
from sklearn_fairleak.mechanisms.integer_design import IntegerDesign, group_sums
from sklearn_fairleak.mechanisms.sum_designs import calibrated_scales, candidate_designs, column_norms
from sklearn_fairleak.metrics import combine_rows, group_means
from sklearn_fairleak.noise import Noise, SeededNoise
from sklearn_fairleak.queries import make_queries


class Silent(Noise):
    """Noise of zero: what is left is the mechanism's own arithmetic. Records the scales asked for."""

    is_private = False

    def __init__(self):
        self.laplace_scales, self.variances = [], []

    def words(self, size):
        raise AssertionError("silent noise draws nothing")

    def discrete_laplace(self, scale, size):
        self.laplace_scales.append((scale, size))
        return np.zeros(size, dtype=np.int64)

    def discrete_gaussian(self, sigma2, size):
        self.variances.append((sigma2, size))
        return np.zeros(size, dtype=np.int64)

    def randomized_response(self, values, n_categories, epsilon):
        return np.asarray(values)

    def cauchy(self, size):
        return np.zeros(size)

    def laplace(self, size):
        return np.zeros(size)


def people(seed=0, n=60, n_groups=2):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_groups, n)
    codes[:n_groups] = np.arange(n_groups)
    return Groups(codes, tuple(range(n_groups)))


def models(seed=0, n=60, m=1, binary=False):
    rng = np.random.default_rng(seed)
    base = rng.random(n)
    H = np.clip(base + rng.uniform(-0.1, 0.1, (m, n)), 0, 1)
    return (H > 0.5).astype(float) if binary else H


SUM_DESIGNS = [
    NoisySums(design="pair"),
    NoisySums(design="sums"),
    NoisySums(design="residuals"),
    NoisySums("gaussian", design="diagonal"),
    NoisySums("gaussian", design="ellipsoid"),
]


@pytest.mark.parametrize("mechanism", SUM_DESIGNS, ids=lambda m: m.design)
@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("binary", [True, False])
def test_sums_without_noise_are_the_exact_answers(mechanism, n_groups, binary):
    m = 1 if mechanism.design == "pair" else 4
    batch = make_queries("statistical_parity", models(m=m, binary=binary))
    groups = people(n_groups=n_groups)
    loss = PrivacyLoss.pure(1) if mechanism.noise == "laplace" else PrivacyLoss.zcdp(Fraction(1, 2))
    means = mechanism.release(batch, groups, loss, Silent()).means()
    # Only the public rounding of values to the grid is left.
    assert means == pytest.approx(group_means(batch, groups.codes, n_groups), abs=2e-5)


@pytest.mark.parametrize(
    "metric", ["equalized_odds", "predictive_parity", "negative_predictive_parity", "accuracy_parity"]
)
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("mechanism", [NoisySums(), RandomizedResponse()], ids=lambda m: m.name)
def test_every_metric_and_weights_without_noise(metric, weights, mechanism):
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 60)
    w = rng.random(60) * 3 if weights else None
    batch = make_queries(metric, models(m=3, binary=True), y, sample_weight=w)
    groups = people()
    loss = PrivacyLoss.pure(60)  # at which randomised response keeps everyone
    means = mechanism.release(batch, groups, loss, Silent()).means()
    assert means == pytest.approx(group_means(batch, groups.codes, 2), abs=2e-5)


@pytest.mark.parametrize("mechanism", [Laplace(), AttributeConceal(), SmoothLaplace()], ids=lambda m: m.name)
def test_gap_mechanisms_without_noise_are_the_exact_gaps(mechanism):
    batch = make_queries("equalized_odds", models(binary=True), np.arange(60) % 2)
    groups = people()
    loss = PrivacyLoss.approx(1, Fraction(1, 10**6))
    released = mechanism.release(batch, groups, loss, Silent(), advantaged=0)
    means = group_means(batch, groups.codes, 2)
    assert released.gaps == pytest.approx(means[:, 0] - means[:, 1], abs=1e-6)


def neighbours(n, n_statuses):
    """All pairs of codes that differ in one individual."""
    for codes in product(range(n_statuses), repeat=n):
        for j, other in product(range(n), range(n_statuses)):
            if other != codes[j]:
                changed = list(codes)
                changed[j] = other
                yield np.array(codes), np.array(changed)


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5), min_size=1, max_size=3),
    st.sampled_from(["auto", "sums", "residuals", "pair"]),
    st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(3)]),
)
@settings(max_examples=40, deadline=None)
def test_laplace_sums_cost_at_most_epsilon_over_all_neighbours(rows, design, epsilon):
    """The exact loss of independent discrete Laplace noise is the sum of |shift| / scale."""
    H = np.array(rows)
    if (design == "pair" and len(H) > 1) or (design == "residuals" and len(H) == 1):
        return
    query = make_queries("statistical_parity", H).queries[0]
    for n_statuses in (2, 3):
        read = NoisySums(design=design).reader(query, n_statuses, epsilon)
        for codes, changed in neighbours(5, n_statuses):
            cost = Fraction(0)
            for group in [1] if n_statuses == 2 else range(n_statuses):
                pairs = zip(
                    read.parts(codes == group), read.parts(changed == group), read.scales, strict=True
                )
                cost += sum(Fraction(int(np.abs(a - b).sum())) / scale for a, b, scale in pairs)
            assert cost <= epsilon


def test_pair_of_sums_is_exactly_tight():
    query = make_queries("statistical_parity", np.array([[0.0, 1.0, 1.0]])).queries[0]
    read = NoisySums(design="pair").reader(query, 2, Fraction(1))
    assert read.scales == [Fraction(1)]
    assert [part.tolist() for part in read.parts(np.array([True, True, False]))] == [[1, 1]]


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5), min_size=1, max_size=3),
    st.sampled_from(["auto", "diagonal", "ellipsoid"]),
)
@settings(max_examples=30, deadline=None)
def test_gaussian_sums_cost_at_most_rho_over_all_neighbours(rows, design):
    """The zCDP cost of discrete Gaussian noise is |shift|^2 / (2 sigma^2)."""
    H, rho = np.array(rows), Fraction(1, 8)
    if design == "ellipsoid" and len(H) == 1:
        return
    query = make_queries("statistical_parity", H).queries[0]
    for n_statuses in (2, 3):
        read = NoisySums("gaussian", design=design).reader(query, n_statuses, rho)
        for codes, changed in neighbours(5, n_statuses):
            squares = 0
            for group in [1] if n_statuses == 2 else range(n_statuses):
                shift = read.parts(codes == group) - read.parts(changed == group)
                squares += sum(int(x) ** 2 for x in shift)
            assert Fraction(squares) / (2 * read.sigma2) <= rho


def test_batches_whose_subsets_overlap_share_the_budget():
    """Precision of three models: an individual whom all accept is part of three queries."""
    y, H = np.array([0, 1, 0, 1, 1]), np.ones((3, 5))
    batch = make_queries("predictive_parity", H, y)
    noise = Silent()
    NoisySums().release(batch, people(n=5), PrivacyLoss.pure(1), noise)
    spent = sum(1 / scale for scale, _ in noise.laplace_scales)
    assert batch.multiplicity == 3
    assert spent <= 1


def test_disjoint_subsets_cost_the_maximum():
    batch = make_queries("equalized_odds", np.array([[0, 1, 0, 1, 1, 0]]), np.array([0, 1, 0, 1, 1, 0]))
    noise = Silent()
    NoisySums(design="pair").release(batch, people(n=6), PrivacyLoss.pure(1), noise)
    assert [scale for scale, _ in noise.laplace_scales] == [1, 1]


class TestCauchy:
    @given(st.floats(0.01, 20), st.floats(0.01, 1.5), st.integers(0, 40), st.integers(3, 80))
    @settings(max_examples=200, deadline=None)
    def test_loss_between_neighbouring_sizes_is_at_most_epsilon(self, epsilon, share, n0, n):
        from sklearn_fairleak.sensitivity import local_sensitivity, smooth_sensitivity

        beta = epsilon * min(share, 0.999)
        alpha = cauchy_alpha(epsilon, beta)
        if alpha == 0 or n0 + 1 > n:
            return
        s0, s1 = (float(smooth_sensitivity(k, n - k, beta)) / alpha for k in (n0, n0 + 1))
        shift = min(float(local_sensitivity(k, n - k)) for k in (n0, n0 + 1))
        distance = np.arccosh(1 + (shift**2 + (s0 - s1) ** 2) / (2 * s0 * s1))
        assert distance <= epsilon * (1 + 1e-9)

    def test_hyperbolic_distance_is_the_largest_log_ratio(self):
        rng = np.random.default_rng(0)
        for shift, s0, s1 in rng.lognormal(size=(20, 3)):
            x = np.concatenate([np.linspace(-50, 50, 200001), np.linspace(-1e4, 1e4, 20001)])
            ratio = np.log(s0 / s1 * (s1**2 + (x - shift) ** 2) / (s0**2 + x**2))
            distance = np.arccosh(1 + (shift**2 + (s0 - s1) ** 2) / (2 * s0 * s1))
            assert np.abs(ratio).max() == pytest.approx(distance, rel=1e-3)

    def test_corner_is_as_good_as_no_dilation(self):
        epsilon = 0.7
        corner = log(2 * np.cosh(epsilon) - 1)
        assert cauchy_alpha(epsilon, corner) == pytest.approx(2 * sinh(epsilon / 2))
        assert cauchy_alpha(epsilon, 1.01 * corner) < 2 * sinh(epsilon / 2)

    def test_printed_formulas_warn_whatever_the_groups(self):
        batch = make_queries("statistical_parity", models())
        for groups in (people(), Groups(np.zeros(60, dtype=int), (0, 1))):
            with pytest.warns(NotPrivateWarning, match="printed formulas"):
                AttributeConceal(calibration="paper").release(batch, groups, PrivacyLoss.pure(1), Silent())

    def test_truncation_keeps_answers_inside_without_clipping(self):
        batch = make_queries("statistical_parity", models())
        noise = SeededNoise(0, b"truncate")
        mechanism = AttributeConceal(bounds="truncate")
        gaps = [
            mechanism.release(batch, people(), PrivacyLoss.pure(Fraction(1, 20)), noise).gaps[0]
            for _ in range(300)
        ]
        assert np.all(np.abs(gaps) <= 1)
        assert np.mean(np.abs(gaps) == 1) < 0.01


@pytest.mark.parametrize("name", sorted(set(MECHANISMS) - {"exact", "rounded"}))
@pytest.mark.parametrize("codes", [np.zeros(60, int), np.ones(60, int), (np.arange(60) == 0).astype(int)])
def test_private_mechanisms_answer_empty_and_single_groups_like_any_other(name, codes):
    mechanism = get_mechanism(name)
    delta = Fraction(1, 10**6) if name == "smooth_laplace" else Fraction(0)
    loss = mechanism.privacy_loss(Fraction(1), delta, 1)
    for metric in ("statistical_parity", "equalized_odds"):
        batch = make_queries(metric, models(binary=True), np.arange(60) % 2)
        released = mechanism.release(batch, Groups(codes, (0, 1)), loss, SeededNoise(1, b"x"))
        values = released.gaps if released.gaps is not None else released.means()
        assert np.isfinite(values).all()
        assert np.abs(values).max() <= 1


@pytest.mark.parametrize("mechanism", [Exact(), Rounded()])
def test_mechanisms_without_protection_refuse_undefined_metrics(mechanism):
    batch = make_queries("statistical_parity", models())
    with pytest.raises(ValueError, match="undefined"):
        mechanism.release(batch, Groups(np.zeros(60, int), (0, 1)), PrivacyLoss(), Silent())


def test_exact_and_rounded_answers():
    batch = make_queries("statistical_parity", models())
    groups = people(n_groups=3)
    truth = group_means(batch, groups.codes, 3)
    assert np.array_equal(Exact().release(batch, groups, PrivacyLoss(), Silent()).means(), truth)
    rounded = Rounded(decimals=2).release(batch, groups, PrivacyLoss(), Silent()).means()
    assert np.array_equal(rounded, np.round(truth, 2))


@pytest.mark.parametrize("mechanism", [Laplace(), AttributeConceal(), SmoothLaplace()], ids=lambda m: m.name)
def test_gap_mechanisms_refuse_what_their_bound_does_not_cover(mechanism):
    loss = PrivacyLoss.approx(1, Fraction(1, 10**6))
    batch = make_queries("statistical_parity", models())
    with pytest.raises(ValueError, match="exactly 2 groups"):
        mechanism.release(batch, people(n_groups=3), loss, Silent())
    weighted = make_queries("statistical_parity", models(), sample_weight=np.arange(60))
    with pytest.raises(ValueError, match="no bound for sample weights"):
        mechanism.release(weighted, people(), loss, Silent())
    small = make_queries("statistical_parity", np.array([[0.0, 1.0]]))
    with pytest.raises(ValueError, match=r"at least 3|n >= 3|n = 2"):
        mechanism.release(small, people(n=2), loss, Silent())


@pytest.mark.parametrize("mechanism", [NoisySums("gaussian"), SmoothLaplace()])
def test_approximate_privacy_needs_delta(mechanism):
    with pytest.raises(ValueError, match="delta > 0"):
        mechanism.privacy_loss(Fraction(1), Fraction(0), 1)


def test_bad_parameters_are_refused_by_name():
    for mechanism in (
        NoisySums("cauchy"),
        NoisySums(design="x"),
        Laplace(bounds="x"),
        AttributeConceal(calibration="x"),
        AttributeConceal(minority_share=0.0),
        RandomizedResponse(bounds="truncate"),
        Rounded(decimals=-1),
    ):
        with pytest.raises(ValueError, match="must be"):
            mechanism.privacy_loss(Fraction(1), Fraction(1, 100), 1)
    with pytest.raises(ValueError, match="mechanism must be one of"):
        get_mechanism("nope")
    with pytest.raises(ValueError, match="not available"):
        NoisySums(design="residuals").release(
            make_queries("statistical_parity", models()), people(), PrivacyLoss.pure(1), Silent()
        )


def test_ellipsoid_covers_all_points_near_its_bound():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(6, 1)) + 0.1 * rng.normal(size=(6, 200))
    axes, widths = optimal_ellipsoid(points, max_iter=2000, tol=1e-3)
    covered = ((axes.T @ points) ** 2 / widths[:, None] ** 2).sum(axis=0)
    assert covered.max() <= 1 + 1e-9
    diagonal = (np.abs(points).max(axis=1).sum()) ** 2
    assert (widths**2).sum() < diagonal


def test_designs_report_lower_error_for_near_identical_models():
    integers = IntegerDesign.from_query(make_queries("statistical_parity", models(m=20, n=500)).queries[0])
    kinds = {design.kind: design.variance for design in candidate_designs(integers, 1.0, "laplace")}
    assert kinds["residuals"] < kinds["sums"]


@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=4),
    st.lists(st.floats(1e-3, 1e9), min_size=4, max_size=4),
    st.fractions(min_value=Fraction(1, 1000), max_value=20),
)
def test_calibrated_scales_cost_at_most_epsilon(norms, scales, epsilon):
    calibrated = calibrated_scales(norms, scales[: len(norms)], epsilon)
    assert sum(Fraction(a) / b for a, b in zip(norms, calibrated, strict=True)) <= epsilon


def test_column_norms_are_exact_below_and_rounded_up_above_2_to_53():
    rows = np.full((3, 2), 2.0**40)
    assert column_norms(rows, squared=False) == 3 * 2**40
    assert column_norms(rows, squared=True) >= 3 * 2**80


def test_sums_that_could_lose_exactness_are_refused():
    with pytest.raises(OverflowError, match="2\\^53"):
        group_sums(np.full(4, 2.0**51), np.ones(4, bool))
    query = make_queries("statistical_parity", np.full(2**12, 0.3)).queries[0]
    assert IntegerDesign.from_query(query).grid == 2**20


def test_release_survives_the_wire():
    released = NoisySums().release(
        make_queries("statistical_parity", models(m=2)), people(), PrivacyLoss.pure(1), SeededNoise(0, b"")
    )
    again = Release.from_plain(released.to_plain())
    assert np.array_equal(again.means(), released.means())
    assert np.array_equal(again.noise, released.noise)
    with pytest.raises(ValueError, match="gaps between two groups"):
        Release(law="laplace", gaps=np.zeros(1)).means()


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("mechanism", "m"),
    [
        (NoisySums(design="pair"), 1),
        (NoisySums(design="sums"), 3),
        (NoisySums(design="residuals"), 3),
        (NoisySums("gaussian", design="diagonal"), 3),
        (NoisySums("gaussian", design="ellipsoid"), 3),
        (RandomizedResponse(), 2),
    ],
    ids=lambda v: getattr(v, "design", None) or str(v),
)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_reported_noise_law_is_the_real_one(mechanism, m, n_groups):
    """Sums and counts scatter around the truth with the covariance that intervals assume."""
    batch, groups = make_queries("statistical_parity", models(m=m, n=400)), people(n=400, n_groups=n_groups)
    loss = mechanism.privacy_loss(Fraction(1), Fraction(1, 10**6), 1)
    member = groups.codes == 1
    truth = batch.queries[0].values[:, member].sum(axis=1)
    errors = []
    for k in range(1500):
        released = mechanism.release(batch, groups, loss, SeededNoise(5, str(k).encode()))
        errors.append((released.sums[:, 1] - truth, released.counts[:, 1] - member.sum()))
    errors = np.array(errors)  # (draws, 2, rows)
    scale = 2.0 if released.law == "laplace" else 1.0
    expected = scale * np.einsum("rik,rjk->rij", released.noise, released.noise)
    measured = np.array([np.cov(errors[:, :, r].T) for r in range(m)])
    spread = np.sqrt(expected[:, [0, 1], [0, 1]])
    tolerance = 0.15 * spread[:, :, None] * spread[:, None, :]
    if n_groups == 3 and isinstance(mechanism, RandomizedResponse):
        assert np.all(measured[:, [0, 1], [0, 1]] <= expected[:, [0, 1], [0, 1]] * 1.15)  # a bound
    else:
        assert np.all(np.abs(measured - expected) <= tolerance)
    assert np.all(np.abs(errors.mean(axis=0)) <= 4 * spread.T / np.sqrt(len(errors)) + 1e-2)


@pytest.mark.statistical
def test_pair_of_sums_has_the_two_sided_geometric_law():
    """n = 3, h = (0, 1, 1): the released sum is the exact sum plus geometric noise at epsilon = 1."""
    batch, groups = make_queries("statistical_parity", np.array([[0.0, 1.0, 1.0]])), people(n=3)
    draws = Counter(
        int(
            NoisySums(design="pair", bounds="none")
            .release(batch, groups, PrivacyLoss.pure(1), SeededNoise(7, str(k).encode()))
            .sums[0, 1]
        )
        for k in range(4000)
    )
    truth = int(batch.queries[0].values[0, groups.codes == 1].sum())
    q = exp(-1)
    for x in range(-2, 3):
        p = (1 - q) / (1 + q) * q ** abs(x)
        assert draws[truth + x] / 4000 == pytest.approx(p, abs=4.5 * (p / 4000) ** 0.5)


def test_combine_rows_takes_the_worst_part():
    means = np.array([[0.1, 0.4], [0.9, 0.2]])
    rows = np.array([[0, 1]])
    assert combine_rows(means, rows).tolist() == pytest.approx([0.7])
    assert combine_rows(means, rows, absolute=False, advantaged=1).tolist() == pytest.approx([-0.7])
    assert combine_rows(means, rows, ratio=True).tolist() == pytest.approx([2 / 9])


class TestPlanning:
    def test_auto_never_chooses_worse_than_its_candidates(self):
        for n, m in product((100, 1000, 10_000), (1, 30, 1000)):
            auto = Auto().error_scale(n, m, 1.0)
            assert auto == min(c.error_scale(n, m, 1.0) for c in Auto().candidates(0.0))

    def test_randomised_response_wins_for_many_queries_only(self):
        assert isinstance(Auto().choose(1000, 1, 1.0), NoisySums)
        assert isinstance(Auto().choose(1000, 300, 1.0), RandomizedResponse)

    def test_delta_brings_gaussian_noise_in(self):
        chosen = Auto().choose(10_000, 40, 1.0, 1e-6)
        assert chosen.noise == "gaussian"

    @pytest.mark.parametrize("name", sorted(MECHANISMS))
    def test_error_falls_with_epsilon_and_people(self, name):
        mechanism = get_mechanism(name)
        delta = 1e-6
        errors = [mechanism.error_scale(n, 5, e, delta) for n, e in ((100, 0.1), (1000, 0.5), (10_000, 2.0))]
        assert errors[0] >= errors[1] >= errors[2] >= 0
        assert errors[0] <= 2

    def test_minority_share_is_a_share(self):
        with pytest.raises(ValueError, match="minority_share"):
            NoisySums().error_scale(100, 1, 1.0, minority_share=0.7)
