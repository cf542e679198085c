"""Samplers against their exact laws, OpenDP's samplers, and the ways in which noise goes wrong."""

import os
from collections import Counter
from fractions import Fraction
from itertools import product
from math import exp, sqrt

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sklearn_fairleak.noise import Noise, SecureNoise, SeededNoise, flip_probability


def laplace_pmf(scale, x):
    q = exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** np.abs(x)


def gaussian_pmf(sigma2, x):
    support = np.arange(-2000, 2001)
    weights = np.exp(-(support**2) / (2 * sigma2))
    return np.exp(-(np.asarray(x) ** 2) / (2 * sigma2)) / weights.sum()


def assert_law(sample, pmf, reach):
    """Chi-square of the counts on [-reach, reach] and both tails."""
    x = np.arange(-reach, reach + 1)
    observed = [
        int((sample < -reach).sum()),
        *[int((sample == k).sum()) for k in x],
        int((sample > reach).sum()),
    ]
    inside = pmf(x)
    tail = (1 - inside.sum()) / 2
    expected = np.array([tail, *inside, tail]) * sample.size
    keep = expected >= 5
    observed = np.array(observed, dtype=float)
    rest = [observed[~keep].sum()], [expected[~keep].sum()]
    observed, expected = observed[keep], expected[keep]
    if rest[1][0] >= 5:
        observed, expected = np.append(observed, rest[0]), np.append(expected, rest[1])
    expected *= observed.sum() / expected.sum()
    assert stats.chisquare(observed, expected).pvalue > 1e-4


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(40)])
def test_discrete_laplace_has_its_exact_law(scale):
    sample = SeededNoise(1, b"laplace").discrete_laplace(scale, 100_000)
    assert_law(sample, lambda x: laplace_pmf(float(scale), x), max(3, int(4 * scale)))


@pytest.mark.statistical
@pytest.mark.parametrize("sigma2", [Fraction(1, 10), Fraction(1), Fraction(9, 2), Fraction(400)])
def test_discrete_gaussian_has_its_exact_law(sigma2):
    sample = SeededNoise(2, b"gaussian").discrete_gaussian(sigma2, 100_000)
    assert_law(sample, lambda x: gaussian_pmf(float(sigma2), x), max(3, int(3 * sqrt(sigma2))))


@pytest.mark.statistical
def test_samplers_agree_with_opendp():
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    peer = np.array(dp.m.make_laplace(*space, scale=3.5)([0] * 20_000))
    ours = SeededNoise(3, b"peer").discrete_laplace(Fraction(7, 2), 20_000)
    assert stats.ks_2samp(peer, ours).pvalue > 1e-4
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    peer = np.array(dp.m.make_gaussian(*space, scale=2.5)([0] * 20_000))
    ours = SeededNoise(4, b"peer").discrete_gaussian(Fraction(25, 4), 20_000)
    assert stats.ks_2samp(peer, ours).pvalue > 1e-4


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [Fraction(2**40), Fraction(2**50 + 1, 3), Fraction(2**55)])
def test_large_scales_look_continuous(scale):
    sample = SeededNoise(5, b"large").discrete_laplace(scale, 20_000) / float(scale)
    assert stats.kstest(sample, "laplace").pvalue > 1e-4
    if scale < 2**46:
        sample = SeededNoise(6, b"large").discrete_gaussian(scale**2, 20_000) / float(scale)
        assert stats.kstest(sample, "norm").pvalue > 1e-4


class Scripted(Noise):
    """Serve words from a list, so that every outcome of a small experiment can be enumerated."""

    def __init__(self, words):
        self.script = list(words)

    def words(self, size):
        if len(self.script) < size:
            raise StopIteration
        taken, self.script = self.script[:size], self.script[size:]
        return np.array(taken, dtype=np.uint64)


def test_bernoulli_exp_is_exact_by_enumeration():
    """All scripts of up to six uniform digits: probabilities bracket exp(-1/2) to what is undecided."""

    class Digits(Noise):
        def __init__(self, script):
            self.script = list(script)

        def words(self, size):
            raise AssertionError

        def _below(self, bound, size):
            assert size == 1
            if bound == 1:
                return np.zeros(1, dtype=np.int64)
            if not self.script:
                raise StopIteration
            digit = self.script.pop(0)
            self.weight *= Fraction(1, bound)
            if digit >= bound:
                raise LookupError
            return np.array([digit])

    yes = no = Fraction(0)
    seen = set()
    for script in product(range(5), repeat=6):
        noise = Digits(script)
        noise.weight = Fraction(1)
        try:
            kept = bool(noise._bernoulli_exp(np.array([1]), 2)[0])
        except (StopIteration, LookupError):
            continue
        used = script[: 6 - len(noise.script)]
        if used in seen:
            continue
        seen.add(used)
        if kept:
            yes += noise.weight
        else:
            no += noise.weight
    assert float(yes) <= exp(-0.5) <= 1 - float(no)
    assert 1 - float(yes) - float(no) < 0.03


@given(st.fractions(min_value=Fraction(0), max_value=30))
def test_undecided_comparisons_are_settled_exactly(gamma):
    """A word next to exp(-gamma) on either side is decided right, whatever floats would say."""
    from sklearn_fairleak.noise import _exp_bounds

    low, high = _exp_bounds(gamma, 60)
    assert low < high
    word = int(low * 2**64)
    noise = SeededNoise(0, b"tie")
    if gamma > 0:
        assert noise._decide(max(0, word - 1), gamma) == (word >= 1)
        if word + 1 < 2**64:
            assert noise._decide(word + 1, gamma) is False
    assert noise._decide(0, gamma) is True or float(low) < 2.0**-63


class TestRandomisedResponse:
    @given(st.fractions(min_value=Fraction(1, 1000), max_value=30), st.integers(2, 6))
    def test_the_reported_odds_cost_at_most_epsilon(self, epsilon, k):
        flip = flip_probability(epsilon, k)
        odds = (1 - flip) / (flip / (k - 1))
        # odds <= exp(epsilon), decided by a rational lower bound of the exponential
        from sklearn_fairleak.noise import _exp_bounds

        assert odds <= _exp_bounds(-epsilon, 60)[1]
        assert (flip * 2**64).denominator == 1
        assert float(flip) == pytest.approx((k - 1) / (exp(float(epsilon)) + k - 1), rel=1e-6, abs=1e-18)

    @pytest.mark.statistical
    @pytest.mark.parametrize("k", [2, 3, 5])
    def test_reports_have_their_law(self, k):
        epsilon, n = Fraction(1), 60_000
        flip = float(flip_probability(epsilon, k))
        for code in range(k):
            reported = SeededNoise(7, bytes([code])).randomized_response(np.full(n, code), k, epsilon)
            expected = np.full(k, n * flip / (k - 1))
            expected[code] = n * (1 - flip)
            assert stats.chisquare(np.bincount(reported, minlength=k), expected).pvalue > 1e-4

    def test_bad_parameters(self):
        with pytest.raises(ValueError, match="at least 2 categories"):
            flip_probability(Fraction(1), 1)
        with pytest.raises(ValueError, match="epsilon must be positive"):
            flip_probability(Fraction(0), 2)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "law"), [("laplace", "laplace"), ("cauchy", "cauchy"), ("exponential", "expon")]
)
def test_reference_variates_have_their_law(name, law):
    sample = getattr(SeededNoise(8, name.encode()), name)(50_000)
    assert np.isfinite(sample).all()
    assert stats.kstest(sample, law).pvalue > 1e-4


class TestSources:
    def test_seeded_noise_follows_from_seed_and_digest_only(self):
        draws = {
            (seed, digest): SeededNoise(seed, digest).words(4).tobytes()
            for seed in (0, 1)
            for digest in (b"", b"a", b"b")
        }
        assert len(set(draws.values())) == 6
        assert SeededNoise(1, b"a").words(4).tobytes() == draws[1, b"a"]
        assert not SeededNoise.is_private
        assert SecureNoise.is_private

    def test_forked_processes_draw_other_words(self):
        noise = SecureNoise()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, noise.words(4).tobytes())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 32) != noise.words(4).tobytes()

    def test_every_source_gives_integers_of_the_asked_shape(self):
        noise = SecureNoise()
        for sample in (
            noise.discrete_laplace(Fraction(1, 50), 9),
            noise.discrete_laplace(Fraction(2**55), 9),
            noise.discrete_gaussian(Fraction(1, 100), 9),
            noise.discrete_gaussian(Fraction(2**90), 9),
        ):
            assert sample.dtype == np.int64
            assert sample.shape == (9,)
        assert noise.discrete_laplace(Fraction(1), 0).shape == (0,)


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(2**56)])
def test_impossible_scales_are_refused(scale):
    with pytest.raises(ValueError, match="scale must be"):
        SecureNoise().discrete_laplace(scale, 1)


def test_impossible_variances_are_refused():
    with pytest.raises(ValueError, match="sigma2 must be positive"):
        SecureNoise().discrete_gaussian(Fraction(0), 1)
    with pytest.raises(ValueError, match="sigma must be below"):
        SecureNoise().discrete_gaussian(Fraction(2**93), 1)


@given(st.fractions(min_value=Fraction(1, 100), max_value=2**54))
def test_long_scales_are_rounded_up(scale):
    from sklearn_fairleak.noise import _short

    long = scale + Fraction(1, 3**60)
    short = _short(long)
    assert long <= short <= long * (1 + Fraction(1, 2 ** (47 if scale < 1 else 53)))
    assert short.numerator < 2**56
    assert short.denominator & (short.denominator - 1) == 0


@given(st.fractions(min_value=Fraction(1, 100), max_value=2**90))
def test_long_variances_are_rounded_up(sigma2):
    long = sigma2 + Fraction(1, 3**60)
    seen = []

    class Watching(SecureNoise):
        def discrete_laplace(self, scale, size):
            assert scale**2 > long >= (scale - 1) ** 2
            return np.zeros(size, dtype=np.int64)

        def _below_exp(self, y, sigma2, t):
            seen.append(sigma2)
            return np.ones(y.size, dtype=bool)

    assert Watching().discrete_gaussian(long, 3).tolist() == [0, 0, 0]
    assert long <= seen[0] <= long * (1 + Fraction(1, 2 ** (52 if sigma2 < 1 else 59)))
    assert seen[0].denominator.bit_length() <= 80


@pytest.mark.statistical
def test_single_answers_are_symmetric_and_independent():
    sample = SeededNoise(9, b"pairs").discrete_laplace(Fraction(3), 40_000)
    assert abs(np.corrcoef(sample[:-1], sample[1:])[0, 1]) < 0.02
    counts = Counter(np.sign(sample).tolist())
    assert abs(counts[1] - counts[-1]) < 4.5 * sqrt(counts[1] + counts[-1])


class TestHugeAndTinyEpsilons:
    @pytest.mark.parametrize("epsilon", [Fraction(100), Fraction(10**6), Fraction(10**12)])
    def test_the_flip_probability_never_vanishes(self, epsilon):
        assert flip_probability(epsilon, 2) == Fraction(1, 2**64)
        assert flip_probability(epsilon, 1000) == Fraction(1, 2**64)

    @pytest.mark.parametrize("k", [2, 3, 5, 7])
    @pytest.mark.parametrize("epsilon", [Fraction(1, 2**50), Fraction(1, 2**40), Fraction(1, 3)])
    def test_both_directions_of_the_odds_cost_at_most_epsilon(self, epsilon, k):
        flip = flip_probability(epsilon, k)
        odds = (1 - flip) / (flip / (k - 1))
        with mpmath.workdps(60):
            loss = mpmath.log(mpmath.mpf(odds.numerator) / odds.denominator)
            assert abs(loss) <= mpmath.mpf(epsilon.numerator) / epsilon.denominator

    def test_an_epsilon_below_the_grid_is_refused_where_rounding_would_overshoot(self):
        assert flip_probability(Fraction(1, 2**80), 2) == Fraction(1, 2)
        with pytest.raises(ValueError, match="too small for 3 categories"):
            flip_probability(Fraction(1, 2**80), 3)


def test_a_sample_beyond_64_bits_is_an_error_never_cut(monkeypatch):
    noise = SeededNoise(0, b"overflow")
    scale = Fraction(2**55)
    last = (2**63 - 1) // 2**55 - 1
    monkeypatch.setattr(noise, "_geometric", lambda size: np.full(size, last, dtype=np.int64))
    sample = noise.discrete_laplace(scale, 50)
    assert np.all(np.abs(sample) >= last * 2**55)
    monkeypatch.setattr(noise, "_geometric", lambda size: np.full(size, last + 1, dtype=np.int64))
    with pytest.raises(OverflowError, match="left the 64-bit integers"):
        noise.discrete_laplace(scale, 50)


def test_long_tails_are_not_cut_at_small_scales(monkeypatch):
    noise = SeededNoise(0, b"tail")
    monkeypatch.setattr(noise, "_geometric", lambda size: np.full(size, 10_000, dtype=np.int64))
    sample = noise.discrete_laplace(Fraction(3), 50)
    assert np.all((np.abs(sample) >= 30_000) & (np.abs(sample) < 30_003))


@given(st.fractions(min_value=Fraction(1, 10), max_value=10**6), st.integers(-40, 40))
@settings(max_examples=200, deadline=None)
def test_float_shortcut_of_the_gaussian_agrees_with_exact_arithmetic(sigma2, y):
    """Words just outside the trusted distance are decided by floats: exact arithmetic must agree."""
    from math import isqrt

    t = isqrt(sigma2.numerator // sigma2.denominator) + 1
    gamma = (abs(y) - sigma2 / t) ** 2 / (2 * sigma2)
    with mpmath.workdps(50):
        chance = mpmath.exp(-mpmath.mpf(gamma.numerator) / gamma.denominator)
        around = int(chance * 2**64)
    for offset in (-(2**34), -(2**14), -2, 2, 2**14, 2**34):
        word = around + offset
        if 0 <= word < 2**64:
            kept = Scripted([word, 0, 0, 0])._below_exp(np.array([y]), sigma2, t)
            assert bool(kept[0]) == (offset < 0)


def test_the_only_integer_below_one_takes_no_entropy():
    assert Scripted([])._below(1, 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize("bound", [2, 3, 5, 6, 8])
def test_uniform_integers_are_uniform_by_enumeration(bound):
    """Every leading bit pattern once: each integer below the bound comes up equally often."""
    width = max(1, (bound - 1).bit_length())
    counts = Counter()
    for pattern in range(2**width):
        try:
            counts[int(Scripted([pattern << (64 - width)])._below(bound, 1)[0])] += 1
        except StopIteration:
            counts["rejected"] += 1
    rejected = counts.pop("rejected", 0)
    assert counts == dict.fromkeys(range(bound), 1)
    assert rejected == 2**width - bound


def test_reported_codes_are_codes_and_flips_follow_the_threshold():
    """The word decides: below the threshold another code is reported, from it on the true one."""
    epsilon = Fraction(1)
    threshold = int(flip_probability(epsilon, 2) * 2**64)
    reported = Scripted([threshold - 1, threshold, 0, 2**64 - 1]).randomized_response(
        np.array([0, 0, 1, 1]), 2, epsilon
    )
    assert reported.tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize("word", [0, 2**64 - 1, 2**63])
def test_reference_variates_are_finite_at_extreme_words(word):
    assert 0 < Scripted([word]).exponential(1)[0] < np.inf
    assert np.isfinite(Scripted([word]).cauchy(1)[0])
    sample = Scripted([word, word]).laplace(1)[0]
    assert np.isfinite(sample)
    assert sample != 0


def test_large_gamma_is_settled_without_large_numbers():
    assert SecureNoise().bernoulli_exp(Fraction(0))
    assert not SecureNoise().bernoulli_exp(Fraction(10**15))
    with pytest.raises(ValueError, match="must not be negative"):
        SecureNoise().bernoulli_exp(Fraction(-1))


def test_a_large_gamma_is_settled_by_its_parts():
    """exp(-40) = exp(-32) exp(-8): the first word decides on one factor, the second on the other."""
    first, second = int(exp(-32) * 2**64), int(exp(-8) * 2**64)
    near = 2**20
    assert Scripted([0, second - near]).bernoulli_exp(Fraction(40)) is True
    assert Scripted([0, second + near]).bernoulli_exp(Fraction(40)) is False
    assert Scripted([first + near]).bernoulli_exp(Fraction(40)) is False
    assert Scripted([0, 0]).bernoulli_exp(Fraction(64)) is True
    assert Scripted([0]).bernoulli_exp(Fraction(32)) is True


def test_seeded_samples_have_their_moments():
    """A quick look at every law; the statistical tests compare them with exact probabilities."""
    n = 20_000
    noise = SeededNoise(3, b"moments")
    q = exp(-2 / 5)
    laplace = noise.discrete_laplace(Fraction(5, 2), n)
    assert laplace.std() == pytest.approx(sqrt(2 * q) / (1 - q), rel=0.04)
    assert (laplace == 0).mean() == pytest.approx((1 - q) / (1 + q), abs=0.015)
    assert abs(laplace.mean()) < 0.1
    assert noise.discrete_gaussian(Fraction(30), n).std() == pytest.approx(sqrt(30), rel=0.04)
    geometric = noise._geometric(n)
    assert geometric.mean() == pytest.approx(1 / (exp(1) - 1), rel=0.05)
    assert noise.discrete_exponential(Fraction(5, 2), n).mean() == pytest.approx(q / (1 - q), rel=0.05)
    assert stats.kstest(noise.laplace(n), "laplace").pvalue > 1e-3
    assert stats.kstest(noise.cauchy(n), "cauchy").pvalue > 1e-3
    assert stats.kstest(noise.exponential(n), "expon").pvalue > 1e-3
    assert stats.kstest(noise._open_unit(n), "uniform").pvalue > 1e-3
    for sample in (laplace, geometric, noise._below(7, 5)):
        assert sample.dtype == np.int64


@pytest.mark.parametrize("gamma", [Fraction(1, 3), Fraction(1), Fraction(17, 5), Fraction(31)])
def test_a_tie_in_the_first_word_is_settled_by_the_next(gamma):
    """The first word of exp(-gamma) itself decides nothing; the next 64 bits do."""
    with mpmath.workdps(80):
        digits = int(mpmath.exp(-mpmath.mpf(gamma.numerator) / gamma.denominator) * 2**128)
    first, second = digits >> 64, digits & (2**64 - 1)
    assert Scripted([second - 1])._decide(first, gamma) is True
    assert Scripted([second + 1])._decide(first, gamma) is False
    with pytest.raises(StopIteration):
        Scripted([second])._decide(first, gamma)
    assert Scripted([])._decide(first - 1, gamma) is True
    assert Scripted([])._decide(first + 1, gamma) is False


def test_a_flipped_code_is_each_other_code_and_never_itself():
    """Three codes: one bit picks which of the two others is reported."""
    for code, bit in product(range(3), (0, 1)):
        noise = Scripted([0, bit << 63])
        reported = noise.randomized_response(np.array([code]), 3, Fraction(1))
        assert reported.tolist() == [(code + 1 + bit) % 3]


@pytest.mark.parametrize("gamma", [Fraction(1, 2), Fraction(3)])
def test_a_coin_follows_its_word(gamma):
    edge = int(exp(-gamma) * 2**64)
    assert Scripted([edge - 2**20]).bernoulli_exp(gamma) is True
    assert Scripted([edge + 2**20]).bernoulli_exp(gamma) is False
