"""Exact group metrics, and the leakage of a reconstruction. No privacy here.

Labels, predictions and sensitive features come in; exact gaps and ratios go out. These are
the values that a private mechanism never releases as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .groups import Groups, encode_groups
from .queries import QueryBatch, canonical_metric, make_queries

__all__ = [
    "accuracy_parity_difference",
    "bounded_loss_parity_difference",
    "combine_rows",
    "equal_opportunity_difference",
    "equalized_odds_difference",
    "fairness_gap",
    "fairness_ratio",
    "false_positive_rate_parity_difference",
    "group_means",
    "leakage_score",
    "negative_predictive_parity_difference",
    "predictive_parity_difference",
    "statistical_parity_difference",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def group_means(batch: QueryBatch, codes: IntArray, n_groups: int) -> FloatArray:
    """Return the exact (weighted) mean of every row in every group.

    Parameters
    ----------
    batch : QueryBatch
        The public question.
    codes : ndarray of shape (n_samples,)
        Group codes of the evaluation set; codes of ``n_groups`` or more are in no group.
    n_groups : int
        Number of groups.

    Returns
    -------
    ndarray of shape (n_rows, n_groups)
        NaN for a group without (weighted) members in the row's subset.
    """
    blocks = []
    for query in batch.queries:
        members = query.restrict(codes)
        sums, counts = np.empty((query.values.shape[0], n_groups)), np.empty(n_groups)
        for group in range(n_groups):
            weights = (members == group).astype(np.float64)
            if query.weights is not None:
                weights *= query.weights
            sums[:, group] = query.values @ weights
            counts[group] = weights.sum()
        with np.errstate(invalid="ignore", divide="ignore"):
            blocks.append(np.where(counts > 0, sums / counts, np.nan))
    return np.concatenate(blocks)


def combine_rows(
    means: FloatArray,
    rows: IntArray,
    *,
    ratio: bool = False,
    absolute: bool = True,
    advantaged: int = -1,
) -> FloatArray:
    """Turn group means of rows into one answer a model.

    Parameters
    ----------
    means : ndarray of shape (..., n_rows, n_groups)
        Group means of every row.
    rows : ndarray of shape (n_models, n_parts)
        The rows that make up each answer.
    ratio : bool, default=False
        Smallest mean over largest mean, instead of their difference.
    absolute : bool, default=True
        Largest minus smallest mean; otherwise advantaged minus disadvantaged.
    advantaged : int, default=-1
        Code of the advantaged group, for signed gaps of two groups.

    Returns
    -------
    ndarray of shape (..., n_models)
        The worst part of each model: the largest gap or the smallest ratio.
    """
    means = means[..., rows, :]
    if ratio:
        highest = means.max(axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            parts = np.where(highest > 0, means.min(axis=-1) / highest, 1.0)
        return np.asarray(parts.min(axis=-1))
    if absolute:
        return np.asarray((means.max(axis=-1) - means.min(axis=-1)).max(axis=-1))
    gaps = means[..., advantaged] - means[..., 1 - advantaged % 2]
    worst = np.abs(gaps).argmax(axis=-1)
    return np.asarray(np.take_along_axis(gaps, worst[..., None], axis=-1)[..., 0])


def fairness_gap(
    metric: str,
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    absolute: bool = True,
    advantaged: Any = None,
    pos_label: Any = None,
    bounds: tuple[float, float] | None = None,
    loss: str = "absolute",
) -> float:
    """Compute the exact gap of a metric between groups.

    Parameters
    ----------
    metric : str
        Metric name, see :data:`sklearn_fairleak.queries.METRICS`.
    y_true : array-like of shape (n_samples,) or None
        True labels; may be None for statistical parity.
    y_pred : array-like of shape (n_samples,)
        Label or probability predictions.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_features)
        Group of each individual.
    sample_weight : array-like of shape (n_samples,), default=None
        Non-negative weights.
    absolute : bool, default=True
        Largest minus smallest group value; False gives advantaged minus disadvantaged
        (two groups).
    advantaged : object, default=None
        Label of the advantaged group; the last label by default.
    pos_label : object, default=None
        The positive label, where bool, {0, 1} or {-1, 1} does not say it.
    bounds : tuple of two floats, default=None
        Public bounds of real-valued predictions.
    loss : {"absolute", "squared"}, default="absolute"
        Loss of ``bounded_loss_parity``.

    Returns
    -------
    float
        The gap, in [0, 1] or, signed, in [-1, 1] (times the width of ``bounds``).

    Raises
    ------
    ValueError
        If an input is malformed or a group is empty in the metric's subset.

    Examples
    --------
    >>> from sklearn_fairleak.metrics import fairness_gap
    >>> fairness_gap("statistical_parity", None, [1, 0, 1, 1], sensitive_features=[0, 0, 1, 1])
    0.5
    """
    return _exact(
        metric,
        y_true,
        y_pred,
        sensitive_features,
        sample_weight,
        absolute,
        advantaged,
        pos_label,
        bounds,
        loss,
    )


def fairness_ratio(
    metric: str,
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    pos_label: Any = None,
) -> float:
    """Compute the exact ratio of the smallest to the largest group value of a metric.

    Parameters are those of :func:`fairness_gap`. Where every group value is 0 the ratio
    is 1: all groups are treated alike.

    Returns
    -------
    float
        Ratio in [0, 1].

    Examples
    --------
    >>> from sklearn_fairleak.metrics import fairness_ratio
    >>> fairness_ratio("statistical_parity", None, [1, 0, 1, 1], sensitive_features=[0, 0, 1, 1])
    0.5
    """
    name = metric if metric.endswith("_ratio") else f"{metric.removesuffix('_difference')}_ratio"
    return _exact(
        name, y_true, y_pred, sensitive_features, sample_weight, True, None, pos_label, None, "absolute"
    )


def _exact(
    metric: str,
    y_true: Any,
    y_pred: Any,
    sensitive_features: Any,
    sample_weight: Any,
    absolute: bool,
    advantaged: Any,
    pos_label: Any,
    bounds: tuple[float, float] | None,
    loss: str,
) -> float:
    """Compute one exact answer, refusing undefined ones."""
    _, ratio = canonical_metric(metric)
    batch = make_queries(
        metric, y_pred, y_true, sample_weight=sample_weight, pos_label=pos_label, bounds=bounds, loss=loss
    )
    groups = encode_groups(sensitive_features)
    if groups.codes.shape[0] != batch.n_samples:
        raise ValueError(
            f"sensitive_features and y_pred must have the same length, got {groups.codes.shape[0]} and "
            f"{batch.n_samples}."
        )
    require_signed_pair(groups, absolute or ratio)
    means = group_means(batch, groups.codes, len(groups.labels))
    if np.isnan(means).any():
        raise ValueError(
            f"A group has no individual in the subset that {metric!r} is about, so its value is undefined."
        )
    value = combine_rows(
        means, batch.rows, ratio=ratio, absolute=absolute, advantaged=groups.advantaged_code(advantaged)
    )
    return float(value[0]) * (1.0 if ratio else batch.scale)


def require_signed_pair(groups: Groups, unsigned: bool) -> None:
    """Refuse a signed gap between more than two groups: it has no sign."""
    if not unsigned and len(groups.labels) != 2:
        raise ValueError(
            f"A signed gap (absolute=False) needs exactly 2 groups, got {len(groups.labels)} group labels. "
            "Use absolute=True, the largest minus the smallest group value."
        )


def statistical_parity_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, **options: Any
) -> float:
    """Compute the gap in mean prediction (fairlearn: demographic parity).

    ``options`` are those of :func:`fairness_gap`: ``sample_weight``, ``absolute``,
    ``advantaged``, ``pos_label``, ``bounds``, ``loss``.
    """
    return fairness_gap(
        "statistical_parity", y_true, y_pred, sensitive_features=sensitive_features, **options
    )


def equal_opportunity_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, **options: Any
) -> float:
    """Compute the gap in true positive rate.

    ``options`` are those of :func:`fairness_gap`: ``sample_weight``, ``absolute``,
    ``advantaged``, ``pos_label``, ``bounds``, ``loss``.
    """
    return fairness_gap("equal_opportunity", y_true, y_pred, sensitive_features=sensitive_features, **options)


def false_positive_rate_parity_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, **options: Any
) -> float:
    """Compute the gap in false positive rate.

    ``options`` are those of :func:`fairness_gap`: ``sample_weight``, ``absolute``,
    ``advantaged``, ``pos_label``, ``bounds``, ``loss``.
    """
    return fairness_gap(
        "false_positive_rate_parity", y_true, y_pred, sensitive_features=sensitive_features, **options
    )


def equalized_odds_difference(y_true: Any, y_pred: Any, *, sensitive_features: Any, **options: Any) -> float:
    """Compute the larger of the true and false positive rate gaps.

    ``options`` are those of :func:`fairness_gap`: ``sample_weight``, ``absolute``,
    ``advantaged``, ``pos_label``, ``bounds``, ``loss``.
    """
    return fairness_gap("equalized_odds", y_true, y_pred, sensitive_features=sensitive_features, **options)


def predictive_parity_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, **options: Any
) -> float:
    """Compute the gap in precision.

    ``options`` are those of :func:`fairness_gap`: ``sample_weight``, ``absolute``,
    ``advantaged``, ``pos_label``, ``bounds``, ``loss``.
    """
    return fairness_gap("predictive_parity", y_true, y_pred, sensitive_features=sensitive_features, **options)


def negative_predictive_parity_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, **options: Any
) -> float:
    """Compute the gap in negative predictive value.

    ``options`` are those of :func:`fairness_gap`: ``sample_weight``, ``absolute``,
    ``advantaged``, ``pos_label``, ``bounds``, ``loss``.
    """
    return fairness_gap(
        "negative_predictive_parity", y_true, y_pred, sensitive_features=sensitive_features, **options
    )


def accuracy_parity_difference(y_true: Any, y_pred: Any, *, sensitive_features: Any, **options: Any) -> float:
    """Compute the gap in accuracy.

    ``options`` are those of :func:`fairness_gap`: ``sample_weight``, ``absolute``,
    ``advantaged``, ``pos_label``, ``bounds``, ``loss``.
    """
    return fairness_gap("accuracy_parity", y_true, y_pred, sensitive_features=sensitive_features, **options)


def bounded_loss_parity_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, **options: Any
) -> float:
    """Compute the gap in a loss clipped to public bounds.

    ``options`` are those of :func:`fairness_gap`: ``sample_weight``, ``absolute``,
    ``advantaged``, ``pos_label``, ``bounds``, ``loss``.
    """
    return fairness_gap(
        "bounded_loss_parity", y_true, y_pred, sensitive_features=sensitive_features, **options
    )


def leakage_score(sensitive_features: Any, reconstructed: Any) -> float:
    """Compute the leakage of a reconstruction: its balanced accuracy.

    Parameters
    ----------
    sensitive_features : array-like of shape (n_individuals,)
        True group of each individual.
    reconstructed : array-like of shape (n_individuals,)
        Group that the attacker assigns to each individual.

    Returns
    -------
    float
        Mean over the groups of the share of individuals assigned rightly, in [0, 1];
        1 over the number of groups is what guessing gives.

    Raises
    ------
    ValueError
        If the lengths differ.

    References
    ----------
    Definition 1 of Hamman, Chen & Dutta, "Can Querying for Bias Leak Protected
    Attributes? Achieving Privacy With Smooth Sensitivity", FAccT 2023, arXiv 2211.02139.

    Examples
    --------
    >>> from sklearn_fairleak import leakage_score
    >>> leakage_score([0, 0, 1, 1], [0, 1, 1, 1])
    0.75
    """
    truth, guess = np.asarray(sensitive_features), np.asarray(reconstructed)
    if truth.ndim != 1 or truth.shape != guess.shape or truth.size == 0:
        raise ValueError(
            "sensitive_features and reconstructed must be columns of the same length, got shapes "
            f"{truth.shape} and {guess.shape}."
        )
    right = truth == guess
    return float(np.mean([right[truth == group].mean() for group in np.unique(truth)]))
