"""What a message between processes is: a JSON header, then raw arrays of plain types.

Sizes are announced and limited before anything is read; what does not fit is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_BYTES", "MalformedMessage", "receive_message", "send_message"]

Array = npt.NDArray[Any]

#: Largest message by default.
MAX_BYTES = 4 * 2**30

_MAX_HEADER_BYTES = 64 * 2**20
_MAX_ARRAYS = 64
_MAX_DIMENSIONS = 4

#: Booleans, integers, floats, and strings of fixed size; little-endian.
_PLAIN_TYPE = re.compile(r"\|b1|[<|][iu][1248]|<f[248]|\|S\d{1,6}|<U\d{1,6}")


class MalformedMessage(ValueError):  # noqa: N818 - what is wrong, rather than that something is
    """Raise when what arrives is not a message, or is larger than allowed."""


def send_message(
    connection: Connection,
    header: Mapping[str, Any],
    arrays: Sequence[npt.ArrayLike],
    max_bytes: int = MAX_BYTES,
) -> None:
    """Send a header and arrays.

    Raises
    ------
    TypeError
        If the header is not JSON-able, or an array is not of a plain type. Nothing is sent.
    ValueError
        If the message is too large. Nothing is sent.
    """
    plain = [_plain(np.asarray(array)) for array in arrays]
    described = {"header": dict(header), "arrays": [[array.dtype.str, array.shape] for array in plain]}
    text = json.dumps(described, separators=(",", ":")).encode()
    size = len(text) + sum(array.nbytes for array in plain)
    if size > max_bytes or len(text) > _MAX_HEADER_BYTES or len(plain) > _MAX_ARRAYS:
        raise ValueError(
            f"a message of {size} bytes with {len(plain)} arrays is too large: at most {max_bytes} bytes, of which "
            f"{_MAX_HEADER_BYTES} in the header, and {_MAX_ARRAYS} arrays."
        )
    connection.send_bytes(text)
    for array in plain:
        if array.nbytes:
            connection.send_bytes(array.reshape(-1).view(np.uint8).data)


def receive_message(connection: Connection, max_bytes: int = MAX_BYTES) -> tuple[dict[str, Any], list[Array]]:
    """Receive a header and arrays; the arrays are read-only.

    Raises
    ------
    MalformedMessage
        If the bytes are something else. The connection cannot be read on.
    EOFError, OSError
        If the connection ends.
    """
    text = _receive(connection, min(max_bytes, _MAX_HEADER_BYTES))
    try:
        described = json.loads(text)
        header, kinds = described["header"], described["arrays"]
        if not isinstance(header, dict) or not isinstance(kinds, list) or len(kinds) > _MAX_ARRAYS:
            raise MalformedMessage("the header is not an object, or there are too many arrays")
        expected = [_announced(*kind) for kind in kinds]
    except MalformedMessage:
        raise
    except (KeyError, TypeError, ValueError, RecursionError, IndexError):
        raise MalformedMessage("this is not a message of this package") from None
    if len(text) + sum(nbytes for _, _, nbytes in expected) > max_bytes:
        raise MalformedMessage(f"the message is larger than {max_bytes} bytes")
    arrays = []
    for dtype, shape, nbytes in expected:
        raw = _receive(connection, nbytes) if nbytes else b""
        if len(raw) != nbytes:
            raise MalformedMessage(f"an array of {nbytes} bytes was announced, {len(raw)} came")
        array = np.frombuffer(raw, dtype=dtype).reshape(shape) if nbytes else np.empty(shape, dtype=dtype)
        if array.dtype.kind == "b" and nbytes and bool((array.view(np.uint8) > 1).any()):
            raise MalformedMessage("a boolean is neither 0 nor 1")
        if array.dtype.kind == "U" and nbytes and bool((np.frombuffer(raw, "<u4") > 0x10FFFF).any()):
            raise MalformedMessage("a string holds something that is not a character")
        arrays.append(array)
    return header, arrays


def _receive(connection: Connection, most: int) -> bytes:
    """Read one block of at most so many bytes."""
    try:
        return connection.recv_bytes(most)
    except EOFError:
        raise
    except OSError as error:
        # multiprocessing closes the connection and raises this when a block is too long.
        if "bad message length" in str(error):
            raise MalformedMessage(f"a block is longer than {most} bytes") from None
        raise


def _announced(name: Any, shape: Any) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Check a type and a shape that the other side announced; return the size too."""
    if not isinstance(name, str) or not _PLAIN_TYPE.fullmatch(name):
        raise MalformedMessage("an array is not of a plain type")
    sizes = tuple(shape)
    whole = all(isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 2**48 for size in sizes)
    if not whole or len(sizes) > _MAX_DIMENSIONS:
        raise MalformedMessage("the shape of an array is not a few whole numbers")
    dtype = np.dtype(name)
    return dtype, sizes, math.prod(sizes) * dtype.itemsize


def _plain(array: Array) -> Array:
    """Return an array that may travel: contiguous, little-endian, of a plain type."""
    if array.dtype.kind == "O":
        kinds = {type(value) for value in array.ravel()}
        for allowed, dtype in (
            (str, "U"),
            (bool, "?"),
            (int | np.integer, "i8"),
            (int | float | np.number, "f8"),
        ):
            if kinds and all(issubclass(kind, allowed) for kind in kinds):
                array = array.astype(dtype)
                break
    plain = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).reshape(array.shape)
    if not _PLAIN_TYPE.fullmatch(plain.dtype.str) or plain.ndim > _MAX_DIMENSIONS:
        raise TypeError(
            f"an array of dtype {array.dtype} with {array.ndim} dimensions cannot be sent: only booleans, integers, "
            "floats and strings can. Convert it first."
        )
    return plain
