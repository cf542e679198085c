"""The wire between the process that holds attributes and those that ask.

A message is a JSON header and arrays of plain types, sent as raw bytes over a local
connection whose ends have proved to hold the same key. Nothing that arrives is unpickled.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import socket
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy.typing as npt

from .exceptions import LedgerIntegrityError, PrivacyBudgetExceeded, UnknownIndividuals
from .handshake import (
    Address,
    admit,
    as_connection,
    checked_key,
    dial,
    hang_up,
    listen,
    plain_address,
    remove_socket,
)
from .wire import MAX_BYTES, MalformedMessage, receive_message, send_message

__all__ = ["Client", "Server", "serve"]

Handler = Callable[
    [dict[str, Any], list[npt.NDArray[Any]]], tuple[Mapping[str, Any], Sequence[npt.NDArray[Any]]]
]

#: Errors that travel as they are. Of any other only the name does: its text might hold anything.
_ERRORS: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (
        PrivacyBudgetExceeded,
        UnknownIndividuals,
        LedgerIntegrityError,
        ValueError,
        TypeError,
        KeyError,
    )
}

_log = logging.getLogger(__name__)


def serve(
    handler: Handler,
    address: Address | None = None,
    authkey: bytes | None = None,
    *,
    max_bytes: int = MAX_BYTES,
) -> Server:
    """Answer messages of other processes in background threads.

    Parameters
    ----------
    handler : callable
        Takes a header (dict) and a list of arrays, returns the same. Called from several
        threads at once.
    address : str or tuple of (str, int), default=None
        Path of a socket file (mode 0600) or (host, port), port 0 for any; None makes a
        socket file in a private folder.
    authkey : bytes, default=None
        Key that clients must prove to hold; None makes a random one.
    max_bytes : int, default=4 GiB
        Largest message.

    Returns
    -------
    Server

    Raises
    ------
    ValueError, TypeError
        If address or authkey is malformed.
    OSError
        If the address cannot be served, for instance because somebody else does.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.transport import Client, serve
    >>> def double(header, arrays):
    ...     return {"seen": header["name"]}, [2 * array for array in arrays]
    >>> with serve(double) as server:
    ...     client = Client(server.address, server.authkey)
    ...     reply, arrays = client.ask({"name": "x"}, [np.arange(3)])
    ...     client.close()
    >>> reply, arrays[0].tolist()
    ({'seen': 'x'}, [0, 2, 4])
    """
    return Server(handler, address, authkey, max_bytes=max_bytes)


class Server:
    """Threads that answer clients, one each; see :func:`serve`.

    Attributes
    ----------
    address : str or tuple
        Where it is served.
    authkey : bytes
        The shared key.
    """

    def __init__(
        self,
        handler: Handler,
        address: Address | None = None,
        authkey: bytes | None = None,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.authkey = secrets.token_bytes(32) if authkey is None else checked_key(authkey)
        self._handler = handler
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._closed = threading.Event()
        folder = None
        if address is None and hasattr(socket, "AF_UNIX"):
            folder = tempfile.mkdtemp(prefix="fairleak-")
            address = os.path.join(folder, "auditor")
        try:
            self._socket = listen(("localhost", 0) if address is None else address)
        except BaseException:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        self.address: Address = plain_address(self._socket.getsockname())
        file = self.address if isinstance(self.address, str) else None
        self._remove = weakref.finalize(self, remove_socket, file, folder, os.getpid())
        _servers.add(self)
        threading.Thread(target=self._accept, name="fairleak-accept", daemon=True).start()

    def serve_forever(self) -> None:
        """Wait until the server is closed; clients are answered in other threads."""
        self._closed.wait()

    def close(self) -> None:
        """Stop answering: close every connection and remove the socket file."""
        self._closed.set()
        with contextlib.suppress(OSError):
            # Wakes the thread that waits in accept().
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            for connection in self._connections:
                hang_up(connection)
        self._remove()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Server(address={self.address!r})"

    def _accept(self) -> None:
        """Give every client a thread."""
        while not self._closed.is_set():
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                if self._closed.wait(0.05):
                    return
                continue
            attend = threading.Thread(
                target=self._attend, args=(accepted,), name="fairleak-client", daemon=True
            )
            try:
                attend.start()
            except RuntimeError:
                # No thread to spare: this client is turned away, the others go on.
                accepted.close()

    def _attend(self, accepted: socket.socket) -> None:
        """Answer one client until it leaves or sends something that is not a message."""
        with contextlib.suppress(OSError, EOFError), self._registered(accepted) as connection:
            if not self._closed.is_set() and admit(connection, self.authkey):
                while self._answer(connection):
                    pass

    @contextlib.contextmanager
    def _registered(self, accepted: socket.socket) -> Iterator[Connection]:
        """Know of a connection as long as it is open, so that close() can end it."""
        with accepted:
            connection = as_connection(accepted)
        with self._lock:
            self._connections.add(connection)
        try:
            yield connection
        finally:
            with self._lock:
                self._connections.discard(connection)
                connection.close()

    def _answer(self, connection: Connection) -> bool:
        """Answer one message; tell whether the next one can be read."""
        try:
            header, arrays = receive_message(connection, self._max_bytes)
        except MalformedMessage as error:
            send_message(connection, _error(error), [])
            return False
        try:
            reply, answered = self._handler(header, arrays)
        except Exception as error:
            send_message(connection, _error(error), [])
            return True
        try:
            send_message(connection, {"reply": dict(reply)}, answered, self._max_bytes)
        except (TypeError, ValueError) as error:
            send_message(connection, _error(error), [])
        return True


class Client:
    """A connection to a :class:`Server`, made at the first question.

    Threads take turns. A forked process makes its own connection.

    Parameters
    ----------
    address : str or tuple of (str, int)
        Where the auditor is served.
    authkey : bytes
        The shared key.
    max_bytes : int, default=4 GiB
        Largest message.
    """

    def __init__(self, address: Address, authkey: bytes, *, max_bytes: int = MAX_BYTES) -> None:
        self.address = plain_address(address)
        self._authkey = checked_key(authkey)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        _clients.add(self)

    def ask(
        self, header: Mapping[str, Any], arrays: Sequence[npt.ArrayLike] = ()
    ) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
        """Send a message and return its answer.

        Parameters
        ----------
        header : mapping
            JSON-able.
        arrays : sequence of array-like, default=()
            Booleans, numbers or strings.

        Returns
        -------
        header : dict
        arrays : list of ndarray
            Read-only.

        Raises
        ------
        ConnectionError
            If nobody serves at the address, or the server went away.
        AuthenticationError
            If the server holds another key.
        PrivacyBudgetExceeded, UnknownIndividuals, LedgerIntegrityError, ValueError, TypeError, KeyError
            What the handler raised.
        RuntimeError
            If the handler failed in another way.
        """
        with self._lock:
            try:
                answer, answered = self._exchange(header, arrays)
            except (OSError, EOFError, MalformedMessage) as error:
                self._drop()
                raise ConnectionError(
                    f"The auditor at {self.address!r} is not reachable ({_cause(error)}). Start it, or check the "
                    "address."
                ) from error
            except (TypeError, ValueError):
                # Refused before anything was sent: the connection is good.
                raise
            except BaseException:
                # Interrupted half-way: the next question must not read this one's answer.
                self._drop()
                raise
        if "error" in answer:
            name, message = answer["error"]
            if name in _ERRORS:
                raise _ERRORS[name](message)
            raise RuntimeError(message)
        return answer["reply"], answered

    def close(self) -> None:
        """Close the connection; the next question opens another."""
        with self._lock:
            self._drop()

    def __repr__(self) -> str:
        return f"Client(address={self.address!r})"

    def _exchange(
        self, header: Mapping[str, Any], arrays: Sequence[npt.ArrayLike]
    ) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
        """Send a message and read its answer."""
        if self._connection is None:
            self._connection = dial(self.address, self._authkey)
        try:
            send_message(self._connection, header, arrays, self._max_bytes)
        except OSError:
            # The server may have said why before it hung up.
            if not self._connection.poll(0):
                raise
        return receive_message(self._connection, self._max_bytes)

    def _drop(self) -> None:
        """Forget the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _error(error: Exception) -> dict[str, Any]:
    """Describe an error so that it can be raised on the other side."""
    for kind in type(error).__mro__:
        if _ERRORS.get(kind.__name__) is kind:
            return {"error": [kind.__name__, str(error.args[0]) if len(error.args) == 1 else str(error)]}
    _log.error("A question could not be answered: %s", type(error).__name__)
    return {"error": ["RuntimeError", f"The auditor could not answer: {type(error).__name__}."]}


def _cause(error: BaseException) -> str:
    """Name a cause, without an empty text."""
    return str(error) or type(error).__name__


_servers: weakref.WeakSet[Server] = weakref.WeakSet()
_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork_in_child() -> Any:
    """Let go of what belongs to the parent: a child neither serves nor shares a connection."""
    for server in list(_servers):
        server._lock = threading.Lock()
        server._closed.set()
        server._socket.close()
        for connection in server._connections:
            connection.close()
    for client in list(_clients):
        client._lock = threading.Lock()
        client._drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
