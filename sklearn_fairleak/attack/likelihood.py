"""Decode defended answers with the likelihood of their noise.

Which decoder to trust, how large the groups are, and what the noise is where nobody says, are all
decided by predicting held-out answers, never by the truth.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .noise_laws import NoiseLaw
from .posteriors import NoisySystem, Posterior, posterior_gamp, posterior_irls, posterior_lmmse
from .private_copy import decode_private_copy, stretched_copy
from .reconstruction import Reconstruction
from .recovery import decode_exact

__all__ = ["decode_noisy", "decode_unknown", "likely_law"]

FloatArray = npt.NDArray[np.float64]

_FOLDS = 4
#: Shares of the advantaged group that are compared where the group sizes are not known.
_SHARES = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98])


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
        return decode_private_copy(H, answers, law, prior)
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
        law = stretched_copy(H, answers)
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
