"""The privacy budget that holds: what was asked, what it cost whom, and what was answered.

Check, charge and record are one transaction, so a crash between any two instructions never
leaves an answer that was not charged.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .accounting import PrivacyLoss
from .exceptions import LedgerIntegrityError, PrivacyBudgetExceeded
from .ledger_chain import START, Entry, append, keyed, read_entries, reserve, seal
from .ledger_charges import Charges, largest
from .ledger_file import SCHEMA_VERSION, LedgerFile
from .ledger_history import COLUMNS, describe, write_history
from .ledger_sets import MemberSets, check_members
from .ledger_standing import Standing, epsilon_of

__all__ = ["PrivacyLedger"]


class PrivacyLedger:
    """Keep a privacy budget per individual in a file that processes can share.

    Every answer charges exactly the individuals that it is about: the disjoint test folds of
    a cross-validation cost each individual one answer, repeats add up. Sums are exact, on a
    grid of 2**-50.

    Parameters
    ----------
    path : str or path, default=None
        Ledger file; it is made, mode 0600, if there is none, and survives restarts. None
        makes a private temporary file that its creator removes at exit.
    epsilon : float, Fraction or None
        The whole budget of each individual, in nats, for all answers. None takes what an
        existing file records.
    delta : float or Fraction, default=0.0
        Probability at which the guarantee may fail; at ``epsilon=None`` the recorded one.

    Raises
    ------
    ValueError
        If the budget is malformed, or not the one that the file records: a budget belongs
        to its file.
    LedgerIntegrityError
        If the file is unreadable, altered, of something else or of a newer schema.

    Notes
    -----
    The file holds its own secret key. Whoever can write the file can forge a consistent
    one, and a copy put back in place of the file is consistent too: note :meth:`head`
    elsewhere from time to time and give it to :meth:`verify`.

    A named ledger is pickled as its path and budget; a temporary one is not pickled at all.
    ``copy`` and ``sklearn.clone`` return the same ledger: a budget cannot be doubled.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from sklearn_fairleak.accounting import PrivacyLoss
    >>> from sklearn_fairleak.ledger import PrivacyLedger
    >>> ledger = PrivacyLedger(epsilon=1.0)
    >>> ledger.bind(b"which data set", 100)
    >>> account = ledger.open_account("scorer", Fraction(1), Fraction(0))
    >>> question = dict(
    ...     account=account, digest=ledger.digest(b"question"), individuals=None,
    ...     loss=PrivacyLoss.pure(Fraction(1, 4)), query={"metric": "statistical_parity"},
    ...     release=lambda: {"gap": 0.1},
    ... )
    >>> ledger.charge(**question)
    ({'gap': 0.1}, False)
    >>> ledger.charge(**question)  # the same question is free
    ({'gap': 0.1}, True)
    >>> ledger.remaining()
    0.75
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        epsilon: float | Fraction | None,
        delta: float | Fraction = 0.0,
    ) -> None:
        budget = None if epsilon is None else exact_budget(epsilon, delta)
        if path is None and budget is None:
            raise ValueError("epsilon=None takes the budget that a ledger file records; give its path.")
        if path is not None and os.path.isdir(path):
            raise ValueError(f"path must be a file, {str(path)!r} is a folder.")
        self._file = LedgerFile(None if path is None else Path(path))
        self._standing = Standing()
        self._where = f"The ledger {str(self.path)!r}"
        if budget is None and not self._file.path.exists():
            raise ValueError(f"There is no ledger {str(path)!r} whose budget could be taken; give epsilon.")
        if budget is not None:
            self._file.create()
        self._open(budget)

    def _open(self, budget: tuple[Fraction, Fraction] | None) -> None:
        """Read the file, or record the budget in a new one."""
        with self._file.transaction() as connection:
            self._key = bytes(connection.execute("SELECT value FROM facts WHERE name = 'key'").fetchone()[0])
            self._chain_key = keyed(self._key, b"chain")
            self._question_key = keyed(self._key, b"question")
            self._sets = MemberSets(keyed(self._key, b"individuals"), self._where)
            standing = self._catch_up(connection)
        if standing.head == START:
            if budget is None:
                raise ValueError(
                    f"The ledger {str(self.path)!r} is empty: it records no budget; give epsilon."
                )
            with self._file.transaction(write=True) as connection:
                if self._catch_up(connection).head == START:
                    facts = {"epsilon": str(budget[0]), "delta": str(budget[1]), "schema": SCHEMA_VERSION}
                    self._write(connection, Entry(1, "ledger", query=_json(facts)))
            standing = self._read()
        self._budget = recorded = standing.budget(None)
        if budget is not None and budget != recorded:
            raise ValueError(
                f"The ledger {str(self.path)!r} records epsilon={float(recorded[0]):g}, delta={float(recorded[1]):g}, "
                f"not epsilon={float(budget[0]):g}, delta={float(budget[1]):g}. The budget belongs to the file: "
                "reopen it with epsilon=None, or start another file."
            )

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
        return self._read().n_individuals

    @property
    def n_answers(self) -> int:
        """Number of recorded answers; replayed ones count once."""
        return self._count("kind = 'answer'")

    def n_refused(self, account: int | None = None) -> int:
        """Return the number of refused questions, of one account or of all."""
        if account is None:
            return self._count("kind = 'refusal'")
        return self._count("kind = 'refusal' AND account = ?", account)

    def bind(self, fingerprint: bytes, n_individuals: int) -> None:
        """Tie the ledger to one data set; the first call decides.

        Parameters
        ----------
        fingerprint : bytes
            Of ids and public schema. Only its keyed digest is kept.
        n_individuals : int
            Number of individuals.

        Raises
        ------
        LedgerIntegrityError
            If the ledger belongs to another data set.
        ValueError
            If ``n_individuals`` is less than 1.
        """
        if n_individuals < 1:
            raise ValueError(f"n_individuals must be at least 1, got {n_individuals}.")
        mark = keyed(self._key, b"fingerprint", fingerprint).hex()
        standing = self._read()
        if standing.fingerprint is None:
            with self._file.transaction(write=True) as connection:
                standing = self._catch_up(connection)
                if standing.fingerprint is None:
                    facts = {"fingerprint": mark, "n_individuals": int(n_individuals)}
                    self._write(connection, self._next("bind", query=_json(facts)))
            standing = self._read()
        if (standing.fingerprint, standing.n_individuals) != (mark, n_individuals):
            raise LedgerIntegrityError(
                f"The ledger {str(self.path)!r} belongs to another data set (of {standing.n_individuals} "
                f"individuals; this one has {n_individuals}): other ids, other groups or another order. Give every "
                "data set a ledger of its own."
            )

    def digest(self, *parts: bytes) -> bytes:
        """Return a digest keyed by the ledger's own secret.

        Parameters
        ----------
        *parts : bytes
            What to digest. Parts are framed: moving a boundary gives another digest.

        Returns
        -------
        bytes of length 32
        """
        return keyed(self._question_key, *parts)

    def open_account(self, name: str, epsilon: float | Fraction, delta: float | Fraction = 0) -> int:
        """Open a sub-budget, such as one scorer's.

        Parameters
        ----------
        name : str
            Shown in histories.
        epsilon, delta : float or Fraction
            Budget of each individual within this account.

        Returns
        -------
        int
            Number of the account.
        """
        limits = exact_budget(epsilon, delta)
        facts = {"name": str(name), "epsilon": str(limits[0]), "delta": str(limits[1])}
        with self._file.transaction(write=True) as connection:
            standing = self._catch_up(connection)
            account = len(standing.budgets) + 1
            self._write(connection, self._next("account", account=account, query=_json(facts)))
        return account

    def charge(
        self,
        *,
        account: int,
        digest: bytes,
        individuals: npt.ArrayLike | None,
        loss: PrivacyLoss,
        query: Mapping[str, Any],
        release: Callable[[], Mapping[str, Any]],
    ) -> tuple[dict[str, Any], bool]:
        """Charge an answer, make it and record it; or return the recorded one, free.

        Parameters
        ----------
        account : int
            From :meth:`open_account`.
        digest : bytes
            From :meth:`digest`, over everything public that the answer depends on.
        individuals : array-like of int of shape (n_asked,) or None
            Sorted distinct positions of the individuals asked about; None means all.
        loss : PrivacyLoss
            What the answer costs each of them. Rounded up to the grid.
        query : mapping
            Public description, JSON-able; ``metric`` and ``mechanism`` show in histories.
        release : callable
            Makes the answer: a JSON-able mapping. Called once, after the charge. If it
            raises, nothing is charged.

        Returns
        -------
        answer : dict
            As recorded.
        replayed : bool
            Whether the question had been answered before.

        Raises
        ------
        PrivacyBudgetExceeded
            If an individual's budget would be exceeded. The refusal is recorded.
        LedgerIntegrityError
            If the file cannot be used. No answer was given.
        ValueError
            If the arguments are malformed or the ledger is not bound to a data set.
        """
        asked, units = _json(query), loss.units()
        n = self._standing.n_individuals or self._read().n_individuals
        if not n:
            raise ValueError(
                "The ledger is not bound to a data set; call bind(fingerprint, n_individuals) first."
            )
        members = check_members(individuals, n)
        mark, bitmap = (None, b"") if members is None else self._sets.mark(members, n)
        with self._file.transaction(write=True) as connection:
            standing = self._catch_up(connection)
            recorded = connection.execute(
                "SELECT answer, answer_digest FROM entries WHERE digest = ? AND kind = 'answer'", (digest,)
            ).fetchone()
            if recorded is not None:
                return self._checked(recorded[0], recorded[1], "an answer"), True
            refusal = standing.refusal(account, members, units, query)
            if mark is not None:
                self._sets.store(connection, mark, bitmap)
            entry = self._next(
                "answer" if refusal is None else "refusal",
                account=account,
                digest=digest,
                individuals=mark,
                loss=units,
                query=asked,
            )
            if refusal is None:
                entry = reserve(connection, entry)
                answer = _json(release())
                seal(connection, self._chain_key, standing.head, entry, answer)
            else:
                append(connection, self._chain_key, standing.head, entry)
        if members is not None and mark is not None:
            self._sets.remember(mark, members)
        if refusal is not None:
            raise PrivacyBudgetExceeded(refusal)
        return dict(json.loads(answer)), False

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
        return PrivacyLoss.from_units(*largest(self._charges(account).present()))

    def spent_per_individual(self, account: int | None = None) -> npt.NDArray[np.float64]:
        """Return every individual's epsilon at the ledger's delta.

        Which individuals were asked about is for the compliance side, not for developers.

        Returns
        -------
        ndarray of shape (n_individuals,)
        """
        charges, delta = self._charges(account), self._standing.budget(account)[1]
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
        return self._read().remaining(account)

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
        return self._read().head.hash.hex()

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

    def close(self) -> None:
        """Close this process's connection; the next use opens another."""
        self._file.close()

    def __enter__(self) -> PrivacyLedger:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "temporary" if self._file.is_temporary else repr(str(self.path))
        return f"PrivacyLedger({where}, epsilon={self.epsilon:g}, delta={self.delta:g})"

    def __copy__(self) -> PrivacyLedger:
        return self

    def __deepcopy__(self, memo: Any) -> PrivacyLedger:
        return self

    def __sklearn_clone__(self) -> PrivacyLedger:
        return self

    def __reduce__(self) -> Any:
        if self._file.is_temporary:
            raise TypeError(
                "A temporary ledger is not pickled: it belongs to the process that made it. Give the ledger a path, "
                "or let workers ask through an auditor."
            )
        return _reopen, (str(self.path), *self._budget)

    def _read(self) -> Standing:
        """Return what the file says now."""
        with self._file.transaction() as connection:
            return self._catch_up(connection)

    def _count(self, condition: str, *values: Any) -> int:
        """Count entries."""
        with self._file.transaction() as connection:
            found = connection.execute(f"SELECT COUNT(*) FROM entries WHERE {condition}", values)
            return int(found.fetchone()[0])

    def _charges(self, account: int | None) -> Charges:
        """Return what individuals have paid, in one account or in all."""
        standing = self._read()
        standing.budget(account)
        return standing.paid_in(account)

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

    def _next(self, kind: str, **fields: Any) -> Entry:
        """Make the entry that comes next."""
        return Entry(self._standing.head.number + 1, kind, **fields)

    def _write(self, connection: sqlite3.Connection, entry: Entry) -> None:
        """Write an entry without an answer; it is read back with the next transaction."""
        append(connection, self._chain_key, self._standing.head, entry)

    def _checked(self, answer: str | None, digest: bytes | None, what: str) -> dict[str, Any]:
        """Return a recorded answer if it is the one that was recorded."""
        if answer is None or digest is None or keyed(self._chain_key, b"answer", answer.encode()) != digest:
            raise LedgerIntegrityError(f"{self._where}: {what} was altered.")
        return dict(json.loads(answer))

    def _catch_up(self, connection: sqlite3.Connection) -> Standing:
        """Read, check and count the entries that this process has not seen."""
        standing = self._standing
        found = list(read_entries(connection, self._chain_key, standing.head, self._where))
        if found:
            # Interrupted half-way, sums would be wrong: then everything is read again.
            self._standing = Standing()
            standing.follow(
                [entry for entry, _ in found],
                found[-1][1],
                lambda mark, n_individuals: self._sets.load(connection, mark, n_individuals),
            )
            self._standing = standing
        return standing


def exact_budget(epsilon: float | Fraction, delta: float | Fraction) -> tuple[Fraction, Fraction]:
    """Return a budget as exact numbers.

    Raises
    ------
    ValueError
        If epsilon is not a positive finite number or delta is outside [0, 1).
    """
    limits = _exact(epsilon), _exact(delta)
    if limits[0] is None or limits[0] <= 0:
        raise ValueError(f"epsilon must be a positive finite number, got {epsilon!r}.")
    if limits[1] is None or not 0 <= limits[1] < 1:
        raise ValueError(f"delta must be in [0, 1), got {delta!r}.")
    return limits[0], limits[1]


def _exact(number: object) -> Fraction | None:
    """Return a number as it is, or None for what is no finite number."""
    try:
        return None if isinstance(number, bool | str) else Fraction(number)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None


def _reopen(path: str, epsilon: Fraction, delta: Fraction) -> PrivacyLedger:
    """Unpickle a ledger."""
    return PrivacyLedger(path, epsilon=epsilon, delta=delta)


def _json(plain: Mapping[str, Any]) -> str:
    """Write plain data as JSON text."""
    return json.dumps(dict(plain), separators=(",", ":"))
