"""The ledger's entries, each sealed by a keyed hash over itself and the one before it.

An entry that is edited, deleted, inserted or moved no longer fits its hash. The number and
hash of the last entry are kept apart, so that missing last entries show as well.
"""

from __future__ import annotations

import hmac
import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .exceptions import LedgerIntegrityError
from .ledger_charges import ZERO, Units

__all__ = [
    "START",
    "Entry",
    "Head",
    "append",
    "framed",
    "keyed",
    "read_entries",
    "read_head",
    "reserve",
    "seal",
]


class Head(NamedTuple):
    """Number and hash of an entry."""

    number: int
    hash: bytes


#: What comes before the first entry.
START = Head(0, bytes(32))

_COLUMNS = "number, time, kind, account, digest, individuals, loss, query, answer_digest"


@dataclass(frozen=True)
class Entry:
    """One line of the ledger.

    Attributes
    ----------
    number : int
        Place in the chain, from 1.
    time : int
        Microseconds since 1970 in UTC, by this machine's clock. Information only: the
        order of entries is their number.
    kind : {"ledger", "bind", "account", "answer", "refusal"}
        What happened.
    account : int or None
        Sub-budget it belongs to.
    digest : bytes or None
        Keyed digest of the question.
    individuals : bytes or None
        Keyed digest of the set of individuals asked about; None means all.
    loss : tuple of four int
        Privacy loss, in grid units.
    query : dict
        Public description.
    answer_digest : bytes or None
        Keyed digest of the recorded answer.
    """

    number: int
    kind: str
    time: int = 0
    account: int | None = None
    digest: bytes | None = None
    individuals: bytes | None = None
    loss: Units = ZERO
    query: str = "{}"
    answer_digest: bytes | None = None

    def sealed(self, key: bytes, previous: bytes) -> bytes:
        """Return the entry's hash."""
        fields = [
            self.number,
            self.time,
            self.kind,
            self.account,
            _hex(self.digest),
            _hex(self.individuals),
            list(self.loss),
            self.query,
            _hex(self.answer_digest),
        ]
        return keyed(key, b"entry", previous, json.dumps(fields).encode())

    def facts(self) -> dict[str, Any]:
        """Return the public description as a dictionary."""
        return dict(json.loads(self.query))


def keyed(key: bytes, *parts: bytes) -> bytes:
    """Return an HMAC-SHA256 of several parts that cannot be split in another way."""
    return hmac.digest(key, framed(*parts), "sha256")


def framed(*parts: bytes) -> bytes:
    """Join parts, each behind its length."""
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def read_head(connection: sqlite3.Connection) -> Head:
    """Return the noted head."""
    row = connection.execute("SELECT value FROM facts WHERE name = 'head'").fetchone()
    if row is None:
        return START
    noted = row[0] if isinstance(row[0], bytes) else b""
    return Head(int.from_bytes(noted[:8], "big"), noted[8:])


def read_entries(
    connection: sqlite3.Connection, key: bytes, after: Head, where: str
) -> Iterator[tuple[Entry, Head]]:
    """Read and check the entries behind a head that is known to be right, each with its own head.

    Raises
    ------
    LedgerIntegrityError
        At the first entry that does not fit, naming it; or if the last ones are missing.
    """
    noted = read_head(connection)
    rows = connection.execute(
        f"SELECT {_COLUMNS}, hash FROM entries WHERE number > ? ORDER BY number", (after.number,)
    )
    for *fields, sealed in rows:
        expected = after.number + 1
        if fields[0] != expected:
            raise LedgerIntegrityError(f"{where}: entry {expected} is missing.")
        try:
            number, when, kind, account, digest, individuals, loss, query, answer_digest = fields
            epsilon, delta, rho, pure_rho = (int(part) for part in loss.split(" "))
            units = epsilon, delta, rho, pure_rho
            entry = Entry(number, kind, when, account, digest, individuals, units, query, answer_digest)
            hashed = entry.sealed(key, after.hash)
            intact = hmac.compare_digest(hashed, sealed)
        except (AttributeError, TypeError, ValueError):
            intact = False
        if not intact:
            raise LedgerIntegrityError(
                f"{where}: entry {expected} was altered, moved or inserted: it does not fit its hash."
            )
        after = Head(number, hashed)
        yield entry, after
    if after != noted:
        raise LedgerIntegrityError(
            f"{where}: its last entry is {after.number}, but {noted.number} were written: the last ones are missing."
            if after.number < noted.number
            else f"{where}: entry {after.number} is not the last one that was written."
        )


def reserve(connection: sqlite3.Connection, entry: Entry) -> Entry:
    """Write an entry that is not sealed yet, stamped with the time."""
    entry = replace(entry, time=time.time_ns() // 1000)
    connection.execute(
        f"INSERT INTO entries ({_COLUMNS}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, zeroblob(32))",
        (
            entry.number,
            entry.time,
            entry.kind,
            entry.account,
            entry.digest,
            entry.individuals,
            " ".join(str(units) for units in entry.loss),
            entry.query,
            None,
        ),
    )
    return entry


def seal(
    connection: sqlite3.Connection, key: bytes, previous: Head, entry: Entry, answer: str | None = None
) -> Head:
    """Add the answer to a reserved entry, chain it, and note it as the head."""
    if answer is not None:
        entry = replace(entry, answer_digest=keyed(key, b"answer", answer.encode()))
    hashed = entry.sealed(key, previous.hash)
    connection.execute(
        "UPDATE entries SET answer = ?, answer_digest = ?, hash = ? WHERE number = ?",
        (answer, entry.answer_digest, hashed, entry.number),
    )
    connection.execute(
        "INSERT OR REPLACE INTO facts VALUES ('head', ?)", (entry.number.to_bytes(8, "big") + hashed,)
    )
    return Head(entry.number, hashed)


def append(connection: sqlite3.Connection, key: bytes, previous: Head, entry: Entry) -> Head:
    """Write and seal an entry without an answer."""
    return seal(connection, key, previous, reserve(connection, entry))


def _hex(value: bytes | None) -> str | None:
    """Write bytes so that JSON can hold them."""
    return None if value is None else value.hex()
