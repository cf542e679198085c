"""Answer questions about an auditor's individuals that come from other processes.

Headers and arrays come in, public answers go out. This is the compliance side: everything a
client sends is checked like a stranger's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from .accounts import AccountSettings
from .auditor import FairnessAuditor
from .choices import FirstWithin, PrivateChoice
from .individuals import RowIds
from .plain_terms import choice_from_plain, outcome_to_plain, settings_from_plain
from .transport import Server, serve

__all__ = ["serve_auditor", "serve_in_background"]

Arrays = Sequence[npt.NDArray[Any]]

#: Streams of tests that may be open at once.
_MOST_WATCHES = 1000


def serve_auditor(
    auditor: FairnessAuditor, address: Any = None, authkey: bytes | None = None, *, trusted: bool = False
) -> Server:
    """Answer questions about an auditor's individuals from other processes.

    Parameters
    ----------
    auditor : FairnessAuditor
        Stays in this process with its attributes.
    address : str or tuple, default=None
        Path of a socket file (mode 0600), or (host, port); None makes a private socket.
    authkey : bytes, default=None
        Shared key that clients must prove to hold; None makes a random one.
    trusted : bool, default=False
        Whether clients may open accounts whose answers are not private. Only this package's
        own workers are.

    Returns
    -------
    Server
        Has ``address``, ``authkey``, ``close()``, and works as a context manager.
    """
    return serve(_Handler(auditor, trusted), address, authkey)


def serve_in_background(auditor: FairnessAuditor) -> Server:
    """Serve this process's own workers (``n_jobs``), which ask on accounts already open."""
    return serve_auditor(auditor)


class _Handler:
    """Turn headers and arrays into calls of an auditor."""

    def __init__(self, auditor: FairnessAuditor, trusted: bool) -> None:
        self.auditor = auditor
        self.trusted = trusted
        self._lock = threading.Lock()
        self._watches: dict[int, Callable[[Any], PrivateChoice]] = {}
        self._opened = 0

    def __call__(self, header: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], list[Any]]:
        """Answer one message."""
        auditor, call = self.auditor, header.get("call")
        if call == "describe":
            return {
                "n_individuals": auditor.n_individuals,
                "groups": [str(group) for group in auditor.groups],
                "is_count": auditor.is_count,
                "is_pair": auditor.is_pair,
                "names": list(auditor.names),
                "row_key": auditor.row_key.hex(),
                "epsilon": auditor.ledger.epsilon,
                "delta": auditor.ledger.delta,
            }, []
        if call == "report":
            return dict(auditor.report()), []
        if call == "open_account":
            settings = self._settings(header)
            return {"account": auditor.open_account(settings)}, []
        if call == "answers_left":
            return {"left": auditor.answers_left(int(header["account"]))}, []
        if call == "refused":
            return {"refused": auditor.refused(int(header["account"]))}, []
        if call == "order_of":
            order = auditor.order_of(arrays[0])
            return {"in_order": order is None}, [] if order is None else [order]
        if call == "ask_routed":
            named = dict(zip(header["names"], arrays, strict=True))
            routed: Any = auditor
            answers = routed.ask_routed(
                int(header["account"]),
                named["y_pred"],
                named.get("y_true"),
                named["sensitive_features"],
                named["entries"],
                sample_weight=named.get("sample_weight"),
            )
            return answers.to_plain(), []
        if call in ("ask", "choose", "watch"):
            named = dict(zip(header["names"], arrays, strict=True))
            rows = None
            if "ids" in named:
                rows = RowIds(named["ids"], named.get("fingerprints"), explicit=bool(header["explicit"]))
            about = {"rows": rows, "sample_weight": named.get("sample_weight")}
            y_pred, y_true = named["y_pred"], named.get("y_true")
            if call == "watch":
                return self._watch(header, y_pred, about | {"y_true": y_true})
            if call == "choose":
                settings, choice = self._settings(header), choice_from_plain(header["choice"])
                return outcome_to_plain(auditor.choose(settings, choice, y_pred, y_true, **about)), []
            account, scoring = int(header["account"]), bool(header["scoring"])
            return auditor.ask(account, y_pred, y_true, scoring=scoring, **about).to_plain(), []
        raise ValueError(f"unknown call {call!r}")

    def _settings(self, header: Mapping[str, Any]) -> AccountSettings:
        """Read the terms a client asks for, and refuse those that protect nobody."""
        settings = settings_from_plain(header["settings"])
        if not self.trusted and not (settings.is_private and self.auditor.random_state is None):
            raise ValueError(
                "This auditor gives private answers only: exact, rounded, seeded and paper-calibrated ones "
                "are refused over a connection."
            )
        return settings

    def _watch(
        self, header: Mapping[str, Any], y_pred: npt.NDArray[Any], about: dict[str, Any]
    ) -> tuple[dict[str, Any], list[Any]]:
        """Test one model of a stream, whose state stays here until a model passes."""
        number = header["number"]
        if number is None:
            choice = choice_from_plain(header["choice"])
            if not isinstance(choice, FirstWithin):
                raise ValueError("A stream of tests is a FirstWithin choice.")
            test = self.auditor.watch(self._settings(header), choice, **about)
        else:
            with self._lock:
                known = self._watches.get(int(number))
            if known is None:
                raise ValueError("This stream of tests has ended: a model has passed. Open another.")
            test = known
        # A watch is kept only once its first model has been charged.
        outcome = test(y_pred)
        with self._lock:
            if number is None:
                if len(self._watches) >= _MOST_WATCHES:
                    self._watches.pop(next(iter(self._watches)))
                self._opened += 1
                number = self._opened
                self._watches[number] = test
            if outcome:
                self._watches.pop(int(number), None)
        return {"number": int(number), "outcome": outcome_to_plain(outcome)}, []
