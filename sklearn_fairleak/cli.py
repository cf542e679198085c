"""The command line: ``fairleak``."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from .cli_attack import attack
from .cli_audit import audit
from .cli_plan import plan

app = typer.Typer(
    help="Answer fairness queries with differential privacy, and measure what answers leak.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
ledger_app = typer.Typer(help="Look at a privacy ledger.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")
app.command()(audit)
app.command()(attack)
app.command()(plan)

#: Exit codes: fine, an audit failed its threshold, bad input.
OK, FAILED, BAD_INPUT = 0, 1, 2

#: Warnings that were printed.
_said: set[str] = set()

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
LedgerPath = Annotated[Path, typer.Argument(help="Ledger file.")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for fairleak-demo.png and fairleak-demo.json.")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Recover race from exact answers on UCI Adult, then fail to from private ones (offline)."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from .demo import plot_demo, run_demo, write_demo
    from .tables import check_writable

    if not out.is_dir():
        raise ValueError(f"--out {out} is not a folder.")
    for name, suffix in (("fairleak-demo.json", ".json"), ("fairleak-demo.png", ".png")):
        check_writable(out / name, (suffix,))
    console = Console(stderr=as_json)
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console
    ) as progress:
        task = progress.add_task("starting", total=None)
        results = run_demo(report=lambda step: progress.update(task, description=step))
        write_demo(results, out / "fairleak-demo.json")
        plotted = _plotted(lambda: plot_demo(results, out / "fairleak-demo.png"))
        progress.update(task, description="done")
    if as_json:
        shown = {key: value for key, value in results.items() if key != "scores"}
        typer.echo(json.dumps(shown))
        return
    _show_demo(results, console)
    files = [str(out / "fairleak-demo.json")] + ([str(out / "fairleak-demo.png")] if plotted else [])
    console.print(f"Written: {', '.join(files)}", markup=False, soft_wrap=True)
    if not plotted:
        console.print(
            'For the figure install the extra "plot": pip install "sklearn-fairleak[plot]"', markup=False
        )


@ledger_app.command("show")
def ledger_show(path: LedgerPath, as_json: JsonOption = False) -> None:
    """Show budget, spending and the history of answers."""
    from rich.console import Console
    from rich.table import Table

    ledger = _open_ledger(path)
    history = ledger.history()
    if as_json:
        summary = {"epsilon": ledger.epsilon, "delta": ledger.delta, "remaining": ledger.remaining()}
        rows = json.loads(history.to_json(orient="records", date_format="iso"))
        typer.echo(json.dumps(summary | {"history": rows}))
        return
    shown = Table(title=f"budget epsilon = {ledger.epsilon:g}, remaining = {ledger.remaining():g}")
    for name in ("time", "metric", "mechanism", "people", "cost"):
        shown.add_column(name, overflow="fold", no_wrap=name == "time")
    asked = history[history["kind"].isin(("answer", "refusal"))]
    for row in asked.itertuples(index=False):
        cost = "refused" if row.kind == "refusal" else _cost(row)
        when = f"{row.time:%Y-%m-%d %H:%M}"
        shown.add_row(when, str(row.metric), str(row.mechanism), str(row.n_individuals), cost)
    Console(markup=False).print(shown)


@ledger_app.command("verify")
def ledger_verify(
    path: LedgerPath,
    head: Annotated[str | None, typer.Option(help="Head noted elsewhere, to notice a roll-back.")] = None,
) -> None:
    """Check that no row was edited, deleted or reordered."""
    from .exceptions import LedgerIntegrityError

    try:
        # Opening reads the chain, so an altered file may not even open.
        ledger = _open_ledger(path)
        ledger.verify(head=head)
    except LedgerIntegrityError as error:
        typer.echo(f"altered: {error}", err=True)
        raise typer.Exit(FAILED) from None
    typer.echo(f"intact: {ledger.n_answers} answer(s), head {ledger.head()}")


@ledger_app.command("export")
def ledger_export(
    path: LedgerPath,
    out: Annotated[Path, typer.Argument(help="File to write, .csv or .json.")],
) -> None:
    """Write the history without secrets, safe to open in a spreadsheet."""
    from .tables import check_writable

    check_writable(out, (".csv", ".json"), sources=[path])
    _open_ledger(path).export(out, format=out.suffix.removeprefix(".").lower())
    typer.echo(f"Written: {out}")


def _cost(row: Any) -> str:
    """Write what an answer cost each individual in it."""
    parts = (("ε", row.epsilon), ("δ", row.delta), ("ρ", row.rho))
    return ", ".join(f"{name} {value:.3g}" for name, value in parts if value and value == value) or "free"


def _open_ledger(path: Path) -> Any:
    """Open an existing ledger under the budget that it records."""
    from .ledger import PrivacyLedger

    if not path.is_file():
        raise ValueError(f"{path} is not a ledger file.")
    return PrivacyLedger(path, epsilon=None)


def _plotted(draw: Any) -> bool:
    """Draw if the extra for plots is installed."""
    try:
        draw()
    except ImportError:
        return False
    return True


def _show_demo(results: dict[str, Any], console: Any) -> None:
    """Print the demo's findings as two tables and two sentences."""
    from rich.table import Table

    data = results["data"]
    console.print(
        f"{data['people']} people of UCI Adult ({data['black']} Black, {data['white']} White). A model without "
        f"race: accuracy {data['model_accuracy']:.3f}, true gap in mean score {data['true_gap']:+.4f}.\n",
        markup=False,
    )
    exact = Table(title="1. Exact answers: who submits these models learns everyone's race")
    for name in ("attack", "queries", "people right", "largest shift"):
        exact.add_column(name)
    for row in results["exact"]:
        exact.add_row(
            row["attack"], str(row["queries"]), f"{100 * row['leakage']:.1f} %", f"{row['max_shift']:.2g}"
        )
    console.print(exact)
    many = results["exact"][1]["queries"]
    private = Table(title=f"2. Private answers (epsilon = {results['epsilon']:g}): the attack fails")
    for name in ("mechanism", "error of 1", f"error of {many}", "people right"):
        private.add_column(name)
    for row in results["private"]:
        chosen = f": {row['chosen']}" if row["mechanism"] == "auto" else ""
        private.add_row(
            row["mechanism"] + chosen,
            f"{row['error_one']:.4f}",
            f"{row['error_many']:.4f}",
            f"{100 * row['leakage']:.1f} %",
        )
    console.print(private)
    console.print(
        "'People right' is balanced accuracy: 50 % is guessing. 'Largest shift' is how far a submitted prediction "
        "is from the model's. 'Error' is the distance to the exact gap, for one question at this epsilon and, as "
        "a median, for all questions of the attack together; one larger than the gap makes an answer useless.\n",
        markup=False,
    )


def _say_warning(message: Warning | str, *details: Any, **more: Any) -> None:
    """Print a warning once and as one line, without the place in the code."""
    if str(message) not in _said:
        _said.add(str(message))
        typer.echo(f"fairleak: warning: {message}", err=True)


def main() -> None:
    """Run the command line; bad input ends with one sentence and exit code 2."""
    warnings.showwarning = _say_warning
    try:
        app()
    except (ValueError, TypeError, OSError, RuntimeError, KeyError) as error:
        typer.echo(f"fairleak: {error}", err=True)
        sys.exit(BAD_INPUT)
    except ArithmeticError as error:
        typer.echo(f"fairleak: a number is too large or too small to compute with ({error}).", err=True)
        sys.exit(BAD_INPUT)
