"""What a guess from the features saves: answers until everyone is known, against how well the guess ranks."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.attack_reproduction import SHARE
from sklearn_fairleak import leakage_score
from sklearn_fairleak.attack.decoders import predict_gaps
from sklearn_fairleak.attack.designs import default_estimator, perturbed_models
from sklearn_fairleak.attack.recovery import decode_exact
from sklearn_fairleak.datasets import load_adult

#: Columns from which the attacker's classifier guesses race; None for no prior at all.
FEATURES: dict[str, list[str] | None] = {
    "no prior": None,
    "education": ["education", "education-num"],
    "marital status, relationship": ["marital-status", "relationship"],
    "native country": ["native-country"],
    "all features": [],
}


def main(quick: bool = False) -> list[dict[str, Any]]:
    """Fit classifiers of race on the training part, and attack people of the test part."""
    n, runs = (200, 1) if quick else (1000, 5)
    train, test = load_adult(subset="train"), load_adult(subset="test")
    race = (np.asarray(train.sensitive_features) == "White").astype(int)
    truth = (np.asarray(test.sensitive_features) == "White").astype(int)
    base = default_estimator(train.data).fit(train.data, train.target).predict_proba(test.data)[:, 1]
    people = [_people(truth, n, seed) for seed in range(runs)]
    rows = []
    for name, columns in FEATURES.items():
        chance = None
        if columns is not None:
            kept = columns or list(train.data.columns)
            chance = default_estimator(train.data[kept]).fit(train.data[kept], race)
            chance = chance.predict_proba(test.data[kept])[:, 1]
        aucs, alone, needed = [], [], []
        for seed, index in enumerate(people):
            a = truth[index]
            prior = None if chance is None else _shifted(chance[index], race.mean(), a.mean())
            if prior is not None:
                aucs.append(float(roc_auc_score(a, prior)))
                alone.append(leakage_score(a, (prior > np.median(prior)).astype(int)))
            needed.append(_answers_needed(base[index], a, prior, np.random.default_rng(seed)))
        rows.append(
            {
                "prior from": name,
                "n": n,
                "data sets": runs,
                "AUC of the prior": round(float(np.mean(aucs)), 3) if aucs else 0.5,
                "leakage of the prior alone": round(float(np.mean(alone)), 3) if alone else 0.5,
                "answers until exact, mean": float(np.mean(needed)),
                "answers until exact, most": max(needed),
            }
        )
    return rows


def _people(truth: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Draw people of the test part with a given share of the smaller group."""
    rng = np.random.default_rng(seed)
    few = round(SHARE * n)
    chosen = [rng.choice(np.flatnonzero(truth == g), k, replace=False) for g, k in ((0, few), (1, n - few))]
    return rng.permutation(np.concatenate(chosen))


def _shifted(chance: np.ndarray, there: float, here: float) -> np.ndarray:
    """Carry probabilities over from one share of the advantaged group to another, by Bayes' rule."""
    odds = chance / (1.0 - chance) * (1.0 - there) / there * here / (1.0 - here)
    return np.asarray(odds / (1.0 + odds))


def _answers_needed(base: np.ndarray, a: np.ndarray, prior: np.ndarray | None, rng: Any) -> int:
    """Bisect for the number of perturbed models whose answers fix everyone, in steps of n / 100."""
    n = a.size
    step = max(1, n // 100)
    sizes = (int((a == 0).sum()), int(a.sum()))
    H = perturbed_models(base, n, 0.1, rng)
    answers = predict_gaps(H, a)
    low, high = 0, n // step
    while high - low > 1:
        m = (low + high) // 2
        found = decode_exact(H[: m * step], answers[: m * step], sizes=sizes, prior=prior, thorough=False)
        exact = found.exact and np.array_equal(found.attributes, a)
        low, high = (low, m) if exact else (m, high)
    return high * step


if __name__ == "__main__":
    from benchmarks.__main__ import main as run

    sys.exit(run(["priors", *sys.argv[1:]]))
