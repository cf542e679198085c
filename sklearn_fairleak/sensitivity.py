r"""How far one individual's membership moves a gap: global, local and smooth sensitivity.

Sizes come in (public n, or the secret sizes inside a mechanism); closed-form bounds go out.

Moving individual j of value v from group 0 to group 1 changes the gap by
:math:`(v-\bar h_1)/(N_1+1) + (v-\bar h_0)/(N_0-1)`, where :math:`\bar h_0` includes v. Every
formula here is the maximum of that over values in [0, 1]. The mean of an empty group is 1/2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["global_sensitivity", "local_sensitivity", "smooth_sensitivity"]


def global_sensitivity(n: Any, n_queries: Any = 1, *, absolute: bool = False) -> Any:
    r"""Bound how far one of n individuals moves a gap, whoever is in which group.

    Parameters
    ----------
    n : int or array-like of int
        Number of individuals in the metric's subset (everyone for statistical parity, those
        with y = 1 for equal opportunity); at least 3.
    n_queries : int or array-like of int, default=1
        Number of gaps answered together (l1 sensitivity).
    absolute : bool, default=False
        Whether the absolute gap is answered.

    Returns
    -------
    float or ndarray
        :math:`m(1/2 + 1/(n-1))`, or :math:`mn/(2(n-1))` for the absolute gap.

    Raises
    ------
    ValueError
        If n is less than 3: with two individuals no change leaves both groups non-empty.

    Notes
    -----
    The signed bound is attained by a pair left and a group of n - 1 entered. The absolute
    one corrects the paper's m/2, and both correct its m/2 + m/(n-1) of equal opportunity,
    where n must be the size of the subset.

    References
    ----------
    Theorems 3 and 4 of Hamman, Chen & Dutta, FAccT 2023, arXiv 2211.02139.

    Examples
    --------
    >>> from sklearn_fairleak.sensitivity import global_sensitivity
    >>> global_sensitivity(5), global_sensitivity(5, absolute=True)
    (0.75, 0.625)
    """
    size, m = _sizes(n, "n"), _sizes(n_queries, "n_queries")
    _require_three(size)
    _require_queries(m)
    value = m * (size / (2.0 * (size - 1.0)) if absolute else 0.5 + 1.0 / (size - 1.0))
    return _scalar(value)


def local_sensitivity(
    n_disadvantaged: Any, n_advantaged: Any, n_queries: Any = 1, *, absolute: bool = False
) -> Any:
    r"""Bound how far one individual moves a gap, given the sizes of the groups.

    Parameters
    ----------
    n_disadvantaged, n_advantaged : int or array-like of int
        Sizes of the groups, in any order of magnitude; together at least 3.
    n_queries : int or array-like of int, default=1
        Number of gaps answered together.
    absolute : bool, default=False
        Whether the absolute gap is answered.

    Returns
    -------
    float or ndarray
        With :math:`q = \max(\min(N_0, N_1), 2)`: :math:`m(n+1)/(q(n-q+1))`, or
        :math:`mn/(q(n-q+1))` for the absolute gap; next to an empty group
        :math:`m(1/2+1/n)` (signed gaps only).

    Raises
    ------
    ValueError
        If there are fewer than 3 individuals, or a group is empty and ``absolute`` is True.

    Notes
    -----
    The paper's :math:`1/N_0 + 1/(N_1+1)` is right for :math:`2 \le N_0 \le N_1` only: a
    group of one cannot be left, and for :math:`N_0 > N_1` the other group's member moves
    more. Its :math:`1/N_0` for the absolute gap is too small where the sign turns.

    Examples
    --------
    >>> from sklearn_fairleak.sensitivity import local_sensitivity
    >>> round(local_sensitivity(4, 2), 4)
    0.7
    """
    n0, n1 = _sizes(n_disadvantaged, "n_disadvantaged"), _sizes(n_advantaged, "n_advantaged")
    m = _sizes(n_queries, "n_queries")
    _require_three(n0 + n1)
    _require_queries(m)
    _require_members(n0, n1, absolute)
    return _scalar(m * _local(n0, n1, absolute))


def smooth_sensitivity(
    n_disadvantaged: Any, n_advantaged: Any, beta: Any, n_queries: Any = 1, *, absolute: bool = False
) -> Any:
    r"""Bound the local sensitivity by a function that changes by at most a factor e^beta a step.

    Parameters
    ----------
    n_disadvantaged, n_advantaged : int or array-like of int
        Sizes of the groups; together at least 3.
    beta : float or array-like of float
        Smoothness, positive, in nats.
    n_queries : int or array-like of int, default=1
        Number of gaps answered together.
    absolute : bool, default=False
        Whether the absolute gap is answered.

    Returns
    -------
    float or ndarray
        :math:`m\max(L, e^{-\beta(q-2)}G)` with L the local and G the global bound, and
        :math:`m\max(L, e^{-\beta}G)` next to an empty group.

    Raises
    ------
    ValueError
        If there are fewer than 3 individuals, beta is not positive, or a group is empty and
        ``absolute`` is True.

    Notes
    -----
    The smallest smooth bound is :math:`\max_k e^{-\beta k} L_k`, with :math:`L_k` the
    largest local sensitivity at k changes' distance: the smaller group shrinks by one a
    change. :math:`e^{-\beta k}L_k` is log-convex in k, so the maximum is at an end: k = 0,
    or where the smaller group has two members and L = G. The paper writes :math:`N_0` for
    q, which nearly doubles the bound between :math:`N_0 = 2` and 1, so it is not smooth.

    References
    ----------
    Nissim, Raskhodnikova & Smith, "Smooth Sensitivity and Sampling in Private Data
    Analysis", STOC 2007. Lemma 6 of Hamman, Chen & Dutta, FAccT 2023.

    Examples
    --------
    >>> from sklearn_fairleak.sensitivity import smooth_sensitivity
    >>> round(smooth_sensitivity(100, 900, beta=0.1), 4)
    0.0111
    """
    n0, n1 = _sizes(n_disadvantaged, "n_disadvantaged"), _sizes(n_advantaged, "n_advantaged")
    m, b = _sizes(n_queries, "n_queries"), np.asarray(beta, dtype=np.float64)
    n = n0 + n1
    _require_three(n)
    _require_queries(m)
    _require_members(n0, n1, absolute)
    if not np.all((b > 0) & np.isfinite(b)):
        raise ValueError(f"beta must be positive and finite, got {beta!r}.")
    smaller = np.minimum(n0, n1)
    steps = np.where(smaller == 0, 1.0, np.maximum(smaller, 2.0) - 2.0)
    top = n / (2.0 * (n - 1.0)) if absolute else 0.5 + 1.0 / (n - 1.0)
    return _scalar(m * np.maximum(_local(n0, n1, absolute), np.exp(-b * steps) * top))


def _local(n0: Any, n1: Any, absolute: bool) -> Any:
    """Compute the local bound of one gap."""
    n = n0 + n1
    smaller = np.minimum(n0, n1)
    q = np.maximum(smaller, 2.0)
    inner = (n if absolute else n + 1.0) / (q * (n - q + 1.0))
    return np.where(smaller == 0, 0.5 + 1.0 / n, inner)


def _sizes(value: Any, name: str) -> npt.NDArray[np.float64]:
    """Return non-negative whole numbers as floats, or say what is wrong."""
    array = np.asarray(value)
    numbers = array.dtype.kind in "iuf"
    if not numbers or not np.all((array >= 0) & (array == np.floor(array)) & np.isfinite(array)):
        raise ValueError(f"{name} must be a non-negative whole number (or an array of them), got {value!r}.")
    return np.asarray(array, dtype=np.float64)


def _require_three(n: npt.NDArray[np.float64]) -> None:
    """Refuse sets in which no neighbour keeps both groups non-empty."""
    if np.any(n < 3):
        raise ValueError(
            f"Sensitivity needs at least 3 individuals, got n = {int(np.min(n))}: with 2, no change of one "
            "individual leaves both groups non-empty."
        )


def _require_queries(m: npt.NDArray[np.float64]) -> None:
    """Refuse an empty batch."""
    if np.any(m < 1):
        raise ValueError(f"n_queries must be at least 1, got {int(np.min(m))}.")


def _require_members(n0: npt.NDArray[np.float64], n1: npt.NDArray[np.float64], absolute: bool) -> None:
    """Refuse the absolute gap next to an empty group, where its bound does not hold."""
    if absolute and np.any(np.minimum(n0, n1) == 0):
        raise ValueError(
            "The bound of the absolute gap needs non-empty groups. Release the signed gap and take its "
            "absolute value."
        )


def _scalar(value: Any) -> Any:
    """Return a float for scalar input."""
    return float(value) if np.ndim(value) == 0 else np.asarray(value)
