"""``fairleak plan``: what an audit would cost and how far off its answers would be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["plan"]


def plan(
    n_samples: Annotated[int, typer.Option("--n", help="Individuals in an evaluation set.")],
    models: Annotated[int, typer.Option(help="Number of models to be scored.")] = 1,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation; 1 scores everyone at once.")] = 1,
    epsilon: Annotated[float, typer.Option(help="Budget of each individual.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Probability at which the guarantee may fail.")] = 0.0,
    minority_share: Annotated[float, typer.Option(help="Guessed share of the smaller group.")] = 0.1,
    positive_rate: Annotated[float, typer.Option(help="Share of positive predictions.")] = 0.25,
    joint: Annotated[
        bool, typer.Option("--joint", help="Ask about all models at once (answer_many).")
    ] = False,
    wanted_error: Annotated[
        float | None, typer.Option(help="Say what to change to reach this error.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the errors against epsilon into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Say what errors to expect before anything is asked or paid."""
    from rich.console import Console
    from rich.table import Table

    from .planning import plan as plan_errors
    from .planning import ways_to_reach
    from .tables import check_writable

    if plot is not None:
        check_writable(plot, (".png", ".pdf", ".svg"))
    if folds < 1 or models < 1 or n_samples < 3 * folds:
        raise ValueError("--n, --models and --folds must be positive, with at least 3 individuals a fold.")
    answers = 1 if joint else models
    guesses: dict[str, Any] = {
        "n_queries": answers,
        "n_models": models if joint else 1,
        "delta": delta,
        "minority_share": minority_share,
        "positive_rate": positive_rate,
    }
    table = plan_errors(n_samples // folds, epsilon=epsilon, **guesses)
    ways = None
    if wanted_error is not None:
        ways = ways_to_reach(wanted_error, n_samples // folds, epsilon=epsilon, **guesses)
        if ways["n_samples"] is not None:
            ways["n_samples"] *= folds
    if plot is not None:
        import numpy as np

        from .displays import PrivacyUtilityDisplay

        shown_at = epsilon * np.geomspace(0.1, 10.0, 5)
        display = PrivacyUtilityDisplay.from_plan(n_samples // folds, epsilon=shown_at, **guesses)
        display.figure_.savefig(plot, dpi=150)
    if as_json:
        plain = {"errors": table.reset_index().to_dict("records"), "epsilon_per_answer": epsilon / answers}
        typer.echo(json.dumps(plain if ways is None else plain | {"ways_to_reach": ways}))
        return
    shown = Table(title=f"{models} model(s), {folds} fold(s), {n_samples} individuals, epsilon = {epsilon:g}")
    for name in ("mechanism", "expected |error| of a gap", "guarantee"):
        shown.add_column(name)
    for name, row in table.iterrows():
        shown.add_row(str(name), f"{row['expected_error']:.4f}", str(row["guarantee"]))
    console = Console(markup=False)
    console.print(shown)
    console.print(
        f"Each individual is in {answers} answer(s) and pays epsilon = {epsilon / answers:.3g} for each, "
        f"{epsilon:g} in all; randomized_response takes all of it with the first answer."
    )
    if ways is not None:
        for line in _ways(ways, wanted_error, epsilon, n_samples, answers):
            console.print(line)
    if plot is not None:
        console.print(f"Written: {plot}", soft_wrap=True)


def _ways(
    ways: dict[str, Any], wanted_error: float | None, epsilon: float, n_samples: int, answers: int
) -> list[str]:
    """Put into words what would make answers of ``auto`` accurate enough."""
    if ways["expected_error"] <= wanted_error:
        return [f"auto reaches the wanted error of {wanted_error:g} as things are."]
    lines = [f"auto errs by {ways['expected_error']:.3g}. To reach {wanted_error:g}, change one of:"]
    for name, now in (("epsilon", epsilon), ("n_samples", n_samples), ("n_queries", answers)):
        needed = ways[name]
        what = {"epsilon": "epsilon", "n_samples": "individuals", "n_queries": "answers"}[name]
        if needed is None:
            lines.append(f"  {what}: does not suffice alone")
        elif name != "n_queries" or answers > 1:
            lines.append(
                f"  {what}: {needed:.3g} instead of {now:g}" if name == "epsilon" else f"  {what}: {needed}"
            )
    if ways["jointly"] is not None:
        lines.append(f"  one joint release about all models (--joint): expected error {ways['jointly']:.3g}")
    return lines
