"""Every assignment to two groups that explains exact answers: certainty by exhaustion.

Small problems are enumerated; larger ones are met in the middle: the sums of one half of the
individuals, sorted, are matched with what the other half leaves over.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["consistent_attributes", "enumerable"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

#: Matches of the two halves, true or not, beyond which the answers are too few to enumerate.
_MANY = 300_000


def enumerable(n: int, sizes_known: bool, *, patient: bool = False) -> bool:
    """Whether exhaustion takes milliseconds (or, if `patient`, a second or two)."""
    if patient:
        return n <= (40 if sizes_known else 34)
    return n <= (28 if sizes_known else 24)


def consistent_attributes(
    H: FloatArray,
    answers: FloatArray,
    tolerance: float,
    *,
    sizes: tuple[int, int] | None = None,
    sums: bool = False,
) -> BoolArray | None:
    """Find every assignment that explains all answers.

    Parameters
    ----------
    H : ndarray of shape (n_queries, n_individuals)
        Submitted predictions of a few dozen individuals, see `enumerable`.
    answers : ndarray of shape (n_queries,)
        Signed gaps.
    tolerance : float
        Largest error of an answer.
    sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Group sizes, where known.
    sums : bool, default=False
        Answers are sums over the advantaged, ``H @ a``, instead of gaps.

    Returns
    -------
    ndarray of bool of shape (n_consistent, n_individuals) or None
        None where there are too many to list.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack.enumeration import consistent_attributes
    >>> H = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.25]])
    >>> consistent_attributes(H, np.array([0.5, -0.375]), 1e-12).astype(int)
    array([[1, 0, 1]])
    """
    n = H.shape[1]
    counts = range(1, n) if sizes is None else [sizes[1]]
    left = n // 2
    # One random combination of all rows, and of the group size, stands for all of them while matching.
    rng = np.random.default_rng(n)
    weights = rng.uniform(0.5, 1.0, H.shape[0])
    spread = np.maximum(np.ptp(H, axis=1), 1e-300)
    weights = weights / spread
    count_weight = float(rng.uniform(1.0, 2.0))
    key = weights @ H + count_weight
    subsets, halves = [], []
    for part in (key[:left], key[left:]):
        bits = _subsets(part.size)
        subsets.append(bits)
        halves.append(bits @ part)
    order = np.argsort(halves[1], kind="stable")
    ordered = halves[1][order]
    means = H.mean(axis=1)
    found: list[BoolArray] = []
    matches = 0
    for k in counts:
        c = 1.0 if sums else n / (k * (n - k))
        wanted = answers if sums else answers / c + k * means
        target = float(weights @ wanted) + count_weight * k
        slack = float(weights.sum()) * tolerance / c + 1e-12 * (abs(target) + float(np.abs(key).sum()))
        low = np.searchsorted(ordered, target - halves[0] - slack, side="left")
        high = np.searchsorted(ordered, target - halves[0] + slack, side="right")
        matches += int((high - low).sum())
        if matches > _MANY:
            return None
        hits = np.flatnonzero(high > low)
        if not hits.size:
            continue
        first = np.repeat(hits, (high - low)[hits])
        second = order[np.concatenate([np.arange(low[i], high[i]) for i in hits])]
        pairs = np.hstack([subsets[0][first], subsets[1][second]])
        pairs = pairs[pairs.sum(axis=1) == k]
        told = pairs @ H.T
        if not sums:
            told = told / k - (H.sum(axis=1) - told) / (n - k)
        found.append(pairs[np.abs(told - answers).max(axis=1, initial=0.0) <= tolerance])
    return np.concatenate(found) if found else np.zeros((0, n), dtype=bool)


def _subsets(size: int) -> BoolArray:
    """List all subsets of so many individuals as rows of a boolean matrix."""
    codes = np.arange(2**size, dtype=np.int64)
    return np.asarray(((codes[:, None] >> np.arange(size)) & 1).astype(bool))
