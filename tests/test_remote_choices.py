"""Private choices asked for from other processes: same outcomes, same price, no attributes there."""

import json
import subprocess
import sys
import textwrap
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from sklearn_fairleak import (
    FairnessAuditor,
    PrivacyBudgetExceeded,
    PrivateFairSearchCV,
    UnknownIndividuals,
    connect_auditor,
)
from sklearn_fairleak.accounts import AccountSettings
from sklearn_fairleak.choices import FirstWithin, LeastGap, WithinTest
from sklearn_fairleak.plain_terms import choice_from_plain, choice_to_plain
from sklearn_fairleak.selection import first_within, passes_threshold, select_least_biased

N = 600
IDS = [f"p{i}" for i in range(N)]
RACE = pd.Series(["okapi", "zebra"] * (N // 2), index=IDS)
BIASED = (RACE == "zebra").to_numpy().astype(float)
FAIR = (np.arange(N) // 2 % 2).astype(float)


@pytest.fixture
def served():
    auditor = FairnessAuditor(RACE, epsilon=2.0)
    with auditor.serve() as server:
        yield auditor, connect_auditor(server.address, server.authkey)


def test_a_served_auditor_chooses_and_charges_once(served):
    auditor, remote = served
    choice = remote.select_least_biased([BIASED, FAIR], epsilon=1.0)
    assert (int(choice), choice.epsilon, choice.is_private, choice.replayed) == (1, 1.0, True, False)
    assert auditor.ledger.remaining() == 1.0
    again = select_least_biased([BIASED, FAIR], auditor=auditor, epsilon=1.0)
    assert again.replayed
    assert auditor.ledger.remaining() == 1.0


def test_tests_and_searches_by_ids(served):
    auditor, remote = served
    some = pd.Series(FAIR, index=IDS).iloc[::-1].iloc[:400]
    assert remote.passes_threshold(some, 0.3, epsilon=0.5)
    assert not passes_threshold(BIASED, 0.3, auditor=remote, epsilon=0.5)
    assert first_within([BIASED, FAIR], 0.3, auditor=remote, epsilon=0.5).index == 1
    with pytest.raises(UnknownIndividuals):
        remote.passes_threshold(pd.Series([1, 0, 1], index=["p0", "p1", "stranger"]), 0.3, epsilon=0.1)
    assert auditor.ledger.remaining() == 0.5


def test_a_stream_is_tested_until_the_first_pass(served):
    auditor, remote = served
    made = []

    def models():
        for model in (BIASED, BIASED, FAIR, FAIR):
            made.append(model)
            yield model

    found = remote.first_within(models(), 0.3, epsilon=1.0)
    assert (found.index, found.n_models, len(made)) == (2, 3, 3)
    assert auditor.ledger.remaining() == 1.0


def test_a_stream_that_ended_gives_nothing_more_away(served):
    _, remote = served
    settings, choice = _terms(0.5)
    test = remote.watch(settings, choice)
    assert test(FAIR)
    with pytest.raises(ValueError, match="has ended"):
        test(FAIR)


def test_a_budget_that_is_used_up_refuses(served):
    auditor, remote = served
    remote.select_least_biased([BIASED, FAIR])
    assert auditor.ledger.remaining() == 0.0
    with pytest.raises(PrivacyBudgetExceeded):
        remote.passes_threshold(BIASED, 0.1, epsilon=0.1)
    test = remote.watch(*_terms(0.5))
    with pytest.raises(PrivacyBudgetExceeded):
        test(FAIR)


def test_seeded_choices_are_refused_over_a_connection(served):
    auditor, remote = served
    with pytest.raises(ValueError, match="private answers only"):
        remote.select_least_biased([BIASED, FAIR], epsilon=1.0, random_state=0)
    with pytest.raises(ValueError, match="private answers only"):
        remote.watch(_terms(0.5, random_state=0)[0], _terms(0.5)[1])(FAIR)
    seeded = FairnessAuditor(RACE, epsilon=2.0, random_state=3)
    with seeded.serve() as server, pytest.raises(ValueError, match="private answers only"):
        connect_auditor(server.address, server.authkey).passes_threshold(FAIR, 0.1, epsilon=0.5)
    assert auditor.ledger.remaining() == 2.0


def test_a_developers_process_selects_and_sees_no_attribute():
    auditor = FairnessAuditor(RACE, epsilon=1.0)
    with auditor.serve() as server:
        program = textwrap.dedent(
            f"""
            import gc, numpy as np, pandas as pd
            from sklearn.linear_model import LogisticRegression
            from sklearn_fairleak import PrivateFairSearchCV, connect_auditor

            auditor = connect_auditor({server.address!r}, {server.authkey!r})
            rng = np.random.default_rng(0)
            X = pd.DataFrame({{"x": rng.normal(size={N})}}, index=[f"p{{i}}" for i in range({N})])
            y = (X["x"] + rng.normal(size={N}) > 0).astype(int)
            search = PrivateFairSearchCV(
                LogisticRegression(), {{"C": [0.01, 1.0]}}, auditor=auditor, epsilon=1.0, cv=3
            ).fit(X, y)
            print(search.best_index_ in (0, 1), search.choice_.epsilon)
            print(any("okapi" in repr(o) for o in gc.get_objects() if isinstance(o, np.ndarray)))
            """
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True", "1.0", "False"], done.stderr
    assert auditor.ledger.remaining() == 0.0


def test_nested_searches_in_worker_processes_share_one_ledger():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=N)}, index=IDS)
    y = (X["x"] + rng.normal(size=N) > 0).astype(int)
    auditor = FairnessAuditor(RACE, epsilon=1.0)
    search = PrivateFairSearchCV(LogisticRegression(), {"C": [0.01, 1.0]}, auditor=auditor, epsilon=0.5, cv=2)
    scores = cross_val_score(search, X, y, cv=3, n_jobs=2, error_score="raise")
    assert np.isfinite(scores).all()
    # Everybody is in two of the three outer training sets.
    assert auditor.ledger.remaining() == 0.0


@pytest.mark.parametrize(
    "choice",
    [
        LeastGap(Fraction(1, 3), (0.1, 0.2), 0.25, True),
        LeastGap(Fraction(1)),
        WithinTest(Fraction(1, 7), Fraction(0.1)),
        FirstWithin(Fraction(2), Fraction(4, 5), True),
    ],
)
def test_choices_cross_unchanged(choice):
    assert choice_from_plain(json.loads(json.dumps(choice_to_plain(choice)))) == choice


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "os.system"}, "unknown choice"),
        ({"name": None}, "unknown choice"),
        ({"epsilon": "0"}, "must be positive"),
        ({"epsilon": "-1/2"}, "must be positive"),
        ({"epsilon": 1.0}, "short texts"),
        ({"epsilon": "9" * 10_000}, "short texts"),
        ({"penalties": [float("nan"), 0.0]}, "finite"),
        ({"minority_share": 0.9}, "minority_share"),
    ],
)
def test_forged_choices_are_refused(change, message):
    plain = choice_to_plain(LeastGap(Fraction(1), (0.0, 0.1)))
    with pytest.raises(ValueError, match=message):
        choice_from_plain(plain | change)


def _terms(epsilon, **settings):
    choice = FirstWithin(Fraction(epsilon), Fraction(3, 10))
    return AccountSettings(epsilon=epsilon, **settings), choice
