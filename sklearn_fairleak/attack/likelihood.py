"""Decoders that know the noise: posteriors of group membership from defended answers.

Membership is Bernoulli, answers are linear in it plus noise of a known law. Generalised
approximate message passing (GAMP) works with the law itself, iteratively reweighted least squares
(IRLS) with a Gaussian of adapted variance for each answer, LMMSE with the variance alone. Which of
them to trust is decided by predicting held-out answers, never by the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .decoders import gap_scale, largest_entries, rounding_tolerance, solve_amp, solve_linear
from .noise_laws import NoiseLaw
from .reconstruction import Reconstruction
from .recovery import decode_exact

__all__ = [
    "Posterior",
    "decode_noisy",
    "decode_unknown",
    "likely_law",
    "posterior_gamp",
    "posterior_irls",
    "posterior_lmmse",
]

FloatArray = npt.NDArray[np.float64]

_FOLDS = 4
#: Shares of the advantaged group that are compared where the group sizes are not known.
_SHARES = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98])


@dataclass(frozen=True, eq=False)
class Posterior:
    """Hold the log odds of being advantaged, and the level that all answers share.

    Parameters
    ----------
    log_odds : ndarray of shape (n_individuals,)
    level : float
        Estimated common part of the answers, in units of an answer divided by ``1/N0 + 1/N1``.
    """

    log_odds: FloatArray
    level: float

    @property
    def probabilities(self) -> FloatArray:
        """Posterior probability of being advantaged."""
        from scipy.special import expit

        return np.asarray(expit(self.log_odds))


@dataclass(frozen=True, eq=False)
class NoisySystem:
    """Hold centred queries, answers in the same units, the noise and the prior.

    Rows lose their own mean (everyone alike has no gap) and the mean row, the base model: message
    passing wants rows that look independent, so the base model's share of the answers is a level of its own.
    """

    rows: FloatArray
    mean_row: FloatArray
    goals: FloatArray
    law: NoiseLaw
    prior: FloatArray

    @classmethod
    def build(
        cls, H: FloatArray, answers: FloatArray, law: NoiseLaw, share: float, prior: FloatArray | None
    ) -> NoisySystem:
        """Bring queries and answers into the units of membership."""
        n = H.shape[1]
        c = float(gap_scale((1.0 - share) * n, share * n))
        centred = H - H.mean(axis=1, keepdims=True)
        mean_row = centred.mean(axis=0)
        chance = np.full(n, share) if prior is None else prior
        return cls(
            centred - mean_row,
            mean_row,
            answers / c,
            law.rescaled(1.0 / c),
            np.clip(chance, 1e-6, 1.0 - 1e-6),
        )

    def part(self, index: npt.NDArray[np.int64]) -> NoisySystem:
        """Return the system of some of the answers."""
        return replace(self, rows=self.rows[index], goals=self.goals[index])


def _channel(law: NoiseLaw, error: FloatArray, tau: float) -> tuple[FloatArray, float]:
    """Return d/dp log p(answer | p) and its mean negative slope, for predictions of variance `tau`."""
    s = law.scale
    if law.kind == "gaussian":
        return error / (tau + s * s), 1.0 / (tau + s * s)
    if law.kind == "cauchy":
        return _cauchy_channel(s, error, tau)
    score = _laplace_score if law.kind == "laplace" else _uniform_score
    step = 1e-4 * np.sqrt(tau)
    slope = (score(s, error + step, tau) - score(s, error - step, tau)) / (2.0 * step)
    return score(s, error, tau), float(np.mean(slope))


def _cauchy_channel(s: float, error: FloatArray, tau: float) -> tuple[FloatArray, float]:
    """Score of a Cauchy law convolved with a Gaussian (the Voigt profile)."""
    from scipy.special import wofz

    if s * s > 400.0 * tau:
        # The Gaussian part is negligible, and the derivatives of the profile would lose their digits.
        d = error**2 + s * s
        return 2.0 * error / d, float(np.mean(2.0 * (s * s - error**2) / d**2))
    k = np.sqrt(2.0 * tau)
    z = (error + 1j * s) / k
    w = wofz(z)
    first = -2.0 * z * w + 2j / np.sqrt(np.pi)
    second = -2.0 * w - 2.0 * z * first
    level = np.maximum(w.real, 1e-300)
    r1, r2 = first.real / k / level, second.real / k**2 / level
    return np.asarray(-r1), float(np.mean(r1**2 - r2))


def _laplace_score(s: float, error: FloatArray, tau: float) -> FloatArray:
    """Score of a Laplace law convolved with a Gaussian."""
    from scipy.special import erfcx

    k = np.sqrt(2.0 * tau)
    u = np.maximum((tau / s - error) / k, -20.0)
    v = np.maximum((tau / s + error) / k, -20.0)
    a, b = erfcx(u), erfcx(v)
    da = -(2.0 * u * a - 2.0 / np.sqrt(np.pi)) / k
    db = (2.0 * v * b - 2.0 / np.sqrt(np.pi)) / k
    return np.asarray(np.clip(error / tau - (da + db) / (a + b), -1.0 / s, 1.0 / s))


def _uniform_score(s: float, error: FloatArray, tau: float) -> FloatArray:
    """Score of a uniform law convolved with a Gaussian."""
    from scipy.special import log_ndtr

    root = np.sqrt(tau)
    distance = np.abs(error)
    # By symmetry only the side of positive errors is computed, where both tails are well represented.
    low, high = (distance - s) / root, (distance + s) / root
    log_low, log_high = log_ndtr(-low), log_ndtr(-high)
    log_mass = log_low + np.log1p(-np.exp(np.minimum(log_high - log_low, -1e-15)))
    density = np.exp(-0.5 * low**2 - log_mass) - np.exp(-0.5 * high**2 - log_mass)
    return np.asarray(np.sign(error) * np.clip(density / np.sqrt(2.0 * np.pi) / root, 0.0, distance / tau))


def posterior_gamp(system: NoisySystem, *, max_iter: int = 60, damping: float = 0.25) -> Posterior:
    """Compute the posterior by generalised approximate message passing.

    Parameters
    ----------
    system : NoisySystem
    max_iter : int, default=60
    damping : float, default=0.25
        Share of the last iterate that is kept.

    Returns
    -------
    Posterior

    References
    ----------
    S. Rangan, "Generalized approximate message passing for estimation with random linear mixing",
    ISIT 2011.
    """
    from scipy.special import expit, logit

    rows, goals, law = system.rows, system.goals, system.law
    m = rows.shape[0]
    power = np.einsum("ij,ij->j", rows, rows)
    usable = power > 1e-14 * max(float(power.max(initial=0.0)), 1e-300)
    start = logit(system.prior)
    x = system.prior.copy()
    variance = x * (1.0 - x)
    residual = np.zeros(m)
    level = float(np.median(goals - rows @ x)) if m else 0.0
    curvature = 0.0
    stalled, sharpness = 0, 0.0
    best, best_fit = Posterior(start, level), -np.inf
    if not usable.any():
        _, curvature = _channel(law, goals - level, 1e-9 * law.scale**2)
        return _with_level(system, best, curvature)
    for step in range(max_iter):
        tau = max(float(power @ variance) / m, 1e-12)
        mean = rows @ x - tau * residual
        drift = np.mean if law.kind in ("gaussian", "uniform") else np.median
        level += (1.0 if step == 0 else 0.5) * float(drift(goals - level - mean))
        fresh, slope = _channel(law, goals - level - mean, tau)
        slope = max(slope, 1e-3 / (tau + min(law.scale**2, 1e6)))
        keep = 0.0 if step == 0 else damping
        residual = keep * residual + (1.0 - keep) * fresh
        curvature = keep * curvature + (1.0 - keep) * slope
        width = np.where(usable, 1.0 / np.maximum(power * curvature, 1e-300), np.inf)
        pull = x + np.where(usable, width, 0.0) * (rows.T @ residual)
        log_odds = np.clip(start + np.where(usable, (pull - 0.5) / width, 0.0), -35.0, 35.0)
        x = keep * x + (1.0 - keep) * expit(log_odds)
        variance = np.maximum(x * (1.0 - x), 1e-9)
        if not np.isfinite(x).all():
            break
        # Message passing may swing away from a good point; how well the answers are explained tells.
        spread = np.sqrt(float(power @ variance) / m)
        fit = float(law.log_density(goals - level - rows @ x, spread).mean())
        if fit > best_fit + 1e-9:
            best, best_fit, stalled, sharpness = Posterior(log_odds, level), fit, 0, curvature
        else:
            stalled += 1
            if stalled > 15:
                break
    return _with_level(system, best, sharpness)


def _with_level(system: NoisySystem, posterior: Posterior, curvature: float) -> Posterior:
    """Add what the level of all answers says about each individual, the others taken as Gaussian.

    It is one observation of ``mean_row @ a``, known up to ``1 / (m * curvature)``: little for most designs,
    everything where one question is asked again and again.
    """
    x = posterior.probabilities
    uncertain = system.mean_row**2 * x * (1.0 - x)
    error = 1.0 / (system.goals.size * max(curvature, 1e-300))
    others = np.maximum(uncertain.sum() - uncertain, 0.0) + error
    gap = posterior.level - system.mean_row @ x
    evidence = system.mean_row * (gap + system.mean_row * (x - 0.5)) / others
    log_odds = np.clip(posterior.log_odds + np.where(np.isfinite(evidence), evidence, 0.0), -35.0, 35.0)
    return Posterior(log_odds, posterior.level)


def _gaussian_posterior(system: NoisySystem, variances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Posterior mean and variance of membership, taken as Gaussian, for answers of given variances."""
    from scipy.linalg import cho_factor, cho_solve, solve_triangular

    rows = system.rows + system.mean_row
    spread = system.prior * (1.0 - system.prior)
    weighted = rows * spread
    gram = weighted @ rows.T
    gram[np.diag_indices_from(gram)] += variances + 1e-12 * max(float(np.trace(gram)) / gram.shape[0], 1e-300)
    factor = cho_factor(gram, lower=True, check_finite=False)
    error = system.goals - rows @ system.prior
    mean = system.prior + weighted.T @ cho_solve(factor, error, check_finite=False)
    half = solve_triangular(factor[0], weighted, lower=True, check_finite=False)
    return mean, np.maximum(spread - np.einsum("ij,ij->j", half, half), 1e-9 * spread)


def _from_gaussian(system: NoisySystem, mean: FloatArray, variance: FloatArray) -> Posterior:
    """Turn a Gaussian posterior into the log odds of a binary attribute seen through the same noise."""
    from scipy.special import logit

    spread = system.prior * (1.0 - system.prior)
    gain = np.maximum(1.0 - variance / spread, 0.0)
    seen = np.divide(mean - system.prior, gain, out=np.zeros_like(mean), where=gain > 1e-12)
    # Noise variance of the equivalent single observation is variance / gain.
    evidence = gain * (system.prior + seen - 0.5) / variance
    log_odds = np.clip(logit(system.prior) + evidence, -35.0, 35.0)
    return Posterior(log_odds, float(system.mean_row @ Posterior(log_odds, 0.0).probabilities))


def posterior_lmmse(system: NoisySystem) -> Posterior:
    """Compute the posterior from variances alone: the best linear estimate.

    Where the noise has no variance (Cauchy), its interquartile range stands in.
    """
    law = system.law
    variance = law.variance if np.isfinite(law.variance) else (1.4826 * law.scale) ** 2
    # No gap passes what the most extreme membership would give; wilder answers are noise.
    bound = np.abs(system.rows + system.mean_row).sum(axis=1) / 2.0
    clipped = replace(system, goals=np.clip(system.goals, -bound, bound))
    return _from_gaussian(system, *_gaussian_posterior(clipped, np.full(system.goals.size, variance)))


def posterior_irls(system: NoisySystem, *, max_iter: int = 15) -> Posterior:
    """Compute the posterior by iteratively reweighted least squares: each answer gets its own variance.

    Parameters
    ----------
    system : NoisySystem
    max_iter : int, default=15

    Returns
    -------
    Posterior

    References
    ----------
    P. J. Green, "Iteratively reweighted least squares for maximum likelihood estimation, and some robust
    and resistant alternatives", JRSS B 46 (1984).
    """
    rows = system.rows + system.mean_row
    mean, spread = system.prior, system.prior * (1.0 - system.prior)
    for _ in range(max_iter):
        error = system.goals - rows @ mean
        uncertain = np.einsum("ij,j,ij->i", rows, spread, rows)
        mean, spread = _gaussian_posterior(system, _adapted_variances(system.law, error**2 + uncertain))
    return _from_gaussian(system, mean, spread)


def _adapted_variances(law: NoiseLaw, squares: FloatArray) -> FloatArray:
    """Variance under which a Gaussian pulls as the law does at an error of this size."""
    if law.kind == "cauchy":
        return np.asarray((law.scale**2 + squares) / 2.0)
    if law.kind == "laplace":
        return np.asarray(law.scale * np.sqrt(np.maximum(squares, 1e-6 * law.scale**2)))
    return np.full(squares.size, max(law.variance, 1e-12))


_DECODERS: dict[str, Callable[[NoisySystem], Posterior]] = {
    "gamp": posterior_gamp,
    "irls": posterior_irls,
    "lmmse": posterior_lmmse,
}


def decode_noisy(
    H: FloatArray,
    answers: FloatArray,
    law: NoiseLaw,
    *,
    sizes: tuple[int, int] | None = None,
    prior: FloatArray | None = None,
    decoder: str = "auto",
) -> Reconstruction:
    """Compute each individual's posterior from answers with noise of a known law.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    answers : ndarray of shape (n_queries,)
        Signed noisy gaps.
    law : NoiseLaw
        Law of the noise.
    sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Group sizes; the share is estimated where they are not known.
    prior : ndarray of shape (n_individuals,), default=None
        Prior probability of being advantaged; the groups' shares by default.
    decoder : {"auto", "gamp", "irls", "lmmse"}, default="auto"
        ``"auto"`` takes the one that predicts held-out answers best.

    Returns
    -------
    Reconstruction
        `scores` are posterior probabilities; `threshold` is the share of the advantaged, at which
        balanced accuracy is best.
    """
    if law.kind == "randomized_response":
        return _decode_flipped(H, answers, law, prior)
    share = _share(H, answers, law, sizes, prior)
    system = NoisySystem.build(H, answers, law, share, prior)
    messages = []
    if decoder == "auto":
        decoder = _best_decoder(system)
        messages.append(f"decoder {decoder} predicted held-out answers best")
    scores = _DECODERS[decoder](system).probabilities
    if sizes is None:
        messages.append("group sizes are not known; scores rest on an estimated share")
    return Reconstruction(
        scores=scores,
        determined=np.zeros(H.shape[1], dtype=bool),
        answers=answers,
        n_queries=answers.size,
        group_sizes=sizes,
        queries=H,
        threshold=float(scores.mean()),
        messages=tuple(messages),
    )


def decode_unknown(
    H: FloatArray,
    answers: FloatArray,
    *,
    sizes: tuple[int, int] | None = None,
    prior: FloatArray | None = None,
    decoder: str = "auto",
) -> Reconstruction:
    """Decode signed answers of which nothing is known: exact, a private copy's, or noisy.

    Answers that are exact for somebody's attributes give themselves away: some binary vector explains all
    of them. If that takes a stretched scale, it is the copy that randomised response made, and the stretch
    tells its flip probability.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    answers : ndarray of shape (n_queries,)
        Signed gaps.
    sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Group sizes.
    prior : ndarray of shape (n_individuals,), default=None
        Prior probability of being advantaged.
    decoder : {"auto", "gamp", "irls", "lmmse"}, default="auto"
        Decoder of noisy answers.

    Returns
    -------
    Reconstruction
    """
    if decoder == "auto":
        exact = decode_exact(H, answers, sizes=sizes, prior=prior, thorough=False)
        if exact.verified:
            return exact
        law = _stretched_copy(H, answers)
        if law is not None:
            found = decode_noisy(H, answers, law, prior=prior)
            return found.with_message(f"answers are those of a randomised copy, epsilon = {law.scale:.3g}")
    for digits in range(1, 7):
        if np.any(answers) and np.all(np.abs(np.round(answers, digits) - answers) <= 1e-12):
            law = NoiseLaw.rounded(digits)
            found = decode_noisy(H, answers, law, sizes=sizes, prior=prior, decoder=decoder)
            return found.with_message(f"answers are taken for rounded to {digits} decimals")
    law = likely_law(H, answers, sizes=sizes, prior=prior)
    found = decode_noisy(H, answers, law, sizes=sizes, prior=prior, decoder=decoder)
    return found.with_message(f"the noise is taken for {law.kind} of a scale guessed from the answers")


def _stretched_copy(H: FloatArray, answers: FloatArray) -> NoiseLaw | None:
    """Recognise randomised response: as many answers as individuals have coefficients of two values only."""
    from scipy.optimize import brentq

    n = H.shape[1]
    if H.shape[0] + 2 < n:
        return None
    solution = solve_linear(H, answers)
    v = solution.coefficients
    ones = v > 0
    count = int(ones.sum())
    if not solution.reached.all() or not 0 < count < n:
        return None
    stretch = float(v[ones].mean() - v[~ones].mean())
    if max(float(np.ptp(v[ones])), float(np.ptp(v[~ones]))) > 1e-6 * stretch:
        return None

    def excess(p: float) -> float:
        size = (count - p * n) / (1.0 - 2.0 * p)
        return n / (size * (n - size)) / (1.0 - 2.0 * p) - stretch

    # Beyond this flip probability the debiased size would leave (0, n).
    last = min(count, n - count) / n * (1.0 - 1e-9)
    if excess(0.0) > 0.0 or excess(last) < 0.0:
        return None
    p = float(brentq(excess, 0.0, last, xtol=1e-15))
    return NoiseLaw("randomized_response", float(np.log((1.0 - p) / p))) if p > 0.0 else None


def _best_decoder(system: NoisySystem) -> str:
    """Choose the decoder that gives held-out answers the highest likelihood; message passing unless beaten."""
    m = system.goals.size
    if m < 2 * _FOLDS:
        return "irls"
    gains = {name: _held_out(system, decode) for name, decode in _DECODERS.items()}
    best = "gamp"
    for name in ("irls", "lmmse"):
        ahead = gains[name] - gains[best]
        if ahead.mean() > 2.0 * ahead.std() / np.sqrt(m):
            best = name
    return best


def likely_law(
    H: FloatArray,
    answers: FloatArray,
    *,
    sizes: tuple[int, int] | None = None,
    prior: FloatArray | None = None,
) -> NoiseLaw:
    """Guess the noise: the Laplace or Cauchy scale under which held-out answers are likeliest.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    answers : ndarray of shape (n_queries,)
        Signed noisy gaps.
    sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Group sizes.
    prior : ndarray of shape (n_individuals,), default=None
        Prior probability of being advantaged.

    Returns
    -------
    NoiseLaw
    """
    error = answers - np.median(answers)
    width = float(np.median(np.abs(error)))
    width = width if width > 0 else float(max(np.abs(error).max(initial=0.0), 1e-9))
    best, best_fit = NoiseLaw("laplace", width), -np.inf
    for kind in ("laplace", "cauchy"):
        for halvings in range(0, 13, 2):
            law = NoiseLaw(kind, width * 2.0**-halvings)
            system = NoisySystem.build(H, answers, law, _share(H, answers, law, sizes, prior), prior)
            if answers.size >= 2 * _FOLDS:
                fit = float(_held_out(system, posterior_gamp).mean())
                # Densities of answers divided by 1/N0 + 1/N1 compare once brought back to one unit.
                fit += float(np.log(system.law.scale / law.scale))
                if fit > best_fit:
                    best, best_fit = law, fit
    return best


def _held_out(system: NoisySystem, decode: Callable[[NoisySystem], Posterior]) -> FloatArray:
    """Log density of each answer, predicted from a posterior that had not seen it."""
    m = system.goals.size
    folds = np.arange(m) % _FOLDS
    fit = np.empty(m)
    for fold in range(_FOLDS):
        inside, outside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        posterior = decode(system.part(inside))
        x = posterior.probabilities
        error = system.goals[outside] - posterior.level - system.rows[outside] @ x
        power = float(np.square(system.rows[outside]).mean(axis=0) @ (x * (1.0 - x)))
        fit[outside] = system.law.log_density(error, np.sqrt(power))
    return fit


def _share(
    H: FloatArray,
    answers: FloatArray,
    law: NoiseLaw,
    sizes: tuple[int, int] | None,
    prior: FloatArray | None,
) -> float:
    """Return the share of the advantaged: known, or the one under which the answers are likeliest."""
    n = H.shape[1]
    if sizes is not None:
        return sizes[1] / (sizes[0] + sizes[1])
    if prior is not None:
        return float(np.clip(prior.mean(), 1.0 / n, 1.0 - 1.0 / n))
    centred = H - H.mean(axis=1, keepdims=True)
    centred = centred - centred.mean(axis=0)
    power = np.einsum("ij,ij->i", centred, centred)
    error = answers - np.median(answers)
    fits = []
    for share in _SHARES:
        spread = np.sqrt(power.mean() / (share * (1.0 - share))) / n
        fits.append(float(law.log_density(error, float(spread)).sum()))
    # Shares p and 1 - p explain the variance equally well, and little noise is needed to blur the rest.
    likely = np.exp(np.array(fits) - max(fits))
    return float(likely @ _SHARES / likely.sum())


def _decode_flipped(
    H: FloatArray, answers: FloatArray, law: NoiseLaw, prior: FloatArray | None
) -> Reconstruction:
    """Recover the private copy that randomised response made, and read it as one noisy look at everyone.

    The answers are exact for the copy: with K ones in it and flip probability p, the debiased size is
    ``N1 = (K - p n)/(1 - 2p)`` and a unit of centred membership adds ``n/(N1 N0)/(1 - 2p)``.
    """
    n = H.shape[1]
    p = law.flip_probability
    copies = np.arange(1, n)
    sizes = np.clip((copies - p * n) / (1.0 - 2.0 * p), 1.0, n - 1.0)
    scales = gap_scale(n - sizes, sizes) / (1.0 - 2.0 * p)
    copy, verified = _private_copy(H, answers, copies, scales)
    if copy is None:
        scores = np.full(n, 0.5) if prior is None else prior
        message = "the private copy of the attributes could not be recovered from these answers"
        return Reconstruction(
            scores, np.zeros(n, dtype=bool), answers, answers.size, queries=H, messages=(message,)
        )
    share = float(np.clip((copy.sum() - p * n) / (1.0 - 2.0 * p), 1.0, n - 1.0)) / n
    q = np.full(n, share) if prior is None else prior
    ones = q * (1.0 - p) / (q * (1.0 - p) + (1.0 - q) * p)
    zeros = q * p / (q * p + (1.0 - q) * (1.0 - p))
    scores = np.where(copy, ones, zeros)
    return Reconstruction(
        scores=scores,
        determined=np.zeros(n, dtype=bool),
        answers=answers,
        n_queries=answers.size,
        verified=verified,
        queries=H,
        threshold=float(scores.mean()),
        messages=("the private copy of the attributes is known; each was flipped with a known probability",),
    )


def _private_copy(
    H: FloatArray, answers: FloatArray, copies: npt.NDArray[np.int64], scales: FloatArray
) -> tuple[npt.NDArray[np.bool_] | None, bool]:
    """Find the binary vector, of unknown sum, of which the answers are an exact linear function."""
    n = H.shape[1]
    centred = H - H.mean(axis=1, keepdims=True)
    tolerance = 64.0 * rounding_tolerance(H) * float(scales.min() * n)

    def fits(copy: npt.NDArray[np.bool_]) -> bool:
        scale = scales[int(copy.sum()) - 1]
        return bool(np.abs(scale * (centred @ copy) - answers).max() <= tolerance)

    if H.shape[0] + 2 >= n:
        solution = solve_linear(H, answers)
        copy = solution.coefficients > 0
        if solution.reached.all() and 0 < copy.sum() < n and fits(copy):
            return copy, True
    differenced = centred - centred.mean(axis=0)
    observed = max(float(np.square(answers - answers.mean()).mean()), 1e-300)
    power = float(np.square(differenced).sum(axis=1).mean())
    expected = scales**2 * copies * (n - copies) / n**2 * power
    order = np.argsort(np.abs(np.log(expected / observed)), kind="stable")[:240]
    for first in range(0, order.size, 40):
        chunk = order[first : first + 40]
        x, solved = solve_amp(H, answers, copies[chunk], scales=scales[chunk], tolerance=tolerance)
        if solved is not None:
            copy = largest_entries(x[:, solved], int(copies[chunk[solved]]))
            if fits(copy):
                return copy, True
    return None, False
