"""How answers were disturbed, as far as an attacker knows: the law of the noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["NoiseLaw"]

FloatArray = npt.NDArray[np.float64]

_KINDS = ("cauchy", "gaussian", "laplace", "randomized_response", "uniform")


@dataclass(frozen=True)
class NoiseLaw:
    """Describe the noise of an answer.

    Parameters
    ----------
    kind : {"laplace", "gaussian", "cauchy", "uniform", "randomized_response"}
        Family. ``"uniform"`` is what rounding amounts to. ``"randomized_response"`` means that the
        answers are exact for one private copy of the attributes.
    scale : float
        Scale of the Laplace or Cauchy law, standard deviation of the Gaussian one, half-width of
        the uniform one, in units of the answer; ε of randomised response, in nats.
    shared : float, default=0.0
        Standard deviation of noise that all answers have in common, as those of one joint release
        of group sums do.

    Examples
    --------
    >>> from sklearn_fairleak.attack import NoiseLaw
    >>> NoiseLaw("laplace", 0.5).variance
    0.5
    >>> NoiseLaw.rounded(2)
    NoiseLaw(kind='uniform', scale=0.005, shared=0.0)
    """

    kind: str
    scale: float
    shared: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"kind must be one of {_KINDS}, got {self.kind!r}.")
        if np.ndim(self.scale) != 0 or not 0.0 < float(self.scale) < np.inf:
            raise ValueError(f"scale must be a positive finite number, got {self.scale!r}.")
        if np.ndim(self.shared) != 0 or not 0.0 <= float(self.shared) < np.inf:
            raise ValueError(f"shared must be a finite number that is not negative, got {self.shared!r}.")

    @classmethod
    def rounded(cls, decimals: int) -> NoiseLaw:
        """Return the law of the error of answers rounded to so many decimals."""
        return cls("uniform", 0.5 * 10.0**-decimals)

    @property
    def variance(self) -> float:
        """Variance of each answer's own noise: infinite for Cauchy, 0 for randomised response."""
        factor = {"laplace": 2.0, "gaussian": 1.0, "cauchy": np.inf, "uniform": 1.0 / 3.0}
        return float(factor.get(self.kind, 0.0) * self.scale**2) if self.kind in factor else 0.0

    @property
    def flip_probability(self) -> float:
        """Probability ``1/(1 + e^ε)`` that randomised response turns an attribute around; 0 for others."""
        return float(1.0 / (1.0 + np.exp(self.scale))) if self.kind == "randomized_response" else 0.0

    def rescaled(self, factor: float) -> NoiseLaw:
        """Return the law of the noise times `factor`."""
        return NoiseLaw(self.kind, self.scale * factor, self.shared * factor)

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw noise for experiments.

        Parameters
        ----------
        size : int
            Number of answers.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray of shape (size,)
        """
        draw: dict[str, Callable[[], FloatArray]] = {
            "laplace": lambda: rng.laplace(scale=self.scale, size=size),
            "gaussian": lambda: rng.normal(scale=self.scale, size=size),
            "cauchy": lambda: np.asarray(self.scale * rng.standard_cauchy(size)),
            "uniform": lambda: rng.uniform(-self.scale, self.scale, size),
        }
        if self.kind not in draw:
            raise ValueError("Randomised response disturbs the attributes, not the answers.")
        own = draw[self.kind]()
        return own + rng.normal(scale=self.shared) if self.shared else own

    def log_density(self, error: FloatArray, spread: float = 0.0) -> FloatArray:
        """Return the log density of an error, up to a constant, when the prediction itself is uncertain.

        `spread` (a standard deviation) widens the law, so that a uniform one rules nothing out.
        """
        e = np.asarray(error, dtype=np.float64)
        if self.kind == "cauchy":
            s = self.scale + spread
            return np.asarray(np.log(s) - np.log(s * s + e * e))
        if self.kind == "laplace":
            s = float(np.hypot(self.scale, spread))
            return np.asarray(-np.abs(e) / s - np.log(s))
        s2 = self.variance + spread**2
        return np.asarray(-0.5 * (e * e / s2 + np.log(s2)))
