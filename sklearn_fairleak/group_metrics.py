"""Which metrics of a group are functions of group sums, and which sums they need.

Metric functions of fairlearn and scikit-learn come in, recognised by identity; public vectors
and formulas of their group sums go out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .labels import as_column, indicator

__all__ = ["GroupMetric", "describe_metric", "recognise_metric", "summed_metric", "supported_metrics"]

FloatArray = npt.NDArray[np.float64]

_LABELS = (
    "true_positive_rate",
    "true_negative_rate",
    "false_positive_rate",
    "false_negative_rate",
    "recall_score",
    "precision_score",
    "f1_score",
    "fbeta_score",
    "balanced_accuracy_score",
)
_LOSSES = ("mean_absolute_error", "mean_squared_error", "root_mean_squared_error", "log_loss")
_MATCHES = ("accuracy_score", "zero_one_loss")
#: Keyword arguments that functools.partial may bind.
_OPTIONS = {"pos_label", "zero_division", "beta"}
Term = tuple[tuple[float, ...], tuple[float, ...] | None]


@dataclass(frozen=True, eq=False)
class GroupMetric:
    """A metric as a formula of the group sums of public vectors.

    Parameters
    ----------
    name : str
        Name of the metric function.
    vectors : ndarray of shape (n_vectors, n_samples), values in [0, 1]
        Public vectors whose group sums the metric is made of.
    terms : tuple of (numerator, denominator)
        Coefficients of the sums; the metric is the mean of the quotients. Without a
        denominator the sum itself.
    low, high : float
        Public bounds of the metric's values.
    root : bool
        Whether the square root is taken at the end.
    weights : ndarray of shape (n_samples,) or None
        Public sample weights.
    summed : bool
        Whether samples stand for many individuals each: the first vector then holds means of their
        values on the grid, and is never taken for an indicator.
    """

    name: str
    vectors: FloatArray
    terms: tuple[Term, ...]
    low: float = 0.0
    high: float = 1.0
    root: bool = False
    weights: FloatArray | None = None
    summed: bool = False

    @property
    def is_count(self) -> bool:
        """Whether the metric is a sum, and so without upper bound but the number of samples."""
        return self.terms[0][1] is None

    def is_defined(self, sums: FloatArray) -> npt.NDArray[np.bool_]:
        """Say in which groups no denominator is zero; sums of shape (..., n_vectors)."""
        defined = np.ones(sums.shape[:-1], dtype=bool)
        for _, below in self.terms:
            if below is not None:
                defined &= sums @ np.asarray(below) > 0
        return defined

    def evaluate(self, sums: FloatArray, ends: FloatArray | None = None) -> FloatArray:
        """Return the metric of (noisy) group sums, kept within its bounds.

        Parameters
        ----------
        sums : ndarray of shape (..., n_vectors)
            Group sums.
        ends : ndarray of shape (...), default=None
            Value in [0, 1] of a quotient without a denominator; 1/2 by default.
        """
        if self.is_count:
            return np.maximum(sums @ np.asarray(self.terms[0][0]), 0.0)
        least = 0.5 if self.weights is None else 0.5 * float(self.weights.mean())
        parts = []
        for above, below in self.terms:
            divisor = sums @ np.asarray(below)
            empty = divisor < least
            quotient = np.clip((sums @ np.asarray(above)) / np.where(empty, 1.0, divisor), 0.0, 1.0)
            parts.append(np.where(empty, 0.5 if ends is None else ends, quotient))
        value = self.low + (self.high - self.low) * np.mean(parts, axis=0)
        return np.asarray(np.sqrt(value) if self.root else value)


def supported_metrics() -> dict[Callable[..., Any], str]:
    """Return the metric functions of fairlearn and scikit-learn that are functions of group sums."""
    import fairlearn.metrics as ours
    import sklearn.metrics as theirs

    names = ("count", "selection_rate", "mean_prediction", *_LABELS, *_MATCHES, *_LOSSES)
    found = ((getattr(ours, name, None) or getattr(theirs, name, None), name) for name in names)
    return {function: name for function, name in found if function is not None}


def recognise_metric(metric: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of a supported metric function, and the options that a partial binds.

    Raises
    ------
    ValueError
        If the metric is no function of group sums.
    """
    options: dict[str, Any] = {}
    function = metric
    while isinstance(function, partial):
        options = {**function.keywords, **options}
        if function.args or set(options) - _OPTIONS:
            raise ValueError(
                f"Only {sorted(_OPTIONS)} may be bound by functools.partial, got {function.args!r} and "
                f"{sorted(options)}. Give per-sample arguments as sample_params."
            )
        function = function.func
    known = supported_metrics()
    name = known.get(function)
    if name is None:
        called = getattr(metric, "__name__", repr(metric))
        raise ValueError(
            f"{called} is not known to be a function of group sums, so it cannot be released from private sums. "
            f"Supported are these functions of fairlearn.metrics and sklearn.metrics: {sorted(known.values())}."
        )
    return name, options


def describe_metric(
    metric: Callable[..., Any],
    y_true: Any,
    y_pred: Any,
    *,
    weights: Any = None,
    bounds: tuple[float, float] | None = None,
    pos_label: Any = None,
) -> GroupMetric:
    """Write a metric function as a formula of group sums.

    Parameters
    ----------
    metric : callable
        A function of :func:`supported_metrics`, or a functools.partial of one that binds
        ``pos_label``, ``zero_division`` or ``beta``.
    y_true, y_pred : array-like of shape (n_samples,)
        Labels or targets, and predictions.
    weights : array-like of shape (n_samples,), default=None
        Public sample weights.
    bounds : tuple of two floats, default=None
        Public bounds of targets and predictions, for regression losses and
        ``mean_prediction``; of probabilities for ``log_loss``.
    pos_label : object, default=None
        The positive label.

    Returns
    -------
    GroupMetric

    Raises
    ------
    ValueError
        If the metric is no function of group sums, or an input is malformed.

    Examples
    --------
    >>> from fairlearn.metrics import selection_rate
    >>> from sklearn_fairleak.group_metrics import describe_metric
    >>> described = describe_metric(selection_rate, [0, 1, 1], [1, 0, 1])
    >>> float(described.evaluate(described.vectors.sum(axis=1)))
    0.6666666666666666
    """
    name, options = recognise_metric(metric)
    pos_label = options.get("pos_label", pos_label)
    share = _sample_weights(weights, name)
    truth, guess = as_column(y_true, "y_true"), as_column(y_pred, "y_pred")
    if truth.shape != guess.shape or truth.size == 0:
        raise ValueError(
            f"y_true and y_pred must be columns of the same length, got {truth.shape} and {guess.shape}."
        )
    if share is not None and share.shape != truth.shape:
        raise ValueError(f"sample_weight must have length {truth.size}, got {share.shape[0]}.")
    ones = np.ones(truth.size)
    if name == "count":
        return GroupMetric(name, ones[None], (((1.0,), None),))
    if name in _MATCHES:
        same = (truth == guess) if name == "accuracy_score" else (truth != guess)
        if np.shape(same) != truth.shape:
            raise ValueError(f"{name}: y_true and y_pred must hold labels of one type.")
        return _share(name, np.asarray(same, dtype=float), ones, share)
    if name == "selection_rate":
        return _share(name, indicator(guess, pos_label, "y_pred").astype(float), ones, share)
    if name == "mean_prediction":
        values, low, high = _scaled(guess, bounds, name)
        return GroupMetric(name, np.stack([values, ones]), _quotient(), low, high, weights=share)
    if name in _LOSSES:
        return _loss(name, truth, guess, bounds, share, pos_label)
    return _rates(name, truth, guess, share, pos_label, float(options.get("beta", 1.0)))


def summed_metric(name: str, means: FloatArray, limits: tuple[float, float]) -> GroupMetric:
    """Describe a metric of real values by the means of its scaled values over groups of samples.

    Parameters
    ----------
    name : str
        ``mean_prediction`` or a loss.
    means : ndarray of shape (n_rows,)
        Means of the values, scaled to [0, 1].
    limits : tuple of two floats
        What 0 and 1 stand for.
    """
    vectors = np.stack([means, np.ones(means.size)])
    root = name == "root_mean_squared_error"
    return GroupMetric(name, vectors, _quotient(), *limits, root=root, summed=True)


def _quotient() -> tuple[Term, ...]:
    """Return the formula of a first sum over a second."""
    return (((1.0, 0.0), (0.0, 1.0)),)


def _share(name: str, values: FloatArray, among: FloatArray, weights: FloatArray | None) -> GroupMetric:
    """Make the share of ``values`` among some samples a metric."""
    return GroupMetric(name, np.stack([values, among]), _quotient(), weights=weights)


def _rates(
    name: str, truth: Any, guess: Any, weights: FloatArray | None, pos_label: Any, beta: float
) -> GroupMetric:
    """Describe metrics of the confusion matrix."""
    pos, sel = indicator(truth, pos_label, "y_true"), indicator(guess, pos_label, "y_pred")
    sides = {
        "true_positive_rate": (pos & sel, pos),
        "recall_score": (pos & sel, pos),
        "false_negative_rate": (pos & ~sel, pos),
        "true_negative_rate": (~pos & ~sel, ~pos),
        "false_positive_rate": (~pos & sel, ~pos),
        "precision_score": (pos & sel, sel),
    }
    if name in sides:
        above, among = sides[name]
        return _share(name, above.astype(float), among.astype(float), weights)
    if name == "balanced_accuracy_score":
        vectors = np.stack([pos & sel, pos, ~pos & ~sel, ~pos]).astype(float)
        terms: tuple[Term, ...] = (
            ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)),
            ((0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0)),
        )
        return GroupMetric(name, vectors, terms, weights=weights)
    square = beta * beta
    vectors = np.stack([pos & sel, pos, sel]).astype(float)
    return GroupMetric(name, vectors, (((1.0 + square, 0.0, 0.0), (0.0, square, 1.0)),), weights=weights)


def _loss(
    name: str,
    truth: Any,
    guess: Any,
    bounds: tuple[float, float] | None,
    weights: FloatArray | None,
    pos_label: Any,
) -> GroupMetric:
    """Describe a mean loss of public bounds."""
    if bounds is None:
        raise ValueError(
            f"{name} has no public upper limit: give bounds=(low, high) of targets and predictions "
            "(of probabilities for log_loss, such as (0.01, 0.99)), chosen without looking at the data."
        )
    guess, low, high = _scaled(guess, bounds, "y_pred")
    if name == "log_loss":
        if not 0.0 < low < high < 1.0:
            raise ValueError(f"bounds of log_loss must lie strictly within (0, 1), got {bounds!r}.")
        chance = low + (high - low) * guess
        own = np.where(indicator(truth, pos_label, "y_true"), chance, 1.0 - chance)
        most = -np.log(min(low, 1.0 - high))
        values = -np.log(own) / most
    else:
        truth, _, _ = _scaled(truth, bounds, "y_true")
        values, most = np.abs(guess - truth), high - low
        if name != "mean_absolute_error":
            values, most = values * values, most * most
    vectors = np.stack([values, np.ones(values.size)])
    root = name == "root_mean_squared_error"
    return GroupMetric(name, vectors, _quotient(), 0.0, float(most), root, weights)


def _scaled(column: Any, bounds: tuple[float, float] | None, name: str) -> tuple[FloatArray, float, float]:
    """Return numbers clipped to their public bounds and moved to [0, 1]."""
    if column.dtype.kind not in "iufb":
        raise ValueError(f"{name} needs numbers, got values of dtype {column.dtype}.")
    numbers = column.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} holds NaN or infinite values.")
    if bounds is None:
        if numbers.min() < 0.0 or numbers.max() > 1.0:
            raise ValueError(f"{name}: predictions outside [0, 1] need public bounds=(low, high).")
        return numbers, 0.0, 1.0
    low, high = (float(bound) for bound in bounds)
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"bounds must be finite with low < high, got {bounds!r}.")
    return (np.clip(numbers, low, high) - low) / (high - low), low, high


def _sample_weights(weights: Any, name: str) -> FloatArray | None:
    """Return validated public weights."""
    if weights is None:
        return None
    if name == "count":
        raise ValueError("count takes no sample_weight.")
    column = np.asarray(as_column(weights, "sample_weight"), dtype=np.float64)
    if not np.isfinite(column).all() or column.min() < 0 or not column.sum() > 0:
        raise ValueError("sample_weight must be finite, non-negative and not all zero.")
    return column
