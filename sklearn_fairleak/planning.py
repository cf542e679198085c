"""What an audit will cost and how far off its answers will be, before anything is asked."""

from __future__ import annotations

import warnings
from typing import Any

from .mechanisms import MECHANISMS

__all__ = ["plan"]


def plan(
    n_samples: int,
    *,
    n_queries: int = 1,
    n_models: int = 1,
    epsilon: float = 1.0,
    delta: float = 0.0,
    minority_share: float = 0.1,
) -> Any:
    """Compare the mechanisms' expected errors from public inputs.

    Parameters
    ----------
    n_samples : int
        Size of the evaluation set (a test fold, in a cross-validation).
    n_queries : int, default=1
        Answers that include one individual and share the budget.
    n_models : int, default=1
        Models asked about in one joint release.
    epsilon, delta : float
        The whole guarantee to each individual.
    minority_share : float, default=0.1
        Guessed share of the smaller group.

    Returns
    -------
    DataFrame
        Indexed by mechanism, best first: ``expected_error`` of a statistical parity gap,
        whether the mechanism is ``private``, and its ``guarantee``.

    Examples
    --------
    >>> from sklearn_fairleak.planning import plan
    >>> plan(1000, n_queries=300).index[0]
    'randomized_response'
    """
    import pandas as pd

    rows = []
    for name, mechanism_class in MECHANISMS.items():
        mechanism = mechanism_class()
        if name == "smooth_laplace" and not delta > 0:
            continue
        error = mechanism.error_scale(
            n_samples, n_queries, epsilon, delta, minority_share=minority_share, n_models=n_models
        )
        guarantee = "none"
        if mechanism.is_private:
            guarantee = (
                "(epsilon, delta)" if name == "smooth_laplace" or (name == "auto" and delta) else "epsilon"
            )
        rows.append((name, error, mechanism.is_private, guarantee))
    table = pd.DataFrame(rows, columns=["mechanism", "expected_error", "private", "guarantee"])
    private = table[table["private"]].sort_values("expected_error", kind="stable")
    if float(private["expected_error"].min()) > 0.5:
        warnings.warn(
            f"With n_samples={n_samples} every private answer is mostly noise: its expected error is more than "
            "half of the possible range. Use more individuals, fewer answers or a larger epsilon.",
            UserWarning,
            stacklevel=2,
        )
    return pd.concat([private, table[~table["private"]]]).set_index("mechanism")
