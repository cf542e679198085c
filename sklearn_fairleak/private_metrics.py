"""Private versions of fairlearn's scalar fairness metrics, with the same signature.

A metric function of fairlearn comes in; a function that answers from a private metric frame
goes out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import numpy as np

__all__ = ["ScorerMetric", "make_private_metric"]

_METHODS = ("between_groups", "to_overall")
_AGGREGATES = ("worst_case", "mean")


def make_private_metric(
    metric: Callable[..., Any],
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    mechanism: Any = "noisy_sums",
    ledger: Any = None,
    groups: Any = None,
    bounds: tuple[float, float] | None = None,
    pos_label: Any = None,
    random_state: int | None = None,
) -> Callable[..., float]:
    """Make a private version of one of fairlearn's fairness metrics.

    Parameters
    ----------
    metric : callable
        ``demographic_parity_difference`` or ``_ratio``, ``equalized_odds_difference`` or
        ``_ratio``, ``equal_opportunity_difference`` or ``_ratio`` of fairlearn, or what
        :func:`fairlearn.metrics.make_derived_metric` made of a supported metric.
    epsilon : float, default=1.0
        Privacy parameter of each call, in nats.
    delta : float, default=0.0
        Probability at which the guarantee of a call may fail.
    mechanism, ledger, groups, bounds, pos_label, random_state
        See :class:`~sklearn_fairleak.PrivateMetricFrame`. Without a ledger nobody adds up
        several calls: each has a budget of its own.

    Returns
    -------
    callable
        Of the same signature: ``f(y_true, y_pred, *, sensitive_features, ...)``.

    Raises
    ------
    ValueError
        If the metric is not one of those.

    Notes
    -----
    In :func:`sklearn.metrics.make_scorer` with routing, call
    ``set_score_request(sensitive_features=True)``. Different folds of a cross-validation are
    different data sets for a ledger: leave ``ledger`` None there, or use
    :class:`~sklearn_fairleak.PrivateFairnessScorer`, whose ledger knows individuals.

    Examples
    --------
    >>> from fairlearn.metrics import demographic_parity_difference
    >>> from sklearn_fairleak import make_private_metric
    >>> private = make_private_metric(demographic_parity_difference, epsilon=1.0)
    >>> gap = private([0, 1] * 200, [0, 1, 1, 1] * 100, sensitive_features=["f", "m"] * 200)
    >>> 0.4 < gap < 0.6
    True
    """
    bases, transform, kind = _parts(metric)
    settings = {
        "epsilon": epsilon,
        "delta": delta,
        "mechanism": mechanism,
        "ledger": ledger,
        "groups": groups,
        "bounds": bounds,
        "pos_label": pos_label,
        "random_state": random_state,
    }
    sample_names = getattr(metric, "_sample_param_names", ["sample_weight"])

    def private(
        y_true: Any,
        y_pred: Any,
        *,
        sensitive_features: Any,
        method: str = "between_groups",
        agg: str = "worst_case",
        **others: Any,
    ) -> float:
        if method not in _METHODS:
            raise ValueError(f"method must be one of {_METHODS}, got {method!r}.")
        if agg not in _AGGREGATES:
            raise ValueError(f"agg must be one of {_AGGREGATES}, got {agg!r}.")
        from .frames import PrivateMetricFrame

        samples = {name: others.pop(name) for name in list(others) if name in sample_names}
        functions = {name: partial(base, **others) if others else base for name, base in bases.items()}
        frame = PrivateMetricFrame(
            metrics=functions,
            y_true=y_true,
            y_pred=y_pred,
            sensitive_features=sensitive_features,
            sample_params=dict.fromkeys(functions, samples),
            **settings,
        )
        if transform in ("group_min", "group_max"):
            return float(getattr(frame, transform)().iloc[0])
        values = getattr(frame, transform)(method=method)
        if agg == "mean":
            return float(values.mean())
        return float(values.max() if transform == "difference" else values.min())

    if kind == "derived":
        return private
    signed = wraps(metric)(private)
    signed.__signature__ = inspect.signature(metric)  # type: ignore[attr-defined]
    signed.__name__ = f"private_{metric.__name__}"
    return signed


def _parts(metric: Callable[..., Any]) -> tuple[dict[str, Callable[..., Any]], str, str]:
    """Return the group metrics behind a fairness metric, and how they are combined."""
    import fairlearn.metrics as fl

    families = {
        "demographic_parity": {"selection_rate": fl.selection_rate},
        "equal_opportunity": {"tpr": fl.true_positive_rate},
        "equalized_odds": {"tpr": fl.true_positive_rate, "fpr": fl.false_positive_rate},
    }
    for family, bases in families.items():
        for transform in ("difference", "ratio"):
            if metric is not None and metric is getattr(fl, f"{family}_{transform}", None):
                return bases, transform, "named"
    base, derived = getattr(metric, "_metric_fn", None), str(getattr(metric, "_transform", ""))
    if base is not None and derived in ("difference", "ratio", "group_min", "group_max"):
        from .group_metrics import supported_metrics

        inner = base
        while isinstance(inner, partial):
            inner = inner.func
        if inner in supported_metrics():
            return {"value": base}, derived, "derived"
    named = [f"{family}_{transform}" for family in families for transform in ("difference", "ratio")]
    raise ValueError(
        f"{getattr(metric, '__name__', metric)!r} has no private version. Supported are {named} of "
        "fairlearn.metrics, and make_derived_metric(...) of a metric that is a function of group sums."
    )


class ScorerMetric:
    """A metric function that asks a scorer; it carries a handle, never attributes."""

    def __init__(self, scorer: Any) -> None:
        self.scorer = scorer
        self.__name__ = f"private_{scorer.metric}"

    def __call__(
        self, y_true: Any, y_pred: Any, *, sample_ids: Any = None, sample_weight: Any = None
    ) -> float:
        if sample_ids is None:
            sample_ids = self.scorer.auditor_.find_rows(y_true, None, None, None).ids
        answer = self.scorer.answer(
            np.asarray(y_pred), np.asarray(y_true), sample_ids=sample_ids, sample_weight=sample_weight
        )
        return float(answer)
