"""The story in one run: exact answers give away everyone's race, private ones do not.

Adult comes in from the package; tables, a figure and a JSON file go out.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["plot_demo", "run_demo"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def run_demo(
    *,
    n_samples: int = 1000,
    n_models: int = 400,
    epsilon: float = 1.0,
    random_state: int = 0,
    report: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Attack exact answers about models trained on Adult, then private ones.

    Parameters
    ----------
    n_samples : int, default=1000
        White and Black people drawn from Adult's test set.
    n_models : int, default=400
        Models that the paper's Algorithm 2 submits.
    epsilon : float, default=1.0
        Privacy parameter of all private answers together.
    random_state : int, default=0
        Chooses people and submitted models. The private answers are not seeded.
    report : callable, default=no-op
        Called with a sentence before each step.

    Returns
    -------
    dict
        ``data``, ``exact`` (one entry an attack) and ``private`` (one entry a mechanism).
    """
    from .attack import AttributeRevealAttack

    report("training a model on Adult without race")
    X, y, race, base = _adult_model(n_samples, random_state)
    advantaged = int((race == 1).sum())
    exact: list[dict[str, Any]] = []

    def oracle(y_pred: FloatArray) -> float:
        return float(y_pred[race == 1].mean() - y_pred[race == 0].mean())

    attacks: list[tuple[str, dict[str, Any]]] = [
        ("Algorithm 1, linear", {"strategy": "linear"}),
        (
            "Algorithm 2, compressed sensing",
            {"strategy": "compressed_sensing", "n_queries": n_models, "decoder": "l1"},
        ),
        ("positional, people as digits", {"strategy": "positional"}),
    ]
    scores: dict[str, FloatArray] = {}
    for label, settings in attacks:
        report(f"exact answers, {label}")
        # Algorithms 1 and 2 are given the group sizes, as the paper assumes.
        sizes = None if settings["strategy"] == "positional" else (n_samples - advantaged, advantaged)
        attack = AttributeRevealAttack(
            signed=True, group_sizes=sizes, random_state=random_state, **settings
        ).run(oracle, base, y)
        found = attack.reconstruction_
        scores[label] = attack.scores_
        exact.append(
            {
                "attack": label,
                "queries": int(attack.n_queries_),
                "leakage": float(attack.leakage(race)),
                "max_shift": float(found.max_shift),
                "accuracy_loss": float(found.accuracy_loss),
            }
        )
    design = AttributeRevealAttack(
        "compressed_sensing", n_queries=n_models, random_state=random_state
    ).design(base)
    private, private_scores = _attack_private_answers(
        base, design, race, X.index, epsilon, random_state, report
    )
    return {
        "data": {
            "people": n_samples,
            "black": int(n_samples - advantaged),
            "white": advantaged,
            "model_accuracy": float(((base >= 0.5) == y).mean()),
            "true_gap": oracle(base),
        },
        "epsilon": epsilon,
        "exact": exact,
        "private": private,
        "scores": {
            "race": race.tolist(),
            "exact": scores[attacks[-1][0]].tolist(),
            "private": private_scores.tolist(),
        },
    }


def _adult_model(n_samples: int, random_state: int) -> tuple[Any, IntArray, IntArray, FloatArray]:
    """Train logistic regression on Adult without race, and predict for some test people."""
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    from .datasets import load_adult

    train, test = load_adult(subset="train"), load_adult(subset="test")
    numbers = train.data.select_dtypes("number").columns.tolist()
    texts = [name for name in train.data.columns if name not in numbers]
    model = make_pipeline(
        make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(handle_unknown="ignore"), texts)),
        LogisticRegression(max_iter=500, C=0.1),
    ).fit(train.data, train.target)
    rows = np.random.default_rng(random_state).choice(len(test.data), n_samples, replace=False)
    X, y = test.data.iloc[rows], np.asarray(test.target.iloc[rows], dtype=np.int64)
    race = np.asarray(test.sensitive_features.iloc[rows] == "White", dtype=np.int64)
    return X, y, race, np.asarray(model.predict_proba(X)[:, 1], dtype=np.float64)


def _attack_private_answers(
    base: FloatArray,
    design: FloatArray,
    race: IntArray,
    ids: Any,
    epsilon: float,
    random_state: int,
    report: Callable[[str], None],
) -> tuple[list[dict[str, Any]], FloatArray]:
    """Ask private scorers the same questions, attack their answers, and measure their errors."""
    from .attack import AttributeRevealAttack
    from .auditor import FairnessAuditor
    from .exceptions import NotPrivateWarning
    from .mechanisms import AttributeConceal, Mechanism

    def gaps(Y: FloatArray) -> FloatArray:
        return np.asarray(Y[..., race == 1].mean(axis=-1) - Y[..., race == 0].mean(axis=-1))

    sizes = int((race == 0).sum()), int((race == 1).sum())
    entries: list[dict[str, Any]] = []
    scores = np.full(race.shape, 0.5)
    choices: list[tuple[str, Mechanism | str]] = [
        ("Attribute-Conceal, printed", AttributeConceal(calibration="paper")),
        ("Attribute-Conceal, corrected", AttributeConceal()),
        ("auto", "auto"),
    ]
    for label, mechanism in choices:
        report(f"private answers at epsilon = {epsilon:g}, {label}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            auditor = FairnessAuditor(race, ids=ids, epsilon=2 * epsilon)
            many = auditor.scorer(mechanism=mechanism, epsilon=epsilon, absolute=False).answer_many(design)
            one = auditor.scorer(mechanism=mechanism, epsilon=epsilon, absolute=False).answer(base)
        # The strongest decoder we have for noisy answers: it need not know the noise law.
        attack = AttributeRevealAttack(
            "compressed_sensing", decoder="lmmse", signed=True, group_sizes=sizes, random_state=random_state
        ).fit(design, many.values)
        scores = attack.scores_
        entries.append(
            {
                "mechanism": label,
                "chosen": many.mechanism,
                "error_one": float(abs(one.value - gaps(base))),
                "error_many": float(np.median(np.abs(many.values - gaps(design)))),
                "leakage": float(attack.leakage(race)),
            }
        )
    return entries, scores


def plot_demo(results: dict[str, Any], path: str | Path) -> None:
    """Draw the two panels: who is recovered from exact and from private answers.

    Parameters
    ----------
    results : dict
        From :func:`run_demo`.
    path : str or path
        PNG file to write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    race = np.asarray(results["scores"]["race"])
    titles = (
        f"exact answers ({results['exact'][-1]['queries']} queries)",
        f"private answers (epsilon = {results['epsilon']:g})",
    )
    order = np.argsort(race, kind="stable")
    for axis, key, title in zip(axes, ("exact", "private"), titles, strict=True):
        score = np.asarray(results["scores"][key])[order]
        for group, colour, marker, name in ((0, "#D55E00", "v", "Black"), (1, "#0072B2", "^", "White")):
            where = race[order] == group
            axis.plot(np.flatnonzero(where), score[where], marker, ms=3, alpha=0.6, color=colour, label=name)
        axis.axhline(0.5, color="0.4", lw=0.8)
        axis.set(title=title, xlabel="person (true Black first)", ylim=(-0.05, 1.05))
    axes[0].set_ylabel("attacker's score: White")
    axes[1].legend(loc="center right")
    figure.savefig(path, dpi=150)


def write_demo(results: dict[str, Any], path: str | Path) -> None:
    """Write the results as JSON.

    Parameters
    ----------
    results : dict
        From :func:`run_demo`.
    path : str or path
        File to write.
    """
    Path(path).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
