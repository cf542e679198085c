"""Bring predictions, labels and sensitive features that carry an index into one order."""

from __future__ import annotations

from typing import Any

import numpy as np

from .individuals import RowIds, plain_ids

__all__ = ["align_labels", "aligned", "response_of", "rows_of"]


def response_of(estimator: Any, X: Any, response_method: Any, pos_label: Any) -> Any:
    """Ask an estimator for predictions, or for the probability of the positive class."""
    names = [response_method] if isinstance(response_method, str) else list(response_method)
    name = next((name for name in names if hasattr(estimator, name)), None)
    if name is None:
        raise AttributeError(f"{type(estimator).__name__} has none of the response methods {names}.")
    predictions = getattr(estimator, name)(X)
    if name != "predict_proba":
        return predictions
    classes = list(estimator.classes_)
    positive = classes[-1] if pos_label is None else pos_label
    if len(classes) != 2 and pos_label is None:
        raise ValueError(f"predict_proba of {len(classes)} classes needs pos_label=, one of {classes}.")
    if positive not in classes:
        raise ValueError(f"pos_label={pos_label!r} is not one of the classes {classes}.")
    return np.asarray(predictions)[:, classes.index(positive)]


def aligned(sensitive_features: Any, ids: Any) -> Any:
    """Bring sensitive features with an index into the order of the ids."""
    index = getattr(sensitive_features, "index", None)
    if ids is None or index is None or callable(index):
        return sensitive_features
    import pandas as pd

    wanted = pd.Index(ids)
    if index.equals(wanted):
        return sensitive_features
    if not index.is_unique or not wanted.is_unique:
        raise ValueError("The index of X and of sensitive_features must not repeat ids.")
    if len(index) != len(wanted) or not wanted.isin(index).all():
        raise ValueError(
            "X and sensitive_features have different ids in their index. Give both the same index, or pass "
            "sensitive_features without one (in the order of X)."
        )
    return sensitive_features.loc[wanted]


def rows_of(y_pred: Any, sample_ids: Any) -> RowIds | None:
    """Return the ids that predictions carry, or None for all individuals in their order."""
    if sample_ids is not None:
        return RowIds(plain_ids(sample_ids), explicit=True)
    index = getattr(y_pred, "index", None)
    if index is None or callable(index):
        return None
    return RowIds(plain_ids(index), explicit=True)


def align_labels(y_true: Any, rows: RowIds | None, auditor: Any) -> Any:
    """Bring labels with an index into the order of the predictions."""
    index = getattr(y_true, "index", None)
    if index is None or callable(index):
        return y_true
    ids = plain_ids(index)
    if rows is not None:
        if np.array_equal(ids, rows.ids):
            return y_true
        import pandas as pd

        order = pd.Index(ids).get_indexer(rows.ids)
        if (order < 0).any():
            raise ValueError("y_true and y_pred have different ids in their index.")
        return y_true.iloc[order]
    order = auditor.order_of(ids)
    return y_true if order is None else y_true.iloc[order]
