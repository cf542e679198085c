"""What a query returns: a value, its uncertainty, and what it cost. No secret inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .intervals import corrected_gaps, gap_intervals
from .mechanisms.release import Release
from .metrics import combine_rows

__all__ = ["PrivateAnswer", "PrivateAnswers"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PrivateAnswers:
    """The answers of one joint release about several models.

    Attributes
    ----------
    values : ndarray of shape (n_models,)
        Released values: gaps or ratios.
    metric, mechanism : str
        What was asked, and how it was answered.
    epsilon, delta, rho : float
        What the release cost each individual in it: pure (or approximate) differential
        privacy, and zero-concentrated differential privacy.
    n_samples : int
        Size of the evaluation set.
    is_private : bool
        False for exact, rounded and seeded answers.
    replayed : bool
        Whether the question had been answered before, so that this answer was free.
    """

    metric: str
    mechanism: str
    epsilon: float
    delta: float
    rho: float
    n_samples: int
    is_private: bool
    replayed: bool
    release: Release = field(repr=False)
    rows: npt.NDArray[np.int64] = field(repr=False)
    ratio: bool = False
    absolute: bool = True
    advantaged: int = 1
    scale: float = 1.0

    @property
    def values(self) -> FloatArray:
        """Released values, shape (n_models,)."""
        if self.release.gaps is None:
            means = self.release.means()
            values = combine_rows(
                means, self.rows, ratio=self.ratio, absolute=self.absolute, advantaged=self.advantaged
            )
        else:
            gaps = self.release.gaps[self.rows]
            worst = np.take_along_axis(gaps, np.abs(gaps).argmax(axis=1)[:, None], axis=1)[:, 0]
            values = np.abs(worst) if self.absolute else worst
        return np.asarray(values) * (1.0 if self.ratio else self.scale)

    @property
    def corrected_values(self) -> FloatArray:
        """Values less what noise adds to disparity, shape (n_models,).

        Noise makes the largest difference of groups too large, and the smallest ratio too small.
        The correction removes most of that; it reads no disparity where 75 % limits hold none.
        Signed gaps are returned as they are.
        """
        if not (self.absolute or self.ratio):
            return self.values
        values = corrected_gaps(self.release, self.rows, ratio=self.ratio)
        return values * (1.0 if self.ratio else self.scale)

    def interval(self, confidence: float = 0.95, *, sampling: bool = False) -> FloatArray:
        """Return noise intervals of every value.

        Parameters
        ----------
        confidence : float, default=0.95
            Probability that an interval covers the exact answer.
        sampling : bool, default=False
            Cover the value of the population that individuals were drawn from, too; for
            mechanisms that release group means.

        Returns
        -------
        ndarray of shape (n_models, 2)
        """
        if not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence must be in (0, 1), got {confidence!r}.")
        limits = gap_intervals(
            self.release,
            self.rows,
            confidence,
            ratio=self.ratio,
            absolute=self.absolute,
            advantaged=self.advantaged,
            sampling=sampling,
        )
        return limits * (1.0 if self.ratio else self.scale)

    def by_group(self) -> FloatArray:
        """Return private group means of every row, shape (n_rows, n_groups)."""
        return self.release.means()

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def __getitem__(self, model: int) -> PrivateAnswer:
        return PrivateAnswer(self, range(len(self))[model])

    def __iter__(self) -> Iterator[PrivateAnswer]:
        return (self[model] for model in range(len(self)))

    def to_plain(self) -> dict[str, Any]:
        """Return the answers as JSON-able data."""
        names = ("metric", "mechanism", "epsilon", "delta", "rho", "n_samples", "is_private", "replayed")
        plain = {name: getattr(self, name) for name in (*names, "ratio", "absolute", "advantaged", "scale")}
        return plain | {"rows": self.rows.tolist(), "release": self.release.to_plain()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> PrivateAnswers:
        """Rebuild answers from :meth:`to_plain`."""
        rest = {name: value for name, value in plain.items() if name not in ("rows", "release")}
        rows = np.asarray(plain["rows"], dtype=np.int64)
        return cls(rows=rows, release=Release.from_plain(plain["release"]), **rest)


@dataclass(frozen=True, eq=False)
class PrivateAnswer:
    """One released answer.

    ``float(answer)`` is its value; ``interval(confidence)`` says how far the exact answer
    may be.
    """

    answers: PrivateAnswers = field(repr=False)
    model: int = 0

    @property
    def value(self) -> float:
        """The released gap or ratio."""
        return float(self.answers.values[self.model])

    @property
    def corrected(self) -> float:
        """The answer less what noise adds to disparity; see :attr:`PrivateAnswers.corrected_values`."""
        return float(self.answers.corrected_values[self.model])

    def interval(self, confidence: float = 0.95, *, sampling: bool = False) -> tuple[float, float]:
        """Return the limits between which the exact answer lies with this probability.

        With ``sampling``, they cover the value of the population that individuals were drawn
        from, too.
        """
        low, high = self.answers.interval(confidence, sampling=sampling)[self.model]
        return float(low), float(high)

    @property
    def metric(self) -> str:
        """What was asked."""
        return self.answers.metric

    @property
    def mechanism(self) -> str:
        """How it was answered."""
        return self.answers.mechanism

    @property
    def epsilon(self) -> float:
        """What the release cost each individual, in nats."""
        return self.answers.epsilon

    @property
    def delta(self) -> float:
        """The probability at which the guarantee may fail."""
        return self.answers.delta

    @property
    def n_samples(self) -> int:
        """Size of the evaluation set."""
        return self.answers.n_samples

    @property
    def is_private(self) -> bool:
        """False for exact, rounded and seeded answers."""
        return self.answers.is_private

    @property
    def replayed(self) -> bool:
        """Whether the question had been answered before."""
        return self.answers.replayed

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        marks = "" if self.is_private else ", NOT PRIVATE"
        cost = f"epsilon={self.epsilon:.4g}" + (f", delta={self.delta:.3g}" if self.delta else "")
        return (
            f"PrivateAnswer({self.value:.4f}, metric={self.metric!r}, mechanism={self.mechanism!r}, {cost}, "
            f"n_samples={self.n_samples}{marks})"
        )
