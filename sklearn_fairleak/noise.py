"""Where randomness comes from: exact discrete noise from OS entropy, or seeded for experiments.

Random 64-bit words come in; integers with exactly the stated law go out. No floating-point
number decides a discrete sample unless a certified bound shows that exact arithmetic would
decide the same; what the bound leaves open is decided by exact arithmetic.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from decimal import Context, Decimal
from fractions import Fraction
from math import ceil, isqrt
from typing import ClassVar

import numpy as np
import numpy.typing as npt

__all__ = ["Noise", "SecureNoise", "SeededNoise", "flip_probability"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
WordArray = npt.NDArray[np.uint64]

#: Numerators of scales stay below this, so that sums of a few of them fit 64 bits.
_LARGEST = 2**56
#: The largest sample.
_LAST = 2**63 - 1
#: A float evaluation of exp(-gamma) is trusted within this relative distance only.
_CERTAIN = 2.0**-34


class Noise(ABC):
    """A source of random words, and the samplers built on it.

    References
    ----------
    Canonne, Kamath & Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS
    2020, arXiv 2004.00010, Algorithms 1-3.
    """

    is_private: ClassVar[bool] = True

    @abstractmethod
    def words(self, size: int) -> WordArray:
        """Return uniform 64-bit words, shape (size,)."""

    def discrete_laplace(self, scale: Fraction, size: int) -> IntArray:
        r"""Sample integers with :math:`P(x) \propto e^{-|x|/scale}`.

        Parameters
        ----------
        scale : Fraction
            Positive. Rounded up to a rational of numerator below 2^56 where it has a longer
            one.
        size : int
            Number of samples.

        Returns
        -------
        ndarray of int64 of shape (size,)

        Raises
        ------
        ValueError
            If the scale is not positive, or 2^56 or more.
        OverflowError
            If a sample leaves the 64-bit integers: of probability below e^-126 at the largest
            scales, and e^(-2^62/scale) in general. A sample is never cut or wrapped.

        Examples
        --------
        >>> from fractions import Fraction
        >>> from sklearn_fairleak.noise import SecureNoise
        >>> SecureNoise().discrete_laplace(Fraction(3, 2), 4).shape
        (4,)
        """
        scale = _short(scale)
        t, s = scale.numerator, scale.denominator
        out = np.empty(size, dtype=np.int64)
        todo = np.arange(size)
        while todo.size:
            u = self._below(t, todo.size)
            kept = self._bernoulli_exp(u, t)
            u, places = u[kept], todo[kept]
            v = self._geometric(places.size)
            if np.any(v > _LAST // t - 1):
                raise OverflowError(f"A sample of scale {float(scale):.3g} left the 64-bit integers.")
            y = (u + t * v) // s
            negative = (self.words(places.size) >> np.uint64(63)).astype(bool)
            good = ~(negative & (y == 0))
            out[places[good]] = np.where(negative, -y, y)[good]
            rejected = np.ones(todo.size, dtype=bool)
            rejected[np.flatnonzero(kept)[good]] = False
            todo = todo[rejected]
        return out

    def discrete_gaussian(self, sigma2: Fraction, size: int) -> IntArray:
        r"""Sample integers with :math:`P(x) \propto e^{-x^2/(2\sigma^2)}`.

        Parameters
        ----------
        sigma2 : Fraction
            Positive; sigma below 2^46. Rounded up where its denominator has more than 80 bits.
        size : int
            Number of samples.

        Returns
        -------
        ndarray of int64 of shape (size,)

        Raises
        ------
        ValueError
            If sigma2 is not positive, or too large.
        """
        if not sigma2 > 0:
            raise ValueError(f"sigma2 must be positive, got {sigma2}.")
        t = isqrt(sigma2.numerator // sigma2.denominator) + 1
        if t > 2**46:
            raise ValueError("sigma must be below 2^46; use a coarser grid.")
        # A sigma2 with a longer denominator is rounded up, to a relative precision of 2^-60.
        if sigma2.denominator.bit_length() > 80:
            shift = 2 ** max(0, 60 - (sigma2.numerator // sigma2.denominator).bit_length())
            sigma2 = Fraction(ceil(sigma2 * shift), shift)
        out = np.empty(size, dtype=np.int64)
        todo = np.arange(size)
        while todo.size:
            y = self.discrete_laplace(Fraction(t), todo.size)
            kept = self._below_exp(y, sigma2, t)
            out[todo[kept]] = y[kept]
            todo = todo[~kept]
        return out

    def randomized_response(self, values: IntArray, n_categories: int, epsilon: Fraction) -> IntArray:
        """Report each code, or with the flip probability another one uniformly.

        Parameters
        ----------
        values : ndarray of shape (n,)
            Codes from 0 to ``n_categories`` - 1.
        n_categories : int
            Number of codes, at least 2.
        epsilon : Fraction
            Privacy parameter of the report.

        Returns
        -------
        ndarray of int64 of shape (n,)
        """
        threshold = flip_probability(epsilon, n_categories) * 2**64
        flipped = self.words(values.size) < np.uint64(int(threshold))
        if n_categories == 2:
            step = np.ones(values.size, dtype=np.int64)
        else:
            step = 1 + self._below(n_categories - 1, values.size)
        return np.asarray(np.where(flipped, (values + step) % n_categories, values), dtype=np.int64)

    def bernoulli_exp(self, gamma: Fraction) -> bool:
        """Return True with probability exp(-gamma), exactly.

        Parameters
        ----------
        gamma : Fraction
            Not negative.

        Returns
        -------
        bool

        Examples
        --------
        >>> from fractions import Fraction
        >>> from sklearn_fairleak.noise import SecureNoise
        >>> SecureNoise().bernoulli_exp(Fraction(0)), SecureNoise().bernoulli_exp(Fraction(10**9))
        (True, False)
        """
        if gamma < 0:
            raise ValueError(f"gamma must not be negative, got {gamma}.")
        step = Fraction(32)
        while gamma > step:
            # exp(-gamma) is a product, and its first factor nearly always settles it.
            if not self._decide(int(self.words(1)[0]), step):
                return False
            gamma -= step
        return gamma == 0 or self._decide(int(self.words(1)[0]), gamma)

    def discrete_exponential(self, scale: Fraction, size: int) -> IntArray:
        r"""Sample non-negative integers with :math:`P(x) \propto e^{-x/scale}`.

        Parameters
        ----------
        scale : Fraction
            Positive, below 2^56.
        size : int
            Number of samples.

        Returns
        -------
        ndarray of int64 of shape (size,)
        """
        out = np.empty(size, dtype=np.int64)
        todo = np.arange(size)
        while todo.size:
            draws = self.discrete_laplace(scale, todo.size)
            kept = draws >= 0
            out[todo[kept]] = draws[kept]
            todo = todo[~kept]
        return out

    def exponential(self, size: int) -> FloatArray:
        """Sample standard exponential variates in floating point, for reference mechanisms."""
        return np.asarray(-np.log(self._open_unit(size)))

    def laplace(self, size: int) -> FloatArray:
        """Sample standard Laplace variates in floating point, for reference mechanisms."""
        sign = np.where(self.words(size) >> np.uint64(63), 1.0, -1.0)
        return sign * self.exponential(size)

    def cauchy(self, size: int) -> FloatArray:
        """Sample standard Cauchy variates in floating point, for reference mechanisms."""
        return np.asarray(np.tan(np.pi * (self._open_unit(size) - 0.5)))

    def _open_unit(self, size: int) -> FloatArray:
        """Return uniform numbers strictly between 0 and 1, from 52 bits."""
        return ((self.words(size) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52

    def _below(self, bound: int, size: int) -> IntArray:
        """Return uniform integers in [0, bound), by rejection."""
        if bound == 1:
            return np.zeros(size, dtype=np.int64)
        shift = np.uint64(64 - max(1, (bound - 1).bit_length()))
        out = np.empty(size, dtype=np.int64)
        todo = np.arange(size)
        while todo.size:
            draw = (self.words(todo.size) >> shift).astype(np.int64)
            good = draw < bound
            out[todo[good]] = draw[good]
            todo = todo[~good]
        return out

    def _bernoulli_exp(self, numerator: IntArray, denominator: int) -> npt.NDArray[np.bool_]:
        """Return True with probability exp(-numerator/denominator), for ratios in [0, 1]."""
        parity = np.zeros(numerator.size, dtype=bool)
        active, k = np.arange(numerator.size), 1
        while active.size:
            # The k-th term of the series goes on with probability ratio / k.
            goes_on = self._below(denominator, active.size) < numerator[active]
            goes_on &= self._below(k, active.size) == 0
            active = active[goes_on]
            parity[active] ^= True
            k += 1
        return ~parity

    def _geometric(self, size: int) -> IntArray:
        """Return how often an event of probability exp(-1) happens in a row."""
        out = np.zeros(size, dtype=np.int64)
        active = np.arange(size)
        while active.size:
            active = active[self._bernoulli_exp(np.ones(active.size, dtype=np.int64), 1)]
            out[active] += 1
        return out

    def _below_exp(self, y: IntArray, sigma2: Fraction, t: int) -> npt.NDArray[np.bool_]:
        """Return True with probability exp(-(|y| - sigma2/t)^2 / (2 sigma2))."""
        variance = float(sigma2)
        distance = np.abs(y).astype(np.float64) - variance / t
        chance = np.exp(-distance * distance / (2.0 * variance))
        words = self.words(y.size)
        uniform = words.astype(np.float64) * 2.0**-64
        kept = np.asarray(uniform < chance)
        # exp(-gamma) in floats errs by far less than this; beyond it the comparison is certain.
        open_ = np.abs(uniform - chance) <= _CERTAIN * chance + 2.0**-52
        for j in np.flatnonzero(open_).tolist():
            gamma = (abs(int(y[j])) - sigma2 / t) ** 2 / (2 * sigma2)
            kept[j] = self._decide(int(words[j]), gamma)
        return kept

    def _decide(self, word: int, gamma: Fraction) -> bool:
        """Compare a uniform real, known by its first 64 bits, with exp(-gamma), exactly."""
        bits, digits = 64, 40
        while True:
            low, high = _exp_bounds(gamma, digits)
            if Fraction(word + 1, 2**bits) <= low:
                return True
            if Fraction(word, 2**bits) >= high:
                return False
            word = (word << 64) | int(self.words(1)[0])
            bits, digits = bits + 64, digits + 20


class SecureNoise(Noise):
    """Draw from the operating system's entropy: no state, so nothing to share or to fork.

    Examples
    --------
    >>> from sklearn_fairleak.noise import SecureNoise
    >>> SecureNoise().words(2).dtype
    dtype('uint64')
    """

    def words(self, size: int) -> WordArray:
        """Return uniform 64-bit words, shape (size,)."""
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


class SeededNoise(Noise):
    """Draw from a generator that follows from a seed and a digest. For experiments: not private.

    Whoever knows or guesses the seed can subtract the noise.

    Parameters
    ----------
    seed : int
        Seed of the experiment.
    digest : bytes
        What is answered: two different questions never share noise.

    Examples
    --------
    >>> from sklearn_fairleak.noise import SeededNoise
    >>> first, again = SeededNoise(0, b"q"), SeededNoise(0, b"q")
    >>> bool((first.words(3) == again.words(3)).all())
    True
    """

    is_private: ClassVar[bool] = False

    def __init__(self, seed: int, digest: bytes) -> None:
        key = hashlib.sha256(repr(int(seed)).encode() + b"|" + digest).digest()
        self._generator = np.random.Philox(key=np.frombuffer(key[:16], dtype=np.uint64))

    def words(self, size: int) -> WordArray:
        """Return uniform 64-bit words, shape (size,)."""
        return np.asarray(self._generator.random_raw(size), dtype=np.uint64)


def flip_probability(epsilon: Fraction, n_categories: int) -> Fraction:
    """Return the probability that randomised response reports another code.

    Rounded up to a multiple of 2^-64, so that the guarantee is at most epsilon.

    Parameters
    ----------
    epsilon : Fraction
        Privacy parameter of the report, in nats.
    n_categories : int
        Number of codes k; the exact probability is (k-1)/(exp(epsilon)+k-1).

    Returns
    -------
    Fraction

    Raises
    ------
    ValueError
        If there are fewer than 2 categories, or epsilon is not positive, or so small that
        multiples of 2^-64 cannot keep to it.

    Examples
    --------
    >>> from sklearn_fairleak.noise import flip_probability
    >>> round(float(flip_probability(1, 2)), 4)
    0.2689
    """
    if n_categories < 2:
        raise ValueError(f"Randomised response needs at least 2 categories, got {n_categories}.")
    if not epsilon > 0:
        raise ValueError(f"epsilon must be positive, got {epsilon}.")
    others = n_categories - 1
    # From here on the answer is 2^-64, whatever epsilon is, and its exponential only grows.
    enough = min(Fraction(epsilon), Fraction(64 + others.bit_length()))
    low, _ = _exp_bounds(-enough, 60)
    flip = Fraction(ceil(2**64 * others / (low + others)), 2**64)
    if flip * n_categories > others:
        # Rounded past indifference, another code would be likelier than the true one.
        raise ValueError(f"epsilon is too small for {n_categories} categories, got {float(epsilon)}.")
    return flip


def _exp_bounds(gamma: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Return rational bounds of exp(-gamma), with this many digits."""
    context = Context(prec=digits + 10, Emax=10**9, Emin=-(10**9))
    argument = context.divide(Decimal(-gamma.numerator), Decimal(gamma.denominator))
    value = Fraction(context.exp(argument))
    # The quotient errs by |gamma| 10^-(digits+9) at most, and so, relatively, does its exponential.
    slack = value * Fraction(max(1, ceil(abs(gamma))) * 4, 10 ** (digits + 8))
    return value - slack, value + slack


def _short(scale: Fraction) -> Fraction:
    """Round a scale up to a rational with a numerator of at most 56 bits."""
    if not scale > 0:
        raise ValueError(f"A noise scale must be positive, got {scale}.")
    scale = Fraction(scale)
    if scale.numerator < _LARGEST and scale.denominator < _LARGEST:
        return scale
    whole = ceil(scale)
    if whole >= _LARGEST:
        raise ValueError("A noise scale must be below 2^56; use a coarser grid.")
    denominator = 2 ** (55 - whole.bit_length())
    return Fraction(ceil(scale * denominator), denominator)
