"""Fit, score and predict a candidate fold by fold, and put out-of-fold predictions together."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params, _num_samples

from .alignment import response_of

__all__ = ["by_candidate", "evaluate", "tested_rows"]

IntArray = npt.NDArray[np.int64]


def tested_rows(splits: list[tuple[IntArray, IntArray]], n_samples: int) -> IntArray:
    """Return the rows that are tested, if each is tested once."""
    tests = np.concatenate([np.arange(n_samples)[test] for _, test in splits])
    if np.unique(tests).size < tests.size:
        raise ValueError(
            "cv puts some rows into several test sets. A fairness metric needs one prediction an individual: use "
            "folds that partition the rows (KFold, StratifiedKFold, GroupKFold), unrepeated."
        )
    return np.sort(tests)


def by_candidate(
    outcomes: list[dict[str, Any]],
    n_candidates: int,
    splits: list[tuple[IntArray, IntArray]],
    tested: IntArray,
) -> tuple[list[dict[str, Any]], list[Any]]:
    """Put the folds' predictions together; None for candidates that failed on a fold."""
    place = np.argsort(np.concatenate([np.arange(tested.max() + 1)[test] for _, test in splits]))
    predictions: list[Any] = []
    for k in range(n_candidates):
        parts = [outcome["predictions"] for outcome in outcomes[k * len(splits) : (k + 1) * len(splits)]]
        failed = any(part is None for part in parts)
        predictions.append(None if failed else np.concatenate(parts)[place])
    kept = ("fit_time", "score_time", "test_scores", "train_scores", "n_test_samples")
    return [{key: out[key] for key in kept if key in out} for out in outcomes], predictions


def evaluate(
    estimator: Any,
    X: Any,
    y: Any,
    candidate: dict[str, Any],
    split: tuple[IntArray, IntArray],
    scorer: Any,
    routed: dict[str, dict[str, Any]],
    response: tuple[str, Any],
    error_score: Any,
    return_train_score: bool,
) -> dict[str, Any]:
    """Fit a candidate on a fold's training rows; score and predict its test rows."""
    train, test = split
    estimator = estimator.set_params(**clone(candidate, safe=False))
    X_train, y_train = _safe_split(estimator, X, y, train)
    X_test, y_test = _safe_split(estimator, X, y, test, train)
    fit_params = _check_method_params(X, params=routed["fit"], indices=train)
    out: dict[str, Any] = {"n_test_samples": _num_samples(X_test), "predictions": None, "error": None}
    start = time.time()
    try:
        estimator.fit(*((X_train,) if y_train is None else (X_train, y_train)), **fit_params)
    except Exception as error:
        if error_score == "raise":
            raise
        out["error"] = f"{type(error).__name__}: {error}"
        blank = {"fit_time": time.time() - start, "score_time": 0.0, "test_scores": float(error_score)}
        return out | blank | ({"train_scores": float(error_score)} if return_train_score else {})
    out["fit_time"], start = time.time() - start, time.time()

    def score(part: Any, labels: Any, indices: IntArray) -> float:
        arguments = (part,) if labels is None else (part, labels)
        score_params = _check_method_params(X, params=routed["score"], indices=indices)
        return float(scorer(estimator, *arguments, **score_params))

    out["test_scores"] = score(X_test, y_test, test)
    out["score_time"] = time.time() - start
    if return_train_score:
        out["train_scores"] = score(X_train, y_train, train)
    out["predictions"] = np.asarray(response_of(estimator, X_test, response[0], response[1]))
    return out
