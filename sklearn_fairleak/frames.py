"""fairlearn's MetricFrame with differential privacy: metrics by group, their spread, and limits.

MetricFrame's arguments and a privacy budget come in; a MetricFrame of noisy values, with
intervals, goes out. The one module that touches MetricFrame's private hooks.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from fairlearn.metrics import MetricFrame
from fairlearn.metrics._disaggregated_result import DisaggregatedResult

from .accounting import PrivacyLoss
from .accounts import check_budget
from .exceptions import NotPrivateWarning
from .frame_arguments import (
    aligned_arguments,
    bound_metric,
    clipped,
    described_metrics,
    named_columns,
    named_metrics,
    single_column,
)
from .frame_limits import NoisyCells, consistent, laplace_errors, like_result, normal_errors, report_errors
from .groups import Groups, encode_groups
from .individuals import Individuals
from .lazy_frames import count_frame, placeholder
from .ledger import PrivacyLedger
from .mechanisms import Exact, Mechanism, NoisySums, RandomizedResponse, get_mechanism
from .noise import Noise, SecureNoise, SeededNoise
from .sum_release import SharedSums, add_noise, count_reports, report_odds

__all__ = ["PrivateMetricFrame"]

FloatArray = npt.NDArray[np.float64]

_AGGREGATES = ("by_group", "overall", "difference", "ratio", "group_min", "group_max")


class PrivateMetricFrame(MetricFrame):
    """Compute metrics by sensitive group with differential privacy.

    A subclass of :class:`fairlearn.metrics.MetricFrame`: same arguments, results and plots.
    All metrics come from one joint release, charged once to everyone in the frame.

    Parameters
    ----------
    metrics : callable or dict of str to callable
        Functions of :func:`~sklearn_fairleak.group_metrics.supported_metrics`.
    y_true, y_pred : array-like of shape (n_samples,)
        Public labels or targets, and predictions. Pandas objects are aligned by index.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_features)
        Secret. Several features are crossed.
    control_features : array-like, default=None
        Public features by which everything is repeated.
    sample_params : dict, default=None
        Public ``sample_weight``, as for MetricFrame.
    epsilon : float, default=1.0
        Privacy parameter of the whole frame, in nats.
    delta : float, default=0.0
        Probability at which the guarantee may fail; above 0 for Gaussian noise.
    mechanism : {"noisy_sums", "exact", "randomized_response"} or Mechanism, default="noisy_sums"
        How group sums are released.
    ledger : PrivacyLedger, str or path, default=None
        Where the frame is charged; None makes a temporary one of (epsilon, delta).
    groups : sequence, default=None
        Public list of group labels (tuples for several features). Labels read from the data
        become public, with a warning if there are more than two.
    bounds : tuple of two floats, default=None
        Public bounds of targets and predictions for losses and ``mean_prediction``.
    pos_label : object, default=None
        The positive label, where bool, {0, 1} or {-1, 1} does not say it.
    random_state : int, default=None
        A seed, for experiments only: not private.

    Raises
    ------
    ValueError
        If a metric is not supported or an input is malformed. Nothing is charged.
    PrivacyBudgetExceeded
        If the ledger's budget does not cover the frame.

    Notes
    -----
    ``overall`` does not depend on the secret, and is exact. ``difference``, ``ratio``,
    ``group_min`` and ``group_max`` are corrected for the bias of noise, so they may lie closer
    together than the values of ``by_group``; groups between which there is no evidence of a
    difference are given none. With
    ``mechanism="exact"`` results are fairlearn's, except that a rate of nobody is NaN.

    Examples
    --------
    >>> from fairlearn.metrics import selection_rate
    >>> from sklearn_fairleak import PrivateMetricFrame
    >>> frame = PrivateMetricFrame(
    ...     metrics=selection_rate, y_true=[0, 1] * 200, y_pred=[0, 1, 1, 1] * 100,
    ...     sensitive_features=["f", "m"] * 200, epsilon=1.0)
    >>> float(frame.overall)
    0.75
    >>> list(frame.by_group.index)
    ['f', 'm']
    """

    def __init__(
        self,
        *,
        metrics: Callable[..., Any] | dict[str, Callable[..., Any]],
        y_true: Any,
        y_pred: Any,
        sensitive_features: Any,
        control_features: Any = None,
        sample_params: dict[str, Any] | None = None,
        epsilon: float = 1.0,
        delta: float = 0.0,
        mechanism: str | Mechanism = "noisy_sums",
        ledger: PrivacyLedger | Any = None,
        groups: Sequence[Any] | None = None,
        bounds: tuple[float, float] | None = None,
        pos_label: Any = None,
        random_state: int | None = None,
    ) -> None:
        how = get_mechanism(mechanism)
        if not isinstance(how, NoisySums | RandomizedResponse) and type(how) is not Exact:
            raise ValueError(
                "mechanism must be 'noisy_sums', 'randomized_response' or 'exact' for a metric frame, got "
                f"{mechanism!r}."
            )
        if how.is_private:
            check_budget(epsilon, delta)
        index, (y_true, y_pred, sensitive_features, control_features) = aligned_arguments(
            y_true=y_true,
            y_pred=y_pred,
            sensitive_features=sensitive_features,
            control_features=control_features,
        )
        y_true, y_pred = single_column(y_true), single_column(y_pred)
        table, single = named_metrics(metrics)
        self._described = described_metrics(
            table,
            {next(iter(table)): sample_params or {}} if single else sample_params or {},
            y_true,
            y_pred,
            bounds=bounds,
            pos_label=pos_label,
        )
        functions = {
            name: bound_metric(metric, pos_label, self._described[name].name)
            for name, metric in table.items()
        }
        public = {
            "metrics": next(iter(functions.values())) if single else functions,
            "y_true": clipped(y_true, bounds, self._described, "y_true"),
            "y_pred": clipped(y_pred, bounds, self._described, "y_pred"),
            "control_features": control_features,
            "sample_params": sample_params,
        }
        self.epsilon, self.delta, self.mechanism = float(epsilon), float(delta), how.name
        self.is_private = how.is_private and random_state is None
        if not self.is_private:
            reason = "random_state is set" if how.is_private else f"mechanism={how.name!r} adds no noise"
            warnings.warn(f"The frame is not private: {reason}.", NotPrivateWarning, stacklevel=2)
        self._noisy: NoisyCells | None = None
        if type(how) is Exact:
            super().__init__(sensitive_features=sensitive_features, **public)
            self._mark_undefined(sensitive_features, control_features, single)
            return
        n = next(iter(self._described.values())).vectors.shape[1]
        super().__init__(sensitive_features=np.zeros(n, dtype=int), **public)
        overall, pattern = self.overall, self.by_group
        labels = self._process_features("sensitive_feature_", sensitive_features, np.zeros(n))
        self._sf_names = [feature.name_ for feature in labels]
        if len(set(self._sf_names + (self._cf_names or []))) < len(self._sf_names) + len(
            self._cf_names or []
        ):
            raise ValueError(f"Feature names must differ, got {self._sf_names + (self._cf_names or [])}.")
        encoded = encode_groups(named_columns(sensitive_features, labels), groups=groups, declare=True)
        if encoded.codes.shape[0] != n:
            raise ValueError(f"sensitive_features must have length {n}, got {encoded.codes.shape[0]}.")
        cells, levels = self._cells(control_features, n)
        self._release(how, encoded, cells, index, ledger, random_state)
        self._fill(encoded, cells, levels, overall, pattern, single)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        metrics: Callable[..., Any] | dict[str, Callable[..., Any]],
        y_pred: str,
        sensitive_features: str | Sequence[str],
        y_true: str | None = None,
        control_features: str | Sequence[str] | None = None,
        epsilon: float = 1.0,
        delta: float = 0.0,
        mechanism: str | Mechanism = "noisy_sums",
        ledger: PrivacyLedger | Any = None,
        groups: Sequence[Any] | None = None,
        bounds: tuple[float, float] | None = None,
        pos_label: Any = None,
        random_state: int | None = None,
    ) -> PrivateMetricFrame:
        """Audit a frame of any size by the names of its columns, with one group-by in its own engine.

        Parameters
        ----------
        frame : narwhals-compatible frame
            Polars LazyFrame or DuckDB relation (Dask, PySpark); eager frames as well. One row an
            individual.
        metrics : callable or dict of str to callable
            As for the class. Metrics of labels need a column of labels, not of probabilities.
        y_pred : str
            Column of public predictions.
        sensitive_features : str or sequence of str
            Secret columns.
        y_true : str, default=None
            Column of public labels or targets; needed by all metrics but ``count``,
            ``selection_rate`` and ``mean_prediction``.
        control_features : str or sequence of str, default=None
            Public columns by which everything is repeated.
        epsilon, delta, mechanism, ledger, groups, bounds, pos_label, random_state
            As for the class; the mechanism is ``noisy_sums``.

        Returns
        -------
        PrivateMetricFrame

        Raises
        ------
        ValueError
            If a column is missing, holds missing values or is no category, a metric is not
            supported, or the mechanism needs individuals one by one. Nothing is charged.
        PrivacyBudgetExceeded
            If the ledger's budget does not cover the frame.

        Notes
        -----
        Individuals are counted and never brought into memory, so a frame cannot be recognised: the
        same audit asked twice is two answers and is charged twice. Real values are rounded to steps
        of 2^-20.

        Examples
        --------
        >>> import polars as pl
        >>> from fairlearn.metrics import selection_rate
        >>> from sklearn_fairleak import PrivateMetricFrame
        >>> table = pl.LazyFrame({"sex": ["f", "m"] * 200, "hired": [0, 1, 1, 1] * 100})
        >>> frame = PrivateMetricFrame.from_frame(
        ...     table, metrics=selection_rate, y_pred="hired", sensitive_features="sex", epsilon=1.0)
        >>> float(frame.overall)
        0.75
        """
        how = get_mechanism(mechanism)
        if not isinstance(how, NoisySums):
            raise ValueError(
                f"mechanism must be 'noisy_sums' for a frame that is only counted, got {mechanism!r}: other mechanisms "
                "need individuals one by one."
            )
        check_budget(epsilon, delta)
        table, single = named_metrics(metrics)
        secret = [sensitive_features] if isinstance(sensitive_features, str) else list(sensitive_features)
        control = [control_features] if isinstance(control_features, str) else list(control_features or ())
        counted = count_frame(
            frame,
            table,
            y_true=y_true,
            y_pred=y_pred,
            sensitive_features=secret,
            control_features=control,
            bounds=bounds,
            pos_label=pos_label,
        )
        self = cls.__new__(cls)
        self._described = counted.metrics
        self.epsilon, self.delta, self.mechanism = float(epsilon), float(delta), how.name
        self.is_private, self._noisy = random_state is None, None
        if not self.is_private:
            warnings.warn("The frame is not private: random_state is set.", NotPrivateWarning, stacklevel=2)
        encoded = encode_groups(counted.keys[secret], groups=groups, declare=True)
        blank = np.zeros(len(counted.counts))
        controls = counted.keys[control] if control else None
        # MetricFrame's own results on the counted rows are placeholders of the right shape.
        shape = {name: placeholder(name) for name in table}
        MetricFrame.__init__(
            self,
            metrics=next(iter(shape.values())) if single else shape,
            y_true=blank,
            y_pred=blank,
            sensitive_features=blank,
            control_features=controls,
        )
        pattern = self.by_group
        self._sf_names = secret
        cells, levels = self._cells(controls, len(blank))
        overall = like_result(self.overall, counted.public_values(cells))
        self._release(how, encoded, cells, None, ledger, random_state, counted.counts)
        self._fill(encoded, cells, levels, overall, pattern, single)
        return self

    def interval(
        self,
        confidence: float = 0.95,
        what: str = "by_group",
        *,
        method: str = "between_groups",
        sampling: bool = False,
    ) -> tuple[Any, Any]:
        """Return limits between which exact values lie with this probability, each.

        Parameters
        ----------
        confidence : float, default=0.95
            Wanted coverage of each value.
        what : {"by_group", "overall", "difference", "ratio", "group_min", "group_max"}
            Which result.
        method : {"between_groups", "to_overall"}, default="between_groups"
            Of ``difference`` and ``ratio``.
        sampling : bool, default=False
            Cover the value of the population that individuals were drawn from, too. What groups
            are compared with ``"to_overall"`` is taken as known.

        Returns
        -------
        low, high
            Of the type of the result.

        Raises
        ------
        ValueError
            If an argument is unknown, or ``sampling`` is asked of an exact frame.
        """
        if not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence must be in (0, 1), got {confidence!r}.")
        if what not in _AGGREGATES:
            raise ValueError(f"what must be one of {_AGGREGATES}, got {what!r}.")
        if method not in ("between_groups", "to_overall"):
            raise ValueError(f"method must be 'between_groups' or 'to_overall', got {method!r}.")
        result = getattr(self, what)
        if what not in ("by_group", "overall"):
            result = result(method=method) if what in ("difference", "ratio") else result()
        if self._noisy is None:
            if sampling:
                raise ValueError(
                    "sampling=True needs a frame with noise; for an exact one use fairlearn's MetricFrame with "
                    "n_boot and ci_quantiles."
                )
            return result, result
        if what == "overall" and not sampling:
            return result, result
        limits = []
        for metric, decoder in zip(self._described.values(), self._shared.decoders, strict=True):
            found = self._noisy.limits(metric, decoder, confidence, what, method, sampling=sampling)
            found[self._noisy.sizes == 0] = np.nan
            limits.append(found.reshape(-1, 2))
        stacked = np.stack(limits, axis=1)
        if what != "by_group" and not self._cf_names:
            stacked = stacked[0]
        return like_result(result, stacked[..., 0]), like_result(result, stacked[..., 1])

    def plot(self, *, confidence: float = 0.95, kind: str = "point", **options: Any) -> Any:
        """Plot values by group with error bars, through fairlearn's ``plot_metric_frame``.

        Parameters
        ----------
        confidence : float, default=0.95
            Coverage of the error bars.
        kind : str, default="point"
            As for pandas.
        **options
            Passed on.

        Returns
        -------
        matplotlib Axes or ndarray of them
        """
        from fairlearn.experimental.enable_metric_frame_plotting import plot_metric_frame

        low, high = self.interval(confidence)
        values = self.by_group
        table = values.to_frame() if isinstance(values, pd.Series) else values.copy()
        names = list(table.columns)
        lows, highs = (x.to_frame() if isinstance(x, pd.Series) else x for x in (low, high))
        for name in names:
            table[f"{name} limits"] = [
                list(pair) for pair in zip(lows[name].fillna(0), highs[name].fillna(0), strict=True)
            ]
        shown = object.__new__(MetricFrame)
        shown.__dict__.update(self.__dict__)
        shown._ci_quantiles = None
        shown._result_cache = {**self._result_cache, "by_group": table}
        return plot_metric_frame(
            shown, kind=kind, metrics=names, conf_intervals=[f"{name} limits" for name in names], **options
        )

    def __repr__(self) -> str:
        return (
            f"PrivateMetricFrame(metrics={list(self._described)!r}, mechanism={self.mechanism!r}, "
            f"epsilon={self.epsilon:g}, delta={self.delta:g})"
        )

    def _mark_undefined(self, sensitive: Any, control: Any, single: bool) -> None:
        """Replace what fairlearn calls 0 or 1 where a rate is a rate of nobody."""
        n = next(iter(self._described.values())).vectors.shape[1]
        features = self._process_features("sensitive_feature_", sensitive, np.zeros(n))
        if control is not None:
            features = self._process_features("control_feature_", control, np.zeros(n)) + features
        keys = pd.DataFrame({feature.name_: feature.raw_feature_ for feature in features})
        values = self.by_group.to_frame() if single else self.by_group.copy()
        changed = False
        for column, metric in zip(values.columns, self._described.values(), strict=True):
            weights = 1.0 if metric.weights is None else metric.weights
            sums = pd.DataFrame((metric.vectors * weights).T).groupby([keys[c] for c in keys]).sum()
            sums = sums.reindex(values.index)
            undefined = ~metric.is_defined(sums.to_numpy()) & sums.notna().all(axis=1).to_numpy()
            if undefined.any():
                changed = True
                values[column] = values[column].where(~undefined, np.nan)
        if changed:
            overall = self._result_cache["overall"]
            whole = overall
            if single:
                name = values.columns[0]
                whole = overall.to_frame(name) if self.control_levels else pd.Series({name: overall})
            self._populate_results(DisaggregatedResult(whole, values))

    def _cells(self, control: Any, n: int) -> tuple[list[npt.NDArray[np.bool_]], list[list[Any]]]:
        """Split individuals by every combination of public control levels."""
        if control is None:
            return [np.ones(n, dtype=bool)], []
        features = self._process_features("control_feature_", control, np.zeros(n))
        cells, levels = [np.ones(n, dtype=bool)], []
        for feature in features:
            raw = np.asarray(feature.raw_feature_)
            present = list(np.unique(raw))
            levels.append(present)
            cells = [cell & (raw == level) for cell in cells for level in present]
        return cells, levels

    def _release(
        self,
        how: NoisySums | RandomizedResponse,
        groups: Groups,
        cells: list[npt.NDArray[np.bool_]],
        index: Any,
        ledger: Any,
        random_state: int | None,
        counts: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Charge everyone in the frame, and release noisy sums, in one transaction."""
        shared = SharedSums(list(self._described.values()), counts)
        n = int(groups.codes.shape[0] if counts is None else counts.sum())
        epsilon, delta = Fraction(self.epsilon), Fraction(self.delta)
        loss = how.privacy_loss(epsilon, delta, 1)
        if not isinstance(ledger, PrivacyLedger):
            ledger = PrivacyLedger(ledger, epsilon=epsilon, delta=delta)
        self.ledger = ledger
        people = Individuals(index, n_individuals=n)
        schema = json.dumps([groups.names, [repr(label) for label in groups.labels], "error"])
        ledger.bind(hashlib.sha256(people.digest() + schema.encode()).digest(), len(people))
        digest = hashlib.sha256(repr((how.name, how.get_params(), loss.units(), random_state)).encode())
        if counts is None:
            for array in (shared.rows, shared.units, np.stack(cells)):
                digest.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
        else:
            for array in (*(shared.totals(cell) for cell in cells), shared.units):
                digest.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
        question = digest.digest()
        # Counts by group are secret, and totals do not tell questions apart: each of a counted frame is new.
        asked = question if counts is None else os.urandom(32)
        k = groups.n_statuses

        def release() -> dict[str, Any]:
            noise: Noise = SecureNoise() if random_state is None else SeededNoise(random_state, question)
            if isinstance(how, RandomizedResponse):
                return {"sums": count_reports(shared, how.private_copy(groups, loss, noise), k, cells)}
            budget = loss.epsilon if how.noise == "laplace" else loss.rho
            return {"sums": add_noise(shared, groups.codes, k, cells, noise, law=how.noise, budget=budget)}

        plain, self.replayed = ledger.charge(
            account=ledger.open_account(f"metric frame/{how.name}", epsilon, delta),
            digest=ledger.digest(b"metric frame", asked),
            individuals=None,
            loss=loss,
            query={
                "metric": ", ".join(self._described),
                "mechanism": how.name,
                "n_samples": n,
            },
            release=release,
        )
        self._shared = shared
        self._read(how, loss, np.asarray(plain["sums"], dtype=np.float64), cells, k)

    def _read(
        self,
        how: NoisySums | RandomizedResponse,
        loss: PrivacyLoss,
        released: FloatArray,
        cells: list[npt.NDArray[np.bool_]],
        n_groups: int,
    ) -> None:
        """Turn whole noisy sums into estimates with the errors they may carry."""
        shared = self._shared
        totals = np.stack([shared.totals(cell) for cell in cells]).astype(np.float64)
        whole = totals[:, None, :]
        if isinstance(how, RandomizedResponse):
            keep, other = report_odds(loss.epsilon, n_groups)
            released = (released - other * whole) / (keep - other)
            rows = [shared.rows[:, cell] for cell in cells]
            errors = report_errors(rows, released, totals, keep, other)
        elif how.noise == "laplace":
            scales = np.array([float(b) for b in shared.scales(loss.epsilon, n_groups)])
            errors = laplace_errors(released.shape, scales)
        else:
            sds = np.sqrt([float(v) for v in shared.variances(loss.rho, n_groups)])
            errors = normal_errors(released.shape, sds)
        self._noisy = NoisyCells(
            consistent(released, whole, n_groups) * shared.units,
            consistent(errors, np.zeros_like(whole), n_groups) * shared.units,
            totals * shared.units,
            np.array(
                [float(cell.sum() if shared.counts is None else shared.counts[cell].sum()) for cell in cells]
            ),
        )

    def _fill(
        self,
        groups: Groups,
        cells: list[npt.NDArray[np.bool_]],
        levels: list[list[Any]],
        overall: Any,
        pattern: Any,
        single: bool,
    ) -> None:
        """Put private values where fairlearn keeps its results."""
        several = len(self._sf_names) > 1
        groups_index = [label if several else (label,) for label in groups.labels]
        prefixes: list[tuple[Any, ...]] = [()]
        for level in levels:
            prefixes = [(*prefix, value) for prefix in prefixes for value in level]
        names = (self._cf_names or []) + self._sf_names
        keys = [(*prefix, *label) for prefix in prefixes for label in groups_index]
        index = (
            pd.MultiIndex.from_tuples(keys, names=names)
            if len(names) > 1
            else pd.Index([key[0] for key in keys], name=names[0])
        )
        present = np.array([bool(cell.any()) for cell in cells])
        columns = [pattern.name] if single else list(pattern.columns)
        values = pd.DataFrame(index=index, columns=columns, dtype=float)
        self._overall_values = np.full((len(cells), len(columns)), np.nan)
        whole = overall
        if single:
            whole = overall.to_frame(columns[0]) if self._cf_names else pd.Series({columns[0]: overall})
        public = np.asarray(whole, dtype=np.float64).reshape(-1, len(columns))
        self._overall_values[:] = public
        found: dict[tuple[str, str], list[FloatArray]] = {}
        for name, metric, decoder in zip(
            columns, self._described.values(), self._shared.decoders, strict=True
        ):
            noisy = self._noisy
            assert noisy is not None
            estimate = noisy.values(metric, decoder)
            values[name] = np.where(present[:, None], estimate, np.nan).ravel()
            means = noisy.corrected_means(metric, decoder)
            least, most = means.min(axis=1), means.max(axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                shares = least / most
            nearest = {
                ("group_min", ""): least,
                ("group_max", ""): most,
                ("difference", "between_groups"): most - least,
                ("ratio", "between_groups"): shares,
                ("difference", "to_overall"): noisy.corrected_to_overall(metric, decoder, ratio=False),
            }
            if metric.is_count or metric.low >= 0.0:
                nearest["ratio", "to_overall"] = noisy.corrected_to_overall(metric, decoder, ratio=True)
            for key, value in nearest.items():
                found.setdefault(key, []).append(np.where(present, value, np.nan))
        self._result_cache: dict[str, Any] = {}
        self._populate_results(DisaggregatedResult(whole, values))
        for (aggregate, method), lists in found.items():
            if len(lists) < len(columns):
                continue
            table = np.stack(lists, axis=1)
            cache = self._result_cache[aggregate]
            cache = cache[method] if method else cache
            for errors, naive in cache.items():
                cache[errors] = like_result(naive, table if self._cf_names else table[0])
