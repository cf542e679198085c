"""What can be read of a ledger: what was spent, what is left, what happened, whether it is intact."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .accounting import PrivacyLoss
from .exceptions import LedgerIntegrityError
from .ledger_chain import START, keyed, read_entries
from .ledger_charges import largest
from .ledger_file import LedgerFile
from .ledger_history import COLUMNS, describe, write_history
from .ledger_sets import MemberSets
from .ledger_standing import Standing, epsilon_of

__all__ = ["LedgerReader"]


class LedgerReader:
    """The reading half of :class:`~sklearn_fairleak.ledger.PrivacyLedger`.

    Parameters
    ----------
    file : LedgerFile
        An existing file.
    """

    def __init__(self, file: LedgerFile) -> None:
        self._file = file
        self._where = f"The ledger {str(file.path)!r}"
        self._standing = Standing()
        self._n_individuals = 0
        with file.transaction() as connection:
            row = connection.execute("SELECT value FROM facts WHERE name = 'key'").fetchone()
            if row is None or not isinstance(row[0], bytes):
                raise LedgerIntegrityError(f"{self._where} has lost its key. Restore it from a backup.")
            self._key = key = row[0]
            self._chain_key = keyed(key, b"chain")
            self._question_key = keyed(key, b"question")
            self._sets = MemberSets(keyed(key, b"individuals"), self._where)
            self._catch_up(connection)
        self._budget: tuple[Fraction, Fraction] = self._standing.budget(None)

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._file.path

    @property
    def epsilon(self) -> float:
        """The whole budget of each individual, in nats."""
        return float(self._budget[0])

    @property
    def delta(self) -> float:
        """Probability at which the guarantee may fail."""
        return float(self._budget[1])

    @property
    def n_individuals(self) -> int:
        """Number of individuals; 0 before :meth:`bind`."""
        with self._now() as standing:
            return standing.n_individuals

    @property
    def n_answers(self) -> int:
        """Number of recorded answers; replayed ones count once."""
        return self._count("kind = 'answer'")

    def n_refused(self, account: int | None = None) -> int:
        """Return the number of refused questions, of one account or of all."""
        if account is None:
            return self._count("kind = 'refusal'")
        return self._count("kind = 'refusal' AND account = ?", account)

    def spent(self, account: int | None = None) -> PrivacyLoss:
        """Return the largest privacy loss over individuals, component by component.

        Parameters
        ----------
        account : int, default=None
            One account; all of them together by default.

        Returns
        -------
        PrivacyLoss
            An upper bound where no single individual has the largest of every component.
        """
        with self._now() as standing:
            standing.budget(account)
            return PrivacyLoss.from_units(*largest(standing.paid_in(account).present()))

    def spent_per_individual(self, account: int | None = None) -> npt.NDArray[np.float64]:
        """Return every individual's epsilon at the ledger's delta.

        Which individuals were asked about is for the compliance side, not for developers.

        Returns
        -------
        ndarray of shape (n_individuals,)
        """
        with self._now() as standing:
            charges, delta = standing.paid_in(account), standing.budget(account)[1]
            return charges.per_individual([epsilon_of(paid, delta) for paid in charges.classes()])

    def remaining(self, account: int | None = None) -> float:
        """Return the epsilon left for the individual who has paid most.

        Parameters
        ----------
        account : int, default=None
            What is left in one account; in the whole ledger by default.

        Returns
        -------
        float
            Never negative.
        """
        with self._now() as standing:
            return standing.remaining(account)

    def history(self) -> Any:
        """Return every entry of the ledger.

        Returns
        -------
        pandas.DataFrame
            Columns ``entry``, ``time`` (UTC), ``kind``, ``account``, ``metric``,
            ``mechanism``, ``epsilon``, ``delta``, ``rho``, ``n_individuals`` (asked about),
            ``digest`` (first digits). No answers and no key.
        """
        import pandas as pd

        frame = pd.DataFrame(self._rows(), columns=list(COLUMNS))
        numbers = ["epsilon", "delta", "rho"]
        frame[numbers] = frame[numbers].astype("float64")
        frame["n_individuals"] = frame["n_individuals"].astype("Int64")
        frame["time"] = pd.to_datetime(frame["time"], utc=True, format="ISO8601")
        return frame

    def export(self, target: Any, format: str = "csv") -> None:
        """Write the history, without secrets and safe to open in a spreadsheet.

        Parameters
        ----------
        target : str, path or text buffer
            Where to write.
        format : {"csv", "json"}, default="csv"
            JSON adds the budget and the head.
        """
        summary = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "n_individuals": self.n_individuals,
            "head": self.head(),
        }
        write_history(self._rows(), summary, target, format)

    def head(self) -> str:
        """Return the hash of the last entry, to be noted elsewhere; see :meth:`verify`.

        Returns
        -------
        str
            64 hexadecimal digits.
        """
        with self._now() as standing:
            return standing.head.hash.hex()

    def verify(self, head: str | None = None) -> None:
        """Check that no entry, answer or set was edited, deleted, inserted or moved.

        Parameters
        ----------
        head : str, default=None
            A head noted elsewhere. Without it a ledger that was put back to an older copy,
            or rewritten with the key in the file, cannot be told.

        Raises
        ------
        LedgerIntegrityError
            Naming the entry that does not fit.
        """
        self._file.check_pages()
        seen = head is None
        with self._file.transaction() as connection:
            n = self._catch_up(connection).n_individuals
            marks: set[bytes] = set()
            for entry, at in read_entries(connection, self._chain_key, START, self._where):
                seen = seen or at.hash.hex() == head
                marks.update([entry.individuals] if entry.individuals is not None else [])
                answer, digest = connection.execute(
                    "SELECT answer, answer_digest FROM entries WHERE number = ?", (entry.number,)
                ).fetchone()
                if entry.kind == "answer":
                    self._checked(answer, digest, f"the answer of entry {entry.number}")
                elif answer is not None:
                    raise LedgerIntegrityError(f"{self._where}: an answer was added to entry {entry.number}.")
            for mark in marks:
                self._sets.read(connection, mark, n)
        if not seen:
            raise LedgerIntegrityError(
                f"{self._where}: no entry has the head {head!r}: entries that were there are gone, or were rewritten."
            )

    @contextlib.contextmanager
    def _now(self) -> Iterator[Standing]:
        """Lend what the file says now; other threads change it afterwards."""
        with self._file.transaction() as connection:
            yield self._catch_up(connection)

    def _count(self, condition: str, *values: Any) -> int:
        """Count entries."""
        with self._file.transaction() as connection:
            found = connection.execute(f"SELECT COUNT(*) FROM entries WHERE {condition}", values)
            return int(found.fetchone()[0])

    def _rows(self) -> list[dict[str, Any]]:
        """Return one public row per entry."""
        with self._file.transaction() as connection:
            standing = self._catch_up(connection)
            entries = [entry for entry, _ in read_entries(connection, self._chain_key, START, self._where)]
            sizes: dict[bytes | None, int] = {None: standing.n_individuals}
            for entry in entries:
                mark = entry.individuals
                if mark not in sizes and mark is not None:
                    sizes[mark] = int(self._sets.read(connection, mark, standing.n_individuals).size)
        return describe(entries, standing.names, sizes)

    def _checked(self, answer: str | None, digest: bytes | None, what: str) -> dict[str, Any]:
        """Return a recorded answer if it is the one that was recorded."""
        if answer is None or digest is None or keyed(self._chain_key, b"answer", answer.encode()) != digest:
            raise LedgerIntegrityError(f"{self._where}: {what} was altered.")
        return dict(json.loads(answer))

    def _catch_up(self, connection: sqlite3.Connection) -> Standing:
        """Read, check and count the entries that this process has not seen."""
        # Interrupted half-way, sums would be wrong: then everything is read again.
        standing, self._standing = self._standing, Standing()
        standing.follow(
            read_entries(connection, self._chain_key, standing.head, self._where),
            lambda mark, n_individuals: self._sets.load(connection, mark, n_individuals),
        )
        self._standing = standing
        self._n_individuals = standing.n_individuals
        return standing
