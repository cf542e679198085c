"""Exact privacy loss over all neighbours: what meets the noise is caught, and its law is known.

A tap stands in for the source of noise. It records every secret that noise is added to, with the
law of that noise, and lets a public constant out in its place. If what is then released is the same
for all secrets, the release depends on the secret through the recorded sums only, and its privacy
loss is that of the recorded laws: rational numbers, which are compared with epsilon without rounding.
"""

from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.special import log_ndtr

from sklearn_fairleak.accounting import PrivacyLoss, rho_for
from sklearn_fairleak.group_metrics import describe_metric
from sklearn_fairleak.groups import Groups
from sklearn_fairleak.mechanisms import (
    AttributeConceal,
    Auto,
    Laplace,
    NoisySums,
    RandomizedResponse,
    SmoothLaplace,
)
from sklearn_fairleak.noise import Noise, flip_probability
from sklearn_fairleak.queries import METRICS, make_queries
from sklearn_fairleak.sum_release import SharedSums

EPSILON = Fraction(3, 4)
#: Scales are rounded up to multiples of 2^-16, so no more of epsilon than this is left over.
ROUNDED = 1 - Fraction(1, 2**16)


@dataclass
class Tap(Noise):
    """Record what meets the noise, and let a constant through in its place."""

    laws: list = field(default_factory=list)
    secrets: list = field(default_factory=list)

    def words(self, size):
        raise AssertionError("a recorded mechanism draws from named laws only")

    def met(self, law, secret):
        self.laws.append(law)
        self.secrets.append(np.array(secret))
        return (np.arange(np.size(secret)) % 3 + 1).reshape(np.shape(secret)).astype(np.result_type(secret))

    def discrete_laplace(self, scale, size):
        return Pending(self, ("laplace", Fraction(scale)), size)

    def discrete_gaussian(self, sigma2, size):
        return Pending(self, ("gaussian", Fraction(sigma2)), size)

    def cauchy(self, size):
        return Pending(self, ("cauchy", None), size)

    def laplace(self, size):
        return Pending(self, ("real laplace", None), size)

    def randomized_response(self, values, n_categories, epsilon):
        return self.met(("response", (n_categories, Fraction(epsilon))), values) % n_categories


class Pending(np.lib.mixins.NDArrayOperatorsMixin):
    """Noise that is not drawn: a factor is remembered, and what it is added to is recorded."""

    def __init__(self, tap, law, size, factor=1.0):
        self.tap, self.law, self.size, self.factor = tap, law, size, factor

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        (other,) = [given for given in inputs if given is not self]
        if ufunc is np.multiply:
            return Pending(self.tap, self.law, self.size, self.factor * other)
        assert ufunc is np.add, f"noise entered {ufunc.__name__}, whose law is not known here"
        secret = np.asarray(other)
        assert secret.shape == (self.size,), "each sum has noise of its own"
        if self.law[0] in ("laplace", "gaussian"):
            assert secret.dtype == np.int64, "no float between the secret and the noise"
            return self.tap.met(self.law, secret)
        # Scales that follow the secret are recorded beside the value.
        reach = np.full(self.size, self.factor)
        return self.tap.met((self.law[0], None), np.stack([secret, reach]))[0]


def every_secret(n, n_statuses):
    return np.array(list(product(range(n_statuses), repeat=n)))


def neighbours(n, n_statuses):
    """Positions in ``every_secret`` of all pairs that differ in one individual."""
    index = np.arange(n_statuses**n).reshape((n_statuses,) * n)
    for place in range(n):
        for low in range(n_statuses):
            for high in range(low + 1, n_statuses):
                yield np.take(index, low, place).ravel(), np.take(index, high, place).ravel()


@dataclass
class Recorded:
    """What a mechanism's noise met, for all secrets of n individuals."""

    n: int
    n_statuses: int
    laws: list
    secrets: list  # one array (n_secrets, size) for each law

    def largest_shifts(self):
        """Yield the distinct moves of all recorded sums, one row for a pair of neighbours."""
        stacked = np.concatenate(self.secrets, axis=1)
        rows = [np.abs(stacked[a] - stacked[b]) for a, b in neighbours(self.n, self.n_statuses)]
        return np.unique(np.concatenate(rows), axis=0)

    def losses(self):
        """Return the exact privacy loss of every pair of neighbours: pure epsilon."""
        sizes = [secret.shape[1] for secret in self.secrets]
        found = set()
        for shift in self.largest_shifts().tolist():
            total, start = Fraction(0), 0
            for (kind, parameter), size in zip(self.laws, sizes, strict=True):
                part, start = shift[start : start + size], start + size
                if kind == "laplace":
                    total += sum(part) / parameter
                else:
                    assert kind == "response"
                    total += sum(1 for moved in part if moved) * response_loss(*parameter)
            found.add(total)
        return found

    def rhos(self):
        """Return the zero-concentrated loss of every pair of neighbours."""
        sizes = [secret.shape[1] for secret in self.secrets]
        found = set()
        for shift in self.largest_shifts().tolist():
            total, start = Fraction(0), 0
            for (kind, sigma2), size in zip(self.laws, sizes, strict=True):
                part, start = shift[start : start + size], start + size
                assert kind == "gaussian"
                total += Fraction(sum(moved**2 for moved in part)) / (2 * sigma2)
            found.add(total)
        return found


def response_loss(n_categories, epsilon):
    """Return the log-ratio of reporting the true code and another one."""
    flip = flip_probability(epsilon, n_categories)
    odds = (1 - flip) * (n_categories - 1) / flip
    digits = Context(prec=50)
    return Fraction(digits.divide(Decimal(odds.numerator), Decimal(odds.denominator)).ln(digits))


def record(mechanism, batches, n, n_statuses, loss, *, missing=False, positions=None):
    """Release for every secret, once for each batch (on its own positions), and keep what was met."""
    labels = tuple(range(n_statuses - missing))
    laws, kept, public = None, [], None
    for codes in every_secret(n, n_statuses):
        tap, released = Tap(), []
        for k, batch in enumerate(batches):
            own = codes if positions is None else codes[positions[k]]
            groups = Groups(own, labels, has_missing_status=missing)
            released.append(repr(mechanism.release(batch, groups, loss, tap).to_plain()))
        if public is None:
            laws, public = tap.laws, released
        # Laws, their number and order, and all that is released besides noisy sums are public.
        assert tap.laws == laws
        assert released == public
        kept.append(tap.secrets)
    return Recorded(n, n_statuses, laws, [np.stack(column) for column in zip(*kept, strict=True)])


def question(metric, n, m=1, *, seed=0, weights=False, binary=None):
    """A question that every metric accepts, with three individuals or more in each subset if n >= 6."""
    rng = np.random.default_rng(seed)
    binary = METRICS[metric][1] if binary is None else binary
    H = rng.random((m, n)).round(3)
    if binary:
        H = np.tile((np.arange(n) % 2).astype(float), (m, 1))
        H = np.array([np.roll(row, k) for k, row in enumerate(H)])
    y = (np.arange(n) < n // 2).astype(int) if METRICS[metric][0] else None
    w = rng.integers(1, 8, n) / 2 if weights else None
    return make_queries(metric, H, y, sample_weight=w)


def pure(mechanism, m=1):
    return mechanism.privacy_loss(EPSILON, Fraction(0), 1)


def test_the_formula_is_the_largest_ratio_of_the_laws():
    """By enumeration of outcomes: log-ratios of discrete Laplace laws are rational."""
    a, b, scales = (0, 3), (2, -1), (Fraction(5, 2), Fraction(7))
    ratios = [
        sum((abs(x - q) - abs(x - p)) / s for x, p, q, s in zip(point, a, b, scales, strict=True))
        for point in product(range(-9, 10), repeat=2)
    ]
    assert max(ratios) == sum(abs(p - q) / s for p, q, s in zip(a, b, scales, strict=True))


def test_a_secret_that_goes_around_the_noise_is_caught():
    class Around(Laplace):
        def release(self, batch, groups, loss, noise, *, advantaged=1):
            released = super().release(batch, groups, loss, noise)
            released.gaps[0] += 1e-12 * groups.codes[0]
            return released

    with pytest.raises(AssertionError):
        record(Around(), [question("statistical_parity", 4)], 4, 2, PrivacyLoss.pure(1))


def test_a_scale_that_follows_the_secret_is_caught():
    class Following(Laplace):
        def release(self, batch, groups, loss, noise, *, advantaged=1):
            return super().release(batch, groups, loss * (1 + int(groups.codes[0])), noise)

    with pytest.raises(AssertionError):
        record(Following(), [question("statistical_parity", 4)], 4, 2, PrivacyLoss.pure(1))


def test_a_loss_above_epsilon_is_caught():
    """The size of the whole data set in place of the subset's: equal opportunity as printed."""
    h, y = np.array([1.0, 0, 0, 0, 0, 0]), np.array([1, 1, 1, 0, 0, 0])
    batch = make_queries("equal_opportunity", h, y)
    recorded = record(Laplace(), [batch], 6, 2, PrivacyLoss.pure(EPSILON * 2**20))
    printed = Fraction(1, 2) + Fraction(1, 5)
    worst = max(recorded.losses()) * recorded.laws[0][1] / 2**20
    assert worst > printed * Fraction(14, 10)


PURE = [
    NoisySums(),
    NoisySums(design="sums"),
    RandomizedResponse(),
    Auto(),
]


@pytest.mark.parametrize("mechanism", PURE, ids=["sums_auto", "sums", "response", "auto"])
@pytest.mark.parametrize("weights", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("metric", METRICS)
class TestEveryMetric:
    @pytest.mark.parametrize(("n", "n_statuses", "m"), [(5, 2, 1), (4, 2, 3), (4, 3, 2)])
    def test_costs_at_most_epsilon(self, metric, weights, mechanism, n, n_statuses, m):
        batch = question(metric, n, m, weights=weights)
        recorded = record(mechanism, [batch], n, n_statuses, pure(mechanism))
        assert 0 < max(recorded.losses()) <= EPSILON

    @pytest.mark.statistical
    @pytest.mark.parametrize(("n", "n_statuses", "m"), [(7, 2, 3), (5, 3, 2), (4, 4, 2)])
    def test_costs_at_most_epsilon_on_more(self, metric, weights, mechanism, n, n_statuses, m):
        batch = question(metric, n, m, weights=weights)
        recorded = record(mechanism, [batch], n, n_statuses, pure(mechanism))
        assert 0 < max(recorded.losses()) <= EPSILON


@pytest.mark.parametrize("mechanism", PURE, ids=["sums_auto", "sums", "response", "auto"])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_a_missing_status_is_a_status(mechanism, n_groups):
    """Nobody without a group is in any gap, and everybody is protected."""
    batch = question("accuracy_parity", 4, 2)
    recorded = record(mechanism, [batch], 4, n_groups + 1, pure(mechanism), missing=True)
    assert 0 < max(recorded.losses()) <= EPSILON


class TestTight:
    """Claimed tight: 0.9 epsilon at least is reached by some neighbours of every such question.

    Not claimed, and why: weighted sums (the heaviest individual need not be the one of the most
    extreme value), residuals (base and residual have their largest columns at different
    individuals), overlapping subsets (the bound counts the individual of the most subsets as if it
    moved every sum), smooth Laplace noise (its delta comes from a tail bound).
    """

    @pytest.mark.parametrize(("n", "n_statuses"), [(7, 2), (5, 3), (4, 4)])
    @pytest.mark.parametrize("binary", [True, False])
    def test_pairs_of_sums_cost_epsilon(self, n, n_statuses, binary):
        batch = question("statistical_parity", n, binary=binary)
        recorded = record(NoisySums(design="pair"), [batch], n, n_statuses, PrivacyLoss.pure(EPSILON))
        assert EPSILON * ROUNDED <= min(recorded.losses()) <= max(recorded.losses()) <= EPSILON

    @pytest.mark.parametrize(("n", "n_statuses"), [(7, 2), (4, 3)])
    @pytest.mark.parametrize("m", [1, 2, 5])
    def test_sums_with_a_count(self, n, n_statuses, m):
        batch = question("statistical_parity", n, m, binary=False)
        recorded = record(NoisySums(design="sums"), [batch], n, n_statuses, PrivacyLoss.pure(EPSILON))
        assert EPSILON * Fraction(9, 10) <= max(recorded.losses()) <= EPSILON

    @pytest.mark.parametrize(("n", "n_statuses"), [(7, 2), (5, 3), (4, 4)])
    def test_randomised_response(self, n, n_statuses):
        batch = question("statistical_parity", n, 2)
        recorded = record(RandomizedResponse(), [batch], n, n_statuses, PrivacyLoss.pure(EPSILON))
        (loss,) = recorded.losses()
        assert EPSILON * (1 - Fraction(1, 2**58)) <= loss <= EPSILON

    @pytest.mark.parametrize("n", [3, 5, 7])
    @pytest.mark.parametrize("m", [1, 3])
    def test_laplace_on_a_single_positive(self, n, m):
        batch = make_queries("statistical_parity", np.tile(np.eye(n)[0], (m, 1)))
        recorded = record(Laplace(), [batch], n, 2, PrivacyLoss.pure(EPSILON))
        assert EPSILON * Fraction(999, 1000) <= max(recorded.losses()) <= EPSILON

    @pytest.mark.parametrize("design", ["diagonal", "ellipsoid"])
    def test_gaussian_sums(self, design):
        rho = Fraction(1, 10)
        batch = question("statistical_parity", 7, 3, binary=False)
        recorded = record(NoisySums("gaussian", design=design), [batch], 7, 2, PrivacyLoss.zcdp(rho))
        assert rho * Fraction(9, 10) <= max(recorded.rhos()) <= rho

    def test_cauchy_noise_on_a_single_positive(self):
        batch = make_queries("statistical_parity", np.eye(7)[0])
        recorded = record(AttributeConceal(), [batch], 7, 2, PrivacyLoss.pure(EPSILON))
        assert 0.9 * EPSILON <= max(cauchy_losses(recorded)) <= EPSILON * (1 + 1e-12)


class TestPureDesigns:
    """Designs and gap mechanisms that not every metric chooses by itself."""

    @pytest.mark.parametrize("weights", [False, True])
    @pytest.mark.parametrize(("n", "n_statuses"), [(6, 2), (4, 3)])
    @pytest.mark.parametrize("design", ["sums", "residuals"])
    def test_batches(self, design, n, n_statuses, weights):
        for m, binary in product((2, 6), (True, False)):
            batch = question("statistical_parity", n, m, weights=weights, binary=binary)
            recorded = record(NoisySums(design=design), [batch], n, n_statuses, PrivacyLoss.pure(EPSILON))
            assert 0 < max(recorded.losses()) <= EPSILON

    def test_pairs_with_weights(self):
        batch = question("statistical_parity", 6, weights=True, binary=False)
        recorded = record(NoisySums(design="pair"), [batch], 6, 2, PrivacyLoss.pure(EPSILON))
        # The heaviest individual pays all; the others by their weight.
        assert min(recorded.losses()) < EPSILON * ROUNDED <= max(recorded.losses()) <= EPSILON

    @pytest.mark.parametrize("n", [3, 4, 5, 6, 7])
    def test_laplace_on_every_binary_question(self, n):
        for ones in range(n + 1):
            batch = make_queries("statistical_parity", (np.arange(n) < ones).astype(float))
            recorded = record(Laplace(), [batch], n, 2, PrivacyLoss.pure(EPSILON))
            assert max(recorded.losses()) <= EPSILON

    @pytest.mark.parametrize("m", [1, 2])
    @pytest.mark.parametrize("metric", [name for name in METRICS if not name.endswith("predictive_parity")])
    def test_laplace_on_every_metric(self, metric, m):
        recorded = record(Laplace(), [question(metric, 7, m)], 7, 2, PrivacyLoss.pure(EPSILON))
        assert 0 < max(recorded.losses()) <= EPSILON

    @pytest.mark.statistical
    @pytest.mark.parametrize("mechanism", [NoisySums(), RandomizedResponse()], ids=lambda m: m.name)
    @pytest.mark.parametrize(("n_statuses", "n"), [(3, 7), (4, 7)])
    def test_seven_individuals_in_three_and_four_groups(self, mechanism, n, n_statuses):
        batch = question("statistical_parity", n, binary=False)
        recorded = record(mechanism, [batch], n, n_statuses, PrivacyLoss.pure(EPSILON))
        assert EPSILON * Fraction(9, 10) <= max(recorded.losses()) <= EPSILON


class TestFolds:
    """Disjoint test folds: each is released at the whole price, and nobody pays more than once."""

    @pytest.mark.parametrize(
        "mechanism", [NoisySums(), RandomizedResponse(), Laplace()], ids=lambda m: m.name
    )
    @pytest.mark.parametrize("folds", [([0, 1, 2], [3, 4, 5, 6]), ([6, 0, 3], [5, 1, 4])])
    def test_parallel_composition(self, mechanism, folds):
        h = np.array([1.0, 0.25, 0, 0.5, 0, 1, 0])
        positions = [np.array(fold) for fold in folds]
        batches = [make_queries("statistical_parity", h[where]) for where in positions]
        recorded = record(mechanism, batches, 7, 2, PrivacyLoss.pure(EPSILON), positions=positions)
        assert len(recorded.laws) == 2
        assert 0 < max(recorded.losses()) <= EPSILON

    def test_overlapping_folds_cost_the_sum(self):
        """The counterpart, so that the check above can fail."""
        positions = [np.array([0, 1, 2]), np.array([2, 3, 4])]
        batches = [make_queries("statistical_parity", np.array([1.0, 0, 1])) for _ in positions]
        recorded = record(NoisySums(), batches, 5, 2, PrivacyLoss.pure(EPSILON), positions=positions)
        assert 2 * EPSILON * ROUNDED <= max(recorded.losses()) <= 2 * EPSILON

    def test_gaussian_folds(self):
        positions, rho = [np.array([0, 1, 2]), np.array([3, 4, 5, 6])], Fraction(1, 8)
        rng = np.random.default_rng(1)
        batches = [make_queries("statistical_parity", rng.random((3, where.size))) for where in positions]
        mechanism, loss = NoisySums("gaussian"), PrivacyLoss.zcdp(rho)
        recorded = record(mechanism, batches, 7, 2, loss, positions=positions)
        assert 0.9 * rho <= max(recorded.rhos()) <= rho


def gaussian_delta(mu, epsilon):
    """Return the delta of Gaussian noise whose mean moves by mu standard deviations (exact)."""
    lost = np.exp(log_ndtr(mu / 2 - epsilon / mu))
    return lost - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))


class TestGaussian:
    @pytest.mark.parametrize("weights", [False, True])
    @pytest.mark.parametrize(("n", "n_statuses", "m"), [(6, 2, 1), (6, 2, 4), (4, 3, 3), (3, 4, 2)])
    def test_privacy_profile_over_all_neighbours(self, n, n_statuses, m, weights):
        epsilon, delta = Fraction(1), Fraction(1, 1000)
        mechanism = NoisySums("gaussian")
        loss = mechanism.privacy_loss(epsilon, delta, 1)
        batch = question("statistical_parity", n, m, weights=weights, binary=False)
        recorded = record(mechanism, [batch], n, n_statuses, loss)
        worst = max(recorded.rhos())
        assert worst <= loss.rho
        # Grids of a thousand steps: discrete and continuous noise agree to all digits.
        assert min(float(sigma2) for _, sigma2 in recorded.laws) > 1e6
        assert gaussian_delta(float(2 * worst) ** 0.5, 1.0) <= delta

    @pytest.mark.parametrize("metric", METRICS)
    def test_every_metric(self, metric):
        loss = PrivacyLoss.zcdp(Fraction(1, 8))
        recorded = record(NoisySums("gaussian"), [question(metric, 6, 2)], 6, 2, loss)
        assert 0 < max(recorded.rhos()) <= loss.rho

    @pytest.mark.parametrize("shift", [1, 2, 7])
    @pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-2), (1.0, 1e-3), (3.0, 1e-6)])
    def test_profile_of_the_discrete_law_itself(self, shift, epsilon, delta):
        """By summation over whole numbers, at the smallest sigma that the accounting allows."""
        rho = rho_for(Fraction(epsilon), Fraction(delta))
        sigma2 = float(shift**2 / (2 * rho))
        x = np.arange(-4000, 4001)
        law = np.exp(-(x**2) / (2 * sigma2))
        moved = np.exp(-((x - shift) ** 2) / (2 * sigma2))
        exact = np.maximum(law - np.exp(epsilon) * moved, 0).sum() / law.sum()
        assert 0 < exact <= delta
        assert exact == pytest.approx(gaussian_delta(shift / sigma2**0.5, epsilon), rel=0.35)


def cauchy_losses(recorded):
    """Return the hyperbolic distance of neighbouring Cauchy laws, summed over gaps."""
    stacked = np.concatenate(recorded.secrets, axis=2)
    value, scale = stacked[:, 0], stacked[:, 1]
    found = []
    for a, b in neighbours(recorded.n, 2):
        apart = (value[a] - value[b]) ** 2 + (scale[a] - scale[b]) ** 2
        found.append(np.arccosh(1 + apart / (2 * scale[a] * scale[b])).sum(axis=1))
    return np.unique(np.concatenate(found).round(12))


class TestCauchy:
    @pytest.mark.parametrize("n", [3, 4, 5, 6, 7])
    @pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(5)])
    def test_every_binary_question(self, n, epsilon):
        for ones in range(n + 1):
            batch = make_queries("statistical_parity", (np.arange(n) < ones).astype(float))
            recorded = record(AttributeConceal(), [batch], n, 2, PrivacyLoss.pure(epsilon))
            assert max(cauchy_losses(recorded)) <= float(epsilon) * (1 + 1e-12)

    @pytest.mark.parametrize("m", [1, 3])
    @pytest.mark.parametrize("metric", [name for name in METRICS if not name.endswith("predictive_parity")])
    def test_every_metric(self, metric, m):
        recorded = record(AttributeConceal(), [question(metric, 7, m)], 7, 2, PrivacyLoss.pure(EPSILON))
        assert 0 < max(cauchy_losses(recorded)) <= float(EPSILON) * (1 + 1e-12)

    def test_the_printed_formulas_cost_more_than_epsilon(self):
        """Theorem 6 as printed, between group sizes 1 and 2."""
        batch = make_queries("statistical_parity", np.eye(4)[0])
        with pytest.warns(UserWarning, match="printed formulas"):
            recorded = record(
                AttributeConceal(calibration="paper"), [batch], 4, 2, PrivacyLoss.pure(Fraction(1, 10))
            )
        assert max(cauchy_losses(recorded)) > 0.3

    @pytest.mark.parametrize("ones", [1, 2, 3])
    def test_truncated_laws(self, ones):
        """Their normalising constants depend on the secret too; half of epsilon pays for them."""
        n, epsilon = 6, Fraction(2)
        batch = make_queries("statistical_parity", (np.arange(n) < ones).astype(float))
        recorded = record(AttributeConceal(), [batch], n, 2, PrivacyLoss.pure(epsilon / 2))
        laws = recorded.secrets[0][:, :, 0]

        def share(law, low, high):
            return (np.arctan((high - law[0]) / law[1]) - np.arctan((low - law[0]) / law[1])) / np.pi

        def log_density(law, x):
            inside = law[1] / (np.pi * (law[1] ** 2 + (x - law[0]) ** 2))
            return np.log(inside / share(law, -1, 1))

        worst = 0.0
        for a, b in neighbours(n, 2):
            for p, q in zip(laws[a], laws[b], strict=True):
                (f, s), (g, r) = p, q
                # The derivative of the log-ratio is a quadratic: its cubic terms cancel.
                turning = np.roots(
                    [f - g, s**2 - r**2 + g**2 - f**2, f * r**2 - g * s**2 + f * f * g * -1 + f * g * g]
                )
                inner = [x.real for x in turning if abs(x.imag) < 1e-9 and abs(x.real) < 1]
                x = np.array([-1.0, 1.0, *inner, *np.linspace(-1, 1, 41)])
                worst = max(worst, np.abs(log_density(p, x) - log_density(q, x)).max())
        assert float(epsilon) / 2 < worst <= float(epsilon)

        class Uniform(Tap):
            def cauchy(self, size):
                return np.full(size, np.tan(np.pi * (self.at - 0.5)))

        # The released value is the quantile of that very law.
        for code in (5, 30, 61):
            groups = Groups(every_secret(n, 2)[code], (0, 1))
            for at in (0.01, 0.3, 0.5, 0.99):
                noise = Uniform()
                noise.at = at
                mechanism = AttributeConceal(bounds="truncate")
                released = mechanism.release(batch, groups, PrivacyLoss.pure(epsilon), noise).gaps[0]
                reached = share(laws[code], -1, released) / share(laws[code], -1, 1)
                assert reached == pytest.approx(at, abs=1e-6)


def laplace_delta(p, q, epsilon):
    """Return the hockey-stick divergence of two Laplace laws (location, scale), exactly."""
    (f, s), (g, r) = p, q

    def excess(x):
        return np.log(r / s) - abs(x - f) / s + abs(x - g) / r - epsilon

    edges = [min(f, g), max(f, g)]
    # Linear between the edges: a root on each piece, where signs differ.
    pieces = [(edges[0] - 1e4, edges[0]), tuple(edges), (edges[1], edges[1] + 1e4)]
    cuts = set(edges)
    for low, high in pieces:
        a, b = excess(low), excess(high)
        if a * b < 0:
            cuts.add(low + (high - low) * a / (a - b))
    cuts = [-np.inf, *sorted(cuts), np.inf]

    def below(law, x):
        z = (x - law[0]) / law[1]
        return np.where(z < 0, np.exp(np.minimum(z, 0)) / 2, 1 - np.exp(-np.maximum(z, 0)) / 2)

    total = 0.0
    for low, high in pairwise(cuts):
        part = below(p, high) - below(p, low) - np.exp(epsilon) * (below(q, high) - below(q, low))
        total += max(0.0, float(part))
    return total


class TestSmoothLaplace:
    def test_divergence_against_summation(self):
        x = np.linspace(-60, 60, 1_200_001)
        p, q = (0.1, 1.0), (0.6, 1.3)
        densities = [np.exp(-np.abs(x - f) / s) / (2 * s) for f, s in (p, q)]
        for epsilon in (0.05, 0.3, 0.6):
            summed = np.maximum(densities[0] - np.exp(epsilon) * densities[1], 0).sum() * (x[1] - x[0])
            assert laplace_delta(p, q, epsilon) == pytest.approx(summed, abs=1e-6)

    @pytest.mark.parametrize("n", [3, 5, 7])
    @pytest.mark.parametrize(
        ("epsilon", "delta"), [(Fraction(1, 2), Fraction(1, 100)), (Fraction(9, 10), Fraction(1, 10**6))]
    )
    def test_every_binary_question(self, n, epsilon, delta):
        for ones in range(1, n):
            batch = make_queries("statistical_parity", (np.arange(n) < ones).astype(float))
            recorded = record(SmoothLaplace(), [batch], n, 2, PrivacyLoss.approx(epsilon, delta))
            laws = recorded.secrets[0][:, :, 0]
            for a, b in neighbours(n, 2):
                for p, q in zip(laws[a], laws[b], strict=True):
                    for one, other in ((p, q), (q, p)):
                        assert laplace_delta(one, other, float(epsilon)) <= delta


class TestFrames:
    """Metrics of one frame share sums; all of them together cost epsilon, in disjoint cells."""

    @pytest.mark.parametrize("weights", [False, True])
    @pytest.mark.parametrize("n_statuses", [2, 3, 4])
    def test_shared_sums(self, n_statuses, weights):
        from fairlearn.metrics import mean_prediction, selection_rate, true_positive_rate
        from sklearn.metrics import accuracy_score, precision_score

        n, y = 5, np.array([0, 1, 1, 0, 1])
        w = np.array([1.0, 2.0, 0.5, 3.0, 1.0]) if weights else None
        h, real = np.array([1, 1, 0, 0, 1]), np.array([0.2, 0.9, 0.4, 0.0, 1.0])
        rates = (selection_rate, true_positive_rate, accuracy_score, precision_score)
        few = [describe_metric(metric, y, h, weights=w) for metric in rates]
        more = [*few, describe_metric(mean_prediction, y, real, weights=w, bounds=(0.0, 1.0))]
        cells = [np.array([True, True, False, False, True]), np.array([False, False, True, True, False])]
        for metrics in (few, more):
            shared = SharedSums(metrics)
            released = range(1, 2) if n_statuses == 2 else range(n_statuses)
            # One law a sum, the same in every group and cell.
            copies = len(cells) * len(released)
            laws = [("laplace", scale) for scale in shared.scales(EPSILON, n_statuses)] * copies
            normal = [("gaussian", s2) for s2 in shared.variances(EPSILON, n_statuses)] * copies
            kept = [
                np.concatenate([shared.whole_sums(cell & (codes == g)) for cell in cells for g in released])
                for codes in every_secret(n, n_statuses)
            ]
            secrets = [column[:, None] for column in np.stack(kept).T]
            assert 0.9 * EPSILON <= max(Recorded(n, n_statuses, laws, secrets).losses()) <= EPSILON
            assert 0 < max(Recorded(n, n_statuses, normal, secrets).rhos()) <= EPSILON
