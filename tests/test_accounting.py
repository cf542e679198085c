"""Composition and conversion, against exact sums and Google's dp-accounting."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, norm

from sklearn_fairleak.accounting import UNIT, PrivacyLoss, rho_for, split, zcdp_epsilon


@given(st.floats(1e-6, 50), st.integers(1, 10_000))
@settings(deadline=None)
def test_shares_add_up_to_the_whole_exactly(epsilon, parts):
    share, _ = split(epsilon, 0, parts)
    total = PrivacyLoss.pure(share) * parts
    assert total.fits(epsilon)
    assert not (total + PrivacyLoss.pure(parts * UNIT)).fits(Fraction(epsilon))
    assert (share / UNIT).denominator == 1


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 0.1)), max_size=8))
@settings(deadline=None)
def test_pure_and_approximate_losses_add_exactly(parts):
    total = sum((PrivacyLoss.approx(e, d) for e, d in parts), PrivacyLoss())
    assert total.epsilon == sum((Fraction(e) for e, _ in parts), Fraction(0))
    assert total.delta == sum((Fraction(d) for _, d in parts), Fraction(0))
    assert bool(total) == any(e or d for e, d in parts)


def test_units_round_up_and_survive():
    loss = PrivacyLoss.approx(Fraction(1, 3), Fraction(1, 7)) + PrivacyLoss.zcdp(Fraction(1, 11))
    again = PrivacyLoss.from_units(*loss.units())
    for ours, exact in zip(
        (again.epsilon, again.delta, again.rho, again.pure_rho),
        (loss.epsilon, loss.delta, loss.rho, loss.pure_rho),
        strict=True,
    ):
        assert exact <= ours < exact + UNIT
    assert PrivacyLoss.from_units(*again.units()) == again


def gaussian_epsilon(sigma, delta):
    """Exact epsilon of the Gaussian mechanism of sensitivity 1 (Balle & Wang 2018)."""

    def profile(e):
        return norm.cdf(0.5 / sigma - e * sigma) - np.exp(e) * norm.cdf(-0.5 / sigma - e * sigma) - delta

    return brentq(profile, 0, 200) if profile(0) > 0 else 0.0


@given(st.floats(0.3, 50), st.floats(1e-10, 1e-2))
@settings(max_examples=100, deadline=None)
def test_conversion_is_never_below_the_exact_profile(sigma, delta):
    epsilon = zcdp_epsilon(1 / (2 * sigma**2), delta)
    assert epsilon >= gaussian_epsilon(sigma, delta) - 1e-9
    # and better than the classic rho + 2 sqrt(rho ln(1/delta))
    rho = 1 / (2 * sigma**2)
    assert epsilon <= rho + 2 * np.sqrt(rho * np.log(1 / delta)) + 1e-9


@pytest.mark.parametrize("sigma", [0.7, 2.0, 10.0])
@pytest.mark.parametrize("count", [1, 7, 100])
def test_gaussians_agree_with_google(sigma, count):
    delta = 1e-6
    orders = np.concatenate([np.linspace(1.01, 20, 2000), np.geomspace(20, 5000, 2000)])
    peer = RdpAccountant(orders)
    peer.compose(dp_event.GaussianDpEvent(sigma), count)
    ours = (PrivacyLoss.zcdp(1 / (2 * sigma**2)) * count).to_epsilon(delta)
    assert ours == pytest.approx(peer.get_epsilon(delta), rel=2e-3)
    # A coarser grid keeps the peer's total valid (it rounds up) and quick.
    tight = PLDAccountant(value_discretization_interval=1e-3)
    tight.compose(dp_event.GaussianDpEvent(sigma), count)
    assert ours >= tight.get_epsilon(delta) - 1e-4


def test_mixtures_are_never_below_googles_tight_total():
    for scale, sigma, m, k in ((5.0, 3.0, 4, 3), (50.0, 20.0, 60, 60), (2.0, 1.0, 1, 1)):
        ours = PrivacyLoss.pure(1 / scale) * m + PrivacyLoss.zcdp(1 / (2 * sigma**2)) * k
        tight = PLDAccountant()
        tight.compose(dp_event.LaplaceDpEvent(scale), m)
        tight.compose(dp_event.GaussianDpEvent(sigma), k)
        assert ours.to_epsilon(1e-6) >= tight.get_epsilon(1e-6) - 1e-4


def test_many_small_pure_answers_convert_the_tighter_way():
    total = PrivacyLoss.pure(0.01) * 10_000
    assert total.to_epsilon(0) == pytest.approx(100)
    assert total.to_epsilon(1e-6) < 10
    assert total.fits(10, 1e-6)
    assert not total.fits(99.9)


def test_deltas_are_spent_before_they_convert():
    loss = PrivacyLoss.approx(0.5, 1e-6) + PrivacyLoss.zcdp(0.01)
    assert loss.to_epsilon(1e-7) == np.inf
    assert not loss.fits(1e9, 1e-7)
    assert loss.to_epsilon(2e-6) == pytest.approx(0.5 + zcdp_epsilon(0.01, 1e-6), rel=1e-6)


@given(st.floats(0.01, 20), st.floats(1e-9, 1e-2))
@settings(max_examples=50, deadline=None)
def test_rho_is_the_largest_that_fits(epsilon, delta):
    rho = rho_for(epsilon, delta)
    assert PrivacyLoss.zcdp(rho).fits(epsilon, delta)
    assert not PrivacyLoss.zcdp(rho * Fraction(101, 100) + 2 * UNIT).fits(epsilon, delta)


def test_conversion_at_its_edges():
    assert zcdp_epsilon(0.0, 1e-6) == 0.0
    assert zcdp_epsilon(0.1, 0.0) == np.inf
    assert zcdp_epsilon(0.1, 1.0) == 0.0
    with pytest.raises(ValueError, match="delta > 0"):
        rho_for(1.0, 0)


@given(st.floats(1e-4, 5), st.floats(1e-4, 5), st.floats(1e-9, 0.1))
@settings(deadline=None)
def test_conversion_grows_with_rho_and_falls_with_delta(a, b, delta):
    low, high = sorted((a, b))
    assert zcdp_epsilon(low, delta) <= zcdp_epsilon(high, delta) + 1e-9
    assert zcdp_epsilon(low, delta) >= zcdp_epsilon(low, min(0.5, 2 * delta)) - 1e-9


@given(st.floats(0.01, 20), st.floats(1e-12, 1e-2), st.integers(1, 500))
@settings(max_examples=100, deadline=None)
def test_parts_of_rho_spend_the_budget_and_never_overrun_it(epsilon, delta, parts):
    share = PrivacyLoss.zcdp(split(rho_for(epsilon, delta), 0, parts)[0])
    assert (share * parts).fits(epsilon, delta)
    assert PrivacyLoss.from_units(*(share * parts).units()).fits(epsilon, delta)
    assert not (share * (parts + 1) + PrivacyLoss.zcdp(parts * UNIT)).fits(epsilon, delta)


@given(st.floats(1e-12, 100), st.floats(1e-15, 0.9))
@settings(max_examples=60, deadline=None)
def test_conversion_is_the_least_over_alpha_in_high_precision(rho, delta):
    """No alpha gives less than ours, and ours is not below the formula's minimum."""
    with mpmath.workdps(40):
        r, d = mpmath.mpf(rho), mpmath.mpf(delta)

        def slope(t):
            # derivative of the formula in t = alpha - 1, times t^2: increasing in t
            return r * t**2 + mpmath.log1p(t) + mpmath.log(d)

        low, high = mpmath.mpf(10) ** -20, mpmath.mpf(10) ** 20
        for _ in range(200):
            middle = mpmath.sqrt(low * high)
            low, high = (middle, high) if slope(middle) < 0 else (low, middle)
        t = high
        least = (1 + t) * r - mpmath.log1p(1 / t) - (mpmath.log1p(t) + mpmath.log(d)) / t
        ours = mpmath.mpf(zcdp_epsilon(rho, delta))
        assert ours >= max(least, 0)
        assert ours <= max(least, 0) * (1 + 1e-7) + 1e-9


@given(
    st.fractions(min_value=0, max_value=40),
    st.fractions(min_value=0, max_value=5),
    st.fractions(min_value=Fraction(1, 10**9), max_value=Fraction(1, 100)),
)
@settings(max_examples=100, deadline=None)
def test_reported_epsilon_fits_and_is_not_below_the_exact_pure_part(epsilon, rho, delta):
    loss = PrivacyLoss.pure(epsilon) + PrivacyLoss.zcdp(rho)
    assert loss.fits(Fraction(loss.to_epsilon(delta)), delta)
    assert Fraction(PrivacyLoss.pure(epsilon).to_epsilon(0)) >= epsilon
    exact = PrivacyLoss.pure(epsilon).to_epsilon(0)
    assert exact == 0 or Fraction(float(np.nextafter(exact, 0))) < epsilon
    # one converted part beside a long pure one keeps every digit
    apart = PrivacyLoss(epsilon + 10**6, rho=rho, pure_rho=Fraction(10**12)).to_epsilon(delta)
    assert Fraction(apart) >= epsilon + 10**6 + Fraction(zcdp_epsilon(float(rho), float(delta))) * (1 - UNIT)


def test_a_limit_is_compared_exactly():
    third = Fraction(1, 3)
    assert PrivacyLoss.pure(third).fits(third)
    assert not PrivacyLoss.pure(third + UNIT**3).fits(third)
    above = PrivacyLoss.zcdp(0.1).to_epsilon(1e-6)
    assert PrivacyLoss.zcdp(0.1).fits(above, 1e-6)
    assert not PrivacyLoss.zcdp(0.1).fits(Fraction(above) - Fraction(1, 2**80), 1e-6)


@pytest.mark.parametrize("part", ["epsilon", "delta", "rho", "pure_rho"])
def test_negative_losses_are_refused(part):
    with pytest.raises(ValueError, match="must not be negative"):
        PrivacyLoss(**{part: -UNIT})


@pytest.mark.parametrize(
    "call",
    [
        lambda: PrivacyLoss.pure(-0.1),
        lambda: PrivacyLoss.zcdp(0.1) * -1,
        lambda: PrivacyLoss.from_units(0, -1, 0, 0),
        lambda: zcdp_epsilon(np.nan, 1e-6),
        lambda: zcdp_epsilon(0.1, np.nan),
        lambda: zcdp_epsilon(-0.1, 1e-6),
        lambda: zcdp_epsilon(0.1, -1e-6),
        lambda: PrivacyLoss.pure(np.nan),
        lambda: split(1.0, 0.0, 0),
    ],
)
def test_losses_that_are_not_losses_are_refused(call):
    with pytest.raises(ValueError, match=r"negative|NaN|at least 1 part"):
        call()


def test_only_nothing_is_free():
    assert not PrivacyLoss()
    for loss in (PrivacyLoss.pure(UNIT), PrivacyLoss(delta=UNIT), PrivacyLoss.zcdp(UNIT)):
        assert loss
        assert not loss.fits(0, 0)


@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 1000), (0.02, 5000), (0.3, 50)])
def test_many_randomised_responses_never_cost_less_than_their_exact_total(epsilon, count):
    """The worst pure releases, composed: the loss is epsilon (2X - count) with X binomial."""
    delta = 1e-6
    kept = binom(count, 1 / (1 + np.exp(-epsilon)))
    x = np.arange(count + 1)
    loss, chance = epsilon * (2 * x - count), kept.pmf(x)

    def profile(e):
        return np.sum(chance * np.maximum(0, -np.expm1(e - loss))) - delta

    exact = brentq(profile, 0, epsilon * count)
    ours = (PrivacyLoss.pure(epsilon) * count).to_epsilon(delta)
    assert exact <= ours <= 1.15 * exact


@given(st.fractions(min_value=0, max_value=9), st.integers(0, 50))
@settings(deadline=None)
def test_pure_releases_count_half_their_square_when_concentrated(epsilon, times):
    assert (PrivacyLoss.pure(epsilon) * times).pure_rho == times * epsilon**2 / 2
    assert (times * PrivacyLoss.approx(epsilon, Fraction(1, 9))).delta == Fraction(times, 9)


def test_shares_of_delta_never_exceed_the_whole():
    _, share = split(1.0, 1e-6, 3)
    assert 3 * share <= Fraction(1e-6) < 3 * (share + UNIT)
