"""Synthetic audits: people, groups, and near-identical models."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import Bunch, check_random_state
from sklearn.utils._param_validation import Interval, validate_params

__all__ = ["make_audit"]

# Scores like those of a classifier of Adult's incomes: about 17 % of people above 1/2, and a
# statistical parity gap of the probabilities of about 0.09.
_SHIFT, _SLOPE, _INTERCEPT = 0.45, 1.4, -1.9


@validate_params(
    {
        "n_samples": [Interval(Integral, 2, None, closed="left")],
        "minority_share": [Interval(Real, 0, 1, closed="neither")],
        "n_models": [Interval(Integral, 1, None, closed="left")],
        "noise": [Interval(Real, 0, 1, closed="both")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_audit(
    n_samples: int = 1000,
    minority_share: float = 0.104,
    n_models: int = 1,
    noise: float = 0.1,
    *,
    random_state: Any = None,
) -> Bunch:
    """Make people of two groups and the predictions of near-identical models about them.

    A feature is drawn from a normal law whose mean is higher for the advantaged group. A base
    model h0 turns it into a probability, labels follow that probability, and further models
    perturb it: ``clip(h0 + U(-noise, noise), 0, 1)``, independently for every model and person,
    as the attack of Algorithm 2 of Hamman, Chen & Dutta (2023) does.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of people, at least 2.
    minority_share : float, default=0.104
        Share of the disadvantaged group, in (0, 1). The group has
        ``round(minority_share * n_samples)`` people, but each group has at least one.
    n_models : int, default=1
        Number of models. The first is the base model itself.
    noise : float, default=0.1
        Half-width of the uniform perturbation of the other models, in [0, 1].
    random_state : int, RandomState instance or None, default=None
        Determines everything that is drawn. Pass an int for the same audit on every call.

    Returns
    -------
    bunch : Bunch
        A dictionary with attributes:

        X : DataFrame of shape (n_samples, 1)
            The feature.
        y : Series of shape (n_samples,)
            Labels, 0 or 1.
        sensitive_features : Series of shape (n_samples,)
            1 for the advantaged group, 0 for the disadvantaged one.
        base : ndarray of shape (n_samples,)
            Probabilities of the base model.
        predictions : ndarray of shape (n_models, n_samples)
            Probabilities of every model, one row a model.
        DESCR : str
            What this is.

    References
    ----------
    Hamman, F., Chen, J. & Dutta, S. (2023). Can Querying for Bias Leak Protected Attributes?
    Achieving Privacy With Smooth Sensitivity. FAccT. https://doi.org/10.1145/3593013.3594086

    Examples
    --------
    >>> from sklearn_fairleak.datasets import make_audit
    >>> audit = make_audit(100, n_models=3, random_state=0)
    >>> audit.predictions.shape, int((audit.sensitive_features == 0).sum())
    ((3, 100), 10)
    """
    import pandas as pd

    rng = check_random_state(random_state)
    n_minority = min(n_samples - 1, max(1, round(minority_share * n_samples)))
    group = np.ones(n_samples, dtype=np.int64)
    group[rng.permutation(n_samples)[:n_minority]] = 0
    feature = rng.normal(size=n_samples) + _SHIFT * group
    base = 1.0 / (1.0 + np.exp(-_SLOPE * feature - _INTERCEPT))
    y = (rng.uniform(size=n_samples) < base).astype(np.int64)
    shifts = rng.uniform(-noise, noise, (n_models, n_samples))
    shifts[0] = 0.0
    index = [f"person-{row}" for row in range(n_samples)]
    return Bunch(
        X=pd.DataFrame({"feature": feature}, index=index),
        y=pd.Series(y, index=index, name="y"),
        sensitive_features=pd.Series(group, index=index, name="group"),
        base=base,
        predictions=np.clip(base + shifts, 0.0, 1.0),
        DESCR="Synthetic people of two groups and near-identical probability models.",
    )
