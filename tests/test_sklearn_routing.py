"""Metadata routing: ids are asked for by default, weights only on purpose."""

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate

from sklearn_fairleak import FairnessAuditor, PrivateFairnessScorer

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
