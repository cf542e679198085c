"""Answers of randomised response: exact, for a private copy of the attributes.

The copy flips each attribute with probability p. Its answers are debiased, which stretches the
scale: with K ones among n people, ``N1 = (K - p n)/(1 - 2p)`` and one unit of centred membership of the
copy adds ``n/(N1 N0)/(1 - 2p)``. So the copy is decoded like exact answers, at a scale of its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .decoders import gap_scale, largest_entries, rounding_tolerance, solve_amp, solve_linear
from .noise_laws import NoiseLaw
from .reconstruction import Reconstruction

__all__ = ["decode_private_copy", "stretched_copy"]

FloatArray = npt.NDArray[np.float64]


def decode_private_copy(
    H: FloatArray, answers: FloatArray, law: NoiseLaw, prior: FloatArray | None = None
) -> Reconstruction:
    """Recover the private copy, and read it as one noisy look at everyone.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    answers : ndarray of shape (n_queries,)
        Signed gaps.
    law : NoiseLaw
        Randomised response at a known epsilon.
    prior : ndarray of shape (n_individuals,), default=None
        Prior probability of being advantaged; the debiased share by default.

    Returns
    -------
    Reconstruction
        `scores` are posteriors given the copy: the odds that epsilon leaves, and the prior.
    """
    n = H.shape[1]
    p = law.flip_probability
    copies = np.arange(1, n)
    sizes = np.clip((copies - p * n) / (1.0 - 2.0 * p), 1.0, n - 1.0)
    scales = gap_scale(n - sizes, sizes) / (1.0 - 2.0 * p)
    copy, verified = _private_copy(H, answers, copies, scales)
    share = float(np.clip((copy.sum() - p * n) / (1.0 - 2.0 * p), 1.0, n - 1.0)) / n
    q = np.full(n, share) if prior is None else prior
    ones = q * (1.0 - p) / (q * (1.0 - p) + (1.0 - q) * p)
    zeros = q * p / (q * p + (1.0 - q) * (1.0 - p))
    scores = copy * ones + (1.0 - copy) * zeros
    message = "the private copy of the attributes is known; each was flipped with a known probability"
    if not verified:
        message = "the private copy of the attributes is estimated only: too few answers to fix it"
    return Reconstruction(
        scores=scores,
        determined=np.zeros(n, dtype=bool),
        answers=answers,
        n_queries=answers.size,
        verified=verified,
        queries=H,
        threshold=float(scores.mean()),
        messages=(message,),
    )


def _private_copy(
    H: FloatArray, answers: FloatArray, copies: npt.NDArray[np.int64], scales: FloatArray
) -> tuple[FloatArray, bool]:
    """Find the binary vector, of unknown sum, of which the answers are an exact linear function.

    Where they are too few for that, return how likely each entry is to be 1.
    """
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
            return copy.astype(np.float64), True
    differenced = centred - centred.mean(axis=0)
    observed = max(float(np.square(answers - answers.mean()).mean()), 1e-300)
    power = max(float(np.square(differenced).sum(axis=1).mean()), 1e-300)
    expected = scales**2 * copies * (n - copies) / n**2 * power
    order = np.argsort(np.abs(np.log(expected / observed)), kind="stable")[:240]
    estimate, smallest = np.full(n, 0.5), np.inf
    for first in range(0, order.size, 40):
        chunk = order[first : first + 40]
        x, solved = solve_amp(H, answers, copies[chunk], scales=scales[chunk], tolerance=tolerance)
        if solved is not None:
            copy = largest_entries(x[:, solved], int(copies[chunk[solved]]))
            if fits(copy):
                return copy.astype(np.float64), True
        error = np.square(scales[chunk] * (centred @ x) - answers[:, None]).sum(axis=0)
        if first == 0 and error.min() < smallest:
            estimate, smallest = x[:, int(error.argmin())], float(error.min())
    return estimate, False


def stretched_copy(H: FloatArray, answers: FloatArray) -> NoiseLaw | None:
    """Recognise randomised response, and its epsilon, from as many answers as individuals.

    Linear algebra then gives each individual's coefficient. If there are two values only, further apart
    than those of any group sizes, the stretch tells the flip probability.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    answers : ndarray of shape (n_queries,)
        Signed gaps.

    Returns
    -------
    NoiseLaw or None
    """
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
