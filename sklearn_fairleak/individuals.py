"""Which rows are which people: ids in, positions out, never by guesswork.

The auditor keeps the ids of its individuals; a query's rows are found by routed sample ids,
by a column, or by the index of X or y, and checked by fingerprint where the index is a plain
count that a shuffle would not show in.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from .exceptions import UnknownIndividuals

__all__ = ["Individuals", "RowIds", "find_row_ids", "fingerprint_rows", "hash_rows", "plain_ids"]

IntArray = npt.NDArray[np.int64]

_NO_IDS = (
    "No sample ids: the rows of X cannot be matched to individuals (positions are never guessed). Either pass "
    "X or y as pandas objects that keep their index, or name a column of ids (id_column=), or route ids as "
    "metadata: sklearn.set_config(enable_metadata_routing=True) and fit(X, y, sample_ids=ids) "
    "(cross_validate: params={'sample_ids': ids}). NumPy arrays, and searches that convert their input to "
    "NumPy, lose the index."
)


class RowIds:
    """The ids of a query's rows, and their fingerprints where the ids are a plain count.

    Parameters
    ----------
    ids : ndarray of shape (n_samples,)
        Ids as given.
    fingerprints : ndarray of uint64 of shape (n_samples,), default=None
        Keyed hashes of the rows of X.
    explicit : bool, default=False
        Whether the caller named the ids, rather than an index that happens to be there.
    """

    def __init__(
        self,
        ids: npt.NDArray[Any],
        fingerprints: npt.NDArray[np.uint64] | None = None,
        *,
        explicit: bool = False,
    ) -> None:
        self.ids = ids
        self.fingerprints = fingerprints
        self.explicit = explicit

    def __len__(self) -> int:
        return int(self.ids.shape[0])


class Individuals:
    """The auditor's individuals: unique ids, in fitted order.

    Parameters
    ----------
    ids : array-like of shape (n_individuals,) or None
        Unique ids; None means a plain count 0, 1, 2, …
    fingerprints : ndarray of uint64 of shape (n_individuals,), default=None
        Keyed hashes of the fitted rows, which let a plain count serve as ids.
    n_individuals : int, default=None
        Number of individuals, where ``ids`` is None.

    Raises
    ------
    ValueError
        If ids are missing or not unique.
    """

    def __init__(
        self,
        ids: Any,
        fingerprints: npt.NDArray[np.uint64] | None = None,
        *,
        n_individuals: int | None = None,
    ) -> None:
        import pandas as pd

        index = pd.RangeIndex(n_individuals or 0) if ids is None else pd.Index(plain_ids(ids))
        if index.hasnans:
            raise ValueError("ids hold missing values; every individual needs an id.")
        if not index.is_unique:
            repeated = int(index.duplicated().sum())
            raise ValueError(f"ids must be unique, got {repeated} repeated id(s). One row a person.")
        self._index = index
        self._is_count = is_plain_count(index)
        self.fingerprints = fingerprints

    def __len__(self) -> int:
        return len(self._index)

    @property
    def is_count(self) -> bool:
        """Whether the ids are a plain count 0 … n-1, in which a shuffle does not show."""
        return self._is_count

    def digest(self) -> bytes:
        """Return a hash of the ids in their order."""
        if self._is_count:
            return hashlib.sha256(f"plain count of {len(self)}".encode()).digest()
        values = self._index.to_numpy()
        if values.dtype.kind == "O":
            values = values.astype(str)
        return hashlib.sha256(str(values.dtype).encode() + np.ascontiguousarray(values).tobytes()).digest()

    def positions(self, rows: RowIds) -> IntArray:
        """Return the position of each row's individual.

        Raises
        ------
        UnknownIndividuals
            If an id is not known, or of another type.
        ValueError
            If an id occurs twice, or a row is not the fitted row of that count.
        """
        ids = rows.ids
        if len(rows) == len(self) and self._is_count and _counts_up(ids):
            found = np.arange(len(self), dtype=np.int64)
        else:
            found = self._index.get_indexer(ids) if _same_kind(ids, self._index) else np.full(len(rows), -1)
            found = np.asarray(found, dtype=np.int64)
            unknown = int((found < 0).sum())
            if unknown:
                raise UnknownIndividuals(
                    f"{unknown} of {len(rows)} sample ids are unknown to the auditor (its ids are of type "
                    f"{self._index.inferred_type}, the query's of dtype {ids.dtype}). Pass the ids that the "
                    "auditor was built with."
                )
            counts = np.bincount(found, minlength=1)
            if counts.max(initial=0) > 1:
                raise ValueError(
                    f"{int((counts > 1).sum())} sample id(s) occur more than once in the query: each individual "
                    "may be counted once. Drop the duplicates (oversampling and bootstrap make them)."
                )
        if self._is_count and not rows.explicit:
            self._check_rows(rows, found)
        return found

    def order_of(self, ids: npt.NDArray[Any]) -> IntArray | None:
        """Return where each individual stands in a full list of ids; None if it is in order.

        Raises
        ------
        ValueError
            If the ids are not exactly the auditor's.
        """
        own = self._index.to_numpy()
        if len(ids) == len(own) and np.array_equal(np.asarray(own, dtype=ids.dtype), ids):
            return None
        import pandas as pd

        order = np.asarray(pd.Index(ids).get_indexer(self._index), dtype=np.int64)
        if len(ids) != len(own) or (order < 0).any():
            raise ValueError("y_true has an index with other ids than the auditor's individuals.")
        return order

    def _check_rows(self, rows: RowIds, found: IntArray) -> None:
        """Refuse rows under a plain count unless they are the fitted rows."""
        if rows.fingerprints is None or self.fingerprints is None:
            raise ValueError(
                "The ids are a plain count (0, 1, 2, …), in which a shuffle does not show, and there are no "
                "fitted rows to compare with. Give the individuals real ids (an index of X, ids=, id_column=) "
                "or fit the scorer with X."
            )
        if not np.array_equal(rows.fingerprints, self.fingerprints[found]):
            raise ValueError(
                "The rows of X do not match the fitted rows of the same count: X was shuffled, changed or "
                "re-indexed (reset_index) after fitting. Keep the index, or give real ids."
            )


def is_plain_count(index: Any) -> bool:
    """Say whether an index is 0, 1, 2, …"""
    if type(index).__name__ == "RangeIndex":
        # Nothing to look at, and no memory for it.
        return bool(len(index) and index.start == 0 and index.step == 1)
    values = np.asarray(index)
    return values.dtype.kind in "iu" and _counts_up(values)


def _counts_up(values: npt.NDArray[Any]) -> bool:
    """Say whether an array is exactly 0 … n-1."""
    return bool(
        values.dtype.kind in "iu"
        and values.size
        and values[0] == 0
        and values[-1] == values.size - 1
        and np.array_equal(values, np.arange(values.size))
    )


def _same_kind(ids: npt.NDArray[Any], index: Any) -> bool:
    """Say whether ids can be looked up as what they are, without turning 1 into '1'."""
    numbers = ids.dtype.kind in "iuf"
    return numbers == (np.asarray(index).dtype.kind in "iuf")


def plain_ids(ids: Any) -> npt.NDArray[Any]:
    """Return ids as a 1-D array of numbers or strings."""
    values = ids.to_numpy() if hasattr(ids, "to_numpy") else np.asarray(ids)
    if values.ndim != 1:
        raise ValueError(f"ids must be a 1-D column, got shape {values.shape}.")
    if values.dtype.kind == "O":
        import pandas as pd

        if pd.isna(values).any():
            raise ValueError("ids hold missing values; every individual needs an id.")
        kinds = {type(value) for value in values}
        if all(issubclass(kind, str) for kind in kinds):
            values = values.astype(str)
        elif not all(issubclass(kind, int | np.integer) for kind in kinds):
            values = np.array([repr(value) for value in values])
        else:
            values = values.astype(np.int64)
    elif values.dtype.kind in "Mm":
        values = values.astype(str)
    return np.asarray(values)


def fingerprint_rows(X: Any, key: bytes) -> npt.NDArray[np.uint64] | None:
    """Return a keyed 64-bit hash of every row of X, or None where X has no rows to hash.

    Parameters
    ----------
    X : DataFrame or ndarray of shape (n_samples, n_features)
        Public features.
    key : bytes of length 16
        Key of the hash, so that rows of two data sets cannot be compared.
    """
    import pandas as pd

    if hasattr(X, "toarray"):
        return None
    frame = X.to_pandas() if hasattr(X, "to_pandas") else X
    try:
        if not isinstance(frame, pd.DataFrame):
            frame = pd.DataFrame(np.asarray(frame))
        hashes = pd.util.hash_pandas_object(frame, index=False, hash_key=key.hex()[:16], categorize=False)
    except (TypeError, ValueError):
        return None
    # pandas uses its key for text only: mix it into every hash.
    mixed = np.asarray(hashes, dtype=np.uint64)
    for half in np.frombuffer(key[:16], dtype=np.uint64):
        mixed = (mixed ^ half) * np.uint64(0x9E3779B97F4A7C15)
        mixed = mixed ^ (mixed >> np.uint64(29))
    return mixed


def find_row_ids(
    X: Any, y: Any = None, *, sample_ids: Any = None, id_column: Any = None, key: bytes | None = None
) -> RowIds:
    """Find the ids of a query's rows.

    Parameters
    ----------
    X, y : array-like
        What the scorer was called with.
    sample_ids : array-like of shape (n_samples,), default=None
        Routed ids; they win.
    id_column : object, default=None
        Name of the column of X that holds ids.
    key : bytes, default=None
        Key to fingerprint rows with where the ids are a count.

    Returns
    -------
    RowIds

    Raises
    ------
    TypeError
        If there are no ids; the message names the ways to give them.
    """
    if sample_ids is not None:
        return RowIds(plain_ids(sample_ids), explicit=True)
    if id_column is not None:
        try:
            column = X[id_column]
        except (KeyError, IndexError, TypeError, ValueError):
            raise TypeError(f"id_column={id_column!r} is not a column of X. {_NO_IDS}") from None
        return RowIds(plain_ids(column), explicit=True)
    for holder in (X, y):
        index = getattr(holder, "index", None)
        if index is not None and not callable(index):
            ids = plain_ids(index)
            needs_check = key is not None and ids.dtype.kind in "iu"
            return RowIds(ids, fingerprint_rows(X, key) if needs_check and key is not None else None)
    raise TypeError(_NO_IDS)


def hash_rows(X: Any, y: Any, sample_ids: Any, id_column: Any, *, key: bytes, size: int) -> IntArray:
    """Return a keyed hash below ``size`` of each row's id or, without ids, of the row itself.

    Parameters
    ----------
    X, y, sample_ids, id_column
        As in :func:`find_row_ids`.
    key : bytes of length 16
        Key of the hash.
    size : int
        Number of different values.

    Returns
    -------
    ndarray of int64 of shape (n_samples,)

    Raises
    ------
    TypeError
        If there are neither ids nor rows that can be hashed.
    """
    table: Any
    try:
        ids = find_row_ids(X, y, sample_ids=sample_ids, id_column=id_column).ids
        table = np.asarray(ids).astype(str).reshape(-1, 1)
    except TypeError:
        table = X
    hashes = fingerprint_rows(table, key)
    if hashes is None:
        raise TypeError(_NO_IDS)
    return np.asarray(hashes % np.uint64(size), dtype=np.int64)
