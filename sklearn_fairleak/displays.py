"""Figures of leakage, error, reconstruction, budget and groups, as scikit-learn Displays.

Results come in; a display with ``ax_`` and ``figure_`` goes out. Colours are those of Okabe &
Ito, distinct for colour-blind readers, and every series has its own marker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "GroupMetricDisplay",
    "LeakageCurveDisplay",
    "LedgerDisplay",
    "PrivacyUtilityDisplay",
    "ReconstructionDisplay",
]

FloatArray = npt.NDArray[np.float64]

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


class _Display:
    """Give every display the same door: ``plot(ax=None)`` sets ``ax_`` and ``figure_``."""

    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Any:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

        Returns
        -------
        self
        """
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots(figsize=(6, 4), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        self._draw(ax)
        return self

    def _draw(self, ax: Any) -> None:
        raise NotImplementedError


def _styles() -> Any:
    """Yield a colour and a marker for each series."""
    return cycle(
        [
            {"color": colour, "marker": marker, "ms": 5, "lw": 1.6}
            for colour, marker in zip(_COLOURS, _MARKERS, strict=True)
        ]
    )


class LeakageCurveDisplay(_Display):
    """Leakage against the number of queries or against epsilon.

    Parameters
    ----------
    x : array-like of shape (n_points,)
        Numbers of queries, or epsilons.
    leakage : mapping of str to array-like of shape (n_points,)
        Leakage in [0, 1] of each attack.
    x_name : str, default="number of queries"
        What x is.

    Attributes
    ----------
    ax_, figure_ : matplotlib objects
        Set by :meth:`plot`.

    Examples
    --------
    >>> from sklearn_fairleak.displays import LeakageCurveDisplay
    >>> display = LeakageCurveDisplay([10, 20], {"box": [0.6, 1.0]}).plot()  # doctest: +SKIP
    """

    def __init__(self, x: Any, leakage: Mapping[str, Any], *, x_name: str = "number of queries") -> None:
        self.x = np.asarray(x, dtype=np.float64)
        self.leakage = {name: np.asarray(values, dtype=np.float64) for name, values in leakage.items()}
        self.x_name = x_name
        for name, values in self.leakage.items():
            if values.shape != self.x.shape:
                raise ValueError(
                    f"leakage[{name!r}] must have one value for each of the {self.x.size} x, got {values.shape}."
                )

    @classmethod
    def from_estimator(
        cls,
        attack: Any,
        oracle: Any,
        X: Any,
        sensitive_features: Any,
        *,
        n_queries: Sequence[int],
        y: Any = None,
        name: str | None = None,
        ax: Any = None,
    ) -> LeakageCurveDisplay:
        """Run an attack at several numbers of queries and draw what leaks.

        Parameters
        ----------
        attack : AttributeRevealAttack
            Cloned for every number of queries.
        oracle : callable
            ``oracle(y_pred) -> float``.
        X : array-like of shape (n_individuals, n_features) or (n_individuals,)
            As in ``attack.run``.
        sensitive_features : array-like of shape (n_individuals,)
            The truth, 1 for the advantaged group.
        n_queries : sequence of int
            Numbers of queries to try.
        y : array-like of shape (n_individuals,), default=None
            Labels.
        name : str, default=None
            Name in the legend; the strategy by default.
        ax : matplotlib Axes, default=None
            Where to draw.

        Returns
        -------
        LeakageCurveDisplay
        """
        from sklearn.base import clone

        values = [
            clone(attack).set_params(n_queries=m).run(oracle, X, y).leakage(sensitive_features)
            for m in n_queries
        ]
        return cls(n_queries, {name or attack.strategy: values}).plot(ax)

    @classmethod
    def from_results(
        cls, results: Any, *, x: str = "queries", ax: Any = None, x_name: str | None = None
    ) -> LeakageCurveDisplay:
        """Draw a table of results with columns ``x``, ``leakage`` and ``attack``.

        Parameters
        ----------
        results : DataFrame
            One row a point.
        x : str, default="queries"
            Column of the horizontal axis, such as ``"epsilon"``.
        ax : matplotlib Axes, default=None
            Where to draw.
        x_name : str, default=None
            Label of the axis.

        Returns
        -------
        LeakageCurveDisplay
        """
        table = results.pivot_table(index=x, columns="attack", values="leakage")
        curves = {str(name): table[name].to_numpy() for name in table.columns}
        return cls(table.index.to_numpy(), curves, x_name=x_name or x).plot(ax)

    def _draw(self, ax: Any) -> None:
        """Draw one curve an attack, and the line of guessing."""
        for (name, values), style in zip(self.leakage.items(), _styles(), strict=False):
            ax.plot(self.x, values, label=name, **style)
        ax.axhline(0.5, color="0.4", lw=1, ls=":", label="guessing")
        if self.x.size > 1 and self.x.min() > 0 and self.x.max() / self.x.min() > 50:
            ax.set_xscale("log")
        ax.set(xlabel=self.x_name, ylabel="leakage (balanced accuracy)", ylim=(0.45, 1.02))
        ax.legend(frameon=False)


class PrivacyUtilityDisplay(_Display):
    """Error of answers against epsilon, one curve a mechanism.

    Parameters
    ----------
    epsilon : array-like of shape (n_points,)
        Privacy parameters.
    error : mapping of str to array-like of shape (n_points,)
        Absolute error of each mechanism.
    """

    def __init__(self, epsilon: Any, error: Mapping[str, Any]) -> None:
        self.epsilon = np.asarray(epsilon, dtype=np.float64)
        self.error = {name: np.asarray(values, dtype=np.float64) for name, values in error.items()}

    @classmethod
    def from_plan(
        cls,
        n_samples: int,
        *,
        epsilon: Any = (0.1, 0.2, 0.5, 1.0, 2.0),
        ax: Any = None,
        **guesses: Any,
    ) -> PrivacyUtilityDisplay:
        """Draw the expected errors of :func:`sklearn_fairleak.planning.plan`.

        Parameters
        ----------
        n_samples : int
            As in ``plan``.
        epsilon : array-like of float
            Privacy parameters to try.
        ax : matplotlib Axes, default=None
            Where to draw.
        **guesses
            Passed on to ``plan``: ``n_queries``, ``delta``, ``minority_share``, …

        Returns
        -------
        PrivacyUtilityDisplay
        """
        import warnings

        from .planning import plan

        with warnings.catch_warnings():
            # The curve itself shows where answers are mostly noise.
            warnings.simplefilter("ignore", UserWarning)
            tables = [plan(n_samples, epsilon=float(e), **guesses) for e in epsilon]
        private = tables[0].index[tables[0]["private"]].drop("auto")
        curves = {
            str(name): [float(table.loc[name, "expected_error"]) for table in tables] for name in private
        }
        return cls(epsilon, curves).plot(ax)

    @classmethod
    def from_results(cls, results: Any, *, ax: Any = None) -> PrivacyUtilityDisplay:
        """Draw a table with columns ``epsilon``, ``mechanism`` and ``error``.

        Parameters
        ----------
        results : DataFrame
            One row a point; repeated points are averaged.
        ax : matplotlib Axes, default=None
            Where to draw.

        Returns
        -------
        PrivacyUtilityDisplay
        """
        table = results.pivot_table(index="epsilon", columns="mechanism", values="error")
        curves = {str(name): table[name].to_numpy() for name in table.columns}
        return cls(table.index.to_numpy(), curves).plot(ax)

    def _draw(self, ax: Any) -> None:
        """Draw one curve a mechanism, on two logarithmic axes."""
        for (name, values), style in zip(self.error.items(), _styles(), strict=False):
            ax.plot(self.epsilon, values, label=name, **style)
        ax.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="expected absolute error of the gap")
        ax.legend(frameon=False, fontsize="small")


class ReconstructionDisplay(_Display):
    """What an attacker believes of every individual, the true groups apart.

    Parameters
    ----------
    scores : array-like of shape (n_individuals,)
        Attacker's confidence that the individual is in the advantaged group.
    sensitive_features : array-like of shape (n_individuals,)
        The truth, 1 for the advantaged group.
    """

    def __init__(self, scores: Any, sensitive_features: Any) -> None:
        self.scores = np.asarray(scores, dtype=np.float64)
        self.sensitive_features = np.asarray(sensitive_features)
        if self.scores.shape != self.sensitive_features.shape:
            raise ValueError(
                "scores and sensitive_features must have the same length, got "
                f"{self.scores.shape} and {self.sensitive_features.shape}."
            )

    @classmethod
    def from_estimator(cls, attack: Any, sensitive_features: Any, *, ax: Any = None) -> ReconstructionDisplay:
        """Draw a fitted attack against the truth.

        Parameters
        ----------
        attack : AttributeRevealAttack
            Fitted.
        sensitive_features : array-like of shape (n_individuals,)
            The truth.
        ax : matplotlib Axes, default=None
            Where to draw.

        Returns
        -------
        ReconstructionDisplay
        """
        return cls(attack.scores_, sensitive_features).plot(ax)

    @classmethod
    def from_predictions(
        cls, sensitive_features: Any, scores: Any, *, ax: Any = None
    ) -> ReconstructionDisplay:
        """Draw scores against the truth.

        Parameters
        ----------
        sensitive_features, scores : array-like of shape (n_individuals,)
            The truth and the attacker's scores.
        ax : matplotlib Axes, default=None
            Where to draw.

        Returns
        -------
        ReconstructionDisplay
        """
        return cls(scores, sensitive_features).plot(ax)

    def _draw(self, ax: Any) -> None:
        """Draw one mark a person, ordered by true group."""
        order = np.argsort(self.sensitive_features, kind="stable")
        scores, truth = self.scores[order], self.sensitive_features[order]
        for group, colour, marker in zip(np.unique(truth), _COLOURS[1::-1], ("v", "^"), strict=False):
            where = np.flatnonzero(truth == group)
            ax.plot(where, scores[where], marker, color=colour, ms=4, alpha=0.7, label=f"true group {group}")
        ax.axhline(0.5, color="0.4", lw=1, ls=":")
        ax.set(xlabel="individual, by true group", ylabel="attacker's score", ylim=(-0.05, 1.05))
        ax.legend(frameon=False)


class LedgerDisplay(_Display):
    """Budget spent over the answers, as quantiles over individuals.

    Parameters
    ----------
    epsilon : float
        The whole budget.
    answers : array-like of shape (n_answers,)
        Epsilon of each answer, in order.
    spent : array-like of shape (n_individuals,)
        What each individual has paid.
    """

    def __init__(self, epsilon: float, answers: Any, spent: Any) -> None:
        self.epsilon = float(epsilon)
        self.answers = np.asarray(answers, dtype=np.float64)
        self.spent = np.asarray(spent, dtype=np.float64)

    @classmethod
    def from_ledger(cls, ledger: Any, *, ax: Any = None) -> LedgerDisplay:
        """Draw a ledger.

        Parameters
        ----------
        ledger : PrivacyLedger
            Of the compliance side.
        ax : matplotlib Axes, default=None
            Where to draw.

        Returns
        -------
        LedgerDisplay
        """
        history = ledger.history()
        answers = history.loc[history["kind"] == "answer", "epsilon"].fillna(0.0)
        return cls(ledger.epsilon, answers, ledger.spent_per_individual()).plot(ax)

    def _draw(self, ax: Any) -> None:
        """Draw the share of individuals who have paid at least so much, below the budget."""
        levels = np.sort(self.spent)
        share = 1.0 - np.arange(levels.size) / max(1, levels.size)
        ax.step(
            np.append(levels, self.epsilon), np.append(share, 0.0), where="pre", color=_COLOURS[0], lw=1.8
        )
        ax.axvline(self.epsilon, color=_COLOURS[1], ls="--", lw=1.4, label=f"budget {self.epsilon:g}")
        for level, name in zip(np.quantile(levels, [0.5, 1.0]), ("median", "most"), strict=True):
            ax.axvline(level, color="0.4", ls=":", lw=1.2, label=f"{name} spent {level:.3g}")
        ax.set(
            xlabel=f"epsilon spent ({self.answers.size} answers)",
            ylabel="share of individuals at or above",
            ylim=(0, 1.05),
            xlim=(0, 1.08 * self.epsilon),
        )
        ax.legend(frameon=False)


class GroupMetricDisplay(_Display):
    """A metric by group, with intervals.

    Parameters
    ----------
    groups : sequence
        Group labels.
    values : array-like of shape (n_groups,)
        Values of the metric.
    intervals : array-like of shape (n_groups, 2), default=None
        Limits of each value.
    metric : str, default="value"
        Name of the metric.
    """

    def __init__(
        self, groups: Sequence[Any], values: Any, intervals: Any = None, *, metric: str = "value"
    ) -> None:
        self.groups = [str(group) for group in groups]
        self.values = np.asarray(values, dtype=np.float64)
        self.intervals = None if intervals is None else np.asarray(intervals, dtype=np.float64)
        self.metric = metric
        if len(self.groups) != self.values.size:
            raise ValueError(f"Got {len(self.groups)} groups and {self.values.size} values.")

    @classmethod
    def from_frame(
        cls, frame: Any, metric: str | None = None, *, confidence: float = 0.95, ax: Any = None
    ) -> GroupMetricDisplay:
        """Draw one metric of a private metric frame.

        Parameters
        ----------
        frame : PrivateMetricFrame
            A private audit.
        metric : str, default=None
            Which metric; the only one by default.
        confidence : float, default=0.95
            Of the intervals.
        ax : matplotlib Axes, default=None
            Where to draw.

        Returns
        -------
        GroupMetricDisplay
        """
        values, (low, high) = frame.by_group, frame.interval(confidence)
        if metric is not None:
            values, low, high = values[metric], low[metric], high[metric]
        elif values.ndim == 2:
            raise ValueError(f"The frame has several metrics; give metric=, one of {list(values.columns)}.")
        pairs = np.column_stack([np.ravel(low), np.ravel(high)])
        return cls(list(values.index), values, pairs, metric=metric or str(values.name)).plot(ax)

    def _draw(self, ax: Any) -> None:
        """Draw one mark a group, with its interval."""
        places = np.arange(len(self.groups))
        errors = None
        if self.intervals is not None:
            errors = np.abs(self.intervals.T - self.values)
        ax.errorbar(places, self.values, yerr=errors, fmt="o", color=_COLOURS[0], capsize=4, ms=6)
        ax.set_xticks(places, self.groups)
        ax.set(ylabel=self.metric, xlim=(-0.5, len(self.groups) - 0.5))
