"""Posteriors of group membership from noisy answers: GAMP, IRLS and LMMSE.

Membership is Bernoulli, answers are linear in it plus noise of a known law. Generalised
approximate message passing (GAMP) works with the law itself, iteratively reweighted least squares
(IRLS) with a Gaussian of adapted variance for each answer, LMMSE with the variance alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .decoders import gap_scale
from .noise_laws import NoiseLaw

__all__ = ["NoisySystem", "Posterior", "posterior_gamp", "posterior_irls", "posterior_lmmse"]

FloatArray = npt.NDArray[np.float64]


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
    # Outside the window by many spreads the score tends to that of its nearer edge, below error / tau.
    density = np.exp(np.minimum(-0.5 * low**2 - log_mass, 300.0)) - np.exp(
        np.minimum(-0.5 * high**2 - log_mass, 300.0)
    )
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

    It is one observation of ``mean_row @ a``, known up to ``1 / (m * curvature)`` and noise that all answers
    share: little for most designs,
    everything where one question is asked again and again.
    """
    x = posterior.probabilities
    uncertain = system.mean_row**2 * x * (1.0 - x)
    error = 1.0 / (system.goals.size * max(curvature, 1e-300)) + system.law.shared**2
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
    # Noise that all answers share is one more direction of them that is not known.
    gram += system.law.shared**2
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
    x = Posterior(log_odds, 0.0).probabilities
    if system.law.shared:
        return Posterior(log_odds, float(np.median(system.goals - system.rows @ x)))
    return Posterior(log_odds, float(system.mean_row @ x))


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
