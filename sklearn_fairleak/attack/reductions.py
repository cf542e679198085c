"""Other metrics as statistical parity of someone: who a metric reaches, and what it compares.

Equal opportunity is statistical parity among the individuals with y = 1; accuracy parity is
statistical parity of being right. A metric that is affine in each individual's prediction needs no
attack of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..queries import canonical_metric

__all__ = ["Reduction", "is_affine", "reduce_metric"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_AFFINE = (
    "statistical_parity",
    "equal_opportunity",
    "false_positive_rate_parity",
    "accuracy_parity",
    "bounded_loss_parity",
)


@dataclass(frozen=True)
class Reduction:
    """Map predictions to the values whose group means a metric compares, and back.

    Parameters
    ----------
    reach : ndarray of shape (n_reached,)
        Positions of the individuals whose attribute the metric depends on.
    n_individuals : int
        Number of individuals of the evaluation set.
    slope, offset : ndarray of shape (n_reached,)
        A prediction ``h`` counts as ``offset + slope * h``; slopes are +1 or -1.
    """

    reach: IntArray
    n_individuals: int
    slope: FloatArray
    offset: FloatArray

    @property
    def is_identity(self) -> bool:
        """Whether values are the predictions of everyone."""
        return self.reach.size == self.n_individuals and bool(np.all(self.slope == 1.0))

    def to_values(self, predictions: FloatArray) -> FloatArray:
        """Return the values of the reached individuals, shape (..., n_reached)."""
        if self.is_identity:
            return predictions
        return np.asarray(self.offset + self.slope * predictions[..., self.reach])

    def to_predictions(self, values: FloatArray, base: FloatArray) -> FloatArray:
        """Return predictions of everyone that have these values; the base model's off the reach."""
        if self.is_identity:
            return values
        shape = (*values.shape[:-1], self.n_individuals)
        predictions = np.array(np.broadcast_to(base, shape))
        predictions[..., self.reach] = (values - self.offset) * self.slope
        return predictions


def is_affine(metric: str) -> bool:
    """Whether the metric's signed gap is affine in the predictions, so that the attacks of parity apply."""
    name, is_ratio = canonical_metric(metric)
    return name in _AFFINE and not is_ratio


def reduce_metric(metric: str, labels: FloatArray | None, n_individuals: int) -> Reduction | None:
    """Return how a metric reads predictions, or None where it is not affine in them.

    Parameters
    ----------
    metric : str
        Metric name; statistical parity, equal opportunity, false positive rate parity, accuracy
        parity and the absolute loss are affine.
    labels : ndarray of shape (n_individuals,) or None
        True labels in {0, 1}; needed by all but statistical parity.
    n_individuals : int
        Number of individuals of the evaluation set.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack.reductions import reduce_metric
    >>> reduce_metric("equal_opportunity", np.array([1.0, 0.0, 1.0]), 3).reach
    array([0, 2])
    """
    if not is_affine(metric):
        return None
    name, _ = canonical_metric(metric)
    everyone = np.arange(n_individuals)
    if name == "statistical_parity":
        return Reduction(everyone, n_individuals, np.ones(n_individuals), np.zeros(n_individuals))
    if labels is None:
        raise ValueError(f"metric={metric!r} depends on the true labels; give them.")
    if labels.shape != (n_individuals,):
        raise ValueError(
            f"There must be one label per individual: got {labels.size} for {n_individuals} individuals."
        )
    positive = labels > 0.5
    if name in ("equal_opportunity", "false_positive_rate_parity"):
        reach = np.flatnonzero(positive if name == "equal_opportunity" else ~positive)
        if reach.size < 2:
            raise ValueError(f"metric={metric!r} needs at least 2 individuals in its subset.")
        return Reduction(reach, n_individuals, np.ones(reach.size), np.zeros(reach.size))
    right = np.where(positive, 1.0, -1.0)
    missed = np.where(positive, 0.0, 1.0)
    if name == "bounded_loss_parity":
        return Reduction(everyone, n_individuals, -right, 1.0 - missed)
    return Reduction(everyone, n_individuals, right, missed)
