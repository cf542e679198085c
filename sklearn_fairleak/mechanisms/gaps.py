"""What mechanisms of the gap between two groups share: the secret gap, sizes, and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..groups import Groups
from ..metrics import group_means
from ..queries import QueryBatch

__all__ = ["QueryGaps", "query_gaps", "require_two_groups", "snap", "within_bounds"]

FloatArray = npt.NDArray[np.float64]

#: Released reals are multiples of this, far coarser than floating point.
_RELEASE_GRID = 2.0**-24


@dataclass(frozen=True, eq=False)
class QueryGaps:
    """The secret gaps of one query's rows, and the secret group sizes in its subset."""

    gaps: FloatArray
    n_disadvantaged: int
    n_advantaged: int

    @property
    def n_subset(self) -> int:
        """Public size of the subset."""
        return self.n_disadvantaged + self.n_advantaged


def require_two_groups(name: str, batch: QueryBatch, groups: Groups) -> None:
    """Refuse, from public facts, what the mechanism's sensitivity bound does not cover."""
    if groups.n_statuses != 2:
        raise ValueError(
            f"mechanism={name!r} is for exactly 2 groups and no missing status, got {groups.n_statuses} "
            "statuses. Use 'noisy_sums', 'randomized_response' or 'auto'."
        )
    if batch.is_weighted:
        raise ValueError(
            f"mechanism={name!r} has no bound for sample weights. Use 'noisy_sums', "
            "'randomized_response' or 'auto'."
        )


def query_gaps(batch: QueryBatch, groups: Groups, advantaged: int) -> Iterator[QueryGaps]:
    """Yield the exact gaps of every query; the mean of an empty group is taken as 1/2."""
    means = group_means(batch, groups.codes, 2)
    means = np.where(np.isnan(means), 0.5, means)
    gaps = means[:, advantaged] - means[:, 1 - advantaged]
    start = 0
    for query in batch.queries:
        stop = start + query.values.shape[0]
        n_advantaged = int((query.restrict(groups.codes) == advantaged).sum())
        yield QueryGaps(gaps[start:stop], query.n_subset - n_advantaged, n_advantaged)
        start = stop


def snap(values: FloatArray) -> FloatArray:
    """Round to the public grid, so that the low bits of floating point say nothing."""
    return np.asarray(np.rint(values / _RELEASE_GRID) * _RELEASE_GRID)


def within_bounds(values: FloatArray, bounds: str) -> FloatArray:
    """Clip released gaps to [-1, 1] unless bounds is "none"."""
    return values if bounds == "none" else np.clip(values, -1.0, 1.0)
