"""Statlog German Credit: is a loan a good risk?"""

from __future__ import annotations

from typing import Any

from sklearn.utils._param_validation import validate_params

from ._bunch import DATA_FOLDER, make_bunch

__all__ = ["load_german_credit"]

_DESCRIPTION = """\
Statlog (German Credit Data)
============================
1000 loans, 20 features, 700 of good and 300 of bad risk. UCI's codes are replaced by the column names
and labels of OpenML's credit-g; the last column, sex, is derived from personal_status.

Target: 1 for a good risk, 0 for a bad one.
Sensitive feature: sex (male 690, female 310).

Caveats
-------
The split by sex is a convention, not ground truth: the corrected code table of "South German Credit"
reads the second personal status as "female non-single or male single".

Source: Hofmann, H. (1994). Statlog (German Credit Data). UCI Machine Learning Repository.
doi:10.24432/C5NC77. Licence: Creative Commons Attribution 4.0 International (CC BY 4.0).
"""


@validate_params(
    {"keep_sensitive": ["boolean"], "as_frame": ["boolean"], "return_X_y": ["boolean"]},
    prefer_skip_nested_validation=True,
)
def load_german_credit(
    *, keep_sensitive: bool = False, as_frame: bool = True, return_X_y: bool = False
) -> Any:
    """Load Statlog German Credit, shipped with the package.

    Parameters
    ----------
    keep_sensitive : bool, default=False
        Leave ``sex``, and ``personal_status`` which it is derived from, among the features.
    as_frame : bool, default=True
        Return pandas objects. If False, ``data``, ``target`` and ``sensitive_features`` are
        NumPy arrays in the order of ``ids``, and ``frame`` is None.
    return_X_y : bool, default=False
        Return ``(data, target)`` only.

    Returns
    -------
    bunch : Bunch
        A dictionary with attributes:

        data : DataFrame of shape (1000, 19)
            The features, without ``class``, ``sex`` and ``personal_status``; with the last two
            if ``keep_sensitive``.
        target : Series of shape (1000,)
            1 for a good risk, else 0.
        sensitive_features : Series of shape (1000,)
            ``"male"`` or ``"female"``.
        frame : DataFrame of shape (1000, 22)
            Every column, ``class`` as text.
        ids : ndarray of shape (1000,)
            ``"credit-<row in UCI's order>"``, the index of all of the above.
        feature_names, target_names : list of str
            Columns of ``data``; the labels that 0 and 1 stand for.
        DESCR : str
            Source, licence, counts and caveats.

    Notes
    -----
    The sex of a person is a reading of ``personal_status`` that the literature shares, and that
    a later code table puts in doubt. Licence: CC BY 4.0.

    References
    ----------
    Hofmann, H. (1994). Statlog (German Credit Data). UCI Machine Learning Repository.
    https://doi.org/10.24432/C5NC77

    Examples
    --------
    >>> from sklearn_fairleak.datasets import load_german_credit
    >>> credit = load_german_credit()
    >>> credit.data.shape
    (1000, 19)
    >>> credit.sensitive_features.value_counts().to_dict()
    {'male': 690, 'female': 310}
    """
    import pandas as pd

    frame = pd.read_csv(DATA_FOLDER / "german_credit.csv", keep_default_na=False)
    frame = frame.set_axis([f"credit-{row}" for row in frame.index], axis=0)
    bunch = make_bunch(
        frame,
        target="class",
        negative="bad",
        positive="good",
        sensitive="sex",
        derived=("personal_status",),
        keep_sensitive=keep_sensitive,
        as_frame=as_frame,
        description=_DESCRIPTION,
    )
    return (bunch.data, bunch.target) if return_X_y else bunch
