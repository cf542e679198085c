"""The compliance side: budgets, replays, the A-free rule, and what never leaves."""

import copy
import json
import pickle
import warnings
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from sklearn_fairleak import (
    FairnessAuditor,
    LedgerIntegrityError,
    NotPrivateWarning,
    PrivacyBudgetExceeded,
    PrivacyLedger,
    UnknownIndividuals,
)
from sklearn_fairleak.answers import PrivateAnswers
from sklearn_fairleak.mechanisms import NoisySums

N = 200
IDS = [f"p{i}" for i in range(N)]


def race(seed=0, n=N, labels=("b", "w")):
    return pd.Series(np.random.default_rng(seed).choice(labels, n), index=IDS[:n])


def models(m, seed=0):
    return np.random.default_rng(seed).random((m, N))


class TestBudget:
    def test_answers_beyond_the_budget_are_refused_and_free(self):
        auditor = FairnessAuditor(race(), epsilon=1.0)
        scorer = auditor.scorer(n_queries=3)
        for y_pred in models(3):
            scorer.answer(y_pred)
        assert auditor.ledger.remaining() == pytest.approx(0, abs=1e-12)
        with pytest.raises(PrivacyBudgetExceeded):
            scorer.answer(models(1, seed=9)[0])
        assert auditor.report()["n_answers_"] == 3
        assert scorer.refused_ == 1

    def test_the_same_question_is_answered_once(self):
        scorer = FairnessAuditor(race(), epsilon=1.0).scorer()
        first, again = (scorer.answer(models(1)[0]) for _ in range(2))
        assert first.value == again.value
        assert (first.replayed, again.replayed) == (False, True)

    def test_two_scorers_share_the_ledger(self):
        auditor = FairnessAuditor(race(), epsilon=1.0)
        auditor.scorer(epsilon=0.5).answer(models(1)[0])
        auditor.scorer(epsilon=0.5).answer(models(1, seed=1)[0])
        with pytest.raises(PrivacyBudgetExceeded):
            auditor.scorer(epsilon=0.5).answer(models(1, seed=2)[0])

    def test_disjoint_people_cost_the_maximum(self):
        auditor = FairnessAuditor(race(), epsilon=1.0)
        scorer = auditor.scorer()
        for fold in np.array_split(np.arange(N), 5):
            scorer.answer(np.arange(len(fold)) % 2, sample_ids=np.array(IDS)[fold])
        assert auditor.ledger.remaining() == 0
        assert auditor.report()["n_answers_"] == 5

    def test_true_and_false_positive_rates_are_about_different_people(self):
        auditor, y = FairnessAuditor(race(), epsilon=1.0), np.arange(N) % 2
        auditor.scorer("equal_opportunity").answer(models(1)[0], y)
        auditor.scorer("false_positive_rate_parity").answer(models(1)[0], y)
        assert auditor.ledger.remaining() == 0
        with pytest.raises(PrivacyBudgetExceeded):
            auditor.scorer("statistical_parity", epsilon=0.1).answer(models(1)[0])

    def test_randomized_response_pays_once_for_everything(self):
        auditor = FairnessAuditor(race(), epsilon=1.0)
        scorer = auditor.scorer(mechanism="randomized_response")
        values = {scorer.answer(y_pred).value for y_pred in models(20)}
        assert len(values) == 20
        assert auditor.ledger.remaining() == 0

    def test_auto_keeps_to_its_first_choice(self):
        scorer = FairnessAuditor(race(), epsilon=1.0).scorer()
        assert scorer.answer_many(models(150)).mechanism == "randomized_response"
        assert scorer.answer(models(1, seed=3)[0]).mechanism == "randomized_response"

    def test_gaussian_answers_are_counted_in_zcdp(self):
        auditor = FairnessAuditor(race(), epsilon=1.0, delta=1e-6)
        scorer = auditor.scorer(mechanism=NoisySums("gaussian"), n_queries=4)
        answers = [scorer.answer(y_pred) for y_pred in models(4)]
        assert answers[0].answers.rho > 0
        assert sum(answer.epsilon for answer in answers) > 1  # zCDP composes better than this sum
        with pytest.raises(PrivacyBudgetExceeded):
            scorer.answer(models(1, seed=8)[0])

    @pytest.mark.parametrize(
        "bad",
        [
            {"epsilon": 0},
            {"epsilon": -1},
            {"epsilon": float("nan")},
            {"epsilon": float("inf")},
            {"delta": -0.1},
            {"delta": 1.0},
            {"delta": float("nan")},
        ],
    )
    def test_meaningless_budgets_are_refused(self, bad):
        with pytest.raises(ValueError, match=r"epsilon must be|delta must be"):
            FairnessAuditor(race(), **bad)

    @pytest.mark.parametrize("n_queries", [0, -1, 1.5, True])
    def test_meaningless_numbers_of_queries_are_refused(self, n_queries):
        with pytest.raises(ValueError, match="n_queries"):
            FairnessAuditor(race()).scorer(n_queries=n_queries)

    def test_a_budget_that_barely_protects_warns_with_the_ceiling(self):
        with pytest.warns(UserWarning, match=r"probability up to 0\.993"):
            FairnessAuditor(race(), epsilon=5.0)


class TestAttributesDecideNothing:
    """Whether a query raises, warns, is charged, or how wide its interval is: not from attributes."""

    ATTRIBUTES: ClassVar = {
        "all in one group": np.array(["w"] * N),
        "one person apart": np.array(["b"] + ["w"] * (N - 1)),
        "balanced": np.array(["b", "w"] * (N // 2)),
    }

    @pytest.mark.parametrize(
        "mechanism", ["laplace", "attribute_conceal", "noisy_sums", "randomized_response", "auto"]
    )
    @pytest.mark.parametrize(
        "metric", ["statistical_parity", "equalized_odds", "predictive_parity", "accuracy_parity"]
    )
    def test_every_distribution_answers_alike(self, mechanism, metric):
        y, y_pred = np.arange(N) % 2, (np.arange(N) // 2) % 2
        outcomes = []
        for attributes in self.ATTRIBUTES.values():
            auditor = FairnessAuditor(attributes, ids=IDS, groups=["b", "w"], epsilon=1.0)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                answer = auditor.scorer(metric, mechanism=mechanism).answer(y_pred, y)
            outcomes.append(
                (len(caught), auditor.ledger.remaining(), bool(np.isfinite(answer.value)), answer.epsilon)
            )
        assert len(set(outcomes)) == 1
        assert outcomes[0][2]

    @pytest.mark.parametrize("mechanism", ["laplace", "attribute_conceal", "smooth_laplace"])
    def test_interval_widths_of_unclipped_gaps_are_public(self, mechanism):
        widths = set()
        for attributes in self.ATTRIBUTES.values():
            auditor = FairnessAuditor(attributes, ids=IDS, groups=["b", "w"], epsilon=1.0, delta=1e-6)
            answer = auditor.scorer(mechanism=mechanism, absolute=False).answer(np.arange(N) % 2)
            widths.add(answer.answers.release.scale[0])
        assert len(widths) == 1

    def test_a_single_group_fold_is_answered(self):
        auditor = FairnessAuditor(["b"] * 100 + ["w"] * 100, ids=IDS, epsilon=1.0)
        scorer = auditor.scorer()
        for half in (IDS[:100], IDS[100:]):
            assert np.isfinite(scorer.answer(np.arange(100) % 2, sample_ids=half).value)

    def test_missing_features_are_a_status_decided_once(self):
        column = race().astype(object)
        column.iloc[3] = None
        with pytest.raises(ValueError, match="missing='group'"):
            FairnessAuditor(column)
        auditor = FairnessAuditor(column, missing="group")
        assert auditor.groups == ("b", "w")
        assert np.isfinite(auditor.answer(np.arange(N) % 2).value)
        with pytest.raises(ValueError, match="exactly 2 groups and no missing status"):
            FairnessAuditor(column, missing="group").answer(np.arange(N) % 2, mechanism="laplace")


class TestBadQuestionsAreFree:
    @pytest.mark.parametrize(
        ("y_pred", "kwargs", "error"),
        [
            (np.full(N, np.nan), {}, ValueError),
            (np.full(N, np.inf), {}, ValueError),
            (np.full(N, 1.5), {}, ValueError),
            (np.zeros(N - 1), {}, ValueError),
            (np.zeros((2, N)), {}, ValueError),
            (np.zeros(N), {"y_true": np.zeros(N)}, ValueError),
            (np.zeros(N), {"y_true": None}, ValueError),
            (np.zeros(N), {"y_true": np.ones(N), "sample_ids": [*IDS[1:], "nobody"]}, UnknownIndividuals),
            (np.zeros(N), {"y_true": np.ones(N), "sample_ids": [*IDS[1:], IDS[1]]}, ValueError),
            (np.zeros(N), {"y_true": np.ones(N), "sample_ids": np.arange(N)}, UnknownIndividuals),
            (np.zeros(N), {"y_true": np.ones(N), "sample_weight": np.zeros(N)}, ValueError),
            (np.array(["No", "Yes"] * (N // 2)), {"y_true": np.ones(N)}, ValueError),
        ],
    )
    def test_nothing_is_charged(self, y_pred, kwargs, error):
        auditor = FairnessAuditor(race(), epsilon=1.0)
        with pytest.raises(error):
            auditor.scorer("equal_opportunity").answer(y_pred, **kwargs)
        assert auditor.ledger.remaining() == 1.0
        assert auditor.report()["n_answers_"] == 0

    def test_labels_other_than_the_auditors_are_refused(self):
        y = np.arange(N) % 2
        auditor = FairnessAuditor(race(), y_true=y, epsilon=1.0)
        scorer = auditor.scorer("equal_opportunity")
        with pytest.raises(ValueError, match="differs from the labels"):
            scorer.answer(models(1)[0], 1 - y)
        assert scorer.answer(models(1)[0]).value >= 0

    def test_signed_gaps_need_two_groups(self):
        with pytest.raises(ValueError, match="got 3 group labels"):
            FairnessAuditor(race(labels=("a", "b", "c")), groups=["a", "b", "c"]).scorer(absolute=False)

    def test_malformed_construction(self):
        with pytest.raises(ValueError, match="unique"):
            FairnessAuditor(["b", "w"], ids=["p", "p"])
        with pytest.raises(ValueError, match="same length"):
            FairnessAuditor(["b", "w"], ids=["p", "q", "r"])
        with pytest.raises(ValueError, match="advantaged"):
            FairnessAuditor(["b", "w"], advantaged="x")
        with pytest.raises(ValueError, match="y_true must have length"):
            FairnessAuditor(["b", "w"], y_true=[1])
        with pytest.raises(ValueError, match="X and sensitive_features"):
            FairnessAuditor(["b", "w"], X=np.zeros((3, 1)))


class TestSecrets:
    def test_nothing_printed_or_reported_tells_a_size(self):
        auditor = FairnessAuditor(["b"] * 13 + ["w"] * 187, ids=IDS, epsilon=1.0)
        answer = auditor.answer(np.arange(N) % 2)
        shown = repr(auditor) + repr(answer) + json.dumps(auditor.report())
        assert "13" not in shown.replace(f"{answer.value:.4f}", "")
        assert "187" not in shown.replace(f"{answer.value:.4f}", "")

    def test_copies_are_the_auditor_itself(self):
        auditor = FairnessAuditor(race(), epsilon=1.0)
        assert copy.copy(auditor) is auditor
        assert copy.deepcopy(auditor) is auditor
        assert clone(auditor) is auditor

    def test_pickles_hold_a_way_to_ask_and_no_attribute(self):
        secret = pd.Series(["zebra", "okapi"] * 100, index=IDS)
        auditor = FairnessAuditor(secret, epsilon=1.0)
        scorer = auditor.scorer(n_queries=2)
        pickled = pickle.dumps(scorer)
        codes = auditor._groups.codes
        assert codes.tobytes() not in pickled
        assert codes.astype(np.uint8).tobytes() not in pickled
        assert pickle.loads(pickled).answer(models(1)[0]).value >= 0
        assert auditor.report()["n_answers_"] == 1

    def test_seeded_answers_warn_and_say_so(self):
        with pytest.warns(NotPrivateWarning, match="random_state is set"):
            answers = [
                FairnessAuditor(race(), epsilon=1.0, random_state=7).answer(np.arange(N) % 2)
                for _ in range(2)
            ]
        assert answers[0].value == answers[1].value
        assert "NOT PRIVATE" in repr(answers[0])

    @pytest.mark.parametrize("mechanism", ["exact", "rounded"])
    def test_mechanisms_without_protection_warn(self, mechanism):
        with pytest.warns(NotPrivateWarning, match="adds no noise"):
            answer = FairnessAuditor(race()).answer(np.arange(N) % 2, mechanism=mechanism)
        assert not answer.is_private


def test_exact_answers_are_exact():
    column, y_pred = race(), np.arange(N) % 2
    with pytest.warns(NotPrivateWarning):
        answer = FairnessAuditor(column).answer(y_pred, mechanism="exact", absolute=False)
    assert answer.value == y_pred[column == "w"].mean() - y_pred[column == "b"].mean()
    assert answer.interval() == (answer.value, answer.value)


def test_series_are_aligned_by_their_index():
    auditor = FairnessAuditor(race(), random_state=0)
    y_pred = pd.Series(models(1)[0], index=IDS)
    with pytest.warns(NotPrivateWarning):
        exact = auditor.scorer(mechanism="exact")
    shuffled = y_pred.sample(frac=1, random_state=0)
    assert exact.answer(y_pred).value == pytest.approx(exact.answer(shuffled).value, abs=1e-15)
    y = pd.Series(np.arange(N) % 2, index=IDS)
    with pytest.warns(NotPrivateWarning):
        exact = auditor.scorer("equal_opportunity", mechanism="exact")
    assert exact.answer(y_pred, y.sample(frac=1, random_state=1)).value == exact.answer(y_pred, y).value
    with pytest.raises(ValueError, match="different ids"):
        exact.answer(y_pred, y.rename({"p0": "x"}))


def test_answers_survive_the_wire():
    answers = FairnessAuditor(race()).scorer("equalized_odds").answer_many(models(3), np.arange(N) % 2)
    again = PrivateAnswers.from_plain(json.loads(json.dumps(answers.to_plain())))
    assert np.array_equal(again.values, answers.values)
    assert np.array_equal(again.interval(), answers.interval())
    assert [float(answer) for answer in again] == answers.values.tolist()
    assert answers.by_group().shape == (6, 2)
    with pytest.raises(ValueError, match="confidence"):
        answers.interval(1.0)


def test_bounds_scale_answers_back():
    column, y_pred = race(), np.random.default_rng(0).normal(size=N)
    with pytest.warns(NotPrivateWarning):
        answer = FairnessAuditor(column).answer(y_pred, mechanism="exact", absolute=False, bounds=(-1, 2))
    clipped = np.clip(y_pred, -1, 2)
    assert answer.value == pytest.approx(clipped[column == "w"].mean() - clipped[column == "b"].mean())


def test_a_million_people_are_answered():
    rng = np.random.default_rng(0)
    auditor = FairnessAuditor(rng.integers(0, 2, 10**6), epsilon=1.0)
    y_pred = rng.integers(0, 2, 10**6)
    answer = auditor.answer(y_pred, absolute=False)
    assert abs(answer.value) < 0.01


class TestNamedLedger:
    def test_it_survives_and_replays(self, tmp_path):
        y_pred = models(1)[0]
        first = FairnessAuditor(race(), ledger=tmp_path / "audit.db", epsilon=1.0)
        answer = first.answer(y_pred, epsilon=0.5)
        again = FairnessAuditor(race(), ledger=PrivacyLedger(tmp_path / "audit.db", epsilon=None))
        assert again.ledger.remaining() == 0.5
        replay = again.answer(y_pred, epsilon=0.5)
        assert replay.replayed
        assert replay.value == answer.value
        assert again.ledger.remaining() == 0.5

    def test_a_private_copy_survives_too(self, tmp_path):
        for _ in range(2):
            auditor = FairnessAuditor(race(), ledger=PrivacyLedger(tmp_path / "a.db", epsilon=1.0))
            auditor.answer(models(1, seed=int(auditor.ledger.n_answers))[0], mechanism="randomized_response")
        assert auditor.ledger.n_answers == 3  # one copy, two answers

    @pytest.mark.parametrize(
        "other",
        [
            race().rename({"p0": "x"}),
            race()[::-1],
            race().iloc[:100],
            race(labels=("b", "x")),
        ],
    )
    def test_it_refuses_another_data_set(self, tmp_path, other):
        FairnessAuditor(race(), ledger=tmp_path / "audit.db", epsilon=1.0)
        with pytest.raises(LedgerIntegrityError, match="another data set"):
            FairnessAuditor(other, ledger=tmp_path / "audit.db", epsilon=1.0)

    def test_it_does_not_tell_whether_attributes_changed(self, tmp_path):
        """The fingerprint is of ids and labels only: attributes cannot be tried against it."""
        FairnessAuditor(race(seed=0), ledger=tmp_path / "audit.db", epsilon=1.0)
        FairnessAuditor(race(seed=1), ledger=tmp_path / "audit.db", epsilon=1.0)

    def test_it_refuses_another_budget(self, tmp_path):
        FairnessAuditor(race(), ledger=tmp_path / "audit.db", epsilon=1.0)
        with pytest.raises(ValueError, match="budget belongs to the file"):
            FairnessAuditor(race(), ledger=tmp_path / "audit.db", epsilon=2.0)


def test_a_large_question_is_known_again_with_any_number_of_threads():
    H = np.random.default_rng(0).random((200, 90_000))
    scorer = FairnessAuditor(np.arange(90_000) % 7 == 0, epsilon=1.0).scorer(n_queries=2)
    with threadpool_limits(1):
        first = scorer.answer_many(H)
    with threadpool_limits(2):
        again = scorer.answer_many(H.copy())
    assert not first.replayed
    assert again.replayed
    np.testing.assert_array_equal(first.values, again.values)
    H[137, 41_999] = 1.0 - H[137, 41_999]
    assert not scorer.answer_many(H).replayed
