"""Turn a shipped table into what scikit-learn users expect of a loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.utils import Bunch

__all__ = ["DATA_FOLDER", "make_bunch"]

DATA_FOLDER = Path(__file__).parent / "data"


def make_bunch(
    frame: Any, *, target: str, positive: str, sensitive: str, keep_sensitive: bool, description: str
) -> Bunch:
    """Split a table into features, 0/1 target and sensitive feature.

    Parameters
    ----------
    frame : DataFrame
        The whole table, with a unique index of ids.
    target, positive : str
        Target column and its positive label.
    sensitive : str
        Sensitive column.
    keep_sensitive : bool
        Whether the sensitive column stays among the features too.
    description : str
        Source, licence and caveats.
    """
    dropped = [target] if keep_sensitive else [target, sensitive]
    data = frame.drop(columns=dropped)
    negative = next(label for label in sorted(frame[target].unique()) if label != positive)
    return Bunch(
        data=data,
        target=(frame[target] == positive).astype(int),
        sensitive_features=frame[sensitive],
        frame=frame,
        feature_names=data.columns.tolist(),
        target_names=[negative, positive],
        DESCR=description,
    )
