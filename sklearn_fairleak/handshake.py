"""Opening the two ends of a connection: socket files for their owner alone, and a proof of the key."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import shutil
import socket
import stat
import struct
import warnings
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import Any

__all__ = [
    "Address",
    "admit",
    "as_connection",
    "checked_key",
    "dial",
    "hang_up",
    "listen",
    "plain_address",
    "remove_socket",
]

Address = str | tuple[str, int]

#: Seconds that either side has to prove the key, so that a stranger cannot hold a door open.
_HANDSHAKE_SECONDS = 10

#: Longest path of a socket file that every system takes.
_LONGEST_PATH = 100

_SHORTEST_KEY = 8

_GREETING = b"sklearn_fairleak wire 1:"
_REFUSED = b"refused"


def listen(address: Address) -> socket.socket:
    """Open a listening socket; a socket file is for its owner alone."""
    address = plain_address(address)
    if not isinstance(address, str):
        if address[0] not in ("localhost", "127.0.0.1", "::1"):
            warnings.warn(
                f"Serving at {address[0]!r}: connections are authenticated but not encrypted. Use a tunnel between "
                "machines.",
                UserWarning,
                stacklevel=4,
            )
        return socket.create_server(address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    listening = socket.socket(socket.AF_UNIX)
    try:
        try:
            listening.bind(address)
        except OSError:
            _clear_stale(address)
            listening.bind(address)
        # Nobody can connect before listen(), so nobody can before the mode is set.
        os.chmod(address, 0o600)
        listening.listen(128)
    except BaseException:
        listening.close()
        raise
    return listening


def _clear_stale(path: str) -> None:
    """Remove a socket file that a killed server left; never one in use or of another kind."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"The socket file {path!r} cannot be made. Check that its folder exists.")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            if stat.S_ISSOCK(os.stat(path).st_mode):
                os.unlink(path)
                return
    raise FileExistsError(f"{path!r} is in use by another server or is no socket. Give another address.")


def dial(address: Address, authkey: bytes) -> Connection:
    """Connect, and prove both keys."""
    if isinstance(address, str):
        dialled = socket.socket(socket.AF_UNIX)
        try:
            dialled.connect(address)
        except BaseException:
            dialled.close()
            raise
    else:
        dialled = socket.create_connection(address, timeout=_HANDSHAKE_SECONDS)
    connection = as_connection(dialled)
    try:
        challenge = connection.recv_bytes(256)
        if not challenge.startswith(_GREETING):
            raise ConnectionError("something else answers there")
        mine = secrets.token_bytes(32)
        connection.send_bytes(mine + _proof(authkey, b"client", challenge, mine))
        if not hmac.compare_digest(connection.recv_bytes(256), _proof(authkey, b"server", challenge, mine)):
            raise AuthenticationError(f"The auditor at {address!r} holds another key. Check authkey.")
    except BaseException:
        connection.close()
        raise
    _set_patience(connection, 0)
    return connection


def admit(connection: Connection, authkey: bytes) -> bool:
    """Let a client in if it proves to hold the key."""
    challenge = _GREETING + secrets.token_bytes(32)
    connection.send_bytes(challenge)
    answer = connection.recv_bytes(256)
    theirs, proof = answer[:32], answer[32:]
    if not hmac.compare_digest(proof, _proof(authkey, b"client", challenge, theirs)):
        connection.send_bytes(_REFUSED)
        return False
    connection.send_bytes(_proof(authkey, b"server", challenge, theirs))
    _set_patience(connection, 0)
    return True


def _proof(authkey: bytes, side: bytes, challenge: bytes, mine: bytes) -> bytes:
    """Return what only a holder of the key can compute; each side has its own."""
    return hmac.digest(authkey, side + challenge + mine, "sha256")


def as_connection(opened: socket.socket) -> Connection:
    """Wrap a socket; until the key is proved, silence ends it."""
    opened.settimeout(None)
    if opened.family != getattr(socket, "AF_UNIX", None):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = Connection(opened.detach())
    _set_patience(connection, _HANDSHAKE_SECONDS)
    return connection


def _set_patience(connection: Connection, seconds: int) -> None:
    """Limit how long reading and writing may block; 0 means no limit."""
    if os.name != "posix":
        return
    with socket.socket(fileno=os.dup(connection.fileno())) as opened:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            opened.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))


def hang_up(connection: Connection) -> None:
    """End a connection that another thread may be reading."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as opened:
        opened.shutdown(socket.SHUT_RDWR)


def checked_key(authkey: bytes) -> bytes:
    """Refuse keys that protect nothing."""
    if not isinstance(authkey, bytes):
        raise TypeError(f"authkey must be bytes, got {type(authkey).__name__}.")
    if len(authkey) < _SHORTEST_KEY:
        raise ValueError(
            f"authkey must have at least {_SHORTEST_KEY} bytes; secrets.token_bytes(32) makes one."
        )
    return authkey


def plain_address(address: Any) -> Address:
    """Return an address in one form, or say which forms there are."""
    if isinstance(address, os.PathLike):
        address = os.fspath(address)
    if isinstance(address, bytes):
        address = os.fsdecode(address)
    if isinstance(address, str) and address:
        if not hasattr(socket, "AF_UNIX"):
            raise ValueError(f"this system has no socket files; give (host, port) instead of {address!r}.")
        if len(os.fsencode(address)) > _LONGEST_PATH:
            raise ValueError(
                f"the path of a socket file may have {_LONGEST_PATH} bytes, {address!r} is longer."
            )
        return os.path.abspath(address)
    if isinstance(address, list | tuple) and len(address) >= 2 and isinstance(address[0], str):
        return address[0], int(address[1])
    raise ValueError(f"address must be the path of a socket file or (host, port), got {address!r}.")


def remove_socket(file: str | None, folder: str | None, creator: int) -> None:
    """Remove what a server left in the file system, in the process that made it."""
    if os.getpid() != creator:
        return
    if file is not None:
        with contextlib.suppress(OSError):
            os.unlink(file)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
