"""Recover everyone from honest models: no design, no prediction changed, only exact answers.

A double has 53 bits. The exact gap of any model with real-valued predictions is a knapsack whose
weights are the predictions: of all subsets of the right size, one has the right sum. A few answers
about the same people make that subset the shortest vector of a lattice by far, and lattice
reduction finds it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .decoders import predict_gaps, rounding_tolerance
from .reconstruction import Reconstruction
from .recovery import likely_sizes

__all__ = ["decode"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Block sizes of lattice reduction, one after the other until the answers are explained.
_BLOCK_SIZES = (0, 20, 30)
#: Weight of the group size, which is exact, in units of a person's coordinate.
_EXACT = 1000


def decode(
    H: npt.ArrayLike,
    answers: npt.ArrayLike,
    *,
    group_sizes: tuple[int, int] | None = None,
    random_state: Any = None,
) -> Reconstruction:
    """Recover everyone from exact signed gaps of arbitrary real-valued predictions.

    Parameters
    ----------
    H : array-like of shape (n_queries, n_individuals)
        Predictions, as honest models make them. Up to about 120 individuals.
    answers : array-like of shape (n_queries,)
        Signed gaps in double precision; about one for 15 individuals is needed.
    group_sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Where they are not known, all are tried in order of likelihood, at about a second each.
    random_state : object, default=None
        Not used: lattice reduction is deterministic.

    Returns
    -------
    Reconstruction
        Verified where every answer is predicted again; otherwise nobody is determined.

    Raises
    ------
    ImportError
        If fpylll, which does the lattice reduction, is not installed.
    ValueError
        If shapes disagree or values are not finite.

    References
    ----------
    M. J. Coster, A. Joux, B. A. LaMacchia, A. M. Odlyzko, C.-P. Schnorr & J. Stern, "Improved
    low-density subset sum algorithms", Computational Complexity 2 (1992).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack import passive
    >>> rng = np.random.default_rng(0)
    >>> H, race = rng.random((2, 24)), np.arange(24) % 4 > 0
    >>> answers = H[:, race].mean(axis=1) - H[:, ~race].mean(axis=1)
    >>> passive.decode(H, answers, group_sizes=(6, 18))
    Reconstruction(24 of 24 individuals determined by 2 answers, verified)
    """
    H, answers = np.asarray(H, dtype=np.float64), np.asarray(answers, dtype=np.float64)
    if H.ndim != 2 or answers.shape != H.shape[:1] or H.shape[1] < 2 or not H.size:
        raise ValueError(
            "H must hold one row of predictions per answer, for at least 2 individuals; got shapes "
            f"{H.shape} and {answers.shape}."
        )
    if not (np.isfinite(H).all() and np.isfinite(answers).all()):
        raise ValueError("H and answers must be finite numbers, without NaN.")
    n = H.shape[1]
    candidates = [group_sizes] if group_sizes is not None else likely_sizes(H, answers, limit=2 * n)
    lattice = _Lattice(H, answers)
    for block_size in _BLOCK_SIZES:
        lattice.reduce(block_size)
        for sizes in candidates:
            found = lattice.search(sizes, block_size)
            if found is not None:
                return Reconstruction(
                    found.astype(np.float64),
                    np.ones(n, dtype=bool),
                    answers,
                    answers.size,
                    group_sizes=sizes,
                    verified=True,
                    queries=H,
                )
    message = "no assignment was found that explains the answers: too few answers, or they are not exact"
    return Reconstruction(
        np.full(n, 0.5), np.zeros(n, dtype=bool), answers, answers.size, queries=H, messages=(message,)
    )


class _Lattice:
    """Hold the lattice of the predictions, which does not depend on group sizes, reduced once for all."""

    def __init__(self, H: FloatArray, answers: FloatArray) -> None:
        try:
            import fpylll
        except ImportError as error:
            raise ImportError(
                "Decoding honest models needs lattice reduction by fpylll: "
                "pip install 'sklearn-fairleak[lattice]'."
            ) from error
        self._fpylll = fpylll
        self._H, self._answers = H, answers
        self._tolerance = rounding_tolerance(H)
        n = H.shape[1]
        # An answer's last bit, times N1 N0 / n, is what a sum over a group is known to: take a spread of
        # minorities as the scale, and leave two bits for rounding the weights.
        self._bits = 51 - max(1, (n // 8).bit_length())
        self._unit = max(1, n // 3)
        # Exact integers: a weight of 47 bits is not rounded again by the multiplication.
        self._weights = np.rint(np.ldexp(H, self._bits)).astype(np.int64)
        rows = [
            [n if k == j else 0 for k in range(n)]
            + [self._unit * int(w) for w in self._weights[:, j]]
            + [_EXACT * n, 0]
            for j in range(n)
        ]
        self._basis = fpylll.IntegerMatrix.from_matrix(rows)
        fpylll.LLL.reduction(self._basis)

    def reduce(self, block_size: int) -> None:
        """Reduce the lattice of the predictions further."""
        if block_size:
            self._reduce(self._basis, block_size)

    def _reduce(self, basis: Any, block_size: int) -> None:
        """Run blockwise reduction until it stops making progress."""
        bkz = self._fpylll.BKZ
        block_size = min(block_size, basis.nrows)
        parameters = bkz.Param(block_size, flags=bkz.AUTO_ABORT)
        bkz.reduction(basis, parameters)

    def search(self, sizes: tuple[int, int], block_size: int) -> IntArray | None:
        """Look for the members of the smaller group: the lattice point nearest to the answers."""
        n_disadvantaged, n_advantaged = sizes
        n, few = sum(sizes), min(sizes)
        target = [-few] * n
        for h, answer in zip(self._H, self._answers, strict=True):
            # The sum over the smaller group that this answer tells.
            total = math.fsum(h)
            own = (answer * n_advantaged * n_disadvantaged + total * n_advantaged) / n
            own = own if n_advantaged == few else total - own
            target.append(-self._unit * round(math.ldexp(own, self._bits)))
        spread = max(1, round(math.sqrt(n_advantaged * n_disadvantaged)))
        target += [-_EXACT * n * few, spread]
        rows = [list(row) for row in self._basis] + [target]
        basis = self._fpylll.IntegerMatrix.from_matrix(rows)
        self._fpylll.LLL.reduction(basis)
        found = self._members(basis, sizes)
        if found is None and block_size:
            self._reduce(basis, block_size)
            found = self._members(basis, sizes)
        return found

    def _members(self, basis: Any, sizes: tuple[int, int]) -> IntArray | None:
        """Return the attributes that a short vector stands for, if they explain every answer."""
        n, few = sum(sizes), min(sizes)
        for row in basis:
            vector = np.array([int(v) for v in row][:n])
            for sign in (1, -1):
                shifted = sign * vector + few
                if np.isin(shifted, (0, n)).all() and (shifted == n).sum() == few:
                    smaller = shifted == n
                    advantaged = smaller if sizes[1] == few else ~smaller
                    error = np.abs(predict_gaps(self._H, advantaged) - self._answers).max()
                    if error <= self._tolerance:
                        return advantaged.astype(np.int64)
        return None
