"""Metadata routing: ids are asked for by default, weights only on purpose."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import GridSearchCV, cross_validate, permutation_test_score

from sklearn_fairleak import (
    FairnessAuditor,
    NotPrivateWarning,
    PrivacyBudgetExceeded,
    PrivateFairnessScorer,
)
from sklearn_fairleak.metrics import fairness_gap

#: Small data on purpose: the scorer rightly says that its noise is large.
pytestmark = pytest.mark.filterwarnings("ignore:The noise of an answer")

N = 120
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 3))
y = (X[:, 0] + rng.normal(size=N) > 0).astype(int)
A = rng.choice(["f", "m"], N)
IDS = np.array([f"p{i}" for i in range(N)])


@pytest.fixture(autouse=True)
def _routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_ids_are_routed_by_default():
    auditor = FairnessAuditor(A, ids=IDS, epsilon=1.0)
    scorer = auditor.scorer(n_queries=2)
    GridSearchCV(LogisticRegression(), {"C": [0.01, 1.0]}, scoring=scorer, cv=3).fit(X, y, sample_ids=IDS)
    assert auditor.report()["n_answers_"] > 0


def test_ids_reach_a_dict_of_scorers():
    auditor = FairnessAuditor(A, ids=IDS, epsilon=1.0)
    found = cross_validate(
        LogisticRegression(),
        X,
        y,
        scoring={"accuracy": "accuracy", "parity": auditor.scorer()},
        cv=3,
        params={"sample_ids": IDS},
    )
    assert np.isfinite(found["test_parity"]).all()
    assert auditor.report()["n_answers_"] == 3


def test_fitted_numpy_rows_are_known_by_their_count_when_routed():
    scorer = PrivateFairnessScorer().fit(X, y, sensitive_features=A)
    found = cross_validate(
        LogisticRegression(), X, y, scoring=scorer, cv=3, params={"sample_ids": np.arange(N)}
    )
    assert np.isfinite(found["test_score"]).all()


def test_weights_must_be_requested():
    auditor = FairnessAuditor(A, ids=IDS, epsilon=1.0)
    scorer = auditor.scorer(n_queries=3).set_score_request(sample_weight=True)
    model = LogisticRegression().set_fit_request(sample_weight=True)
    found = cross_validate(
        model, X, y, scoring=scorer, cv=3, params={"sample_ids": IDS, "sample_weight": np.arange(N) + 1.0}
    )
    assert np.isfinite(found["test_score"]).all()
    plain = auditor.scorer(epsilon=0.1)
    with pytest.raises(Exception, match="sample_weight"):
        cross_validate(model, X, y, scoring=plain, cv=3, params={"sample_weight": np.ones(N)})


def test_requests_survive_a_search():
    auditor = FairnessAuditor(A, ids=IDS, epsilon=1.0)
    scorer = auditor.scorer(n_queries=2)
    search = GridSearchCV(LogisticRegression(), {"C": [1.0]}, scoring=scorer, cv=2)
    outer = cross_validate(search, X, y, cv=2, scoring="accuracy", params={"sample_ids": IDS})
    assert np.isfinite(outer["test_score"]).all()
    assert auditor.report()["n_answers_"] == 4


class TestRoutedSensitiveFeatures:
    """Attributes come with each question: private answers that add up, and no separation."""

    def scorer(self, **kwargs):
        return PrivateFairnessScorer(
            **({"advantaged": "m", "n_queries": 2, "response_method": "predict_proba"} | kwargs)
        ).set_score_request(sensitive_features=True)

    @pytest.mark.parametrize("n_jobs", [1, 2])
    def test_a_search_pays_one_answer_a_candidate(self, n_jobs):
        scorer = self.scorer()
        search = GridSearchCV(LogisticRegression(), {"C": [0.01, 1.0]}, scoring=scorer, cv=3, n_jobs=n_jobs)
        search.fit(X, y, sensitive_features=A)
        assert scorer.auditor_.ledger.n_answers == 6
        assert scorer.auditor_.ledger.remaining() == pytest.approx(0, abs=1e-12)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()

    def test_clones_share_the_ledger_even_before_the_first_question(self):
        scorer = self.scorer(n_queries=4)
        search = GridSearchCV(LogisticRegression(), {"C": [1.0]}, scoring=scorer, cv=2)
        cross_validate(search, X, y, cv=2, scoring="accuracy", params={"sensitive_features": A})
        assert scorer.auditor_.ledger.n_answers == 4
        assert scorer.auditor_.ledger.remaining() == pytest.approx(0.75)

    def test_the_exact_gap_is_the_one_of_the_routed_groups(self):
        scorer, model = self.scorer(mechanism="exact"), LogisticRegression().fit(X, y)
        with pytest.warns(NotPrivateWarning):
            score = scorer.score(model, X, y, sensitive_features=A)
        gap = fairness_gap("statistical_parity", None, model.predict_proba(X)[:, 1], sensitive_features=A)
        assert score == pytest.approx(-gap, abs=1e-12)

    def test_a_fold_with_one_label_is_answered_like_any_other(self):
        scorer, model = self.scorer(), LogisticRegression().fit(X, y)
        assert np.isfinite(scorer.score(model, X[:50], y[:50], sensitive_features=["m"] * 50))
        assert np.isfinite(scorer.score(model, X[50:], y[50:], sensitive_features=["f"] * 70))

    def test_the_budget_holds_over_the_same_people(self):
        scorer, model = self.scorer(n_queries=1), LogisticRegression().fit(X, y)
        scorer.score(model, X, y, sensitive_features=A)
        with pytest.warns(UserWarning, match="is used up"), pytest.raises(PrivacyBudgetExceeded):
            scorer.score(LogisticRegression(C=0.01).fit(X, y), X[::-1], y[::-1], sensitive_features=A[::-1])

    def test_what_is_missing_or_double_is_said(self):
        model = LogisticRegression().fit(X, y)
        with pytest.raises(ValueError, match="need advantaged="):
            PrivateFairnessScorer().score(model, X, y, sensitive_features=A)
        fitted = PrivateFairnessScorer().fit(X, y, sensitive_features=A)
        with pytest.raises(ValueError, match="give them once"):
            fitted.score(model, X, y, sample_ids=np.arange(N), sensitive_features=A)
        with pytest.raises(ValueError, match="give them once"):
            PrivateFairnessScorer(auditor=FairnessAuditor(A)).score(model, X, y, sensitive_features=A)
        with pytest.raises(ValueError, match="everybody's attributes at once"):
            self.scorer(mechanism="randomized_response").score(model, X, y, sensitive_features=A)
        with pytest.raises(ValueError, match="same length"):
            self.scorer().score(model, X, y, sensitive_features=A[:-1])


def test_a_target_that_is_the_sensitive_feature_is_refused():
    race = pd.Series(A, name="race")
    auditor = FairnessAuditor(race.set_axis(IDS), epsilon=1.0)
    frame = pd.DataFrame(X, index=IDS)
    model = LogisticRegression().fit(X, A)
    with pytest.raises(ValueError, match="stratified on it"):
        auditor.scorer(pos_label="m")(model, frame, race)
    assert auditor.report()["remaining_"] == 1.0


def test_logistic_regression_cv_routes_ids():
    auditor = FairnessAuditor(A, ids=IDS, epsilon=1.0)
    scorer = auditor.scorer(n_queries=50, mechanism="noisy_sums")
    with warnings.catch_warnings():
        # Its own parameters are being renamed between versions.
        warnings.simplefilter("ignore", FutureWarning)
        LogisticRegressionCV(Cs=2, scoring=scorer, cv=2).fit(X, y, sample_ids=IDS)
    assert auditor.report()["n_answers_"] > 0


def test_permuted_labels_are_refused_by_an_auditor_that_holds_them():
    """Otherwise they are answered, privately, as a question about other subsets."""
    frame, labels = pd.DataFrame(X, index=IDS), pd.Series(y, index=IDS)
    permuted = {"X": frame, "y": labels, "cv": 2, "n_permutations": 1, "random_state": 0}
    for held in (None, labels):
        auditor = FairnessAuditor(A, ids=IDS, y_true=held, epsilon=1.0)
        scorer = auditor.scorer("equal_opportunity", n_queries=20, mechanism="noisy_sums")
        if held is None:
            score, _, _ = permutation_test_score(LogisticRegression(), scoring=scorer, **permuted)
            assert np.isfinite(score)
        else:
            with pytest.raises(ValueError, match="differs from the labels"):
                permutation_test_score(LogisticRegression(), scoring=scorer, **permuted)
