"""The ledger keeps exact sums, one budget per individual, and a chain that shows edits."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import multiprocessing
import os
import pickle
import sqlite3
import stat
import subprocess
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from sklearn_fairleak.accounting import PrivacyLoss
from sklearn_fairleak.exceptions import LedgerIntegrityError, PrivacyBudgetExceeded
from sklearn_fairleak.ledger import PrivacyLedger
from sklearn_fairleak.ledger_charges import ZERO, Charges, all_fit, largest
from sklearn_fairleak.ledger_history import spreadsheet_cell

# Newer Pythons warn of forks with threads; that these work is what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

N = 40
QUARTER = PrivacyLoss.pure(Fraction(1, 4))


def make_ledger(path=None, epsilon=1.0, delta=0.0, n=N):
    ledger = PrivacyLedger(path, epsilon=epsilon, delta=delta)
    ledger.bind(b"people", n)
    return ledger


def ask(ledger, account, name, individuals=None, loss=QUARTER, answer=None):
    made = {"name": name} if answer is None else answer
    return ledger.charge(
        account=account,
        digest=ledger.digest(name.encode()),
        individuals=individuals,
        loss=loss,
        query={"metric": "statistical_parity", "mechanism": "laplace"},
        release=lambda: made,
    )


def edit(path, statement, *values):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def count_rows(path, table):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]


class TestBudget:
    def test_answers_add_up_until_the_budget_is_spent(self):
        ledger = make_ledger()
        account = ledger.open_account("scorer", 1, 0)
        for k in range(4):
            assert ask(ledger, account, f"q{k}") == ({"name": f"q{k}"}, False)
        assert ledger.spent() == PrivacyLoss(Fraction(1), pure_rho=Fraction(4, 32))
        assert ledger.remaining() == 0.0
        with pytest.raises(PrivacyBudgetExceeded):
            ask(ledger, account, "q4")
        assert (ledger.n_answers, ledger.n_refused(), ledger.n_refused(account)) == (4, 1, 1)
        assert ledger.spent().epsilon == 1

    def test_refused_question_never_touches_the_secret(self):
        ledger = make_ledger(epsilon=0.125)
        account = ledger.open_account("scorer", 1, 0)
        touched = []
        with pytest.raises(PrivacyBudgetExceeded, match=r"epsilon=0\.125"):
            ledger.charge(
                account=account,
                digest=ledger.digest(b"q"),
                individuals=None,
                loss=QUARTER,
                query={},
                release=lambda: touched.append(1) or {},
            )
        assert not touched

    def test_account_is_a_budget_within_the_budget(self):
        ledger = make_ledger(epsilon=1.0)
        first, second = ledger.open_account("a", 0.5, 0), ledger.open_account("b", 0.75, 0)
        ask(ledger, first, "1")
        ask(ledger, first, "2")
        with pytest.raises(PrivacyBudgetExceeded, match="of account 'a'"):
            ask(ledger, first, "3")
        ask(ledger, second, "4")
        ask(ledger, second, "5")
        with pytest.raises(PrivacyBudgetExceeded, match="of the whole ledger"):
            ask(ledger, second, "6")
        assert ledger.remaining(first) == 0.0
        assert ledger.remaining(second) == 0.25
        assert ledger.remaining() == 0.0

    def test_disjoint_folds_cost_the_maximum_and_repeats_add_up(self):
        ledger = make_ledger()
        account = ledger.open_account("cv", 1, 0)
        folds = np.arange(N).reshape(5, -1)
        for k, fold in enumerate(folds):
            ask(ledger, account, f"fold {k}", fold)
        assert ledger.spent().epsilon == Fraction(1, 4)
        for k, fold in enumerate(folds[:2]):
            ask(ledger, account, f"again {k}", fold)
        expected = np.full(N, 0.25)
        expected[folds[:2].ravel()] = 0.5
        np.testing.assert_array_equal(ledger.spent_per_individual(), expected)
        np.testing.assert_array_equal(ledger.spent_per_individual(account), expected)
        assert ledger.remaining() == 0.5

    def test_only_individuals_in_the_question_count(self):
        ledger = make_ledger(epsilon=0.25)
        account = ledger.open_account("s", 1, 0)
        ask(ledger, account, "some", np.arange(10))
        with pytest.raises(PrivacyBudgetExceeded):
            ask(ledger, account, "overlap", np.arange(9, 20))
        ask(ledger, account, "others", np.arange(10, N))

    def test_float_budget_is_exact(self):
        # 0.1 as a float is a little more than 1/10: ten parts of it, rounded down, fit; eleven do not.
        ledger = make_ledger(epsilon=0.1)
        account = ledger.open_account("s", 0.1, 0)
        part = PrivacyLoss.pure(Fraction(int(Fraction(0.1) / 10 * 2**50), 2**50))
        for k in range(10):
            ask(ledger, account, str(k), loss=part)
        with pytest.raises(PrivacyBudgetExceeded):
            ask(ledger, account, "10", loss=part)

    def test_loss_finer_than_the_grid_is_rounded_up(self):
        ledger = make_ledger()
        account = ledger.open_account("s", 1, 0)
        ask(ledger, account, "q", loss=PrivacyLoss.pure(Fraction(1, 3)))
        assert 0 < ledger.spent().epsilon - Fraction(1, 3) < Fraction(1, 2**50)

    def test_enormous_budget_does_not_overflow(self):
        ledger = make_ledger(epsilon=1e9)
        account = ledger.open_account("s", 1e9, 0)
        for k in range(3):
            ask(ledger, account, str(k), np.arange(5), loss=PrivacyLoss.pure(10**8))
        assert ledger.spent().epsilon == 3 * 10**8
        assert ledger.spent_per_individual()[:6].tolist() == [3e8] * 5 + [0.0]

    def test_gaussian_costs_are_converted_together(self):
        ledger = make_ledger(epsilon=1.0, delta=1e-6)
        account = ledger.open_account("s", 1, 1e-6)
        part = PrivacyLoss.zcdp(Fraction(1, 400))
        for k in range(4):
            ask(ledger, account, str(k), loss=part)
        whole = PrivacyLoss.zcdp(Fraction(1, 100))
        assert ledger.spent().rho - whole.rho < Fraction(1, 2**47)
        assert ledger.remaining() == pytest.approx(1.0 - whole.to_epsilon(1e-6), abs=1e-9)
        with pytest.raises(PrivacyBudgetExceeded):
            ask(ledger, account, "too much", loss=PrivacyLoss.zcdp(Fraction(1, 4)))

    def test_gaussian_answer_needs_a_delta(self):
        ledger = make_ledger(epsilon=1.0, delta=0.0)
        account = ledger.open_account("s", 1, 0)
        with pytest.raises(PrivacyBudgetExceeded):
            ask(ledger, account, "q", loss=PrivacyLoss.zcdp(Fraction(1, 1000)))

    def test_largest_components_on_different_people_do_not_refuse(self):
        # Pure for one half, Gaussian for the other: each half fits, their component-wise maximum does not.
        ledger = make_ledger(epsilon=1.0, delta=1e-6)
        account = ledger.open_account("s", 1, 1e-6)
        half = PrivacyLoss.zcdp(Fraction(1, 100))
        ask(ledger, account, "pure", np.arange(20), loss=PrivacyLoss.pure(Fraction(9, 10)))
        ask(ledger, account, "gauss", np.arange(20, 40), loss=half)
        assert not (PrivacyLoss.pure(Fraction(9, 10)) + half).fits(1.0, 1e-6)
        ask(ledger, account, "everyone", loss=PrivacyLoss.pure(Fraction(1, 100)))
        assert ledger.n_answers == 3

    def test_zero_loss_is_recorded(self):
        ledger = make_ledger(epsilon=0.25)
        account = ledger.open_account("s", 1, 0)
        ask(ledger, account, "copy")
        ask(ledger, account, "free", loss=PrivacyLoss())
        assert ledger.n_answers == 2
        assert ledger.spent().epsilon == Fraction(1, 4)

    def test_spent_is_zero_before_anything(self):
        ledger = make_ledger()
        assert not ledger.spent()
        assert ledger.spent_per_individual().tolist() == [0.0] * N


def test_charges_of_many_classes_are_those_of_each_individual():
    """Enough different sums that classes are merged and dropped again and again."""
    rng = np.random.default_rng(0)
    paid, classes = np.zeros((400, 4), dtype=int), Charges(400)
    for _ in range(300):
        members = np.sort(rng.choice(400, rng.integers(1, 30), replace=False))
        loss = (int(rng.integers(1, 3)), 0, 0, 0)
        classes.add(members, loss)
        paid[members] += loss
    values = [float(units[0]) for units in classes.classes()]
    assert classes.per_individual(values).tolist() == paid[:, 0].tolist()
    assert sorted(set(classes.present())) == sorted(set(map(tuple, paid.tolist())))
    # Classes without members are dropped: everybody pays the same, in the end.
    for k in range(400):
        classes.add(np.array([k]), (int(paid[:, 0].max() - paid[k, 0] + 1), 0, 0, 0))
    assert set(classes.present()) == {(int(paid[:, 0].max()) + 1, 0, 0, 0)}
    assert len(classes.classes()) < 400


@settings(deadline=None, max_examples=60)
@given(
    charges=st.lists(
        st.tuples(
            st.one_of(st.none(), st.sets(st.integers(0, 11), min_size=1)),
            st.tuples(*[st.integers(0, 3)] * 4),
        ),
        max_size=30,
    ),
    merge_at=st.sampled_from([1, 64]),
)
def test_charges_equal_a_plain_table(charges, merge_at):
    table, classes = np.zeros((12, 4), dtype=int), Charges(12)
    for asked, loss in charges:
        members = None if asked is None else np.array(sorted(asked))
        rows = slice(None) if members is None else members
        classes._merge_at = merge_at
        after = classes.after(members, loss)
        assert {tuple(row) for row in table[rows] + loss} == set(after)
        classes.add(members, loss)
        table[rows] += loss
    assert {tuple(row) for row in table} == set(classes.present())
    paid = classes.classes()
    for component in range(4):
        spread = classes.per_individual([float(units[component]) for units in paid])
        np.testing.assert_array_equal(spread, table[:, component])


UNITS = st.tuples(*[st.integers(0, 9)] * 4)


@settings(deadline=None)
@given(paid=st.lists(UNITS, min_size=1, max_size=6))
def test_the_largest_of_each_component(paid):
    assert largest(paid) == tuple(np.max(paid, axis=0))
    assert largest([]) == ZERO


@pytest.mark.parametrize(("epsilon", "fits"), [(3, True), (2, False)])
def test_a_sum_that_nobody_paid_does_not_exhaust_a_budget(epsilon, fits):
    """One paid in pure losses and the other by Gaussian noise: each fits, what is largest of both does not."""
    paid = [PrivacyLoss.pure(3).units(), PrivacyLoss.zcdp(Fraction(1, 64)).units()]
    delta = Fraction(1, 10**6)
    assert not PrivacyLoss.from_units(*largest(paid)).fits(Fraction(3), delta)
    assert all_fit(paid, Fraction(epsilon), delta) is fits


def test_merged_classes_keep_their_sizes():
    """A wrong size would split a class that moves as a whole, or empty one that does not."""
    charges = Charges(6)
    charges._merge_at = 1
    for person in range(4):
        charges.add(np.array([person]), (1, 0, 0, 0))
    assert sorted(charges._sizes) == [2, 4]
    assert sum(charges._sizes) == np.bincount(charges._class_of).sum() == 6
    charges.add(np.array([0]), (1, 0, 0, 0))
    assert sorted(charges.present()) == [(0, 0, 0, 0), (1, 0, 0, 0), (2, 0, 0, 0)]


def test_a_ledger_of_one_individual():
    ledger = make_ledger(n=1)
    ask(ledger, ledger.open_account("s", 1, 0), "q")
    assert ledger.spent().epsilon == Fraction(1, 4)
    with pytest.raises(ValueError, match="n_individuals"):
        PrivacyLedger(None, epsilon=1.0).bind(b"nobody", 0)


def test_another_budget_is_refused_with_the_file_s_own_numbers(tmp_path):
    make_ledger(tmp_path / "ledger.db", epsilon=2.0, delta=0.125)
    with pytest.raises(ValueError, match=r"epsilon=3, delta=0\.25"):
        PrivacyLedger(tmp_path / "ledger.db", epsilon=3.0, delta=0.25)


def test_a_pickled_ledger_keeps_its_delta(tmp_path):
    ledger = make_ledger(tmp_path / "ledger.db", epsilon=2.0, delta=0.125)
    again = pickle.loads(pickle.dumps(ledger))
    assert (again.epsilon, again.delta) == (ledger.epsilon, ledger.delta)


class TestReplay:
    def test_same_question_is_free(self):
        ledger = make_ledger()
        account = ledger.open_account("s", 1, 0)
        first, _ = ask(ledger, account, "q", answer={"gap": 0.1, "scale": float("nan")})
        again, replayed = ask(ledger, account, "q", answer={"gap": 9.9})
        assert replayed
        assert repr(again) == repr(first)
        assert ledger.spent().epsilon == Fraction(1, 4)

    def test_same_question_is_free_after_a_restart_and_from_another_account(self, tmp_path):
        ledger = make_ledger(tmp_path / "l.db")
        ask(ledger, ledger.open_account("s", 1, 0), "q", answer={"gap": 0.1})
        ledger.close()
        again = make_ledger(tmp_path / "l.db")
        assert ask(again, again.open_account("t", 1, 0), "q", answer={}) == ({"gap": 0.1}, True)

    def test_spent_budget_still_replays(self):
        ledger = make_ledger(epsilon=0.25)
        account = ledger.open_account("s", 1, 0)
        ask(ledger, account, "q")
        assert ask(ledger, account, "q") == ({"name": "q"}, True)

    def test_digests_are_keyed_and_framed(self):
        one, two = make_ledger(), make_ledger()
        assert one.digest(b"q") != two.digest(b"q")
        assert one.digest(b"ab", b"c") != one.digest(b"a", b"bc")
        assert one.digest(b"q") == one.digest(b"q")
        assert len(one.digest()) == 32


class TestRelease:
    def test_failing_release_costs_nothing(self):
        ledger = make_ledger()
        account = ledger.open_account("s", 1, 0)

        def fail():
            raise ZeroDivisionError("inside")

        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="inside"):
                ledger.charge(
                    account=account,
                    digest=ledger.digest(b"q"),
                    individuals=np.arange(3),
                    loss=QUARTER,
                    query={},
                    release=fail,
                )
        assert not ledger.spent()
        assert ledger.n_answers == 0
        ledger.verify()
        ask(ledger, account, "q")

    def test_answer_that_is_not_plain_data_costs_nothing(self):
        ledger = make_ledger()
        account = ledger.open_account("s", 1, 0)
        with pytest.raises(TypeError):
            ask(ledger, account, "q", answer={"value": object()})
        assert not ledger.spent()

    def test_ledger_cannot_be_used_from_within_a_release(self):
        ledger = make_ledger()
        account = ledger.open_account("s", 1, 0)
        with pytest.raises(RuntimeError, match="within the release"):
            ledger.charge(
                account=account,
                digest=ledger.digest(b"outer"),
                individuals=None,
                loss=QUARTER,
                query={},
                release=lambda: ask(ledger, account, "inner")[0],
            )
        assert ledger.n_answers == 0
        ledger.verify()


class TestArguments:
    @pytest.mark.parametrize("epsilon", [0, -1.0, float("nan"), float("inf"), "1", True, [1]])
    def test_bad_epsilon(self, epsilon):
        with pytest.raises(ValueError, match="epsilon must be a positive finite number"):
            PrivacyLedger(epsilon=epsilon)

    @pytest.mark.parametrize("delta", [-1e-9, 1.0, float("nan"), None])
    def test_bad_delta(self, delta):
        with pytest.raises(ValueError, match="delta must be in"):
            PrivacyLedger(epsilon=1.0, delta=delta)

    @pytest.mark.parametrize(
        "individuals",
        [[], [-1, 2], [1, N], [2, 1], [1, 1], [0.5], [[1, 2]], np.zeros(N, dtype=bool)],
    )
    def test_bad_individuals(self, individuals):
        ledger = make_ledger()
        account = ledger.open_account("s", 1, 0)
        with pytest.raises(ValueError, match="individuals must be"):
            ask(ledger, account, "q", individuals)
        assert ledger.n_answers == 0

    def test_unbound_ledger_and_unknown_account(self):
        ledger = PrivacyLedger(epsilon=1.0)
        account = ledger.open_account("s", 1, 0)
        with pytest.raises(ValueError, match="not bound"):
            ask(ledger, account, "q")
        ledger.bind(b"people", N)
        for read in (ledger.spent, ledger.remaining, ledger.spent_per_individual):
            with pytest.raises(ValueError, match="account 7 is not open"):
                read(7)
        with pytest.raises(ValueError, match="account 7 is not open"):
            ask(ledger, 7, "q")
        with pytest.raises(ValueError, match="n_individuals must be at least 1"):
            ledger.bind(b"people", 0)

    def test_everyone_by_position_is_everyone(self):
        ledger = make_ledger()
        account = ledger.open_account("s", 1, 0)
        ask(ledger, account, "q", np.arange(N, dtype=np.int32))
        assert ledger.history()["n_individuals"].iloc[-1] == N
        assert count_rows(ledger.path, "sets") == 0


class TestFile:
    def test_temporary_file_is_private_and_goes_with_its_creator(self):
        code = (
            "import os, stat\n"
            "from sklearn_fairleak.ledger import PrivacyLedger\n"
            "ledger = PrivacyLedger(epsilon=1.0)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    raise SystemExit(0)\n"
            "os.waitpid(child, 0)\n"
            "folder = ledger.path.parent\n"
            "print(oct(stat.S_IMODE(os.stat(folder).st_mode)), oct(stat.S_IMODE(os.stat(ledger.path).st_mode)))\n"
            "print(ledger.path.exists(), folder)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        modes, rest = done.stdout.splitlines()
        assert modes == "0o700 0o600"
        existed, folder = rest.split()
        assert existed == "True"
        assert not os.path.exists(folder)

    def test_named_file_survives_and_is_private(self, tmp_path):
        path = tmp_path / "sub ?%#" / "ledger.db"
        path.parent.mkdir()
        ledger = make_ledger(path)
        ask(ledger, ledger.open_account("s", 1, 0), "q", np.arange(7))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in path.parent.iterdir())
        ledger.close()
        again = PrivacyLedger(str(path), epsilon=None)
        assert (again.epsilon, again.delta, again.n_individuals) == (1.0, 0.0, N)
        assert again.spent_per_individual().tolist() == [0.25] * 7 + [0.0] * (N - 7)

    @pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 0.0), (1.0, 1e-6), (0.5, 0.0)])
    def test_budget_belongs_to_the_file(self, tmp_path, epsilon, delta):
        make_ledger(tmp_path / "l.db").close()
        with pytest.raises(ValueError, match=r"records epsilon=1, delta=0.*budget belongs to the file"):
            PrivacyLedger(tmp_path / "l.db", epsilon=epsilon, delta=delta)

    def test_taking_a_budget_needs_a_file_that_has_one(self, tmp_path):
        with pytest.raises(ValueError, match="give its path"):
            PrivacyLedger(epsilon=None)
        with pytest.raises(ValueError, match="There is no ledger"):
            PrivacyLedger(tmp_path / "none.db", epsilon=None)
        assert not (tmp_path / "none.db").exists()
        with pytest.raises(ValueError, match="is a folder"):
            PrivacyLedger(tmp_path, epsilon=1.0)

    def test_other_data_set_is_refused(self, tmp_path):
        ledger = make_ledger(tmp_path / "l.db")
        ledger.bind(b"people", N)
        for fingerprint, n in ((b"others", N), (b"people", N + 1)):
            with pytest.raises(LedgerIntegrityError, match="belongs to another data set"):
                ledger.bind(fingerprint, n)

    def test_fingerprint_cannot_be_tested_without_the_key(self, tmp_path):
        ledger = make_ledger(tmp_path / "l.db")
        ledger.close()
        import hashlib

        content = (tmp_path / "l.db").read_bytes()
        assert hashlib.sha256(b"people").hexdigest().encode() not in content
        assert b"people" not in content

    def test_budget_cannot_be_doubled_by_copies(self, tmp_path):
        ledger = make_ledger()
        assert copy.copy(ledger) is ledger
        assert copy.deepcopy(ledger) is ledger
        assert clone(ledger) is ledger
        with pytest.raises(TypeError, match="temporary ledger is not pickled"):
            pickle.dumps(ledger)
        named = make_ledger(tmp_path / "l.db", epsilon=0.1)
        pickled = pickle.dumps(named)
        assert named._key not in pickled
        again = pickle.loads(pickled)
        ask(again, again.open_account("s", 1, 0), "q", loss=PrivacyLoss.pure(Fraction(1, 16)))
        assert named.spent().epsilon == Fraction(1, 16)

    def test_a_pickled_handle_keeps_to_its_budget(self, tmp_path):
        """Another ledger put in the file's place is not taken for the one that was pickled."""
        path = tmp_path / "l.db"
        for budget in ({"epsilon": 0.5}, {"epsilon": 1.0, "delta": 1e-6}):
            named = make_ledger(path, epsilon=1.0)
            assert repr(named) == f"PrivacyLedger({str(path)!r}, epsilon=1, delta=0)"
            pickled = pickle.dumps(named)
            named.close()
            path.unlink()
            make_ledger(path, **budget).close()
            with pytest.raises(ValueError, match="The budget belongs to the file"):
                pickle.loads(pickled)
            path.unlink()

    def test_context_manager_closes_and_use_opens_again(self, tmp_path):
        with make_ledger(tmp_path / "l.db") as ledger:
            ledger.open_account("s", 1, 0)
        assert [file.name for file in tmp_path.iterdir()] == ["l.db"]
        assert ledger.n_answers == 0

    def test_repr_shows_no_secret(self):
        ledger = make_ledger()
        assert repr(ledger) == "PrivacyLedger(temporary, epsilon=1, delta=0)"

    def test_refusal_can_be_rebuilt(self):
        ledger = make_ledger(epsilon=0.1)
        account = ledger.open_account("s", 1, 0)
        with pytest.raises(PrivacyBudgetExceeded) as caught:
            ask(ledger, account, "q")
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is PrivacyBudgetExceeded
        assert str(again) == str(caught.value)


class TestChain:
    @pytest.fixture
    def path(self, tmp_path):
        ledger = make_ledger(tmp_path / "l.db")
        account = ledger.open_account("s", 1, 0)
        ask(ledger, account, "q0")
        ask(ledger, account, "q1", np.arange(5))
        ask(ledger, account, "q2")
        ledger.verify()
        ledger.close()
        return tmp_path / "l.db"

    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            ("UPDATE entries SET loss = '0 0 0 0' WHERE number = 4", "entry 4 was altered"),
            ("UPDATE entries SET time = time + 1 WHERE number = 5", "entry 5 was altered"),
            ("UPDATE entries SET kind = 'refusal' WHERE number = 5", "entry 5 was altered"),
            ("UPDATE entries SET account = 2 WHERE number = 5", "entry 5 was altered"),
            ("UPDATE entries SET individuals = NULL WHERE number = 5", "entry 5 was altered"),
            ("UPDATE entries SET digest = zeroblob(32) WHERE number = 5", "entry 5 was altered"),
            ('UPDATE entries SET query = \'{"epsilon": "9", "delta": "0"}\' WHERE number = 1', "entry 1 was"),
            ("UPDATE entries SET loss = 'x' WHERE number = 4", "entry 4 was altered"),
            ("UPDATE entries SET loss = NULL WHERE number = 4", None),
            ("UPDATE entries SET hash = 'x' WHERE number = 4", "entry 4 was altered"),
            ("DELETE FROM entries WHERE number = 4", "entry 4 is missing"),
            ("DELETE FROM entries WHERE number = 6", "the last ones are missing"),
            ("DELETE FROM entries", "the last ones are missing"),
            ("DELETE FROM facts WHERE name = 'head'", "is not the last one that was written"),
            ("UPDATE facts SET value = zeroblob(32) WHERE name = 'key'", "entry 1 was altered"),
        ],
    )
    def test_edited_entry_gives_no_answers(self, path, statement, message):
        if message is None:
            with pytest.raises(sqlite3.IntegrityError):
                edit(path, statement)
            return
        edit(path, statement)
        with pytest.raises(LedgerIntegrityError, match=message):
            PrivacyLedger(path, epsilon=1.0)

    def test_reordered_entries(self, path):
        edit(path, "UPDATE entries SET number = -number WHERE number IN (4, 5)")
        edit(path, "UPDATE entries SET number = 9 + number WHERE number < 0")
        with pytest.raises(LedgerIntegrityError, match="entry 4 was altered, moved or inserted"):
            PrivacyLedger(path, epsilon=1.0)

    def test_edit_under_an_open_ledger_is_found(self, path):
        ledger = PrivacyLedger(path, epsilon=1.0)
        edit(path, "UPDATE entries SET loss = '0 0 0 0' WHERE number = 4")
        with pytest.raises(LedgerIntegrityError, match="entry 4 was altered"):
            ledger.verify()

    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            (
                'UPDATE entries SET answer = \'{"name": "x"}\' WHERE number = 5',
                "the answer of entry 5 was altered",
            ),
            ("UPDATE entries SET answer = NULL WHERE number = 4", "the answer of entry 4 was altered"),
            ("UPDATE entries SET answer = '{}' WHERE number = 2", "an answer was added to entry 2"),
        ],
    )
    def test_edited_answer(self, path, statement, message):
        ledger = PrivacyLedger(path, epsilon=1.0)
        edit(path, statement)
        with pytest.raises(LedgerIntegrityError, match=message):
            ledger.verify()

    def test_edited_answer_is_not_replayed(self, path):
        edit(path, 'UPDATE entries SET answer = \'{"name": "x"}\' WHERE number = 4')
        ledger = PrivacyLedger(path, epsilon=1.0)
        with pytest.raises(LedgerIntegrityError, match="was altered"):
            ask(ledger, 1, "q0")

    @pytest.mark.parametrize("statement", ["DELETE FROM sets", "UPDATE sets SET members = x'00'"])
    def test_edited_set(self, path, statement):
        edit(path, statement)
        with pytest.raises(LedgerIntegrityError, match="a set of individuals was altered or deleted"):
            PrivacyLedger(path, epsilon=1.0)

    def test_head_noted_elsewhere_shows_a_roll_back(self, path, tmp_path):
        older = path.read_bytes()
        ledger = PrivacyLedger(path, epsilon=1.0)
        earlier = ledger.head()
        ask(ledger, 1, "q3", np.arange(5, 9))
        noted = ledger.head()
        ledger.verify(head=earlier)
        ledger.verify(head=noted)
        ledger.close()
        path.write_bytes(older)
        rolled_back = PrivacyLedger(path, epsilon=1.0)
        rolled_back.verify()
        rolled_back.verify(head=earlier)
        with pytest.raises(LedgerIntegrityError, match="no entry has the head"):
            rolled_back.verify(head=noted)

    def test_clock_going_backwards(self, path, monkeypatch):
        monkeypatch.setattr("time.time_ns", lambda: 10**18)
        ledger = PrivacyLedger(path, epsilon=1.0)
        ask(ledger, 1, "q3", np.arange(5, 9))
        ledger.verify()
        history = ledger.history()
        assert history["entry"].tolist() == list(range(1, 8))
        assert history["time"].iloc[-1] < history["time"].iloc[-2]
        assert history["time"].iloc[-1].isoformat() == "2001-09-09T01:46:40+00:00"


class TestHistory:
    def test_every_entry_is_listed(self):
        ledger = make_ledger(epsilon=0.5)
        account = ledger.open_account("cv", 1, 0)
        ask(ledger, account, "q", np.arange(8))
        with pytest.raises(PrivacyBudgetExceeded):
            ask(ledger, account, "big", loss=PrivacyLoss.pure(1))
        history = ledger.history()
        assert history["kind"].tolist() == ["ledger", "bind", "account", "answer", "refusal"]
        answer = history.iloc[3]
        assert answer["account"] == "cv"
        assert answer["metric"] == "statistical_parity"
        assert answer["mechanism"] == "laplace"
        assert (answer["epsilon"], answer["delta"], answer["rho"]) == (0.25, 0.0, 0.0)
        assert answer["n_individuals"] == 8
        assert answer["digest"] == ledger.digest(b"q").hex()[:16]
        assert history["epsilon"].drop(index=1).tolist() == [0.5, 1.0, 0.25, 1.0]
        assert history["rho"].isna().tolist() == [True, True, True, False, False]

    def test_exports_hold_no_secret(self, tmp_path):
        ledger = make_ledger()
        ask(ledger, ledger.open_account("s", 1, 0), "q", answer={"gap": 0.123456})
        for kind in ("csv", "json"):
            ledger.export(tmp_path / f"out.{kind}", kind)
            text = (tmp_path / f"out.{kind}").read_bytes().decode()
            buffer = io.StringIO()
            ledger.export(buffer, format=kind)
            assert buffer.getvalue() == text
            assert ledger._key.hex() not in text
            assert "0.123456" not in text
        exported = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
        assert list(exported) == ["epsilon", "delta", "n_individuals", "head", "entries"]
        assert (exported["epsilon"], exported["delta"], exported["n_individuals"]) == (1.0, 0.0, N)
        assert exported["head"] == ledger.head()
        assert [entry["kind"] for entry in exported["entries"]] == ["ledger", "bind", "account", "answer"]
        with pytest.raises(ValueError, match="format must be"):
            ledger.export(tmp_path / "out.xlsx", format="xlsx")

    @pytest.mark.parametrize(
        "name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "  =1", "＝1", '="a,b"']
    )
    def test_csv_is_safe_in_a_spreadsheet(self, name):
        import csv

        ledger = make_ledger()
        account = ledger.open_account(name, 1, 0)
        ask(ledger, account, "q")
        buffer = io.StringIO()
        ledger.export(buffer, format="csv")
        rows = list(csv.DictReader(io.StringIO(buffer.getvalue(), newline="")))
        assert rows[-1]["account"] == "'" + name
        assert float(rows[-1]["epsilon"]) == 0.25

    def test_numbers_stay_numbers(self):
        assert spreadsheet_cell(-0.5) == -0.5
        assert spreadsheet_cell(None) is None
        for harmless in ("plain", "X1", "1=2", "", " "):
            assert spreadsheet_cell(harmless) == harmless
        for formula in (" =1", "\x00=1", "\ufeff=1", "\t1", "|x", "%x", "\uff1d1"):
            assert spreadsheet_cell(formula) == "'" + formula


def charge_many(path, name, times, results, epsilon_part=Fraction(1, 2**12)):
    ledger = PrivacyLedger(path, epsilon=None)
    account = ledger.open_account(name, 1, 0)
    counts = [0, 0]

    def work(thread):
        for k in range(times):
            half = np.arange(N // 2) if thread % 2 else np.arange(N // 2, N)
            try:
                ask(ledger, account, f"{name} {thread} {k}", half, PrivacyLoss.pure(epsilon_part))
                counts[0] += 1
            except PrivacyBudgetExceeded:
                counts[1] += 1

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(counts)


@pytest.mark.parametrize(("method", "epsilon"), [("fork", 1.0), ("fork", 1 / 64), ("spawn", 1 / 64)])
def test_processes_and_threads_share_one_budget(tmp_path, method, epsilon):
    run_sharing(tmp_path, method, epsilon, times=40)


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [1.0, 1 / 8])
def test_two_processes_of_four_threads_and_500_answers(tmp_path, epsilon):
    run_sharing(tmp_path, "fork", epsilon, times=500)


def run_sharing(tmp_path, method, epsilon, times):
    path = tmp_path / "l.db"
    ledger = make_ledger(path, epsilon=epsilon)
    context = multiprocessing.get_context(method)
    results = context.Queue()
    processes = [context.Process(target=charge_many, args=(path, f"p{k}", times, results)) for k in range(2)]
    for process in processes:
        process.start()
    counts = np.array([results.get(timeout=300) for _ in processes])
    for process in processes:
        process.join()
        assert process.exitcode == 0
    # Each half is asked about by half of the threads.
    asked, room = 4 * times, int(epsilon * 2**12)
    answered = 2 * min(asked, room)
    assert counts.sum(axis=0).tolist() == [answered, 2 * asked - answered]
    assert ledger.spent().epsilon == Fraction(min(asked, room), 2**12)
    assert ledger.spent_per_individual().tolist() == [min(asked, room) / 2**12] * N
    assert (ledger.n_answers, ledger.n_refused()) == (answered, 2 * asked - answered)
    assert count_rows(path, "sets") == 2
    ledger.verify()


def found_and_ask(path, name, start, results):
    start.wait()
    try:
        ledger = make_ledger(path)
        ask(ledger, ledger.open_account(str(name), 1, 0), str(name), loss=PrivacyLoss.pure(Fraction(1, 64)))
        results.put("asked")
    except Exception as error:
        results.put(repr(error))


def test_processes_may_found_the_same_ledger(tmp_path):
    context = multiprocessing.get_context("fork")
    for run in range(4):
        path, start, results = tmp_path / f"{run}.db", context.Barrier(4), context.Queue()
        processes = [
            context.Process(target=found_and_ask, args=(path, name, start, results)) for name in range(4)
        ]
        for process in processes:
            process.start()
        assert [results.get(timeout=60) for _ in processes] == ["asked"] * 4
        for process in processes:
            process.join()
        ledger = PrivacyLedger(path, epsilon=None)
        ledger.verify()
        assert ledger.spent().epsilon == Fraction(4, 64)
        assert ledger.history()["kind"].value_counts().to_dict() == {
            "answer": 4,
            "account": 4,
            "ledger": 1,
            "bind": 1,
        }


class TestFork:
    def test_child_charges_reach_the_parent(self, tmp_path):
        ledger = make_ledger(tmp_path / "l.db")
        account = ledger.open_account("s", 1, 0)
        ask(ledger, account, "before")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                ask(ledger, account, "in the child")
                status = 0 if ledger.spent().epsilon == Fraction(1, 2) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert ledger.spent().epsilon == Fraction(1, 2)
        assert ask(ledger, account, "in the child", answer={})[1]
        ledger.verify()

    def test_child_outlives_the_parents_connection(self, tmp_path):
        # A connection carried over a fork would let the parent delete the log under the child.
        ledger = make_ledger(tmp_path / "l.db")
        account = ledger.open_account("s", 1, 0)
        ask(ledger, account, "before")
        ready, go = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                ask(ledger, account, "one")
                os.write(ready[1], b"x")
                os.read(go[0], 1)
                ask(ledger, account, "two")
                status = 0
            finally:
                os._exit(status)
        os.read(ready[0], 1)
        ledger.close()
        os.write(go[1], b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for end in (*ready, *go):
            os.close(end)
        assert ledger.spent().epsilon == Fraction(3, 4)

    def test_fork_while_threads_ask(self, tmp_path):
        ledger = make_ledger(tmp_path / "l.db")
        account = ledger.open_account("s", 1, 0)
        small = PrivacyLoss.pure(Fraction(1, 1024))
        stop = threading.Event()
        asked = []

        def work():
            while not stop.is_set() and len(asked) < 400:
                ask(ledger, account, f"thread {len(asked)}", loss=small)
                asked.append(1)

        thread = threading.Thread(target=work)
        thread.start()
        for k in range(8):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    ask(ledger, account, f"child {k}", loss=small)
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        stop.set()
        thread.join()
        assert ledger.spent().epsilon == Fraction(len(asked) + 8, 1024)
        ledger.verify()

    def test_child_of_a_release_is_told(self):
        ledger = make_ledger()
        account = ledger.open_account("s", 1, 0)

        def release():
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    ledger.spent()
                except RuntimeError as error:
                    status = 0 if "forked in the middle" in str(error) else 2
                finally:
                    os._exit(status)
            return {"status": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}

        answer, _ = ledger.charge(
            account=account, digest=b"q", individuals=None, loss=QUARTER, query={}, release=release
        )
        assert answer == {"status": 0}
        assert ledger.spent().epsilon == Fraction(1, 4)


@settings(deadline=None, max_examples=25)
@given(
    limits=st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12)),
    asked=st.lists(
        st.tuples(
            st.sampled_from([0, 1]),
            st.integers(0, 9),
            st.one_of(st.none(), st.sets(st.integers(0, 7), min_size=1)),
            st.integers(0, 4),
            st.sampled_from(["same", "other handle", "reopen", "failing"]),
        ),
        max_size=25,
    ),
)
def test_ledger_equals_a_plain_model(tmp_path_factory, limits, asked):
    """Answers, refusals, replays and sums agree with exact sums kept in a list per individual."""
    path, unit = tmp_path_factory.mktemp("model") / "l.db", Fraction(1, 16)
    ledger = make_ledger(path, epsilon=limits[0] * unit, n=8)
    other = PrivacyLedger(path, epsilon=None)
    accounts = [ledger.open_account(str(k), limit * unit, 0) for k, limit in enumerate(limits[1:])]
    paid, answers, refused = {None: [0] * 8, 0: [0] * 8, 1: [0] * 8}, {}, 0
    for step, (account, question, people, loss, how) in enumerate(asked):
        if how == "reopen":
            ledger.close()
            ledger = PrivacyLedger(path, epsilon=None)
        handle = other if how == "other handle" else ledger
        members = sorted(people) if people is not None else list(range(8))

        def release(how=how, step=step):
            if how == "failing":
                raise ZeroDivisionError
            return {"step": step}

        arguments = {
            "account": accounts[account],
            "digest": bytes([question]),
            "individuals": None if people is None else np.array(members),
            "loss": PrivacyLoss.pure(loss * unit),
            "query": {},
            "release": release,
        }
        fits = all(
            paid[owner][person] + loss <= limits[index]
            for owner, index in ((None, 0), (account, account + 1))
            for person in members
        )
        if question in answers:
            assert handle.charge(**arguments) == ({"step": answers[question]}, True)
        elif not fits:
            with pytest.raises(PrivacyBudgetExceeded):
                handle.charge(**arguments)
            refused += 1
        elif how == "failing":
            with pytest.raises(ZeroDivisionError):
                handle.charge(**arguments)
        else:
            assert handle.charge(**arguments) == ({"step": step}, False)
            answers[question] = step
            for owner in (None, account):
                for person in members:
                    paid[owner][person] += loss
    for handle in (ledger, other):
        for owner, number in ((None, None), (0, accounts[0]), (1, accounts[1])):
            assert handle.spent_per_individual(number).tolist() == [
                sixteenths / 16 for sixteenths in paid[owner]
            ]
            limit = limits[0 if owner is None else owner + 1]
            assert handle.remaining(number) == (limit - max(paid[owner])) / 16
        assert (handle.n_answers, handle.n_refused()) == (len(answers), refused)
        handle.verify()
        handle.close()


def test_threads_see_whole_states():
    """Readers never see an answer that is half counted."""
    ledger = make_ledger(epsilon=4.0)
    account = ledger.open_account("s", 4, 0)
    halves = np.arange(N // 2), np.arange(N // 2, N)
    stop, odd = threading.Event(), []

    def read():
        while not stop.is_set():
            spent = ledger.spent_per_individual()
            if len(set(spent[: N // 2])) > 1 or len(set(spent[N // 2 :])) > 1:
                odd.append(spent)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for k in range(150):
        ask(ledger, account, str(k), halves[k % 2], PrivacyLoss.pure(Fraction(1, 64)))
    stop.set()
    for reader in readers:
        reader.join()
    assert not odd
    assert ledger.spent().epsilon == Fraction(75, 64)


def test_negative_loss_and_odd_digests_are_refused():
    ledger = make_ledger()
    account = ledger.open_account("s", 1, 0)
    with pytest.raises(ValueError, match="must not be negative"):
        ask(ledger, account, "q", loss=PrivacyLoss(Fraction(-1)))
    for digest in ("text", b"", None):
        with pytest.raises(ValueError, match="digest must be bytes"):
            ledger.charge(
                account=account, digest=digest, individuals=None, loss=QUARTER, query={}, release=dict
            )
    assert ledger.n_answers == 0
