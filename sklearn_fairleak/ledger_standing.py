"""Where a ledger stands: its budgets, and what every individual has paid, up to an entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from .accounting import PrivacyLoss
from .ledger_chain import START, Entry, Head
from .ledger_charges import ZERO, Charges, Units, all_fit, largest, plus
from .ledger_sets import IntArray

__all__ = ["Standing", "epsilon_of", "exact_budget"]

#: Above this many distinct sums, a bound replaces the conversion of each.
_MANY_SUMS = 256


@dataclass
class Standing:
    """What a process knows of a ledger: everything up to ``head``."""

    head: Head = START
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    fingerprint: str | None = None
    n_individuals: int = 0
    names: dict[int, str] = field(default_factory=dict)
    budgets: dict[int, tuple[Fraction, Fraction]] = field(default_factory=dict)
    charges: dict[int | None, Charges] = field(default_factory=dict)

    def follow(self, entries: Iterable[tuple[Entry, Head]], load: Callable[[bytes, int], IntArray]) -> None:
        """Take in the next entries; charges of the same set are added up first."""
        sums: dict[tuple[int | None, bytes | None], Units] = {}
        head = self.head
        for entry, at in entries:
            head = at
            if entry.kind == "answer":
                for owner in (entry.account, None):
                    place = owner, entry.individuals
                    sums[place] = plus(sums.get(place, ZERO), entry.loss)
            elif entry.kind == "account":
                facts, number = entry.facts(), int(entry.account or 0)
                self.names[number] = facts["name"]
                self.budgets[number] = Fraction(facts["epsilon"]), Fraction(facts["delta"])
            elif entry.kind == "bind":
                facts = entry.facts()
                self.fingerprint, self.n_individuals = facts["fingerprint"], facts["n_individuals"]
            elif entry.kind == "ledger":
                facts = entry.facts()
                self.epsilon, self.delta = Fraction(facts["epsilon"]), Fraction(facts["delta"])
        for (owner, mark), loss in sums.items():
            members = None if mark is None else load(mark, self.n_individuals)
            self.paid_in(owner).add(members, loss)
        self.head = head

    def paid_in(self, account: int | None) -> Charges:
        """Return what individuals have paid in one account, or in all."""
        if not self.n_individuals:
            # Kept, these sums over nobody would hide what people pay once the ledger knows them.
            return Charges(0)
        if account not in self.charges:
            self.charges[account] = Charges(self.n_individuals)
        return self.charges[account]

    def budget(self, account: int | None) -> tuple[Fraction, Fraction]:
        """Return the budget of one account, or of the whole ledger."""
        if account is None:
            return self.epsilon, self.delta
        if account not in self.budgets:
            raise ValueError(f"account {account!r} is not open in this ledger.")
        return self.budgets[account]

    def remaining(self, account: int | None) -> float:
        """Return the epsilon left for the individual who has paid most."""
        epsilon, delta = self.budget(account)
        paid = set(self.paid_in(account).present()) or {ZERO}
        if not delta:
            return float(max(Fraction(0), epsilon - PrivacyLoss.from_units(*largest(paid)).epsilon))
        sums = paid if len(paid) <= _MANY_SUMS else {largest(paid)}
        return max(0.0, float(epsilon) - max(epsilon_of(units, delta) for units in sums))

    def refusal(
        self, account: int, members: IntArray | None, loss: Units, query: Mapping[str, Any]
    ) -> str | None:
        """Return why a charge would exceed a budget, or None; public numbers only."""
        for number in (account, None):
            epsilon, delta = self.budget(number)
            charges = self.paid_in(number)
            if all_fit(charges.after(members, loss), epsilon, delta):
                continue
            paid = epsilon_of(largest(charges.after(members, ZERO)), delta)
            whose = "of the whole ledger" if number is None else f"of account {self.names[account]!r}"
            return (
                f"{query.get('metric', 'The question')} (mechanism {query.get('mechanism', 'unnamed')}) would cost "
                f"each individual in it epsilon={epsilon_of(loss, delta):.6g}. The budget {whose} is "
                f"epsilon={float(epsilon):.6g}, delta={float(delta):.3g}; up to epsilon={paid:.6g} of it is spent. "
                "Nothing was computed or charged. Ask fewer questions, or plan for them with n_queries."
            )
        return None


def epsilon_of(units: Units, delta: Fraction) -> float:
    """Convert a sum in grid units to an epsilon at a delta."""
    return float(PrivacyLoss.from_units(*units).to_epsilon(delta))


def exact_budget(epsilon: float | Fraction, delta: float | Fraction) -> tuple[Fraction, Fraction]:
    """Return a budget as exact numbers.

    Raises
    ------
    ValueError
        If epsilon is not a positive finite number or delta is outside [0, 1).
    """
    limits = _exact(epsilon), _exact(delta)
    if limits[0] is None or limits[0] <= 0:
        raise ValueError(f"epsilon must be a positive finite number, got {epsilon!r}.")
    if limits[1] is None or not 0 <= limits[1] < 1:
        raise ValueError(f"delta must be in [0, 1), got {delta!r}.")
    return limits[0], limits[1]


def _exact(number: object) -> Fraction | None:
    """Return a number as it is, or None for what is no finite number."""
    try:
        return None if isinstance(number, bool | str) else Fraction(number)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
