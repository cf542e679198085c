"""Who is exposed by answers that have already been given?

An auditor's view of the attack: a log of submitted predictions and answers comes in, one row per
individual goes out, saying whether the answers determine the group, constrain it, or do not touch it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .certainty import confirm
from .decoders import gap_scale, rounding_tolerance
from .likelihood import decode_noisy
from .noise_laws import NoiseLaw
from .reconstruction import Reconstruction
from .recovery import decode_exact

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["exposure", "membership_bounds"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

#: Linear programs bound memberships for up to so many individuals, with known and unknown group sizes.
_BOUNDED, _BOUNDED_UNSIZED = 120, 30
#: Lattice reduction takes a few seconds for up to so many individuals, with known and unknown group sizes.
_REDUCED, _REDUCED_UNSIZED = 120, 40
#: Decoded prefixes of the log, at most, in search of the answer that determined somebody.
_PREFIXES = 60


@dataclass(eq=False)
class _Findings:
    """Collect what is known of each individual, over the evaluation sets of a log."""

    lower: FloatArray
    upper: FloatArray
    posterior: FloatArray
    certain: BoolArray
    touches: IntArray
    answer: IntArray
    messages: list[str]
    oriented: bool = True


def exposure(
    queries: Any,
    answers: Any,
    *,
    ulp: float | None = None,
    decimals: int | None = None,
    group_sizes: tuple[int, int] | None = None,
    signed: bool | None = None,
    noise_law: NoiseLaw | None = None,
    prior: npt.ArrayLike | None = None,
    progress: Callable[[float], Any] | None = None,
) -> pd.DataFrame:
    """Say for each individual what a log of answers gives away.

    Parameters
    ----------
    queries : array-like or DataFrame of shape (n_answers, n_individuals)
        Predictions that were submitted. NaN where an individual was not in the evaluation set of
        the answer. A DataFrame's columns name the individuals, its index the answers.
    answers : array-like of shape (n_answers,)
        Statistical parity gaps that were answered.
    ulp : float, default=None
        Largest error of an answer from floating point; by default that of careful double
        precision sums.
    decimals : int, default=None
        Decimals to which answers were rounded.
    group_sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Group sizes, where an attacker would know them.
    signed : bool, default=None
        Whether answers carry the sign of the gap. None: if any of them is negative.
    noise_law : NoiseLaw, default=None
        Law of the noise of defended answers; answers are exact by default.
    prior : array-like of shape (n_individuals,), default=None
        What an attacker may know beforehand: probabilities of being advantaged.
    progress : callable, default=None
        Called with the share of the work that is done.

    Returns
    -------
    DataFrame of shape (n_individuals, 6)
        Columns ``status`` (``"determined"``, ``"constrained"`` or ``"untouched"``), ``lower`` and
        ``upper`` (bounds on membership of the advantaged group), ``posterior`` (its probability),
        ``n_answers`` (that depend on the individual) and ``determined_by`` (the answer, in order of
        the log, after which the group was certain). ``attrs`` holds ``messages`` and
        ``orientation_known``.

    Raises
    ------
    ValueError
        If shapes do not match, answers are not finite, or a query holds infinite values.

    Examples
    --------
    Accepting the first of four people alone gives that person away, and nobody else.

    >>> import numpy as np
    >>> from sklearn_fairleak.attack import exposure
    >>> report = exposure(np.array([[1.0, 0.0, 0.0, 0.0]]), [-0.5])
    >>> report["status"].tolist()
    ['determined', 'constrained', 'constrained', 'constrained']
    >>> report["posterior"].round(2).tolist()
    [0.0, 0.67, 0.67, 0.67]
    """
    import pandas as pd

    H, names, labels = _log(queries)
    y = np.asarray(answers, dtype=np.float64)
    m, n = H.shape
    if y.shape != (m,):
        raise ValueError(
            f"There must be one answer per query: got {m} queries and answers of shape {y.shape}."
        )
    if not np.isfinite(y).all():
        raise ValueError("answers hold NaN or infinite values; leave out answers that were not given.")
    chance = None if prior is None else np.asarray(prior, dtype=np.float64)
    if chance is not None and (chance.shape != (n,) or not np.all((chance >= 0) & (chance <= 1))):
        raise ValueError(f"prior must hold one probability in [0, 1] per individual ({n}).")
    start = np.full(n, 0.5) if chance is None else chance
    found = _Findings(
        np.zeros(n), np.ones(n), start.copy(), np.zeros(n, bool), np.zeros(n, np.int64), np.full(n, -1), []
    )
    patterns, which = np.unique(np.isnan(H), axis=0, return_inverse=True)
    which = which.ravel()
    if len(patterns) > 1 and group_sizes is not None:
        raise ValueError("group_sizes hold for one evaluation set, but the queries are about several.")
    for number, absent in enumerate(patterns):
        people, rows = np.flatnonzero(~absent), np.flatnonzero(which == number)
        if people.size < 2:
            continue
        settings = {
            "ulp": ulp,
            "decimals": decimals,
            "sizes": group_sizes,
            "signed": bool((y < 0).any() or not y.any()) if signed is None else signed,
            "law": noise_law,
        }
        part = None if chance is None else chance[people]
        _examine(found, H[np.ix_(rows, people)], y[rows], people, rows, part, settings)
        if progress is not None:
            progress((number + 1) / len(patterns))
    found.posterior[found.certain] = found.lower[found.certain]
    status = np.where(found.certain, "determined", np.where(found.touches > 0, "constrained", "untouched"))
    by = pd.Series([labels[k] if k >= 0 else None for k in found.answer], index=names, dtype=object)
    report = pd.DataFrame(
        {
            "status": status,
            "lower": found.lower,
            "upper": found.upper,
            "posterior": found.posterior,
            "n_answers": found.touches,
            "determined_by": by,
        },
        index=names,
    )
    report.attrs["messages"] = tuple(dict.fromkeys(found.messages))
    report.attrs["orientation_known"] = found.oriented
    return report


def _log(queries: Any) -> tuple[FloatArray, Any, list[Any]]:
    """Return the matrix of a log, the names of the individuals, and the labels of the answers."""
    import pandas as pd

    if isinstance(queries, pd.DataFrame):
        H = queries.to_numpy(dtype=np.float64, na_value=np.nan)
        names: Any = queries.columns
        labels = queries.index.tolist()
    else:
        H = np.asarray(queries, dtype=np.float64)
        if H.ndim != 2:
            raise ValueError(f"queries must be a matrix (n_answers, n_individuals), got {H.ndim} dimensions.")
        names, labels = pd.RangeIndex(H.shape[1]), list(range(H.shape[0]))
    if H.shape[1] < 2 or H.shape[0] < 1:
        raise ValueError(f"A log needs at least 1 query and 2 individuals, got shape {H.shape}.")
    if np.isinf(H).any():
        raise ValueError("queries hold infinite values.")
    return H, names, labels


def _examine(
    found: _Findings,
    H: FloatArray,
    answers: FloatArray,
    people: IntArray,
    rows: IntArray,
    prior: FloatArray | None,
    settings: dict[str, Any],
) -> None:
    """Add what the answers about one evaluation set tell."""
    centred = H - H.mean(axis=1, keepdims=True)
    touches = np.abs(centred) > 1e-12 * np.maximum(np.abs(H).max(axis=1, keepdims=True), 1e-300)
    found.touches[people] += touches.sum(axis=0)
    law: NoiseLaw | None = settings["law"]
    if law is not None:
        result = decode_noisy(H, answers, law, sizes=settings["sizes"], prior=prior)
        fresh = ~found.certain[people]
        found.posterior[people[fresh]] = result.scores[fresh]
        found.messages.extend(result.messages)
        return

    def decode(
        k: int, thorough: bool = True, sizes: tuple[int, int] | None = settings["sizes"]
    ) -> Reconstruction:
        return decode_exact(
            H[:k],
            answers[:k],
            sizes=sizes,
            patient=True,
            signed=settings["signed"],
            decimals=settings["decimals"],
            prior=prior,
            thorough=thorough,
            tolerance=settings["ulp"],
        )

    result = decode(len(rows))
    if (
        not result.verified
        and settings["signed"]
        and settings["decimals"] is None
        and settings["ulp"] is None
    ):
        result = _by_lattice(H, answers, settings["sizes"], prior) or result
    found.messages.extend(result.messages)
    found.oriented &= result.orientation_known
    certain = result.determined & touches.any(axis=0)
    lower = np.where(certain, result.scores, 0.0)
    upper = np.where(certain, result.scores, 1.0)
    contradicted = any("contradict" in message for message in result.messages)
    if not certain.all() and settings["signed"] and not contradicted:
        limits = membership_bounds(
            H,
            answers,
            sizes=result.group_sizes if settings["sizes"] is None else settings["sizes"],
            tolerance=_tolerance(H, settings),
            only=np.flatnonzero(~certain & touches.any(axis=0)),
        )
        lower, upper = np.maximum(lower, limits[0]), np.minimum(upper, limits[1])
        settled = (lower == upper) & ~certain & touches.any(axis=0)
        certain |= settled
    when = _moments(decode, certain, len(rows), result.group_sizes)
    news = certain & ~found.certain[people]
    found.answer[people[news]] = rows[when[news]]
    found.lower[people] = np.maximum(found.lower[people], lower)
    found.upper[people] = np.minimum(found.upper[people], upper)
    open_ = ~found.certain[people] & touches.any(axis=0)
    found.posterior[people[open_]] = np.clip(result.scores, lower, upper)[open_]
    found.certain[people] |= certain


def _by_lattice(
    H: FloatArray, answers: FloatArray, sizes: tuple[int, int] | None, prior: FloatArray | None
) -> Reconstruction | None:
    """Read honest models' answers by lattice reduction, where that is installed and takes seconds."""
    if H.shape[1] > (_REDUCED_UNSIZED if sizes is None else _REDUCED) or not np.ptp(H, axis=1).any():
        return None
    from .passive import decode

    try:
        found = decode(H, answers, group_sizes=sizes)
    except ImportError:
        return None
    return confirm(found, H, prior) if found.verified else None


def _tolerance(H: FloatArray, settings: dict[str, Any]) -> float:
    """Return the largest error of an answer."""
    if settings["ulp"] is None:
        return rounding_tolerance(H, settings["decimals"])
    rounding = 0.0 if settings["decimals"] is None else 0.5 * 10.0 ** -settings["decimals"]
    return float(settings["ulp"]) + rounding


def _moments(
    decode: Callable[..., Reconstruction], certain: BoolArray, m: int, sizes: tuple[int, int] | None
) -> IntArray:
    """Find for each determined individual the first answer after which that was so, by bisection.

    More answers never determine less, so that the prefixes of the log can be bisected. Group sizes
    that the whole log tells are taken as known; individuals that only the thorough search over the whole
    log settles are put down to its last answer.
    """
    moment = np.full(certain.size, m - 1)
    known = {0: np.zeros(certain.size, dtype=bool), m: certain}
    pending = [(0, m)]
    while pending and len(known) < _PREFIXES:
        low, high = pending.pop(0)
        if high - low <= 1 or np.array_equal(known[low], known[high]):
            continue
        middle = (low + high) // 2
        known[middle] = decode(middle, thorough=False, sizes=sizes).determined & certain | known[low]
        pending += [(low, middle), (middle, high)]
    for k in sorted(known, reverse=True)[:-1]:
        moment[known[k]] = k - 1
    return moment


def membership_bounds(
    H: FloatArray,
    answers: FloatArray,
    *,
    sizes: tuple[int, int] | None,
    tolerance: float,
    only: IntArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Bound each individual's membership by linear programs over all memberships that fit the answers.

    Memberships are relaxed to [0, 1]: a bound above 0 or below 1 settles a binary attribute, so
    bounds are rounded to it. Problems that would take too long keep the bounds 0 and 1.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions.
    answers : ndarray of shape (n_queries,)
        Signed gaps.
    sizes : tuple of (n_disadvantaged, n_advantaged) or None
        Group sizes; without them bounds hold over all sizes.
    tolerance : float
        Largest error of an answer.
    only : ndarray of int, default=None
        Positions of the individuals to bound; everyone by default.

    Returns
    -------
    lower, upper : ndarray of shape (n_individuals,)
    """
    n = H.shape[1]
    lower, upper = np.zeros(n), np.ones(n)
    wanted = np.arange(n) if only is None else only
    if n > (_BOUNDED_UNSIZED if sizes is None else _BOUNDED):
        return lower, upper
    options = [(n - k, k) for k in range(1, n)] if sizes is None else [sizes]
    lows, highs = [], []
    for pair in options:
        limits = _bounds_for_sizes(H, answers, pair, tolerance, wanted)
        if limits is not None:
            lows.append(limits[0])
            highs.append(limits[1])
    if lows:
        lower[wanted], upper[wanted] = np.min(lows, axis=0), np.max(highs, axis=0)
    return lower, upper


def _bounds_for_sizes(
    H: FloatArray, answers: FloatArray, sizes: tuple[int, int], tolerance: float, wanted: IntArray
) -> tuple[FloatArray, FloatArray] | None:
    """Bounds on binary memberships for given group sizes; None where the answers exclude them."""
    from scipy.optimize import linprog

    n = H.shape[1]
    c = float(gap_scale(*sizes))
    rows = c * (H - H.mean(axis=1, keepdims=True))
    norms = np.abs(rows).max(axis=1)
    used = norms > 1e-12
    if np.any(np.abs(answers[~used]) > tolerance + 1e-9):
        return None
    A = rows[used] / norms[used, None]
    slack = np.maximum(tolerance / norms[used], 1e-9)
    b = answers[used] / norms[used]
    fixed: dict[str, Any] = {
        "A_ub": np.vstack([A, -A]) if used.any() else None,
        "b_ub": np.concatenate([b + slack, slack - b]) if used.any() else None,
        "A_eq": np.ones((1, n)),
        "b_eq": [float(sizes[1])],
        "bounds": (0, 1),
        "method": "highs",
    }
    lower, upper = np.zeros(wanted.size), np.ones(wanted.size)
    if linprog(np.zeros(n), **fixed).x is None:
        return None
    for k, j in enumerate(wanted):
        for sign, side in ((1.0, lower), (-1.0, upper)):
            cost = np.zeros(n)
            cost[j] = sign
            result = linprog(cost, **fixed)
            if result.x is not None:
                side[k] = result.x[j]
    # Membership is binary: what is bounded away from 0 is 1. If that leaves nothing, no assignment fits.
    lower, upper = np.where(lower > 1e-4, 1.0, 0.0), np.where(upper < 1.0 - 1e-4, 0.0, 1.0)
    if np.any(lower > upper):
        return None
    bounds = np.tile([0.0, 1.0], (n, 1))
    bounds[wanted] = np.column_stack([lower, upper])
    fixed["bounds"] = bounds
    return None if linprog(np.zeros(n), **fixed).x is None else (lower, upper)
