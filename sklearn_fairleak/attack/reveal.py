"""The attack as a scikit-learn estimator: a regression whose coefficients are people."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from ..answers import PrivateAnswers
from ..metrics import fairness_gap, fairness_ratio, leakage_score
from ..queries import canonical_metric
from . import designs
from .campaign import ADAPTIVE, OTHERS, STATISTICAL, Campaign, decode
from .decoders import gap_coefficients
from .metric_oracles import reveal_through_metric
from .noise_laws import NoiseLaw
from .probing import Plan, plan_attack
from .reconstruction import Reconstruction
from .reductions import Reduction, is_affine, reduce_metric
from .released import read_answers
from .transcript import OracleStopped, Transcript

__all__ = ["AttributeRevealAttack"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class AttributeRevealAttack(RegressorMixin, BaseEstimator):
    """Recover sensitive attributes from the answers to fairness queries.

    Columns are individuals, rows are submitted models: answers are linear in who belongs to
    which group, so the attack is a linear regression whose coefficients are people.

    Parameters
    ----------
    strategy : str, default="auto"
        What to submit.

        - ``"single"``: accept one individual alone; the sign tells (Example 1 of [1]_).
        - ``"double"``: change one individual in a real model; the difference tells (Example 2).
        - ``"linear"``: one changed individual per model, for everyone (Algorithm 1).
        - ``"compressed_sensing"``: slightly perturbed models, fewer than people (Algorithm 2).
        - ``"absolute"``: the same against ``|SP|`` (Theorem 7).
        - ``"positional"``, ``"positional_sparse"``: many people in the digits of one answer.
        - ``"coin_weighing"``: hard labels, by detecting matrices.
        - ``"passive"``: honestly retrained models, no design at all.
        - ``"noisy"``: random models and a decoder that knows the noise law.
        - ``"auto"``: a few probing queries tell the kind of oracle, which decides.
    base_estimator : classifier, default=None
        Realistic model around which queries are built; logistic regression by default.
    n_queries : int, default=None
        Number of models to submit, where the strategy leaves it open: two fifths of the number of
        individuals for ``"compressed_sensing"``, as many as individuals for ``"noisy"``.
    noise : float, default=0.1
        Half-width of the uniform perturbation of ``"compressed_sensing"``.
    metric : str, default="statistical_parity"
        Metric that the oracle answers.
    group_sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Group sizes among the individuals that the metric reaches; found out where not given.
    noise_law : NoiseLaw, default=None
        Law of the noise of the answers; exact answers by default.
    prior : array-like of shape (n_individuals,) or fitted classifier, default=None
        Prior probability of being in the advantaged group, or a classifier whose
        ``predict_proba`` gives it from `X` (its last class).
    hard_labels : bool, default=False
        Submit 0/1 predictions only.
    signed : bool, default=None
        Whether answers are signed gaps. None: signed if any answer is negative, or as probing tells.
    decimals : int, default=None
        Decimals to which answers are rounded.
    decoder : {"auto", "linear", "l1", "box", "amp", "gamp", "irls", "lmmse"}, default="auto"
        Solver of the non-adaptive strategies; ``"l1"`` is the paper's program.
    stealth : bool, default=False
        Keep every prediction within 1e-5 of the base model's and change no decision.
    max_shift : float, default=None
        Largest distance of a submitted prediction from the base model's.
    max_accuracy_loss : float, default=None
        Largest loss of accuracy of a submitted model against the base model.
    target : int or array-like of int, default=None
        Individuals that ``"single"`` and ``"double"`` are after; everyone by default.
    random_state : int, RandomState instance or None, default=None
        Randomness of the designs.

    Attributes
    ----------
    attributes_ : ndarray of shape (n_individuals,)
        Group of each individual: 1 for the advantaged.
    scores_ : ndarray of shape (n_individuals,)
        Confidence in [0, 1] that the individual is in the advantaged group; 0.5 where the answers
        do not reach the individual.
    group_sizes_ : tuple of (n_disadvantaged, n_advantaged) or None
    n_queries_ : int
        Number of answers that were used.
    reconstruction_ : Reconstruction
        All of it, with what is determined and what could not be.
    coef_ : ndarray of shape (n_individuals,)
        What each individual adds to an answer: 1/N1 or -1/N0 where attributes are known.
    n_features_in_ : int
        Number of individuals.

    References
    ----------
    .. [1] F. Hamman, J. Chen & S. Dutta, "Can Querying for Bias Leak Protected Attributes?
       Achieving Privacy With Smooth Sensitivity", FAccT 2023, arXiv 2211.02139.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.attack import AttributeRevealAttack
    >>> rng = np.random.default_rng(0)
    >>> race, base = rng.integers(0, 2, 50), rng.random(50)
    >>> def oracle(y_pred):
    ...     return y_pred[race == 1].mean() - y_pred[race == 0].mean()
    >>> attack = AttributeRevealAttack("compressed_sensing", n_queries=30, random_state=0)
    >>> attack.run(oracle, base).leakage(race)
    1.0
    >>> attack.reconstruction_
    Reconstruction(50 of 50 individuals determined by 30 answers, verified)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "strategy": [StrOptions({"auto", *ADAPTIVE, *OTHERS})],
        "base_estimator": [HasMethods(["fit", "predict"]), None],
        "n_queries": [Interval(Integral, 1, None, closed="left"), None],
        "noise": [Interval(Real, 0, 1, closed="right")],
        "metric": [str],
        "group_sizes": ["array-like", None],
        "noise_law": [NoiseLaw, None],
        "prior": ["array-like", HasMethods("predict_proba"), None],
        "hard_labels": ["boolean"],
        "signed": ["boolean", None],
        "decimals": [Interval(Integral, 0, 15, closed="both"), None],
        "decoder": [StrOptions({"auto", "linear", "l1", "box", "amp", *STATISTICAL})],
        "stealth": ["boolean"],
        "max_shift": [Interval(Real, 0, 1, closed="right"), None],
        "max_accuracy_loss": [Interval(Real, 0, 1, closed="both"), None],
        "target": [Integral, "array-like", None],
        "random_state": ["random_state"],
    }

    #: Labels of a metric that is not linear, to predict its answers.
    _metric_labels: FloatArray | None

    def __init__(
        self,
        strategy: str = "auto",
        *,
        base_estimator: Any = None,
        n_queries: int | None = None,
        noise: float = 0.1,
        metric: str = "statistical_parity",
        group_sizes: tuple[int, int] | None = None,
        noise_law: NoiseLaw | None = None,
        prior: Any = None,
        hard_labels: bool = False,
        signed: bool | None = None,
        decimals: int | None = None,
        decoder: str = "auto",
        stealth: bool = False,
        max_shift: float | None = None,
        max_accuracy_loss: float | None = None,
        target: Any = None,
        random_state: Any = None,
    ) -> None:
        self.strategy = strategy
        self.base_estimator = base_estimator
        self.n_queries = n_queries
        self.noise = noise
        self.metric = metric
        self.group_sizes = group_sizes
        self.noise_law = noise_law
        self.prior = prior
        self.hard_labels = hard_labels
        self.signed = signed
        self.decimals = decimals
        self.decoder = decoder
        self.stealth = stealth
        self.max_shift = max_shift
        self.max_accuracy_loss = max_accuracy_loss
        self.target = target
        self.random_state = random_state

    def design(self, X: Any, y: Any = None) -> FloatArray:
        """Build the predictions to submit.

        Parameters
        ----------
        X : array-like of shape (n_individuals, n_features) or (n_individuals,)
            Features of the evaluation set; one column is taken for the base model's predictions.
        y : array-like of shape (n_individuals,), default=None
            Labels to fit the base model on; without them `base_estimator` must be fitted.

        Returns
        -------
        ndarray of shape (n_queries, n_individuals)

        Raises
        ------
        ValueError
            If the strategy chooses its queries as answers come in (use `run`), or no base model
            can be had.
        """
        self._validate_params()
        campaign = self._campaign(X, y)
        return campaign.reduction.to_predictions(campaign.design(self._given_plan()), campaign.base)

    def fit(self, X: Any, y: Any, *, labels: Any = None) -> AttributeRevealAttack:
        """Decode the attributes from queries and answers.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_individuals)
            Submitted predictions, ``H``.
        y : array-like of shape (n_queries,), or PrivateAnswers
            Answers. A scorer's ``answer_many`` publishes how it drew its noise too, and its noisy
            sums: given whole, all of that is used, unless `noise_law` says otherwise.
        labels : array-like of shape (n_individuals,), default=None
            True labels of the individuals, for a metric that depends on them.

        Returns
        -------
        AttributeRevealAttack
            The fitted attack.
        """
        self._validate_params()
        plan = self._given_plan()
        if isinstance(y, PrivateAnswers):
            sharpened, law = read_answers(y, self._sizes())
            y = y.values if plan.law is not None else sharpened
            plan = replace(plan, law=plan.law or law)
        H, answers = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_features=2)
        answers = np.asarray(answers, dtype=np.float64)
        truth = None if labels is None else np.asarray(labels, dtype=np.float64)
        reduction = self._reduction(truth, H.shape[1])
        prior = self._prior(None, H.shape[1])
        values = reduction.to_values(H)
        reached = None if prior is None else prior[reduction.reach]
        found = decode(plan, values, answers, sizes=self._sizes(), prior=reached, decoder=self.decoder)
        return self._keep(found, reduction, prior, values)

    def run(self, oracle: Callable[[FloatArray], Any], X: Any, y: Any = None) -> AttributeRevealAttack:
        """Design queries, put them to an oracle, and decode the answers.

        Parameters
        ----------
        oracle : callable
            ``oracle(y_pred) -> float``: an exact metric, a private scorer's ``answer``, or a fairlearn
            metric with the attributes filled in.
        X : array-like of shape (n_individuals, n_features) or (n_individuals,)
            Features of the evaluation set; one column is taken for the base model's predictions.
        y : array-like of shape (n_individuals,), default=None
            Labels of the evaluation set.

        Returns
        -------
        AttributeRevealAttack
            The fitted attack. If the oracle raises midway, what was learned until then, with a
            warning.
        """
        self._validate_params()
        if not callable(oracle):
            raise TypeError(f"oracle must be callable as oracle(y_pred), got {type(oracle).__name__}.")
        if self.strategy == "auto" and not is_affine(self.metric):
            return self._run_through_metric(oracle, X, y)
        campaign = self._campaign(X, y)
        reduction = campaign.reduction
        transcript = Transcript(oracle, campaign.base, campaign.labels)

        def ask(values: FloatArray) -> float:
            values = np.asarray(values, dtype=np.float64)
            return transcript(reduction.to_predictions(values, campaign.base))

        plan = self._given_plan()
        try:
            if self.strategy == "auto" and plan.law is not None:
                plan = replace(plan, strategy="noisy")
            elif self.strategy == "auto":
                plan = plan_attack(
                    ask,
                    campaign.values,
                    shift=campaign.shift,
                    hard_labels=self.hard_labels,
                    signed=self.signed,
                    decimals=self.decimals,
                )
                if plan.hard_labels and not self.hard_labels:
                    campaign = replace(campaign, base=(campaign.base >= 0.5).astype(np.float64))
                    transcript.rebase(campaign.base)
            found = campaign.execute(plan, ask)
            unread = not found.verified and transcript.stopped is None
            if self.strategy == "auto" and unread and plan.strategy != "noisy":
                plan = plan.fallback()
                found = campaign.execute(plan, ask).with_message(*found.messages)
        except OracleStopped:
            found = campaign.salvage(plan, transcript)
        found = self._measured(found.with_message(*plan.messages), transcript)
        self.n_features_in_ = campaign.base.size
        return self._keep(found, reduction, self._prior(X, campaign.base.size), None)

    def predict(self, X: Any) -> FloatArray:
        """Predict the answers to further queries.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_individuals)
            Submitted predictions.

        Returns
        -------
        ndarray of shape (n_queries,)
        """
        check_is_fitted(self)
        H = validate_data(self, X, dtype=np.float64, reset=False)
        if self._metric_labels is not None:
            return np.array([self._exact_answer(h) for h in H])
        return np.asarray(self.intercept_ + H @ self.coef_, dtype=np.float64)

    def leakage(self, sensitive_features: Any) -> float:
        """Measure how much was revealed: balanced accuracy of the reconstruction.

        Parameters
        ----------
        sensitive_features : array-like of shape (n_individuals,)
            True attributes, 1 for the advantaged group and 0 for the other.

        Returns
        -------
        float
            In [0, 1]; 0.5 is what guessing gives.
        """
        check_is_fitted(self)
        return leakage_score(np.asarray(sensitive_features), self.attributes_)

    def _reduction(self, labels: FloatArray | None, n: int) -> Reduction:
        """Say who the metric reaches, or that this metric has no decoder of its own."""
        reduction = reduce_metric(self.metric, labels, n)
        if reduction is None:
            raise ValueError(
                f"metric={self.metric!r} is not linear in the predictions: use run with strategy='auto'."
            )
        return reduction

    def _run_through_metric(
        self, oracle: Callable[[FloatArray], Any], X: Any, y: Any
    ) -> AttributeRevealAttack:
        """Attack a metric that is not linear in the predictions, with models of its own."""
        if self.stealth or self.max_shift is not None or self.max_accuracy_loss is not None:
            raise ValueError(
                f"metric={self.metric!r} is attacked with models far from any base model: stealth, "
                "max_shift and max_accuracy_loss cannot be honoured."
            )
        base, labels = designs.base_predictions(X, y, self.base_estimator, True)
        transcript = Transcript(oracle, base, labels)
        try:
            found = reveal_through_metric(transcript, self.metric, labels, base.size, signed=self.signed)
        except OracleStopped:
            undecided = np.full(base.size, 0.5)
            found = Reconstruction(undecided, np.zeros(base.size, dtype=bool), transcript.answers, 0)
        assert isinstance(found, Reconstruction)
        found = self._measured(found, transcript)
        self.n_features_in_ = base.size
        everyone = reduce_metric("statistical_parity", None, base.size)
        assert everyone is not None
        self._keep(found, everyone, self._prior(X, base.size), None)
        self._metric_labels = labels
        return self

    def _exact_answer(self, h: FloatArray) -> float:
        """Predict the answer of a metric that is not linear in the predictions."""
        if canonical_metric(self.metric)[1]:
            return fairness_ratio(self.metric, self._metric_labels, h, sensitive_features=self.attributes_)
        return fairness_gap(
            self.metric,
            self._metric_labels,
            h,
            sensitive_features=self.attributes_,
            absolute=not self.signed,
        )

    def _measured(self, found: Reconstruction, transcript: Transcript) -> Reconstruction:
        """Add what was asked and answered, and warn where the oracle stopped."""
        if transcript.stopped is not None:
            kept = f"{transcript.stopped}; what {transcript.n_queries} answers had told until then is kept"
            warnings.warn(f"The attack ended early: {kept}.", UserWarning, stacklevel=3)
            found = found.with_message(kept)
        return replace(
            found,
            answers=transcript.answers,
            n_queries=transcript.n_queries,
            max_shift=transcript.max_shift,
            accuracy_loss=max(0.0, transcript.accuracy_loss),
        )

    def _prior(self, X: Any, n: int) -> FloatArray | None:
        """Return prior probabilities of being advantaged."""
        if self.prior is None:
            return None
        if hasattr(self.prior, "predict_proba"):
            if X is None:
                raise ValueError("A classifier as prior needs the features: use run, or give probabilities.")
            prior = np.asarray(self.prior.predict_proba(X), dtype=np.float64)[:, -1]
        else:
            prior = np.asarray(self.prior, dtype=np.float64)
        if prior.shape != (n,) or not np.all((prior >= 0.0) & (prior <= 1.0)):
            raise ValueError(
                f"prior must hold one probability in [0, 1] per individual ({n}), got shape {prior.shape}."
            )
        return prior

    def _sizes(self) -> tuple[int, int] | None:
        """Return the group sizes as two integers."""
        if self.group_sizes is None:
            return None
        sizes = np.asarray(self.group_sizes)
        if sizes.shape != (2,) or np.any(sizes < 1) or np.any(sizes != np.floor(sizes)):
            raise ValueError("group_sizes must be two positive integers (n_disadvantaged, n_advantaged).")
        return int(sizes[0]), int(sizes[1])

    def _targets(self, reduction: Reduction) -> IntArray:
        """Return the targets' positions among the individuals that the metric reaches."""
        n, reach = reduction.n_individuals, reduction.reach
        if self.target is None:
            return np.arange(reach.size)
        targets = np.atleast_1d(np.asarray(self.target, dtype=np.int64))
        if targets.ndim != 1 or targets.size == 0 or targets.min() < 0 or targets.max() >= n:
            raise ValueError(f"target must hold positions of individuals, from 0 to {n - 1}.")
        if not np.isin(targets, reach).all():
            raise ValueError(f"metric={self.metric!r} does not reach all of the targets.")
        return np.searchsorted(reach, targets)

    def _campaign(self, X: Any, y: Any) -> Campaign:
        """Fit the base model and gather what the attack needs."""
        base, labels = designs.base_predictions(X, y, self.base_estimator, self.hard_labels)
        if base.size < 2:
            raise ValueError(f"A gap between groups needs at least 2 individuals, got {base.size}.")
        reduction = self._reduction(labels, base.size)
        prior = self._prior(X, base.size)
        return Campaign(
            reduction=reduction,
            base=base,
            labels=labels,
            X=X,
            y=y,
            base_estimator=self.base_estimator,
            sizes=self._sizes(),
            prior=None if prior is None else prior[reduction.reach],
            targets=self._targets(reduction),
            n_queries=self.n_queries,
            noise=self.noise,
            decoder=self.decoder,
            stealth=self.stealth,
            max_shift=self.max_shift,
            max_accuracy_loss=self.max_accuracy_loss,
            seed=check_random_state(self.random_state).randint(2**31 - 1),
        )

    def _given_plan(self) -> Plan:
        """Return what the parameters say."""
        return Plan(self.strategy, self.signed, self.decimals, self.hard_labels, law=self.noise_law)

    def _keep(
        self, found: Reconstruction, reduction: Reduction, prior: FloatArray | None, values: FloatArray | None
    ) -> AttributeRevealAttack:
        """Set the fitted attributes; individuals out of the metric's reach keep their prior."""
        n, reach = reduction.n_individuals, reduction.reach
        coefficients = self._coefficients(found, values)
        if reach.size < n:
            scores = np.full(n, 0.5) if prior is None else prior.copy()
            determined = np.zeros(n, dtype=bool)
            scores[reach], determined[reach] = found.scores, found.determined
            found = replace(found, scores=scores, determined=determined).with_message(
                f"the metric does not reach {n - reach.size} of {n} individuals"
            )
        self._metric_labels = None
        self.reconstruction_ = found
        self.attributes_ = found.attributes
        self.scores_ = found.scores
        self.group_sizes_ = found.group_sizes
        self.n_queries_ = found.n_queries
        self.coef_ = np.zeros(n)
        self.coef_[reach] = coefficients * reduction.slope
        self.intercept_ = float(coefficients @ reduction.offset)
        return self

    def _coefficients(self, found: Reconstruction, values: FloatArray | None) -> FloatArray:
        """Return what each individual adds to an answer; least squares where two groups do not fit."""
        if not found.verified and values is not None and values.shape[0] >= values.shape[1]:
            return np.asarray(np.linalg.lstsq(values, found.answers, rcond=None)[0])
        if found.group_sizes is None:
            return gap_coefficients(found.scores)
        x, (n_disadvantaged, n_advantaged) = found.scores, found.group_sizes
        return np.asarray(x / n_advantaged - (1.0 - x) / n_disadvantaged)
