"""Randomised response: one private copy of the attributes, then unlimited queries."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.utils._param_validation import StrOptions, validate_parameter_constraints

from ..accounting import PrivacyLoss, split
from ..groups import Groups
from ..noise import Noise, flip_probability
from ..queries import FairnessQuery, QueryBatch
from .base import Mechanism, minority_size, range_limit
from .release import Release
from .sum_designs import TYPICAL_GAP

__all__ = ["RandomizedResponse"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class RandomizedResponse(Mechanism):
    r"""Flip each individual's group at random once; answer every query from the flipped copy.

    The whole epsilon is paid by the first answer, and every later one is free.

    Parameters
    ----------
    bounds : {"clip", "none"}, default="clip"
        Keep group means within [0, 1], or not.

    Notes
    -----
    With k statuses the true one is kept with probability
    :math:`e^\epsilon/(e^\epsilon+k-1)`, otherwise another is reported uniformly. Sums over
    the copy are made unbiased by :math:`(1[r=g]-q)/(p-q)`. The error does not grow with the
    number of queries.

    References
    ----------
    Warner, "Randomized Response", JASA 1965. Kairouz, Oh & Viswanath, "Extremal Mechanisms
    for Local Differential Privacy", JMLR 2016 (k-ary optimality).

    Examples
    --------
    >>> from sklearn_fairleak.mechanisms import RandomizedResponse
    >>> mechanism = RandomizedResponse()
    >>> mechanism.error_scale(1000, 1, 1.0) == mechanism.error_scale(1000, 500, 1.0)
    True
    """

    name: ClassVar[str] = "randomized_response"
    many_groups: ClassVar[bool] = True
    releases_groups: ClassVar[bool] = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"bounds": [StrOptions({"clip", "none"})]}

    def __init__(self, *, bounds: str = "clip") -> None:
        self.bounds = bounds

    def privacy_loss(self, epsilon: Fraction, delta: Fraction, n_queries: int) -> PrivacyLoss:
        """Return the cost of the private copy: all of epsilon, whatever ``n_queries``."""
        validate_parameter_constraints(self._parameter_constraints, self.get_params(), type(self).__name__)
        return PrivacyLoss.pure(split(epsilon, Fraction(0), 1)[0])

    def private_copy(self, groups: Groups, loss: PrivacyLoss, noise: Noise) -> IntArray:
        """Return reported group codes, shape (n_individuals,): the only use of the secret."""
        return noise.randomized_response(groups.codes, groups.n_statuses, loss.epsilon)

    def release(
        self,
        batch: QueryBatch,
        groups: Groups,
        loss: PrivacyLoss,
        noise: Noise,
        *,
        advantaged: int = 1,
    ) -> Release:
        """Make a private copy and answer from it; see :meth:`Mechanism.release`."""
        return self.estimate(batch, groups, self.private_copy(groups, loss, noise), loss)

    def estimate(self, batch: QueryBatch, public: Groups, reported: IntArray, loss: PrivacyLoss) -> Release:
        """Estimate group sums from a private copy: post-processing, free of charge.

        Parameters
        ----------
        batch : QueryBatch
            The public question.
        public : Groups
            Read for its labels and statuses only.
        reported : ndarray of shape (n_samples,)
            Reported codes of the evaluation set.
        loss : PrivacyLoss
            What the copy cost.
        """
        flip = float(flip_probability(loss.epsilon, public.n_statuses))
        other = flip / (public.n_statuses - 1)
        keep = 1.0 - flip
        variance = max(keep * flip, other * (1.0 - other)) / (keep - other) ** 2
        blocks: list[list[FloatArray]] = []
        for query in batch.queries:
            codes = query.restrict(reported)
            weights = np.ones(query.n_subset) if query.weights is None else query.weights
            # Reports add up to public totals, so the first group's sums follow from the others'.
            told = not public.has_missing_status
            # Making several groups' sums consistent takes away 1/k of the variance of independent errors.
            k = public.n_groups
            drawn = variance * k / (k - 1) if told and k > 2 else variance
            indicators = np.stack(
                [(codes == group) * weights for group in range(int(told), public.n_groups)], axis=1
            )
            totals, weight = query.totals(), query.total_weight
            n_rows = totals.size
            raw, raw_counts = query.values @ indicators, indicators.sum(axis=0)
            if told:
                raw = np.column_stack([totals - raw.sum(axis=1), raw])
                raw_counts = np.append(weight - raw_counts.sum(), raw_counts)
            sums = (raw - other * totals[:, None]) / (keep - other)
            counts = (raw_counts - other * weight) / (keep - other)
            blocks.append(
                [
                    sums,
                    np.broadcast_to(counts, sums.shape),
                    np.full(n_rows, np.nan) if public.has_missing_status else totals,
                    np.full(n_rows, weight),
                    _noise_factors(query, drawn),
                ]
            )
        names = ("sums", "counts", "totals", "weights", "noise")
        joined = {name: np.concatenate([block[k] for block in blocks]) for k, name in enumerate(names)}
        return Release(law="gaussian", bounds=self.bounds, keep=keep, **joined)

    def predicted_variance(self, batch: QueryBatch, loss: PrivacyLoss, n_statuses: int = 2) -> float:
        """Predict the mean variance of a centred group sum from public data, in individuals."""
        flip = float(flip_probability(loss.epsilon, n_statuses))
        other = flip / (n_statuses - 1)
        variance = max(flip * (1.0 - flip), other * (1.0 - other)) / (1.0 - flip - other) ** 2
        means = []
        for query in batch.queries:
            some = query.sample
            weights = np.ones(some.n_subset) if some.weights is None else some.weights / some.weights.max()
            centres = np.average(some.values, axis=1, weights=weights)
            spread = ((some.values - centres[:, None]) ** 2 + TYPICAL_GAP**2) @ (weights * weights)
            means.append(variance * query.n_subset / some.n_subset * float(spread.mean()))
        return float(np.mean(means))

    def error_scale(
        self,
        n_samples: int,
        n_queries: int,
        epsilon: float,
        delta: float = 0.0,
        *,
        minority_share: float = 0.1,
        n_models: int = 1,
    ) -> float:
        """Return the expected absolute error for values of mean about 1/4, at a guessed group size."""
        flip = float(flip_probability(Fraction(epsilon), 2))
        variance = flip * (1.0 - flip) / (1.0 - 2.0 * flip) ** 2 * n_samples * 0.2
        smaller = minority_size(n_samples, minority_share)
        return range_limit(0.8 * variance**0.5 * n_samples / (smaller * max(1, n_samples - smaller)))


def _noise_factors(query: FairnessQuery, variance: float) -> FloatArray:
    """Return how two independent errors enter each row's sum and count."""
    if query.weights is None:
        shared, squared_weight = query.totals(), float(query.n_subset)
    else:
        squares = query.weights * query.weights
        shared, squared_weight = query.values @ squares, float(squares.sum())
    shared = variance * shared
    count_sd = (variance * squared_weight) ** 0.5
    factors = np.zeros((query.values.shape[0], 2, 2))
    factors[:, 0, 0] = np.sqrt(np.maximum(variance * query.square_totals() - (shared / count_sd) ** 2, 0.0))
    factors[:, 0, 1] = shared / count_sd
    factors[:, 1, 1] = count_sd
    return factors
