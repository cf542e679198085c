"""A private audit of a table: column names and terms in, the plain data of a report out.

Everything public is checked before anything is charged.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .accounting import split
from .exceptions import PrivacyBudgetExceeded

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Audit"]


@dataclass(frozen=True)
class Audit:
    """What is audited, and under which terms: everything public, checked before any charge.

    Attributes
    ----------
    data : path
        Table of individuals.
    predictions : tuple of str
        Columns of predictions, one a model.
    label : str or None
        Column of true labels.
    sensitive : tuple of str
        Columns of sensitive features, crossed.
    metrics : tuple of str
        Fairness metrics; they share the budget equally.
    thresholds : tuple of float
        None, one for all metrics, or one each: largest gap, or least ratio.
    epsilon, delta : float
        What the whole audit costs each individual.
    test_share : float
        Part of epsilon that pays for the threshold tests.
    """

    data: Path
    predictions: tuple[str, ...]
    label: str | None
    sensitive: tuple[str, ...]
    metrics: tuple[str, ...]
    thresholds: tuple[float, ...] = ()
    epsilon: float = 1.0
    delta: float = 0.0
    test_share: float = 0.25
    budget: float | None = None
    ledger: Path | None = None
    groups: tuple[str, ...] = ()
    missing: str = "error"
    pos_label: str | None = None
    id_column: str | None = None
    mechanism: str = "auto"
    confidence: float = 0.95

    def limits(self) -> tuple[float, ...]:
        """Return one threshold a metric, or none."""
        if len(self.thresholds) == 1:
            return self.thresholds * len(self.metrics)
        return self.thresholds

    def costs(self) -> tuple[float, float, float]:
        """Return epsilon of one metric's tests, and epsilon and delta of its answers.

        Rounded down to the ledger's grid, so that all parts together fit the whole.
        """
        parts, whole = len(self.metrics), Fraction(self.epsilon)
        test = split(whole * Fraction(self.test_share), 0, parts)[0] if self.thresholds else Fraction(0)
        answer, delta = split(whole - parts * test, self.delta, parts)
        return float(test), float(answer), float(delta)

    def check(self) -> None:
        """Refuse terms that contradict each other.

        Raises
        ------
        ValueError
            With what was given and what is expected.
        """
        from .queries import METRICS, canonical_metric

        roles = [*self.predictions, *self.sensitive]
        roles += [name for name in (self.label, self.id_column) if name is not None]
        for name in roles:
            if roles.count(name) > 1:
                raise ValueError(f"Column {name!r} is given twice; each column has one role.")
        if len(set(self.metrics)) < len(self.metrics):
            raise ValueError("--metric names a metric twice.")
        for metric in self.metrics:
            if METRICS[canonical_metric(metric)[0]][0] and self.label is None:
                raise ValueError(f"--metric {metric} needs --label, the column of true labels.")
        if len(self.thresholds) not in (0, 1, len(self.metrics)):
            raise ValueError(
                f"Give --threshold once, or once for each of the {len(self.metrics)} metrics; got "
                f"{len(self.thresholds)}."
            )
        kinds = {canonical_metric(metric)[1] for metric in self.metrics}
        if len(self.thresholds) == 1 and len(kinds) > 1:
            raise ValueError(
                "A gap and a ratio need thresholds of their own: give --threshold for each metric."
            )
        for value in self.thresholds:
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"--threshold must be in [0, 1], got {value}.")
        if not 0.0 < self.test_share < 1.0:
            raise ValueError(f"--test-share must be in (0, 1), got {self.test_share}.")
        if not 0.0 < self.confidence < 1.0:
            raise ValueError(f"--confidence must be in (0, 1), got {self.confidence}.")
        if self.epsilon > 0 and min(cost for cost in self.costs()[1 - bool(self.thresholds) : 2]) <= 0:
            raise ValueError(
                f"epsilon={self.epsilon:g} is too small to be shared: each part needs at least 2^-50."
            )
        if self.budget is not None and self.ledger is not None and self.ledger.exists():
            raise ValueError("--budget is for a new ledger; an existing one has its own.")
        if self.budget is not None and self.budget < self.epsilon:
            raise ValueError(
                f"--budget {self.budget:g} is less than the epsilon={self.epsilon:g} that the audit costs."
            )

    def run(self) -> dict[str, Any]:
        """Ask, test and collect what the report shows.

        Returns
        -------
        dict
            As :func:`sklearn_fairleak.report.audit_data`, with ``tests`` and ``epsilon``.
        """
        from .queries import make_queries
        from .report import audit_data
        from .tables import read_table, require_columns

        self.check()
        frame = read_table(self.data)
        wanted = [*self.predictions, *self.sensitive]
        wanted += [name for name in (self.label, self.id_column) if name is not None]
        require_columns(frame, wanted, self.data)
        models, truth, pos_label = self._public(frame)
        batches = [make_queries(metric, models, truth, pos_label=pos_label) for metric in self.metrics]
        for metric, batch in zip(self.metrics, batches, strict=True):
            _require_news(batch, metric, self.predictions)
        auditor = self._auditor(frame)
        for batch in batches:
            self._rehearse(batch, auditor.groups)
        limits, tests = self.limits(), []
        test_cost, answer_cost, answer_delta = self.costs()
        # Tests first: if the budget ends half-way, the verdict is what was wanted.
        for metric, limit in zip(self.metrics, limits, strict=False):
            verdict = auditor.passes_threshold(
                models,
                limit,
                truth,
                metric=metric,
                epsilon=test_cost,
                pos_label=pos_label,
            )
            for name, passed in zip(self.predictions, verdict.passed or (), strict=True):
                tests.append({"model": name, "metric": metric, "threshold": limit, "passed": passed})
        answers: list[Any] = []
        names: list[str] = []
        for metric in self.metrics:
            scorer = auditor.scorer(
                metric,
                mechanism=self.mechanism,
                epsilon=answer_cost,
                delta=answer_delta,
                pos_label=pos_label,
            )
            try:
                answers += list(scorer.answer_many(models, truth))
            except PrivacyBudgetExceeded as error:
                raise PrivacyBudgetExceeded(" ".join([str(error), *map(_verdict, tests)])) from None
            names += self.predictions
        verdict_of_all = None
        if tests:
            verdict_of_all = {
                "max_gap": limits[0],
                "passed": all(test["passed"] for test in tests),
                "epsilon": test_cost * len(self.metrics),
            }
        data = audit_data(
            answers,
            names=names,
            auditor=auditor,
            confidence=self.confidence,
            threshold=verdict_of_all,
            reproduce=shlex.join(["fairleak", *sys.argv[1:]]),
            title=f"Fairness audit of {self.data.name}",
        )
        return data | {"tests": tests, "epsilon": self.epsilon, "delta": self.delta}

    def _public(self, frame: pd.DataFrame) -> tuple[Any, Any, Any]:
        """Return predictions (n_models, n), labels and the positive label from the public columns."""
        import numpy as np

        from .labels import as_column

        names = [*self.predictions, *([self.label] if self.label is not None else [])]
        columns = {}
        for name in names:
            absent = int(frame[name].isna().sum())
            if absent:
                raise ValueError(
                    f"Column {name!r} of {self.data} lacks {absent} value(s); drop or fill them."
                )
            columns[name] = as_column(frame[name], f"column {name!r}")
        kinds = {columns[name].dtype.kind in "iufb" for name in self.predictions}
        if len(kinds) > 1:
            raise ValueError("--prediction columns must be all numbers or all texts.")
        models = np.stack([columns[name] for name in self.predictions])
        truth = None if self.label is None else columns[self.label]
        if truth is not None and bool(np.all(truth == truth[0])):
            raise ValueError(
                f"Column {self.label!r} of {self.data} is constant: there is nothing to compare."
            )
        positive: Any = self.pos_label
        if positive is not None and models.dtype.kind in "iuf":
            try:
                positive = float(positive)
            except ValueError:
                raise ValueError(
                    f"--pos-label {positive} is not a number, but the predictions are numbers."
                ) from None
        return models, truth, positive

    def _auditor(self, frame: pd.DataFrame) -> Any:
        """Build the compliance side from the secret columns."""
        from .accounts import check_budget
        from .auditor import FairnessAuditor
        from .ledger import PrivacyLedger

        check_budget(self.epsilon, self.delta)
        features = frame[list(self.sensitive)].copy()
        for name, labels in self._declared(features).items():
            features[name] = _declare(features[name], labels, name)
        ids = None if self.id_column is None else frame[self.id_column]
        ledger: Any = self.ledger
        if self.ledger is not None and self.ledger.exists():
            ledger = PrivacyLedger(self.ledger, epsilon=None)
        elif self.ledger is not None and not self.ledger.parent.is_dir():
            raise ValueError(f"{self.ledger.parent} is not a folder.")
        return FairnessAuditor(
            features.iloc[:, 0] if len(self.sensitive) == 1 else features,
            ids=range(len(frame)) if ids is None else ids,
            missing=self.missing,
            epsilon=self.epsilon if self.budget is None else self.budget,
            delta=self.delta,
            ledger=ledger,
        )

    def _rehearse(self, batch: Any, groups: tuple[Any, ...]) -> None:
        """Answer about made-up groups: what the mechanism refuses, it refuses before any charge."""
        import numpy as np

        from .groups import Groups
        from .mechanisms import get_mechanism
        from .noise import SeededNoise

        mechanism, (_, epsilon, delta) = get_mechanism(self.mechanism), self.costs()
        if not mechanism.is_private:
            return
        loss = mechanism.privacy_loss(Fraction(epsilon), Fraction(delta), 1)
        has_missing = self.missing == "group"
        codes = np.arange(batch.n_samples) % (len(groups) + has_missing)
        stand_in = Groups(codes, groups, has_missing_status=has_missing)
        mechanism.release(batch, stand_in, loss, SeededNoise(0, b"rehearsal"))

    def _declared(self, features: pd.DataFrame) -> dict[str, list[str]]:
        """Return the public labels of each sensitive column, where ``--group`` gives them."""
        declared: dict[str, list[str]] = {}
        for text in self.groups:
            name, label = self.sensitive[0], text
            if len(self.sensitive) > 1:
                name, _, label = text.partition("=")
                if name not in self.sensitive or not label:
                    raise ValueError(
                        f"With several --sensitive columns --group is COLUMN=LABEL, got {text!r}. Columns: "
                        f"{', '.join(self.sensitive)}."
                    )
            declared.setdefault(name, []).append(label)
        return declared


def _verdict(test: dict[str, Any]) -> str:
    """Say how a threshold test that was paid came out."""
    within = "within" if test["passed"] else "NOT within"
    return f"Answered before: {test['model']} is {within} {test['threshold']:g} in {test['metric']}."


def _require_news(batch: Any, metric: str, names: Sequence[str]) -> None:
    """Refuse a model whose gap is 0 whoever is in which group: asking would waste budget."""
    start, constant = 0, []
    for query in batch.queries:
        constant += (query.values.max(axis=1) == query.values.min(axis=1)).tolist()
        start += query.values.shape[0]
    for name, rows in zip(names, batch.rows.tolist(), strict=True):
        if all(constant[row] for row in rows):
            raise ValueError(
                f"The {metric} of column {name!r} is constant: its gap is 0 whoever is in which group. Leave "
                "the column out."
            )


def _declare(column: Any, labels: list[str], name: str) -> Any:
    """Make a column categorical with the public labels, in the column's own type."""
    import pandas as pd

    wanted: list[Any] = list(labels)
    if pd.api.types.is_bool_dtype(column.dtype):
        column = column.astype(str)
    elif pd.api.types.is_numeric_dtype(column.dtype):
        try:
            wanted = [float(label) for label in labels]
        except ValueError:
            raise ValueError(
                f"--group must be numbers, like column {name!r}; got {', '.join(labels)}."
            ) from None
    if len(set(wanted)) < len(wanted):
        raise ValueError("--group names a label twice.")
    known = column.isna() | column.isin(wanted)
    if not bool(known.all()):
        raise ValueError(
            f"Column {name!r} has labels outside the --group list; list every label that may occur."
        )
    return pd.Categorical(column, categories=wanted)
