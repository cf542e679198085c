"""``fairleak attack``: who is exposed by answers that have already been given."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["attack", "read_log"]

#: Columns of a long log, and of answers.
QUERY, INDIVIDUAL, PREDICTION, ANSWER = "query", "individual", "prediction", "answer"
#: Floating point has no more.
_MOST_DECIMALS = 17


def read_log(queries: str | Path, answers: str | Path) -> tuple[pd.DataFrame, pd.Series]:
    """Read submitted predictions and the answers to them.

    Parameters
    ----------
    queries : str or path
        CSV or Parquet. Long: columns ``query``, ``individual``, ``prediction``. Wide: one row a
        query and one column an individual, with or without a column ``query`` of names.
    answers : str or path
        A column ``answer`` (or a single column), with or without a column ``query``.

    Returns
    -------
    queries : DataFrame of shape (n_answers, n_individuals)
        Predictions, NaN where an individual was not in the evaluation set.
    answers : Series of shape (n_answers,)
        In the order of the queries.

    Raises
    ------
    ValueError
        If a file is not a table, or the two do not fit together.
    """
    from .tables import read_table

    asked, named = _queries(read_table(queries), queries)
    given = _answers(read_table(answers), answers)
    if given.index.name != QUERY:
        if named and len(given) != len(asked):
            raise ValueError(f"{answers} has {len(given)} answers for {len(asked)} queries.")
        if len(given) != len(asked):
            raise ValueError(
                f"{queries} has {len(asked)} rows (queries) and {answers} has {len(given)} answers; there must be "
                "one answer a query."
            )
        return asked, given.set_axis(asked.index)
    if not named:
        raise ValueError(f"{answers} names its queries (column {QUERY!r}), but {queries} does not.")
    asked.index, given.index = asked.index.astype(str), given.index.astype(str)
    unknown = given.index.difference(asked.index)
    if len(unknown):
        raise ValueError(
            f"{answers} answers {len(unknown)} queries that {queries} does not hold: {unknown[0]!r}, …"
        )
    return asked.loc[given.index], given


def attack(
    queries: Annotated[Path, typer.Argument(help="Submitted predictions: a wide matrix or a long log.")],
    answers: Annotated[
        Path, typer.Argument(help="Answers: a column 'answer', and 'query' to match by name.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="File for one row a person: .csv, .json, .parquet.")
    ] = None,
    decimals: Annotated[int | None, typer.Option(help="Decimals to which answers were rounded.")] = None,
    ulp: Annotated[float | None, typer.Option(help="Largest floating-point error of an answer.")] = None,
    absolute: Annotated[
        bool | None,
        typer.Option("--absolute/--signed", help="Whether answers are absolute gaps; guessed if not given."),
    ] = None,
    noise: Annotated[
        str | None, typer.Option(help="Law of the noise in answers, LAW:SCALE, for example laplace:0.01.")
    ] = None,
    sizes: Annotated[
        tuple[int, int] | None,
        typer.Option(help="Sizes of the disadvantaged and the advantaged group, if known."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Say who is exposed by answers already given: determined, constrained or untouched."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from .attack.exposure import exposure
    from .tables import check_writable, write_table

    if out is not None:
        check_writable(out, sources=[queries, answers])
    law = None if noise is None else _law(noise)
    if decimals is not None and not 0 <= decimals <= _MOST_DECIMALS:
        raise ValueError(f"--decimals must not be negative, and at most {_MOST_DECIMALS}; got {decimals}.")
    if ulp is not None and not 0.0 <= ulp < math.inf:
        raise ValueError(f"--ulp must be a finite number and not negative, got {ulp}.")
    asked, given = read_log(queries, answers)
    if sizes is not None and (min(sizes) < 1 or sum(sizes) != asked.shape[1]):
        raise ValueError(
            f"--sizes must be two positive numbers that add up to the {asked.shape[1]} individuals of {queries}, got "
            f"{sizes[0]} and {sizes[1]}."
        )
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{len(given)} answers about {asked.shape[1]} individuals", total=1.0)
        report = exposure(
            asked,
            given.to_numpy(dtype=float),
            ulp=ulp,
            decimals=decimals,
            group_sizes=sizes,
            signed=None if absolute is None else not absolute,
            noise_law=law,
            progress=lambda share: progress.update(task, completed=share),
        )
    report.index.name = INDIVIDUAL
    if out is not None:
        write_table(report, out)
    counts = {
        status: int((report["status"] == status).sum())
        for status in ("determined", "constrained", "untouched")
    }
    messages = [str(message) for message in report.attrs.get("messages", [])]
    if as_json:
        rows = json.loads(report.reset_index().to_json(orient="records"))
        summary = {"n_answers": len(given), "n_individuals": len(report)} | counts
        typer.echo(json.dumps(summary | {"messages": messages, "individuals": rows}))
        return
    _show(report, counts, messages, len(given))
    if out is not None:
        typer.echo(f"Written: {out}")


def _queries(table: pd.DataFrame, path: str | Path) -> tuple[pd.DataFrame, bool]:
    """Return a wide matrix of predictions, and whether its rows are named."""
    import pandas as pd

    if {QUERY, INDIVIDUAL, PREDICTION} <= set(table.columns):
        if bool(table[[QUERY, INDIVIDUAL]].isna().any(axis=None)):
            raise ValueError(f"{path} has rows without {QUERY!r} or {INDIVIDUAL!r}.")
        repeated = int(table.duplicated([QUERY, INDIVIDUAL]).sum())
        if repeated:
            raise ValueError(
                f"{path} has {repeated} predictions of an individual it already has in the same query."
            )
        # Queries stay in the order of the log; a pivot would sort them.
        wide = table.pivot(index=QUERY, columns=INDIVIDUAL, values=PREDICTION)
        wide = wide.loc[pd.unique(table[QUERY]), pd.unique(table[INDIVIDUAL])]
        named = True
    else:
        named = QUERY in table.columns
        wide = table.set_index(QUERY) if named else table
        if named and not wide.index.is_unique:
            raise ValueError(f"{path} repeats a query's name.")
    texts = [str(name) for name in wide.columns if not pd.api.types.is_numeric_dtype(wide[name].dtype)]
    if texts:
        raise ValueError(
            f"{path} has text in column {texts[0]!r}. A wide matrix has one row a query and one column of numbers "
            f"an individual; a long log has the columns {QUERY}, {INDIVIDUAL}, {PREDICTION}."
        )
    if wide.shape[1] < 2:
        raise ValueError(f"{path} is about {wide.shape[1]} individual(s); there must be at least 2.")
    return wide.astype(float), named


def _answers(table: pd.DataFrame, path: str | Path) -> pd.Series:
    """Return the answers, indexed by query where the file names them."""
    import pandas as pd

    others = [name for name in table.columns if name != QUERY]
    column = ANSWER if ANSWER in table.columns else others[0] if len(others) == 1 else None
    if column is None:
        raise ValueError(
            f"{path} must have a column {ANSWER!r}, got {', '.join(map(str, table.columns[:8]))}."
        )
    given = table.set_index(QUERY)[column] if QUERY in table.columns else table[column]
    if not pd.api.types.is_numeric_dtype(given.dtype):
        raise ValueError(f"Column {column!r} of {path} must hold numbers.")
    if not given.index.is_unique:
        raise ValueError(f"{path} answers a query more than once; the log must hold each answer once.")
    return given.astype(float)


def _law(text: str) -> Any:
    """Read a noise law written LAW:SCALE."""
    from .attack.noise_laws import NoiseLaw

    kind, _, scale = text.partition(":")
    try:
        return NoiseLaw(kind, float(scale))
    except ValueError as error:
        raise ValueError(f"--noise is LAW:SCALE, for example laplace:0.01; got {text!r}: {error}") from None


def _show(report: pd.DataFrame, counts: dict[str, int], messages: list[str], n_answers: int) -> None:
    """Print how many are exposed, and the first of them."""
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False)
    console.print(
        f"{n_answers} answers about {len(report)} individuals: {counts['determined']} determined, "
        f"{counts['constrained']} constrained, {counts['untouched']} untouched.",
        soft_wrap=True,
    )
    for message in messages:
        console.print(message, soft_wrap=True)
    certain = report[report["status"] == "determined"].head(10)
    if certain.empty:
        return
    shown = Table(title=f"Determined individuals, {len(certain)} of {counts['determined']}")
    for name in (INDIVIDUAL, "advantaged", "by answer"):
        shown.add_column(name)
    for name, row in certain.iterrows():
        shown.add_row(str(name), "yes" if row["posterior"] > 0.5 else "no", str(row["determined_by"]))
    console.print(shown)
