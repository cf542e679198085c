"""Run benchmarks, print each table, and write the results as CSV and JSON."""

from __future__ import annotations

import argparse
import csv
import json
import os
import pkgutil
import platform
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import benchmarks
import sklearn_fairleak

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "results"
#: Whose versions a reader needs to compare figures.
PACKAGES = ("numpy", "scipy", "scikit-learn", "fairlearn", "pandas", "polars", "duckdb")
#: Peers that some benchmarks measure beside ours.
PEERS = ("diffprivlib", "opendp", "dp-accounting", "spgl1", "fpylll")

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen benchmarks; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="benchmarks to run; all by default")
    parser.add_argument("--quick", action="store_true", help="a reduced run, to see that everything works")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for CSV and JSON; docs/benchmarks/results by default, nowhere for a quick run",
    )
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    options = parser.parse_args(arguments)
    available = found()
    if options.list:
        print("\n".join(available))
        return 0
    unknown = [name for name in options.names if name not in available]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; there are: {', '.join(available)}")
    out = options.out if options.out or options.quick else RESULTS
    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 200)
    failed = []
    for name in options.names or available:
        try:
            rows, seconds = _run(name, options.quick, console)
        except Exception:
            # The other benchmarks still count; the exit code tells.
            traceback.print_exc()
            failed.append(name)
            continue
        for table in tables(name, rows):
            console.print(table)
        if out is not None:
            write(out, name, rows, seconds=seconds, quick=options.quick)
    if failed:
        console.print(f"failed: {', '.join(failed)}", markup=False)
    return 1 if failed else 0


def found() -> list[str]:
    """Return the names of the modules of this package that can be run."""
    return sorted(
        module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")
    )


def _run(name: str, quick: bool, console: Console) -> tuple[list[Row], float]:
    """Run one benchmark behind a progress line."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(f"benchmark {name}", total=None)
        start = time.perf_counter()
        rows = import_module(f"benchmarks.{name}").main(quick=quick)
        seconds = time.perf_counter() - start
    if not rows:
        raise RuntimeError(f"benchmark {name} measured nothing.")
    console.print(f"benchmark {name}: {seconds:.1f} s", markup=False)
    return rows, seconds


def tables(name: str, rows: Iterable[Row]) -> list[Table]:
    """Put rows of the same columns into one table each."""
    grouped: dict[tuple[str, ...], Table] = {}
    for row in rows:
        columns = tuple(row)
        if columns not in grouped:
            grouped[columns] = Table(*columns, title=name)
        grouped[columns].add_row(*[_cell(value) for value in row.values()])
    return list(grouped.values())


def _cell(value: Any) -> str:
    """Show four digits of a number, and nothing where there is no figure."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def environment() -> dict[str, Any]:
    """Describe what the figures depend on; nothing that names a machine, a user or a path."""
    versions = {}
    for package in (*PACKAGES, *PEERS):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "sklearn_fairleak": sklearn_fairleak.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "packages": versions,
    }


def write(folder: Path, name: str, rows: list[Row], *, seconds: float, quick: bool) -> None:
    """Write ``name.json`` (rows and environment) and ``name.csv`` (rows)."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "benchmark": name,
        "quick": quick,
        "seconds": round(seconds, 1),
        "environment": environment(),
        "rows": rows,
    }
    text = json.dumps(document, indent=1, default=_plain)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _plain(value: Any) -> Any:
    """Turn NumPy scalars and arrays into what JSON knows."""
    return value.tolist()


if __name__ == "__main__":
    sys.exit(main())
