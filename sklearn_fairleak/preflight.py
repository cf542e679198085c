"""How many answers a search will ask for, before any model is fitted.

A search and public data come in; counts go out: in all, and for the person asked about most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .exceptions import PrivacyBudgetExceeded

__all__ = ["AnswerCount", "RefitBy", "count_answers"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class AnswerCount:
    """Answers that a search asks of one scorer, at most.

    Attributes
    ----------
    total : int
        Answers in all. Questions that come up twice are answered once.
    per_individual : int
        Answers that include the person asked about most: what ``n_queries`` must cover.
    """

    total: int
    per_individual: int


def count_answers(
    search: Any,
    X: Any = None,
    y: Any = None,
    *,
    groups: Any = None,
    n_samples: int | None = None,
    scorer: Any = None,
) -> AnswerCount:
    """Count the answers that a search will ask for.

    Parameters
    ----------
    search : estimator, splitter or int
        ``GridSearchCV``, ``RandomizedSearchCV`` or a halving search,
        ``TunedThresholdClassifierCV``, or the ``cv`` of a ``cross_validate`` (one model a
        fold). A search within a search (or at the end of its pipeline) is counted too; for a
        search within ``cross_validate``, count it on each training fold.
    X : array-like of shape (n_samples, n_features), default=None
        The data that will be searched on.
    y, groups : array-like of shape (n_samples,), default=None
        As given to ``fit``, where the splitter needs them.
    n_samples : int, default=None
        Instead of X.
    scorer : PrivateFairnessScorer, default=None
        Count only the levels that score with it.

    Returns
    -------
    AnswerCount

    Raises
    ------
    TypeError
        If the kind of search is not known.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn_fairleak.preflight import count_answers
    >>> search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1, 10]}, cv=5)
    >>> count_answers(search, n_samples=100)
    AnswerCount(total=15, per_individual=3)
    >>> count_answers(search.set_params(return_train_score=True), n_samples=100)
    AnswerCount(total=30, per_individual=15)
    """
    n = n_samples if X is None else _length(X)
    if n is None:
        raise ValueError("count_answers needs X or n_samples.")
    y = np.arange(n) % 2 if y is None else np.asarray(y)
    groups = None if groups is None else np.asarray(groups)
    total, counts = _count(search, n, y, groups, scorer)
    return AnswerCount(total, int(counts.max(initial=0)))


def _count(search: Any, n: int, y: Any, groups: Any, scorer: Any) -> tuple[int, IntArray]:
    """Return the answers in all, and for each row."""
    from sklearn.model_selection import TunedThresholdClassifierCV

    if isinstance(search, int) or (hasattr(search, "split") and not hasattr(search, "fit")):
        return _over_folds(search, None, n, y, groups, models=1, train=False)
    if isinstance(search, TunedThresholdClassifierCV):
        thresholds = search.thresholds
        models = thresholds if isinstance(thresholds, int) else len(thresholds)
        if search.cv == "prefit" or isinstance(search.cv, float):
            return models, np.full(n, models)
        cv = 5 if search.cv is None else search.cv
        return _over_folds(cv, search.estimator, n, y, groups, models=models, train=False)
    candidates, asks = _candidates(search), _asks(search, scorer)
    inner = _inner_search(search.estimator)
    if hasattr(search, "factor") and hasattr(search, "min_resources"):
        if inner is not None:
            raise TypeError("A search within a halving search cannot be counted beforehand.")
        rounds = 1 + math.floor(math.log(candidates, search.factor)) if candidates > 1 else 1
        # A person may be in every round's subsample.
        models = sum(max(1, math.ceil(candidates / search.factor**k)) for k in range(rounds))
    else:
        models = candidates
    total, counts = _over_folds(
        search.cv,
        search.estimator,
        n,
        y,
        groups,
        models=models if asks else 0,
        train=bool(search.return_train_score),
    )
    if inner is not None:
        # The inner search asks about each outer training fold once a candidate, and once more
        # about everybody when the best candidate is fitted again.
        fits = [(rows, candidates) for rows, _ in _splits(search.cv, search.estimator, n, y, groups)]
        fits += [(np.arange(n), 1)] if search.refit is not False else []
        for rows, times in fits:
            part = None if groups is None else groups[rows]
            inner_total, inner_counts = _count(inner, rows.size, y[rows], part, scorer)
            total += times * inner_total
            counts[rows] += times * inner_counts
    return total, counts


def _asks(search: Any, scorer: Any) -> bool:
    """Say whether a search scores with this scorer; a function is taken to."""
    scoring = search.scoring
    if scorer is None or scoring is scorer or (callable(scoring) and not hasattr(scoring, "auditor_")):
        return True
    if isinstance(scoring, dict):
        return any(value is scorer for value in scoring.values())
    return False


def _inner_search(estimator: Any) -> Any:
    """Return the search inside an estimator or at the end of a pipeline, if there is one."""
    steps = getattr(estimator, "steps", None)
    last = steps[-1][1] if steps else estimator
    return last if hasattr(last, "param_grid") or hasattr(last, "param_distributions") else None


def _candidates(search: Any) -> int:
    """Return the number of parameter settings of a search."""
    from sklearn.model_selection import ParameterGrid

    if hasattr(search, "param_grid"):
        return len(ParameterGrid(search.param_grid))
    if hasattr(search, "param_distributions"):
        spaces = search.param_distributions
        finite = all(
            not hasattr(values, "rvs")
            for space in (spaces if isinstance(spaces, list) else [spaces])
            for values in space.values()
        )
        n_iter = getattr(search, "n_iter", getattr(search, "n_candidates", 0))
        if isinstance(n_iter, str):
            raise TypeError("n_candidates='exhaust' cannot be counted beforehand; give a number.")
        return min(n_iter, len(ParameterGrid(spaces))) if finite else int(n_iter)
    raise TypeError(
        f"count_answers knows grid, randomised and halving searches, TunedThresholdClassifierCV and splitters, "
        f"not {type(search).__name__}."
    )


def _splits(cv: Any, estimator: Any, n: int, y: Any, groups: Any) -> list[tuple[IntArray, IntArray]]:
    """Return the folds of a splitter."""
    from sklearn.base import is_classifier
    from sklearn.model_selection import check_cv

    splitter = check_cv(cv, y, classifier=estimator is not None and is_classifier(estimator))
    return list(splitter.split(np.zeros((n, 1)), y, groups))


def _over_folds(
    cv: Any, estimator: Any, n: int, y: Any, groups: Any, *, models: int, train: bool
) -> tuple[int, IntArray]:
    """Count the answers of several models over the folds of a splitter."""
    counts, total = np.zeros(n, dtype=np.int64), 0
    for train_rows, test_rows in _splits(cv, estimator, n, y, groups):
        counts[test_rows] += models
        total += models
        if train:
            counts[train_rows] += models
            total += models
    return total, counts


def _length(X: Any) -> int:
    """Return the number of rows of any table."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


class RefitBy:
    """Choose the best candidate, unless an answer is missing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, cv_results: Any) -> int:
        missing = sum(
            int(np.isnan(np.asarray(scores, dtype=np.float64)).sum())
            for key, scores in cv_results.items()
            if key.startswith("split") and "_test_" in key
        )
        if missing:
            raise PrivacyBudgetExceeded(
                f"{missing} scores of the search are missing, so candidates cannot be compared fairly. Raise "
                "n_queries or epsilon before the search (scorer.preflight tells), or try fewer candidates."
            )
        return int(np.argmax(cv_results[f"mean_test_{self.name}"]))
