"""The private search: scikit-learn's conventions, the right candidate, and one charge."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ParameterSampler,
    RepeatedKFold,
    TimeSeriesSplit,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from sklearn_fairleak import FairnessAuditor, NotPrivateWarning, PrivacyBudgetExceeded, PrivateFairSearchCV

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=.* barely protects")

N = 400
IDS = [f"p{i}" for i in range(N)]
RNG = np.random.default_rng(0)
SEX = pd.Series(np.where(RNG.random(N) < 0.4, "f", "m"), index=IDS)
Y = pd.Series((RNG.random(N) < np.where(SEX == "m", 0.8, 0.2)).astype(int), index=IDS)
# "proxy" tells the sex, which tells y; "own" tells y of both alike, less well.
X = pd.DataFrame(
    {"proxy": (SEX == "m") ^ (RNG.random(N) < 0.1), "own": (RNG.random(N) < 0.5).astype(float)}, index=IDS
)
TESTS = {"cv": KFold(4), "epsilon": 60.0}


class Column(ClassifierMixin, BaseEstimator):
    """Predict whether one column is above a half."""

    def __init__(self, column=0, broken=False):
        self.column = column
        self.broken = broken

    def fit(self, X, y):
        if self.broken:
            raise ValueError("broken on purpose")
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X):
        return (np.asarray(X)[:, self.column] > 0.5).astype(int)


def search(**settings):
    return PrivateFairSearchCV(Column(), {"column": [0, 1]}, **(TESTS | settings))


class TestSelection:
    def test_without_a_limit_the_least_gap_is_chosen(self):
        found = search().fit(X, Y, sensitive_features=SEX)
        assert found.best_params_ == {"column": 1}
        assert found.best_index_ == 1
        assert found.choice_.mechanism == "permute_and_flip"

    @pytest.mark.parametrize(("max_gap", "column"), [(0.98, 0), (0.3, 1)])
    def test_the_most_useful_candidate_within_the_limit_is_chosen(self, max_gap, column):
        found = search(max_gap=max_gap).fit(X, Y, sensitive_features=SEX)
        assert found.best_params_ == {"column": column}
        assert found.best_score_ == found.cv_results_["mean_test_score"][column]
        assert found.choice_.mechanism == "sparse_vector"

    @pytest.mark.parametrize(("weight", "column"), [(0.01, 0), (10.0, 1)])
    def test_utility_is_weighed_against_the_gap(self, weight, column):
        found = search(fairness_weight=weight, minority_share=0.4).fit(X, Y, sensitive_features=SEX)
        assert found.best_params_ == {"column": column}

    def test_no_candidate_within_the_limit(self):
        one = PrivateFairSearchCV(Column(), {"column": [0]}, max_gap=0.1, **TESTS)
        with pytest.raises(RuntimeError, match="None of the 1 candidates passed"):
            one.fit(X, Y, sensitive_features=SEX)
        assert one.cv_results_["mean_test_score"].shape == (1,)
        assert one.auditor_.ledger.remaining() == 0

    @pytest.mark.parametrize("metric", ["equal_opportunity", "equalized_odds", "demographic_parity_ratio"])
    def test_other_metrics(self, metric):
        found = search(fairness_metric=metric).fit(X, Y, sensitive_features=SEX)
        assert found.best_params_ == {"column": 1}

    def test_a_gap_is_about_out_of_fold_predictions_of_everybody(self):
        asked = []

        class Listening(FairnessAuditor):
            def choose(self, settings, choice, y_pred, y_true=None, **rest):
                asked.append((np.asarray(y_pred), rest["rows"].ids))
                return super().choose(settings, choice, y_pred, y_true, **rest)

        auditor = Listening(SEX, epsilon=60.0)
        search(auditor=auditor, cv=KFold(3, shuffle=True, random_state=0)).fit(X, Y)
        (matrix, ids) = asked[0]
        assert matrix.shape == (2, N)
        assert list(ids) == IDS
        assert np.array_equal(matrix, (X.to_numpy().T > 0.5).astype(int))


class TestOneCharge:
    def test_twenty_candidates_on_five_folds_cost_epsilon_once(self):
        auditor = FairnessAuditor(SEX, epsilon=1.0)
        grid = {"C": np.logspace(-3, 3, 20)}
        PrivateFairSearchCV(LogisticRegression(), grid, auditor=auditor, epsilon=0.25, cv=5).fit(X, Y)
        assert auditor.ledger.remaining() == 0.75
        assert auditor.report()["n_answers_"] == 1

    def test_the_same_search_again_is_free_and_the_same(self):
        auditor = FairnessAuditor(SEX, epsilon=0.5)
        first, again = (search(auditor=auditor, epsilon=0.5).fit(X, Y) for _ in range(2))
        assert first.best_index_ == again.best_index_
        assert again.choice_.replayed

    def test_a_budget_that_does_not_suffice(self):
        auditor = FairnessAuditor(SEX, epsilon=0.5)
        with pytest.raises(PrivacyBudgetExceeded):
            search(auditor=auditor, epsilon=1.0).fit(X, Y)
        assert auditor.ledger.remaining() == 0.5

    def test_rows_that_are_never_tested_pay_nothing(self):
        auditor = FairnessAuditor(SEX, epsilon=1.0)
        search(auditor=auditor, epsilon=1.0, cv=TimeSeriesSplit(3)).fit(X, Y)  # the first quarter only trains
        auditor.scorer(epsilon=1.0).answer(np.arange(100) % 2, sample_ids=IDS[:100])
        with pytest.raises(PrivacyBudgetExceeded):
            auditor.scorer(epsilon=1.0).answer(np.arange(100) % 2, sample_ids=IDS[100:200])

    def test_nested_cross_validation_with_one_auditor_counts_everybody(self):
        auditor = FairnessAuditor(SEX, epsilon=2.0)
        outer = cross_validate(search(auditor=auditor, epsilon=1.0, cv=2), X, Y, cv=3)
        assert np.isfinite(outer["test_score"]).all()
        assert auditor.ledger.remaining() == 0  # each individual is in two of three training sets

    def test_the_charge_is_in_the_given_ledger(self, tmp_path):
        found = search(ledger=tmp_path / "audit.db").fit(X, Y, sensitive_features=SEX)
        assert found.auditor_.ledger.path == tmp_path / "audit.db"
        assert found.auditor_.ledger.n_answers == 1


class TestScikitLearn:
    def test_results_are_those_of_grid_search(self):
        grid, settings = {"C": [0.1, 1.0], "fit_intercept": [True, False]}, {"cv": 3, "scoring": "roc_auc"}
        ours = PrivateFairSearchCV(LogisticRegression(), grid, return_train_score=True, **settings)
        theirs = GridSearchCV(LogisticRegression(), grid, return_train_score=True, **settings).fit(X, Y)
        ours.fit(X, Y, sensitive_features=SEX)
        assert list(ours.cv_results_) == list(theirs.cv_results_)
        for key, expected in theirs.cv_results_.items():
            if "time" not in key:
                assert np.array_equal(ours.cv_results_[key], expected), key

    def test_refitted_estimator_predicts(self):
        found = PrivateFairSearchCV(LogisticRegression(), {"C": [1.0]}, **TESTS)
        found.fit(X, Y, sensitive_features=SEX)
        alone = LogisticRegression(C=1.0).fit(X, Y)
        assert np.array_equal(found.predict_proba(X), alone.predict_proba(X))
        assert found.score(X, Y) == alone.score(X, Y)
        assert list(found.feature_names_in_) == ["proxy", "own"]
        assert found.refit_time_ >= 0

    def test_without_refit_there_is_no_estimator(self):
        found = search(refit=False).fit(X, Y, sensitive_features=SEX)
        assert not hasattr(found, "best_estimator_")
        with pytest.raises(AttributeError, match="predict"):
            found.predict(X)

    def test_pipelines_and_clones(self):
        pipe = make_pipeline(StandardScaler(), LogisticRegression())
        auditor = FairnessAuditor(SEX, epsilon=1.0)
        inner = PrivateFairSearchCV(pipe, {"logisticregression__C": [0.1, 1.0]}, auditor=auditor, cv=3)
        copy = clone(inner)
        assert copy.auditor is auditor
        copy.fit(X, Y)
        outer = make_pipeline(StandardScaler().set_output(transform="pandas"), inner)
        assert outer.set_params(privatefairsearchcv__epsilon=0.5)[-1].epsilon == 0.5
        with pytest.raises(PrivacyBudgetExceeded):
            outer.fit(X, Y)

    def test_random_search(self):
        grid = ParameterSampler({"column": [0, 1]}, 2, random_state=0)
        found = PrivateFairSearchCV(Column(), grid, **TESTS).fit(X, Y, sensitive_features=SEX)
        assert found.best_params_ == {"column": 1}

    def test_a_list_of_settings_is_taken_as_it_is(self):
        found = PrivateFairSearchCV(Column(), [{"column": 1}, {"column": 0}], **TESTS)
        assert found.fit(X, Y, sensitive_features=SEX).best_index_ == 0

    def test_parallel(self):
        found = PrivateFairSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, n_jobs=2, **TESTS)
        assert found.fit(X, Y, sensitive_features=SEX).choice_.n_models == 2

    def test_numpy_with_sensitive_features(self):
        found = search().fit(X.to_numpy(), Y.to_numpy(), sensitive_features=SEX.to_numpy())
        assert found.best_params_ == {"column": 1}

    def test_numpy_with_an_auditor_needs_ids(self):
        auditor = FairnessAuditor(SEX, epsilon=60.0)
        with pytest.raises(TypeError, match="No sample ids"):
            search(auditor=auditor).fit(X.to_numpy(), Y.to_numpy())
        found = search(auditor=auditor).fit(X.to_numpy(), Y.to_numpy(), sample_ids=IDS)
        assert found.best_params_ == {"column": 1}

    def test_string_labels(self):
        labels = Y.map({0: "no", 1: "yes"})
        with pytest.raises(ValueError, match="pos_label"):
            PrivateFairSearchCV(LogisticRegression(), {"C": [1.0]}, **TESTS).fit(
                X, labels, sensitive_features=SEX
            )
        found = PrivateFairSearchCV(LogisticRegression(), {"C": [1.0]}, pos_label="yes", **TESTS)
        assert found.fit(X, labels, sensitive_features=SEX).best_index_ == 0

    def test_sensitive_features_are_aligned_by_index(self):
        found = search().fit(X, Y, sensitive_features=SEX.sample(frac=1, random_state=0))
        assert found.best_params_ == {"column": 1}

    def test_metadata_routing(self):
        with sklearn.config_context(enable_metadata_routing=True):
            inner = PrivateFairSearchCV(
                LogisticRegression().set_fit_request(sample_weight=True),
                {"C": [0.1, 1.0]},
                scoring=make_scorer(accuracy_score).set_score_request(sample_weight=True),
                **TESTS,
            )
            inner.fit(X, Y, sensitive_features=SEX, sample_weight=np.ones(N))
            outer = cross_validate(
                inner, X, Y, cv=2, params={"sensitive_features": SEX, "sample_weight": np.ones(N)}
            )
            assert np.isfinite(outer["test_score"]).all()

    def test_a_failing_candidate_is_not_chosen(self):
        grid = [{"column": 1, "broken": True}, {"column": 0, "broken": False}]
        failing = PrivateFairSearchCV(Column(), grid, **TESTS)
        with (
            pytest.warns(FitFailedWarning, match="4 of 8 fits failed"),
            pytest.warns(UserWarning, match="non-finite"),
        ):
            failing.fit(X, Y, sensitive_features=SEX)
        assert failing.best_index_ == 1
        assert failing.choice_.n_models == 1

    def test_seeds_are_called_not_private(self):
        with pytest.warns(NotPrivateWarning):
            found = search(random_state=0).fit(X, Y, sensitive_features=SEX)
        assert not found.choice_.is_private


class TestBadInput:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"epsilon": 0.0}, "epsilon"),
            ({"max_gap": -0.1}, "max_gap"),
            ({"max_gap": 0.1, "fairness_weight": 1.0}, "not both"),
            ({"fairness_weight": 0.0}, "fairness_weight"),
            ({"fairness_metric": "auc"}, "not supported"),
            ({"refit": "accuracy"}, "refit"),
            ({"scoring": ["accuracy", "roc_auc"]}, "scoring"),
            ({"cv": RepeatedKFold(n_splits=2, n_repeats=2)}, "several test sets"),
            ({"param_grid": []}, "no candidates"),
            ({"param_grid": {"column": [0], "broken": [True]}}, "All 4 fits failed"),
            ({"max_gap": 1.5}, r"\[0, 1\]"),
        ],
    )
    def test_errors_cost_nothing(self, settings, message):
        auditor = FairnessAuditor(SEX, epsilon=60.0)
        bad = search(auditor=auditor).set_params(**settings)
        with pytest.raises(ValueError, match=message):
            bad.fit(X, Y)
        assert auditor.ledger.remaining() == 60.0

    def test_who_must_be_told_once(self):
        with pytest.raises(ValueError, match="one of the two"):
            search().fit(X, Y)
        with pytest.raises(ValueError, match="one of the two"):
            search(auditor=FairnessAuditor(SEX)).fit(X, Y, sensitive_features=SEX)
        with pytest.raises(ValueError, match="belongs to the auditor"):
            search(auditor=FairnessAuditor(SEX), ledger="x.db").fit(X, Y)

    def test_sensitive_features_of_another_length(self):
        with pytest.raises(ValueError, match=r"same length|one entry a row"):
            search().fit(X.to_numpy(), Y.to_numpy(), sensitive_features=SEX.to_numpy()[:-1])

    def test_error_score_raise(self):
        bad = PrivateFairSearchCV(Column(), {"broken": [True]}, error_score="raise", **TESTS)
        with pytest.raises(ValueError, match="broken on purpose"):
            bad.fit(X, Y, sensitive_features=SEX)


class Grouped(PrivateFairSearchCV):
    """A search that finds sensitive features by itself, for scikit-learn's checks."""

    def fit(self, X, y=None, **params):
        n = X.shape[0] if hasattr(X, "shape") else len(np.asarray(X))
        codes = pd.Categorical.from_codes(np.arange(n) % 2, categories=["a", "b"])
        return super().fit(X, y, sensitive_features=pd.Series(codes), **params)


#: Checks that cannot hold, with the reason.
EXPECTED_FAILURES = {
    "check_classifier_not_supporting_multiclass": "more than two classes need pos_label, whose error says so",
    "check_supervised_y_2d": "whether a column vector y is converted is up to the wrapped estimator",
}


class TwoClasses(Grouped):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False  # gaps need pos_label otherwise
        return tags


@pytest.mark.filterwarnings("ignore::sklearn_fairleak.NotPrivateWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # scikit-learn's own, on y = inf
@pytest.mark.parametrize(
    "estimator",
    [
        TwoClasses(LogisticRegression(), {"C": [1.0]}, response_method="predict_proba", random_state=0, cv=2),
        Grouped(Ridge(), {"alpha": [1.0]}, bounds=(0.0, 1.0), random_state=0, cv=2),
    ],
    ids=["classifier", "regressor"],
)
def test_scikit_learn_checks(estimator):
    results = check_estimator(estimator, expected_failed_checks=EXPECTED_FAILURES, on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed
    assert sum(r["status"] == "passed" for r in results) > 40
