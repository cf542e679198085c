"""Read tables from files for the command line: CSV and Parquet in, pandas columns out."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .ledger_history import spreadsheet_cell

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_writable", "read_table", "require_columns", "write_table"]

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
#: "None" is not among them: it may be somebody's group.
_ABSENT = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "<NA>"]
_SHOWN = 12


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV, TSV or Parquet file.

    Parameters
    ----------
    path : str or path
        The suffix says what it is.

    Returns
    -------
    DataFrame

    Raises
    ------
    ValueError
        If the file does not exist, is of another kind, is not a table, is empty, or repeats a
        column.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from sklearn_fairleak.tables import read_table
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.csv"
    >>> _ = path.write_text("race,p\\nb,0\\nw,1\\n")
    >>> read_table(path)["p"].tolist()
    [0, 1]
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (*_SEPARATORS, *_PARQUET):
        raise ValueError(f"{path}: a table must be a .csv, .tsv, .parquet or .pq file.")
    if not path.is_file():
        raise ValueError(f"{path} does not exist or is not a file.")
    frame = _read_parquet(path) if suffix in _PARQUET else _read_text(path, _SEPARATORS[suffix])
    repeated = [name for name, count in Counter(map(str, frame.columns)).items() if count > 1]
    if repeated:
        raise ValueError(f"{path} has the column {repeated[0]!r} more than once.")
    if frame.shape[0] == 0 or frame.shape[1] == 0:
        raise ValueError(f"{path} has no rows below its header.")
    return frame


def require_columns(frame: pd.DataFrame, names: Sequence[str], path: str | Path) -> None:
    """Refuse names that are not columns of a table, and columns without a value.

    Parameters
    ----------
    frame : DataFrame
        The table.
    names : sequence of str
        Wanted columns.
    path : str or path
        Where the table is from, for messages.

    Raises
    ------
    ValueError
        If a column is missing or all its values are.
    """
    for name in names:
        if name not in frame.columns:
            known = [str(column) for column in frame.columns]
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            more = f", … {len(known)} in all" if len(known) > _SHOWN else ""
            raise ValueError(
                f"{path} has no column {name!r}.{hint} Its columns: {', '.join(known[:_SHOWN])}{more}."
            )
        if bool(frame[name].isna().all()):
            raise ValueError(f"Column {name!r} of {path} has no values.")


def write_table(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a table as CSV, Parquet or JSON, as the suffix says.

    Parameters
    ----------
    frame : DataFrame
        The table; its index is written as the first column.
    path : str or path
        File to write.

    Raises
    ------
    ValueError
        If the suffix is another one.
    """
    path = Path(path)
    check_writable(path)
    suffix = path.suffix.lower()
    if suffix == ".csv":
        # Names come from other people's files, and a spreadsheet computes what looks like a formula.
        safe = frame.reset_index().map(spreadsheet_cell).rename(columns=spreadsheet_cell)
        # A lone carriage return starts a row for many readers; it is quoted only next to this line end.
        safe.to_csv(path, index=False, lineterminator="\r\n")
    elif suffix == ".json":
        frame.reset_index().to_json(path, orient="records", indent=1)
    else:
        flat = frame.reset_index()
        texts = [name for name, dtype in flat.dtypes.items() if dtype.kind == "O"]
        flat.astype(dict.fromkeys(texts, "string")).to_parquet(path)


def check_writable(
    path: Path, suffixes: Sequence[str] = (".csv", ".json", *_PARQUET), *, sources: Sequence[Path] = ()
) -> None:
    """Refuse a file that could not be written, before any work is done or anything is charged.

    Parameters
    ----------
    path : path
        File to be written later.
    suffixes : sequence of str
        What its name may end with.
    sources : sequence of path
        Files that are read, which must not be overwritten.

    Raises
    ------
    ValueError
        If the name ends otherwise, the file is one of the sources, or it cannot be opened.
    """
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{path} must end with {', '.join(suffixes[:-1])} or {suffixes[-1]}.")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is not a folder.")
    for source in sources:
        if os.path.realpath(path) == os.path.realpath(source):
            raise ValueError(f"{path} is read by this command, and would be overwritten; give another file.")
    is_new = not os.path.lexists(path)
    if not is_new and not path.is_file():
        raise ValueError(f"{path} exists and is not a file.")
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}.") from None
    if is_new:
        path.unlink()


def _read_text(path: Path, separator: str) -> pd.DataFrame:
    """Read delimited text, strictly: every row as long as the header."""
    import pandas as pd

    try:
        # pandas renames repeated columns, so the header is looked at here.
        with path.open(encoding="utf-8-sig", newline="") as lines:
            header = next(csv.reader(lines, delimiter=separator), [])
        repeated = [name for name, count in Counter(header).items() if count > 1]
        if repeated:
            raise ValueError(f"{path} has the column {repeated[0]!r} more than once.")
        return pd.read_csv(
            path,
            sep=separator,
            encoding="utf-8-sig",
            keep_default_na=False,
            na_values=_ABSENT,
            low_memory=False,
            index_col=False,
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeError, csv.Error) as error:
        raise _not_a_table(path, error) from None


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read Parquet, if an engine for it is installed."""
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise ValueError(
            'Parquet files need the extra "frames": pip install "sklearn-fairleak[frames]".'
        ) from None
    except Exception as error:
        # Decoders of a foreign format raise whatever they like.
        raise _not_a_table(path, error) from None
    named = [name for name in frame.index.names if name is not None]
    return frame.reset_index() if named else frame


def _not_a_table(path: Path, error: Any) -> ValueError:
    """Say that a file is not what its name says, in one line."""
    reason = " ".join(str(error).split())
    return ValueError(f"{path} is not a table: {reason[:150]}")
