"""Ask an auditor that lives in another process, over plain data.

On the auditor's side headers and arrays come in and answers go out; on the developer's side
:class:`RemoteAuditor` has the methods that a scorer needs, and holds no secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .accounts import AccountSettings
from .answers import PrivateAnswers
from .auditor import FairnessAuditor
from .individuals import RowIds, find_row_ids, hash_rows
from .labels import as_column
from .mechanisms import MECHANISMS, Mechanism
from .transport import Client, Server, serve

__all__ = ["RemoteAuditor", "connect_auditor", "serve_auditor", "serve_in_background"]

Arrays = Sequence[npt.NDArray[Any]]


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


def connect_auditor(address: Any, authkey: bytes) -> RemoteAuditor:
    """Connect to an auditor that another process serves.

    Parameters
    ----------
    address : str or tuple
        Where the compliance process serves.
    authkey : bytes
        The shared key.

    Returns
    -------
    RemoteAuditor
        Whose ``scorer(metric, ...)`` is used like a local auditor's.

    Raises
    ------
    ConnectionError
        If nobody serves there.
    """
    auditor = RemoteAuditor(address, authkey)
    auditor.report()
    return auditor


class _Handler:
    """Turn headers and arrays into calls of an auditor."""

    def __init__(self, auditor: FairnessAuditor, trusted: bool) -> None:
        self.auditor = auditor
        self.trusted = trusted

    def __call__(self, header: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], list[Any]]:
        """Answer one message."""
        auditor, call = self.auditor, header.get("call")
        if call == "describe":
            return {
                "n_individuals": auditor.n_individuals,
                "groups": [str(group) for group in auditor.groups],
                "is_count": auditor.is_count,
                "names": list(auditor.names),
                "row_key": auditor.row_key.hex(),
                "epsilon": auditor.ledger.epsilon,
                "delta": auditor.ledger.delta,
            }, []
        if call == "report":
            return dict(auditor.report()), []
        if call == "open_account":
            settings = _settings_from_plain(header["settings"])
            if not self.trusted and not (settings.is_private and auditor.random_state is None):
                raise ValueError(
                    "This auditor gives private answers only: exact, rounded, seeded and paper-calibrated ones "
                    "are refused over a connection."
                )
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
        if call == "ask":
            named = dict(zip(header["names"], arrays, strict=True))
            rows = None
            if "ids" in named:
                rows = RowIds(named["ids"], named.get("fingerprints"), explicit=bool(header["explicit"]))
            answers = auditor.ask(
                int(header["account"]),
                named["y_pred"],
                named.get("y_true"),
                rows=rows,
                sample_weight=named.get("sample_weight"),
                scoring=bool(header["scoring"]),
            )
            return answers.to_plain(), []
        raise ValueError(f"unknown call {call!r}")


class RemoteAuditor:
    """A handle to an auditor in another process: it can only ask.

    Parameters
    ----------
    address : str or tuple
        Where the auditor is served.
    authkey : bytes
        The shared key.
    """

    def __init__(self, address: Any, authkey: bytes) -> None:
        self._client = Client(address, authkey)
        self._address, self._authkey = address, authkey
        self._public: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"RemoteAuditor(address={self._address!r})"

    def __reduce__(self) -> Any:
        return type(self), (self._address, self._authkey)

    def __deepcopy__(self, memo: Any) -> RemoteAuditor:
        return self

    def __copy__(self) -> RemoteAuditor:
        return self

    def __sklearn_clone__(self) -> RemoteAuditor:
        return self

    @property
    def n_individuals(self) -> int:
        """Number of individuals (public)."""
        return int(self._describe()["n_individuals"])

    @property
    def groups(self) -> tuple[str, ...]:
        """Public group labels, as text."""
        return tuple(self._describe()["groups"])

    @property
    def names(self) -> tuple[str, ...]:
        """Public names of the sensitive features."""
        return tuple(self._describe()["names"])

    @property
    def is_count(self) -> bool:
        """Whether individuals are known by a plain count."""
        return bool(self._describe()["is_count"])

    def scorer(self, metric: str = "statistical_parity", **settings: Any) -> Any:
        """Make a scorer; see :meth:`FairnessAuditor.scorer`."""
        from .scorer import PrivateFairnessScorer

        settings.setdefault("epsilon", self._describe()["epsilon"])
        settings.setdefault("delta", self._describe()["delta"])
        return PrivateFairnessScorer(metric, auditor=self, **settings)._open()

    def report(self) -> Mapping[str, Any]:
        """Return the auditor's public report."""
        return self._client.ask({"call": "report"}, [])[0]

    def open_account(self, settings: AccountSettings) -> int:
        """Fix the terms of a scorer; see :meth:`FairnessAuditor.open_account`."""
        header = {"call": "open_account", "settings": _settings_to_plain(settings)}
        return int(self._client.ask(header, [])[0]["account"])

    def ask(
        self,
        account: int,
        y_pred: Any,
        y_true: Any = None,
        *,
        rows: RowIds | None = None,
        sample_weight: Any = None,
        scoring: bool = False,
    ) -> PrivateAnswers:
        """Ask one question; see :meth:`FairnessAuditor.ask`."""
        arrays = {"y_pred": y_pred if getattr(y_pred, "ndim", 1) == 2 else as_column(y_pred, "y_pred")}
        if y_true is not None:
            arrays["y_true"] = as_column(y_true, "y_true")
        if sample_weight is not None:
            arrays["sample_weight"] = as_column(sample_weight, "sample_weight")
        if rows is not None:
            arrays["ids"] = rows.ids
            if rows.fingerprints is not None:
                arrays["fingerprints"] = rows.fingerprints
        header = {
            "call": "ask",
            "account": account,
            "names": list(arrays),
            "explicit": rows is not None and rows.explicit,
            "scoring": scoring,
        }
        reply, _ = self._client.ask(header, [np.ascontiguousarray(array) for array in arrays.values()])
        return PrivateAnswers.from_plain(reply)

    def find_rows(self, X: Any, y: Any, sample_ids: Any, id_column: Any) -> RowIds:
        """Find the ids of a query's rows; see :meth:`FairnessAuditor.find_rows`."""
        key = bytes.fromhex(self._describe()["row_key"]) if self.is_count else None
        return find_row_ids(X, y, sample_ids=sample_ids, id_column=id_column, key=key)

    def order_of(self, ids: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
        """Return where each individual stands in a full list of ids; None if it is in order."""
        reply, arrays = self._client.ask({"call": "order_of"}, [ids])
        return None if reply["in_order"] else np.asarray(arrays[0], dtype=np.int64)

    def answers_left(self, account: int) -> int | None:
        """Return how many more answers an account affords; see :meth:`FairnessAuditor.answers_left`."""
        left = self._client.ask({"call": "answers_left", "account": account}, [])[0]["left"]
        return None if left is None else int(left)

    def refused(self, account: int) -> int:
        """Return the number of questions refused to an account."""
        return int(self._client.ask({"call": "refused", "account": account}, [])[0]["refused"])

    def _describe(self) -> dict[str, Any]:
        """Fetch public facts once."""
        if self._public is None:
            self._public = dict(self._client.ask({"call": "describe"}, [])[0])
        return self._public


class RemoteRoutedAuditor(RemoteAuditor):
    """A worker's handle to the auditor of routed sensitive features in its parent process."""

    def entries(self, X: Any, y: Any, sample_ids: Any, id_column: Any) -> npt.NDArray[np.int64]:
        """Return the ledger entry of each row."""
        key = bytes.fromhex(self._describe()["row_key"])
        return hash_rows(X, y, sample_ids, id_column, key=key, size=self.n_individuals)

    def ask_routed(
        self,
        account: int,
        y_pred: Any,
        y_true: Any,
        sensitive_features: Any,
        entries: npt.NDArray[np.int64],
        *,
        sample_weight: Any = None,
    ) -> PrivateAnswers:
        """Ask one question that brings its sensitive features along."""
        arrays = {
            "y_pred": as_column(y_pred, "y_pred"),
            "sensitive_features": as_column(sensitive_features, "sensitive_features"),
            "entries": entries,
        }
        if y_true is not None:
            arrays["y_true"] = as_column(y_true, "y_true")
        if sample_weight is not None:
            arrays["sample_weight"] = as_column(sample_weight, "sample_weight")
        header = {"call": "ask_routed", "account": account, "names": list(arrays)}
        reply, _ = self._client.ask(header, [np.ascontiguousarray(array) for array in arrays.values()])
        return PrivateAnswers.from_plain(reply)


def _settings_to_plain(settings: AccountSettings) -> dict[str, Any]:
    """Write terms as JSON-able data; mechanisms go by name and parameters."""
    mechanism = settings.mechanism
    if MECHANISMS.get(mechanism.name) is not type(mechanism):
        raise ValueError(
            f"mechanism={mechanism!r} is not in the registry; only registered mechanisms can be asked for over "
            "a connection."
        )
    plain = asdict(replace(settings, mechanism=None))  # type: ignore[arg-type]
    return plain | {"mechanism": [mechanism.name, mechanism.get_params(deep=False)]}


def _settings_from_plain(plain: Mapping[str, Any]) -> AccountSettings:
    """Rebuild terms from :func:`_settings_to_plain`, trusting nothing."""
    name, params = plain["mechanism"]
    if name not in MECHANISMS:
        raise ValueError(f"unknown mechanism {name!r}")
    mechanism: Mechanism = MECHANISMS[name](**params)
    rest = {key: value for key, value in plain.items() if key != "mechanism"}
    if rest.get("bounds") is not None:
        rest["bounds"] = tuple(rest["bounds"])
    return AccountSettings(mechanism=mechanism, **rest)
