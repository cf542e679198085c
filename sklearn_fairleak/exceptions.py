"""Errors and warnings that users of the package may want to catch."""

__all__ = [
    "LedgerIntegrityError",
    "NotPrivateWarning",
    "PrivacyBudgetExceeded",
    "UnknownIndividuals",
]


class PrivacyBudgetExceeded(RuntimeError):  # noqa: N818 - the name users read in a traceback
    """Raise when an answer would cost an individual more than the agreed privacy budget.

    Nothing is computed, charged or released.
    """


class UnknownIndividuals(KeyError):  # noqa: N818
    """Raise when a query names individuals that the auditor does not hold."""

    def __str__(self) -> str:
        # KeyError shows repr(args[0]); the message is a sentence.
        return str(self.args[0]) if self.args else ""


class LedgerIntegrityError(RuntimeError):
    """Raise when a ledger file is unreadable, altered, of another data set or of a newer schema."""


class NotPrivateWarning(UserWarning):
    """Warn that answers do not hide the sensitive feature (exact, rounded, seeded, or a flawed formula)."""
