"""An auditor for sensitive features that come with each question, as routed metadata.

The attributes are then in the asking process, so nobody is kept from them; what remains is
that answers are private and add up. Ids, or public rows where there are no ids, go in as
hashes; each hash is an entry of the ledger, and two people who share one are over-charged.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .accounts import AccountSettings, warn_refused
from .answers import PrivateAnswers
from .auditor import FairnessAuditor
from .exceptions import PrivacyBudgetExceeded
from .groups import Groups
from .individuals import hash_rows
from .labels import as_column
from .ledger import PrivacyLedger
from .mechanisms import Auto, Mechanism, NoisySums, RandomizedResponse
from .queries import make_queries

__all__ = ["RoutedAuditor"]

IntArray = npt.NDArray[np.int64]

#: Entries of the ledger that hashed individuals fall into.
_BUCKETS = 2**20


class RoutedAuditor(FairnessAuditor):
    """Answer questions that bring their sensitive features along.

    Two groups: the advantaged label, and everybody else. Naming it beforehand is what lets a
    fold in which only one label occurs be answered like any other.

    Parameters
    ----------
    advantaged : object
        Label of the advantaged group.
    epsilon, delta : float
        The whole budget of each individual.
    ledger : PrivacyLedger, str or path, default=None
        Where charges are kept.
    """

    def __init__(
        self, advantaged: Any, *, epsilon: float = 1.0, delta: float = 0.0, ledger: Any = None
    ) -> None:
        self.ledger = (
            ledger
            if isinstance(ledger, PrivacyLedger)
            else PrivacyLedger(ledger, epsilon=epsilon, delta=delta)
        )
        self.ledger.bind(hashlib.sha256(b"hashed individuals").digest(), _BUCKETS)
        self.row_key = self.ledger.digest(b"row fingerprints")[:16]
        self.advantaged = advantaged
        self.random_state = None
        self._groups = Groups(np.zeros(0, dtype=np.int64), ("others", advantaged))
        self._advantaged = 1
        self._y_true = None
        self._accounts: dict[int, AccountSettings] = {}
        self._resolved: dict[int, Mechanism] = {}
        self._warned: set[int] = set()
        self._lock = threading.Lock()
        self._server = None

    @property
    def n_individuals(self) -> int:
        """Number of entries of the ledger."""
        return _BUCKETS

    @property
    def is_count(self) -> bool:
        """Rows are known by hashes, never by a count."""
        return False

    def open_account(self, settings: AccountSettings) -> int:
        """Fix the terms of a scorer; see :meth:`FairnessAuditor.open_account`."""
        if isinstance(settings.mechanism, RandomizedResponse):
            raise ValueError(
                "mechanism='randomized_response' needs everybody's attributes at once: give them to fit."
            )
        if isinstance(settings.mechanism, Auto):
            settings = replace(settings, mechanism=NoisySums(bounds=settings.mechanism.bounds))
        return super().open_account(settings)

    def entries(self, X: Any, y: Any, sample_ids: Any, id_column: Any) -> IntArray:
        """Return the ledger entry of each row; see :func:`sklearn_fairleak.individuals.hash_rows`."""
        return hash_rows(X, y, sample_ids, id_column, key=self.row_key, size=_BUCKETS)

    def __reduce__(self) -> Any:
        from .remote import RemoteRoutedAuditor

        _, arguments = super().__reduce__()
        return RemoteRoutedAuditor, arguments

    def ask_routed(
        self,
        account: int,
        y_pred: Any,
        y_true: Any,
        sensitive_features: Any,
        entries: IntArray,
        *,
        sample_weight: Any = None,
    ) -> PrivateAnswers:
        """Answer one question about people whose groups come with it.

        Parameters
        ----------
        account : int
            From :meth:`open_account`.
        y_pred, y_true, sample_weight : array-like of shape (n_samples,)
            As in :meth:`FairnessAuditor.ask`.
        sensitive_features : array-like of shape (n_samples,)
            Groups; missing values are refused.
        entries : ndarray of shape (n_samples,)
            From :meth:`entries`.

        Returns
        -------
        PrivateAnswers
        """
        settings = self._accounts[account]
        batch = make_queries(
            settings.metric,
            y_pred,
            y_true,
            sample_weight=sample_weight,
            pos_label=settings.pos_label,
            bounds=settings.bounds,
            loss=settings.loss,
        )
        column = as_column(sensitive_features, "sensitive_features")
        if not column.shape[0] == entries.shape[0] == batch.n_samples:
            raise ValueError(
                f"sensitive_features, rows and y_pred must have the same length, got {column.shape[0]}, "
                f"{entries.shape[0]} and {batch.n_samples}."
            )
        groups = replace(self._groups, codes=np.asarray(column == self.advantaged, dtype=np.int64))
        try:
            return self._answer(account, settings, batch, entries, groups=groups)
        except PrivacyBudgetExceeded:
            warn_refused(settings, self.refused(account))
            raise

    def _charged(self, batch: Any, positions: IntArray | None) -> IntArray | None:
        """Return the distinct entries that an answer is charged to."""
        charged = super()._charged(batch, positions)
        return None if charged is None else np.unique(charged)
