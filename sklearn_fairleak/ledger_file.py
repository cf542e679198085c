"""The file under a privacy ledger: opening it, transactions, threads, forks and clear errors."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .exceptions import LedgerIntegrityError

__all__ = ["SCHEMA_VERSION", "LedgerFile"]

#: Raised when a change of the tables makes older versions of the package misread the file.
SCHEMA_VERSION = 1

#: Marks a SQLite file as a ledger of this package ("FLdg").
_APPLICATION_ID = 0x464C6467

#: How long a transaction waits for those of other processes, in seconds. A killed process
#: lets go at once; a joint release about thousands of models may take minutes.
_PATIENCE = 300.0

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE sets (digest BLOB PRIMARY KEY, members BLOB NOT NULL);
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL, account INTEGER, digest BLOB,
    individuals BLOB, loss TEXT NOT NULL, query TEXT NOT NULL, answer_digest BLOB, hash BLOB NOT NULL, answer TEXT
);
CREATE UNIQUE INDEX answers ON entries (digest) WHERE kind = 'answer';
CREATE INDEX refusals ON entries (account) WHERE kind = 'refusal';
"""

_EXPLANATIONS = {
    "SQLITE_BUSY": "is locked by another process; try again when that has finished",
    "SQLITE_LOCKED": "is locked by another connection; try again when that has finished",
    "SQLITE_FULL": "cannot grow: the disk is full. Free some space and ask again",
    "SQLITE_READONLY": "is read-only. Give the ledger a place that this process may write to",
    "SQLITE_CANTOPEN": "cannot be opened. Check that the file and its folder exist and may be written to",
    "SQLITE_NOTADB": "is not a ledger: the file is not a database. Restore it from a backup",
    "SQLITE_CORRUPT": "is corrupt. Restore it from a backup",
    "SQLITE_IOERR": "cannot be read or written: the disk reports an error",
}

_files: weakref.WeakSet[LedgerFile] = weakref.WeakSet()
_fork_lock = threading.RLock()
_held_at_fork: list[LedgerFile] = []


class LedgerFile:
    """A SQLite file that threads and forked processes can share.

    One connection per process, one transaction at a time in it. The connection is closed
    around every fork: SQLite's locks would otherwise be believed to be held in the child.

    Parameters
    ----------
    path : Path or None
        None makes a private temporary file that its creator removes at exit.

    Raises
    ------
    LedgerIntegrityError
        If the file cannot be opened or is not a ledger.
    """

    def __init__(self, path: Path | None) -> None:
        self.is_temporary = path is None
        folder = tempfile.mkdtemp(prefix="fairleak-") if path is None else None
        self.path = Path(folder or "", "ledger.db") if path is None else Path(os.path.abspath(path))
        self._lock = threading.RLock()
        self._connections: list[sqlite3.Connection] = []
        self._identity: tuple[int, int] | None = None
        self._busy = False
        self._lost = False
        self._finalizer = weakref.finalize(self, _dispose, self._connections, folder, os.getpid())
        _files.add(self)

    def create(self) -> None:
        """Create the file, mode 0600, if there is none."""
        with contextlib.suppress(FileExistsError):
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            except FileExistsError:
                raise
            except OSError as error:
                raise LedgerIntegrityError(
                    f"The ledger {str(self.path)!r} cannot be created: {error.strerror}. No answer was given."
                ) from error

    @contextlib.contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """Run one transaction: everything in it happens, or nothing.

        Raises
        ------
        LedgerIntegrityError
            If the file is locked, full, read-only, corrupt, gone, or not a ledger.
        """
        with self._lock:
            if self._lost:
                raise RuntimeError(
                    "This process was forked in the middle of an answer; its ledger cannot be used. Fork before "
                    "or after."
                )
            if self._busy:
                raise RuntimeError("A ledger cannot be used from within the release that it is recording.")
            self._busy = True
            try:
                connection = self._connect()
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise self._explain(error) from error
            finally:
                self._busy = False

    def check_pages(self) -> None:
        """Let SQLite check its own structures.

        Raises
        ------
        LedgerIntegrityError
            If SQLite finds a fault.
        """
        with self.transaction() as connection:
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise LedgerIntegrityError(f"The ledger {str(self.path)!r} is corrupt: {found}.")

    def close(self) -> None:
        """Close this process's connection; the next transaction opens another."""
        with self._lock:
            while self._connections:
                self._connections.pop().close()

    def _connect(self) -> sqlite3.Connection:
        """Return this process's connection to the very file that it was opened on."""
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise LedgerIntegrityError(
                f"The ledger {str(self.path)!r} cannot be found: {error.strerror}. No answer was given."
            ) from error
        identity = status.st_dev, status.st_ino
        if self._identity is not None and identity != self._identity:
            raise LedgerIntegrityError(
                f"The ledger {str(self.path)!r} was replaced by another file while in use. No answer was given."
            )
        if self._connections:
            return self._connections[0]
        connection = sqlite3.connect(
            self.path.as_uri() + ("?mode=rw" if os.access(self.path, os.W_OK) else self._read_only()),
            timeout=_PATIENCE,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        try:
            self._prepare(connection)
        except UnicodeDecodeError as error:
            # The names in a damaged schema, in SQLite's complaint about it.
            connection.close()
            raise LedgerIntegrityError(
                f"The ledger {str(self.path)!r} {_EXPLANATIONS['SQLITE_CORRUPT']}."
            ) from error
        except BaseException:
            connection.close()
            raise
        self._identity = identity
        self._connections.append(connection)
        return connection

    def _read_only(self) -> str:
        """Return how to open a file that may only be read, such as an archived copy."""
        log = Path(f"{self.path}-wal")
        pending = log.exists() and log.stat().st_size > 0
        return "?mode=ro" if pending else "?mode=ro&immutable=1"

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Check the schema, or make it in an empty file; set durability."""
        application, version, tables = _identify(connection)
        if not application and not tables:
            _set_wal(connection)
            connection.execute("BEGIN IMMEDIATE")
            if not _identify(connection)[0]:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute("INSERT INTO facts VALUES ('key', ?)", (os.urandom(32),))
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("COMMIT")
            application, version, _ = _identify(connection)
        if application != _APPLICATION_ID:
            raise LedgerIntegrityError(
                f"{str(self.path)!r} is a database of something else, not a ledger. Give another path."
            )
        if version > SCHEMA_VERSION:
            raise LedgerIntegrityError(
                f"The ledger {str(self.path)!r} has schema {version}, newer than {SCHEMA_VERSION}, which this version "
                "of sklearn_fairleak knows. Upgrade sklearn_fairleak."
            )
        # A temporary ledger dies with its process, so it need not outlive a loss of power.
        connection.execute(f"PRAGMA synchronous = {'OFF' if self.is_temporary else 'FULL'}")
        connection.execute("PRAGMA trusted_schema = OFF")

    def _explain(self, error: sqlite3.Error) -> LedgerIntegrityError:
        """Say in plain words what SQLite found, and that no answer left."""
        name = getattr(error, "sqlite_errorname", "") or ""
        family = "_".join(name.split("_")[:2])
        found = _EXPLANATIONS.get(family, f"cannot be used ({error})")
        return LedgerIntegrityError(f"The ledger {str(self.path)!r} {found}. No answer was given.")


def _identify(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Return application id, schema version and number of tables, all as of one moment."""
    alone = not connection.in_transaction
    if alone:
        connection.execute("BEGIN")
    questions = "SELECT COUNT(*) FROM sqlite_master", "PRAGMA application_id", "PRAGMA user_version"
    tables, application, version = (int(connection.execute(question).fetchone()[0]) for question in questions)
    if alone:
        connection.execute("COMMIT")
    return application, version, tables


def _set_wal(connection: sqlite3.Connection) -> None:
    """Ask for a write-ahead log; SQLite does not wait for locks here, so this does."""
    stop = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            name = getattr(error, "sqlite_errorname", "") or ""
            if not name.startswith("SQLITE_BUSY") or time.monotonic() > stop:
                raise
            time.sleep(0.01)


def _dispose(connections: list[sqlite3.Connection], folder: str | None, creator: int) -> None:
    """Close the connection, and remove a temporary ledger if this process made it."""
    while connections:
        connections.pop().close()
    if folder is not None and os.getpid() == creator:
        shutil.rmtree(folder, ignore_errors=True)


def _before_fork() -> None:
    """Wait for running transactions and close connections, so that the child starts clean."""
    _fork_lock.acquire()
    for file in sorted(_files, key=id):
        file._lock.acquire()
        _held_at_fork.append(file)
        if not file._busy:
            file.close()


def _after_fork(*, in_child: bool) -> None:
    """Let transactions go on; a child of a release in progress must not touch its ledger."""
    while _held_at_fork:
        file = _held_at_fork.pop()
        file._lost = file._lost or (in_child and file._busy)
        file._lock.release()
    _fork_lock.release()


def _after_fork_in_child() -> Any:
    """Go on in the child."""
    _after_fork(in_child=True)


def _after_fork_in_parent() -> Any:
    """Go on in the parent."""
    _after_fork(in_child=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_child=_after_fork_in_child,
        after_in_parent=_after_fork_in_parent,
    )
