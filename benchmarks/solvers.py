"""Decoders of perturbed models' exact answers, beside HiGHS, OMP and SPGL1 in the same run."""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.attack_reproduction import adult_sample
from sklearn_fairleak.attack.decoders import (
    gap_scale,
    largest_entries,
    predict_gaps,
    rounding_tolerance,
    solve_amp,
    solve_box,
    solve_l1,
)
from sklearn_fairleak.attack.recovery import decode_exact

#: (individuals, answers, share of the smaller group, runs); wanted at n = 1000: exact from m = 250, and at
#: m = 400 at least 30 times faster than HiGHS.
SETTINGS = [
    (1000, 250, 0.104, 5),
    (1000, 300, 0.104, 3),
    (1000, 400, 0.104, 5),
    (10_000, 2000, 0.05, 1),
    (10_000, 2500, 0.104, 1),
]
#: HiGHS, OMP and SPGL1 would take hours beyond so many numbers.
LARGEST_FOR_PEERS = 1_000_000

Solver = Callable[[np.ndarray, np.ndarray, tuple[int, int]], np.ndarray]


def main(quick: bool = False) -> list[dict[str, Any]]:
    """Time every solver on the same answers and count exact recoveries."""
    rows: list[dict[str, Any]] = []
    for n, m, share, runs in SETTINGS[: 3 if quick else None]:
        problems = [_problem(n, m, share, seed) for seed in range(1 if quick else runs)]
        measured = {}
        for name, solver in _solvers().items():
            if name.startswith("peer") and m * n > LARGEST_FOR_PEERS:
                continue
            measured[name] = _measure(solver, problems)
        highs = measured.get("peer: HiGHS, the paper's program", {}).get("seconds")
        for name, figures in measured.items():
            times = None if highs is None else round(highs / figures["seconds"], 1)
            rows.append({"n": n, "m": m, "share": share, "solver": name, **figures, "times HiGHS": times})
    return rows


def _problem(n: int, m: int, share: float, seed: int) -> tuple[Any, ...]:
    """Perturb a base model of Adult as the paper's Algorithm 2 does, and answer exactly."""
    base, _, a, rng = adult_sample(n, share, seed)
    H = np.clip(base + rng.uniform(-0.1, 0.1, (m, n)), 0.0, 1.0)
    return H, predict_gaps(H, a), (int((a == 0).sum()), int(a.sum())), a


def _measure(solver: Solver, problems: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Run a solver on all problems: median seconds, share of exact runs, mean leakage, peak memory."""
    seconds, exact, leakage = [], [], []
    for H, answers, sizes, a in problems:
        start = time.perf_counter()
        relaxed = solver(H, answers, sizes)
        seconds.append(time.perf_counter() - start)
        found = relaxed > 0.5
        exact.append(bool(np.all(found == (a == 1))))
        leakage.append(0.5 * (found[a == 1].mean() + (~found[a == 0]).mean()))
    # Linux counts kilobytes, macOS bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return {
        "seconds": round(float(np.median(seconds)), 4),
        "exact": float(np.mean(exact)),
        "leakage": round(float(np.mean(leakage)), 4),
        "process peak MB": round(peak),
    }


def _solvers() -> dict[str, Solver]:
    """Name every solver; peers first, so that their times are those of a warm process too."""

    def amp(H: np.ndarray, answers: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
        x, solved = solve_amp(H, answers, sizes[1], tolerance=rounding_tolerance(H))
        return x[:, 0] if solved is None else largest_entries(x[:, 0], sizes[1]).astype(float)

    return {
        "peer: HiGHS, the paper's program": solve_l1,
        "peer: HiGHS, with box and sum": lambda H, y, sizes: solve_l1(H, y, sizes, box=True),
        "peer: orthogonal matching pursuit": _omp,
        "peer: SPGL1, basis pursuit": _spgl1,
        "box, Douglas-Rachford": lambda H, y, s: solve_box(H, y, s, tolerance=rounding_tolerance(H)),
        "message passing": amp,
        "auto (restarts, verified)": lambda H, y, sizes: decode_exact(H, y, sizes=sizes).scores,
    }


def _centred(H: np.ndarray, answers: np.ndarray, sizes: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Give the peers the easier form of the problem too: no row mean, no common base model."""
    rows = H - H.mean(axis=1, keepdims=True)
    goals = -answers / float(gap_scale(*sizes))
    return rows - rows.mean(axis=0), goals - goals.mean()


def _omp(H: np.ndarray, answers: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
    """Let scikit-learn choose the disadvantaged one by one."""
    from sklearn.linear_model import OrthogonalMatchingPursuit

    rows, goals = _centred(H, answers, sizes)
    model = OrthogonalMatchingPursuit(n_nonzero_coefs=min(sizes[0], H.shape[0] - 1), fit_intercept=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return 1.0 - np.asarray(model.fit(rows, goals).coef_)


def _spgl1(H: np.ndarray, answers: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
    """Solve min ||x||_1 subject to the answers with SPGL1."""
    try:
        from spgl1 import spg_bp
    except ImportError:
        return np.full(H.shape[1], np.nan)
    rows, goals = _centred(H, answers, sizes)
    spread = rows.std()
    return 1.0 - np.asarray(spg_bp(rows / spread, goals / spread, iter_lim=3000, verbosity=0)[0])


if __name__ == "__main__":
    from benchmarks.__main__ import main as run

    sys.exit(run(["solvers", *sys.argv[1:]]))
