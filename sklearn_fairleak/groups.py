"""Who belongs to which group: sensitive features of any kind as integer codes.

A column (or several, crossed) of sensitive features comes in; codes and the public list of
group labels go out to the metrics and the auditor.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Groups", "encode_groups"]

IntArray = npt.NDArray[np.int64]

#: More distinct labels than this are taken for an identifier given by mistake.
MAX_GROUPS = 100


@dataclass(frozen=True, eq=False)
class Groups:
    """Hold the group code of each individual and the public labels.

    Parameters
    ----------
    codes : ndarray of shape (n_individuals,)
        Code of each individual's group, secret. A missing feature has the code
        ``len(labels)``.
    labels : tuple
        Public group labels, in the order of the codes.
    names : tuple of str
        Public names of the sensitive features.
    has_missing_status : bool
        Whether "missing" is a status of its own (public choice, ``missing="group"``).
    """

    codes: IntArray = field(repr=False)
    labels: tuple[Any, ...]
    names: tuple[str, ...] = ("sensitive_feature",)
    has_missing_status: bool = False

    @property
    def n_statuses(self) -> int:
        """Number of codes an individual may have, the missing status included."""
        return len(self.labels) + int(self.has_missing_status)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.labels)

    def at(self, positions: IntArray | None) -> Groups:
        """Return the same groups for some of the individuals; None means all."""
        return self if positions is None else replace(self, codes=self.codes[positions])

    def advantaged_code(self, advantaged: Any) -> int:
        """Return the code of the advantaged group: the last label unless one is named."""
        if advantaged is None:
            return len(self.labels) - 1
        for code, label in enumerate(self.labels):
            if label == advantaged and type(label == advantaged) in (bool, np.bool_):
                return code
        raise ValueError(f"advantaged={advantaged!r} is not one of the groups {list(self.labels)!r}.")


def encode_groups(
    sensitive_features: Any,
    *,
    groups: Sequence[Any] | None = None,
    missing: str = "error",
    bins: Sequence[float] | None = None,
    declare: bool = False,
) -> Groups:
    """Encode sensitive features as group codes.

    Parameters
    ----------
    sensitive_features : array-like of shape (n_individuals,) or (n_individuals, n_features)
        Labels of any type. Several columns are crossed: groups are then tuples.
    groups : sequence, default=None
        The public list of group labels. A category dtype declares its categories.
        Otherwise the labels are read from the data.
    missing : {"error", "group"}, default="error"
        ``"group"`` gives missing values a status of their own, in no gap, still protected.
    bins : sequence of float, default=None
        Public edges that cut a continuous feature into half-open intervals [low, high).
    declare : bool, default=False
        Warn if more than two group labels had to be read from the data, which makes
        their list public.

    Returns
    -------
    Groups

    Raises
    ------
    ValueError
        If values are missing, labels are not in ``groups``, there is one group only, the
        feature is continuous, or it has more than 100 labels.

    Examples
    --------
    >>> from sklearn_fairleak.groups import encode_groups
    >>> encoded = encode_groups(["f", "m", "m"])
    >>> encoded.labels, encoded.codes
    (('f', 'm'), array([0, 1, 1]))
    """
    if missing not in ("error", "group"):
        raise ValueError(f"missing must be 'error' or 'group', got {missing!r}.")
    columns = _columns(sensitive_features)
    names = tuple(name for name, _ in columns)
    if bins is not None:
        columns = [(name, _cut(column, name, bins)) for name, column in columns]
    encoded = [_encode(column, name) for name, column in columns]
    absent = np.zeros(encoded[0][0].shape, dtype=bool)
    for codes, _, _ in encoded:
        absent |= codes < 0
    if missing == "error" and absent.any():
        raise ValueError(
            f"sensitive_features {list(names)} hold missing values. Decide once: drop these individuals, or "
            "give missing='group' to protect them without counting them in any gap."
        )
    codes, labels, declared = _cross(encoded)
    if groups is not None:
        codes, labels = _recode(codes, labels, tuple(groups), absent)
    elif len(labels) > MAX_GROUPS:
        raise ValueError(
            f"sensitive_features {list(names)} have {len(labels)} distinct labels: that looks like an "
            f"identifier or a number. Give groups= with at most {MAX_GROUPS} labels, or bins= for a number."
        )
    elif declare and not declared and len(labels) > 2:
        warnings.warn(
            f"The list of group labels {list(labels)!r} was read from the data and becomes public: a label "
            "that one individual alone holds gives that individual away. Give groups=[...] instead.",
            UserWarning,
            stacklevel=3,
        )
    if len(labels) < 2:
        raise ValueError(
            f"sensitive_features must have at least 2 group labels, got {len(labels)}. If a group happens "
            "to be empty, declare it with groups=[...]."
        )
    codes = np.where(absent, len(labels), codes)
    return Groups(codes, labels, names, missing == "group")


def _columns(features: Any) -> list[tuple[str, Any]]:
    """Split sensitive features into named 1-D columns."""
    if hasattr(features, "columns"):
        return [(str(name), features[name]) for name in features.columns]
    if isinstance(features, dict):
        return [(str(name), column) for name, column in features.items()]
    name = getattr(features, "name", None)
    if not hasattr(features, "dtype"):
        features = np.asarray(features, dtype=None if _is_plain(features) else object)
    if getattr(features, "ndim", 1) == 2:
        return [(f"sensitive_feature_{k}", features[:, k]) for k in range(features.shape[1])]
    if getattr(features, "ndim", 1) != 1:
        raise ValueError(f"sensitive_features must have one or two dimensions, got {features.ndim}.")
    return [("sensitive_feature" if name is None else str(name), features)]


def _is_plain(features: Any) -> bool:
    """Say whether a list is of one plain type, so that NumPy does not turn 1 into '1'."""
    kinds = {type(value) for value in features if not isinstance(value, list | tuple)}
    return len(kinds) <= 1


def _encode(column: Any, name: str) -> tuple[IntArray, tuple[Any, ...], bool]:
    """Return codes (-1 where missing), labels, and whether the labels were declared by a dtype."""
    import pandas as pd

    if not isinstance(column, pd.Series):
        values = column.to_pandas() if hasattr(column, "to_pandas") else column
        declared = isinstance(values, pd.Categorical)
        is_object = not declared and getattr(getattr(values, "dtype", None), "kind", "") == "O"
        column = _infer(values) if is_object else pd.Series(values)
    if isinstance(column.dtype, pd.CategoricalDtype):
        labels = tuple(column.cat.categories.tolist())
        return column.cat.codes.to_numpy(dtype=np.int64), labels, True
    if pd.api.types.is_float_dtype(column.dtype):
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        present = numbers[~np.isnan(numbers)]
        if present.size and not bool(np.all(present == np.rint(present))):
            raise ValueError(
                f"sensitive feature {name!r} is continuous; give public edges, for example "
                "bins=[0, 30, 50, 120] (edges chosen from the data would leak)."
            )
    kinds = {_kind(value) for value in column[column.notna()].unique()} if column.dtype.kind == "O" else set()
    if len(kinds) > 1:
        raise ValueError(f"sensitive feature {name!r} mixes values of types {sorted(kinds)}.")
    codes, uniques = pd.factorize(column, sort=True, use_na_sentinel=True)
    labels = tuple(_plain(label) for label in uniques.tolist())
    declared = pd.api.types.is_bool_dtype(column.dtype)
    return np.asarray(codes, dtype=np.int64), labels, declared


def _infer(values: Any) -> Any:
    """Give an object array its natural dtype."""
    import pandas as pd

    return pd.Series(values, dtype=object).infer_objects()


def _kind(value: Any) -> str:
    """Name the type of a label, all numbers alike."""
    return "number" if isinstance(value, int | float | np.number) else type(value).__name__


def _plain(label: Any) -> Any:
    """Write whole floats as ints, so that 0.0 and 0 are one group label."""
    return int(label) if isinstance(label, float) and label.is_integer() else label


def _cut(column: Any, name: str, bins: Sequence[float]) -> Any:
    """Cut a number into public half-open intervals."""
    import pandas as pd

    edges = np.asarray(bins, dtype=np.float64)
    if edges.ndim != 1 or edges.size < 3 or not np.all(np.diff(edges) > 0):
        raise ValueError(f"bins must be at least 3 increasing edges, got {bins!r}.")
    numbers = pd.to_numeric(pd.Series(np.asarray(column)), errors="raise").to_numpy(dtype=np.float64)
    present = ~np.isnan(numbers)
    if np.any((numbers[present] < edges[0]) | (numbers[present] >= edges[-1])):
        raise ValueError(f"sensitive feature {name!r} has values outside bins [{edges[0]:g}, {edges[-1]:g}).")
    labels = [f"[{low:g}, {high:g})" for low, high in pairwise(edges)]
    codes = np.where(present, np.searchsorted(edges, numbers, side="right") - 1, -1)
    return pd.Series(pd.Categorical.from_codes(codes.astype(np.int64), categories=labels))


def _cross(
    encoded: list[tuple[IntArray, tuple[Any, ...], bool]],
) -> tuple[IntArray, tuple[Any, ...], bool]:
    """Cross several encoded columns into one code; labels become tuples."""
    if len(encoded) == 1:
        return encoded[0]
    codes = np.zeros_like(encoded[0][0])
    labels: list[tuple[Any, ...]] = [()]
    for column, column_labels, _ in encoded:
        codes = codes * len(column_labels) + np.maximum(column, 0)
        labels = [(*label, new) for label in labels for new in column_labels]
    return codes, tuple(labels), all(declared for _, _, declared in encoded)


def _recode(
    codes: IntArray, labels: tuple[Any, ...], groups: tuple[Any, ...], absent: npt.NDArray[np.bool_]
) -> tuple[IntArray, tuple[Any, ...]]:
    """Map codes to a public list of groups; a label outside it is an error of the compliance side."""
    if len(set(groups)) != len(groups):
        raise ValueError(f"groups must be distinct, got {list(groups)!r}.")
    position = {group: code for code, group in enumerate(groups)}
    unknown = [label for label in labels if label not in position]
    used = np.unique(codes[~absent])
    unknown = [label for label in unknown if labels.index(label) in used]
    if unknown:
        raise ValueError(
            f"sensitive_features have {len(unknown)} label(s) outside groups={list(groups)!r}: "
            f"{unknown[:5]!r}. List every label that may occur."
        )
    table = np.array([position.get(label, 0) for label in labels], dtype=np.int64)
    return table[np.maximum(codes, 0)], groups
