"""Slightly perturbed models, as many as it takes: compressed sensing of signed and absolute gaps.

An absolute gap hides a sign. Around a base model that is unfair enough, small perturbations cannot
turn it, so all answers carry one unknown sign and ``|SP|`` is the signed gap of the groups in one
order or the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .designs import perturbed_models, size_probe
from .reconstruction import Reconstruction
from .recovery import decode_exact

__all__ = ["STEALTH", "run"]

FloatArray = npt.NDArray[np.float64]

#: Base gap over spread of the perturbed gaps above which no sign turns.
_SAFE = 8.0
#: Up to so many individuals a decoding takes milliseconds, so that it is tried after every few answers.
_SMALL = 2000
#: How far stealthy predictions stray from the base model's.
STEALTH = 1e-5


def run(
    oracle: Callable[[FloatArray], float],
    base: FloatArray,
    *,
    y: FloatArray | None = None,
    signed: bool | None = None,
    decimals: int | None = None,
    stealth: bool = False,
    max_shift: float | None = None,
    max_accuracy_loss: float | None = None,
    group_sizes: tuple[int, int] | None = None,
    random_state: Any = None,
    noise: float = 0.1,
    n_queries: int | None = None,
    prior: FloatArray | None = None,
) -> Reconstruction:
    """Submit perturbed models until their answers fix everyone.

    Parameters
    ----------
    oracle : callable
        ``oracle(y_pred) -> float``.
    base : ndarray of shape (n_individuals,)
        Predictions of the base model.
    y : ndarray of shape (n_individuals,), default=None
        Not used: no decision is changed where accuracy is limited.
    signed : bool, default=None
        Whether answers carry the sign of the gap. None: if any of them is negative.
    decimals : int, default=None
        Decimals to which answers are rounded.
    stealth : bool, default=False
        Stay within 1e-5 of the base model and change no decision.
    max_shift : float, default=None
        Largest distance of a submitted prediction from the base model's.
    max_accuracy_loss : float, default=None
        If given, no decision is changed.
    group_sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Group sizes; two of the queries find them where they are not given.
    random_state : int or numpy.random.Generator, default=None
        Randomness of the perturbations.
    noise : float, default=0.1
        Half-width of the perturbation.
    n_queries : int, default=None
        Number of answers to ask for; by default as many as it takes, at most one per individual
        and two more.
    prior : ndarray of shape (n_individuals,), default=None
        Prior probability of being advantaged.

    Returns
    -------
    Reconstruction

    References
    ----------
    Theorem 5, Algorithm 2 and Theorem 7 of Hamman, Chen & Dutta (2023), arXiv 2211.02139.
    """
    rng = np.random.default_rng(random_state)
    n = base.size
    keep = stealth or max_accuracy_loss is not None
    width = min(noise, 1.0 if max_shift is None else max_shift, STEALTH if stealth else 1.0)
    # Half a step inside, so that rounding in base + shift never shows as a larger shift.
    width = max(width - 1e-15, 0.5 * width)
    lowest, highest = base - width, base + width
    rows: list[FloatArray] = []
    answers: list[float] = []

    def ask(H: FloatArray) -> None:
        for h in np.clip(H, lowest, highest):
            answer = float(oracle(h))
            answers.append(abs(answer) if signed is False else answer)
            rows.append(h)

    anchor = base
    if signed is False:
        anchor, width = _anchored(ask, rows, answers, base, width, keep, rng, n_queries)
    if group_sizes is None and (n_queries is None or n_queries - len(rows) > 3):
        probe = size_probe(anchor, width, keep_decisions=keep)
        ask(probe if not (rows and np.array_equal(rows[0], anchor)) else probe[1:])
    most = n + 2 if n_queries is None else n_queries
    wanted = min(most, max(3, int(np.ceil(0.15 * n)))) if n_queries is None else most
    while True:
        ask(perturbed_models(anchor, max(0, wanted - len(rows)), width, rng, keep_decisions=keep))
        found = decode_exact(
            np.array(rows),
            np.array(answers),
            sizes=group_sizes,
            signed=min(answers) < 0.0 if signed is None else signed,
            decimals=decimals,
            prior=prior,
            thorough=wanted >= most,
        )
        if found.exact or wanted >= most:
            return found
        wanted = min(most, int(np.ceil((1.04 if n <= _SMALL else 1.12) * wanted)))


def _anchored(
    ask: Callable[[FloatArray], None],
    rows: list[FloatArray],
    answers: list[float],
    base: FloatArray,
    width: float,
    keep: bool,
    rng: np.random.Generator,
    n_queries: int | None,
) -> tuple[FloatArray, float]:
    """Find a model and a perturbation so small that the sign of the gap stays, from a few answers."""
    ask(base[None, :])
    if n_queries is not None and n_queries < 8:
        return base, width
    ask(perturbed_models(base, 6, width, rng, keep_decisions=keep))
    gaps = np.array(answers)
    spread = max(float(np.sqrt(np.mean(np.square(gaps[1:] - gaps[0])))), float(gaps[1:].std()))
    if spread == 0.0 or gaps[0] > _SAFE * spread:
        return base, width
    # The base model is (nearly) fair: start from the most unfair of its neighbours and move less. Signs of
    # the models already asked may differ, so only the anchor's answer is kept.
    best = int(np.argmax(gaps))
    anchor, gap = rows[best], gaps[best]
    rows[:], answers[:] = [anchor], [gap]
    return anchor, min(width / 4.0, width * gap / (_SAFE * spread))
