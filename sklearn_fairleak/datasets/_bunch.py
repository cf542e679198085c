"""Turn a shipped table into what scikit-learn users expect of a loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.utils import Bunch

__all__ = ["DATA_FOLDER", "make_bunch"]

DATA_FOLDER = Path(__file__).parent / "data"


def make_bunch(
    frame: Any,
    *,
    target: str,
    negative: str,
    positive: str,
    sensitive: str,
    derived: tuple[str, ...] = (),
    keep_sensitive: bool,
    as_frame: bool,
    description: str,
) -> Bunch:
    """Split a table into features, 0/1 target and sensitive feature.

    Parameters
    ----------
    frame : DataFrame
        The whole table, with a unique index of ids.
    target, negative, positive : str
        Target column and its two labels.
    sensitive : str
        Sensitive column.
    derived : tuple of str, default=()
        Columns that the sensitive column is a function of; they go where it goes.
    keep_sensitive : bool
        Whether the sensitive column and those it derives from stay among the features too.
    as_frame : bool
        pandas objects, or NumPy arrays for ``data``, ``target`` and ``sensitive_features``.
    description : str
        Source, licence and caveats.

    Returns
    -------
    Bunch
        What the loaders of this package return.
    """
    data = frame.drop(columns=[target] if keep_sensitive else [target, sensitive, *derived])
    labels = (frame[target] == positive).astype("int64")
    groups = frame[sensitive]
    return Bunch(
        data=data if as_frame else data.to_numpy(dtype=object),
        target=labels if as_frame else labels.to_numpy(),
        sensitive_features=groups if as_frame else groups.to_numpy(dtype=object),
        frame=frame if as_frame else None,
        ids=frame.index.to_numpy(dtype=object),
        feature_names=data.columns.tolist(),
        target_names=[negative, positive],
        DESCR=description,
    )
