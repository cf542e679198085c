"""Choose and test models privately, at the price of one answer for all of them.

Predictions come in; the number of a model, or pass and fail, goes out. Choosing among many
models needs far less noise than answering about each: only the choice is released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from .accounting import split
from .accounts import AccountSettings, check_budget
from .alignment import align_labels, aligned, rows_of
from .auditor import FairnessAuditor
from .choices import FirstWithin, LeastGap, PrivateChoice, WithinTest
from .individuals import RowIds, plain_ids
from .labels import as_column
from .mechanisms import RandomizedResponse
from .queries import canonical_metric

if TYPE_CHECKING:
    from .remote import RemoteAuditor

__all__ = ["first_within", "passes_threshold", "select_least_biased"]


def select_least_biased(
    Y_pred: Any,
    y_true: Any = None,
    *,
    auditor: FairnessAuditor | RemoteAuditor | None = None,
    sensitive_features: Any = None,
    metric: str = "statistical_parity",
    epsilon: float | None = None,
    penalties: Any = None,
    minority_share: float = 0.1,
    sample_ids: Any = None,
    sample_weight: Any = None,
    ledger: Any = None,
    **settings: Any,
) -> PrivateChoice:
    r"""Choose the model of least absolute gap.

    Parameters
    ----------
    Y_pred : array-like of shape (n_models, n_samples)
        Predictions, one row a model; a DataFrame has one column a model.
    y_true : array-like of shape (n_samples,), default=None
        True labels, for metrics that need them.
    auditor : FairnessAuditor, default=None
        The compliance side, or a connection to it (:func:`.connect_auditor`). Otherwise give
        ``sensitive_features``.
    sensitive_features : array-like of shape (n_samples,), default=None
        Group of each individual, if there is no ``auditor``.
    metric : str, default="statistical_parity"
        Fairness metric; the suffix ``_ratio`` looks for the largest ratio of group means.
    epsilon : float, default=None
        Privacy parameter of the choice, in nats; all of the auditor's budget by default, 1
        without an auditor.
    penalties : array-like of shape (n_models,), default=None
        Public penalties, in units of the gap: the sum of gap and penalty is minimised.
    minority_share : float, default=0.1
        Public guess of the smaller group's share, by which penalties are weighed.
    sample_ids : array-like of shape (n_samples,), default=None
        Individuals that the predictions are of; all of them by default.
    sample_weight : array-like of shape (n_samples,), default=None
        Public weights.
    ledger : PrivacyLedger, str or path, default=None
        Where the charge is kept, if there is no ``auditor``.
    **settings
        ``pos_label``, ``bounds``, ``loss``, ``random_state``; see
        :class:`~sklearn_fairleak.accounts.AccountSettings`.

    Returns
    -------
    PrivateChoice
        ``int(choice)`` is the number of the chosen model.

    Raises
    ------
    ValueError
        If an input is malformed; nothing is charged.
    PrivacyBudgetExceeded
        If the budget of an individual is used up.

    Notes
    -----
    With two groups and a metric of one subset (all but equalised odds, predictive parity and
    ratios) the gap of a model is a fixed multiple of :math:`|\lambda_i|`, the group's excess over
    the public mean. Permute-and-flip on it needs the noise of one individual, however many models
    there are. Otherwise all models are answered in one joint release of the same cost, and the
    least answer is chosen.

    References
    ----------
    McKenna & Sheldon, "Permute-and-Flip: A New Mechanism for Differentially Private
    Selection", NeurIPS 2020, arXiv 2010.12603.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.selection import select_least_biased
    >>> sex = np.repeat(["f", "m"], 500)
    >>> biased, fair = (sex == "m").astype(int), np.tile([0, 1], 500)
    >>> int(select_least_biased([biased, fair], sensitive_features=sex, epsilon=1.0))
    1
    """
    models, rows = _models(Y_pred, sample_ids)
    auditor, y_true = _who(auditor, sensitive_features, rows, y_true, epsilon, ledger)
    terms = _terms(auditor, metric, epsilon, settings)
    public = None if penalties is None else _penalties(penalties, len(models))
    if not 0.0 < minority_share <= 0.5:
        raise ValueError(f"minority_share must be in (0, 0.5], got {minority_share!r}.")
    choice = LeastGap(_cost(terms), public, float(minority_share), ratio=canonical_metric(metric)[1])
    return auditor.choose(terms, choice, models, y_true, rows=rows, sample_weight=sample_weight)


def passes_threshold(
    y_pred: Any,
    max_gap: float,
    y_true: Any = None,
    *,
    auditor: FairnessAuditor | RemoteAuditor | None = None,
    sensitive_features: Any = None,
    metric: str = "statistical_parity",
    epsilon: float | None = None,
    sample_ids: Any = None,
    sample_weight: Any = None,
    ledger: Any = None,
    **settings: Any,
) -> PrivateChoice:
    r"""Say whether a model's absolute gap is at most ``max_gap``.

    Parameters
    ----------
    y_pred : array-like of shape (n_samples,) or (n_models, n_samples)
        Predictions; several models share epsilon.
    max_gap : float
        Limit of the absolute gap, in [0, 1] (in the units of ``bounds``, if given). For a
        metric with the suffix ``_ratio``: the least ratio.
    y_true, auditor, sensitive_features, metric, epsilon, sample_ids, sample_weight, ledger, **settings
        As in :func:`select_least_biased`.

    Returns
    -------
    PrivateChoice
        ``bool(choice)`` is True if every model passed; ``passed`` has one entry a model.

    Notes
    -----
    The test is of :math:`|\lambda| - t W_1 W_0/W \le 0` in whole numbers, which one individual
    moves by at most :math:`\max_j |u_j - c| + t(n-1)/n` (without weights). Its answer is wrong with
    probability :math:`e^{-\epsilon|x|}/2`, x being the distance from 0 in units of that bound:
    about gap minus limit, times :math:`N_0 N_1/n`. Equalised odds pass if both rates do.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.selection import passes_threshold
    >>> sex, y_pred = np.repeat(["f", "m"], 500), np.tile([0, 1], 500)
    >>> bool(passes_threshold(y_pred, 0.2, sensitive_features=sex, epsilon=1.0))
    True
    """
    models, rows = _models(y_pred, sample_ids, several=False)
    auditor, y_true = _who(auditor, sensitive_features, rows, y_true, epsilon, ledger)
    terms = _terms(auditor, metric, epsilon, settings)
    ratio = canonical_metric(metric)[1]
    choice = WithinTest(_cost(terms), _limit(max_gap, terms, ratio), ratio)
    return auditor.choose(terms, choice, models, y_true, rows=rows, sample_weight=sample_weight)


def first_within(
    Y_pred: Any,
    max_gap: float,
    y_true: Any = None,
    *,
    auditor: FairnessAuditor | RemoteAuditor | None = None,
    sensitive_features: Any = None,
    metric: str = "statistical_parity",
    epsilon: float | None = None,
    sample_ids: Any = None,
    sample_weight: Any = None,
    ledger: Any = None,
    **settings: Any,
) -> PrivateChoice:
    """Find the first model whose absolute gap is at most ``max_gap``; failures are free.

    Parameters
    ----------
    Y_pred : array-like of shape (n_models, n_samples) or iterator of arrays of shape (n_samples,)
        Predictions in order of preference. An iterator is read until the first pass, so that
        later models need not exist; it needs an ``auditor``.
    max_gap : float
        Limit, as in :func:`passes_threshold`.
    y_true, auditor, sensitive_features, metric, epsilon, sample_ids, sample_weight, ledger, **settings
        As in :func:`select_least_biased`.

    Returns
    -------
    PrivateChoice
        ``index`` is the number of the first model that passed, None if none did.

    Notes
    -----
    The sparse vector technique: the whole search is charged once, with its first model. The same
    question about a finite list is replayed free of charge; an iterator is a new question each
    time, since what it will yield is not known beforehand. With more than two groups, a missing
    status or a ratio, models are compared by noisy gaps of one joint release (of a stream: by one
    private copy of the groups).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.selection import first_within
    >>> sex = np.repeat(["f", "m"], 5000)
    >>> biased, fair = (sex == "m").astype(int), np.tile([0, 1], 5000)
    >>> first_within([biased, fair], 0.2, sensitive_features=sex, epsilon=1.0).index
    1
    """
    ratio = canonical_metric(metric)[1]
    if isinstance(Y_pred, Iterator):
        if auditor is None:
            raise ValueError(
                "An iterator of predictions needs auditor=, which keeps the state of the search."
            )
        terms = _terms(auditor, metric, epsilon, settings)
        choice = FirstWithin(_cost(terms), _limit(max_gap, terms, ratio), ratio)
        return _first_of_stream(Y_pred, auditor, terms, choice, sample_ids, y_true, sample_weight)
    models, rows = _models(Y_pred, sample_ids)
    auditor, y_true = _who(auditor, sensitive_features, rows, y_true, epsilon, ledger)
    terms = _terms(auditor, metric, epsilon, settings)
    choice = FirstWithin(_cost(terms), _limit(max_gap, terms, ratio), ratio)
    return auditor.choose(terms, choice, models, y_true, rows=rows, sample_weight=sample_weight)


def _first_of_stream(
    stream: Iterator[Any],
    auditor: FairnessAuditor | RemoteAuditor,
    terms: AccountSettings,
    choice: FirstWithin,
    sample_ids: Any,
    y_true: Any,
    sample_weight: Any,
) -> PrivateChoice:
    """Test what a stream yields until the first pass."""
    first = next(stream, None)
    if first is None:
        raise ValueError("The stream of predictions is empty.")
    rows = rows_of(first, sample_ids)
    labels = align_labels(y_true, rows, auditor)
    if choice.ratio or not auditor.is_pair:
        test = _copy_test(auditor, terms, choice, rows, labels, sample_weight)
    else:
        test = auditor.watch(terms, choice, rows=rows, y_true=labels, sample_weight=sample_weight)
    number, tested = 0, test(first)
    while not tested and (y_pred := next(stream, None)) is not None:
        own = rows_of(y_pred, sample_ids)
        if own is not None and (rows is None or not np.array_equal(own.ids, rows.ids)):
            raise ValueError("All predictions of a stream must be of the same individuals in the same order.")
        number, tested = number + 1, test(y_pred)
    return replace(tested, index=number if tested else None, passed=None, n_models=number + 1)


def _copy_test(
    auditor: FairnessAuditor | RemoteAuditor,
    terms: AccountSettings,
    choice: FirstWithin,
    rows: RowIds | None,
    y_true: Any,
    sample_weight: Any,
) -> Callable[[Any], PrivateChoice]:
    """Test models on a private copy of the groups, which pays for all of them at once."""
    account = auditor.open_account(replace(terms, mechanism=RandomizedResponse()))

    def test(y_pred: Any) -> PrivateChoice:
        answers = auditor.ask(account, y_pred, y_true, rows=rows, sample_weight=sample_weight)
        value = float(answers.values[0])
        within = value >= choice.max_gap if choice.ratio else value <= choice.max_gap
        return PrivateChoice(
            index=None,
            passed=(bool(within),),
            metric=terms.metric,
            mechanism=answers.mechanism,
            epsilon=answers.epsilon,
            n_models=1,
            n_samples=answers.n_samples,
            is_private=answers.is_private,
        )

    return test


def _models(Y_pred: Any, sample_ids: Any, *, several: bool = True) -> tuple[Any, RowIds | None]:
    """Return predictions with one row a model, and the ids of the individuals they are of."""
    if hasattr(Y_pred, "columns"):
        index = getattr(Y_pred, "index", None)
        if sample_ids is None and index is not None and not callable(index):
            sample_ids = index
        Y_pred = np.asarray(Y_pred.to_numpy()).T
    elif isinstance(Y_pred, list | tuple) and Y_pred and hasattr(Y_pred[0], "index"):
        first = rows_of(Y_pred[0], sample_ids)
        same = [rows_of(column, sample_ids) for column in Y_pred]
        if first is not None and all(own is not None and np.array_equal(own.ids, first.ids) for own in same):
            sample_ids = first.ids
        elif first is not None:
            raise ValueError("All models' predictions must have the same index.")
        Y_pred = [as_column(column, "Y_pred") for column in Y_pred]
    elif not several and hasattr(Y_pred, "index"):
        rows = rows_of(Y_pred, sample_ids)
        return as_column(Y_pred, "y_pred")[None, :], rows
    lengths = {len(row) for row in Y_pred} if isinstance(Y_pred, list | tuple) and several else set()
    if len(lengths) > 1:
        raise ValueError(f"All models need as many predictions, got lengths {sorted(lengths)}.")
    matrix = np.asarray(Y_pred)
    if matrix.ndim == 1 and not several:
        matrix = matrix[None, :]
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"Predictions must have shape (n_models, n_samples), got {matrix.shape}.")
    if sample_ids is None or isinstance(sample_ids, RowIds):
        return matrix, sample_ids
    return matrix, RowIds(plain_ids(sample_ids), explicit=True)


def _who(
    auditor: FairnessAuditor | RemoteAuditor | None,
    sensitive_features: Any,
    rows: RowIds | None,
    y_true: Any,
    epsilon: float | None,
    ledger: Any,
) -> tuple[FairnessAuditor | RemoteAuditor, Any]:
    """Find the auditor or make one for this choice, and align the labels."""
    if (auditor is None) == (sensitive_features is None):
        raise ValueError("Give either auditor= or sensitive_features=, the group of each individual.")
    if auditor is None:
        ids = None if rows is None else rows.ids
        auditor = FairnessAuditor(
            aligned(sensitive_features, ids),
            ids=ids,
            epsilon=1.0 if epsilon is None else epsilon,
            ledger=ledger,
        )
    elif ledger is not None:
        raise ValueError("ledger= belongs to the auditor; give one of the two.")
    return auditor, align_labels(y_true, rows, auditor)


def _terms(
    auditor: FairnessAuditor | RemoteAuditor, metric: str, epsilon: float | None, settings: dict[str, Any]
) -> AccountSettings:
    """Put the public terms of a choice together."""
    unknown = sorted(set(settings) - {"pos_label", "bounds", "loss", "random_state"})
    if unknown:
        raise TypeError(
            f"unexpected argument(s) {unknown}; settings are pos_label, bounds, loss, random_state."
        )
    if epsilon is None:
        epsilon = auditor.report()["epsilon"]
    return AccountSettings(metric=metric, epsilon=epsilon, **settings)


def _cost(terms: AccountSettings) -> Fraction:
    """Return epsilon rounded down to the ledger's grid, so that ten tenths fit a whole."""
    check_budget(terms.epsilon, 0.0)
    cost = split(terms.epsilon, 0, 1)[0]
    if not cost > 0:
        raise ValueError(f"epsilon={terms.epsilon!r} is too small to be counted.")
    return cost


def _limit(max_gap: float, terms: AccountSettings, ratio: bool) -> Fraction:
    """Return the limit exactly, if it is a possible one."""
    top = 1.0
    if terms.bounds is not None and not ratio:
        top = float(terms.bounds[1]) - float(terms.bounds[0])
        top = top * top if terms.loss == "squared" else top
    number = isinstance(max_gap, int | float | np.number | Fraction) and not isinstance(max_gap, bool)
    if not number or not 0 <= max_gap <= top:
        raise ValueError(f"max_gap must be a number in [0, {top:g}], got {max_gap!r}.")
    return Fraction(max_gap)


def _penalties(penalties: Any, n_models: int) -> tuple[float, ...]:
    """Return one finite public penalty a model."""
    values = np.asarray(penalties, dtype=np.float64)
    if values.shape != (n_models,) or not np.isfinite(values).all():
        raise ValueError(f"penalties must hold one finite number for each of the {n_models} models.")
    return tuple(values.tolist())
