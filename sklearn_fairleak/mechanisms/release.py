"""What a mechanism gives away: noisy gaps, or noisy group sums, and the law of their noise.

Everything in a :class:`Release` is public: answers, intervals and bias corrections are
post-processing of it. It travels as plain data into the ledger and over the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Release"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Release:
    """Noisy values of every row of a :class:`~sklearn_fairleak.queries.QueryBatch`.

    Parameters
    ----------
    law : {"none", "laplace", "gaussian", "cauchy"}
        Law of the noise.
    gaps : ndarray of shape (n_rows,), default=None
        Advantaged minus disadvantaged mean, for mechanisms that add noise to the gap.
    sums, counts : ndarray of shape (n_rows, n_groups), default=None
        Weighted sums of the values and of the weights in every group, before they are
        made consistent with the public totals.
    totals, weights : ndarray of shape (n_rows,), default=None
        Public totals of the values and of the weights; NaN where a status outside the
        groups (missing) makes the groups' total secret.
    noise : ndarray of shape (n_rows, 2, n_sources), default=None
        How independent noise of the law enters a group's sum and count in each row.
    scale : ndarray of shape (n_rows,), default=None
        Noise scale of the gaps; the public worst case where the scale depends on the secret.
    bounds : {"clip", "none", "truncate"}, default="clip"
        What is done with answers outside the possible range.
    keep : float, default=None
        Probability at which randomised response reports the true status.
    """

    law: str
    gaps: FloatArray | None = None
    sums: FloatArray | None = None
    counts: FloatArray | None = None
    totals: FloatArray | None = None
    weights: FloatArray | None = None
    noise: FloatArray | None = None
    scale: FloatArray | None = None
    bounds: str = "clip"
    keep: float | None = None

    def means(self) -> FloatArray:
        """Return group means of every row, shape (n_rows, n_groups); needs sums."""
        if self.sums is None or self.counts is None or self.totals is None or self.weights is None:
            raise ValueError("This mechanism releases gaps between two groups, not group means.")
        return group_means_from(self.sums, self.counts, self.totals, self.weights, self.bounds)

    def to_plain(self) -> dict[str, Any]:
        """Return the release as JSON-able data."""
        plain: dict[str, Any] = {"law": self.law, "bounds": self.bounds, "keep": self.keep}
        for name in ("gaps", "sums", "counts", "totals", "weights", "noise", "scale"):
            value = getattr(self, name)
            plain[name] = None if value is None else value.tolist()
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Release:
        """Rebuild a release from :meth:`to_plain`."""
        arrays = {
            name: None if plain[name] is None else np.asarray(plain[name], dtype=np.float64)
            for name in ("gaps", "sums", "counts", "totals", "weights", "noise", "scale")
        }
        return cls(law=plain["law"], bounds=plain["bounds"], keep=plain.get("keep"), **arrays)


def group_means_from(
    sums: FloatArray, counts: FloatArray, totals: FloatArray, weights: FloatArray, bounds: str
) -> FloatArray:
    """Make noisy sums and counts consistent with public facts, and divide.

    Counts are kept within the possible range and both are spread so that groups add up to
    the public totals. Arrays have shape (..., n_rows, n_groups).
    """
    n_groups = sums.shape[-1]
    complete = ~np.isnan(totals)
    if complete.any():
        missing_sum = np.where(complete, totals - sums.sum(axis=-1), 0.0) / n_groups
        missing_count = np.where(complete, weights - counts.sum(axis=-1), 0.0) / n_groups
        sums = sums + missing_sum[..., None]
        counts = counts + missing_count[..., None]
    # An individual at least in each group: the smallest possible weight is unknown where
    # there are weights, and a floor of one average individual keeps the quotient finite.
    total = weights[..., None]
    floor = np.minimum(1.0, total / n_groups)
    clipped = np.clip(counts, floor, total - floor * (n_groups - 1))
    if n_groups == 2 and complete.all():
        clipped[..., 0] = weights - clipped[..., 1]
    means = sums / clipped
    return means if bounds == "none" else np.clip(means, 0.0, 1.0)
