"""UCI Adult: does a person earn more than 50 000 dollars a year?"""

from __future__ import annotations

from typing import Any

from sklearn.utils._param_validation import StrOptions, validate_params

from ._bunch import DATA_FOLDER, make_bunch

__all__ = ["load_adult"]

_TRAIN_ROWS = 32_561
_DESCRIPTION = """\
UCI Adult (Census Income)
=========================
48842 people of the 1994 census of the United States, 14 features and the income class.
Rows 0 to 32560 are UCI's training file adult.data, rows 32561 to 48841 its test file adult.test.

Target: 1 for an income above 50 000 dollars a year (11687 people), 0 otherwise.
Sensitive features: race (White 41762, Black 4685, three more) and sex (Male 32650, Female 16192).
Missing: workclass 2799, occupation 2809, native-country 857 ('?' in the file).

Caveats
-------
Of the 46447 White and Black people 10.09 % are Black; Hamman, Chen & Dutta (2023) print 10.4 %.
The column relationship (Husband, Wife) tells most people's sex, and native-country tells something
about race: leaving the sensitive column out of the features does not make a model blind to it.

Source: Becker, B. & Kohavi, R. (1996). Adult. UCI Machine Learning Repository.
doi:10.24432/C5XW20. Licence: Creative Commons Attribution 4.0 International (CC BY 4.0).
"""


@validate_params(
    {
        "subset": [StrOptions({"all", "train", "test"})],
        "sensitive_feature": [StrOptions({"race", "sex"})],
        "binary_race": ["boolean"],
        "keep_sensitive": ["boolean"],
        "as_frame": ["boolean"],
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
    as_frame: bool = True,
    return_X_y: bool = False,
) -> Any:
    """Load UCI Adult, shipped with the package.

    Parameters
    ----------
    subset : {"all", "train", "test"}, default="all"
        UCI's split: 32561 people to train, 16281 to test, before ``binary_race``.
    sensitive_feature : {"race", "sex"}, default="race"
        Which column is the sensitive feature.
    binary_race : bool, default=True
        Keep people of race White or Black only, as the literature does.
    keep_sensitive : bool, default=False
        Leave the sensitive column among the features.
    as_frame : bool, default=True
        Return pandas objects. If False, ``data``, ``target`` and ``sensitive_features`` are
        NumPy arrays in the order of ``ids``, and ``frame`` is None.
    return_X_y : bool, default=False
        Return ``(data, target)`` only.

    Returns
    -------
    bunch : Bunch
        A dictionary with attributes:

        data : DataFrame of shape (n_samples, n_features)
            The features: without ``income``, and without the sensitive column unless
            ``keep_sensitive``. Missing values are NaN.
        target : Series of shape (n_samples,)
            1 for an income above 50 000 dollars, else 0.
        sensitive_features : Series of shape (n_samples,)
            The sensitive column, as text.
        frame : DataFrame of shape (n_samples, 15)
            Every column as in the file, ``income`` as text.
        ids : ndarray of shape (n_samples,)
            ``"adult-<row in UCI's order>"``, the index of all of the above. The same person has
            the same id in every subset, and ids survive shuffling.
        feature_names, target_names : list of str
            Columns of ``data``; the labels that 0 and 1 stand for.
        DESCR : str
            Source, licence, counts and caveats.

    Notes
    -----
    The file is read without the network. Licence: CC BY 4.0.

    References
    ----------
    Becker, B. & Kohavi, R. (1996). Adult. UCI Machine Learning Repository.
    https://doi.org/10.24432/C5XW20

    Examples
    --------
    >>> from sklearn_fairleak.datasets import load_adult
    >>> adult = load_adult(subset="test")
    >>> adult.data.shape
    (15507, 13)
    >>> sorted(adult.sensitive_features.unique())
    ['Black', 'White']
    >>> adult.target_names
    ['<=50K', '>50K']
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
        negative="<=50K",
        positive=">50K",
        sensitive=sensitive_feature,
        keep_sensitive=keep_sensitive,
        as_frame=as_frame,
        description=_DESCRIPTION,
    )
    return (bunch.data, bunch.target) if return_X_y else bunch
