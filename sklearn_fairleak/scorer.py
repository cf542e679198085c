"""The model developer's side: a scikit-learn scorer that can only ask."""

from __future__ import annotations

import os
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import Interval, StrOptions, validate_parameter_constraints

from .accounts import AccountSettings, check_budget
from .alignment import align_labels, aligned, response_of, rows_of
from .answers import PrivateAnswer, PrivateAnswers
from .auditor import FairnessAuditor
from .exceptions import PrivacyBudgetExceeded
from .individuals import RowIds, plain_ids
from .labels import as_column
from .ledger import PrivacyLedger
from .mechanisms import MECHANISMS, Mechanism, get_mechanism
from .preflight import AnswerCount, RefitBy, count_answers
from .queries import canonical_metric

__all__ = ["PrivateFairnessScorer"]


class PrivateFairnessScorer(BaseEstimator):
    """Score estimators by a fairness metric, answered with differential privacy.

    Use it as ``scoring=`` in any scikit-learn search or cross-validation. Scores are
    "higher is better": minus the absolute gap, or the ratio.

    Parameters
    ----------
    metric : str, default="statistical_parity"
        Fairness metric; see :data:`sklearn_fairleak.queries.METRICS`. The suffix ``_ratio``
        asks for the smallest over the largest group value.
    auditor : FairnessAuditor, default=None
        The compliance side. None: ``fit`` makes one in this process.
    mechanism : str or Mechanism, default="auto"
        How answers are protected; see :data:`sklearn_fairleak.mechanisms.MECHANISMS`.
    epsilon : float, default=1.0
        Privacy parameter in nats: the whole guarantee to each individual's sensitive feature
        for ``n_queries`` answers that include the individual.
    delta : float, default=0.0
        Probability at which the guarantee may fail.
    n_queries : int, default=1
        Number of answers that may include one individual. Disjoint test folds of a
        cross-validation cost each individual one answer a candidate.
    absolute : bool, default=True
        Whether answers are absolute gaps. Scores always are.
    advantaged : object, default=None
        Label of the advantaged group, for signed gaps.
    response_method : {"predict", "predict_proba", "decision_function"} or list, default="predict"
        What is asked of the estimator.
    pos_label : object, default=None
        The positive label, where bool, {0, 1} or {-1, 1} does not say it.
    bounds : tuple of two floats, default=None
        Public bounds to which real-valued predictions are clipped.
    id_column : object, default=None
        Column of X that holds sample ids.
    ledger : PrivacyLedger, str or path, default=None
        Where charges are kept when ``fit`` makes the auditor.
    random_state : int, default=None
        A seed, for experiments only: answers are then not private.

    Attributes
    ----------
    auditor_ : FairnessAuditor
        The compliance side, whose repr shows public facts only.
    n_individuals_ : int
        Number of fitted individuals.

    See Also
    --------
    FairnessAuditor : The compliance side as an object of its own.

    References
    ----------
    Hamman, Chen & Dutta, "Can Querying for Bias Leak Protected Attributes? Achieving
    Privacy With Smooth Sensitivity", FAccT 2023, arXiv 2211.02139.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn_fairleak import PrivateFairnessScorer
    >>> from sklearn_fairleak.datasets import load_german_credit
    >>> X, y = load_german_credit(return_X_y=True)
    >>> X = X[["duration", "credit_amount", "age"]]
    >>> sex = load_german_credit().sensitive_features
    >>> scorer = PrivateFairnessScorer(epsilon=1.0, n_queries=2).fit(X, y, sensitive_features=sex)
    >>> search = GridSearchCV(
    ...     LogisticRegression(max_iter=1000), {"C": [0.01, 1.0]}, scoring=scorer, cv=3, refit=False
    ... ).fit(X, y)
    >>> search.cv_results_["mean_test_score"].shape
    (2,)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "mechanism": [StrOptions(set(MECHANISMS)), Mechanism],
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "delta": [Interval(Real, 0, 1, closed="left")],
        "n_queries": [Interval(Integral, 1, None, closed="left")],
        "absolute": ["boolean"],
        "response_method": [StrOptions({"predict", "predict_proba", "decision_function"}), list, tuple],
        "bounds": [None, tuple, list],
        "ledger": [None, PrivacyLedger, str, os.PathLike],
        "random_state": [None, Integral],
    }

    def __init__(
        self,
        metric: str = "statistical_parity",
        *,
        auditor: Any = None,
        mechanism: str | Mechanism = "auto",
        epsilon: float = 1.0,
        delta: float = 0.0,
        n_queries: int = 1,
        absolute: bool = True,
        advantaged: Any = None,
        response_method: Any = "predict",
        pos_label: Any = None,
        bounds: tuple[float, float] | None = None,
        id_column: Any = None,
        ledger: Any = None,
        random_state: int | None = None,
    ) -> None:
        self.metric = metric
        self.auditor = auditor
        self.mechanism = mechanism
        self.epsilon = epsilon
        self.delta = delta
        self.n_queries = n_queries
        self.absolute = absolute
        self.advantaged = advantaged
        self.response_method = response_method
        self.pos_label = pos_label
        self.bounds = bounds
        self.id_column = id_column
        self.ledger = ledger
        self.random_state = random_state

    # Routed sample ids are asked for without further ado: they are how rows are known.
    __metadata_request__score: ClassVar[dict[str, Any]] = {"sample_ids": True}

    def fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> PrivateFairnessScorer:
        """Hand the sensitive features to an auditor in this process, and fix the budget.

        Parameters
        ----------
        X : array-like of shape (n_individuals, n_features)
            Public features; their index gives the ids.
        y : array-like of shape (n_individuals,), default=None
            True labels; their index gives the ids where X has none.
        sensitive_features : array-like of shape (n_individuals,) or (n_individuals, n_features)
            Group of each individual, in the order of X.
        sample_weight : None
            Not used; weights belong to a question.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or an input is malformed.
        """
        self._validate()
        if sensitive_features is None:
            raise ValueError(
                "fit needs sensitive_features=, the group of each individual. Without them, give auditor=, "
                "whose scorer() needs no fit."
            )
        if self.auditor is not None:
            raise ValueError(
                "auditor= already holds the sensitive features: use auditor.scorer(...), no fit."
            )
        ids = None
        if self.id_column is not None:
            ids = X[self.id_column]
        else:
            for holder in (X, y):
                index = getattr(holder, "index", None)
                if index is not None and not callable(index):
                    ids = index
                    break
        self.auditor_ = FairnessAuditor(
            aligned(sensitive_features, ids),
            ids=ids,
            X=X,
            advantaged=self.advantaged,
            epsilon=self.epsilon,
            delta=self.delta,
            ledger=self.ledger,
        )
        return self._open()

    def score(
        self,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        sample_ids: Any = None,
        sample_weight: Any = None,
        sensitive_features: Any = None,
    ) -> float:
        """Score an estimator on some of the individuals.

        Parameters
        ----------
        estimator : object
            Fitted; asked for ``response_method``.
        X : array-like of shape (n_samples, n_features)
            Rows of individuals; their ids are routed, in a column, or the index.
        y : array-like of shape (n_samples,), default=None
            True labels.
        sample_ids : array-like of shape (n_samples,), default=None
            Ids of the rows, routed as metadata.
        sample_weight : array-like of shape (n_samples,), default=None
            Public weights, used only if routed on purpose.
        sensitive_features : array-like of shape (n_samples,), default=None
            Groups of the rows, routed as metadata: this puts attributes into the developer's
            process and needs ``advantaged``.

        Returns
        -------
        float
            Minus the absolute gap, or the ratio: higher is better.

        Raises
        ------
        TypeError
            If there are no sample ids; positions are never guessed.
        PrivacyBudgetExceeded
            If the budget of an individual is used up. Nothing is computed or charged.
        """
        if sensitive_features is not None:
            auditor = self._routed()
            entries = auditor.entries(X, y, sample_ids, self.id_column)
            predictions = response_of(estimator, X, self.response_method, self.pos_label)
            answers = auditor.ask_routed(
                self._account, predictions, y, sensitive_features, entries, sample_weight=sample_weight
            )
        else:
            self._check_open()
            self._refuse_sensitive_target(y)
            rows = self.auditor_.find_rows(X, y, sample_ids, self.id_column)
            predictions = response_of(estimator, X, self.response_method, self._terms.pos_label)
            answers = self.auditor_.ask(
                self._account, predictions, y, rows=rows, sample_weight=sample_weight, scoring=True
            )
        value = float(answers.values[0])
        return value if answers.ratio else -abs(value)

    def __call__(self, estimator: Any, X: Any, y: Any = None, **metadata: Any) -> float:
        """Score an estimator; what ``scoring=`` calls. See :meth:`score`."""
        return self.score(estimator, X, y, **metadata)

    def answer(
        self, y_pred: Any, y_true: Any = None, *, sample_ids: Any = None, sample_weight: Any = None
    ) -> PrivateAnswer:
        """Answer about one model's predictions.

        Parameters
        ----------
        y_pred : array-like of shape (n_samples,)
            Predictions of all fitted individuals in fitted order, unless ``sample_ids`` or
            the index of a pandas Series say which.
        y_true : array-like of shape (n_samples,), default=None
            True labels, in the order of ``y_pred`` or a Series with the same ids.
        sample_ids : array-like of shape (n_samples,), default=None
            Individuals that the predictions are of.
        sample_weight : array-like of shape (n_samples,), default=None
            Public weights.

        Returns
        -------
        PrivateAnswer

        Raises
        ------
        ValueError
            If predictions are malformed; nothing is charged.
        PrivacyBudgetExceeded
            If the budget of an individual is used up.

        Examples
        --------
        >>> import pandas as pd
        >>> from sklearn_fairleak import PrivateFairnessScorer
        >>> X = pd.DataFrame({"x": range(100)}, index=[f"p{i}" for i in range(100)])
        >>> scorer = PrivateFairnessScorer().fit(X, sensitive_features=["f", "m"] * 50)
        >>> low, high = scorer.answer([0, 1] * 50).interval(0.95)
        >>> low < high
        True
        """
        self._check_open()
        column = as_column(y_pred, "y_pred")
        rows = rows_of(y_pred, sample_ids)
        y_true = align_labels(y_true, rows, self.auditor_)
        answers: PrivateAnswers = self.auditor_.ask(
            self._account, column, y_true, rows=rows, sample_weight=sample_weight
        )
        return answers[0]

    def answer_many(
        self, Y_pred: Any, y_true: Any = None, *, sample_ids: Any = None, sample_weight: Any = None
    ) -> PrivateAnswers:
        """Answer about many models in one joint release, at the cost of one answer.

        Parameters
        ----------
        Y_pred : array-like of shape (n_models, n_samples)
            Predictions, one row a model; a DataFrame with one column a model is taken too.
        y_true, sample_ids, sample_weight
            As in :meth:`answer`.

        Returns
        -------
        PrivateAnswers
        """
        self._check_open()
        if hasattr(Y_pred, "columns"):
            if sample_ids is None and hasattr(Y_pred, "index"):
                sample_ids = Y_pred.index
            Y_pred = np.asarray(Y_pred.to_numpy()).T
        matrix = np.asarray(Y_pred)
        if matrix.ndim != 2:
            raise ValueError(
                f"answer_many needs predictions of shape (n_models, n_samples), got {matrix.ndim} dimension(s). "
                "Use answer for one model."
            )
        rows = None if sample_ids is None else RowIds(plain_ids(sample_ids), explicit=True)
        y_true = align_labels(y_true, rows, self.auditor_)
        answers: PrivateAnswers = self.auditor_.ask(
            self._account, matrix, y_true, rows=rows, sample_weight=sample_weight
        )
        return answers

    def plan(
        self, n_queries: int | None = None, *, n_samples: int | None = None, minority_share: float = 0.1
    ) -> Any:
        """Compare the mechanisms' expected errors, from public inputs and free of charge.

        Parameters
        ----------
        n_queries : int, default=None
            Number of answers that share the budget; the scorer's own by default.
        n_samples : int, default=None
            Size of the evaluation set; the fitted individuals by default.
        minority_share : float, default=0.1
            Guessed share of the smaller group.

        Returns
        -------
        DataFrame
            Indexed by mechanism: expected absolute error of a statistical parity gap.

        Examples
        --------
        >>> from sklearn_fairleak import PrivateFairnessScorer
        >>> plan = PrivateFairnessScorer(epsilon=1.0).plan(n_queries=10, n_samples=10_000)
        >>> bool(plan.loc["noisy_sums", "expected_error"] < plan.loc["laplace", "expected_error"])
        True
        """
        from .planning import plan

        if n_samples is None:
            self._check_open()
            n_samples = self.auditor_.n_individuals
        return plan(
            n_samples,
            n_queries=self.n_queries if n_queries is None else n_queries,
            epsilon=self.epsilon,
            delta=self.delta,
            minority_share=minority_share,
        )

    def count_answers(
        self, search: Any, X: Any = None, y: Any = None, *, groups: Any = None, n_samples: int | None = None
    ) -> AnswerCount:
        """Count the answers that a search will ask of this scorer.

        See :func:`sklearn_fairleak.preflight.count_answers`.

        Returns
        -------
        AnswerCount
            ``total`` and ``per_individual``.
        """
        return count_answers(search, X, y, groups=groups, n_samples=n_samples, scorer=self)

    def preflight(self, search: Any, X: Any, y: Any = None, *, groups: Any = None) -> AnswerCount:
        """Check before any fit that the budget covers a search.

        Parameters
        ----------
        search : estimator, splitter or int
            See :func:`sklearn_fairleak.preflight.count_answers`.
        X, y, groups : array-like
            What the search will be fitted on.

        Returns
        -------
        AnswerCount

        Raises
        ------
        PrivacyBudgetExceeded
            If a person would be asked about more often than ``n_queries`` allows. Nothing
            is charged.
        """
        self._check_open()
        count = count_answers(search, X, y, groups=groups, scorer=self)
        left = self.auditor_.answers_left(self._account)
        if left is not None and count.per_individual > left:
            raise PrivacyBudgetExceeded(
                f"The search asks up to {count.per_individual} answers about one person, and {left} of the "
                f"n_queries={self._terms.n_queries} agreed are left. Make a scorer with "
                f"n_queries={count.per_individual} (each answer gets noisier), try fewer candidates, or select "
                "privately with PrivateFairSearchCV."
            )
        return count

    def refit_by(self, name: str = "score") -> RefitBy:
        """Return a ``refit=`` callable that refuses to choose among missing scores.

        Parameters
        ----------
        name : str, default="score"
            Which mean test score decides: ``"score"``, or a key of ``scoring``.

        Returns
        -------
        callable
            ``refit(cv_results)``: the best index; raises PrivacyBudgetExceeded if a
            candidate's score is missing.

        Examples
        --------
        >>> from sklearn_fairleak import PrivateFairnessScorer
        >>> refit = PrivateFairnessScorer().refit_by()
        >>> refit({"mean_test_score": [-0.2, -0.1], "split0_test_score": [-0.2, -0.1]})
        1
        """
        return RefitBy(name)

    def as_metric(self) -> Any:
        """Return ``f(y_true, y_pred)`` for ``make_scorer`` and threshold tuning.

        ``y_true`` must keep its index, which tells the individuals. The returned value is
        the private gap or ratio (not negated: give ``greater_is_better`` to ``make_scorer``).

        Returns
        -------
        callable
        """
        self._check_open()
        from .private_metrics import ScorerMetric

        return ScorerMetric(self)

    @property
    def _score_func(self) -> Any:
        # What TunedThresholdClassifierCV looks for, which builds its own scorer from a metric.
        raise AttributeError(
            "A tool that scores many thresholds of one model takes a metric function: "
            "scoring=make_scorer(scorer.as_metric(), greater_is_better=False)."
        )

    @property
    def refused_(self) -> int:
        """Number of questions that were refused because a budget was used up."""
        self._check_open()
        return int(self.auditor_.refused(self._account))

    @property
    def n_individuals_(self) -> int:
        """Number of fitted individuals."""
        self._check_open()
        return int(self.auditor_.n_individuals)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "auditor_")

    def __sklearn_clone__(self) -> PrivateFairnessScorer:
        # A clone that forgot what was spent would protect nobody.
        if hasattr(self, "auditor_") or self._asks_for_routing():
            return self
        return type(self)(**self.get_params(deep=False))

    def __copy__(self) -> PrivateFairnessScorer:
        return self.__sklearn_clone__()

    def __deepcopy__(self, memo: Any) -> PrivateFairnessScorer:
        return self.__sklearn_clone__()

    def __getstate__(self) -> Any:
        # Workers must find one ledger, so it is made before the first of them starts.
        if not hasattr(self, "auditor_") and self._asks_for_routing():
            self._routed()
        return super().__getstate__()

    def _asks_for_routing(self) -> bool:
        """Say whether ``set_score_request(sensitive_features=True)`` was called."""
        return bool(self._get_metadata_request().score.requests.get("sensitive_features") is True)

    def _accept_sample_weight(self) -> bool:
        """Tell scikit-learn that weights never reach the metric unless routed on purpose."""
        return False

    def _validate(self) -> None:
        """Check parameters at the door; the metric first, whose message lists what is supported."""
        canonical_metric(self.metric)
        validate_parameter_constraints(
            self._parameter_constraints, self.get_params(deep=False), type(self).__name__
        )
        check_budget(self.epsilon, self.delta, self.n_queries)

    def _open(self) -> PrivateFairnessScorer:
        """Open an account with the auditor under this scorer's terms, fixed from now on."""
        if self.auditor is not None:
            self._validate()
            self.auditor_ = self.auditor
        self._terms = AccountSettings(
            metric=self.metric,
            mechanism=get_mechanism(self.mechanism),
            epsilon=self.epsilon,
            delta=self.delta,
            n_queries=int(self.n_queries),
            absolute=bool(self.absolute),
            advantaged=self.advantaged,
            pos_label=self.pos_label,
            bounds=None if self.bounds is None else (float(self.bounds[0]), float(self.bounds[1])),
            random_state=self.random_state,
        )
        self._account = self.auditor_.open_account(self._terms)
        return self

    def _check_open(self) -> None:
        """Open lazily with a given auditor, or say what is missing."""
        if hasattr(self, "auditor_"):
            return
        if self.auditor is None:
            raise NotFittedError(
                "This PrivateFairnessScorer has no auditor: call fit(X, y, sensitive_features=...), or get a "
                "scorer from FairnessAuditor.scorer(...)."
            )
        self._open()

    def _routed(self) -> Any:
        """Return the auditor of routed sensitive features, one for this scorer and its copies."""
        from .routed import RoutedAuditor

        if hasattr(self, "auditor_"):
            if hasattr(self.auditor_, "ask_routed"):
                return self.auditor_
            raise ValueError(
                "sensitive_features were routed to score, but the auditor holds them already: give them once."
            )
        if self.auditor is not None:
            raise ValueError(
                "sensitive_features were routed to score, but auditor= holds them: give them once."
            )
        if self.advantaged is None:
            raise ValueError(
                "Routed sensitive_features need advantaged=, the label of the advantaged group: without it a "
                "fold with one label could not be answered like any other."
            )
        self._validate()
        self.auditor_ = RoutedAuditor(
            self.advantaged, epsilon=self.epsilon, delta=self.delta, ledger=self.ledger
        )
        self._open()
        return self.auditor_

    def _refuse_sensitive_target(self, y: Any) -> None:
        """Refuse a target that is the sensitive feature itself: stratified folds would follow it."""
        name = getattr(y, "name", None)
        if isinstance(name, str) and name in self.auditor_.names and name != "sensitive_feature":
            raise ValueError(
                f"y is named {name!r} like the sensitive feature. Folds stratified on it would deal other people "
                "into other folds when one person's group changes, which breaks the guarantee. Use a public "
                "target, and splitters that do not see the sensitive feature."
            )
