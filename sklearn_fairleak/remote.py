"""Ask an auditor that lives in another process, over plain data.

Questions go out as headers and arrays, answers come back; :class:`RemoteAuditor` has the
methods that a scorer and a private choice need, and holds no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .accounts import AccountSettings
from .answers import PrivateAnswers
from .choices import Choice, ChoiceMethods, FirstWithin, PrivateChoice
from .individuals import RowIds, find_row_ids, hash_rows
from .labels import as_column
from .plain_terms import choice_to_plain, outcome_from_plain, settings_to_plain
from .transport import Client

__all__ = ["RemoteAuditor", "connect_auditor"]


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


class RemoteAuditor(ChoiceMethods):
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

    @property
    def is_pair(self) -> bool:
        """Whether there are two groups and no missing status."""
        return bool(self._describe()["is_pair"])

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
        header = {"call": "open_account", "settings": settings_to_plain(settings)}
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
        header, arrays = _question(y_pred, y_true, rows, sample_weight)
        header |= {"call": "ask", "account": account, "scoring": scoring}
        return PrivateAnswers.from_plain(self._client.ask(header, arrays)[0])

    def choose(
        self,
        settings: AccountSettings,
        choice: Choice,
        y_pred: Any,
        y_true: Any = None,
        *,
        rows: RowIds | None = None,
        sample_weight: Any = None,
    ) -> PrivateChoice:
        """Make one private choice among models; see :meth:`FairnessAuditor.choose`."""
        header, arrays = _question(y_pred, y_true, rows, sample_weight)
        header |= {
            "call": "choose",
            "settings": settings_to_plain(settings),
            "choice": choice_to_plain(choice),
        }
        return outcome_from_plain(self._client.ask(header, arrays)[0])

    def watch(
        self,
        settings: AccountSettings,
        choice: FirstWithin,
        *,
        rows: RowIds | None = None,
        y_true: Any = None,
        sample_weight: Any = None,
    ) -> Callable[[Any], PrivateChoice]:
        """Open a stream of tests; see :meth:`FairnessAuditor.watch`."""
        terms = {
            "call": "watch",
            "settings": settings_to_plain(settings),
            "choice": choice_to_plain(choice),
        }
        number: list[int] = []

        def test(y_pred: Any) -> PrivateChoice:
            header, arrays = _question(y_pred, y_true, rows, sample_weight)
            reply, _ = self._client.ask(header | terms | {"number": number[0] if number else None}, arrays)
            number[:] = [int(reply["number"])]
            return outcome_from_plain(reply["outcome"])

        return test

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


def _question(
    y_pred: Any, y_true: Any, rows: RowIds | None, sample_weight: Any
) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
    """Write a question's public parts as a header and arrays."""
    arrays = {"y_pred": y_pred if getattr(y_pred, "ndim", 1) == 2 else as_column(y_pred, "y_pred")}
    if y_true is not None:
        arrays["y_true"] = as_column(y_true, "y_true")
    if sample_weight is not None:
        arrays["sample_weight"] = as_column(sample_weight, "sample_weight")
    if rows is not None:
        arrays["ids"] = rows.ids
        if rows.fingerprints is not None:
            arrays["fingerprints"] = rows.fingerprints
    header = {"names": list(arrays), "explicit": rows is not None and rows.explicit}
    return header, [np.ascontiguousarray(array) for array in arrays.values()]
