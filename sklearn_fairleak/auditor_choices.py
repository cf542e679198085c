"""How an auditor makes private choices: check, charge once, choose, record.

Predictions and a :class:`~sklearn_fairleak.choices.Choice` come in; the number of a model, or
pass and fail, goes out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from .accounting import PrivacyLoss
from .accounts import AccountSettings, check_budget, warn_not_private
from .choices import Choice, ChoiceMethods, FirstWithin, GapWatch, PrivateChoice, excesses
from .groups import Groups
from .individuals import RowIds
from .ledger import PrivacyLedger
from .noise import Noise
from .queries import QueryBatch

__all__ = ["AuditorChoices"]

IntArray = npt.NDArray[np.int64]


class AuditorChoices(ChoiceMethods):
    """The part of an auditor that chooses; the auditor itself provides what is declared here."""

    ledger: PrivacyLedger
    random_state: int | None
    _groups: Groups
    _batch: Callable[..., tuple[QueryBatch, IntArray | None]]
    _charged: Callable[..., IntArray | None]
    _known_by: Callable[..., bytes]
    _noise: Callable[..., Noise]

    @property
    def is_pair(self) -> bool:
        """Whether there are two groups and no missing status (public)."""
        return self._groups.n_groups == 2 and self._groups.n_statuses == 2

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
        """Make one private choice among models, or replay the recorded one.

        Parameters
        ----------
        settings : AccountSettings
            What the choice is about: ``metric``, ``pos_label``, ``bounds``, ``loss``,
            ``random_state``. The cost is the choice's own.
        choice : Choice
            How to choose; see :mod:`sklearn_fairleak.choices`.
        y_pred, y_true, rows, sample_weight
            As in :meth:`ask`.

        Returns
        -------
        PrivateChoice

        Raises
        ------
        ValueError, UnknownIndividuals, PrivacyBudgetExceeded
            As in :meth:`ask`.
        """
        check_budget(settings.epsilon, 0.0)
        settings = self._seeded(settings)
        batch, positions = self._batch(settings, y_pred, y_true, rows, sample_weight)
        question = self._known_by((*choice.terms(), settings.random_state), batch, positions)
        groups = self._groups.at(positions)
        plain, replayed = self._charge_choice(
            settings,
            choice,
            batch,
            positions,
            question,
            lambda: choice.release(batch, groups, self._noise(settings, question)),
        )
        return _chosen(plain, settings, choice, batch, replayed)

    def watch(
        self,
        settings: AccountSettings,
        choice: FirstWithin,
        *,
        rows: RowIds | None = None,
        y_true: Any = None,
        sample_weight: Any = None,
    ) -> Callable[[Any], PrivateChoice]:
        """Open a stream of tests that ends with the first pass; charged with its first model.

        Parameters
        ----------
        settings, choice, rows, y_true, sample_weight
            As in :meth:`choose`.

        Returns
        -------
        callable
            Takes the predictions of one model, shape (n_samples,), and tests them.
        """
        check_budget(settings.epsilon, 0.0)
        if choice.ratio or not self.is_pair:
            raise ValueError("A stream of tests is for gaps between two groups without a missing status.")
        settings = self._seeded(settings)
        nonce = os.urandom(16)
        state: list[GapWatch] = []
        limit = choice.max_gap

        def test(y_pred: Any) -> PrivateChoice:
            batch, positions = self._batch(settings, y_pred, y_true, rows, sample_weight)
            if not state:
                self._charge_choice(settings, choice, batch, positions, nonce, dict)
                state.append(GapWatch(choice.epsilon, self._noise(settings, nonce)))
            (excess,) = excesses(batch, self._groups.at(positions), limit / Fraction(batch.scale))
            passed = {"passed": [state[0].passes(excess)]}
            return _chosen(passed, settings, choice, batch, False)

        return test

    def _seeded(self, settings: AccountSettings) -> AccountSettings:
        """Take over the auditor's own seed, and say loudly that seeds protect nobody."""
        if self.random_state is not None and settings.random_state is None:
            settings = replace(settings, random_state=self.random_state)
        if settings.random_state is not None:
            warn_not_private(settings)
        return settings

    def _charge_choice(
        self,
        settings: AccountSettings,
        choice: Choice,
        batch: QueryBatch,
        positions: IntArray | None,
        question: bytes,
        release: Callable[[], dict[str, Any]],
    ) -> tuple[dict[str, Any], bool]:
        """Charge a choice on an account of its own, make it and record it."""
        return self.ledger.charge(
            account=self.ledger.open_account(f"{batch.metric}/{choice.name}", choice.epsilon),
            digest=self.ledger.digest(b"choice", question),
            individuals=self._charged(batch, positions),
            loss=PrivacyLoss.pure(choice.epsilon),
            query={
                "metric": settings.metric,
                "mechanism": choice.name,
                "n_samples": batch.n_samples,
                "n_models": batch.n_models,
            },
            release=release,
        )


def _chosen(
    plain: Mapping[str, Any], settings: AccountSettings, choice: Choice, batch: QueryBatch, replayed: bool
) -> PrivateChoice:
    """Give a recorded choice its public terms."""
    passed = plain.get("passed")
    return PrivateChoice(
        index=plain.get("index"),
        passed=None if passed is None else tuple(passed),
        metric=settings.metric,
        mechanism=choice.name,
        epsilon=float(choice.epsilon),
        n_models=batch.n_models,
        n_samples=batch.n_samples,
        is_private=settings.random_state is None,
        replayed=replayed,
    )
