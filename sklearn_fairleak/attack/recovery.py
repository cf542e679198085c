"""From answers to a reconstruction: group sizes, decoders in order of cost, and checks of the result.

A decoder only proposes. What it proposes is rounded to a binary vector and every answer is
predicted again from that; a reconstruction counts as verified when all agree within rounding
error, and an individual as determined when nothing else could have given the same answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .certainty import judge_certainty
from .decoders import (
    largest_entries,
    predict_gaps,
    rounding_tolerance,
    solve_amp,
    solve_box,
    solve_l1,
    solve_linear,
)
from .enumeration import consistent_attributes, enumerable
from .reconstruction import Reconstruction

__all__ = ["decode_exact", "likely_sizes", "sizes_from_pairs"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

#: Multiplications that looking for individuals fixed by linear algebra may cost.
_LINEAR_WORK = 10_000_000_000
#: Sizes, or restarts, that message passing carries along in one matrix product.
_BATCH = 40
#: Spread of the random log odds that restarts of message passing begin from.
_JITTERS = (0.2, 0.4)
#: Numbers that all restarts together may carry, and that all iterations of the box may touch.
_RESTART_WORK, _BOX_WORK = 20_000_000, 4_000_000_000
#: Group sizes, best first, that are tried again where nothing verified: more of them for small problems.
_RESTARTED, _RESTARTED_MOST, _RESTARTED_WORK = 4, 16, 120_000


@dataclass(frozen=True)
class _Problem:
    """Hold what every step of the recovery needs, so that the steps stay short."""

    H: FloatArray
    answers: FloatArray
    tolerance: float
    prior: FloatArray | None
    thorough: bool = True
    patient: bool = False


def decode_exact(
    H: FloatArray,
    answers: FloatArray,
    *,
    sizes: tuple[int, int] | None = None,
    signed: bool = True,
    decimals: int | None = None,
    prior: FloatArray | None = None,
    decoder: str = "auto",
    thorough: bool = True,
    tolerance: float | None = None,
    patient: bool = False,
) -> Reconstruction:
    """Reconstruct the attributes from exact (or rounded) answers to arbitrary queries.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    answers : ndarray of shape (n_queries,)
        Answers, signed or absolute gaps.
    sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Group sizes; found from the answers where they are not given.
    signed : bool, default=True
        Whether answers carry the sign of the gap.
    decimals : int, default=None
        Decimals to which answers were rounded; exact by default.
    prior : ndarray of shape (n_individuals,), default=None
        Prior probability of being advantaged.
    decoder : {"auto", "linear", "l1", "box", "amp"}, default="auto"
        Solver. ``"auto"`` takes the cheapest that verifies.
    thorough : bool, default=True
        Go on with restarts and the box where message passing does not verify at once.
    tolerance : float, default=None
        Largest error of an answer from floating point; that of careful sums by default.
    patient : bool, default=False
        Spend a second or two to list every assignment that fits, for up to 34 individuals.

    Returns
    -------
    Reconstruction
    """
    largest = rounding_tolerance(H, decimals)
    if tolerance is not None:
        largest = tolerance + (0.0 if decimals is None else 0.5 * 10.0**-decimals)
    problem = _Problem(H, answers, largest, prior, thorough, patient)
    if not signed:
        return _decode_absolute(problem, sizes, decoder)
    return _decode_signed(problem, sizes, decoder)


def _decode_signed(problem: _Problem, sizes: tuple[int, int] | None, decoder: str) -> Reconstruction:
    """Try the solvers in order of cost until one verifies; otherwise keep the best estimate."""
    H = problem.H
    touched = np.ptp(H, axis=1) > 0
    if not touched.any():
        return _nothing_learned(problem, "every submitted prediction is constant: such answers say nothing")
    if decoder == "auto":
        listed = _by_exhaustion(problem, sizes)
        if listed is not None:
            return listed
    m, n = H.shape
    linear = None
    if decoder == "linear" or (decoder == "auto" and m + 2 >= n):
        linear = _by_linear(problem)
        if linear.verified or decoder == "linear":
            return linear
        sizes = linear.group_sizes if sizes is None else sizes
    sizes = sizes_from_pairs(H, problem.answers) if sizes is None else sizes
    candidates = [sizes] if sizes is not None else _whole(problem, likely_sizes(H, problem.answers))
    if decoder == "l1":
        return _judge(problem, solve_l1(H, problem.answers, candidates[0]), candidates[0])
    found = _by_relaxation(problem, candidates, decoder)
    if decoder == "auto" and not found.determined.all() and m * m * n < _LINEAR_WORK:
        linear = linear or _by_linear(problem)
        scores = np.where(linear.determined, linear.scores, found.scores)
        found = replace(found, scores=scores, determined=found.determined | linear.determined)
    return found if sizes is not None or found.verified else replace(found, group_sizes=None)


def sizes_from_pairs(H: FloatArray, answers: FloatArray) -> tuple[int, int] | None:
    """Read the group sizes from two models that differ in one individual, if there are such.

    The difference of the answers over that of the predictions is 1/N1 or -1/N0.
    """
    n = H.shape[1]
    for rows, gaps in (
        (H[1:] - H[:1], answers[1:] - answers[:1]),
        (np.diff(H, axis=0), np.diff(answers)),
        (H, answers),
    ):
        alone = np.count_nonzero(rows, axis=1) == 1
        if alone.any():
            sizes = _sizes_from_coefficients(gaps[alone] / rows[alone].sum(axis=1), n)
            if sizes is not None:
                return sizes
    return None


def _by_linear(problem: _Problem) -> Reconstruction:
    """Read off the individuals whose coefficient the equations fix, and the sizes from their values."""
    H, answers, n = problem.H, problem.answers, problem.H.shape[1]
    solution = solve_linear(H, answers)
    v, reached = solution.coefficients, solution.reached
    scores = np.where(reached, (v > 0).astype(np.float64), 0.5)
    sizes = _sizes_from_coefficients(v[reached], n)
    verified = False
    plausible = sizes is not None and bool(
        np.all(np.abs(np.where(v > 0, v * sizes[1], -v * sizes[0])[reached] - 1.0) < 0.25)
    )
    if reached.all():
        verified = bool(scores.any() and not scores.all()) and _agrees(problem, scores > 0.5)
        sizes = (int(n - scores.sum()), int(scores.sum())) if verified else sizes
    messages: tuple[str, ...] = ()
    if not reached.all():
        messages = (f"{int(n - reached.sum())} of {n} individuals are not fixed by linear algebra alone",)
    elif not verified:
        messages = ("the answers contradict every assignment to two groups (not exact, or another metric)",)
    certain = reached if plausible or verified else np.zeros(n, dtype=bool)
    return _result(problem, scores, certain, sizes, verified, messages)


def _sizes_from_coefficients(v: FloatArray, n: int) -> tuple[int, int] | None:
    """Group sizes from coefficients that should be 1/N1 or -1/N0."""
    for sign in (1.0, -1.0):
        values = v[v * sign > 0]
        if values.size:
            size = round(float(1.0 / np.median(values * sign)))
            if 1 <= size <= n - 1:
                return (n - size, size) if sign > 0 else (size, n - size)
    return None


def likely_sizes(H: FloatArray, answers: FloatArray, limit: int = 240) -> list[tuple[int, int]]:
    """Order group sizes by how well they explain the variance of the answers.

    For perturbed queries, ``var(SP) = n / (N0 N1) * var(h)`` up to a relative error of about
    ``sqrt(2 / m)``, whichever group is the smaller one.
    """
    m, n = H.shape
    centred = H - H.mean(axis=1, keepdims=True)
    if m > 1:
        centred = centred - centred.mean(axis=0)
    power = float(np.einsum("ij,ij->", centred, centred)) / n
    observed = float(np.square(answers - answers.mean()).sum()) if m > 1 else float(np.square(answers).sum())
    product = n * power / observed if observed > 0 else n * n / 4.0
    minority = n / 2 - np.sqrt(max(n * n / 4.0 - product, 0.0))
    half = np.arange(1, n // 2 + 1)
    order = half[
        np.argsort(np.abs(np.log(half * (n - half) / max(minority * (n - minority), 0.5))), kind="stable")
    ]
    pairs: list[tuple[int, int]] = []
    for q in order[: max(1, limit // 2)].tolist():
        pairs.append((q, n - q))
        if 2 * q != n:
            pairs.append((n - q, q))
    return pairs


def _whole(problem: _Problem, candidates: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Keep the sizes for which predictions on a grid have sums on that grid, as hard labels must.

    Whichever the attributes, ``H @ a = SP / c + N1 mean(h)`` is a multiple of the grid's step and lies
    between 0 and the sum of all predictions.
    """
    steps = 1.0
    while steps < 2.0**21 and np.any(problem.H * steps != np.floor(problem.H * steps)):
        steps *= 2.0
    if steps >= 2.0**21:
        return candidates
    n = problem.H.shape[1]
    ones = np.array([pair[1] for pair in candidates])
    c = n / (ones * (n - ones))
    sums = (problem.answers[:, None] / c + problem.H.mean(axis=1)[:, None] * ones) * steps
    slack = problem.tolerance / c * steps + 1e-9
    error = np.abs(sums - np.rint(sums)).max(axis=0)
    total = problem.H.sum(axis=1)[:, None] * steps
    possible = (sums > -slack - 0.5).all(axis=0) & (sums < total + slack + 0.5).all(axis=0)
    kept = [pair for pair, good in zip(candidates, (error <= slack) & possible, strict=True) if good]
    return kept or candidates


def _by_relaxation(problem: _Problem, candidates: list[tuple[int, int]], decoder: str) -> Reconstruction:
    """Run message passing over all candidate sizes, then the box for the few best ones."""
    estimate = np.full(problem.H.shape[1], 0.5)
    if decoder in ("auto", "amp"):
        ranked: list[tuple[float, tuple[int, int]]] = []
        for first in range(0, len(candidates), _BATCH):
            chunk = candidates[first : first + _BATCH]
            found, estimates = _pass_messages(problem, chunk, None)
            if found is not None:
                return found
            errors = [_misfit(problem, estimates[:, k], pair) for k, pair in enumerate(chunk)]
            best = int(np.argmin(errors))
            if not ranked or errors[best] < min(ranked)[0]:
                estimate = estimates[:, best].copy()
            ranked.extend(zip(errors, chunk, strict=True))
        # Neither order is reliable alone: the likelihood of the answers' variance, and how well they fit.
        by_fit = [pair for _, pair in sorted(ranked)]
        candidates = list(
            dict.fromkeys(pair for both in zip(by_fit, candidates, strict=True) for pair in both)
        )
        if not problem.thorough:
            return _judge(problem, estimate, candidates[0])
        candidates = candidates[: _worth_restarting(problem)]
        found = _restart(problem, candidates)
        if found is not None:
            return found
    if decoder == "box":
        candidates = candidates[: _worth_restarting(problem)]
    if decoder in ("auto", "box"):
        for pair in candidates:
            steps = max(100, min(3000, _BOX_WORK // problem.H.size))
            relaxed = solve_box(problem.H, problem.answers, pair, tolerance=problem.tolerance, max_iter=steps)
            judged = _judge(problem, relaxed, pair)
            if judged.verified:
                return judged
            estimate = relaxed if decoder == "box" else estimate
    found = _judge(problem, estimate, candidates[0])
    # Soft estimates of a small group rarely pass 1/2; balanced accuracy is best at their mean.
    return found if found.verified else replace(found, threshold=float(found.scores.mean()))


def _pass_messages(
    problem: _Problem, sizes: list[tuple[int, int]], prior: FloatArray | None, damping: float = 0.0
) -> tuple[Reconstruction | None, FloatArray]:
    """Run message passing for several sizes and return the verified result, if any, and all estimates."""
    x, solved = solve_amp(
        problem.H,
        problem.answers,
        np.array([pair[1] for pair in sizes]),
        tolerance=problem.tolerance,
        prior=problem.prior if prior is None else prior,
        damping=damping,
    )
    if solved is not None:
        found = _judge(problem, x[:, solved], sizes[solved])
        if found.verified:
            return found, x
    return None, x


def _restart(problem: _Problem, sizes: list[tuple[int, int]]) -> Reconstruction | None:
    """Start message passing again from jittered priors: near the limit, where it starts decides."""
    from scipy.special import expit, logit

    rng = np.random.default_rng(problem.H.shape[0])
    n = problem.H.shape[1]
    copies = max(1, min(_BATCH // 2, _RESTART_WORK // problem.H.size))
    for pair in sizes:
        chance = np.full(n, pair[1] / n) if problem.prior is None else problem.prior
        centre = logit(np.clip(chance, 1e-6, 1.0 - 1e-6))[:, None]
        for jitter in _JITTERS:
            prior = expit(centre + jitter * rng.standard_normal((n, copies)))
            found, _ = _pass_messages(problem, [pair] * prior.shape[1], prior, damping=0.1)
            if found is not None:
                return found
    return None


def _worth_restarting(problem: _Problem) -> int:
    """Return how many group sizes are tried again: more of them for small problems."""
    return max(_RESTARTED, min(_RESTARTED_MOST, _RESTARTED_WORK // problem.H.size))


def _misfit(problem: _Problem, x: FloatArray, sizes: tuple[int, int]) -> float:
    """Mean squared error of the answers at a relaxed membership: public, so it may choose between sizes."""
    v = x / sizes[1] - (1.0 - x) / sizes[0]
    error = problem.H @ v - problem.answers
    return float(error @ error)


def _judge(problem: _Problem, relaxed: FloatArray, sizes: tuple[int, int]) -> Reconstruction:
    """Round a relaxed membership to the known sum and see whether it explains every answer."""
    rounded = largest_entries(relaxed, sizes[1])
    n = relaxed.size
    if 0 < sizes[1] < n and _agrees(problem, rounded):
        scores, certain, messages = judge_certainty(
            problem.H, rounded, relaxed, problem.tolerance, problem.prior
        )
        return _result(problem, scores, certain, sizes, True, messages)
    return _result(
        problem,
        np.clip(relaxed, 0.0, 1.0),
        np.zeros(n, dtype=bool),
        sizes,
        False,
        ("no assignment was found that explains every answer: too few answers, or they are not exact",),
    )


def _agrees(problem: _Problem, advantaged: BoolArray) -> bool:
    """Predict every answer again and compare."""
    error = np.abs(predict_gaps(problem.H, advantaged) - problem.answers)
    return bool(error.max(initial=0.0) <= problem.tolerance)


def _by_exhaustion(problem: _Problem, sizes: tuple[int, int] | None) -> Reconstruction | None:
    """Solve a small problem by looking at every assignment: exact posterior, exact certainty."""
    n = problem.H.shape[1]
    if not enumerable(n, sizes is not None, patient=problem.patient):
        return None
    if n < 2:
        return _nothing_learned(problem, "one individual alone has no gap")
    fits = consistent_attributes(problem.H, problem.answers, problem.tolerance, sizes=sizes)
    if fits is None:
        return None
    if not len(fits):
        return _nothing_learned(problem, "the answers contradict every assignment to two groups", sizes)
    weights = np.ones(len(fits))
    if problem.prior is not None:
        chance = np.clip(problem.prior, 1e-12, 1.0 - 1e-12)
        logs = fits @ np.log(chance) + ~fits @ np.log1p(-chance)
        weights = np.exp(logs - logs.max())
    scores = np.clip(weights @ fits / weights.sum(), 0.0, 1.0)
    certain = np.all(fits == fits[0], axis=0)
    scores = np.where(certain, fits[0].astype(np.float64), scores)
    ones = np.unique(fits.sum(axis=1))
    found = (n - int(ones[0]), int(ones[0])) if ones.size == 1 else None
    messages = () if len(fits) == 1 else (f"{len(fits)} assignments explain the answers equally well",)
    return _result(problem, scores, certain, found, True, messages)


def _decode_absolute(problem: _Problem, sizes: tuple[int, int] | None, decoder: str) -> Reconstruction:
    """Decode ``|SP|`` where all gaps have one sign, which queries close to an unfair base model have.

    If the common sign is negative, what is found is the same partition with the names exchanged; the
    group sizes name its parts unless they are equal or unknown.
    """
    found: Reconstruction | None = None
    options = [sizes] if sizes is None or sizes[0] == sizes[1] else [sizes, sizes[::-1]]
    for option in options:
        attempt = _decode_signed(problem, option, decoder)
        if found is None or (attempt.verified and not found.verified):
            found = attempt if option is None or option == sizes else attempt.swapped()
        if found.verified:
            break
    assert found is not None
    if sizes is not None and sizes[0] != sizes[1]:
        return found
    return replace(found, orientation_known=False).with_message(
        "answers without a negative one give the partition only, if they are absolute gaps: which part is "
        "the advantaged group is then a guess"
    )


def _nothing_learned(problem: _Problem, message: str, sizes: tuple[int, int] | None = None) -> Reconstruction:
    """Return prior knowledge where answers say nothing, or nothing consistent."""
    n = problem.H.shape[1]
    scores = np.full(n, 0.5) if problem.prior is None else problem.prior
    return _result(problem, scores, np.zeros(n, dtype=bool), sizes, False, (message,))


def _result(
    problem: _Problem,
    scores: FloatArray,
    certain: BoolArray,
    sizes: tuple[int, int] | None,
    verified: bool,
    messages: tuple[str, ...],
) -> Reconstruction:
    """Wrap what was found."""
    return Reconstruction(
        scores=scores,
        determined=certain,
        answers=problem.answers,
        n_queries=problem.answers.size,
        group_sizes=sizes,
        verified=verified,
        queries=problem.H,
        messages=messages,
    )
