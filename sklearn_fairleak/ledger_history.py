"""What a ledger shows to people: tables without secrets, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from .accounting import UNIT
from .ledger_chain import Entry

__all__ = ["COLUMNS", "describe", "spreadsheet_cell", "write_history"]

#: Columns of a history.
COLUMNS = (
    "entry",
    "time",
    "kind",
    "account",
    "metric",
    "mechanism",
    "epsilon",
    "delta",
    "rho",
    "n_individuals",
    "digest",
)

#: Hexadecimal digits of a digest that a history shows.
_DIGITS = 16


def describe(
    entries: Iterable[Entry], accounts: Mapping[int, str], sizes: Mapping[bytes | None, int]
) -> list[dict[str, Any]]:
    """Return one row per entry.

    Parameters
    ----------
    entries : iterable of Entry
        In order.
    accounts : mapping of int to str
        Names of accounts.
    sizes : mapping of bytes or None to int
        Number of individuals in each set (public).
    """
    rows = []
    for entry in entries:
        facts = entry.facts()
        asked = entry.kind in ("answer", "refusal")
        epsilon, delta, rho = (float(units * UNIT) if asked else None for units in entry.loss[:3])
        if entry.kind in ("ledger", "account"):
            epsilon, delta = (float(Fraction(facts[name])) for name in ("epsilon", "delta"))
        rows.append(
            {
                "entry": entry.number,
                "time": _timestamp(entry.time),
                "kind": entry.kind,
                "account": None if entry.account is None else accounts.get(entry.account),
                "metric": _text(facts.get("metric")),
                "mechanism": _text(facts.get("mechanism")),
                "epsilon": epsilon,
                "delta": delta,
                "rho": rho,
                "n_individuals": sizes.get(entry.individuals) if asked or entry.kind == "bind" else None,
                "digest": None if entry.digest is None else entry.digest.hex()[:_DIGITS],
            }
        )
    return rows


def write_history(
    rows: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    target: str | os.PathLike[str] | io.TextIOBase | Any,
    format: str,
) -> None:
    """Write rows as CSV, or with a summary as JSON, to a path or a text buffer.

    Raises
    ------
    ValueError
        If the format is neither "csv" nor "json".
    """
    if format not in ("csv", "json"):
        raise ValueError(f"format must be 'csv' or 'json', got {format!r}.")
    text = io.StringIO(newline="")
    if format == "csv":
        writer = csv.writer(text)
        writer.writerow(COLUMNS)
        writer.writerows([spreadsheet_cell(row[name]) for name in COLUMNS] for row in rows)
    else:
        json.dump({**summary, "entries": list(rows)}, text, indent=1)
        text.write("\n")
    if isinstance(target, str | os.PathLike):
        Path(target).write_text(text.getvalue(), encoding="utf-8", newline="")
    else:
        target.write(text.getvalue())


def spreadsheet_cell(value: Any) -> Any:
    """Return a value that no spreadsheet takes for a formula; numbers stay numbers.

    Examples
    --------
    >>> from sklearn_fairleak.ledger_history import spreadsheet_cell
    >>> spreadsheet_cell("=1+1"), spreadsheet_cell(-1.5)
    ("'=1+1", -1.5)
    """
    if not isinstance(value, str):
        return value
    start = unicodedata.normalize("NFKC", value).lstrip(" \x00\ufeff")[:1]
    return "'" + value if start and start in "=+-@\t\r\n|%" else value


def _text(value: Any) -> str | None:
    """Show what callers described with something other than text, too."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _timestamp(microseconds: int) -> str:
    """Return a time in ISO 8601, UTC."""
    return str(np.datetime64(microseconds, "us")) + "Z"
