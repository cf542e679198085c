"""What kind of oracle is this? A few answers tell, and decide the strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .designs import perturbed_models, size_probe
from .noise_laws import NoiseLaw
from .transcript import OracleStopped

__all__ = ["Plan", "plan_attack"]

FloatArray = npt.NDArray[np.float64]

#: More decimals than this are taken for an exact answer that happens to be short.
_MOST_DECIMALS = 8
#: So few decimals are confirmed by so many more answers.
_SHORT, _MORE = 3, 4


@dataclass(frozen=True)
class Plan:
    """Say how to attack, and what is known of the oracle.

    Parameters
    ----------
    strategy : str
        Name of the strategy.
    signed : bool or None
        Whether answers carry the sign of the gap; None where it is not known.
    decimals : int or None
        Decimals to which answers are rounded; None for exact ones.
    hard_labels : bool
        Whether only 0/1 predictions are answered.
    messages : tuple of str
        What was found out.
    law : NoiseLaw or None
        Law of the noise, where it is known.
    """

    strategy: str
    signed: bool | None
    decimals: int | None
    hard_labels: bool
    messages: tuple[str, ...] = ()
    law: NoiseLaw | None = None

    def fallback(self) -> Plan:
        """Return what to do where digits could not be read: random models, and a decoder for noise."""
        law = self.law
        if law is None and self.decimals is not None:
            law = NoiseLaw.rounded(self.decimals)
        return replace(self, strategy="noisy", law=law)


def plan_attack(
    ask: Callable[[FloatArray], float],
    values: FloatArray,
    *,
    shift: float | None = None,
    hard_labels: bool = False,
    signed: bool | None = None,
    decimals: int | None = None,
) -> Plan:
    """Probe an oracle with up to four queries (a few more if it rounds coarsely) and choose a strategy.

    Two models that differ in one individual have exact answers that differ by 1/N1 or -1/N0: the
    reciprocal of an integer, which noise does not leave intact. Rounded answers have few decimals.
    The answer to a model turned upside down changes its sign, unless signs are not given.

    Parameters
    ----------
    ask : callable
        ``ask(values) -> float``.
    values : ndarray of shape (n_individuals,)
        Base model's predictions.
    shift : float, default=None
        Largest distance of a submitted prediction from the base model's.
    hard_labels : bool, default=False
        Submit 0/1 predictions only; found out if the oracle refuses probabilities.
    signed : bool, default=None
        Whether answers carry the sign of the gap, if known.
    decimals : int, default=None
        Decimals of the answers, if known.

    Returns
    -------
    Plan
    """
    messages: list[str] = []
    labels = (values >= 0.5).astype(np.float64)
    first: float | None = None
    if not hard_labels and np.any(values != labels):
        first, refusal = _first_answer(ask, values, labels if shift is None else None)
        if refusal is not None:
            hard_labels, first = True, None
            messages.append(f"{refusal}; hard labels were submitted")
    if hard_labels:
        values = labels
    step = 1.0 if hard_labels or shift is None else shift
    pair = size_probe(values, step if hard_labels else min(step, 0.5))
    base = ask(pair[0]) if first is None else first
    moved = ask(pair[1])
    delta = float((pair[1] - pair[0]).sum())
    answers = [base, moved]
    if signed is None and min(answers) < 0.0:
        signed = True
    if signed is None and (shift is None or shift >= 1.0):
        turned = ask(1.0 - values)
        answers.append(turned)
        # An unsigned answer to the complement is the same again; only noise could make both equal or not.
        signed = bool(turned < 0.0) if max(base, -turned) > 0.0 else None
    found = decimals is None
    if decimals is None:
        decimals = _decimals(answers)
    exact = _is_reciprocal(moved - base, delta, values.size) or _is_reciprocal(
        moved + base, delta, values.size
    )
    if found and decimals is not None and decimals <= _SHORT and not (exact and hard_labels):
        # A few coarse answers may end in zeros by chance: 0.1 can be 0.100.
        near = perturbed_models(values, _MORE, step, np.random.default_rng(0))
        more = (near >= 0.5).astype(np.float64) if hard_labels else near
        decimals = _decimals(answers + [ask(h) for h in more])
    if exact and (hard_labels or decimals is None):
        # Exact gaps of labels may be short by themselves, as 1/50 is; those of probabilities are not, and
        # rounded ones differ by 0.02, the reciprocal of 50, soon enough.
        decimals = None
    elif decimals is None:
        messages.append("answers are neither exact nor rounded: they carry noise")
        return Plan("noisy", signed, None, hard_labels, tuple(messages))
    strategy = "coin_weighing" if hard_labels else "positional"
    return Plan(strategy, signed, decimals, hard_labels, tuple(messages))


def _first_answer(
    ask: Callable[[FloatArray], float], values: FloatArray, labels: FloatArray | None
) -> tuple[float | None, str | None]:
    """Ask for probabilities; say how an oracle of labels gives itself away: it raises, or counts none of them."""
    try:
        base = ask(values)
    except OracleStopped:
        return None, "the oracle refused probabilities"
    if base == 0.0 and labels is not None and ask(labels) != 0.0:
        return None, "the oracle answered 0 to probabilities"
    return base, None


def _decimals(answers: list[float]) -> int | None:
    """Return the number of decimals to which all answers are rounded, if few.

    Answers of 0 or 1 have few decimals of their own; noisy answers clipped to the range do, too.
    """
    answers = [answer for answer in answers if 0.0 < abs(answer) < 1.0]
    if not answers:
        return None
    for digits in range(_MOST_DECIMALS + 1):
        if all(abs(round(answer, digits) - answer) <= 1e-15 for answer in answers):
            return digits
    return None


def _is_reciprocal(difference: float, delta: float, n: int) -> bool:
    """Whether a difference of answers is 1/N per unit of prediction, for a group size N."""
    gain = abs(difference / delta)
    if gain == 0.0:
        return False
    size = 1.0 / gain
    error = max(1e-9, 1e-14 * size * size / abs(delta))
    return error < 0.1 and 1 <= round(size) <= n - 1 and abs(size - round(size)) <= error
