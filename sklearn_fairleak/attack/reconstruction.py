"""What an attack learned: the value that every strategy and decoder returns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

__all__ = ["Reconstruction"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Sensitive attributes as an attacker believes them to be, and how sure it is.

    Parameters
    ----------
    scores : ndarray of shape (n_individuals,)
        Confidence in [0, 1] that the individual is in the advantaged group. 0.5 means that
        the answers do not reach the individual, or do not tell.
    determined : ndarray of bool of shape (n_individuals,)
        Whether the answers leave one possibility only (up to the names of the groups where
        `orientation_known` is False).
    answers : ndarray of shape (n_queries,)
        The answers that were received, in order.
    n_queries : int
        Number of answers asked for.
    group_sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Sizes of the groups, None where they are not known.
    verified : bool, default=False
        Whether all answers were predicted again from the reconstruction and agree within
        rounding error.
    orientation_known : bool, default=True
        Whether the answers tell which of the two groups is the advantaged one. ``|SP|`` gives
        a partition only, and group sizes name its parts unless they are equal or unknown.
    max_shift : float, default=0.0
        Largest distance of a submitted prediction from the base model's, in units of the
        prediction.
    accuracy_loss : float, default=0.0
        Largest loss of accuracy of a submitted model against the base model, as a share of
        the individuals (0 where labels were not given).
    queries : ndarray of shape (n_queries, n_individuals), default=None
        The submitted predictions, where they were kept.
    threshold : float, default=0.5
        Score above which an individual is taken for advantaged. Posteriors of a small group rarely
        pass 1/2; balanced accuracy is best at the mean score.
    messages : tuple of str, default=()
        What could not be determined, or went wrong, in words.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack import Reconstruction
    >>> found = Reconstruction(
    ...     scores=np.array([1.0, 0.0, 0.5]),
    ...     determined=np.array([True, True, False]),
    ...     answers=np.array([0.5, -1.0]),
    ...     n_queries=2,
    ... )
    >>> found.attributes.tolist()
    [1, 0, 0]
    >>> found
    Reconstruction(2 of 3 individuals determined by 2 answers, not verified)
    """

    scores: FloatArray
    determined: BoolArray
    answers: FloatArray
    n_queries: int
    group_sizes: tuple[int, int] | None = None
    verified: bool = False
    orientation_known: bool = True
    max_shift: float = 0.0
    accuracy_loss: float = 0.0
    queries: FloatArray | None = field(default=None)
    messages: tuple[str, ...] = ()
    threshold: float = 0.5

    def __post_init__(self) -> None:
        scores = np.asarray(self.scores, dtype=np.float64)
        determined = np.asarray(self.determined, dtype=np.bool_)
        if scores.ndim != 1 or scores.shape != determined.shape:
            raise ValueError(
                "scores and determined must be vectors with one entry per individual; got shapes "
                f"{scores.shape} and {determined.shape}."
            )
        if not np.all((scores >= 0.0) & (scores <= 1.0)):
            raise ValueError("scores must be confidences in [0, 1].")
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "determined", determined)
        object.__setattr__(self, "answers", np.asarray(self.answers, dtype=np.float64))
        object.__setattr__(self, "messages", tuple(self.messages))

    @property
    def attributes(self) -> IntArray:
        """Group of each individual: 1 (advantaged) where the score is above the threshold, else 0."""
        return (self.scores > self.threshold).astype(np.int64)

    @property
    def exact(self) -> bool:
        """Whether every individual is determined and all answers were verified."""
        return bool(self.verified and self.determined.all())

    def with_message(self, *messages: str) -> Reconstruction:
        """Return a copy with further remarks on what could not be determined."""
        return replace(self, messages=(*self.messages, *messages))

    def swapped(self) -> Reconstruction:
        """Return the same partition with the names of the two groups exchanged."""
        sizes = None if self.group_sizes is None else (self.group_sizes[1], self.group_sizes[0])
        return replace(self, scores=1.0 - self.scores, threshold=1.0 - self.threshold, group_sizes=sizes)

    def __repr__(self) -> str:
        # Secrets stay out of logs and notebooks: no score, attribute, size or answer is shown.
        state = "verified" if self.verified else "not verified"
        return (
            f"Reconstruction({int(self.determined.sum())} of {self.determined.size} individuals "
            f"determined by {self.n_queries} answers, {state})"
        )
