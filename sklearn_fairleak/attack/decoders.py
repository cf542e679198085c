"""Solvers that turn exact answers into group membership: linear, l1, box and AMP.

All of them see the same linear system. With ``a`` in {0, 1} saying who is advantaged,
``N1 = sum(a)``, ``N0 = n - N1`` and ``c = 1/N1 + 1/N0``, the gap of a submitted row ``h`` is

    mean(h | a = 1) - mean(h | a = 0) = c * (h - mean(h)) @ a,

so answers divided by ``c`` are the row-centred queries times ``a``. The solvers differ in what
they know about ``a``: nothing (`solve_linear`), that few are disadvantaged (`solve_l1`, the
paper's program), that it lies in a box with a known sum (`solve_box`), or that it is binary
(`solve_amp`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "LinearSolution",
    "gap_coefficients",
    "gap_scale",
    "largest_entries",
    "predict_gaps",
    "rounding_tolerance",
    "solve_amp",
    "solve_box",
    "solve_l1",
    "solve_linear",
]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

#: Row-space leverage above which a single coefficient counts as fixed by the equations.
_REACHED = 1.0 - 1e-7


def gap_scale(n_disadvantaged: Any, n_advantaged: Any) -> Any:
    """Return ``1/N0 + 1/N1``, what one unit of centred membership adds to an answer."""
    return 1.0 / np.asarray(n_disadvantaged) + 1.0 / np.asarray(n_advantaged)


def gap_coefficients(attributes: npt.ArrayLike) -> FloatArray:
    """Return what each individual adds to an answer per unit of prediction: 1/N1 or -1/N0."""
    a = np.asarray(attributes, dtype=np.float64)
    n_advantaged = a.sum()
    n_disadvantaged = a.size - n_advantaged
    return a / max(n_advantaged, 1.0) - (1.0 - a) / max(n_disadvantaged, 1.0)


def predict_gaps(H: FloatArray, attributes: npt.ArrayLike) -> FloatArray:
    """Compute the exact gap of each row, as an oracle would: the difference of two group means."""
    a = np.asarray(attributes, dtype=bool)
    return np.asarray(H[:, a].mean(axis=1) - H[:, ~a].mean(axis=1), dtype=np.float64)


def rounding_tolerance(H: FloatArray, decimals: int | None = None) -> float:
    """Bound how far a right reconstruction's prediction may be from the answer.

    Pairwise and naive summation both stay within a few ``sqrt(n)`` units in the last place;
    answers rounded to `decimals` add half a unit of that.
    """
    scale = max(1.0, float(np.abs(H).max(initial=0.0)))
    ulps = 4.0 * np.finfo(np.float64).eps * (8.0 + np.sqrt(H.shape[1])) * scale
    return float(ulps + (0.0 if decimals is None else 0.5 * 10.0**-decimals))


def largest_entries(x: FloatArray, k: int) -> BoolArray:
    """Mark the `k` largest entries: the binary vector of known sum nearest to `x`."""
    marked = np.zeros(x.size, dtype=bool)
    if k > 0:
        marked[np.argpartition(-x, min(k, x.size) - 1)[:k]] = True
    return marked


@dataclass(frozen=True)
class LinearSolution:
    """Hold the least-squares coefficients and which of them the equations fix.

    Parameters
    ----------
    coefficients : ndarray of shape (n_individuals,)
        1/N1 for the advantaged, -1/N0 for the disadvantaged, where reached.
    reached : ndarray of bool of shape (n_individuals,)
        Whether the coefficient follows from the equations alone.
    rank : int
        Rank of the system, the row of ones included.
    """

    coefficients: FloatArray
    reached: BoolArray
    rank: int


def solve_linear(H: FloatArray, answers: FloatArray) -> LinearSolution:
    """Solve ``answers = H @ v`` for what each individual adds (the paper's Algorithm 1).

    Every model that treats all alike has gap 0, so a row of ones with answer 0 comes free: rank
    ``n - 1`` of the submitted rows is enough.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    answers : ndarray of shape (n_queries,)
        Signed gaps.

    Returns
    -------
    LinearSolution

    References
    ----------
    Theorem 3, Algorithm 1 and Remark 3 of Hamman, Chen & Dutta (2023), arXiv 2211.02139.
    """
    from scipy import linalg

    n = H.shape[1]
    # Models that differ in one individual by a millionth still tell: what they share is taken out and
    # each difference brought to length one before ranks are judged.
    rows = np.vstack([np.ones((1, n)), H[:1], H[1:] - H[:1]])
    targets = np.concatenate([[0.0], answers[:1], answers[1:] - answers[:1]])
    norms = np.linalg.norm(rows, axis=1)
    kept = norms > 1e-12 * norms.max()
    rows, targets = rows[kept] / norms[kept, None], targets[kept] / norms[kept]
    if rows.shape[0] >= n:
        q, r, order = linalg.qr(rows, mode="economic", pivoting=True)
        if _rank(r) == n:
            v = np.empty(n)
            v[order] = linalg.solve_triangular(r, q.T @ targets)
            return LinearSolution(v, np.ones(n, dtype=bool), n)
    q, r, order = linalg.qr(rows.T, mode="economic", pivoting=True)
    rank = _rank(r)
    basis = q[:, :rank]
    v = basis @ linalg.solve_triangular(r[:rank, :rank], targets[order[:rank]], trans="T")
    return LinearSolution(v, np.einsum("ij,ij->i", basis, basis) > _REACHED, rank)


def _rank(r: FloatArray) -> int:
    """Rank of a matrix from the pivoted triangular factor."""
    diagonal = np.abs(np.diagonal(r))
    return int(np.count_nonzero(diagonal > diagonal[0] * max(r.shape) * 1e-13))


def solve_l1(
    H: FloatArray,
    answers: FloatArray,
    sizes: tuple[int, int],
    *,
    box: bool = False,
    method: str = "highs",
    time_limit: float | None = None,
) -> FloatArray:
    """Solve the paper's sparse recovery program (Algorithm 2) with HiGHS.

    ``min ||s||_1`` subject to ``H s = sum(h)/N1 - SP``, where ``s`` is ``1/N1 + 1/N0`` for the
    disadvantaged and 0 for the advantaged. The program is the paper's, to the letter: ``s`` is free.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    answers : ndarray of shape (n_queries,)
        Signed gaps.
    sizes : tuple of (n_disadvantaged, n_advantaged)
        Group sizes.
    box : bool, default=False
        Add what the paper leaves out: ``0 <= s <= 1/N1 + 1/N0`` and the known sum.
    method : str, default="highs"
        Solver of :func:`scipy.optimize.linprog`.
    time_limit : float, default=None
        Seconds after which the solver gives up.

    Returns
    -------
    ndarray of shape (n_individuals,)
        Relaxed membership: 1 for the advantaged, 0 for the disadvantaged. May leave [0, 1]
        where `box` is False. All 1/2 where the program has no solution.

    References
    ----------
    Theorem 5 and Algorithm 2 of Hamman, Chen & Dutta (2023), arXiv 2211.02139.
    """
    from scipy.optimize import linprog

    n = H.shape[1]
    n_disadvantaged, n_advantaged = sizes
    c = float(gap_scale(*sizes))
    eta = H.sum(axis=1) / n_advantaged - answers
    program: dict[str, Any] = {"method": method}
    if time_limit is not None:
        program["options"] = {"time_limit": time_limit}
    A = H * c
    if box:
        program |= {
            "A_eq": np.vstack([A, np.ones((1, n))]),
            "b_eq": np.append(eta, float(n_disadvantaged)),
            "bounds": (0, 1),
        }
        sparse = linprog(np.ones(n), **program).x
    else:
        program |= {"A_eq": np.hstack([A, -A]), "b_eq": eta, "bounds": (0, None)}
        halves = linprog(np.ones(2 * n), **program).x
        sparse = None if halves is None else halves[:n] - halves[n:]
    if sparse is None:
        return np.full(n, 0.5)
    return np.asarray(1.0 - sparse, dtype=np.float64)


def solve_box(
    H: FloatArray,
    answers: FloatArray,
    sizes: tuple[int, int],
    *,
    tolerance: float,
    max_iter: int = 3000,
    check_every: int = 10,
    relaxation: float = 1.6,
) -> FloatArray:
    """Find membership in [0, 1] of known sum that satisfies all answers, by Douglas-Rachford splitting.

    Alternates between the affine set of the answers (one Cholesky factor of the row-centred Gram
    matrix) and the box, and stops as soon as the vector rounded to the known sum satisfies every
    answer.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    answers : ndarray of shape (n_queries,)
        Signed gaps.
    sizes : tuple of (n_disadvantaged, n_advantaged)
        Group sizes.
    tolerance : float
        Largest error of an answer, in units of the answer.
    max_iter : int, default=3000
        Iterations before the relaxed vector is returned as it is.
    check_every : int, default=10
        Iterations between two checks of the rounded vector.
    relaxation : float, default=1.6
        Over-relaxation in (0, 2).

    Returns
    -------
    ndarray of shape (n_individuals,)
        Membership of the advantaged group; binary where the answers were satisfied.

    References
    ----------
    J. Eckstein & D. P. Bertsekas, "On the Douglas-Rachford splitting method and the proximal point
    algorithm for maximal monotone operators", Mathematical Programming 55 (1992).
    """
    from scipy.linalg import cho_factor, cho_solve

    m, n = H.shape
    k = sizes[1]
    c = float(gap_scale(*sizes))
    start = np.full(n, k / n)
    centred = H - H.mean(axis=1, keepdims=True)
    spread = float(centred.std())
    if spread == 0.0:
        return start
    targets = answers / c
    # The rows share the base model. Its direction, kept among the others, would make the Gram matrix
    # ill-conditioned, so it becomes one row of its own and the others their difference from it.
    mean_row, mean_target = centred.mean(axis=0), float(targets.mean())
    norm = float(np.linalg.norm(mean_row))
    rows = [centred[:-1] - mean_row, np.ones((1, n))]
    goals = [targets[:-1] - mean_target, np.array([float(k)])]
    typical = max(float(np.sqrt(np.mean(np.square(rows[0])) if m > 1 else 0.0)), 1e-300)
    rows[0] /= typical
    goals[0] = goals[0] / typical
    if norm > 1e-12 * spread:
        rows.append(mean_row[None, :] * (np.sqrt(n) / norm))
        goals.append(np.array([mean_target * np.sqrt(n) / norm]))
    A, b = np.vstack(rows), np.concatenate(goals)
    gram = A @ A.T
    gram[np.diag_indices_from(gram)] += 1e-9 * np.trace(gram) / gram.shape[0]
    factor = cho_factor(gram, overwrite_a=True, check_finite=False)
    v = start
    x = start
    for step in range(1, max_iter + 1):
        x = v - A.T @ cho_solve(factor, A @ v - b, check_finite=False)
        v = v + relaxation * (np.clip(2.0 * x - v, 0.0, 1.0) - x)
        if step % check_every == 0:
            rounded = largest_entries(x, k)
            if c * np.abs(centred @ rounded - targets).max() <= 4.0 * tolerance:
                return rounded.astype(np.float64)
    return np.clip(x, 0.0, 1.0)


def solve_amp(
    H: FloatArray,
    answers: FloatArray,
    n_advantaged: npt.ArrayLike,
    *,
    tolerance: float,
    scales: npt.ArrayLike | None = None,
    prior: FloatArray | None = None,
    damping: float = 0.0,
    max_iter: int = 200,
) -> tuple[FloatArray, int | None]:
    """Estimate binary membership by approximate message passing, for several candidate sizes at once.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    answers : ndarray of shape (n_queries,)
        Signed gaps.
    n_advantaged : int or array-like of shape (n_candidates,)
        Candidate sizes of the advantaged group.
    tolerance : float
        Largest error of an answer, in units of the answer.
    scales : array-like of shape (n_candidates,), default=None
        What one unit of centred membership adds to an answer, ``1/N1 + 1/N0`` by default.
    prior : ndarray of shape (n_individuals,) or (n_individuals, n_candidates), default=None
        Prior probability of being advantaged; the candidate's share of the individuals by default.
    damping : float, default=0.0
        Share of the last iterate that is kept, in [0, 1).
    max_iter : int, default=200
        Iterations before giving up.

    Returns
    -------
    x : ndarray of shape (n_individuals, n_candidates)
        Posterior probability of being advantaged.
    solved : int or None
        The candidate whose vector, rounded to the known sum, satisfies every answer.

    References
    ----------
    D. L. Donoho, A. Maleki & A. Montanari, "Message-passing algorithms for compressed sensing",
    PNAS 106 (2009).
    """
    from scipy.special import expit, logit

    m, n = H.shape
    sizes = np.atleast_1d(np.asarray(n_advantaged, dtype=np.int64))
    c = gap_scale(n - sizes, sizes) if scales is None else np.atleast_1d(np.asarray(scales, dtype=np.float64))
    targets = answers[:, None] / c
    centred = H - H.mean(axis=1, keepdims=True)
    # Without the common base model the entries look independent, which message passing relies on.
    differenced = centred - centred.mean(axis=0) if m > 1 else centred
    goals = targets - targets.mean(axis=0) if m > 1 else targets
    spread = float(np.sqrt(np.mean(np.square(differenced))))
    share = np.broadcast_to(sizes / n, (n, sizes.size))
    if spread <= 1e-14 * max(1.0, float(np.abs(H).max(initial=0.0))):
        return np.array(share), None
    differenced = differenced / spread
    goals = goals / spread
    power = np.einsum("ij,ij->j", differenced, differenced)[:, None]
    chance = share if prior is None else np.broadcast_to(prior.reshape(n, -1), share.shape)
    chance = np.clip(chance, 1e-6, 1.0 - 1e-6)
    log_odds = _with_sum(logit(chance), sizes) if prior is not None else logit(chance)
    x = expit(log_odds)
    residual = np.zeros((m, sizes.size))
    variance = x * (1.0 - x)
    for step in range(1, max_iter + 1):
        tau = np.maximum((power * variance).sum(axis=0) / m, 1e-12)
        fresh = goals - differenced @ x + (tau * residual)
        fresh /= tau
        residual = fresh if step == 1 else (1.0 - damping) * fresh + damping * residual
        width = tau / np.maximum(power, 1e-300)
        pull = x + width * (differenced.T @ residual)
        posterior = log_odds + (pull - 0.5) / width
        fresh_x = expit(_with_sum(np.clip(posterior, -40.0, 40.0), sizes) if step > 1 else posterior)
        x = fresh_x if step == 1 else (1.0 - damping) * fresh_x + damping * x
        variance = np.maximum(x * (1.0 - x), 1e-12)
        if not np.isfinite(x).all():
            return np.array(share), None
        if step % 2 == 0:
            rounded = np.column_stack([largest_entries(x[:, k], int(sizes[k])) for k in range(sizes.size)])
            error = c * np.abs(centred @ rounded - targets).max(axis=0)
            if error.min() <= 4.0 * tolerance:
                return x, int(error.argmin())
    return x, None


def _with_sum(log_odds: FloatArray, sizes: npt.NDArray[np.int64]) -> FloatArray:
    """Nudge the log odds of each candidate towards the known sum of membership, by damped Newton steps."""
    from scipy.special import expit

    shifted = log_odds
    for _ in range(3):
        x = expit(shifted)
        step = (x.sum(axis=0) - sizes) / np.maximum((x * (1.0 - x)).sum(axis=0), 1e-9)
        shifted = shifted - np.where(np.abs(step) <= 1.0, 0.5 * step, 0.0)
    return np.asarray(shifted)
