"""What every individual has paid: exact sums, without a number per individual and answer."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from .accounting import PrivacyLoss

__all__ = ["ZERO", "Charges", "IntArray", "Units", "all_fit", "largest", "plus"]

IntArray = npt.NDArray[np.int64]

#: The components of a PrivacyLoss in units of the accounting grid: exact integers.
Units = tuple[int, int, int, int]

ZERO: Units = (0, 0, 0, 0)


class Charges:
    """Individuals grouped by what they have paid so far.

    Individuals who have been asked about together have paid the same, so an answer about
    everyone changes one tuple of integers, and one about a part of them moves that part to
    other classes. Sums are exact.

    Parameters
    ----------
    n_individuals : int
        Number of individuals; nobody has paid anything yet.
    """

    def __init__(self, n_individuals: int) -> None:
        self._class_of = np.zeros(n_individuals, dtype=np.int32)
        self._paid: list[Units] = [ZERO]
        self._sizes: list[int] = [n_individuals]
        self._merge_at = 64

    def add(self, members: IntArray | None, loss: Units) -> None:
        """Charge some individuals (None: all)."""
        if members is None:
            self._paid = [plus(paid, loss) for paid in self._paid]
            return
        classes = self._class_of[members]
        inside = np.bincount(classes, minlength=len(self._paid))
        charged = np.flatnonzero(inside).tolist()
        if all(inside[number] == self._sizes[number] for number in charged):
            for number in charged:
                self._paid[number] = plus(self._paid[number], loss)
            return
        numbers = {paid: number for number, paid in enumerate(self._paid)}
        moved = np.arange(len(self._paid), dtype=np.int32)
        for number in charged:
            paid, size = plus(self._paid[number], loss), int(inside[number])
            target = numbers.setdefault(paid, len(self._paid))
            if target == len(self._paid):
                self._paid.append(paid)
                self._sizes.append(0)
            moved[number] = target
            self._sizes[number] -= size
            self._sizes[target] += size
        self._class_of[members] = moved[classes]
        if len(self._paid) > self._merge_at:
            self._merge()

    def after(self, members: IntArray | None, loss: Units) -> list[Units]:
        """Return what the classes among some individuals would have paid after a charge."""
        sizes = self._sizes
        if members is not None:
            sizes = np.bincount(self._class_of[members], minlength=len(self._paid)).tolist()
        return [plus(paid, loss) for paid, size in zip(self._paid, sizes, strict=True) if size]

    def present(self) -> list[Units]:
        """Return what individuals have paid: the sums of classes that have members."""
        return self.after(None, ZERO)

    def per_individual(self, values: list[float]) -> npt.NDArray[np.float64]:
        """Spread one value per class, in the order of :meth:`classes`, over individuals."""
        return np.asarray(values, dtype=np.float64)[self._class_of]

    def classes(self) -> list[Units]:
        """Return what each class has paid, empty classes included."""
        return list(self._paid)

    def _merge(self) -> None:
        """Put classes that have paid the same together, and drop empty ones."""
        numbers: dict[Units, int] = {}
        moved = np.zeros(len(self._paid), dtype=np.int32)
        sizes: list[int] = []
        for number, (paid, size) in enumerate(zip(self._paid, self._sizes, strict=True)):
            if not size:
                continue
            merged = numbers.setdefault(paid, len(numbers))
            if merged == len(sizes):
                sizes.append(0)
            sizes[merged] += size
            moved[number] = merged
        self._class_of = moved[self._class_of]
        self._paid, self._sizes = list(numbers), sizes
        self._merge_at = max(64, 2 * len(sizes))


def plus(paid: Units, loss: Units) -> Units:
    """Add two losses in grid units."""
    return paid[0] + loss[0], paid[1] + loss[1], paid[2] + loss[2], paid[3] + loss[3]


def largest(paid: Iterable[Units]) -> Units:
    """Return the component-wise maximum: at least what any single individual has paid."""
    worst = ZERO
    for units in paid:
        worst = (
            max(worst[0], units[0]),
            max(worst[1], units[1]),
            max(worst[2], units[2]),
            max(worst[3], units[3]),
        )
    return worst


def all_fit(paid: list[Units], epsilon: Fraction, delta: Fraction) -> bool:
    """Whether every individual's sum stays within a budget.

    One conversion of the component-wise maximum usually settles it; only if that does not
    fit is every distinct sum looked at.
    """
    if PrivacyLoss.from_units(*largest(paid)).fits(epsilon, delta):
        return True
    return all(PrivacyLoss.from_units(*units).fits(epsilon, delta) for units in set(paid))
