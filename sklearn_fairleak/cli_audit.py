"""``fairleak audit``: a private fairness audit of a table with one or several models."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["audit"]

#: Exit code of an audit that failed its threshold.
FAILED = 1


def audit(
    data: Annotated[Path, typer.Argument(help="Table of individuals: .csv or .parquet.")],
    prediction: Annotated[list[str], typer.Option(help="Column of predictions; repeat for more models.")],
    sensitive: Annotated[
        list[str], typer.Option(help="Column of a sensitive feature; repeat to cross them.")
    ],
    metric: Annotated[
        list[str] | None, typer.Option(help="Fairness metric; repeated ones share epsilon equally.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of true labels.")] = None,
    epsilon: Annotated[float, typer.Option(help="What the whole audit costs each individual.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Probability at which the guarantee may fail.")] = 0.0,
    threshold: Annotated[
        list[float] | None,
        typer.Option(
            help="Largest allowed gap (least ratio): once, or once for each metric. Exit code 1 if not met."
        ),
    ] = None,
    test_share: Annotated[
        float, typer.Option(help="Part of epsilon that pays for the threshold tests.")
    ] = 0.25,
    ledger: Annotated[Path | None, typer.Option(help="Ledger file; made if it does not exist.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Budget of each individual in a new ledger; epsilon by default.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Public group label; list all. COLUMN=LABEL for several columns.")
    ] = None,
    missing: Annotated[str, typer.Option(help="Missing sensitive features: error or group.")] = "error",
    pos_label: Annotated[str | None, typer.Option(help="The positive label.")] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="Column of ids, one row a person.")] = None,
    mechanism: Annotated[str, typer.Option(help="How answers are protected.")] = "auto",
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    out: Annotated[Path | None, typer.Option(help="Report to write: .html or .json.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Audit the predictions of one or several models, privately; exit code 1 if a threshold is not met."""
    from .table_audit import Audit

    terms = Audit(
        data=data,
        predictions=tuple(prediction),
        label=label,
        sensitive=tuple(sensitive),
        metrics=tuple(metric or ["statistical_parity"]),
        thresholds=tuple(threshold or ()),
        epsilon=epsilon,
        delta=delta,
        test_share=test_share,
        budget=budget,
        ledger=ledger,
        groups=tuple(group or ()),
        missing=missing,
        pos_label=pos_label,
        id_column=id_column,
        mechanism=mechanism,
        confidence=confidence,
    )
    if out is not None:
        _require_report(out, [data] if ledger is None else [data, ledger])
    results = terms.run()
    if out is not None:
        _write(results, out)
    if as_json:
        typer.echo(json.dumps(results))
    else:
        _show(results)
        if out is not None:
            typer.echo(f"Written: {out}")
    if results["threshold"] is not None and not results["threshold"]["passed"]:
        raise typer.Exit(FAILED)


def _require_report(out: Path, sources: list[Path]) -> None:
    """Refuse a report that could not be written, before anything is charged."""
    from .tables import check_writable

    check_writable(out, (".html", ".json"), sources=sources)
    if out.suffix.lower() == ".html" and not all(find_spec(name) for name in ("jinja2", "matplotlib")):
        raise ValueError(
            'An HTML report needs the extra "report": pip install "sklearn-fairleak[report]". Or write --out '
            "report.json."
        )


def _write(results: dict[str, Any], out: Path) -> None:
    """Write the report as HTML or JSON."""
    from .report import write_report

    if out.suffix.lower() == ".html":
        shown = {name: value for name, value in results.items() if name not in ("tests", "epsilon", "delta")}
        write_report(shown, out)
    else:
        out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _show(results: dict[str, Any]) -> None:
    """Print answers, tests and cost."""
    from rich.console import Console
    from rich.table import Table

    console, ledger = Console(markup=False), results["ledger"]
    shown = Table(title=f"{results['title']} ({ledger['n_individuals']} individuals)")
    interval = f"{100 * results['confidence']:g} % interval"
    for name in ("model", "metric", "value", interval, "mechanism"):
        shown.add_column(name)
    for row in results["answers"]:
        limits = f"{row['low']:.4f} to {row['high']:.4f}"
        shown.add_row(row["model"], row["metric"], f"{row['value']:.4f}", limits, row["mechanism"])
    console.print(shown)
    for test in results["tests"]:
        verdict = "within" if test["passed"] else "NOT within"
        console.print(f"{test['model']}: {test['metric']} {verdict} {test['threshold']:g}", soft_wrap=True)
    if results["threshold"] is not None:
        verdict = "passed" if results["threshold"]["passed"] else "FAILED"
        console.print(
            f"Threshold {verdict}: decided by a private test that cost epsilon = "
            f"{results['threshold']['epsilon']:g} of {results['epsilon']:g}.",
            soft_wrap=True,
        )
    console.print(
        f"Each individual has spent epsilon = {ledger['spent_']:g} of {ledger['epsilon']:g} in the ledger; "
        f"{ledger['remaining_']:g} remain.",
        soft_wrap=True,
    )
