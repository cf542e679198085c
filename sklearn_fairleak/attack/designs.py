"""What to submit: the predictions whose answers are worth most to an attacker.

Every design is a matrix with one row per submitted model and one column per individual, built
around the predictions of a realistic base model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "balanced_flips",
    "base_predictions",
    "default_estimator",
    "double_queries",
    "honest_models",
    "linear_design",
    "perturbed_models",
    "random_labels",
    "single_acceptances",
    "size_probe",
]

FloatArray = npt.NDArray[np.float64]


def default_estimator(X: Any) -> Any:
    """Return the base model that is fitted where none is given: logistic regression on encoded columns."""
    from sklearn.compose import ColumnTransformer, make_column_selector
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    if not hasattr(X, "columns"):
        return make_pipeline(numbers, LogisticRegression(max_iter=1000))
    columns = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            (
                "categories",
                OneHotEncoder(handle_unknown="ignore"),
                make_column_selector(dtype_exclude="number"),
            ),
        ]
    )
    return make_pipeline(columns, LogisticRegression(max_iter=1000))


def base_predictions(
    X: Any, y: Any, estimator: Any, hard_labels: bool
) -> tuple[FloatArray, FloatArray | None]:
    """Predict every individual with a realistic model.

    Parameters
    ----------
    X : array-like of shape (n_individuals, n_features) or (n_individuals,)
        Features; or, as one column, the predictions of the base model themselves.
    y : array-like of shape (n_individuals,) or None
        Labels to fit on. Without them the estimator must be fitted already.
    estimator : classifier or None
        Base model, `default_estimator` by default.
    hard_labels : bool
        Predict 0/1 instead of probabilities.

    Returns
    -------
    base : ndarray of shape (n_individuals,)
    labels : ndarray of shape (n_individuals,) or None
        `y` as 0/1.
    """
    from sklearn.base import clone
    from sklearn.utils.validation import check_is_fitted

    from ..labels import indicator

    labels = None if y is None else indicator(y, None, "y").astype(np.float64)
    if getattr(X, "ndim", None) == 1 or (isinstance(X, list) and X and np.isscalar(X[0])):
        base = np.asarray(X, dtype=np.float64)
        if not np.isfinite(base).all() or base.min() < 0.0 or base.max() > 1.0:
            raise ValueError(
                "One column as X is taken for the base model's predictions, which must lie in [0, 1]; "
                "give features as a table of shape (n_individuals, n_features)."
            )
    else:
        model = default_estimator(X) if estimator is None else estimator
        if labels is not None:
            if np.unique(labels).size < 2:
                raise ValueError("y holds one label only: no base model can be fitted to it.")
            model = clone(model).fit(X, labels)
        elif estimator is None:
            raise ValueError("Give y to fit the base model on, or a fitted base_estimator.")
        else:
            check_is_fitted(model)
        if hasattr(model, "predict_proba"):
            base = np.asarray(model.predict_proba(X), dtype=np.float64)[:, -1]
        else:
            base = (np.asarray(model.predict(X)) == model.classes_[-1]).astype(np.float64)
    if labels is not None and labels.shape != base.shape:
        raise ValueError(f"X and y must have the same length, got {base.shape[0]} and {labels.shape[0]}.")
    return ((base >= 0.5).astype(np.float64) if hard_labels else base), labels


def single_acceptances(n: int, targets: npt.ArrayLike) -> FloatArray:
    """Accept one target at a time and nobody else (the paper's Example 1).

    Examples
    --------
    >>> from sklearn_fairleak.attack.designs import single_acceptances
    >>> single_acceptances(3, [1])
    array([[0., 1., 0.]])
    """
    index = np.asarray(targets, dtype=np.int64)
    H = np.zeros((index.size, n))
    H[np.arange(index.size), index] = 1.0
    return H


def _moved(base: FloatArray, max_shift: float | None, keep_decisions: bool) -> FloatArray:
    """Move every prediction as far as allowed, in the direction that has more room."""
    accepted = base >= 0.5
    low = np.where(keep_decisions & accepted, 0.5, 0.0)
    high = np.where(keep_decisions & ~accepted, np.nextafter(0.5, 0.0), 1.0)
    shift = np.where(base - low >= high - base, low - base, high - base)
    # A hair less than allowed, so that rounding in base + shift never shows as a larger shift.
    return base + (shift if max_shift is None else np.clip(shift, 1e-15 - max_shift, max_shift - 1e-15))


def double_queries(
    base: FloatArray, targets: npt.ArrayLike, *, max_shift: float | None = None, keep_decisions: bool = False
) -> FloatArray:
    """Ask for the base model, then for models that differ from it in one target each (Example 2)."""
    index = np.asarray(targets, dtype=np.int64)
    H = np.tile(base, (index.size + 1, 1))
    H[np.arange(1, index.size + 1), index] = _moved(base, max_shift, keep_decisions)[index]
    return H


def linear_design(
    base: FloatArray, *, max_shift: float | None = None, keep_decisions: bool = False
) -> FloatArray:
    """Change one individual per row, for all individuals (the paper's Algorithm 1).

    The paper flips a prediction ``h`` to ``1 - h``; a prediction near 1/2 would hardly move by
    that, so it moves to the end of [0, 1] that has more room.
    """
    H = np.tile(base, (base.size, 1))
    np.fill_diagonal(H, _moved(base, max_shift, keep_decisions))
    return H


def perturbed_models(
    base: FloatArray,
    n_queries: int,
    noise: float,
    rng: np.random.Generator,
    *,
    keep_decisions: bool = False,
) -> FloatArray:
    """Add uniform noise of +-`noise` to the base model and clip to [0, 1] (the paper's Algorithm 2).

    With `keep_decisions` nobody crosses 1/2, so that the accuracy of every submitted model is that
    of the base model.
    """
    H = np.clip(base + rng.uniform(-noise, noise, (n_queries, base.size)), 0.0, 1.0)
    if keep_decisions:
        accepted = base >= 0.5
        H = np.where(accepted, np.maximum(H, 0.5), np.minimum(H, np.nextafter(0.5, 0.0)))
    return H


def size_probe(base: FloatArray, shift: float, *, keep_decisions: bool = False) -> FloatArray:
    """Return the base model and one that differs in one individual: their answers tell the group sizes."""
    j = int(np.argmax(np.abs(base - 0.5)))
    room = abs(base[j] - 0.5)
    step = min(shift, 0.9 * room) if keep_decisions and room > 0 else shift
    H = np.tile(base, (2, 1))
    H[1, j] += step if base[j] < 0.5 or room == 0 else -step
    return H


def random_labels(n: int, n_queries: int, rng: np.random.Generator) -> FloatArray:
    """Accept everyone with probability 1/2: the most informative models, and the least realistic."""
    return rng.integers(0, 2, (n_queries, n)).astype(np.float64)


def balanced_flips(
    base: FloatArray,
    labels: FloatArray | None,
    n_queries: int,
    max_accuracy_loss: float | None,
    rng: np.random.Generator,
) -> FloatArray:
    """Flip hard labels of the base model, rights and wrongs in equal number, within an accuracy limit.

    Where the labels are unknown, or no limit is set, every label is flipped with probability 1/2.
    """
    accepted = base >= 0.5
    if labels is None or max_accuracy_loss is None:
        return random_labels(base.size, n_queries, rng)
    right = np.flatnonzero(accepted == (labels > 0.5))
    wrong = np.flatnonzero(accepted != (labels > 0.5))
    spoiled = wrong.size // 2
    extra = int(np.floor(max_accuracy_loss * base.size + 1e-9))
    n_right = min(right.size, spoiled + extra)
    H = np.tile(accepted.astype(np.float64), (n_queries, 1))
    for row in H:
        flipped = np.concatenate(
            [rng.choice(wrong, spoiled, replace=False), rng.choice(right, n_right, replace=False)]
        ).astype(np.int64)
        row[flipped] = 1.0 - row[flipped]
    return H


def honest_models(
    X: Any, y: Any, estimator: Any, n_queries: int, rng: np.random.Generator, *, hard_labels: bool = False
) -> FloatArray:
    """Retrain the base model on bootstrap samples: nothing here looks like an attack."""
    from sklearn.base import clone
    from sklearn.utils import _safe_indexing

    from ..labels import indicator

    labels = indicator(y, None, "y").astype(np.float64)
    rows: list[FloatArray] = []
    while len(rows) < n_queries:
        index = rng.integers(0, labels.size, labels.size)
        if np.unique(labels[index]).size < 2:
            continue
        model = clone(default_estimator(X) if estimator is None else estimator)
        model.fit(_safe_indexing(X, index), labels[index])
        rows.append(base_predictions(X, None, model, hard_labels)[0])
    return np.array(rows)
