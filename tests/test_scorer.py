"""The developer's side: scores, ids, copies, and what a handle shows."""

import copy
import io
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, RepeatedKFold, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_fairleak import (
    FairnessAuditor,
    NotPrivateWarning,
    PrivacyBudgetExceeded,
    PrivateFairnessScorer,
    UnknownIndividuals,
)
from sklearn_fairleak.metrics import fairness_gap, fairness_ratio
from sklearn_fairleak.preflight import count_answers

#: Small data on purpose: the scorer rightly says that its noise is large.
pytestmark = pytest.mark.filterwarnings("ignore:The noise of an answer")

N = 240
IDS = [f"p{i}" for i in range(N)]
SECRET = ("okapi", "zebra")


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(N, 3)), columns=list("abc"), index=IDS)
    y = pd.Series((X["a"] + rng.normal(size=N) > 0).astype(int), index=IDS)
    return X, y, pd.Series(rng.choice(SECRET, N), index=IDS, name="animal")


X, y, A = data()
MODEL = LogisticRegression().fit(X, y)


def exact(metric="statistical_parity", **kwargs):
    with pytest.warns(NotPrivateWarning):
        return PrivateFairnessScorer(metric, mechanism="exact", **kwargs).fit(X, y, sensitive_features=A)


class TestScores:
    @pytest.mark.parametrize(
        "metric", ["statistical_parity", "equalized_odds", "predictive_parity", "accuracy_parity"]
    )
    def test_a_score_is_minus_the_absolute_gap(self, metric):
        gap = fairness_gap(metric, y, MODEL.predict(X), sensitive_features=A)
        assert exact(metric)(MODEL, X, y) == pytest.approx(-gap, abs=1e-12)
        assert exact(metric, absolute=False).score(MODEL, X, y) == pytest.approx(-gap, abs=1e-12)

    def test_a_ratio_is_itself(self):
        ratio = fairness_ratio("statistical_parity", y, MODEL.predict(X), sensitive_features=A)
        assert exact("demographic_parity_ratio")(MODEL, X, y) == pytest.approx(ratio, abs=1e-12)

    def test_probabilities_and_bounded_regression(self):
        p = MODEL.predict_proba(X)[:, 1]
        gap = fairness_gap("statistical_parity", y, p, sensitive_features=A)
        assert exact(response_method="predict_proba")(MODEL, X, y) == pytest.approx(-gap, abs=1e-12)
        line = LinearRegression().fit(X, y)
        gap = fairness_gap("statistical_parity", y, line.predict(X), sensitive_features=A, bounds=(0, 1))
        assert exact(bounds=(0, 1))(line, X, y) == pytest.approx(-gap, abs=1e-12)
        with pytest.raises(ValueError, match="within \\[0, 1\\]"):
            exact()(line, X, y)

    def test_string_labels_need_the_positive_one(self):
        text = y.map({0: "No", 1: "Yes"})
        model = LogisticRegression().fit(X, text)
        assert exact(pos_label="Yes")(model, X, text) == pytest.approx(exact()(MODEL, X, y), abs=1e-12)
        with pytest.raises(ValueError, match="'No', 'Yes'"):
            exact()(model, X, text)
        assert exact(pos_label="Yes", response_method="predict_proba")(model, X, text) < 0
        with pytest.raises(ValueError, match="not one of the classes"):
            exact(pos_label="Maybe", response_method="predict_proba")(model, X, text)

    def test_weights_are_used_only_when_given_on_purpose(self):
        w = np.arange(N) + 1.0
        gap = fairness_gap("statistical_parity", y, MODEL.predict(X), sensitive_features=A, sample_weight=w)
        assert exact().score(MODEL, X, y, sample_weight=w) == pytest.approx(-gap, abs=1e-12)
        assert exact()._accept_sample_weight() is False

    def test_as_metric_is_not_negated(self):
        scorer = exact()
        metric = scorer.as_metric()
        assert metric(y, MODEL.predict(X)) == pytest.approx(-scorer(MODEL, X, y), abs=1e-12)
        assert metric(y.iloc[::-1], MODEL.predict(X)[::-1]) == pytest.approx(-scorer(MODEL, X, y), abs=1e-12)


class TestIds:
    def test_rows_may_be_shuffled_and_selected(self):
        scorer, rows = exact(), np.random.default_rng(0).permutation(N)[:100]
        gap = fairness_gap(
            "statistical_parity", None, MODEL.predict(X.iloc[rows]), sensitive_features=A.iloc[rows]
        )
        assert scorer(MODEL, X.iloc[rows], y.iloc[rows]) == pytest.approx(-gap, abs=1e-12)
        assert scorer(MODEL, X.iloc[rows], y.iloc[rows].to_numpy()) == pytest.approx(-gap, abs=1e-12)

    def test_labels_may_bring_the_ids(self):
        model = LogisticRegression().fit(X.to_numpy(), y)
        assert exact()(model, X.to_numpy(), y) == pytest.approx(exact()(MODEL, X, y), abs=1e-12)
        model = LogisticRegression().fit(sp.csr_matrix(X.to_numpy()), y)
        assert exact()(model, sp.csr_matrix(X.to_numpy()), y) < 0

    def test_no_ids_is_an_error_that_names_the_ways(self):
        scorer = exact()
        pl = pytest.importorskip("polars")
        for table in (X.to_numpy(), X.to_numpy().tolist(), pl.from_pandas(X)):
            with pytest.raises(TypeError, match=r"No sample ids.*id_column=.*sample_ids"):
                scorer(MODEL, table, y.to_numpy())
        assert scorer.auditor_.report()["n_answers_"] == 0

    def test_a_column_may_hold_the_ids(self):
        table = X.reset_index(names="id")

        class Model(ClassifierMixin, BaseEstimator):
            def predict(self, table):
                return MODEL.predict(table[["a", "b", "c"]])

        with pytest.warns(NotPrivateWarning):
            scorer = PrivateFairnessScorer(mechanism="exact", id_column="id").fit(
                table, sensitive_features=A.to_numpy()
            )
        assert scorer(Model(), table.sample(frac=1, random_state=0)) == pytest.approx(
            exact()(MODEL, X, y), abs=1e-12
        )
        with pytest.raises(TypeError, match="not a column"):
            scorer(MODEL, X, y)

    def test_a_plain_count_must_come_with_the_fitted_rows(self):
        plain = X.reset_index(drop=True)
        with pytest.warns(NotPrivateWarning):
            scorer = PrivateFairnessScorer(mechanism="exact").fit(plain, sensitive_features=A.to_numpy())
        rows = np.arange(N)[::3]
        assert scorer(MODEL, plain.iloc[rows]) <= 0
        with pytest.raises(ValueError, match="do not match the fitted rows"):
            scorer(MODEL, plain.sample(frac=1, random_state=1).reset_index(drop=True))
        auditor = FairnessAuditor(A.to_numpy())
        with pytest.raises(ValueError, match="plain count"):
            auditor.scorer()(MODEL, plain)

    def test_sensitive_features_are_aligned_to_x(self):
        with pytest.warns(NotPrivateWarning):
            scorer = PrivateFairnessScorer(mechanism="exact").fit(
                X, y, sensitive_features=A.sample(frac=1, random_state=0)
            )
        assert scorer(MODEL, X, y) == pytest.approx(exact()(MODEL, X, y), abs=1e-12)
        with pytest.raises(ValueError, match="different ids"):
            PrivateFairnessScorer().fit(X, y, sensitive_features=A.rename({"p0": "x"}))

    @pytest.mark.parametrize(
        ("table", "error"),
        [
            (X.rename(index={"p0": "nobody"}), UnknownIndividuals),
            (X.reset_index(drop=True), UnknownIndividuals),
            (pd.concat([X, X.iloc[:3]]), ValueError),
        ],
    )
    def test_strangers_and_duplicates_are_refused_free_of_charge(self, table, error):
        scorer = PrivateFairnessScorer().fit(X, y, sensitive_features=A)
        with pytest.raises(error):
            scorer(MODEL, table)
        assert scorer.auditor_.report()["remaining_"] == 1.0

    def test_an_estimators_own_error_passes_and_nothing_is_charged(self):
        class NeedsMore(ClassifierMixin, BaseEstimator):
            def predict(self, table, *, sensitive_features):
                return np.asarray(sensitive_features)

        scorer = PrivateFairnessScorer().fit(X, y, sensitive_features=A)
        with pytest.raises(TypeError, match="missing 1 required keyword-only argument"):
            scorer(NeedsMore(), X, y)
        assert scorer.auditor_.report()["remaining_"] == 1.0


class TestOneObject:
    def test_copies_of_a_fitted_scorer_share_what_was_spent(self):
        scorer = PrivateFairnessScorer().fit(X, y, sensitive_features=A)
        for other in (clone(scorer), copy.copy(scorer), copy.deepcopy(scorer)):
            assert other.auditor_ is scorer.auditor_
        search = GridSearchCV(LogisticRegression(), {"C": [1.0]}, scoring=scorer)
        assert clone(search).scoring.auditor_ is scorer.auditor_

    def test_copies_of_an_unfitted_scorer_are_new(self):
        scorer = PrivateFairnessScorer(epsilon=0.5, n_queries=3)
        assert clone(scorer) is not scorer
        assert clone(scorer).get_params() == scorer.get_params()

    def test_parameters_of_a_fitted_scorer_change_nothing_agreed(self):
        scorer = PrivateFairnessScorer(epsilon=0.5).fit(X, y, sensitive_features=A)
        scorer.set_params(epsilon=100.0, n_queries=1000)
        scorer.answer(MODEL.predict(X))
        with pytest.raises(PrivacyBudgetExceeded):
            scorer.answer(1 - MODEL.predict(X))

    def test_pickles_ask_and_hold_no_secret(self):
        scorer = PrivateFairnessScorer(n_queries=3).fit(X, y, sensitive_features=A)
        buffer = io.BytesIO()
        joblib.dump(scorer, buffer)
        search = GridSearchCV(LogisticRegression(), {"C": [1.0]}, scoring=scorer)
        shown = [pickle.dumps(scorer), buffer.getvalue(), pickle.dumps(search)]
        shown += [
            text.encode() for text in (repr(scorer), scorer._repr_html_(), repr(search), search._repr_html_())
        ]
        codes = scorer.auditor_._groups.codes
        patterns = [codes.tobytes(), codes.astype(np.uint8).tobytes(), codes.astype(bool).tobytes()]
        sizes = [str(int(size)).encode() for size in np.bincount(codes)]
        for blob in shown:
            assert not any(pattern in blob for pattern in patterns)
        for text in shown[3:]:
            assert not any(size in text for size in sizes if len(size) > 2)
        other = pickle.loads(shown[0])
        other.answer(MODEL.predict(X))
        assert scorer.auditor_.report()["n_answers_"] == 1

    def test_unfitted_scorers_say_what_is_missing(self):
        with pytest.raises(NotFittedError, match="no auditor"):
            PrivateFairnessScorer()(MODEL, X, y)
        with pytest.raises(ValueError, match="needs sensitive_features"):
            PrivateFairnessScorer().fit(X, y)
        with pytest.raises(ValueError, match="already holds"):
            PrivateFairnessScorer(auditor=FairnessAuditor(A)).fit(X, y, sensitive_features=A)

    @pytest.mark.parametrize(
        "bad",
        [
            {"epsilon": 0.0},
            {"epsilon": -1.0},
            {"epsilon": float("nan")},
            {"delta": 1.0},
            {"n_queries": 0},
            {"metric": "auc"},
            {"metric": len},
            {"mechanism": "magic"},
            {"response_method": "guess"},
            {"random_state": "x"},
        ],
    )
    def test_bad_parameters_are_refused_at_fit(self, bad):
        with pytest.raises(ValueError, match=r"must be|not supported|Supported|metric"):
            PrivateFairnessScorer(**bad).fit(X, y, sensitive_features=A)


class TestAnswerMany:
    def test_a_frame_has_one_column_a_model(self):
        scorer, Y = exact(), np.random.default_rng(0).random((3, N))
        frame = pd.DataFrame(Y.T, index=IDS).sample(frac=1, random_state=0)
        assert scorer.answer_many(frame).values == pytest.approx(scorer.answer_many(Y).values, abs=1e-12)

    def test_one_model_is_pointed_to_answer(self):
        with pytest.raises(ValueError, match="Use answer for one model"):
            exact().answer_many(np.zeros(N))

    def test_a_joint_release_is_one_answer_with_less_noise(self):
        Y = np.clip(MODEL.predict_proba(X)[:, 1] + np.linspace(-0.02, 0.02, 20)[:, None], 0, 1)
        scorer = PrivateFairnessScorer(mechanism="noisy_sums").fit(X, y, sensitive_features=A)
        answers = scorer.answer_many(Y)
        assert scorer.auditor_.report()["n_answers_"] == 1
        width = np.diff(answers.interval(0.5), axis=1).mean()
        single = PrivateFairnessScorer(mechanism="noisy_sums", n_queries=20).fit(X, y, sensitive_features=A)
        assert width < np.diff([single.answer(Y[0]).interval(0.5)], axis=1).mean()


class TestCounting:
    @pytest.mark.parametrize("train", [False, True])
    def test_counts_are_what_a_search_asks(self, train):
        scorer = PrivateFairnessScorer(
            n_queries=50, response_method="predict_proba", mechanism="noisy_sums"
        ).fit(X, y, sensitive_features=A)
        search = GridSearchCV(
            LogisticRegression(), {"C": [0.01, 0.1, 1.0]}, scoring=scorer, cv=4, return_train_score=train,
            refit=False,
        )  # fmt: skip
        count = scorer.preflight(search, X, y)
        search.fit(X, y)
        ledger = scorer.auditor_.ledger
        assert ledger.n_answers == count.total == 12 * (1 + train)
        assert count.per_individual == 3 * (4 if train else 1)
        assert ledger.spent_per_individual().max() == pytest.approx(count.per_individual / 50)

    def test_preflight_refuses_before_anything_is_fitted(self):
        scorer = PrivateFairnessScorer(n_queries=2).fit(X, y, sensitive_features=A)
        search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1, 10]}, scoring=scorer)
        with pytest.raises(PrivacyBudgetExceeded, match="n_queries=3"):
            scorer.preflight(search, X, y)
        assert scorer.auditor_.report()["n_answers_"] == 0

    @pytest.mark.parametrize("outer", ["accuracy", "the scorer"])
    def test_nested_searches_are_counted_on_every_level_that_asks(self, outer):
        scorer = PrivateFairnessScorer(
            n_queries=100, response_method="predict_proba", mechanism="noisy_sums"
        ).fit(X, y, sensitive_features=A)
        inner = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, scoring=scorer, cv=2)
        search = GridSearchCV(
            make_pipeline(StandardScaler(), inner),
            {"standardscaler__with_mean": [True, False]},
            scoring=scorer if outer == "the scorer" else "accuracy",
            cv=3,
        )
        count = scorer.preflight(search, X, y)
        search.fit(X, y)
        ledger = scorer.auditor_.ledger
        # Outer candidates 2 x 3 folds x inner 4 answers, the final fit 4, and the outer's own 6.
        assert count.total == 28 + (6 if outer == "the scorer" else 0)
        # Some models coincide, and a question that comes up twice is answered once.
        assert 0.3 * count.total <= ledger.n_answers <= count.total
        assert round(100 * ledger.spent_per_individual().max()) <= count.per_individual

    def test_preflight_counts_what_is_left(self):
        scorer = PrivateFairnessScorer(n_queries=3, mechanism="noisy_sums").fit(X, y, sensitive_features=A)
        search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0, 10.0]}, scoring=scorer)
        assert scorer.preflight(search, X, y).per_individual == 3
        scorer.answer(MODEL.predict(X))
        with pytest.raises(PrivacyBudgetExceeded, match="2 of the n_queries=3 agreed are left"):
            scorer.preflight(search, X, y)
        free = PrivateFairnessScorer(mechanism="randomized_response").fit(X, y, sensitive_features=A)
        assert free.preflight(search.set_params(scoring=free), X, y).per_individual == 3

    def test_threshold_tuning_takes_the_metric(self):
        scorer = PrivateFairnessScorer().fit(X, y, sensitive_features=A)
        with pytest.raises(AttributeError, match="as_metric"):
            TunedThresholdClassifierCV(LogisticRegression(), scoring=scorer).fit(X, y)

    def test_other_searches(self):
        assert count_answers(RepeatedKFold(n_splits=3, n_repeats=2), X).per_individual == 2
        assert count_answers(5, n_samples=100).total == 5
        tuned = TunedThresholdClassifierCV(LogisticRegression(), thresholds=7, cv=3)
        assert count_answers(tuned, X, y).per_individual == 7
        with pytest.raises(TypeError, match="not LogisticRegression"):
            count_answers(LogisticRegression(), X)
        with pytest.raises(ValueError, match="X or n_samples"):
            count_answers(5)

    def test_refit_refuses_missing_scores(self):
        refit = PrivateFairnessScorer().refit_by("parity")
        results = {"mean_test_parity": [-0.3, -0.1], "split0_test_parity": [-0.3, np.nan]}
        with pytest.raises(PrivacyBudgetExceeded, match="1 scores of the search are missing"):
            refit(results)
        results["split0_test_parity"] = [-0.3, -0.1]
        assert pickle.loads(pickle.dumps(refit))(results) == 1


def test_planning_needs_no_data():
    plan = PrivateFairnessScorer(epsilon=1.0).plan(n_queries=5, n_samples=1000)
    private = plan[plan["private"]]
    assert private["expected_error"].is_monotonic_increasing
    assert plan.index[0] == "noisy_sums"
    assert set(plan.index[~plan["private"]]) == {"exact", "rounded"}
    fitted = PrivateFairnessScorer(n_queries=5).fit(X, y, sensitive_features=A)
    assert fitted.plan().loc["noisy_sums", "expected_error"] == pytest.approx(
        PrivateFairnessScorer().plan(n_queries=5, n_samples=N).loc["noisy_sums", "expected_error"]
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PrivateFairnessScorer().plan(n_queries=100, n_samples=4)
    assert any("mostly noise" in str(w.message) for w in caught)
