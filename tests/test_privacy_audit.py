"""The privacy auditor catches every planted fault, and passes what keeps its claim."""

import math
from fractions import Fraction

import numpy as np
import pytest

from sklearn_fairleak.accounting import PrivacyLoss
from sklearn_fairleak.groups import Groups
from sklearn_fairleak.mechanisms import AttributeConceal, NoisySums
from sklearn_fairleak.mechanisms.attribute_conceal import paper_smooth_sensitivity
from sklearn_fairleak.metrics import group_means
from sklearn_fairleak.noise import SeededNoise
from sklearn_fairleak.privacy_audit import audit_privacy, epsilon_lower_bound
from sklearn_fairleak.queries import make_queries

rng = np.random.default_rng()


def gap(values, codes):
    with np.errstate(invalid="ignore"):
        one = values[0][codes == 1].mean() if (codes == 1).any() else 0.5
        zero = values[0][codes == 0].mean() if (codes == 0).any() else 0.5
    return one - zero


class TestPlantedFaults:
    """Each is a real mistake; an auditor that misses one fails here."""

    def caught(self, mechanism, epsilon, **kwargs):
        settings = {"n_draws": 4000, "random_state": 0} | kwargs
        audit = audit_privacy(mechanism, epsilon=epsilon, **settings)
        assert not audit.passed, audit
        assert (audit.codes != audit.neighbour).sum() == 1
        return audit

    def test_half_the_noise(self):
        def mechanism(values, codes):
            return values[0] @ codes + rng.laplace(scale=0.5)

        self.caught(mechanism, 1.0)

    def test_the_papers_sensitivity_of_the_absolute_gap(self):
        """n = 4, two and two: the true change is 2/3, printed 1/2, so the loss is a third more."""
        epsilon = 2.0

        def mechanism(values, codes):
            return abs(gap(values, codes)) + rng.laplace(scale=0.5 / epsilon)

        pair = (np.array([0, 1, 0, 1.0]), [0, 0, 1, 1], [1, 0, 1, 1])
        audit = self.caught(mechanism, epsilon, pairs=[pair], n_draws=20_000)
        assert audit.epsilon_lower <= 4 / 3 * epsilon  # no more than is true

    def test_theorem_6_as_printed_between_sizes_one_and_two(self):
        epsilon = 0.1

        def mechanism(values, codes):
            n0 = int((codes == 0).sum())
            scale = 6 * paper_smooth_sensitivity(n0, len(codes) - n0, 1, epsilon) / epsilon
            return gap(values, codes) + scale * rng.standard_cauchy()

        pair = (np.array([1, 0, 0, 0.0]), [0, 0, 1, 1], [1, 0, 1, 1])
        self.caught(mechanism, epsilon, pairs=[pair], n_draws=20_000)

    def test_equal_opportunity_with_everyone_counted(self):
        """n = 30 of whom 3 are positive: the printed bound is about 1/2, the true change 1."""
        epsilon, y = 2.0, np.array([1, 1, 1] + [0] * 27)

        def mechanism(values, codes):
            n = len(codes)
            change = 0.5 + 1 / (n - 1)
            return gap(values[:, y == 1], codes[y == 1]) + rng.laplace(scale=change / epsilon)

        h = np.zeros(30)
        h[0] = 1
        codes = np.array([0, 0, 1] + [1] * 27)
        neighbour = codes.copy()
        neighbour[0] = 1
        self.caught(mechanism, epsilon, pairs=[(h, codes, neighbour)], n_draws=20_000)

    def test_a_seed_shared_by_two_answers(self):
        def mechanism(values, codes):
            noise = rng.laplace(scale=20.0)
            return codes[0] + noise, codes[1] * 0 + noise  # the difference is exact

        def difference(values, codes):
            first, second = mechanism(values, codes)
            return round(first - second, 9)

        self.caught(difference, 0.1)

    def test_a_seed_shared_by_two_answers_is_learned_from_both(self):
        def mechanism(values, codes):
            noise = rng.laplace(scale=2.0)
            return codes.sum() + noise, 2 * codes.sum() + noise

        self.caught(mechanism, 1.5)

    @pytest.mark.parametrize("leak", ["nan", "exception", "width", "branch"])
    def test_sizes_that_leak_through_anything_but_the_value(self, leak):
        def mechanism(values, codes):
            value = rng.laplace(scale=1e6)  # the value itself says nothing
            alone = codes.min() == codes.max() or (codes == 0).sum() == 1
            if leak == "nan":
                return np.nan if alone else value
            if leak == "exception":
                if alone:
                    raise ValueError("only one individual in this group")
                return value
            if leak == "width":
                return value, 1.0 / (codes == 0).sum()
            return [value] if alone else [value, value]  # another code path: another length

        self.caught(mechanism, 1.0)

    def test_naive_floating_point_noise(self):
        """A multiple of 2^-53 near zero can only come from the answer that is not zero."""

        def mechanism(values, codes):
            answer = gap(values, codes) + rng.laplace(scale=1.0)
            low_bits = float(answer * 2.0**53) % 1.0 == 0.0
            return float(low_bits) if abs(answer) < 0.25 else 0.5

        # The gap is exactly 0, and 2/3 next to it.
        pair = (np.array([1, 0, 1, 0.0]), [0, 0, 1, 1], [1, 0, 1, 1])
        self.caught(mechanism, 1.0, pairs=[pair])


#: A group of two that loses one, with the value that moves the gap most.
WORST = (np.array([1.0, 0.0, 1.0, 1.0]), [0, 0, 1, 1], [1, 0, 1, 1])


@pytest.mark.statistical
class TestSoundMechanisms:
    def passed(self, mechanism, epsilon, **kwargs):
        audit = audit_privacy(
            mechanism, epsilon=epsilon, pairs=[WORST], n_draws=1200, random_state=0, **kwargs
        )
        assert audit.passed, audit
        return audit

    @pytest.mark.parametrize(
        "mechanism",
        ["laplace", "attribute_conceal", "noisy_sums", "randomized_response", NoisySums(design="sums")],
    )
    def test_claims_are_kept(self, mechanism):
        self.passed(mechanism, 1.0)

    def test_tight_mechanisms_are_nearly_reached(self):
        """The bound is not vacuous: randomised response at epsilon = 2 is proved to cost most of it."""
        assert self.passed("randomized_response", 2.0).epsilon_lower > 1.5

    def test_gaussian_noise_keeps_epsilon_and_delta(self):
        self.passed(NoisySums("gaussian"), 1.0, delta=1e-3)

    def test_equalized_odds(self):
        self.passed("noisy_sums", 1.0, metric="equalized_odds", y_true=[1, 1, 0, 0])

    def test_truncation_costs_what_it_says(self):
        self.passed(AttributeConceal(bounds="truncate"), 2.0)

    def test_the_search_runs_on_larger_data_too(self):
        def mechanism(values, codes):
            return values[0] @ codes + rng.laplace(scale=0.5)

        audit = audit_privacy(mechanism, epsilon=1.0, n_individuals=20, n_draws=3000, random_state=0)
        assert not audit.passed


class TestBound:
    def test_it_covers_at_its_confidence(self):
        """A true ratio of e is overestimated in at most 5 % of runs at 95 % confidence."""
        local = np.random.default_rng(0)
        p, q, n = np.e / (1 + np.e), 1 / (1 + np.e), 500
        bounds = [epsilon_lower_bound(*local.binomial(n, [p, q]), n, confidence=0.95) for _ in range(2000)]
        assert np.mean(np.array(bounds) > 1.0) <= 0.05
        assert np.median(bounds) > 0.7

    def test_edges(self):
        assert epsilon_lower_bound(0, 0, 100) == 0.0
        assert epsilon_lower_bound(100, 100, 100) == 0.0
        assert epsilon_lower_bound(100, 0, 100) > 2.0
        assert epsilon_lower_bound(5, 0, 100, delta=0.2) == 0.0

    @pytest.mark.parametrize("bad", [{"n_individuals": 2}, {"confidence": 1.0}, {"n_draws": 10}])
    def test_bad_arguments(self, bad):
        with pytest.raises(ValueError, match=next(iter(bad))):
            audit_privacy("laplace", epsilon=1.0, **bad)


@pytest.mark.statistical
def test_low_bits_of_released_gaps_say_nothing():
    """NumPy's noise excludes the neighbour for most answers; ours is the same grid for both."""
    scale, f0, f1, n = 1.0, 0.0, 1.0 / 3.0, 3000

    def possible(y, f):
        """Say whether NumPy's Laplace sampler can have produced y around f."""
        k = np.round(2.0**53 * np.exp(-np.abs(y - f) / scale))
        hit = np.zeros(y.shape, dtype=bool)
        # The generator takes the logarithm of the C library; NumPy's own may differ in the last bit.
        log = np.vectorize(math.log)
        for step in (-1, 0, 1):
            uniform = np.clip(k + step, 1, 2.0**53)
            size = -scale * log(uniform * 2.0**-53)
            # Negative noise comes from the logarithm of an even multiple of 2^-53.
            hit |= (f + size == y) | ((f - size == y) & (uniform % 2 == 0))
        return hit

    local = np.random.default_rng(0)
    naive = f0 + local.laplace(scale=scale, size=n)
    excluded = ~possible(naive, f1)
    assert possible(naive, f0).mean() > 0.99
    assert excluded.mean() > 0.7
    # A classifier from the low bits alone: right more than 70 % of the time on naive noise.
    truth = local.integers(0, 2, n)
    naive = np.where(truth, f1, f0) + local.laplace(scale=scale, size=n)
    only_one = possible(naive, f1).astype(int) - possible(naive, f0).astype(int)
    guess = np.where(only_one != 0, only_one > 0, local.integers(0, 2, n))
    assert (guess == truth).mean() > 0.7

    batch = make_queries("statistical_parity", np.array([[0.0, 1.0, 0.0, 0.0, 0.0, 0.0]]))
    released = []
    for label in truth[:800]:
        codes = np.array([0, int(label), 0, 0, 1, 1])
        out = NoisySums(design="pair", bounds="none").release(
            batch,
            Groups(codes, (0, 1)),
            PrivacyLoss.pure(Fraction(1)),
            SeededNoise(3, released.__repr__().encode()),
        )
        released.append(float(out.sums[0, 1]))
    # Whole numbers, whatever the secret: the fractional bits are constant.
    assert np.array_equal(np.modf(released)[0], np.zeros(800))
    assert np.isfinite(group_means(batch, np.array([0, 1, 0, 0, 1, 1]), 2)).all()
