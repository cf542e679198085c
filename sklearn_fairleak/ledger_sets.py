"""Sets of individuals: each distinct one is stored once, as a compressed bitmap under its keyed digest."""

from __future__ import annotations

import sqlite3
import zlib

import numpy as np
import numpy.typing as npt

from .exceptions import LedgerIntegrityError
from .ledger_chain import keyed

__all__ = ["IntArray", "MemberSets", "check_members"]

IntArray = npt.NDArray[np.int64]

#: Sets kept decoded in memory.
_DECODED = 8


class MemberSets:
    """Write and read the sets of individuals that questions were about.

    Parameters
    ----------
    key : bytes
        The ledger's key.
    where : str
        Begins messages about the file.
    """

    def __init__(self, key: bytes, where: str) -> None:
        self._key = key
        self._where = where
        self._decoded: dict[bytes, IntArray] = {}

    def mark(self, members: IntArray, n_individuals: int) -> tuple[bytes, bytes]:
        """Return a set's keyed digest and its bitmap."""
        mask = np.zeros(n_individuals, dtype=bool)
        mask[members] = True
        bitmap = np.packbits(mask).tobytes()
        return keyed(self._key, bitmap), bitmap

    def store(self, connection: sqlite3.Connection, mark: bytes, bitmap: bytes) -> None:
        """Write a set unless it is there."""
        if connection.execute("SELECT 1 FROM sets WHERE digest = ?", (mark,)).fetchone() is None:
            connection.execute("INSERT INTO sets VALUES (?, ?)", (mark, zlib.compress(bitmap, 1)))

    def load(self, connection: sqlite3.Connection, mark: bytes, n_individuals: int) -> IntArray:
        """Return the sorted positions in a set.

        Raises
        ------
        LedgerIntegrityError
            If the set is gone or was altered.
        """
        if mark not in self._decoded:
            self.remember(mark, self.read(connection, mark, n_individuals))
        return self._decoded[mark]

    def read(self, connection: sqlite3.Connection, mark: bytes, n_individuals: int) -> IntArray:
        """Return a set as the file has it now, checked."""
        row = connection.execute("SELECT members FROM sets WHERE digest = ?", (mark,)).fetchone()
        try:
            bitmap = b"" if row is None else zlib.decompress(row[0])
        except (TypeError, zlib.error):
            bitmap = b""
        if keyed(self._key, bitmap) != mark:
            raise LedgerIntegrityError(f"{self._where}: a set of individuals was altered or deleted.")
        mask = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), count=n_individuals)
        return np.flatnonzero(mask).astype(np.int64)

    def remember(self, mark: bytes, members: IntArray) -> None:
        """Keep the last few sets decoded."""
        self._decoded[mark] = members
        while len(self._decoded) > _DECODED:
            del self._decoded[next(iter(self._decoded))]


def check_members(individuals: npt.ArrayLike | None, n_individuals: int) -> IntArray | None:
    """Return sorted distinct positions; None stands for all individuals.

    Raises
    ------
    ValueError
        If they are anything else.
    """
    if individuals is None:
        return None
    members = np.asarray(individuals)
    if members.ndim != 1 or not np.issubdtype(members.dtype, np.integer) or not members.size:
        raise ValueError(
            f"individuals must be a 1-D array of at least one position, or None, got shape {members.shape} of "
            f"{members.dtype}."
        )
    if members[0] < 0 or members[-1] >= n_individuals or bool((members[1:] <= members[:-1]).any()):
        raise ValueError(f"individuals must be sorted, distinct and in 0 .. {n_individuals - 1}.")
    return None if members.size == n_individuals else members.astype(np.int64, copy=False)
