"""The compliance side: attributes, ids and ledger, and the only door to the secret.

Public questions come in (from a scorer in this process or over a connection); recorded
private answers go out. Order inside an answer: validate public inputs, charge, touch the
secret, add noise, record.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from .accounting import PrivacyLoss
from .accounts import AccountSettings, check_budget, warn_not_private, warn_of_noise, warn_refused
from .answers import PrivateAnswers
from .auditor_choices import AuditorChoices
from .exceptions import PrivacyBudgetExceeded
from .groups import Groups, encode_groups
from .individuals import Individuals, RowIds, find_row_ids, fingerprint_rows
from .labels import as_column, indicator
from .ledger import PrivacyLedger
from .mechanisms import Auto, Mechanism, RandomizedResponse
from .mechanisms.release import Release
from .metrics import require_signed_pair
from .noise import Noise, SecureNoise, SeededNoise
from .queries import QueryBatch, canonical_metric, make_queries
from .question_digest import digest_question

__all__ = ["FairnessAuditor"]

IntArray = npt.NDArray[np.int64]


class FairnessAuditor(AuditorChoices):
    """Hold sensitive features and a privacy ledger, and answer fairness queries privately.

    This is the compliance team's object; model developers get a scorer, which can only ask.
    It is not an estimator, and it refuses to be copied or pickled with its secret.

    Parameters
    ----------
    sensitive_features : array-like of shape (n_individuals,) or (n_individuals, n_features)
        Group of each individual; several columns are crossed. Secret.
    ids : array-like of shape (n_individuals,), default=None
        Unique ids. None takes the index of ``sensitive_features``, if it has one, and a
        plain count otherwise.
    y_true : array-like of shape (n_individuals,), default=None
        True labels. If given, queries about other labels are refused.
    groups : sequence, default=None
        The public list of group labels.
    advantaged : object, default=None
        Label of the advantaged group, for signed gaps; the last label by default.
    missing : {"error", "group"}, default="error"
        ``"group"`` gives missing values a status of their own: in no gap, still protected.
    bins : sequence of float, default=None
        Public edges that cut a continuous sensitive feature into groups.
    X : array-like of shape (n_individuals, n_features), default=None
        The individuals' public rows: lets a plain count serve as ids, because shuffled rows
        are noticed.
    epsilon : float, default=1.0
        The whole privacy budget of each individual, in nats, for all answers of all scorers.
        Taken from ``ledger`` if that is a :class:`PrivacyLedger`.
    delta : float, default=0.0
        Probability at which the guarantee may fail.
    ledger : PrivacyLedger, str or path, default=None
        Where charges are kept; None makes a private temporary file.
    random_state : int, default=None
        A seed, for experiments only: answers become reproducible and protect nobody who may
        guess the seed.

    Raises
    ------
    ValueError
        If sensitive features, ids, groups or the budget are malformed.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_fairleak import FairnessAuditor
    >>> race = pd.Series(["b", "w", "w", "b"] * 50, index=[f"p{i}" for i in range(200)])
    >>> auditor = FairnessAuditor(race, epsilon=1.0)
    >>> answer = auditor.answer([1, 0] * 100)
    >>> 0.0 <= answer.value <= 1.0
    True
    >>> float(auditor.ledger.remaining())
    0.0
    """

    def __init__(
        self,
        sensitive_features: Any,
        *,
        ids: Any = None,
        y_true: Any = None,
        groups: Sequence[Any] | None = None,
        advantaged: Any = None,
        missing: str = "error",
        bins: Sequence[float] | None = None,
        X: Any = None,
        epsilon: float = 1.0,
        delta: float = 0.0,
        ledger: PrivacyLedger | Any = None,
        random_state: int | None = None,
    ) -> None:
        if not isinstance(ledger, PrivacyLedger):
            check_budget(epsilon, delta)
        self._groups = encode_groups(
            sensitive_features, groups=groups, missing=missing, bins=bins, declare=True
        )
        self._advantaged = self._groups.advantaged_code(advantaged)
        self.advantaged = self._groups.labels[self._advantaged]
        self.random_state = random_state
        if ids is None:
            index = getattr(sensitive_features, "index", None)
            ids = None if index is None or callable(index) else index
        self.ledger = (
            ledger
            if isinstance(ledger, PrivacyLedger)
            else PrivacyLedger(ledger, epsilon=epsilon, delta=delta)
        )
        self.row_key = self.ledger.digest(b"row fingerprints")[:16]
        fingerprints = None if X is None else fingerprint_rows(X, self.row_key)
        n = int(self._groups.codes.shape[0])
        self._individuals = Individuals(ids, fingerprints, n_individuals=n)
        if len(self._individuals) != n:
            raise ValueError(
                f"ids and sensitive_features must have the same length, got {len(self._individuals)} and {n}."
            )
        if fingerprints is not None and fingerprints.shape[0] != n:
            raise ValueError(
                f"X and sensitive_features must have the same length, got {fingerprints.shape[0]} and {n}."
            )
        self._y_true = None if y_true is None else as_column(y_true, "y_true")
        if self._y_true is not None and self._y_true.shape[0] != n:
            raise ValueError(f"y_true must have length {n}, got {self._y_true.shape[0]}.")
        schema = json.dumps([self._groups.names, [repr(label) for label in self._groups.labels], missing])
        self.ledger.bind(hashlib.sha256(self._individuals.digest() + schema.encode()).digest(), n)
        self._accounts: dict[int, AccountSettings] = {}
        self._resolved: dict[int, Mechanism] = {}
        self._warned: set[int] = set()
        self._lock = threading.Lock()
        self._server: Any = None

    @property
    def n_individuals(self) -> int:
        """Number of individuals (public)."""
        return len(self._individuals)

    @property
    def groups(self) -> tuple[Any, ...]:
        """Public list of group labels."""
        return self._groups.labels

    @property
    def names(self) -> tuple[str, ...]:
        """Public names of the sensitive features."""
        return self._groups.names

    @property
    def is_count(self) -> bool:
        """Whether individuals are known by a plain count, so that rows must be checked."""
        return self._individuals.is_count

    def __repr__(self) -> str:
        return (
            f"FairnessAuditor(n_individuals={self.n_individuals}, groups={list(self.groups)!r}, "
            f"epsilon={self.ledger.epsilon:g}, delta={self.ledger.delta:g})"
        )

    def __deepcopy__(self, memo: Any) -> FairnessAuditor:
        return self

    def __copy__(self) -> FairnessAuditor:
        return self

    def __sklearn_clone__(self) -> FairnessAuditor:
        return self

    def __reduce__(self) -> Any:
        # What is pickled into a worker is a way to ask this process, never the attributes.
        from .auditor_service import serve_in_background
        from .remote import RemoteAuditor

        if self._server is None:
            self._server = serve_in_background(self)
        return RemoteAuditor, (self._server.address, self._server.authkey)

    def open_account(self, settings: AccountSettings) -> int:
        """Fix the terms of a scorer and return the number under which it asks.

        Raises
        ------
        ValueError
            If the terms are malformed.
        """
        check_budget(settings.epsilon, settings.delta, settings.n_queries)
        metric, ratio = canonical_metric(settings.metric)
        require_signed_pair(self._groups, settings.absolute or ratio)
        if settings.advantaged is not None:
            self._groups.advantaged_code(settings.advantaged)
        if self.random_state is not None and settings.random_state is None:
            settings = replace(settings, random_state=self.random_state)
        epsilon, delta = Fraction(settings.epsilon), Fraction(settings.delta)
        mechanism = settings.mechanism
        if isinstance(mechanism, Auto):
            mechanism.candidates(settings.delta)
            if settings.n_queries > 1:
                chosen = mechanism.choose(
                    self.n_individuals, settings.n_queries, settings.epsilon, settings.delta
                )
                settings = replace(settings, mechanism=chosen)
        else:
            mechanism.privacy_loss(epsilon, delta, settings.n_queries)
        if not settings.is_private:
            warn_not_private(settings)
        account = self.ledger.open_account(f"{metric}/{settings.mechanism.name}", epsilon, delta)
        self._accounts[account] = settings
        return account

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
        """Answer one question, or replay the recorded answer to it.

        Parameters
        ----------
        account : int
            From :meth:`open_account`.
        y_pred : array-like of shape (n_samples,) or (n_models, n_samples)
            Predictions.
        y_true : array-like of shape (n_samples,), default=None
            True labels.
        rows : RowIds, default=None
            Ids of the rows; None means all individuals in their order.
        sample_weight : array-like of shape (n_samples,), default=None
            Public weights.
        scoring : bool, default=False
            Whether scikit-learn asks, which turns exceptions into NaN: a refusal then warns
            in this process as well.

        Returns
        -------
        PrivateAnswers

        Raises
        ------
        ValueError
            If the question is malformed. Nothing is charged.
        UnknownIndividuals
            If an id is unknown.
        PrivacyBudgetExceeded
            If the answer would cost an individual more than was agreed.
        """
        settings = self._accounts[account]
        batch, positions = self._batch(settings, y_pred, y_true, rows, sample_weight)
        if scoring and account not in self._warned and warn_of_noise(settings, batch):
            self._warned.add(account)
        try:
            return self._answer(account, settings, batch, positions)
        except PrivacyBudgetExceeded:
            if scoring:
                warn_refused(settings, self.refused(account))
            raise

    def _batch(
        self,
        settings: AccountSettings,
        y_pred: Any,
        y_true: Any,
        rows: RowIds | None,
        sample_weight: Any,
    ) -> tuple[QueryBatch, IntArray | None]:
        """Check a question's public parts and turn it into vectors."""
        positions = None if rows is None else self._individuals.positions(rows)
        n_samples = self.n_individuals if positions is None else positions.shape[0]
        if y_true is None and self._y_true is not None:
            y_true = self._y_true if positions is None else self._y_true[positions]
        batch = make_queries(
            settings.metric,
            y_pred,
            y_true,
            sample_weight=sample_weight,
            pos_label=settings.pos_label,
            bounds=settings.bounds,
            loss=settings.loss,
        )
        if batch.n_samples != n_samples:
            raise ValueError(
                f"y_pred has {batch.n_samples} predictions for {n_samples} individuals. Give sample_ids if the "
                "question is about some of them."
            )
        self._check_labels(y_true, positions, settings.pos_label)
        return batch, positions

    def answer(
        self,
        y_pred: Any,
        y_true: Any = None,
        *,
        metric: str = "statistical_parity",
        sample_ids: Any = None,
        sample_weight: Any = None,
        **settings: Any,
    ) -> Any:
        """Answer a single question that may spend all of the ledger's budget.

        Parameters
        ----------
        y_pred : array-like of shape (n_samples,)
            Predictions; a Series is aligned by its index.
        y_true : array-like of shape (n_samples,), default=None
            True labels.
        metric : str, default="statistical_parity"
            What to ask.
        sample_ids : array-like of shape (n_samples,), default=None
            Individuals the question is about; all of them by default.
        sample_weight : array-like of shape (n_samples,), default=None
            Public weights.
        **settings
            Those of :class:`~sklearn_fairleak.accounts.AccountSettings`: ``mechanism``, ``epsilon``, ``delta``,
            ``absolute``, …

        Returns
        -------
        PrivateAnswer
        """
        scorer = self.scorer(metric, **settings)
        return scorer.answer(y_pred, y_true, sample_ids=sample_ids, sample_weight=sample_weight)

    def scorer(self, metric: str = "statistical_parity", **settings: Any) -> Any:
        """Make a scorer for a model developer, which can only ask.

        Parameters
        ----------
        metric : str, default="statistical_parity"
            What may be asked.
        **settings
            Parameters of :class:`PrivateFairnessScorer`. ``epsilon`` and ``delta`` default
            to the ledger's.

        Returns
        -------
        PrivateFairnessScorer
        """
        from .scorer import PrivateFairnessScorer

        settings.setdefault("epsilon", self.ledger.epsilon)
        settings.setdefault("delta", self.ledger.delta)
        settings.setdefault("advantaged", self.advantaged)
        return PrivateFairnessScorer(metric, auditor=self, **settings)._open()

    def report(self) -> Mapping[str, Any]:
        """Summarise budget and answers; no attribute, no group size, no exact answer.

        Returns
        -------
        dict
            Number of individuals, group labels, budget, spent, remaining, numbers of answers
            and refusals.
        """
        return {
            "n_individuals": self.n_individuals,
            "groups": list(self.groups),
            "epsilon": self.ledger.epsilon,
            "delta": self.ledger.delta,
            "spent_": float(self.ledger.epsilon - self.ledger.remaining()),
            "remaining_": float(self.ledger.remaining()),
            "n_answers_": self.ledger.n_answers,
            "n_refused_": self.ledger.n_refused(),
        }

    def serve(self, address: Any = None, authkey: bytes | None = None) -> Any:
        """Answer model developers in other processes, where attributes never are.

        Parameters
        ----------
        address : str or tuple, default=None
            Path of a socket file (made with mode 0600), or (host, port). None makes a
            private socket.
        authkey : bytes, default=None
            Key that clients must prove to hold; None makes a random one.

        Returns
        -------
        Server
            With ``address``, ``authkey``, ``close()``; a context manager. Clients use
            :func:`sklearn_fairleak.connect_auditor`. Answers that are not private are refused.

        Examples
        --------
        >>> from sklearn_fairleak import FairnessAuditor, connect_auditor
        >>> auditor = FairnessAuditor(["f", "m"] * 50, ids=range(1, 101))
        >>> with auditor.serve() as server:
        ...     remote = connect_auditor(server.address, server.authkey)
        ...     answer = remote.scorer().answer([0, 1] * 50)
        >>> auditor.report()["n_answers_"]
        1
        """
        from .auditor_service import serve_auditor

        return serve_auditor(self, address, authkey)

    def find_rows(self, X: Any, y: Any, sample_ids: Any, id_column: Any) -> RowIds:
        """Find the ids of a query's rows; see :func:`~sklearn_fairleak.individuals.find_row_ids`."""
        key = self.row_key if self.is_count else None
        return find_row_ids(X, y, sample_ids=sample_ids, id_column=id_column, key=key)

    def order_of(self, ids: npt.NDArray[Any]) -> IntArray | None:
        """Return where each individual stands in a full list of ids; None if it is in order."""
        return self._individuals.order_of(ids)

    def answers_left(self, account: int) -> int | None:
        """Return how many more answers an account affords about the person asked about most.

        None means any number: everything is answered from a private copy.
        """
        settings = self._accounts[account]
        mechanism = self._resolved.get(account, settings.mechanism)
        if isinstance(mechanism, RandomizedResponse) or (
            not settings.is_private and not mechanism.is_private
        ):
            return None
        loss = mechanism.privacy_loss(
            Fraction(settings.epsilon), Fraction(settings.delta), settings.n_queries
        )
        spent = self.ledger.spent(account)
        used = [
            ceil(Fraction(paid) / part)
            for paid, part in ((spent.epsilon, loss.epsilon), (spent.rho, loss.rho))
            if part
        ]
        return max(0, settings.n_queries - max(used, default=0))

    def refused(self, account: int) -> int:
        """Return the number of questions refused to an account."""
        return int(self.ledger.n_refused(account))

    def _check_labels(self, y_true: Any, positions: IntArray | None, pos_label: Any) -> None:
        """Refuse labels other than the auditor's own: they would ask about people at will."""
        if self._y_true is None or y_true is None:
            return
        own = self._y_true if positions is None else self._y_true[positions]
        given = as_column(y_true, "y_true")
        same = indicator(own, pos_label, "y_true") == indicator(given, pos_label, "y_true")
        if not bool(np.all(same)):
            raise ValueError("y_true differs from the labels that the auditor holds for these individuals.")

    def _answer(
        self,
        account: int,
        settings: AccountSettings,
        batch: QueryBatch,
        positions: IntArray | None,
        *,
        groups: Groups | None = None,
    ) -> PrivateAnswers:
        """Charge and release, in one transaction of the ledger.

        ``groups`` are those of the evaluation set where they are not held here.
        """
        mechanism = self._mechanism_for(account, settings, batch)
        budget = Fraction(settings.epsilon), Fraction(settings.delta)
        loss = mechanism.privacy_loss(*budget, settings.n_queries)
        if isinstance(mechanism, RandomizedResponse):
            copy = self._private_copy(account, settings, mechanism, loss)
            charged = PrivacyLoss()

            def release(noise: Noise) -> Release:
                reported = copy if positions is None else copy[positions]
                public = replace(self._groups, codes=np.zeros(0, dtype=np.int64))
                return mechanism.estimate(batch, public, reported, loss)

        else:
            charged = loss

            def release(noise: Noise) -> Release:
                secret = self._groups.at(positions) if groups is None else groups
                return mechanism.release(batch, secret, loss, noise, advantaged=self._code(settings))

        question = self._question(mechanism, loss, settings, batch, positions)
        plain, replayed = self.ledger.charge(
            account=account,
            digest=self.ledger.digest(question),
            individuals=self._charged(batch, positions),
            loss=charged,
            query={
                "metric": settings.metric,
                "mechanism": mechanism.name,
                "n_samples": batch.n_samples,
                "n_models": batch.n_models,
            },
            release=lambda: release(self._noise(settings, question)).to_plain(),
        )
        _, ratio = canonical_metric(settings.metric)
        return PrivateAnswers(
            metric=settings.metric,
            mechanism=mechanism.name,
            epsilon=float(loss.epsilon) if not loss.rho else loss.to_epsilon(settings.delta),
            delta=float(loss.delta) if not loss.rho else settings.delta,
            rho=float(loss.rho),
            n_samples=batch.n_samples,
            is_private=settings.is_private,
            replayed=replayed,
            release=Release.from_plain(plain),
            rows=batch.rows,
            ratio=ratio,
            absolute=settings.absolute,
            advantaged=self._code(settings),
            scale=batch.scale,
        )

    def _code(self, settings: AccountSettings) -> int:
        """Return the code of the advantaged group under an account's terms."""
        if settings.advantaged is None:
            return self._advantaged
        return self._groups.advantaged_code(settings.advantaged)

    def _mechanism_for(self, account: int, settings: AccountSettings, batch: QueryBatch) -> Mechanism:
        """Resolve ``auto`` at an account's first answer, and keep to it."""
        if not isinstance(settings.mechanism, Auto):
            return settings.mechanism
        with self._lock:
            chosen = self._resolved.get(account)
            if chosen is None:
                budget = Fraction(settings.epsilon), Fraction(settings.delta)
                chosen = settings.mechanism.choose_for(batch, self._groups.n_statuses, *budget)
                self._resolved[account] = chosen
        return chosen

    def _private_copy(
        self, account: int, settings: AccountSettings, mechanism: RandomizedResponse, loss: PrivacyLoss
    ) -> IntArray:
        """Return the randomised copy of the attributes, paying for it the first time."""
        terms = repr((mechanism.name, loss.units(), settings.random_state))
        question = hashlib.sha256(b"private copy" + terms.encode()).digest()

        def release() -> dict[str, Any]:
            noise = self._noise(settings, question)
            copy = mechanism.private_copy(self._groups, loss, noise).astype(np.uint8)
            return {"reported": base64.b64encode(copy.tobytes()).decode()}

        plain, _ = self.ledger.charge(
            account=account,
            digest=self.ledger.digest(question),
            individuals=None,
            loss=loss,
            query={"metric": "private copy", "mechanism": mechanism.name, "n_samples": self.n_individuals},
            release=release,
        )
        return np.frombuffer(base64.b64decode(plain["reported"]), dtype=np.uint8).astype(np.int64)

    def _charged(self, batch: QueryBatch, positions: IntArray | None) -> IntArray | None:
        """Return the sorted positions that an answer is charged to; None means everyone."""
        subset = batch.charged_subset()
        if subset is None:
            return None if positions is None else np.sort(positions)
        return subset if positions is None else np.sort(positions[subset])

    def _noise(self, settings: AccountSettings, question: bytes) -> Noise:
        """Return fresh OS entropy, or for experiments noise that follows from seed and question."""
        seed = settings.random_state
        return SecureNoise() if seed is None else SeededNoise(seed, question)

    def _question(
        self,
        mechanism: Mechanism,
        loss: PrivacyLoss,
        settings: AccountSettings,
        batch: QueryBatch,
        positions: IntArray | None,
    ) -> bytes:
        """Return a digest of everything public that an answer depends on."""
        terms = (
            mechanism.name,
            sorted((name, repr(value)) for name, value in mechanism.get_params().items()),
            loss.units(),
            settings.random_state,
            self._code(settings),
        )
        return self._known_by(terms, batch, positions)

    def _known_by(self, terms: tuple[Any, ...], batch: QueryBatch, positions: IntArray | None) -> bytes:
        """Return what a question under public terms is known by again."""
        return digest_question(terms, batch, positions, self.ledger.digest(b"projections")[:16])
