"""Answer fairness queries with differential privacy, and measure what answers leak."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .attack import AttributeRevealAttack
    from .auditor import FairnessAuditor
    from .exceptions import (
        LedgerIntegrityError,
        NotPrivateWarning,
        PrivacyBudgetExceeded,
        UnknownIndividuals,
    )
    from .frames import PrivateMetricFrame
    from .ledger import PrivacyLedger
    from .metrics import leakage_score
    from .private_metrics import make_private_metric
    from .remote import connect_auditor
    from .scorer import PrivateFairnessScorer
    from .search import PrivateFairSearchCV
    from .selection import first_within, passes_threshold, select_least_biased

__version__ = "0.1.0"

# Names are imported when first used, so that `import sklearn_fairleak` stays cheap.
_HOMES = {
    "AttributeRevealAttack": "attack",
    "FairnessAuditor": "auditor",
    "LedgerIntegrityError": "exceptions",
    "NotPrivateWarning": "exceptions",
    "PrivacyBudgetExceeded": "exceptions",
    "PrivacyLedger": "ledger",
    "PrivateFairSearchCV": "search",
    "PrivateFairnessScorer": "scorer",
    "PrivateMetricFrame": "frames",
    "UnknownIndividuals": "exceptions",
    "connect_auditor": "remote",
    "first_within": "selection",
    "leakage_score": "metrics",
    "make_private_metric": "private_metrics",
    "passes_threshold": "selection",
    "select_least_biased": "selection",
}

__all__ = [
    "AttributeRevealAttack",
    "FairnessAuditor",
    "LedgerIntegrityError",
    "NotPrivateWarning",
    "PrivacyBudgetExceeded",
    "PrivacyLedger",
    "PrivateFairSearchCV",
    "PrivateFairnessScorer",
    "PrivateMetricFrame",
    "UnknownIndividuals",
    "connect_auditor",
    "first_within",
    "leakage_score",
    "make_private_metric",
    "passes_threshold",
    "select_least_biased",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
