"""What an attacker asked and was told: an oracle with a memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["OracleStopped", "Transcript"]

FloatArray = npt.NDArray[np.float64]

#: Queries are kept up to so many numbers (about 400 MB).
_KEPT = 50_000_000


class OracleStopped(RuntimeError):  # noqa: N818 - what happened, not a fault of the attack
    """Raise when the oracle refuses to answer, or answers with something that is no number."""


class Transcript:
    """Ask an oracle and remember queries, answers, and how far the submitted models strayed.

    Parameters
    ----------
    oracle : callable
        ``oracle(y_pred) -> float``.
    base : ndarray of shape (n_individuals,)
        Predictions of the base model.
    labels : ndarray of shape (n_individuals,), default=None
        True labels in {0, 1}, to measure the loss of accuracy.

    Attributes
    ----------
    n_queries : int
        Answers received.
    answers : ndarray of shape (n_queries,)
    queries : ndarray of shape (n_queries, n_individuals) or None
        None where they would take too much memory.
    max_shift, accuracy_loss : float
        Largest distance and largest loss of accuracy against the base model.
    stopped : str or None
        Why the oracle stopped answering, if it did.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack.transcript import Transcript
    >>> ask = Transcript(lambda h: h[0] - h[1], np.array([0.5, 0.5]))
    >>> ask(np.array([0.75, 0.5])), ask.n_queries, ask.max_shift
    (0.25, 1, 0.25)
    """

    def __init__(
        self, oracle: Callable[[FloatArray], Any], base: FloatArray, labels: FloatArray | None = None
    ) -> None:
        self._oracle = oracle
        self._base = base
        self._labels = labels
        self._right = None if labels is None else float(np.mean((base >= 0.5) == (labels > 0.5)))
        self._queries: list[FloatArray] | None = []
        self._answers: list[float] = []
        self.max_shift = 0.0
        self.accuracy_loss = 0.0
        self.stopped: str | None = None

    def __call__(self, y_pred: npt.ArrayLike) -> float:
        """Submit one model and return the answer as a float."""
        h = np.array(y_pred, dtype=np.float64)
        try:
            answer = float(self._oracle(h.copy()))
        except OracleStopped:
            raise
        except Exception as error:
            self.stopped = f"the oracle raised {type(error).__name__} at query {self.n_queries + 1}: {error}"
            raise OracleStopped(self.stopped) from error
        if not np.isfinite(answer):
            self.stopped = f"the oracle gave no finite number at query {self.n_queries + 1}"
            raise OracleStopped(self.stopped)
        self._answers.append(answer)
        if self._queries is not None:
            self._queries.append(h)
            if len(self._queries) * h.size > _KEPT:
                self._queries = None
        self.max_shift = max(self.max_shift, float(np.abs(h - self._base).max()))
        if self._labels is not None and self._right is not None:
            right = float(np.mean((h >= 0.5) == (self._labels > 0.5)))
            self.accuracy_loss = max(self.accuracy_loss, self._right - right)
        return answer

    def rebase(self, base: FloatArray) -> None:
        """Go on from other base predictions: labels, where the oracle refused probabilities."""
        self._base = base
        self.stopped = None

    @property
    def n_queries(self) -> int:
        """Number of answers received."""
        return len(self._answers)

    @property
    def answers(self) -> FloatArray:
        """Answers in the order in which they came."""
        return np.array(self._answers, dtype=np.float64)

    @property
    def queries(self) -> FloatArray | None:
        """Submitted predictions, one row per query."""
        if self._queries is None:
            return None
        return np.array(self._queries, dtype=np.float64).reshape(len(self._queries), self._base.size)
