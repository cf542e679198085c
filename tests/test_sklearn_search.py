"""Inside scikit-learn's searches: one ledger, fresh noise, loud refusals."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFECV, SequentialFeatureSelector
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_score,
    cross_validate,
    learning_curve,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sklearn_fairleak import FairnessAuditor, NotPrivateWarning, PrivacyBudgetExceeded

#: Small data on purpose: the scorer rightly says that its noise is large.
pytestmark = pytest.mark.filterwarnings("ignore:The noise of an answer")

N = 240
IDS = [f"p{i}" for i in range(N)]
rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(N, 3)), columns=list("abc"), index=IDS)
y = pd.Series((X["a"] + rng.normal(size=N) > 0).astype(int), index=IDS)
A = pd.Series(rng.choice(["f", "m"], N), index=IDS)
GRID = {"C": [0.01, 0.1, 1.0]}


def auditor(**kwargs):
    return FairnessAuditor(A, **({"epsilon": 1.0} | kwargs))


class Probe(ClassifierMixin, BaseEstimator):
    """Predict 1 for the rows whose id is below a target: near-identical models in order."""

    def __init__(self, target=0):
        self.target = target

    def fit(self, table, labels):
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, table):
        return np.array([int(name[1:]) < self.target for name in table.index]).astype(int)


@pytest.fixture(scope="module")
def parallel():
    """One search in two worker processes, shared by several tests."""
    held = auditor()
    scorer = held.scorer(n_queries=9, mechanism="noisy_sums", response_method="predict_proba")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The noise of an answer")
        search = GridSearchCV(
            LogisticRegression(),
            {"C": [0.01 * 2**k for k in range(9)]},
            scoring={"accuracy": "accuracy", "parity": scorer},
            refit="accuracy",
            cv=4,
            n_jobs=2,
        ).fit(X, y)
    return held, search


def test_every_worker_charges_the_one_ledger(parallel):
    held, _ = parallel
    assert held.report()["n_answers_"] == 9 * 4
    assert held.report()["remaining_"] == pytest.approx(0, abs=1e-9)


def test_every_answer_has_its_own_noise(parallel):
    """Models are near-identical, so equal noise would give near-equal scores."""
    _, search = parallel
    scores = np.array([search.cv_results_[f"split{k}_test_parity"] for k in range(4)])
    inside = scores[(scores > -1) & (scores < 0)]  # answers at the limits were clipped
    assert np.unique(inside.round(12)).size == inside.size > 20
    differences = np.diff(scores, axis=1)
    assert np.abs(differences).max() > 0.02


@pytest.mark.statistical
@pytest.mark.parametrize("n_jobs", [2, 4])
def test_differences_of_parallel_answers_carry_full_noise(n_jobs):
    """A naive scorer's score differences tell everyone's group; here they tell nothing."""
    held = auditor(epsilon=1.0)
    scorer = held.scorer(n_queries=N + 1, mechanism="noisy_sums", absolute=True)
    everyone = [(np.arange(N), np.arange(N))]
    search = GridSearchCV(
        Probe(), {"target": list(range(N + 1))}, scoring=scorer, cv=everyone, n_jobs=n_jobs, refit=False
    ).fit(X, y)
    jumps = np.diff(search.cv_results_["mean_test_score"])
    guess = np.where(jumps > 0, "m", "f")
    right = max(np.mean(guess == A), np.mean(guess != A))
    assert right < 0.5 + 4.5 * 0.5 / np.sqrt(N)


def test_seeded_noise_is_the_same_whatever_n_jobs():
    scores = []
    for n_jobs in (1, 2):
        with pytest.warns(NotPrivateWarning):
            scorer = auditor().scorer(n_queries=3, random_state=0, response_method="predict_proba")
        scores.append(cross_val_score(LogisticRegression(), X, y, scoring=scorer, cv=3, n_jobs=n_jobs))
    assert np.array_equal(*scores)
    assert np.unique(scores[0]).size == 3


class TestBudgetInASearch:
    def test_exhaustion_is_loud_and_recorded(self):
        held = auditor()
        scorer = held.scorer(n_queries=2, mechanism="noisy_sums", response_method="predict_proba")
        search = GridSearchCV(LogisticRegression(), GRID, scoring=scorer, cv=2, refit=scorer.refit_by())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(PrivacyBudgetExceeded, match="scores of the search are missing"):
                search.fit(X, y)
        assert any("epsilon=1 for n_queries=2" in str(w.message) for w in caught)
        assert scorer.refused_ == 2
        assert held.report()["n_refused_"] == 2

    def test_error_score_raise_stops_the_search(self):
        scorer = auditor().scorer(n_queries=1, mechanism="noisy_sums", response_method="predict_proba")
        search = GridSearchCV(LogisticRegression(), GRID, scoring=scorer, cv=2, error_score="raise")
        with pytest.warns(UserWarning, match="PrivacyBudgetExceeded"), pytest.raises(PrivacyBudgetExceeded):
            search.fit(X, y)

    def test_workers_refusals_are_seen_in_this_process(self, capfd):
        held = auditor()
        scorer = held.scorer(n_queries=1, mechanism="noisy_sums", response_method="predict_proba")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            GridSearchCV(LogisticRegression(), GRID, scoring=scorer, cv=2, n_jobs=2, refit=False).fit(X, y)
        assert scorer.refused_ == 4
        assert any("is used up" in str(w.message) for w in caught)


def _metric_of(scorer):
    """Return the scorer's metric function; None only while names are collected."""
    return None if scorer is None else scorer.as_metric()


def run_all(scorer):
    """Yield every scikit-learn consumer of a scorer."""
    lr = LogisticRegression()
    yield "cross_val_score", lambda: cross_val_score(lr, X, y, scoring=scorer, cv=2)
    yield (
        "cross_validate, train scores",
        lambda: cross_validate(lr, X, y, scoring={"s": scorer}, cv=2, return_train_score=True),
    )
    yield "numpy X", lambda: cross_val_score(lr, X.to_numpy(), y, scoring=scorer, cv=2)
    yield "numpy y", lambda: cross_val_score(lr, X, y.to_numpy(), scoring=scorer, cv=2)
    yield (
        "weights in a dict",
        lambda: GridSearchCV(lr, {"C": [1.0]}, scoring={"a": "accuracy", "s": scorer}, refit="a", cv=2).fit(
            X, y, sample_weight=np.ones(N)
        ),
    )
    yield (
        "callable that returns a dict",
        lambda: GridSearchCV(
            lr, {"C": [1.0]}, scoring=lambda e, X_, y_: {"s": scorer(e, X_, y_)}, refit="s", cv=2
        ).fit(X, y),
    )
    yield "randomised", lambda: RandomizedSearchCV(lr, GRID, n_iter=2, scoring=scorer, cv=2).fit(X, y)
    yield (
        "halving",
        lambda: HalvingGridSearchCV(lr, GRID, scoring=scorer, cv=2, min_resources=60, random_state=0).fit(
            X, y
        ),
    )
    yield (
        "nested",
        lambda: cross_validate(GridSearchCV(lr, {"C": [0.1, 1]}, scoring=scorer, cv=2), X, y, cv=2),
    )
    yield "learning curve", lambda: learning_curve(lr, X, y, scoring=scorer, cv=2, train_sizes=[0.5, 1.0])
    yield (
        "permutation importance",
        lambda: permutation_importance(lr.fit(X, y), X, y, scoring=scorer, n_repeats=1, random_state=0),
    )
    yield (
        "sequential selection",
        lambda: SequentialFeatureSelector(lr, scoring=scorer, cv=2, n_features_to_select=1).fit(
            X.set_axis(X.columns, axis=1), y
        ),
    )
    yield (
        "threshold tuning",
        lambda: TunedThresholdClassifierCV(
            lr,
            scoring=make_scorer(_metric_of(scorer), greater_is_better=False),
            cv=2,
            thresholds=4,
        ).fit(X, y),
    )
    yield (
        "pipeline",
        lambda: cross_val_score(
            make_pipeline(
                make_column_transformer((StandardScaler(), ["a", "b"]), (OneHotEncoder(), ["d"])), lr
            ),
            X.assign(d=np.arange(N) % 3),
            y,
            scoring=scorer,
            cv=2,
        ),
    )
    yield (
        "polars inside",
        lambda: cross_val_score(
            make_pipeline(StandardScaler().set_output(transform="polars"), lr), X, y, scoring=scorer, cv=2
        ),
    )


NAMES = [name for name, _ in run_all(None)]


@pytest.mark.parametrize("name", NAMES)
def test_consumers_get_numbers_and_charge_the_ledger(name):
    if name == "polars inside":
        pytest.importorskip("polars")
    held = auditor()
    scorer = held.scorer(n_queries=100, mechanism="noisy_sums")
    call = dict(run_all(scorer))[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="The noise of an answer")
        # Newer scikit-learn says itself that weights do not reach this scorer.
        warnings.filterwarnings("ignore", message="(?s).*does not support sample_weight")
        call()
    assert held.report()["n_answers_"] > 0


def test_searches_that_lose_the_index_say_how_to_route_ids():
    """RFECV hands over NumPy columns and, in some versions, labels without an index."""
    held = auditor()
    scorer = held.scorer(n_queries=50, mechanism="noisy_sums")
    for search in (
        RFECV(LogisticRegression(), scoring=scorer, cv=2),
        LogisticRegressionCV(Cs=2, scoring=scorer, cv=2),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before = held.report()["n_answers_"]
            try:
                search.fit(X, y)
                answered = held.report()["n_answers_"] > before
            except TypeError as error:
                answered = "route ids as metadata" in str(error)
        assert answered


def test_the_scorer_is_usable_as_a_metric():
    held = auditor()
    scorer = held.scorer(n_queries=4)
    wrapped = make_scorer(scorer.as_metric(), greater_is_better=False)
    assert (cross_val_score(LogisticRegression(), X, y, scoring=wrapped, cv=2) <= 0).all()
    assert held.report()["n_answers_"] == 2


def test_folds_too_small_for_the_noise_are_said_so_once():
    """A halving search scores folds of a few rows; public numbers tell that this is noise."""
    scorer = auditor().scorer(n_queries=20, mechanism="noisy_sums")
    small = X.iloc[:60]
    with pytest.warns(UserWarning, match="exceeds the range of possible gaps") as caught:
        HalvingGridSearchCV(
            LogisticRegression(), GRID, scoring=scorer, cv=2, min_resources=20, random_state=0
        ).fit(small, y.loc[small.index])
    assert sum("exceeds the range" in str(w.message) for w in caught) == 1


def test_single_group_folds_score_like_any_other():
    held = FairnessAuditor(["f"] * 120 + ["m"] * 120, ids=IDS, epsilon=1.0)
    folds = [(np.arange(120), np.arange(120, N)), (np.arange(120, N), np.arange(120))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = cross_val_score(LogisticRegression(), X, y, scoring=held.scorer(), cv=folds)
    assert np.isfinite(scores).all()
    assert held.report()["n_answers_"] == 2
