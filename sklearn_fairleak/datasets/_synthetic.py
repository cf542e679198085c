"""Synthetic audits: people, groups, and near-identical models."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import Bunch, check_random_state
from sklearn.utils._param_validation import Interval, validate_params

__all__ = ["make_audit"]


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

    One feature is shifted between the groups, and a base model turns it into a probability.
    Further models add uniform noise, as in Algorithm 2 of Hamman, Chen & Dutta (2023).

    Parameters
    ----------
    n_samples : int, default=1000
        Number of people.
    minority_share : float, default=0.104
        Share of the disadvantaged group; at least one person of each group.
    n_models : int, default=1
        Number of models; the first is the base model.
    noise : float, default=0.1
        Half-width of the noise of the other models.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    Bunch
        ``X`` (DataFrame), ``y`` (Series of 0/1), ``sensitive_features`` (Series, 1 for the
        advantaged group), ``base`` (ndarray of shape (n_samples,)), ``predictions`` (ndarray
        of shape (n_models, n_samples)), ``DESCR``.

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
    feature = rng.normal(size=n_samples) + 0.45 * group
    base = 1.0 / (1.0 + np.exp(1.9 - 1.4 * feature))
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
