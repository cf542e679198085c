"""The paper's Table 1 at n = 100 on Adult and German Credit: every mechanism, the paper's decoder and ours."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import joblib
import numpy as np
from scipy import stats

from benchmarks.attack_reproduction import (
    MECHANISMS,
    SHARE,
    _informed,
    _kept,
    _marks,
    _release,
    adult_sample,
)
from sklearn_fairleak.attack import NoiseLaw
from sklearn_fairleak.attack.decoders import predict_gaps, solve_l1
from sklearn_fairleak.attack.designs import default_estimator, perturbed_models
from sklearn_fairleak.datasets import load_german_credit

N, ANSWERS, RUNS = 100, (25, 40), 5
#: Leakage that the paper prints for exact answers, by data and number of answers; None where unknown to us.
PRINTED = {("adult", 25): 0.63, ("adult", 40): 1.0}
EPSILONS = (1.0, 5.0)


def main(quick: bool = False) -> list[dict[str, Any]]:
    """Compare decoders on exact answers and on those of each mechanism."""
    runs = 2 if quick else RUNS
    cell = _cell if quick else _kept(_cell)
    grid = [
        (data, mechanism, m, epsilon, runs)
        for data in ("adult", "german credit")
        for mechanism in ("exact", *MECHANISMS, "auto")
        for m in ((25,) if quick else ANSWERS)
        for epsilon in ((None,) if mechanism == "exact" else (5.0,) if quick else EPSILONS)
    ]
    # The back-end is the caller's: joblib.parallel_config chooses Dask, Ray or processes.
    return list(joblib.Parallel()(joblib.delayed(cell)(*case) for case in grid))


def _cell(data: str, mechanism: str, m: int, epsilon: float | None, runs: int) -> dict[str, Any]:
    """Average the leakage and error of one cell over fresh samples and designs."""
    draw = partial(adult_sample, N, SHARE) if data == "adult" else _german_sample
    paper, ours, errors = [], [], []
    for seed in range(runs):
        base, _, a, rng = draw(seed)
        sizes = (int((a == 0).sum()), int(a.sum()))
        H = perturbed_models(base, m, 0.1, rng)
        exact = predict_gaps(H, a)
        answers = exact if epsilon is None else _release(mechanism, H, a, epsilon)
        paper.append(_marks(a, solve_l1(H, answers, sizes, time_limit=60.0))[0])
        law = None
        if mechanism == "randomized_response" and epsilon is not None:
            law = NoiseLaw("randomized_response", epsilon)
        ours.append(_informed(H, answers, law, sizes, a)[0])
        errors.append(float(np.median(np.abs(answers - exact))))
    return {
        "data": data,
        "mechanism": mechanism,
        "n": N,
        "answers": m,
        "epsilon in all": epsilon,
        "runs": runs,
        "leakage printed in the paper": PRINTED.get((data, m)) if mechanism == "exact" else None,
        "paper's program": round(float(np.mean(paper)), 3),
        "ours": round(float(np.mean(ours)), 3),
        "standard error of ours": round(float(stats.sem(ours)), 3),
        "median error": round(float(np.median(errors)), 4),
    }


def _german_sample(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
    """Draw individuals of German Credit; the base model is fitted to those not drawn."""
    credit = load_german_credit()
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(credit.data))
    drawn, rest = chosen[:N], chosen[N:]
    y = np.asarray(credit.target)
    model = default_estimator(credit.data).fit(credit.data.iloc[rest], y[rest])
    a = (np.asarray(credit.sensitive_features)[drawn] == "male").astype(int)
    return model.predict_proba(credit.data.iloc[drawn])[:, 1], y[drawn].astype(float), a, rng


if __name__ == "__main__":
    from benchmarks.__main__ import main as run

    sys.exit(run(["paper", *sys.argv[1:]]))
