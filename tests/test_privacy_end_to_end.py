"""The auditor, from the outside, of everything that a developer sees: composition as it is claimed.

A session is what a developer does with one budget. It is repeated many times on each of two
neighbouring data sets; what it released is compared, and what the ledger charged one person for it
is the claim. Every repetition moves the predictions by less than the grid on which they are summed:
another question, so that nothing is replayed, with the same law.
"""

import itertools
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from sklearn_fairleak import FairnessAuditor, PrivacyLedger, PrivateMetricFrame
from sklearn_fairleak.noise import SecureNoise
from sklearn_fairleak.privacy_audit import audit_privacy
from sklearn_fairleak.selection import first_within, passes_threshold, select_least_biased

pytestmark = [
    pytest.mark.statistical,
    pytest.mark.filterwarnings("ignore:The noise of an answer"),
    pytest.mark.filterwarnings("ignore:epsilon=.* barely protects"),
]

IDS = [f"p{i}" for i in range(6)]
#: The person who changes groups is the first; these values move the sums most.
CODES, NEIGHBOUR = np.array([0, 0, 1, 1, 0, 1]), np.array([1, 0, 1, 1, 0, 1])
MODELS = np.array([[1, 0, 0, 1, 0, 0], [1, 1, 0, 0, 0, 1], [1, 0, 1, 0, 0, 0]], dtype=float)
BIG = Fraction(10**6)


class Office:
    """Two compliance sides, one for each data set, with budget for every repetition."""

    def __init__(self):
        self.numbers = itertools.count(1)
        self.auditors = {}
        for codes in (CODES, NEIGHBOUR):
            ledger = PrivacyLedger(epsilon=BIG)
            self.auditors[codes.tobytes()] = FairnessAuditor(codes, ids=IDS, groups=(0, 1), ledger=ledger)
        self.claims = set()

    def close(self):
        for auditor in self.auditors.values():
            auditor.ledger.close()

    def models(self, rows=MODELS):
        """The same predictions to the grid, and a question never asked before."""
        step = next(self.numbers) * 2.0**-40
        return np.where(np.asarray(rows) > 0.5, 1.0 - step, step)

    def measure(self, session, *, n_draws, epsilon):
        """Audit a session against what the ledger says that it cost the person asked about most."""
        errors = []

        def box(values, codes):
            auditor = self.auditors[codes.tobytes()]
            before = auditor.ledger.spent().epsilon
            try:
                shown = np.ravel(session(auditor))
            except Exception as error:
                # To the audit an exception is an output like any other; here none is expected.
                errors.append(error)
                raise
            self.claims.add(auditor.ledger.spent().epsilon - before)
            return shown

        pair = [(MODELS[:1], CODES, NEIGHBOUR)]
        audit = audit_privacy(
            box, epsilon=epsilon, pairs=pair, n_draws=n_draws, confidence=0.999, random_state=0
        )
        assert not errors, errors[0]
        # The same in every repetition, whatever the secret; shares are rounded down to the ledger's grid.
        assert epsilon - 1e-9 < min(self.claims) <= max(self.claims) <= epsilon
        assert audit.passed, audit
        return audit.epsilon_lower


@pytest.fixture
def office(monkeypatch):
    """Noise of a fixed generator in place of the system's entropy, so that a run can be repeated."""
    generator = np.random.Philox(7)
    monkeypatch.setattr(SecureNoise, "words", lambda self, size: generator.random_raw(size))
    office = Office()
    yield office
    office.close()


def released(answer):
    """The noisy numbers of an answer, to the grid: finer digits would number the repetitions."""
    release = getattr(answer, "answers", answer).release
    parts = [np.ravel(part) for part in (release.gaps, release.sums, release.counts) if part is not None]
    noisy = np.rint(np.concatenate(parts) * 2.0**18) / 2.0**18
    return np.append(noisy, noisy.sum())


class Threshold(RegressorMixin, BaseEstimator):
    """Predict what the column of a model says: nothing is learned."""

    def __init__(self, model=0):
        self.model = model

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict(self, X):
        return X.iloc[:, self.model].to_numpy()


class TestScorer:
    @pytest.mark.parametrize("mechanism", ["noisy_sums", "laplace", "attribute_conceal"])
    def test_three_answers_cost_what_three_answers_reveal(self, office, mechanism):
        def session(auditor):
            scorer = auditor.scorer(mechanism=mechanism, epsilon=3.0, n_queries=3)
            return np.concatenate([released(scorer.answer(row)) for row in office.models()])

        lower = office.measure(session, n_draws=300, epsilon=3.0)
        if mechanism == "noisy_sums":
            # Not a bound that anything would keep to.
            assert lower > 0.5

    def test_a_joint_release_costs_one_answer(self, office):
        def session(auditor):
            scorer = auditor.scorer(mechanism="noisy_sums", epsilon=2.0)
            return released(scorer.answer_many(office.models()))

        office.measure(session, n_draws=300, epsilon=2.0)

    def test_a_replay_is_the_same_answer_for_nothing(self, office):
        def session(auditor):
            scorer = auditor.scorer(mechanism="noisy_sums", epsilon=3.0, n_queries=3)
            row = office.models()[0]
            spent = auditor.ledger.spent()
            first = released(scorer.answer(row))
            once = auditor.ledger.spent()
            other = auditor.scorer(mechanism="noisy_sums", epsilon=3.0, n_queries=3)
            again = [scorer.answer(row), other.answer(row), scorer.answer(pd.Series(row).tolist())]
            assert all(answer.replayed for answer in again)
            assert all(np.array_equal(released(answer), first) for answer in again)
            assert auditor.ledger.spent() == once != spent
            return np.concatenate([first, *map(released, again)])

        # A third of the budget, however often it is asked.
        office.measure(session, n_draws=250, epsilon=1.0)

    def test_a_private_copy_is_paid_once_for_all_answers(self, office):
        def session(auditor):
            # Copies of the same price are one copy, so each session pays a little less.
            price = 2.0 - next(office.numbers) * 2.0**-46
            scorer = auditor.scorer(mechanism="randomized_response", epsilon=price, n_queries=3)
            return np.concatenate([released(scorer.answer(row)) for row in MODELS])

        assert office.measure(session, n_draws=250, epsilon=2.0) > 0.2

    def test_disjoint_people_share_no_cost(self, office):
        """Two answers about disjoint halves cost each person one of them."""

        def session(auditor):
            scorer = auditor.scorer(mechanism="noisy_sums", epsilon=2.0)
            row = office.models()[0]
            halves = [
                scorer.answer(row[part], sample_ids=[IDS[i] for i in part]) for part in ([0, 2, 4], [1, 3, 5])
            ]
            return np.concatenate([released(answer) for answer in halves])

        assert office.measure(session, n_draws=300, epsilon=2.0) > 0.3


class TestSearches:
    def frame(self, office):
        return pd.DataFrame(office.models().T, index=IDS, columns=["a", "b", "c"])

    def test_grid_search_costs_candidates_and_not_folds(self, office):
        def session(auditor):
            X = self.frame(office)
            scorer = auditor.scorer(mechanism="noisy_sums", epsilon=4.0, n_queries=2)
            search = GridSearchCV(Threshold(), {"model": [0, 1]}, scoring=scorer, cv=KFold(2), refit=False)
            results = search.fit(X, np.zeros(6)).cv_results_
            return [results[f"split{fold}_test_score"] for fold in range(2)]

        office.measure(session, n_draws=100, epsilon=4.0)

    def test_repeats_add_up(self, office):
        def session(auditor):
            X = self.frame(office)
            scorer = auditor.scorer(mechanism="noisy_sums", epsilon=4.0, n_queries=2)
            scores = []
            for model in range(2):
                scores += list(cross_val_score(Threshold(model), X, np.zeros(6), scoring=scorer, cv=KFold(2)))
            return scores

        office.measure(session, n_draws=100, epsilon=4.0)


class TestChoices:
    def test_selection_costs_one_choice(self, office):
        def session(auditor):
            choice = select_least_biased(office.models(), auditor=auditor, epsilon=3.0)
            return [choice.index]

        office.measure(session, n_draws=500, epsilon=3.0)

    def test_threshold_tests(self, office):
        def session(auditor):
            verdict = passes_threshold(office.models(), 0.4, auditor=auditor, epsilon=3.0)
            return list(verdict.passed)

        office.measure(session, n_draws=500, epsilon=3.0)

    def test_first_within(self, office):
        def session(auditor):
            choice = first_within(office.models(), 0.4, auditor=auditor, epsilon=3.0)
            return [-1 if choice.index is None else choice.index]

        office.measure(session, n_draws=500, epsilon=3.0)

    def test_a_choice_and_an_answer_add_up(self, office):
        def session(auditor):
            rows = office.models()
            chosen = select_least_biased(rows, auditor=auditor, epsilon=1.0).index
            scorer = auditor.scorer(mechanism="noisy_sums", epsilon=2.0)
            return np.concatenate([[chosen], released(scorer.answer(rows[0]))])

        assert office.measure(session, n_draws=300, epsilon=3.0) > 0.3


class TestFrames:
    def test_metrics_of_a_frame_share_one_price(self, office):
        from fairlearn.metrics import selection_rate
        from sklearn.metrics import accuracy_score

        metrics = {"rate": selection_rate, "accuracy": accuracy_score}
        y = np.array([0, 1, 0, 1, 1, 0])
        for codes in (CODES, NEIGHBOUR):
            office.auditors[codes.tobytes()] = Shelf(codes, PrivacyLedger(epsilon=BIG))

        def session(shelf):
            # Equal weights change no law, and make a question of their own.
            weights = np.full(6, 1.0 + next(office.numbers) * 2.0**-34)
            frame = PrivateMetricFrame(
                metrics=metrics,
                y_true=y,
                y_pred=MODELS[0].astype(int),
                sensitive_features=shelf.codes,
                groups=(0, 1),
                sample_params={name: {"sample_weight": weights} for name in metrics},
                epsilon=2.0,
                ledger=shelf.ledger,
            )
            return np.nan_to_num(np.ravel(frame.by_group.to_numpy()), nan=-1.0)

        office.measure(session, n_draws=100, epsilon=2.0)


class Shelf(NamedTuple):
    """Where frames about one data set are charged."""

    codes: np.ndarray
    ledger: PrivacyLedger


def test_a_session_that_is_charged_too_little_is_found(office):
    """The counterpart: the third answer about the same predictions for the price of two."""

    aside = {auditor: PrivacyLedger(epsilon=BIG) for auditor in office.auditors.values()}

    def session(auditor):
        rows = office.models()
        scorer = auditor.scorer(mechanism="noisy_sums", epsilon=2.0, n_queries=2)
        honest = [released(scorer.answer(row)) for row in rows[:2]]
        hidden = FairnessAuditor(auditor._groups.codes, ids=IDS, groups=(0, 1), ledger=aside[auditor])
        unseen = hidden.scorer(mechanism="noisy_sums", epsilon=20.0).answer(rows[0])
        return np.concatenate([*honest, released(unseen)])

    with pytest.raises(AssertionError, match="epsilon_lower="):
        office.measure(session, n_draws=250, epsilon=2.0)
    for ledger in aside.values():
        ledger.close()
