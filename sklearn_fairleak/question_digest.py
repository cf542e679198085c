"""What a question is known by again, so that asking it twice is answered and charged once.

Everything public that an answer depends on comes in; a digest goes out.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from .queries import QueryBatch
from .row_blocks import map_row_blocks

__all__ = ["digest_question"]

#: Larger arrays are known by a secret projection instead of a hash: 128 MB of float64.
_HASHED = 2**24


def digest_question(
    terms: tuple[Any, ...], batch: QueryBatch, positions: npt.NDArray[np.int64] | None, secret: bytes
) -> bytes:
    """Return a digest of terms, values, subsets and individuals.

    Parameters
    ----------
    terms : tuple
        Public terms, told apart by their ``repr``.
    batch : QueryBatch
        The question.
    positions : ndarray of shape (n_samples,) or None
        Individuals it is about; None means everyone.
    secret : bytes of length 16
        Key of the projection of large arrays.
    """
    digest = hashlib.sha256(repr((*terms, batch.metric, batch.n_samples)).encode())
    digest.update(b"everyone" if positions is None else positions.data)
    for query in batch.queries:
        for array in (query.values, query.subset, query.weights):
            # Each part's length keeps two different questions from reading the same.
            digest.update(repr(None if array is None else array.shape).encode())
            if array is not None:
                digest.update(_fingerprint(array, secret))
    return digest.digest()


def _fingerprint(array: npt.NDArray[Any], secret: bytes) -> bytes:
    """Return bytes that tell a question's array from others.

    A large matrix is known by its product with a random column that only the key tells:
    nobody can make two questions that look alike, and a product is many times faster than a
    hash. A mistake could only replay an answer already given.
    """
    if array.ndim < 2 or array.size < _HASHED:
        return hashlib.sha256(np.ascontiguousarray(array).data).digest()
    key = np.frombuffer(secret, dtype=np.uint64)
    column = np.random.Generator(np.random.Philox(key=key)).random(array.shape[1])
    # BLAS may round otherwise with another number of threads, and a question would be paid twice.
    parts = map_row_blocks(lambda rows, where: np.einsum("ij,j->i", rows, column), array)
    return np.concatenate(parts).tobytes()
