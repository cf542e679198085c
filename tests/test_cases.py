"""Situations from real use that fairness and privacy tools got wrong, with the right outcome."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from fairlearn.metrics import demographic_parity_difference
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix, roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_fairleak import (
    FairnessAuditor,
    NotPrivateWarning,
    PrivacyBudgetExceeded,
    PrivateFairnessScorer,
    UnknownIndividuals,
)
from sklearn_fairleak.planning import plan

#: Small data on purpose: the scorer rightly says that its noise is large.
pytestmark = pytest.mark.filterwarnings("ignore:The noise of an answer")

IDS = [f"p{i}" for i in range(8)]
X = pd.DataFrame({"x": np.arange(8.0)}, index=IDS)
Y = pd.Series([0, 1, 0, 1, 0, 1, 1, 1], index=IDS)
PRED = np.array([0, 1, 0, 1, 1, 1, 0, 1])
A = pd.Series([0, 0, 0, 1, 1, 1, 1, 0], index=IDS, name="A")


def exact(y_pred=PRED, y_true=None, *, a=A, metric="statistical_parity", **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        return FairnessAuditor(a).answer(y_pred, y_true, metric=metric, mechanism="exact", **settings).value


class TestLabelsAndPredictions:
    TEXT = np.where(PRED == 1, "Yes", "No")

    def test_string_labels(self):
        assert demographic_parity_difference(Y, self.TEXT == "x", sensitive_features=A) == 0.0
        with pytest.raises(ValueError, match=r"'No', 'Yes'.*pos_label"):
            exact(self.TEXT)
        assert exact(self.TEXT, pos_label="Yes") == exact()

    def test_labels_one_two_and_minus_one_one(self):
        assert exact(2 * PRED - 1, 2 * Y - 1, metric="equal_opportunity") == exact(
            PRED, Y, metric="equal_opportunity"
        )
        with pytest.raises(ValueError, match="pos_label"):
            exact(PRED + 1, Y + 1, metric="equal_opportunity")
        assert exact(PRED + 1, Y + 1, metric="equal_opportunity", pos_label=2) == exact(
            PRED, Y, metric="equal_opportunity"
        )

    def test_multi_class_is_one_versus_rest(self):
        y4, p4 = np.array([0, 1, 2, 0, 1, 2, 0, 1]), np.array([0, 2, 2, 0, 1, 1, 0, 1])
        auditor = FairnessAuditor(A)
        with pytest.raises(ValueError, match="pos_label"):
            auditor.answer(p4, y4, metric="accuracy_parity")
        assert auditor.report()["remaining_"] == 1.0
        assert exact(p4, y4, metric="statistical_parity", pos_label=2) == exact((p4 == 2).astype(int))

    def test_regression_predictions(self):
        p5 = np.random.default_rng(0).normal(size=8)
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            exact(p5)
        assert exact(p5, bounds=(0, 1)) == exact(np.clip(p5, 0, 1))

    def test_booleans_are_labels_never_masks(self):
        for p in (
            PRED.astype(bool),
            np.array(PRED.astype(bool), dtype=object),
            pd.Series(PRED == 1, index=IDS),
        ):
            assert exact(p, Y.astype(bool), metric="equalized_odds") == exact(
                PRED, Y, metric="equalized_odds"
            )

    def test_nullable_categorical_and_string_dtypes(self):
        text = A.map({0: "m", 1: "f"}).astype("string")
        y7, p7 = Y.astype("Int64"), pd.Series(PRED, index=IDS).astype("boolean")
        assert exact(p7, y7, a=text, metric="equal_opportunity") == exact(PRED, Y, metric="equal_opportunity")
        unused = A.astype("category").cat.set_categories([0, 1, 2])
        answers = FairnessAuditor(unused).answer(PRED).answers
        assert answers.by_group().shape == (1, 3)
        assert np.isfinite(answers.by_group()).all()

    def test_missing_labels_are_refused_before_a_charge(self):
        y8 = Y.astype("Int64").copy()
        y8.iloc[2] = pd.NA
        auditor = FairnessAuditor(A)
        with pytest.raises(ValueError, match="y_true holds missing"):
            auditor.answer(PRED, y8, metric="equal_opportunity")
        assert auditor.report()["remaining_"] == 1.0

    def test_constant_predictions(self):
        auditor = FairnessAuditor(A)
        assert np.isfinite(auditor.answer(np.zeros(8, dtype=int)).value)
        assert auditor.report()["remaining_"] == 0
        ratio = FairnessAuditor(A).answer(np.zeros(8, dtype=int), metric="demographic_parity_ratio").value
        assert 0 <= ratio <= 1


class TestGroups:
    def test_missing_values_are_decided_when_the_auditor_is_built(self):
        for a in (A.astype("float"), A.map({0: "m", 1: "f"}).astype(object)):
            a = a.copy()
            a.iloc[3] = None
            with pytest.raises(ValueError, match="missing='group'"):
                FairnessAuditor(a)
            assert np.isfinite(FairnessAuditor(a, missing="group").answer(PRED).value)

    def test_three_groups_are_one_answer(self):
        a = pd.Series(list("aabbccaa"), index=IDS)
        auditor = FairnessAuditor(a, groups=list("abc"))
        assert auditor.answer(PRED).answers.by_group().shape == (1, 3)
        assert auditor.report()["remaining_"] == 0.0

    def test_group_labels_must_be_public(self):
        a = A.map({0: "m", 1: "f"}).astype(object).copy()
        a.iloc[0] = "intersex"
        with pytest.warns(UserWarning, match="becomes public"):
            FairnessAuditor(a)
        auditor = FairnessAuditor(A.map({0: "m", 1: "f"}), groups=["m", "f", "intersex"])
        assert auditor.answer(PRED).answers.by_group().shape == (1, 3)

    def test_a_single_group_fold_is_like_any_other(self):
        a = pd.Series([0, 0, 0, 0, 1, 1, 1, 1], index=IDS)
        auditor = FairnessAuditor(a)
        scorer, charges = auditor.scorer(), []
        for _, test in KFold(2).split(X):
            assert np.isfinite(scorer.answer(PRED[test], sample_ids=np.array(IDS)[test]).value)
            charges.append(auditor.report()["remaining_"])
        assert charges == [0.0, 0.0]

    def test_small_groups_are_not_suppressed(self):
        a = pd.Series([0] * 7 + [1], index=IDS)
        low, high = FairnessAuditor(a).answer(PRED).interval()
        assert high - low > 0.5
        with pytest.warns(UserWarning, match="mostly noise"):
            plan(8, n_queries=10)

    def test_continuous_attributes_need_public_edges(self):
        age = pd.Series([23.5, 31.0, 44.2, 18.0, 67.0, 52.0, 39.0, 29.0], index=IDS, name="age")
        with pytest.raises(ValueError, match="continuous"):
            FairnessAuditor(age)
        assert FairnessAuditor(age, bins=[0, 30, 50, 120]).groups == ("[0, 30)", "[30, 50)", "[50, 120)")


class TestIdentityOfRows:
    def scorer(self, **kwargs):
        return PrivateFairnessScorer(n_queries=4, **kwargs).fit(X, Y, sensitive_features=A)

    def test_numpy_in_a_search(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cross_val_score(LogisticRegression(), X.to_numpy(), Y.to_numpy(), scoring=self.scorer(), cv=2)
        assert any("No sample ids" in str(w.message) for w in caught)

    def test_reset_index_hides_a_shuffle_from_labels_not_from_fingerprints(self):
        mixed = X.sample(frac=1, random_state=1)
        scorer = PrivateFairnessScorer().fit(
            X.reset_index(drop=True), Y.reset_index(drop=True), sensitive_features=A.reset_index(drop=True)
        )
        model = LogisticRegression().fit(X, Y)
        with pytest.raises(ValueError, match="shuffled"):
            scorer(model, mixed.reset_index(drop=True))
        assert scorer.auditor_.report()["remaining_"] == 1.0

    def test_duplicate_and_unknown_ids(self):
        model = LogisticRegression().fit(X, Y)
        with pytest.raises(ValueError, match="more than once"):
            self.scorer()(model, pd.concat([X, X.iloc[:3]]))
        with pytest.raises(UnknownIndividuals, match="1 of 8"):
            self.scorer()(model, X.rename(index={"p0": "nobody"}))
        assert issubclass(UnknownIndividuals, KeyError)
        with pytest.raises(ValueError, match="unique"):
            FairnessAuditor(pd.concat([A, A.iloc[:1]]))

    def test_polars_by_column(self):
        polars = pytest.importorskip("polars")
        table = polars.from_pandas(X.reset_index(names="id"))

        class Model(ClassifierMixin, BaseEstimator):
            def predict(self, frame):
                return PRED

        scorer = PrivateFairnessScorer(id_column="id").fit(table, sensitive_features=A.to_numpy())
        assert scorer(Model(), table) <= 0
        with pytest.raises(TypeError, match="No sample ids"):
            self.scorer()(Model(), table)

    def test_pipelines_and_sparse_tables(self):
        pipe = make_pipeline(StandardScaler().set_output(transform="default"), LogisticRegression())
        assert np.isfinite(cross_val_score(pipe, X, Y, scoring=self.scorer(), cv=2)).all()
        sparse = sp.csr_matrix(X.to_numpy())
        assert np.isfinite(
            cross_val_score(LogisticRegression(), sparse, Y, scoring=self.scorer(), cv=2)
        ).all()


class TestSearches:
    def test_parallel_answers_are_independent_and_charged_once(self):
        auditor = FairnessAuditor(A)
        scorer = auditor.scorer(n_queries=3, response_method="predict_proba", mechanism="noisy_sums")
        grid = {"C": [0.1, 1.0, 10.0]}
        search = GridSearchCV(LogisticRegression(), grid, scoring=scorer, cv=2, n_jobs=2, refit=False).fit(
            X, Y
        )
        assert auditor.report()["n_answers_"] == 6
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()

    def test_clones_share_the_ledger(self):
        scorer = FairnessAuditor(A).scorer()
        search = GridSearchCV(LogisticRegression(), {"C": [1.0]}, scoring=scorer, cv=2)
        assert clone(search).scoring.auditor_ is scorer.auditor_

    def test_train_scores_multiply_what_a_person_pays(self):
        scorer = FairnessAuditor(A).scorer()
        search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0, 10.0]}, scoring=scorer, cv=5)
        assert scorer.count_answers(search, n_samples=100).per_individual == 3
        search.set_params(return_train_score=True)
        assert scorer.count_answers(search, n_samples=100).per_individual == 15

    def test_an_exhausted_budget_does_not_choose_a_model(self):
        auditor = FairnessAuditor(A, epsilon=2.0)
        scorer = auditor.scorer(n_queries=2, response_method="predict_proba", mechanism="noisy_sums")
        search = GridSearchCV(
            LogisticRegression(), {"C": [0.1, 1.0, 10.0]}, scoring=scorer, cv=2, refit=scorer.refit_by()
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(PrivacyBudgetExceeded):
                search.fit(X, Y)
        assert auditor.report()["n_refused_"] == 2

    def test_weights_in_a_dict_of_scorers(self):
        scorer = FairnessAuditor(A).scorer()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            GridSearchCV(
                LogisticRegression(),
                {"C": [1.0]},
                scoring={"acc": "accuracy", "sp": scorer},
                refit="acc",
                cv=2,
            ).fit(X, Y, sample_weight=np.ones(8))
        assert scorer.auditor_.report()["n_answers_"] == 2

    def test_zero_weights(self):
        w = np.array([0, 0, 0, 5.0, 1, 1, 1, 1])
        assert np.isfinite(FairnessAuditor(A).answer(PRED, sample_weight=w).value)
        with pytest.raises(ValueError, match="all zero"):
            FairnessAuditor(A).answer(PRED, sample_weight=np.zeros(8))

    def test_higher_is_better(self):
        fair, unfair = np.array([0, 1, 0, 0, 1, 0, 1, 1]), A.to_numpy()

        class Model(ClassifierMixin, BaseEstimator):
            def __init__(self, values=None):
                self.values = values

            def predict(self, table):
                return self.values

        with pytest.warns(NotPrivateWarning):
            scorer = FairnessAuditor(A).scorer(mechanism="exact")
        assert scorer(Model(fair), X) > scorer(Model(unfair), X) == -1.0


class TestPrivacyEngine:
    def test_seeds_warn_and_mark_answers(self):
        with pytest.warns(NotPrivateWarning):
            answer = FairnessAuditor(A, random_state=7).answer(PRED)
        assert not answer.is_private

    def test_released_counts_are_whole_numbers(self):
        for _ in range(20):
            answer = FairnessAuditor(A).answer(PRED, mechanism="noisy_sums")
            sums = answer.answers.release.sums
            assert np.array_equal(sums, np.rint(sums))

    def test_nan_predictions_are_refused_before_the_charge(self):
        auditor = FairnessAuditor(A)
        with pytest.raises(ValueError, match="NaN"):
            auditor.answer(np.array([0, 1, np.nan, 1, 1, 1, 0, 1]))
        assert auditor.report()["remaining_"] == 1.0

    def test_reports_show_the_budget_and_nobody(self):
        auditor = FairnessAuditor(A)
        auditor.answer(PRED)
        assert {"spent_", "remaining_", "n_answers_"} <= set(auditor.report())

    def test_a_million_people(self):
        rng = np.random.default_rng(0)
        n = 1_000_000
        auditor = FairnessAuditor(pd.Series(rng.integers(0, 2, n)))
        answer = auditor.answer(rng.integers(0, 2, n))
        assert answer.value < 0.01

    @pytest.mark.parametrize("metric", [confusion_matrix, roc_auc_score])
    def test_arbitrary_functions_are_refused_by_name(self, metric):
        with pytest.raises(ValueError, match="statistical_parity"):
            FairnessAuditor(A).scorer(metric)
