"""Attributes in one process, questions from others."""

import multiprocessing
import os
import pickle
import stat
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from sklearn_fairleak import (
    FairnessAuditor,
    NotPrivateWarning,
    PrivacyBudgetExceeded,
    UnknownIndividuals,
    connect_auditor,
)

#: Small data on purpose: the scorer rightly says that its noise is large.
pytestmark = pytest.mark.filterwarnings("ignore:The noise of an answer")

N = 120
IDS = [f"p{i}" for i in range(N)]
A = pd.Series(["okapi", "zebra"] * (N // 2), index=IDS)


@pytest.fixture
def served():
    auditor = FairnessAuditor(A, epsilon=1.0)
    with auditor.serve() as server:
        yield auditor, server


def test_a_developer_in_another_process_asks_and_sees_no_attribute(served):
    auditor, server = served
    program = textwrap.dedent(
        f"""
        import gc, numpy as np, pandas as pd
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import cross_val_score
        from sklearn_fairleak import connect_auditor

        auditor = connect_auditor({server.address!r}, {server.authkey!r})
        X = pd.DataFrame({{"x": np.arange({N}.0)}}, index=[f"p{{i}}" for i in range({N})])
        scores = cross_val_score(LogisticRegression(), X, np.arange({N}) % 2, scoring=auditor.scorer(), cv=3)
        print(np.isfinite(scores).all(), auditor.report()["n_answers_"])
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True", "3"], done.stderr
    assert auditor.report()["n_answers_"] == 3


def test_the_handle_holds_address_and_key_only(served):
    auditor, server = served
    remote = connect_auditor(server.address, server.authkey)
    pickled = pickle.dumps(remote.scorer())
    assert auditor._groups.codes.astype(np.uint8).tobytes() not in pickled
    assert "authkey" not in repr(remote)
    assert server.authkey.hex() not in repr(remote)
    assert remote.n_individuals == N
    assert remote.groups == ("okapi", "zebra")


def test_the_socket_is_the_owners_alone(served):
    _, server = served
    assert stat.S_IMODE(os.stat(server.address).st_mode) == 0o600


def test_errors_travel_as_what_they_are(served):
    _, server = served
    scorer = connect_auditor(server.address, server.authkey).scorer("equal_opportunity")
    with pytest.raises(ValueError, match="NaN"):
        scorer.answer(np.full(N, np.nan), np.ones(N))
    with pytest.raises(UnknownIndividuals, match="unknown to the auditor"):
        scorer.answer(np.zeros(2), np.ones(2), sample_ids=["p0", "nobody"])
    scorer.answer(np.arange(N) % 2, np.ones(N))
    with pytest.raises(PrivacyBudgetExceeded):
        scorer.answer(np.arange(N) % 3 == 0, np.ones(N))
    assert scorer.refused_ == 1


def test_answers_equal_local_ones(served):
    auditor, server = served
    remote = connect_auditor(server.address, server.authkey)
    y_pred = pd.Series(np.linspace(0, 1, N), index=IDS).sample(frac=1, random_state=0)
    first = remote.scorer(mechanism="noisy_sums").answer(y_pred)
    again = auditor.scorer(mechanism="noisy_sums").answer(y_pred)
    assert again.replayed
    assert first.value == again.value
    assert first.interval() == again.interval()


@pytest.mark.parametrize("settings", [{"mechanism": "exact"}, {"mechanism": "rounded"}, {"random_state": 0}])
def test_answers_without_protection_are_refused(served, settings):
    _, server = served
    remote = connect_auditor(server.address, server.authkey)
    with pytest.raises(ValueError, match="private answers only"):
        remote.scorer(**settings)


def test_seeded_auditors_do_not_answer_strangers():
    auditor = FairnessAuditor(A, epsilon=1.0, random_state=0)
    with auditor.serve() as server, pytest.raises(ValueError, match="private answers only"):
        connect_auditor(server.address, server.authkey).scorer()


def test_a_wrong_key_is_turned_away(served):
    _, server = served
    with pytest.raises((multiprocessing.AuthenticationError, ConnectionError)):
        connect_auditor(server.address, b"not the key at all")


def test_a_closed_auditor_is_a_clear_error():
    auditor = FairnessAuditor(A, epsilon=1.0)
    with auditor.serve() as server:
        remote = connect_auditor(server.address, server.authkey)
    with pytest.raises(ConnectionError, match="not reachable"):
        remote.report()


def _ask_many(address, authkey, seed, queue):
    scorer = connect_auditor(address, authkey).scorer(n_queries=40, epsilon=1.0, mechanism="noisy_sums")
    rng = np.random.default_rng(seed)
    answered = 0
    for _ in range(40):
        try:
            scorer.answer(rng.random(N))
            answered += 1
        except PrivacyBudgetExceeded:
            pass
    queue.put(answered)


def test_many_clients_share_one_budget(served):
    auditor, server = served
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    clients = [
        context.Process(target=_ask_many, args=(server.address, server.authkey, seed, queue))
        for seed in range(3)
    ]
    for client in clients:
        client.start()
    answered = [queue.get(timeout=120) for _ in clients]
    for client in clients:
        client.join(timeout=60)
    assert sum(answered) == 40
    assert auditor.ledger.remaining() == pytest.approx(0, abs=1e-9)


def test_seeded_workers_of_this_process_are_served(served):
    """The private server of ``n_jobs`` serves what was opened here, seeded or not."""
    auditor, _ = served
    with pytest.warns(NotPrivateWarning):
        scorer = auditor.scorer(random_state=0, mechanism="exact")
    X = pd.DataFrame({"x": np.arange(float(N))}, index=IDS)
    scores = cross_val_score(LogisticRegression(), X, np.arange(N) % 2, scoring=scorer, cv=2, n_jobs=2)
    assert np.isfinite(scores).all()
