"""Read label columns of any kind: which labels there are, and which is positive."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["as_column", "indicator"]

_SHOWN = 6


def as_column(column: Any, name: str) -> npt.NDArray[Any]:
    """Return a list, NumPy array, pandas or polars column as a 1-D NumPy array.

    Parameters
    ----------
    column : array-like of shape (n_samples,)
        Numbers, bools, strings, categories or nullable values.
    name : str
        Name of the argument, for messages.

    Returns
    -------
    ndarray of shape (n_samples,)

    Raises
    ------
    ValueError
        If the column has another shape or holds missing values.

    Examples
    --------
    >>> from sklearn_fairleak.labels import as_column
    >>> as_column([True, False], "y_true")
    array([ True, False])
    """
    if isinstance(column, np.ndarray) and column.dtype.kind in "iufb":
        array = column
    else:
        array = _to_numpy(column, name)
    if array.ndim == 2 and array.shape[1] == 1 and not isinstance(column, np.ndarray):
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} must be a 1-D column, got shape {array.shape}.")
    if array.dtype.kind == "O" and array.size:
        array = _narrow(array, name)
    return array


def indicator(
    labels: Any, pos_label: Any, name: str, *, probabilities: bool = False
) -> npt.NDArray[np.bool_]:
    """Return where the label is the positive one.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        Labels of any kind.
    pos_label : object or None
        The positive label. None works for bools, {0, 1} and {-1, 1}.
    name : str
        Name of the argument, for messages.
    probabilities : bool, default=False
        Whether numbers in [0, 1] would have been accepted, for messages.

    Returns
    -------
    ndarray of bool of shape (n_samples,)

    Raises
    ------
    ValueError
        If the positive label cannot be known, or is not among the labels.

    Examples
    --------
    >>> from sklearn_fairleak.labels import indicator
    >>> indicator(["No", "Yes"], "Yes", "y_true")
    array([False,  True])
    """
    column = as_column(labels, name)
    if column.dtype.kind == "f" and column.size and not np.isfinite(column).all():
        raise ValueError(f"{name} holds NaN or infinite values.")
    if column.dtype.kind == "b":
        positive = True if pos_label is None else pos_label
        return np.asarray(column == bool(positive))
    if pos_label is None and column.dtype.kind in "iuf":
        if column.size == 0:
            return np.zeros(0, dtype=bool)
        low, high = column.min(), column.max()
        for first in (0, -1):
            in_range = low in (first, 1) and high in (first, 1)
            if in_range and bool(np.all((column == first) | (column == 1))):
                return np.asarray(column == 1)
    present = np.unique(column)
    if pos_label is None:
        hint = " or predictions within [0, 1] (see bounds=)" if probabilities else ""
        raise ValueError(
            f"{name} has the labels {_show(present)}: give pos_label= to say which one is positive. "
            f"Without it only bool, {{0, 1}} and {{-1, 1}} labels{hint} are understood."
        )
    positive = np.asarray(column == pos_label)
    if positive.shape != column.shape:
        positive = np.zeros(column.shape, dtype=bool)
    if not positive.any() and present.size > 1:
        raise ValueError(f"pos_label={pos_label!r} is not among the labels {_show(present)} of {name}.")
    return positive


def _to_numpy(column: Any, name: str) -> npt.NDArray[Any]:
    """Turn any column into an array, so that the callers need not know data-frame libraries."""
    if hasattr(column, "to_numpy") and not isinstance(column, np.ndarray):
        missing = getattr(column, "isna", None) or getattr(column, "is_null", None)
        if missing is not None and bool(np.asarray(missing()).any()):
            raise ValueError(f"{name} holds missing values; drop or fill them first.")
        return np.asarray(column.to_numpy())
    if hasattr(column, "todense"):
        raise ValueError(f"{name} must be a dense 1-D column, got a sparse matrix.")
    try:
        return np.asarray(column)
    except ValueError as error:
        raise ValueError(f"{name} must be a 1-D column: {error}") from None


def _narrow(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Give an object column its plain type, and refuse missing values and mixed types."""
    kinds = {type(value) for value in array}
    missing = any(kind.__name__ in ("NoneType", "NAType", "NaTType") for kind in kinds)
    if missing or any(value != value for value in array if isinstance(value, float)):
        raise ValueError(f"{name} holds missing values; drop or fill them first.")
    if all(issubclass(kind, bool | np.bool_) for kind in kinds):
        return array.astype(bool)
    if all(issubclass(kind, int | np.integer | bool | np.bool_ | float | np.floating) for kind in kinds):
        return array.astype(np.float64)
    if all(issubclass(kind, str) for kind in kinds):
        return array.astype(str)
    names = sorted(kind.__name__ for kind in kinds)
    raise ValueError(f"{name} mixes values of types {names}; use labels of one type.")


def _show(labels: npt.NDArray[Any]) -> str:
    """Write the first few labels for a message."""
    shown = ", ".join(repr(label) for label in labels[:_SHOWN].tolist())
    return "{" + shown + (f", ... {labels.size} in all" if labels.size > _SHOWN else "") + "}"
