"""Read dozens of people from the digits of one answer.

A base model's predictions come in; models that add a different power of two to each person of
a block go to the oracle; the bits of the answers, which are people, go out.

With a base on the grid 2^-g and a block of K people raised by 2^-(g+1), ..., 2^-(g+K), the sum
over the advantaged group grows by a sum of distinct powers of two: its binary digits say who is
in the group. All sums are exact in double precision, so the only error is that of two means and
their difference, which bounds K. The minority's sparsity allows longer blocks: with random weights
instead of powers of two, a small subset is found by its sum (`run_sparse`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .digit_base import digit_base
from .digit_reader import DigitReader
from .reconstruction import Reconstruction
from .rounded import run as run_rounded
from .transcript import Transcript

__all__ = ["run", "run_sparse"]

FloatArray = npt.NDArray[np.float64]


def run(
    oracle: Callable[[FloatArray], Any],
    base: npt.ArrayLike,
    *,
    y: Any = None,
    signed: bool | None = True,
    decimals: int | None = None,
    stealth: bool = False,
    max_shift: float | None = None,
    max_accuracy_loss: float | None = None,
    group_sizes: tuple[int, int] | None = None,
    random_state: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Reconstruction:
    """Recover everyone from exact answers about probability predictions.

    Parameters
    ----------
    oracle : callable
        ``oracle(y_pred) -> float``, the gap or its absolute value in double precision.
    base : array-like of shape (n_individuals,)
        Predictions of a realistic model, in [0, 1].
    y : array-like of shape (n_individuals,), default=None
        True labels in {0, 1}, to report the loss of accuracy: none, for no decision changes.
    signed : bool or None, default=True
        Whether answers are signed. None is taken as unsigned unless the base's answer is negative.
    decimals : int, default=None
        Decimals of rounded answers, which another attack reads.
    stealth : bool, default=False
        Keep every prediction within 1e-6 of the base model's.
    max_shift : float, default=None
        Largest distance of a prediction from the base model's; 0.1 by default.
    max_accuracy_loss : float, default=None
        Always honoured: no decision at 1/2 is changed.
    group_sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Found from the answers where not given.
    random_state : object, default=None
        Seed of random choices where answers contradict each other; the attack has none otherwise.
    progress : callable, default=None
        Called with (people read, people in all).

    Returns
    -------
    Reconstruction
        If the oracle stops midway, with who was read until then.

    Raises
    ------
    ValueError
        If predictions are not in [0, 1], or ``max_shift`` is too small for double precision.
    OracleStopped
        If the oracle does not answer the first query.

    References
    ----------
    The setting is that of Hamman, Chen & Dutta (2023), arXiv 2211.02139, who need one answer per
    individual or two in five.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack import positional
    >>> rng = np.random.default_rng(0)
    >>> race, base = rng.random(100) < 0.9, rng.random(100)
    >>> found = positional.run(lambda h: h[race].mean() - h[~race].mean(), base)
    >>> found, bool(np.array_equal(found.attributes, race)), found.max_shift < 0.1
    (Reconstruction(100 of 100 individuals determined by 4 answers, verified), True, True)
    """
    if decimals is not None:
        return run_rounded(
            oracle,
            base,
            y=y,
            signed=signed,
            decimals=decimals,
            stealth=stealth,
            max_shift=max_shift,
            max_accuracy_loss=max_accuracy_loss,
            group_sizes=group_sizes,
            random_state=random_state,
            progress=progress,
        )
    start = digit_base(base, stealth=stealth, max_shift=max_shift)
    labels = None if y is None else np.asarray(y, dtype=np.float64)
    asked = Transcript(oracle, np.asarray(base, dtype=np.float64), labels)
    return DigitReader(asked, start, signed=signed, group_sizes=group_sizes, progress=progress).read_all()


def run_sparse(
    oracle: Callable[[FloatArray], Any],
    base: npt.ArrayLike,
    *,
    y: Any = None,
    signed: bool | None = True,
    decimals: int | None = None,
    stealth: bool = False,
    max_shift: float | None = None,
    max_accuracy_loss: float | None = None,
    group_sizes: tuple[int, int] | None = None,
    random_state: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Reconstruction:
    """Recover everyone with longer blocks, where one group is much smaller than the other.

    Parameters and result are those of `run`. People of a block get random weights; the few of
    the smaller group are found from the sum of theirs by meeting in the middle. Blocks for which
    that fails, and groups too equal for it, are read digit by digit.

    References
    ----------
    E. Horowitz & S. Sahni, "Computing partitions with applications to the knapsack problem",
    Journal of the ACM 21 (1974).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack import positional
    >>> rng = np.random.default_rng(0)
    >>> race, base = rng.random(400) < 0.98, rng.random(400)
    >>> positional.run_sparse(lambda h: h[race].mean() - h[~race].mean(), base)
    Reconstruction(400 of 400 individuals determined by 5 answers, verified)
    """
    if decimals is not None:
        return run(
            oracle,
            base,
            y=y,
            signed=signed,
            decimals=decimals,
            stealth=stealth,
            max_shift=max_shift,
            group_sizes=group_sizes,
            random_state=random_state,
            progress=progress,
        )
    start = digit_base(base, stealth=stealth, max_shift=max_shift)
    labels = None if y is None else np.asarray(y, dtype=np.float64)
    asked = Transcript(oracle, np.asarray(base, dtype=np.float64), labels)
    rng = np.random.default_rng(random_state)
    reader = DigitReader(
        asked, start, signed=signed, group_sizes=group_sizes, progress=progress, sparse_weights=rng
    )
    return reader.read_all()
