"""Exact attacks: queries to recover everyone on Adult, beside the paper's and the limits."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.attack_reproduction import adult_sample
from sklearn_fairleak.attack import Reconstruction, coin_weighing, passive, positional, rounded
from sklearn_fairleak.attack.designs import default_estimator
from sklearn_fairleak.datasets import load_adult

SHARE = 0.104
#: Queries of the paper's attacks with exact answers, by number of individuals.
PAPER = {100: 40, 1000: 400}
Oracle = Callable[[np.ndarray], float]


def main(quick: bool = False) -> list[dict[str, Any]]:
    """Count queries of every exact attack, then attack many data sets by two implementations of the gap."""
    rows = _queries(quick) + [_passive_row(60, 4, quick)]
    if not quick:
        rows.append(_passive_row(120, 8, quick))
    return rows + _robustness(quick)


def numpy_oracle(a: np.ndarray, absolute: bool = False, decimals: int | None = None) -> Oracle:
    """Answer with the gap as NumPy computes it."""
    first, second = np.flatnonzero(a == 1), np.flatnonzero(a == 0)

    def oracle(h: np.ndarray) -> float:
        gap = float(h[first].mean() - h[second].mean())
        gap = abs(gap) if absolute else gap
        return gap if decimals is None else round(gap, decimals)

    return oracle


def fairlearn_oracle(a: np.ndarray, absolute: bool = False) -> Oracle:
    """Answer with the gap as fairlearn computes it."""
    from fairlearn.metrics import MetricFrame, mean_prediction

    def oracle(h: np.ndarray) -> float:
        rates = MetricFrame(metrics=mean_prediction, y_true=h, y_pred=h, sensitive_features=a).by_group
        gap = float(rates[1]) - float(rates[0])
        return abs(gap) if absolute else gap

    return oracle


def _queries(quick: bool) -> list[dict[str, Any]]:
    """One row an attack and size."""
    rows = []
    for n, seeds in ((100, 10), (1000, 5), (10_000, 1), (100_000, 1)):
        if quick and n > 1000:
            continue
        attacks: list[tuple[str, Any, dict[str, Any]]] = [("positional", positional.run, {})]
        if n <= 10_000:
            attacks += [
                ("positional, stealth", positional.run, {"stealth": True}),
                ("positional, absolute gap", positional.run, {"signed": False}),
                ("coin weighing", coin_weighing.run, {}),
                ("coin weighing, accuracy within 1 %", coin_weighing.run, {"max_accuracy_loss": 0.01}),
            ]
        if n <= 1000:
            attacks += [
                ("positional, sparse", positional.run_sparse, {"random_state": 0}),
                ("coin weighing, absolute gap", coin_weighing.run, {"signed": False}),
                *[(f"rounded to {d} decimals", rounded.run, {"decimals": d}) for d in (2, 3, 4, 6)],
                *[
                    (f"rounded to {d} decimals, sizes known", rounded.run, {"decimals": d, "sizes": True})
                    for d in (2, 3, 4, 6)
                ],
                *[
                    (f"rounded to {d} decimals, within 0.1", rounded.run, {"decimals": d, "max_shift": 0.1})
                    for d in (4, 6)
                ],
            ]
        rows += [_row(name, attack, options, n, 2 if quick else seeds) for name, attack, options in attacks]
    return rows


def _row(name: str, attack: Any, options: dict[str, Any], n: int, seeds: int) -> dict[str, Any]:
    """Run one attack on several data sets."""
    found, right, seconds = [], [], []
    for seed in range(seeds):
        base, y, a, _ = adult_sample(n, SHARE, seed)
        settings = dict(options)
        if settings.pop("sizes", False):
            settings["group_sizes"] = (int((a == 0).sum()), int(a.sum()))
        absolute = settings.get("signed") is False
        oracle = numpy_oracle(a, absolute, settings.get("decimals"))
        start = time.perf_counter()
        result = attack(oracle, base, y=y, **settings)
        seconds.append(time.perf_counter() - start)
        found.append(result)
        right.append(_is_right(result, a, absolute))
    queries = [result.n_queries for result in found]
    return {
        "attack": name,
        "n": n,
        "paper": PAPER.get(n),
        "queries, mean": float(np.mean(queries)),
        "queries, most": max(queries),
        "data sets": seeds,
        "exact": sum(right),
        "largest shift": max(result.max_shift for result in found),
        "accuracy lost": max(result.accuracy_loss for result in found),
        "seconds": float(np.mean(seconds)),
    }


def _is_right(result: Reconstruction, a: np.ndarray, absolute: bool) -> bool:
    """Whether everyone is recovered, up to names where answers have no sign."""
    right = np.array_equal(result.attributes, a)
    return result.exact and (right or (absolute and np.array_equal(result.attributes, 1 - a)))


def _passive_row(n: int, m: int, quick: bool) -> dict[str, Any]:
    """Decode honest models: logistic regressions on resamples of the training data."""
    train, test = load_adult(subset="train"), load_adult(subset="test")
    white = (np.asarray(test.sensitive_features) == "White").astype(int)
    labels, few = np.asarray(train.target), max(1, round(SHARE * n))
    rng = np.random.default_rng(0)
    H = []
    for _ in range(m):
        rows = rng.integers(0, labels.size, 4000)
        model = default_estimator(train.data).fit(train.data.iloc[rows], labels[rows])
        H.append(model.predict_proba(test.data)[:, 1])
    models = np.array(H)
    right, seconds = [], []
    for seed in range(1 if quick else 3):
        rng = np.random.default_rng(seed)
        groups = [np.flatnonzero(white == 0), np.flatnonzero(white == 1)]
        people = [rng.choice(groups[0], few, replace=False), rng.choice(groups[1], n - few, replace=False)]
        index = rng.permutation(np.concatenate(people))
        a, own = white[index], models[:, index]
        answers = np.array([numpy_oracle(a)(h) for h in own])
        start = time.perf_counter()
        result = passive.decode(own, answers, group_sizes=(few, n - few))
        seconds.append(time.perf_counter() - start)
        right.append(_is_right(result, a, False))
    return {
        "attack": "passive, honest models only",
        "n": n,
        "paper": None,
        "queries, mean": float(m),
        "queries, most": m,
        "data sets": len(right),
        "exact": sum(right),
        "largest shift": 0.0,
        "accuracy lost": 0.0,
        "seconds": float(np.mean(seconds)),
    }


def _robustness(quick: bool) -> list[dict[str, Any]]:
    """Attack many data sets, minority shares 5 % to 50 %: how many are exact, reported, or silently wrong?"""
    rows = []
    for kind, make in (("NumPy", numpy_oracle), ("fairlearn", fairlearn_oracle)):
        for n in (100, 1000):
            for absolute in (False, True):
                seeds = 5 if quick else 200
                exact = reported = wrong = most = 0
                for seed in range(seeds):
                    base, y, a, _ = adult_sample(n, 0.05 + 0.45 * seed / max(1, seeds - 1), seed)
                    result = positional.run(make(a, absolute), base, y=y, signed=not absolute)
                    most = max(most, result.n_queries)
                    if _is_right(result, a, absolute):
                        exact += 1
                    elif result.verified:
                        wrong += 1
                    else:
                        reported += 1
                rows.append(
                    {
                        "oracle": kind,
                        "answers": "absolute" if absolute else "signed",
                        "n": n,
                        "data sets": seeds,
                        "exact": exact,
                        "reported as open": reported,
                        "silently wrong": wrong,
                        "queries, most": most,
                    }
                )
    return rows


if __name__ == "__main__":
    from benchmarks.__main__ import main as run_benchmarks

    sys.exit(run_benchmarks(["exact_attacks", *sys.argv[1:]]))
