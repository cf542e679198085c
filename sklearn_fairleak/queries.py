"""What is asked: the means of public values over a public subset, by secret group.

Data comes in as a metric name, labels and predictions; a :class:`QueryBatch` of
:class:`FairnessQuery` objects goes out to the metrics and the mechanisms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .labels import as_column, indicator
from .row_blocks import RowMoments, map_row_blocks, row_moments

__all__ = ["METRICS", "FairnessQuery", "QueryBatch", "canonical_metric", "make_queries"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Canonical metric names, and whether the metric needs ``y_true`` and label predictions.
METRICS: dict[str, tuple[bool, bool]] = {
    "statistical_parity": (False, False),
    "equal_opportunity": (True, False),
    "false_positive_rate_parity": (True, False),
    "equalized_odds": (True, False),
    "predictive_parity": (True, True),
    "negative_predictive_parity": (True, True),
    "accuracy_parity": (True, True),
    "bounded_loss_parity": (True, False),
}
_ALIASES = {
    "demographic_parity": "statistical_parity",
    "true_positive_rate_parity": "equal_opportunity",
}
_LOSSES = ("absolute", "squared")
#: Individuals looked at when designs are compared, and elements of their values.
_FEWEST_PLANNED, _MOST_PLANNED, _PLANNED = 100, 2000, 2**17


@dataclass(frozen=True, eq=False)
class FairnessQuery:
    """Ask for the group means of one or several value vectors on one subset.

    Parameters
    ----------
    values : ndarray of shape (n_models, n_subset), values in [0, 1]
        Public values, one row a model.
    subset : ndarray of shape (n_subset,) or None
        Positions in the evaluation set; None means everyone.
    weights : ndarray of shape (n_subset,) or None
        Public non-negative sample weights; None means ones.
    known : RowMoments, default=None
        What the values' validation already found out about them.
    """

    values: FloatArray
    subset: IntArray | None = None
    weights: FloatArray | None = None
    known: RowMoments | None = field(default=None, repr=False)

    @property
    def n_subset(self) -> int:
        """Number of individuals the query is about."""
        return int(self.values.shape[1])

    @property
    def is_binary(self) -> bool:
        """Whether every value is 0 or 1 (public)."""
        # A glance at the first values settles it for probabilities.
        parts = (self.values[:1, :1000], self.values)
        return all(bool(np.all((values == 0) | (values == 1))) for values in parts)

    @property
    def total_weight(self) -> float:
        """Sum of the weights: the number of individuals when there are none."""
        return float(self.n_subset if self.weights is None else self.weights.sum())

    def totals(self) -> FloatArray:
        """Return the public weighted sums of the values, shape (n_models,)."""
        if self.weights is None:
            return self._moments.sums
        return np.asarray(self.values @ self.weights, dtype=np.float64)

    def square_totals(self) -> FloatArray:
        """Return the public sums of squared weighted values, shape (n_models,)."""
        if self.weights is None:
            return self._moments.squares
        squares = self.weights * self.weights
        parts = map_row_blocks(lambda rows, where: np.einsum("ij,ij,j->i", rows, rows, squares), self.values)
        return np.concatenate(parts)

    @cached_property
    def _moments(self) -> RowMoments:
        """Read a large matrix once, not once for each of its sums."""
        return row_moments(self.values) if self.known is None else self.known

    @cached_property
    def sample(self) -> FairnessQuery:
        """The query of some evenly spaced individuals, for public planning."""
        columns = planning_columns(*self.values.shape)
        if columns.step == 1:
            return self
        weights = None if self.weights is None else self.weights[columns]
        return FairnessQuery(np.ascontiguousarray(self.values[:, columns]), None, weights)

    def restrict(self, codes: IntArray) -> IntArray:
        """Return the group codes of the subset, given those of the evaluation set."""
        return codes if self.subset is None else codes[self.subset]


@dataclass(frozen=True, eq=False)
class QueryBatch:
    """One metric of one or several models on one evaluation set.

    Parameters
    ----------
    metric : str
        Canonical metric name.
    queries : tuple of FairnessQuery
        Together they hold every row that the metric needs.
    rows : ndarray of shape (n_models, n_parts)
        Which stacked rows make up the answer of each model: one, or two for
        equalised odds (true and false positive rate).
    n_samples : int
        Size of the evaluation set.
    scale : float
        The answer is this multiple of a gap of values in [0, 1].
    """

    metric: str
    queries: tuple[FairnessQuery, ...]
    rows: IntArray
    n_samples: int
    scale: float = 1.0

    @property
    def n_models(self) -> int:
        """Number of models asked about."""
        return int(self.rows.shape[0])

    @property
    def n_rows(self) -> int:
        """Number of stacked value rows over all queries."""
        return sum(query.values.shape[0] for query in self.queries)

    @property
    def multiplicity(self) -> int:
        """Largest number of queries of the batch that one individual is part of."""
        if len(self.queries) == 1:
            return 1
        count = np.zeros(self.n_samples, dtype=np.int64)
        for query in self.queries:
            count[slice(None) if query.subset is None else query.subset] += 1
        return int(count.max())

    @property
    def is_weighted(self) -> bool:
        """Whether any query carries sample weights."""
        return any(query.weights is not None for query in self.queries)

    def charged_subset(self) -> IntArray | None:
        """Return the positions that the answer may depend on; None means everyone.

        Subsets that come from ``y_true`` are exact. Those that come from predictions
        differ for every model, so the whole evaluation set is charged: never less than
        the true cost, and the ledger stays small.
        """
        if self.metric in ("equal_opportunity", "false_positive_rate_parity"):
            return self.queries[0].subset
        return None


def planning_columns(n_models: int, n_subset: int) -> slice:
    """Return which individuals suffice to compare mechanisms and designs on public values."""
    return slice(
        None, None, max(1, n_subset // max(_FEWEST_PLANNED, min(_MOST_PLANNED, _PLANNED // n_models)))
    )


def canonical_metric(metric: str) -> tuple[str, bool]:
    """Return the canonical name of a metric and whether its ratio is asked for.

    Examples
    --------
    >>> from sklearn_fairleak.queries import canonical_metric
    >>> canonical_metric("demographic_parity_ratio")
    ('statistical_parity', True)
    """
    if not isinstance(metric, str):
        raise ValueError(
            f"metric must be one of the names {sorted([*METRICS, *_ALIASES])}, got {metric!r}. Arbitrary "
            "functions are refused: no bound is known on what one individual can change in them."
        )
    name, ratio = metric, False
    for suffix, is_ratio in (("_ratio", True), ("_difference", False)):
        if name.endswith(suffix):
            name, ratio = name.removesuffix(suffix), is_ratio
    name = _ALIASES.get(name, name)
    if name not in METRICS:
        raise ValueError(
            f"metric={metric!r} is not supported. Supported metrics: {sorted([*METRICS, *_ALIASES])}, each "
            "also with the suffix '_ratio' or '_difference'."
        )
    return name, ratio


def make_queries(
    metric: str,
    y_pred: Any,
    y_true: Any = None,
    *,
    sample_weight: Any = None,
    pos_label: Any = None,
    bounds: tuple[float, float] | None = None,
    loss: str = "absolute",
) -> QueryBatch:
    """Turn a metric, labels and predictions into public values and subsets.

    Parameters
    ----------
    metric : str
        A name of :data:`METRICS`, or fairlearn's alias.
    y_pred : array-like of shape (n_samples,) or (n_models, n_samples)
        Label or probability predictions.
    y_true : array-like of shape (n_samples,), default=None
        True labels; needed by every metric but statistical parity.
    sample_weight : array-like of shape (n_samples,), default=None
        Public non-negative weights.
    pos_label : object, default=None
        The positive label; needed unless the labels are bool, {0, 1} or {-1, 1}.
    bounds : tuple of two floats, default=None
        Public bounds to which real-valued predictions (and labels, for
        ``bounded_loss_parity``) are clipped.
    loss : {"absolute", "squared"}, default="absolute"
        Loss of ``bounded_loss_parity``, as fairlearn's ``AbsoluteLoss`` and ``SquareLoss``.

    Returns
    -------
    QueryBatch

    Raises
    ------
    ValueError
        If an input is not what the metric needs: wrong length, missing or non-finite
        values, predictions outside [0, 1], labels without ``pos_label``, probabilities
        given to a metric of labels, an empty subset, fewer than 2 individuals.

    Examples
    --------
    >>> from sklearn_fairleak.queries import make_queries
    >>> batch = make_queries("equal_opportunity", [1, 0, 1], [1, 0, 1])
    >>> batch.queries[0].values, batch.queries[0].subset
    (array([[1., 1.]]), array([0, 2]))
    """
    name, _ = canonical_metric(metric)
    needs_y, needs_labels = METRICS[name]
    predictions, known = _predictions(y_pred, pos_label, bounds, needs_labels, name)
    n_samples = predictions.shape[1]
    if n_samples < 2:
        raise ValueError(f"A fairness query needs at least 2 individuals, got {n_samples}.")
    weights = _weights(sample_weight, n_samples)
    if not needs_y:
        positive = None
    elif y_true is None:
        raise ValueError(f"metric={metric!r} needs y_true (the true labels), got None.")
    elif name == "bounded_loss_parity":
        return _loss_batch(predictions, y_true, weights, pos_label, bounds, loss)
    else:
        positive = indicator(y_true, pos_label, "y_true")
        if positive.shape != (n_samples,):
            raise ValueError(
                f"y_true and y_pred must have the same length, got {positive.shape[0]} and {n_samples}."
            )
    scale = 1.0 if bounds is None or needs_labels else float(bounds[1]) - float(bounds[0])
    if positive is None:
        queries: tuple[FairnessQuery, ...] = (FairnessQuery(predictions, None, weights, known),)
        parts = 1
    else:
        queries, parts = _parts(name, predictions, positive, weights)
    n_models = predictions.shape[0]
    rows = np.arange(n_models * parts, dtype=np.int64).reshape(parts, n_models).T
    return QueryBatch(name, queries, np.ascontiguousarray(rows), n_samples, scale)


def _parts(
    name: str, predictions: FloatArray, positive: npt.NDArray[np.bool_], weights: FloatArray | None
) -> tuple[tuple[FairnessQuery, ...], int]:
    """Build the queries of a metric of labels, and say how many rows make one answer."""
    if name == "accuracy_parity":
        correct = (predictions == positive).astype(np.float64)
        return (FairnessQuery(correct, None, weights),), 1
    if name in ("predictive_parity", "negative_predictive_parity"):
        wanted, target = (1.0, positive) if name == "predictive_parity" else (0.0, ~positive)
        where = f"predicted {'positive' if wanted else 'negative'}"
        values = target.astype(np.float64)[None, :]
        return tuple(_on(values, row == wanted, weights, where) for row in predictions), 1
    if name == "equal_opportunity":
        return (_on(predictions, positive, weights, "with y_true positive"),), 1
    if name == "false_positive_rate_parity":
        return (_on(predictions, ~positive, weights, "with y_true negative"),), 1
    return (
        _on(predictions, positive, weights, "with y_true positive"),
        _on(predictions, ~positive, weights, "with y_true negative"),
    ), 2


def _on(
    values: FloatArray, mask: npt.NDArray[np.bool_], weights: FloatArray | None, where: str
) -> FairnessQuery:
    """Restrict values to a public subset that must not be (nearly) empty."""
    subset = np.flatnonzero(mask)
    if subset.size < 2:
        raise ValueError(f"The metric needs at least 2 individuals {where}, got {subset.size}.")
    kept = None if weights is None else weights[subset]
    if kept is not None and not kept.sum() > 0:
        raise ValueError(f"All sample weights of the individuals {where} are zero.")
    return FairnessQuery(np.ascontiguousarray(values[:, subset]), subset, kept)


def _loss_batch(
    predictions: FloatArray,
    y_true: Any,
    weights: FloatArray | None,
    pos_label: Any,
    bounds: tuple[float, float] | None,
    loss: str,
) -> QueryBatch:
    """Build the bounded-loss query; predictions are already rescaled to [0, 1]."""
    if loss not in _LOSSES:
        raise ValueError(f"loss must be one of {_LOSSES}, got {loss!r}.")
    low, high = (0.0, 1.0) if bounds is None else (float(bounds[0]), float(bounds[1]))
    if bounds is None:
        truth = indicator(y_true, pos_label, "y_true").astype(np.float64)
    else:
        column = np.asarray(as_column(y_true, "y_true"), dtype=np.float64)
        if not np.isfinite(column).all():
            raise ValueError("y_true holds NaN or infinite values.")
        truth = (np.clip(column, low, high) - low) / (high - low)
    if truth.shape != (predictions.shape[1],):
        raise ValueError(
            f"y_true and y_pred must have the same length, got {truth.shape[0]} and {predictions.shape[1]}."
        )
    values = np.abs(predictions - truth)
    scale = high - low
    if loss == "squared":
        values, scale = values * values, scale * scale
    n_models = predictions.shape[0]
    query = FairnessQuery(values, None, weights)
    rows = np.arange(n_models, dtype=np.int64)[:, None]
    return QueryBatch("bounded_loss_parity", (query,), rows, predictions.shape[1], scale)


def _predictions(
    y_pred: Any, pos_label: Any, bounds: tuple[float, float] | None, needs_labels: bool, metric: str
) -> tuple[FloatArray, RowMoments | None]:
    """Return predictions as float64 in [0, 1], shape (n_models, n_samples), and what was seen of them."""
    if isinstance(y_pred, np.ndarray) and y_pred.ndim == 2:
        matrix = y_pred
    elif isinstance(y_pred, Sequence) and y_pred and isinstance(y_pred[0], list | tuple | np.ndarray):
        matrix = np.asarray(y_pred)
    else:
        matrix = as_column(y_pred, "y_pred")[None, :]
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"y_pred must not be empty and of one or two dimensions, got shape {matrix.shape}.")
    numeric = matrix.dtype.kind in "iuf"
    if bounds is not None and not needs_labels:
        low, high = _check_bounds(bounds)
        if not numeric:
            raise ValueError(f"bounds are for numeric predictions, got y_pred of dtype {matrix.dtype}.")
        clipped = np.clip(matrix.astype(np.float64), low, high)
        if np.isnan(clipped).any():
            raise ValueError("y_pred holds NaN.")
        return (clipped - low) / (high - low), None
    if numeric and pos_label is None:
        values = np.ascontiguousarray(matrix, dtype=np.float64)
        seen = row_moments(values)
        in_range = seen.low >= 0.0 and seen.high <= 1.0
        if in_range and not needs_labels:
            return values, seen
        if in_range and bool(np.all((values == 0) | (values == 1))):
            return values, seen
        if in_range:
            raise ValueError(
                f"metric={metric!r} is about predicted labels, got y_pred with values strictly between 0 and "
                "1. Pass labels (for example y_prob >= 0.5), or a metric that accepts probabilities."
            )
    elif numeric and not needs_labels:
        values = np.ascontiguousarray(matrix, dtype=np.float64)
        if values.min() >= 0 and values.max() <= 1 and bool(np.any((values != 0) & (values != 1))):
            return values, None
    flat = indicator(matrix.ravel(), pos_label, "y_pred", probabilities=not needs_labels)
    return flat.reshape(matrix.shape).astype(np.float64), None


def _check_bounds(bounds: Any) -> tuple[float, float]:
    """Return public bounds as two finite increasing floats."""
    try:
        low, high = (float(b) for b in bounds)
    except (TypeError, ValueError):
        raise ValueError(f"bounds must be a pair (low, high) of numbers, got {bounds!r}.") from None
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"bounds must be finite with low < high, got {bounds!r}.")
    return low, high


def _weights(sample_weight: Any, n_samples: int) -> FloatArray | None:
    """Return validated sample weights as float64."""
    if sample_weight is None:
        return None
    weights = np.asarray(as_column(sample_weight, "sample_weight"), dtype=np.float64)
    if weights.shape != (n_samples,):
        raise ValueError(f"sample_weight must have length {n_samples}, got {weights.shape[0]}.")
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise ValueError("sample_weight must be finite and non-negative.")
    if not weights.sum() > 0:
        raise ValueError("sample_weight must not be all zero.")
    return None if bool(np.all(weights == 1.0)) else weights
