"""Count a frame that may not fit into memory: one group-by, pushed down to its engine.

A lazy frame and column names come in; one row for each combination of labels, groups and
controls, with its number of individuals, goes out. Everything after that is small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .group_metrics import GroupMetric, describe_metric, recognise_metric, summed_metric
from .groups import MAX_GROUPS
from .sum_release import grid_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CountedFrame", "count_frame", "placeholder"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Public combinations of labels and controls that are still a table of categories.
_MOST_COMBINATIONS = 10_000
#: With more rows than this there are too many combinations or too many groups, whoever is in which.
_MOST_ROWS = _MOST_COMBINATIONS * (MAX_GROUPS + 1)
#: The grid of real values is fixed before anything is counted, for up to 2^32 individuals.
_MOST_INDIVIDUALS = 2**32 - 1
_REAL = (
    "mean_prediction",
    "mean_absolute_error",
    "mean_squared_error",
    "root_mean_squared_error",
    "log_loss",
)
_OF_PREDICTIONS = ("selection_rate", "mean_prediction")


@dataclass(frozen=True, eq=False)
class CountedFrame:
    """What one group-by tells of a frame.

    Parameters
    ----------
    keys : DataFrame
        Sensitive and control features, one row a combination (with labels).
    counts : ndarray of shape (n_rows,)
        Number of individuals of each row.
    metrics : dict of str to GroupMetric
        The metrics as formulas of sums over rows.
    overall : dict of str to ndarray of shape (n_rows,)
        Exact sums of the scaled values of real-valued metrics, before rounding.
    """

    keys: pd.DataFrame
    counts: IntArray
    metrics: dict[str, GroupMetric]
    overall: dict[str, FloatArray]

    def public_values(self, cells: Sequence[npt.NDArray[np.bool_]]) -> FloatArray:
        """Return the metrics of everyone in each cell of controls, shape (n_cells, n_metrics)."""
        values = np.full((len(cells), len(self.metrics)), np.nan)
        for k, (name, metric) in enumerate(self.metrics.items()):
            sums = metric.vectors * self.counts
            if name in self.overall:
                sums[0] = self.overall[name]
            for number, cell in enumerate(cells):
                total = sums[:, cell].sum(axis=1)
                if cell.any() and metric.is_defined(total):
                    values[number, k] = metric.evaluate(total)
        return values


def count_frame(
    frame: Any,
    metrics: Mapping[str, Callable[..., Any]],
    *,
    y_true: str | None,
    y_pred: str,
    sensitive_features: Sequence[str],
    control_features: Sequence[str],
    bounds: tuple[float, float] | None,
    pos_label: Any,
) -> CountedFrame:
    """Count a frame by everything that its metrics depend on, in its own engine.

    Parameters
    ----------
    frame : narwhals-compatible frame
        Polars LazyFrame, DuckDB relation, Dask or PySpark frame; eager frames as well.
    metrics : mapping of str to callable
        Supported metric functions by name.
    y_true, y_pred : str
        Columns of labels or targets, and predictions.
    sensitive_features, control_features : sequence of str
        Columns to group by.
    bounds : tuple of two floats or None
        Public bounds of predictions and targets.
    pos_label : object
        The positive label.

    Returns
    -------
    CountedFrame

    Raises
    ------
    ValueError
        If a column is missing or used twice, holds missing values or has too many
        values, or a metric is not supported.
    """
    import narwhals as nw

    try:
        lazy = nw.from_native(frame)
    except TypeError:
        raise TypeError(
            f"frame must be a frame that narwhals knows (Polars, DuckDB, pandas, Dask, PySpark), got "
            f"{type(frame).__name__}."
        ) from None
    named = {name: recognise_metric(metric) for name, metric in metrics.items()}
    kinds = {kind for kind, _ in named.values()}
    by_label = kinds - set(_REAL) - {"count"}
    reads_truth = bool(kinds - {"count", *_OF_PREDICTIONS})
    if reads_truth and y_true is None:
        raise ValueError(f"{sorted(kinds - {'count', *_OF_PREDICTIONS})} need y_true=, the column of labels.")
    groups = [*control_features, *sensitive_features]
    schema = _schema(lazy)
    _check_columns(list(schema), groups, y_true if reads_truth else None, y_pred)
    keys = list(groups)
    if reads_truth and (by_label - {"selection_rate"} or "log_loss" in kinds):
        keys.append(str(y_true))
    if by_label:
        keys.append(y_pred)
    real = sorted(kinds & set(_REAL))
    reads = [y_pred] if real else []
    if real and set(real) - {"mean_prediction", "log_loss"}:
        reads.append(str(y_true))
    for name in [*reads, *([str(y_true)] if "log_loss" in kinds and pos_label is None else [])]:
        if not (schema[name].is_numeric() or schema[name] == nw.Boolean):
            raise ValueError(f"Column {name!r} needs numbers, got values of type {schema[name]}.")
    values = {
        kind: _value(kind, nw.col(y_pred), None if y_true is None else nw.col(y_true), bounds, pos_label)
        for kind in real
    }
    table = _collected(lazy, keys, reads, values)
    _check_categories(table, keys, sensitive_features)
    if not len(table):
        raise ValueError("The frame has no rows.")
    for name in keys[len(groups) :]:
        if table[name].isna().any():
            raise ValueError(f"Column {name!r} holds missing values.")
    counts = table[_own("individuals")].to_numpy(dtype=np.int64)
    if counts.sum() > _MOST_INDIVIDUALS:
        raise ValueError(f"Frames of up to {_MOST_INDIVIDUALS} rows are supported, got {counts.sum()}.")
    _check_values(table, reads, real, bounds)
    described: dict[str, GroupMetric] = {}
    overall: dict[str, FloatArray] = {}
    blank = np.zeros(len(table))
    for name, (kind, _) in named.items():
        if kind in _REAL:
            if kind == "log_loss":
                _check_labels(table[str(y_true)], pos_label)
            steps = table[_own(f"{kind} steps")].to_numpy(dtype=np.float64)
            means = steps / (counts * float(grid_of(_MOST_INDIVIDUALS)))
            described[name] = summed_metric(kind, means, _limits(kind, bounds))
            overall[name] = table[_own(f"{kind} sum")].to_numpy(dtype=np.float64)
        else:
            described[name] = describe_metric(
                metrics[name],
                table[str(y_true)].to_numpy() if str(y_true) in keys else blank,
                table[y_pred].to_numpy() if by_label else blank,
                bounds=bounds,
                pos_label=pos_label,
            )
    return CountedFrame(table[groups], counts, described, overall)


def placeholder(name: str) -> Callable[[Any, Any], float]:
    """Return a metric function of a name, whose value is filled in later."""

    def metric(y_true: Any, y_pred: Any) -> float:
        return 0.0

    metric.__name__ = name
    return metric


def _check_columns(found: Sequence[str], groups: Sequence[str], y_true: str | None, y_pred: str) -> None:
    """Refuse columns that are missing or used twice."""
    asked = [*groups, y_pred, *([] if y_true is None else [y_true])]
    missing = [name for name in asked if name not in found]
    if missing:
        raise ValueError(f"The frame has no column {missing[0]!r}; its columns are {list(found)}.")
    repeated = sorted({name for name in asked if asked.count(name) > 1})
    if repeated:
        raise ValueError(f"Column {repeated[0]!r} is used for more than one purpose.")


def _schema(lazy: Any) -> dict[str, Any]:
    """Return the frame's columns and their types."""
    try:
        return dict(lazy.collect_schema())
    except Exception as error:
        raise _engine_failed(error) from None


def _engine_failed(error: Exception) -> ValueError:
    """Say that a query failed, without its message: engines quote the values of cells."""
    return ValueError(
        f"The frame's own query failed with {type(error).__name__}. Its message may quote secret values, so it is not "
        "repeated: run the query by itself to see it."
    )


def _check_categories(table: pd.DataFrame, keys: list[str], sensitive_features: Sequence[str]) -> None:
    """Refuse too many public combinations or groups; who is in which group plays no part."""
    public = [name for name in keys if name not in sensitive_features]
    if (
        len(table) > _MOST_ROWS
        or len(table[list(sensitive_features)].drop_duplicates()) > MAX_GROUPS
        or (public and len(table[public].drop_duplicates()) > _MOST_COMBINATIONS)
    ):
        raise ValueError(
            f"There are more than {MAX_GROUPS} groups of {list(sensitive_features)}, or more than {_MOST_COMBINATIONS} "
            f"combinations of {public}. Groups, controls and labels are categories: is one of the columns an id, or "
            "are predictions probabilities? Probabilities have mean_prediction and log_loss; the other metrics need "
            "labels."
        )


def _collected(lazy: Any, keys: list[str], reads: list[str], values: Mapping[str, Any]) -> pd.DataFrame:
    """Run the one group-by, and fetch its rows."""
    import narwhals as nw

    grid = float(grid_of(_MOST_INDIVIDUALS))
    summed = [nw.col(_own(f"{kind} {what}")).sum() for kind in values for what in ("sum", "steps")]
    for name in reads:
        number = nw.col(_own(f"{name} number"))
        summed.append(number.count().alias(_own(f"{name} known")))
        summed.append(number.min().alias(_own(f"{name} low")))
        summed.append(number.max().alias(_own(f"{name} high")))
    sums = {kind: nw.col(_own(f"{kind} sum")) for kind in values}
    try:
        prepared = lazy
        if values:
            prepared = prepared.with_columns(
                **{_own(f"{kind} sum"): value for kind, value in values.items()},
                **{_own(f"{name} number"): nw.col(name).cast(nw.Float64) for name in reads},
            ).with_columns(
                **{_own(f"{kind} steps"): (part * grid + 0.5).floor() for kind, part in sums.items()}
            )
        counted = prepared.group_by(*keys).agg(nw.len().alias(_own("individuals")), *summed)
        counted = counted.head(_MOST_ROWS + 1)
        if isinstance(counted, nw.LazyFrame):
            counted = counted.collect()
        table: pd.DataFrame = counted.to_pandas()
    except Exception as error:
        raise _engine_failed(error) from None
    return table


def _own(name: str) -> str:
    """Name a column that is added to the frame, apart from the frame's own."""
    return f"__fairleak__ {name}"


def _check_values(
    table: pd.DataFrame,
    reads: list[str],
    kinds: Sequence[str],
    bounds: tuple[float, float] | None,
) -> None:
    """Refuse numbers that are missing, not finite, or without public bounds."""
    for name in reads:
        low, high = table[_own(f"{name} low")], table[_own(f"{name} high")]
        # Engines differ in whether NaN is the largest number, spoils a sum, or counts as missing.
        seen = [low, high, *(table[_own(f"{kind} sum")] for kind in kinds)]
        whole = (table[_own(f"{name} known")] == table[_own("individuals")]).all()
        if not whole or not all(np.isfinite(column.to_numpy(dtype=np.float64)).all() for column in seen):
            raise ValueError(f"{name} holds missing, NaN or infinite values.")
        if "mean_prediction" in kinds and bounds is None and (low.min() < 0 or high.max() > 1):
            raise ValueError(f"{name}: predictions outside [0, 1] need public bounds=(low, high).")


def _check_labels(labels: Any, pos_label: Any) -> None:
    """Refuse labels of which the positive one is not known."""
    from .labels import as_column, indicator

    indicator(as_column(labels.to_numpy(), "y_true"), pos_label, "y_true")


def _value(kind: str, y_pred: Any, y_true: Any, bounds: tuple[float, float] | None, pos_label: Any) -> Any:
    """Write one individual's value, scaled to [0, 1], as an expression of its engine."""
    import narwhals as nw

    low, high = _bounds(kind, bounds)

    def scaled(column: Any) -> Any:
        numbers = column.cast(nw.Float64)
        return numbers if bounds is None else (numbers.clip(low, high) - low) / (high - low)

    guess = scaled(y_pred)
    if kind == "mean_prediction":
        return guess
    if kind == "log_loss":
        positive = (y_true.cast(nw.Float64) > 0) if pos_label is None else (y_true == pos_label)
        chance = guess * (high - low) + low
        own = nw.when(positive).then(chance).otherwise(1.0 - chance)
        return own.log() / float(np.log(min(low, 1.0 - high)))
    distance = (guess - scaled(y_true)).abs()
    return distance if kind == "mean_absolute_error" else distance * distance


def _bounds(kind: str, bounds: tuple[float, float] | None) -> tuple[float, float]:
    """Return checked public bounds; losses need some."""
    if bounds is None:
        if kind != "mean_prediction":
            raise ValueError(
                f"{kind} has no public upper limit: give bounds=(low, high) of targets and predictions "
                "(of probabilities for log_loss, such as (0.01, 0.99)), chosen without looking at the data."
            )
        return 0.0, 1.0
    low, high = (float(bound) for bound in bounds)
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"bounds must be finite with low < high, got {bounds!r}.")
    if kind == "log_loss" and not 0.0 < low < high < 1.0:
        raise ValueError(f"bounds of log_loss must lie strictly within (0, 1), got {bounds!r}.")
    return low, high


def _limits(kind: str, bounds: tuple[float, float] | None) -> tuple[float, float]:
    """Return what scaled values of 0 and 1 stand for."""
    low, high = _bounds(kind, bounds)
    if kind == "mean_prediction":
        return low, high
    if kind == "log_loss":
        return 0.0, -float(np.log(min(low, 1.0 - high)))
    return 0.0, high - low if kind == "mean_absolute_error" else (high - low) ** 2
