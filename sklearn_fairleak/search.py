"""Search hyper-parameters under a private fairness constraint, paying for one selection.

Candidates are fitted and scored as in scikit-learn's searches; utility is public, since labels
are. Out-of-fold predictions of all candidates go to the auditor; the number of one comes back.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, ParameterGrid, ParameterSampler, check_cv
from sklearn.utils import indexable
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _check_method_params, _num_samples

from .alignment import aligned
from .auditor import FairnessAuditor
from .choices import PrivateChoice
from .folds import by_candidate, evaluate, tested_rows
from .individuals import RowIds, plain_ids
from .queries import canonical_metric
from .selection import first_within, select_least_biased

__all__ = ["PrivateFairSearchCV"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class PrivateFairSearchCV(GridSearchCV):
    """Search for the candidate of best utility among the fair ones, or for the fairest.

    Every candidate is cross-validated. Its out-of-fold predictions of all individuals are what
    the fairness metric is about, and one private selection looks at all candidates' together.
    Each individual's sensitive feature pays ``epsilon`` once, however many candidates there are.

    Parameters
    ----------
    estimator : estimator object
        Fitted on copies with each candidate's parameters.
    param_grid : dict, list of dicts, or iterable of dicts
        As in :class:`~sklearn.model_selection.GridSearchCV`; a
        :class:`~sklearn.model_selection.ParameterSampler` makes the search a random one.
    scoring : str or callable, default=None
        Utility, higher is better. One metric.
    fairness_metric : str, default="statistical_parity"
        Fairness metric; see :data:`sklearn_fairleak.queries.METRICS`.
    max_gap : float, default=None
        Choose the candidate of largest utility whose gap is at most this. Candidates are tested
        in order of utility until the first passes (sparse vector technique). For a metric with
        the suffix ``_ratio``: the least ratio.
    fairness_weight : float, default=None
        Without ``max_gap``: maximise utility minus this times the gap. None chooses the least
        gap, whatever the utility (a constant prediction has none).
    minority_share : float, default=0.1
        Public guess of the smaller group's share, by which ``fairness_weight`` is applied.
    epsilon : float, default=1.0
        Privacy parameter of the selection, in nats: the whole cost of ``fit``.
    auditor : FairnessAuditor, default=None
        The compliance side, if ``sensitive_features`` are not given to ``fit``. Individuals are
        found by routed ``sample_ids``, by ``id_column``, or by the index of X or y.
    id_column : object, default=None
        Column of X that holds sample ids.
    response_method : {"predict", "predict_proba", "decision_function"}, default="predict"
        Predictions that the fairness metric is about.
    pos_label : object, default=None
        The positive label, where bool, {0, 1} or {-1, 1} does not say it.
    bounds : tuple of two floats, default=None
        Public bounds to which real-valued predictions are clipped.
    ledger : PrivacyLedger, str or path, default=None
        Where the charge is kept if ``sensitive_features`` are given to ``fit``.
    n_jobs, refit, cv, verbose, pre_dispatch, error_score, return_train_score
        As in :class:`~sklearn.model_selection.GridSearchCV`; ``refit`` is a bool, and the folds
        must put no individual into two test sets. They must not depend on the sensitive
        feature: never stratify by it.
    random_state : int, default=None
        A seed of the private selection, for experiments only: it is then not private.

    Attributes
    ----------
    choice_ : PrivateChoice
        The selection and its cost. ``index`` counts the candidates as they were submitted.
    cv_results_ : dict
        As in scikit-learn: utility only. The gaps of candidates are never computed in the open.
    best_index_, best_params_, best_score_, best_estimator_
        Of the chosen candidate; its utility is its mean test score.
    auditor_ : FairnessAuditor
        The compliance side.

    See Also
    --------
    sklearn_fairleak.selection.select_least_biased : The selection alone.

    Notes
    -----
    With ``sensitive_features`` given to ``fit``, every fit has a ledger of its own (unless
    ``ledger`` says otherwise). In nested cross-validation an individual then pays ``epsilon`` in
    each outer training set: give ``auditor``, whose one ledger counts them all.

    References
    ----------
    McKenna & Sheldon, "Permute-and-Flip", NeurIPS 2020, arXiv 2010.12603.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_fairleak import PrivateFairSearchCV
    >>> from sklearn_fairleak.datasets import load_german_credit
    >>> data = load_german_credit()
    >>> X, sex = data.data[["duration", "credit_amount", "age"]], data.sensitive_features
    >>> search = PrivateFairSearchCV(
    ...     LogisticRegression(max_iter=1000), {"C": [0.01, 1.0]}, max_gap=0.5, epsilon=1.0, cv=3
    ... )
    >>> search = search.fit(X, data.target, sensitive_features=sex)
    >>> search.choice_.epsilon, float(search.auditor_.ledger.remaining())
    (1.0, 0.0)
    """

    # Asked for without further ado once routing is on: there is no search without them.
    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sensitive_features": True, "sample_ids": True}

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GridSearchCV._parameter_constraints,
        "param_grid": [dict, list, ParameterGrid, ParameterSampler, Iterable],
        "scoring": [str, callable, None],
        "refit": ["boolean"],
        "fairness_metric": [str],
        "max_gap": [Interval(Real, 0, None, closed="left"), None],
        "fairness_weight": [Interval(Real, 0, None, closed="neither"), None],
        "minority_share": [Interval(Real, 0, 0.5, closed="right")],
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "bounds": [None, tuple, list],
    }

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        scoring: Any = None,
        fairness_metric: str = "statistical_parity",
        max_gap: float | None = None,
        fairness_weight: float | None = None,
        minority_share: float = 0.1,
        epsilon: float = 1.0,
        auditor: Any = None,
        id_column: Any = None,
        response_method: str = "predict",
        pos_label: Any = None,
        bounds: tuple[float, float] | None = None,
        ledger: Any = None,
        n_jobs: int | None = None,
        refit: bool = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: Any = "2*n_jobs",
        error_score: Any = np.nan,
        return_train_score: bool = False,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            estimator=estimator,
            param_grid=param_grid,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.fairness_metric = fairness_metric
        self.max_gap = max_gap
        self.fairness_weight = fairness_weight
        self.minority_share = minority_share
        self.epsilon = epsilon
        self.auditor = auditor
        self.id_column = id_column
        self.response_method = response_method
        self.pos_label = pos_label
        self.bounds = bounds
        self.ledger = ledger
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_ids: Any = None, **params: Any
    ) -> PrivateFairSearchCV:
        """Cross-validate every candidate, choose one privately, and refit it on all data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,), default=None
            True labels.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_features), default=None
            Group of each individual, if the search has no ``auditor``.
        sample_ids : array-like of shape (n_samples,), default=None
            Ids of the rows of X.
        **params
            Passed to ``fit`` of the estimator, the scorer and the splitter.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or an input is malformed; nothing is charged.
        PrivacyBudgetExceeded
            If an individual's budget does not cover the selection.
        RuntimeError
            If no candidate passed the test of ``max_gap``. It has been paid for, and
            ``cv_results_`` can be looked at.
        """
        self._check_terms()
        X, y = indexable(X, y)
        params = _check_method_params(X, params=params)
        self.scorer_ = check_scoring(self.estimator, scoring=self.scoring)
        self.multimetric_ = False
        routed = self._route(params)
        auditor, ids = self._who(X, y, sensitive_features, sample_ids)
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = list(cv.split(X, y, **routed["split"]))
        self.n_splits_ = len(splits)
        tested = tested_rows(splits, _num_samples(X))
        candidates = self._candidates()
        outcomes = self._evaluate_all(X, y, candidates, splits, routed)
        out, predictions = by_candidate(outcomes, len(candidates), splits, tested)
        self.cv_results_ = self._format_results(candidates, self.n_splits_, out)
        self.auditor_ = auditor
        utility = np.asarray(self.cv_results_["mean_test_score"], dtype=np.float64)
        order = self._order(utility, predictions)
        self.choice_ = self._choose(
            np.stack([np.asarray(predictions[k]) for k in order]), y, ids, tested, utility[order]
        )
        if self.choice_.index is None:
            raise RuntimeError(
                f"None of the {len(order)} candidates passed the private test of max_gap={self.max_gap:g}, which "
                f"cost epsilon={self.epsilon:g}. Allow a larger gap, or add candidates (cv_results_ has their utility)."
            )
        self.best_index_ = int(order[self.choice_.index])
        self.best_params_ = candidates[self.best_index_]
        self.best_score_ = float(utility[self.best_index_])
        if self.refit:
            self._refit(X, y, routed["fit"])
        return self

    def get_metadata_routing(self) -> Any:
        """Return how metadata is routed: to the search itself, estimator, scorer and splitter.

        Returns
        -------
        MetadataRouter
        """
        return super().get_metadata_routing().add_self_request(self)

    def _check_terms(self) -> None:
        """Check the parameters that scikit-learn's constraints cannot express."""
        self._validate_params()
        canonical_metric(self.fairness_metric)
        if self.max_gap is not None and self.fairness_weight is not None:
            raise ValueError("Give max_gap or fairness_weight, not both.")

    def _candidates(self) -> list[dict[str, Any]]:
        """Return the candidates' parameters."""
        grid = self.param_grid
        is_grid = isinstance(grid, Mapping) or (
            isinstance(grid, Sequence)
            and any(isinstance(v, Sequence | np.ndarray) for part in grid for v in part.values())
        )
        candidates = list(ParameterGrid(grid)) if is_grid else [dict(part) for part in grid]
        if not candidates:
            raise ValueError("param_grid has no candidates.")
        return candidates

    def _route(self, params: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Split the parameters of ``fit`` among estimator, scorer and splitter."""
        routed = self._get_routed_params_for_fit(params)
        return {
            "fit": routed.estimator.fit,
            "score": routed.scorer.score,
            "split": routed.splitter.split,
        }

    def _who(self, X: Any, y: Any, sensitive_features: Any, sample_ids: Any) -> tuple[Any, RowIds | None]:
        """Find the auditor and the ids of the rows, or make an auditor for this fit."""
        if (self.auditor is None) == (sensitive_features is None):
            raise ValueError(
                "Give the group of each individual to fit(..., sensitive_features=...), or an auditor= that holds "
                "them: one of the two."
            )
        if self.auditor is not None:
            if self.ledger is not None:
                raise ValueError("ledger= belongs to the auditor; give one of the two.")
            return self.auditor, self.auditor.find_rows(X, y, sample_ids, self.id_column)
        ids = sample_ids
        if ids is None and self.id_column is not None:
            ids = X[self.id_column]
        for holder in (X, y):
            index = getattr(holder, "index", None)
            if ids is None and index is not None and not callable(index):
                ids = index
        auditor = FairnessAuditor(
            aligned(sensitive_features, ids), ids=ids, epsilon=self.epsilon, ledger=self.ledger
        )
        if auditor.n_individuals != _num_samples(X):
            raise ValueError(
                f"sensitive_features must have one entry a row of X ({_num_samples(X)}), got {auditor.n_individuals}."
            )
        rows = np.arange(auditor.n_individuals) if ids is None else plain_ids(ids)
        return auditor, RowIds(rows, explicit=True)

    def _evaluate_all(
        self,
        X: Any,
        y: Any,
        candidates: list[dict[str, Any]],
        splits: list[tuple[IntArray, IntArray]],
        routed: dict[str, dict[str, Any]],
    ) -> list[dict[str, Any]]:
        """Fit, score and predict every candidate on every fold."""
        base = clone(self.estimator)
        jobs = Parallel(n_jobs=self.n_jobs, pre_dispatch=self.pre_dispatch, verbose=max(0, self.verbose - 1))
        outcomes: list[dict[str, Any]] = jobs(
            delayed(evaluate)(
                clone(base),
                X,
                y,
                candidate,
                split,
                self.scorer_,
                routed,
                (self.response_method, self.pos_label),
                self.error_score,
                self.return_train_score,
            )
            for candidate in candidates
            for split in splits
        )
        failures = [outcome["error"] for outcome in outcomes if outcome["error"] is not None]
        if len(failures) == len(outcomes):
            raise ValueError(f"All {len(failures)} fits failed. The first error was: {failures[0]}")
        if failures:
            warnings.warn(
                f"{len(failures)} of {len(outcomes)} fits failed; their candidates are not chosen. The first "
                f"error was: {failures[0]}",
                FitFailedWarning,
                stacklevel=3,
            )
        return outcomes

    def _order(self, utility: FloatArray, predictions: list[Any]) -> IntArray:
        """Return the candidates to choose from, those of larger utility first."""
        usable = [k for k, part in enumerate(predictions) if part is not None and np.isfinite(utility[k])]
        if not usable:
            raise ValueError("No candidate could be fitted, scored and asked for predictions on every fold.")
        return np.asarray(sorted(usable, key=lambda k: -utility[k]), dtype=np.int64)

    def _choose(
        self, matrix: npt.NDArray[Any], y: Any, ids: RowIds | None, tested: IntArray, utility: FloatArray
    ) -> PrivateChoice:
        """Make the one private selection."""
        labels = None if y is None else np.asarray(y)[tested]
        if ids is not None and len(tested) < len(ids):
            marks = None if ids.fingerprints is None else ids.fingerprints[tested]
            ids = RowIds(ids.ids[tested], marks, explicit=ids.explicit)
        terms = {
            "auditor": self.auditor_,
            "metric": self.fairness_metric,
            "epsilon": self.epsilon,
            "pos_label": self.pos_label,
            "bounds": None if self.bounds is None else (float(self.bounds[0]), float(self.bounds[1])),
            "random_state": self.random_state,
            "sample_ids": ids,
        }
        if self.max_gap is not None:
            return first_within(matrix, self.max_gap, labels, **terms)
        penalties = None if self.fairness_weight is None else -utility / self.fairness_weight
        return select_least_biased(
            matrix, labels, penalties=penalties, minority_share=self.minority_share, **terms
        )

    def _refit(self, X: Any, y: Any, fit_params: dict[str, Any]) -> None:
        """Fit the chosen candidate on all data."""
        chosen = clone(self.best_params_, safe=False)
        self.best_estimator_ = clone(self.estimator).set_params(**chosen)
        start = time.time()
        arguments = (X,) if y is None else (X, y)
        self.best_estimator_.fit(*arguments, **fit_params)
        self.refit_time_ = time.time() - start
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_
