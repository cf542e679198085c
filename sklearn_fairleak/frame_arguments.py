"""Bring a metric frame's arguments into one order and shape, as fairlearn users give them.

Arguments of MetricFrame come in; aligned columns, named features and bound metrics go out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from .group_metrics import GroupMetric, describe_metric

__all__ = [
    "aligned_arguments",
    "bound_metric",
    "clipped",
    "described_metrics",
    "named_columns",
    "named_metrics",
    "single_column",
]


def aligned_arguments(**columns: Any) -> tuple[Any, tuple[Any, ...]]:
    """Bring pandas arguments into the order of the first index; never by position against labels."""
    reference, owner = None, ""
    out = []
    for name, column in columns.items():
        if isinstance(column, pd.Series | pd.DataFrame):
            if reference is None:
                reference, owner = column.index, name
            elif not column.index.equals(reference):
                same = column.index.is_unique and reference.is_unique and len(column) == len(reference)
                if not (same and column.index.isin(reference).all()):
                    raise ValueError(
                        f"The index of {name} and that of {owner} hold different labels. Reset both, or select the "
                        "same rows in both: rows are matched by label, never by position."
                    )
                column = column.loc[reference]
        out.append(column)
    usable = reference is not None and reference.is_unique and not reference.hasnans
    return (reference if usable else None), tuple(out)


def named_metrics(
    metrics: Callable[..., Any] | dict[str, Callable[..., Any]],
) -> tuple[dict[str, Callable[..., Any]], bool]:
    """Return metric functions by name, and whether there was a single one without a name."""
    if not isinstance(metrics, dict):
        return {getattr(metrics, "__name__", "metric"): metrics}, True
    if not metrics:
        raise ValueError("metrics must name at least one metric.")
    return metrics, False


def described_metrics(
    metrics: dict[str, Callable[..., Any]],
    sample_params: dict[str, dict[str, Any]],
    y_true: Any,
    y_pred: Any,
    *,
    bounds: tuple[float, float] | None,
    pos_label: Any,
) -> dict[str, GroupMetric]:
    """Write every metric as a formula of group sums, with its own weights."""
    if set(sample_params) - set(metrics):
        raise ValueError(f"sample_params has keys {sorted(sample_params)}, metrics has {sorted(metrics)}.")
    described = {}
    for name, metric in metrics.items():
        extra = {key: value for key, value in (sample_params.get(name) or {}).items() if value is not None}
        if set(extra) - {"sample_weight"}:
            raise ValueError(f"sample_params may hold sample_weight only, got {sorted(extra)}.")
        weights = extra.get("sample_weight")
        described[name] = describe_metric(
            metric, y_true, y_pred, weights=weights, bounds=bounds, pos_label=pos_label
        )
    return described


def single_column(values: Any) -> Any:
    """Take a table or an array of one column for its column, as fairlearn does."""
    if isinstance(values, pd.DataFrame) and values.shape[1] == 1:
        return values.iloc[:, 0]
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]
    return values


def named_columns(sensitive: Any, features: list[Any]) -> Any:
    """Name sensitive columns as fairlearn does, and keep categories that their dtype declares."""
    columns = {}
    for feature in features:
        raw = feature.raw_feature_
        if isinstance(sensitive, pd.DataFrame):
            raw = sensitive[feature.name_].reset_index(drop=True)
        elif isinstance(sensitive, pd.Series):
            raw = sensitive.reset_index(drop=True)
        columns[feature.name_] = raw
    return columns


def clipped(
    column: Any, bounds: tuple[float, float] | None, described: dict[str, GroupMetric], name: str
) -> Any:
    """Clip numbers to public bounds, so that public overall values are of the same question."""
    known = {metric.name for metric in described.values()}
    if bounds is None or ("log_loss" in known and name == "y_true"):
        return column
    bounded = {"mean_prediction", "log_loss", "mean_absolute_error", "mean_squared_error"}
    if not known <= bounded | {"root_mean_squared_error", "count"}:
        return column
    return np.clip(np.asarray(column, dtype=np.float64), *bounds)


def bound_metric(metric: Callable[..., Any], pos_label: Any, known: str) -> Callable[..., Any]:
    """Bind the positive label where the metric function takes one."""
    takes = known == "selection_rate" or known.endswith(
        ("_rate", "recall_score", "precision_score", "f1_score")
    )
    takes = takes or known == "fbeta_score"
    bound = isinstance(metric, partial) and "pos_label" in metric.keywords
    if pos_label is None or bound or not takes:
        return metric
    called = partial(metric, pos_label=pos_label)
    called.__name__ = getattr(metric, "__name__", known)  # type: ignore[attr-defined]
    return called
