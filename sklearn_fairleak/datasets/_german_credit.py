"""Statlog German Credit: is a loan a good risk?"""

from __future__ import annotations

from typing import Any

from sklearn.utils._param_validation import validate_params

from ._bunch import DATA_FOLDER, make_bunch

__all__ = ["load_german_credit"]

_DESCRIPTION = """Statlog (German Credit Data), 1000 rows, 700 of good and 300 of bad risk.

The target is 1 for a good risk. Column names and labels are those of OpenML's credit-g.

Source: Hofmann, H. (1994). Statlog (German Credit Data). UCI Machine Learning Repository,
doi:10.24432/C5NC77. Licence: Creative Commons Attribution 4.0 (CC BY 4.0).

The column sex was derived from personal_status. The corrected code table of "South German
Credit" reads the second personal status as "female non-single or male single", so the split
into 690 men and 310 women is a convention, not ground truth.
"""


@validate_params(
    {"keep_sensitive": ["boolean"], "return_X_y": ["boolean"]}, prefer_skip_nested_validation=True
)
def load_german_credit(*, keep_sensitive: bool = False, return_X_y: bool = False) -> Any:
    """Load Statlog German Credit, shipped with the package.

    Parameters
    ----------
    keep_sensitive : bool, default=False
        Leave the columns that tell the sex among the features.
    return_X_y : bool, default=False
        Return ``(data, target)`` only.

    Returns
    -------
    Bunch
        ``data`` (DataFrame), ``target`` (Series of 0/1, 1 for a good risk),
        ``sensitive_features`` (sex), ``frame``, ``feature_names``, ``target_names``,
        ``DESCR``. The index is ``credit-0`` … in the order of the file.

    Examples
    --------
    >>> from sklearn_fairleak.datasets import load_german_credit
    >>> credit = load_german_credit()
    >>> credit.sensitive_features.value_counts().to_dict()
    {'male': 690, 'female': 310}
    """
    import pandas as pd

    frame = pd.read_csv(DATA_FOLDER / "german_credit.csv")
    frame = frame.set_axis([f"credit-{row}" for row in frame.index], axis=0)
    bunch = make_bunch(
        frame,
        target="class",
        positive="good",
        sensitive="sex",
        keep_sensitive=keep_sensitive,
        description=_DESCRIPTION,
    )
    if not keep_sensitive:
        bunch.data = bunch.data.drop(columns="personal_status")
        bunch.feature_names = bunch.data.columns.tolist()
    return (bunch.data, bunch.target) if return_X_y else bunch
