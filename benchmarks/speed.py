"""Time of one answer and of a joint release, as ratios to peers in the same run."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sklearn_fairleak import FairnessAuditor
from sklearn_fairleak.metrics import statistical_parity_difference


def main(quick: bool = False) -> list[dict[str, Any]]:
    """Compare one answer with a bare NumPy mean and with fairlearn, and a batch with its product."""
    return [*_one_answer(10**5 if quick else 10**6), *_many_answers(100 if quick else 1000, 10**5)]


def _one_answer(n: int) -> list[dict[str, Any]]:
    """Time exact and private answers about labels of n people."""
    from fairlearn.metrics import demographic_parity_difference

    rng = np.random.default_rng(0)
    y_pred, y_true = rng.integers(0, 2, n), rng.integers(0, 2, n)
    race = rng.integers(0, 2, n)
    auditor = FairnessAuditor(race, epsilon=1.0)
    scorer = auditor.scorer("statistical_parity", n_queries=10_000, mechanism="noisy_sums")
    fresh = iter(rng.integers(0, 2, (60, n)))
    bare = best(lambda: y_pred[race == 1].mean() - y_pred[race == 0].mean())
    peer = best(lambda: demographic_parity_difference(y_true, y_pred, sensitive_features=race), 3)
    timed = {
        "exact answer": best(lambda: statistical_parity_difference(None, y_pred, sensitive_features=race)),
        "private answer": best(lambda: scorer.answer(next(fresh)), 20),
    }
    return [
        {
            "what": f"{name}, n = {n}",
            "seconds": round(seconds, 5),
            "times a bare two-group mean": round(seconds / bare, 2),
            "wanted at most": 5,
            "fairlearn takes times as long": round(peer / seconds, 1),
            "wanted at least": 10,
        }
        for name, seconds in timed.items()
    ]


def _many_answers(m: int, n: int) -> list[dict[str, Any]]:
    """Time a joint release about m models beside the bare product with the group indicator."""
    rng = np.random.default_rng(0)
    H = rng.random((m, n))
    race = (rng.random(n) < 0.1).astype(float)
    groups = np.stack([race, 1 - race], axis=1)
    bare = best(lambda: H @ groups, 9)
    rows = []
    for mechanism in ("auto", "randomized_response", "noisy_sums"):
        times = []
        for _ in range(7):
            # Threads of BLAS keep a core busy for a while after a product; nobody else's call starts there.
            time.sleep(0.3)
            scorer = FairnessAuditor(race.astype(int), epsilon=1.0).scorer(mechanism=mechanism)
            start = time.perf_counter()
            scorer.answer_many(H)
            times.append(time.perf_counter() - start)
        rows.append(
            {
                "what": f"answer_many by {mechanism}, m = {m}, n = {n}",
                "seconds": round(min(times), 4),
                "times the bare product": round(min(times) / bare, 2),
                "wanted at most": 3,
                "peak memory so far, GB": round(
                    resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2
                ),
            }
        )
    return rows


def best(call: Callable[[], Any], repeats: int = 7) -> float:
    """Return the least time of several calls, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
