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

import numpy.typing as npt

from .accounting import PrivacyLoss
from .exceptions import LedgerIntegrityError, PrivacyBudgetExceeded
from .ledger_chain import START, Entry, append, keyed, reserve, seal
from .ledger_file import SCHEMA_VERSION, LedgerFile
from .ledger_reader import LedgerReader
from .ledger_sets import check_members
from .ledger_standing import exact_budget

__all__ = ["PrivacyLedger"]


class PrivacyLedger(LedgerReader):
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

    Keep the file on a local disk. While it is in use, and after a crash, its newest entries
    are in a file beside it (``-wal``): copy or move both, or close the ledger first.

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
        if budget is None and not (path and os.path.exists(path) and os.path.getsize(path)):
            raise ValueError(f"There is no ledger {str(path)!r} whose budget could be taken; give epsilon.")
        file = LedgerFile(None if path is None else Path(path))
        if budget is not None:
            file.create()
        super().__init__(file)
        if self._standing.head == START and budget is not None:
            self._found(budget)
        recorded = self._budget
        if budget is not None and budget != recorded:
            raise ValueError(
                f"{self._where} records epsilon={float(recorded[0]):g}, delta={float(recorded[1]):g}, not "
                f"epsilon={float(budget[0]):g}, delta={float(budget[1]):g}. The budget belongs to the file: reopen it "
                "with epsilon=None, or start another file."
            )

    def _found(self, budget: tuple[Fraction, Fraction]) -> None:
        """Record the budget in a new file, unless another process was first."""
        with self._file.transaction(write=True) as connection:
            if self._catch_up(connection).head == START:
                facts = {"epsilon": str(budget[0]), "delta": str(budget[1]), "schema": SCHEMA_VERSION}
                self._write(connection, Entry(1, "ledger", query=_json(facts)))
        with self._now() as standing:
            self._budget = standing.budget(None)

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
        if not self.n_individuals:
            with self._file.transaction(write=True) as connection:
                if self._catch_up(connection).fingerprint is None:
                    facts = {"fingerprint": mark, "n_individuals": int(n_individuals)}
                    self._write(connection, self._next("bind", query=_json(facts)))
        with self._now() as standing:
            bound = standing.fingerprint, standing.n_individuals
        if bound != (mark, n_individuals):
            raise LedgerIntegrityError(
                f"{self._where} belongs to another data set (of {bound[1]} "
                f"individuals; this one has {n_individuals}): other ids, another order, or other names or lists of "
                "groups. Give every data set a ledger of its own."
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
        if not isinstance(digest, bytes) or not digest:
            raise ValueError(f"digest must be bytes, as digest() returns them, got {type(digest).__name__}.")
        asked, units = _json(query), loss.units()
        if min(units) < 0:
            raise ValueError("loss must not be negative.")
        n = self._n_individuals or self.n_individuals
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

    def _next(self, kind: str, **fields: Any) -> Entry:
        """Make the entry that comes next."""
        return Entry(self._standing.head.number + 1, kind, **fields)

    def _write(self, connection: sqlite3.Connection, entry: Entry) -> None:
        """Write an entry without an answer; it is read back with the next transaction."""
        append(connection, self._chain_key, self._standing.head, entry)


def _reopen(path: str, epsilon: Fraction, delta: Fraction) -> PrivacyLedger:
    """Unpickle a ledger."""
    return PrivacyLedger(path, epsilon=epsilon, delta=delta)


def _json(plain: Mapping[str, Any]) -> str:
    """Write plain data as JSON text."""
    return json.dumps(dict(plain), separators=(",", ":"))
