"""UCI Adult: does a person earn more than 50 000 dollars a year?"""

from __future__ import annotations

from typing import Any

from sklearn.utils._param_validation import StrOptions, validate_params

from ._bunch import DATA_FOLDER, make_bunch

__all__ = ["load_adult"]

_TRAIN_ROWS = 32_561
_DESCRIPTION = """UCI Adult (Census Income), 48842 rows.

Rows 0 to 32560 are UCI's training file, the others its test file; '?' is read as missing. The
target is 1 for an income above 50 000 dollars.

Source: Becker, B. & Kohavi, R. (1996). Adult. UCI Machine Learning Repository,
doi:10.24432/C5XW20. Licence: Creative Commons Attribution 4.0 (CC BY 4.0).

Among rows of race White or Black 10.09 % are Black; Hamman, Chen & Dutta (2023) print 10.4 %.
"""


@validate_params(
    {
        "subset": [StrOptions({"all", "train", "test"})],
        "sensitive_feature": [StrOptions({"race", "sex"})],
        "binary_race": ["boolean"],
        "keep_sensitive": ["boolean"],
        "return_X_y": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def load_adult(
    *,
    subset: str = "all",
    sensitive_feature: str = "race",
    binary_race: bool = True,
    keep_sensitive: bool = False,
    return_X_y: bool = False,
) -> Any:
    """Load UCI Adult, shipped with the package.

    Parameters
    ----------
    subset : {"all", "train", "test"}, default="all"
        UCI's split.
    sensitive_feature : {"race", "sex"}, default="race"
        Which column is the sensitive feature.
    binary_race : bool, default=True
        Keep people of race White or Black only, as in the literature.
    keep_sensitive : bool, default=False
        Leave the sensitive column among the features.
    return_X_y : bool, default=False
        Return ``(data, target)`` only.

    Returns
    -------
    Bunch
        ``data`` (DataFrame), ``target`` (Series of 0/1, 1 for >50K), ``sensitive_features``
        (Series), ``frame`` (everything), ``feature_names``, ``target_names``, ``DESCR``.
        The index is ``adult-0`` … in UCI's order: ids that survive shuffling.

    Examples
    --------
    >>> from sklearn_fairleak.datasets import load_adult
    >>> adult = load_adult(subset="test")
    >>> adult.data.shape
    (15477, 13)
    >>> sorted(adult.sensitive_features.unique())
    ['Black', 'White']
    """
    import pandas as pd

    frame = pd.read_csv(DATA_FOLDER / "adult.csv.gz", na_values="?", skipinitialspace=True)
    if subset != "all":
        frame = frame.iloc[:_TRAIN_ROWS] if subset == "train" else frame.iloc[_TRAIN_ROWS:]
    if binary_race:
        frame = frame[frame["race"].isin(["White", "Black"])]
    frame = frame.set_axis([f"adult-{row}" for row in frame.index], axis=0)
    bunch = make_bunch(
        frame,
        target="income",
        positive=">50K",
        sensitive=sensitive_feature,
        keep_sensitive=keep_sensitive,
        description=_DESCRIPTION,
    )
    return (bunch.data, bunch.target) if return_X_y else bunch
