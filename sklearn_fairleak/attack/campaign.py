"""Carry out a plan: what to submit, whom to hand over to, and how to decode what comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from . import designs, perturbation
from .certainty import confirm
from .likelihood import decode_noisy, decode_unknown
from .probing import Plan
from .reconstruction import Reconstruction
from .recovery import decode_exact
from .reductions import Reduction
from .transcript import Transcript

__all__ = ["ADAPTIVE", "OTHERS", "STATISTICAL", "Campaign", "decode"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Strategies of other modules that ask as they go: module and function.
ADAPTIVE = {
    "positional": ("positional", "run"),
    "positional_sparse": ("positional", "run_sparse"),
    "coin_weighing": ("coin_weighing", "run"),
}
OTHERS = ("single", "double", "linear", "compressed_sensing", "absolute", "passive", "noisy")
#: Decoders that need a law of noise.
STATISTICAL = ("gamp", "irls", "lmmse")


def decode(
    plan: Plan,
    H: FloatArray,
    answers: FloatArray,
    *,
    sizes: tuple[int, int] | None = None,
    prior: FloatArray | None = None,
    decoder: str = "auto",
) -> Reconstruction:
    """Decode the answers to given values as a plan asks for.

    Parameters
    ----------
    plan : Plan
        Strategy, and what is known of the oracle.
    H : ndarray of shape (n_queries, n_individuals)
        Values that were submitted.
    answers : ndarray of shape (n_queries,)
        Their gaps.
    sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Group sizes.
    prior : ndarray of shape (n_individuals,), default=None
        Prior probability of being advantaged.
    decoder : str, default="auto"
        Solver, see :class:`AttributeRevealAttack`.

    Returns
    -------
    Reconstruction
    """
    if plan.strategy == "passive" and decoder == "auto" and plan.law is None:
        result = import_module(f"{__package__}.passive").decode(H, answers, group_sizes=sizes)
        assert isinstance(result, Reconstruction)
        return confirm(result, H, prior) if result.verified else result
    if plan.law is not None or plan.strategy == "noisy" or decoder in STATISTICAL:
        statistical = decoder if decoder in STATISTICAL else "auto"
        if plan.law is None:
            return decode_unknown(H, answers, sizes=sizes, prior=prior, decoder=statistical)
        return decode_noisy(H, answers, plan.law, sizes=sizes, prior=prior, decoder=statistical)
    signed = bool((answers < 0).any() or not answers.any()) if plan.signed is None else plan.signed
    if decoder == "auto" and plan.strategy in ("single", "double", "linear"):
        decoder = "linear"
    return decode_exact(
        H, answers, sizes=sizes, signed=signed, decimals=plan.decimals, prior=prior, decoder=decoder
    )


@dataclass(frozen=True, eq=False)
class Campaign:
    """Hold what an attack on one evaluation set needs, whatever the plan.

    Parameters
    ----------
    reduction : Reduction
        Whom the metric reaches, and what it compares.
    base : ndarray of shape (n_individuals,)
        Base model's predictions.
    labels : ndarray of shape (n_individuals,) or None
        True labels in {0, 1}.
    X, y : object
        Data of the base model, for models that are retrained.
    base_estimator : classifier or None
    sizes : tuple of (n_disadvantaged, n_advantaged) or None
    prior : ndarray of shape (n_reached,) or None
    targets : ndarray of shape (n_targets,)
        Positions among the individuals that the metric reaches.
    n_queries : int or None
    noise : float
    decoder : str
    stealth : bool
    max_shift : float or None
    max_accuracy_loss : float or None
    seed : int
        Randomness of the designs.
    """

    reduction: Reduction
    base: FloatArray
    labels: FloatArray | None
    X: Any
    y: Any
    base_estimator: Any
    sizes: tuple[int, int] | None
    prior: FloatArray | None
    targets: IntArray
    n_queries: int | None
    noise: float
    decoder: str
    stealth: bool
    max_shift: float | None
    max_accuracy_loss: float | None
    seed: int

    @property
    def values(self) -> FloatArray:
        """What the metric compares of the base model's predictions, shape (n_reached,)."""
        return self.reduction.to_values(self.base)

    @property
    def shift(self) -> float | None:
        """How far predictions may move from the base model's."""
        if self.stealth:
            return min(perturbation.STEALTH, 1.0 if self.max_shift is None else float(self.max_shift))
        return None if self.max_shift is None else float(self.max_shift)

    def design(self, plan: Plan) -> FloatArray:
        """Build the values to submit for the individuals that the metric reaches."""
        self._check_limits(plan)
        strategy, values, n = plan.strategy, self.values, self.reduction.reach.size
        rng = np.random.default_rng(self.seed)
        keep = (self.stealth or self.max_accuracy_loss is not None) and not plan.hard_labels
        if strategy == "single":
            return designs.single_acceptances(n, self.targets)
        if strategy == "double":
            return designs.double_queries(values, self.targets, max_shift=self.shift, keep_decisions=keep)
        if strategy == "linear":
            return designs.linear_design(values, max_shift=self.shift, keep_decisions=keep)
        if strategy == "passive":
            if self.y is None:
                raise ValueError("strategy='passive' retrains models, which needs X and y.")
            m = self.n_queries or max(2, int(np.ceil(n / 15)))
            return self.reduction.to_values(
                designs.honest_models(
                    self.X, self.y, self.base_estimator, m, rng, hard_labels=plan.hard_labels
                )
            )
        if strategy not in ("compressed_sensing", "noisy"):
            raise ValueError(f"strategy={strategy!r} chooses its queries as answers come in: use run.")
        m = self.n_queries or (n if strategy == "noisy" else max(1, int(np.ceil(0.4 * n))))
        if plan.hard_labels:
            truth = None if self.labels is None else self.reduction.to_values(self.labels)
            return designs.balanced_flips(values, truth, m, self.max_accuracy_loss, rng)
        if strategy == "noisy" and self.shift is None and self.max_accuracy_loss is None:
            return designs.random_labels(n, m, rng)
        noise = self.noise if self.shift is None else min(self.noise, self.shift)
        probe = strategy == "compressed_sensing" and self.sizes is None and m > 3
        H = designs.perturbed_models(values, m - 2 * probe, noise, rng, keep_decisions=keep)
        return np.vstack([designs.size_probe(values, noise, keep_decisions=keep), H]) if probe else H

    def _check_limits(self, plan: Plan) -> None:
        """Refuse designs that cannot stay as close to the base model as they should."""
        strategy, shift, loss = plan.strategy, self.shift, self.max_accuracy_loss
        if plan.hard_labels and shift is not None and shift < 1.0:
            raise ValueError(
                "hard_labels=True moves predictions by 1: stealth and max_shift cannot be honoured."
            )
        share = 1.0 / self.base.size
        if plan.hard_labels and strategy in ("double", "linear") and loss is not None and loss < share:
            raise ValueError(
                f"strategy={strategy!r} flips one label at a time, which may cost an accuracy of {share:.2g}: "
                f"more than max_accuracy_loss={loss:.2g}."
            )
        if strategy == "single" and (shift is not None or loss is not None):
            raise ValueError(
                "strategy='single' accepts one individual alone, which is far from any base model: it "
                "cannot honour stealth, max_shift or max_accuracy_loss. Use 'double'."
            )

    def decode(self, plan: Plan, H: FloatArray, answers: FloatArray) -> Reconstruction:
        """Decode the answers to values of the individuals that the metric reaches."""
        return decode(plan, H, answers, sizes=self.sizes, prior=self.prior, decoder=self.decoder)

    def execute(self, plan: Plan, ask: Callable[[FloatArray], float]) -> Reconstruction:
        """Carry out a plan: ask as answers come in, or all at once."""
        strategy = plan.strategy
        perturbs = strategy == "absolute" or (
            strategy == "compressed_sensing"
            and self.n_queries is None
            and not plan.hard_labels
            and plan.law is None
            and self.decoder == "auto"
        )
        if strategy not in ADAPTIVE and not perturbs:
            H = self.design(plan)
            return self.decode(plan, H, np.array([ask(h) for h in H]))
        settings: dict[str, Any] = {
            "y": None if self.labels is None else self.reduction.to_values(self.labels),
            "decimals": plan.decimals,
            "stealth": self.stealth,
            "max_shift": self.max_shift,
            "max_accuracy_loss": self.max_accuracy_loss,
            "group_sizes": self.sizes,
            "random_state": self.seed,
        }
        if perturbs:
            signed = False if strategy == "absolute" else plan.signed
            settings |= {"noise": self.noise, "n_queries": self.n_queries, "prior": self.prior}
            return perturbation.run(ask, self.values, signed=signed, **settings)
        module, function = ADAPTIVE[strategy]
        attack = getattr(import_module(f"{__package__}.{module}"), function)
        result = attack(ask, self.values, signed=plan.signed, **settings)
        assert isinstance(result, Reconstruction)
        return result

    def salvage(self, plan: Plan, transcript: Transcript) -> Reconstruction:
        """Decode what was answered before the oracle stopped."""
        n = self.reduction.reach.size
        queries = transcript.queries
        if queries is None or not len(queries):
            scores = np.full(n, 0.5) if self.prior is None else self.prior
            return Reconstruction(scores, np.zeros(n, dtype=bool), transcript.answers, 0)
        return self.decode(plan, self.reduction.to_values(queries), transcript.answers)
