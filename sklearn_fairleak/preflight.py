"""How many answers a search will ask for, before any model is fitted.

A search and public data come in; counts go out: in all, and for the person asked about most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["AnswerCount", "count_answers"]


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
    search: Any, X: Any = None, y: Any = None, *, groups: Any = None, n_samples: int | None = None
) -> AnswerCount:
    """Count the answers that a search will ask for.

    Parameters
    ----------
    search : estimator, splitter or int
        ``GridSearchCV``, ``RandomizedSearchCV`` or a halving search,
        ``TunedThresholdClassifierCV``, or the ``cv`` of a ``cross_validate`` (one model a
        fold). Nested searches ask as often as their inner search, in every outer fold.
    X : array-like of shape (n_samples, n_features), default=None
        The data that will be searched on.
    y, groups : array-like of shape (n_samples,), default=None
        As given to ``fit``, where the splitter needs them.
    n_samples : int, default=None
        Instead of X.

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
    from sklearn.model_selection import TunedThresholdClassifierCV

    n = n_samples if X is None else _length(X)
    if n is None:
        raise ValueError("count_answers needs X or n_samples.")
    if y is None:
        y = np.arange(n) % 2
    if isinstance(search, int) or (hasattr(search, "split") and not hasattr(search, "fit")):
        return _over_folds(search, None, n, y, groups, models=1, train=False)
    if isinstance(search, TunedThresholdClassifierCV):
        thresholds = search.thresholds
        models = thresholds if isinstance(thresholds, int) else len(thresholds)
        if search.cv == "prefit":
            return AnswerCount(models, models)
        if isinstance(search.cv, float):
            return AnswerCount(models, models)
        cv = 5 if search.cv is None else search.cv
        return _over_folds(cv, search.estimator, n, y, groups, models=models, train=False)
    if hasattr(search, "factor") and hasattr(search, "min_resources"):
        return _halving(search, n, y, groups)
    candidates = _candidates(search)
    return _over_folds(
        search.cv, search.estimator, n, y, groups, models=candidates, train=bool(search.return_train_score)
    )


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


def _over_folds(
    cv: Any, estimator: Any, n: int, y: Any, groups: Any, *, models: int, train: bool
) -> AnswerCount:
    """Count the answers of several models over the folds of a splitter."""
    from sklearn.base import is_classifier
    from sklearn.model_selection import check_cv

    splitter = check_cv(cv, y, classifier=estimator is not None and is_classifier(estimator))
    count, total = np.zeros(n, dtype=np.int64), 0
    for train_rows, test_rows in splitter.split(np.zeros((n, 1)), y, groups):
        count[test_rows] += models
        total += models
        if train:
            count[train_rows] += models
            total += models
    return AnswerCount(total, int(count.max(initial=0)))


def _halving(search: Any, n: int, y: Any, groups: Any) -> AnswerCount:
    """Bound the answers of a halving search: a person may be in every round's subsample."""
    candidates, factor = _candidates(search), search.factor
    rounds = 1 + math.floor(math.log(candidates, factor)) if candidates > 1 else 1
    total = per_individual = 0
    for k in range(rounds):
        left = max(1, math.ceil(candidates / factor**k))
        one = _over_folds(
            search.cv, search.estimator, n, y, groups, models=left, train=bool(search.return_train_score)
        )
        total += one.total
        per_individual += one.per_individual
    return AnswerCount(total, per_individual)


def _length(X: Any) -> int:
    """Return the number of rows of any table."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)
