"""The audit report: one self-contained HTML file for people who decide.

Plain data of an audit comes in; a page without scripts or network goes out. All text is
escaped by the template engine.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__

__all__ = ["audit_data", "guessing_ceiling", "render_report", "write_report"]


def guessing_ceiling(epsilon: float, delta: float = 0.0) -> float:
    """Return how often an attacker may at best guess one attribute right.

    Parameters
    ----------
    epsilon, delta : float
        What the individual has paid.

    Returns
    -------
    float
        :math:`(e^\\epsilon + \\delta)/(1 + e^\\epsilon)`, for someone who finds both groups
        equally likely beforehand and knows everybody else's attribute.

    Examples
    --------
    >>> from sklearn_fairleak.report import guessing_ceiling
    >>> round(guessing_ceiling(1.0), 2)
    0.73
    """
    return min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))


def audit_data(
    answers: Sequence[Any],
    *,
    names: Sequence[str] | None = None,
    auditor: Any = None,
    confidence: float = 0.95,
    threshold: Mapping[str, Any] | None = None,
    reproduce: str | None = None,
    title: str = "Fairness audit",
) -> dict[str, Any]:
    """Collect what a report shows, as plain data.

    Parameters
    ----------
    answers : sequence of PrivateAnswer
        What was answered.
    names : sequence of str, default=None
        Names of the models; "model 1", … by default.
    auditor : FairnessAuditor, default=None
        For the budget and the comparison of mechanisms.
    confidence : float, default=0.95
        Of the intervals.
    threshold : mapping, default=None
        ``max_gap`` and ``passed`` of a private test.
    reproduce : str, default=None
        The command that made the audit.
    title : str, default="Fairness audit"
        Heading.

    Returns
    -------
    dict
        JSON-able.
    """
    rows = []
    for k, answer in enumerate(answers):
        low, high = answer.interval(confidence)
        rows.append(
            {
                "model": names[k] if names is not None else f"model {k + 1}",
                "metric": answer.metric,
                "value": answer.value,
                "low": low,
                "high": high,
                "mechanism": answer.mechanism,
                "epsilon": answer.epsilon,
                "delta": answer.delta,
                "n_samples": answer.n_samples,
                "private": answer.is_private,
            }
        )
    data: dict[str, Any] = {
        "title": title,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "confidence": confidence,
        "answers": rows,
        "threshold": None if threshold is None else dict(threshold),
        "reproduce": reproduce,
        "ledger": None,
        "plan": [],
    }
    if auditor is not None:
        data["ledger"] = dict(auditor.report())
        data["plan"] = _compare(auditor)
    return data


def render_report(data: Mapping[str, Any]) -> str:
    """Render audit data as one HTML page.

    Parameters
    ----------
    data : mapping
        From :func:`audit_data`.

    Returns
    -------
    str

    Raises
    ------
    ImportError
        If the extra ``report`` is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise ImportError(
            'The HTML report needs the extra "report": pip install "sklearn-fairleak[report]".'
        ) from None
    environment = Environment(
        loader=PackageLoader("sklearn_fairleak"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    spent = 0.0 if data["ledger"] is None else float(data["ledger"]["spent_"])
    delta = 0.0 if data["ledger"] is None else float(data["ledger"]["delta"])
    return environment.get_template("report.html").render(
        **data,
        spent=spent,
        factor=math.exp(min(spent, 700.0)),
        ceiling=guessing_ceiling(spent, delta),
        figures=_figures(data),
        all_private=all(row["private"] for row in data["answers"]),
    )


def write_report(data: Mapping[str, Any], path: str | Path) -> None:
    """Write audit data as one HTML file.

    Parameters
    ----------
    data : mapping
        From :func:`audit_data`.
    path : str or path
        File to write.
    """
    Path(path).write_text(render_report(data), encoding="utf-8")


def _compare(auditor: Any) -> list[dict[str, Any]]:
    """Return the expected error of every mechanism for the auditor's size and budget."""
    import warnings

    from .planning import plan

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            table = plan(auditor.n_individuals, epsilon=auditor.ledger.epsilon, delta=auditor.ledger.delta)
        except (ValueError, ArithmeticError):
            # Budgets so extreme that some mechanism cannot serve them: paid answers are shown without it.
            return []
    return [
        {
            "mechanism": str(name),
            "expected_error": float(row["expected_error"]),
            "guarantee": row["guarantee"],
        }
        for name, row in table.iterrows()
    ]


def _figures(data: Mapping[str, Any]) -> list[dict[str, str]]:
    """Draw the answers with their intervals as an embedded image with a text alternative."""
    from matplotlib.figure import Figure

    rows = data["answers"]
    if not rows:
        return []
    figure = Figure(figsize=(6.5, 0.9 + 0.42 * len(rows)), layout="constrained")
    axis = figure.subplots()
    values = np.array([row["value"] for row in rows])
    low, high = np.array([row["low"] for row in rows]), np.array([row["high"] for row in rows])
    places = np.arange(len(rows))[::-1]
    errors = np.stack([np.maximum(values - low, 0.0), np.maximum(high - values, 0.0)])
    axis.errorbar(values, places, xerr=errors, fmt="o", color="#0072B2", capsize=4)
    # Names come from the user's file: no mathematical markup in them.
    labels = [f"{row['model']}: {row['metric']}".replace("$", r"\$") for row in rows]
    axis.set_yticks(places, labels)
    axis.set_ylim(-0.6, len(rows) - 0.4)
    if data["threshold"] is not None:
        axis.axvline(float(data["threshold"]["max_gap"]), color="#D55E00", ls="--", lw=1.3)
    axis.set_xlabel(f"released value, {100 * data['confidence']:g} % interval")
    axis.grid(axis="x", alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160)
    text = "; ".join(
        f"{row['model']}, {row['metric']}: {row['value']:.3f}, between {row['low']:.3f} and {row['high']:.3f}"
        for row in rows
    )
    source = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return [{"source": source, "text": text}]
