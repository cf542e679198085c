"""Whatever goes wrong, no answer leaves that was not charged, and no ledger is left broken."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import sklearn_fairleak.ledger as ledger_module
from sklearn_fairleak import ledger_file
from sklearn_fairleak.accounting import PrivacyLoss
from sklearn_fairleak.exceptions import LedgerIntegrityError, PrivacyBudgetExceeded
from sklearn_fairleak.ledger import PrivacyLedger
from sklearn_fairleak.ledger_charges import Charges

# Newer Pythons warn of forks with threads; that these work is what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

N = 100
PART = PrivacyLoss.pure(Fraction(1, 64))
QUESTIONS = 3


def open_ledger(path):
    ledger = PrivacyLedger(path, epsilon=1.0)
    ledger.bind(b"people", N)
    return ledger


def ask(ledger, account, name, individuals=None, answer="fresh", release=None):
    return ledger.charge(
        account=account,
        digest=ledger.digest(name.encode()),
        individuals=individuals,
        loss=PART,
        query={"metric": "statistical_parity"},
        release=release or (lambda: {"value": answer}),
    )


def ask_some(path, report):
    """Open a ledger, ask a few questions, and report every answer that is returned."""
    ledger = open_ledger(path)
    account = ledger.open_account("child", 1, 0)
    for k in range(QUESTIONS):
        answer, _ = ask(
            ledger, account, f"child {k}", np.arange(N // 2) if k % 2 else None, answer=f"answer {k}"
        )
        report(answer["value"])
    ledger.close()


def run_and_kill(path, kill_at_line=None, kill_after=None):
    """Run ask_some in a child that is killed; return the answers that left it and whether it was killed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            if kill_at_line is not None:
                trace_lines(kill_at_line)
            ask_some(path, lambda value: os.write(write, value.encode() + b"\n"))
        finally:
            os._exit(0)
    os.close(write)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(read, "rb") as stream:
        returned = stream.read().decode().splitlines()
    _, status = os.waitpid(child, 0)
    return returned, os.WIFSIGNALED(status)


def trace_lines(kill_at):
    """Kill this process at the n-th line of the ledger's modules that it runs."""
    seen = 0

    def on_line(frame, event, argument):
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return on_line

    def on_call(frame, event, argument):
        name = os.path.basename(frame.f_code.co_filename)
        return on_line if name.startswith("ledger") and frame.f_code.co_name != "_dispose" else None

    sys.settrace(on_call)


def check_after_crash(path, returned, before=0):
    """Every answer that left is recorded and charged, and the ledger works on."""
    ledger = open_ledger(path)
    ledger.verify()
    recorded = ledger.n_answers - before
    assert len(returned) <= recorded <= len(returned) + 1
    assert ledger.spent().epsilon == (before + recorded) * PART.epsilon
    account = ledger.open_account("after", 1, 0)
    for k, value in enumerate(returned):
        assert ask(ledger, account, f"child {k}", answer="made anew") == ({"value": value}, True)
    assert ask(ledger, account, "another")[1] is False
    ledger.close()


@pytest.fixture
def memory_path(tmp_path):
    """A folder in memory where there is one: kills do not depend on the disk, and syncing is free there."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


@pytest.fixture
def template(memory_path):
    path = memory_path / "template" / "l.db"
    path.parent.mkdir()
    ledger = open_ledger(path)
    ask(ledger, ledger.open_account("earlier", 1, 0), "earlier")
    ledger.close()
    return path


def kill_at_lines(tmp_path, template, step, start=1):
    """Kill at every step-th line until a child gets through; return the number of kills."""
    for kills, line in enumerate(range(start, 100_000, step)):
        folder = tmp_path / "run"
        folder.mkdir()
        path = folder / "l.db"
        if template is not None:
            shutil.copy(template, path)
        returned, killed = run_and_kill(path, kill_at_line=line)
        check_after_crash(path, returned, before=0 if template is None else 1)
        shutil.rmtree(folder)
        if not killed:
            assert len(returned) == QUESTIONS
            return kills
    raise AssertionError("the child never got through")


def test_killed_at_some_lines(memory_path, template):
    assert kill_at_lines(memory_path, template, step=23, start=7) > 20


def test_killed_while_the_file_is_made(memory_path):
    assert kill_at_lines(memory_path, None, step=37) > 10


@pytest.mark.statistical
def test_killed_at_hundreds_of_lines(memory_path, template):
    kills = kill_at_lines(memory_path, template, step=2) + kill_at_lines(memory_path, None, step=8)
    assert kills >= 500


def killed_at_random_times(tmp_path, times, seed):
    rng = np.random.default_rng(seed)
    path, returned_in_all = tmp_path / "l.db", {}
    ledger = open_ledger(path)
    ledger.close()
    for run in range(times):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                again = open_ledger(path)
                account = again.open_account("child", 1, 0)
                for k in range(10_000):
                    name = f"{run} {k}"
                    again.charge(
                        account=account,
                        digest=again.digest(name.encode()),
                        individuals=np.arange(k % 50, 100),
                        loss=PrivacyLoss.pure(Fraction(1, 2**20)),
                        query={},
                        release=lambda name=name: {"value": f"answer to {name}"},
                    )
                    os.write(write, name.encode() + b"\n")
            finally:
                os._exit(0)
        os.close(write)
        time.sleep(rng.uniform(0.0, 0.06))
        os.kill(child, signal.SIGKILL)
        with os.fdopen(read, "rb") as stream:
            for name in stream.read().decode().splitlines():
                returned_in_all[name] = f"answer to {name}"
        os.waitpid(child, 0)
        if run % 10 == 9:
            ledger.verify()
    ledger.verify()
    assert len(returned_in_all) <= ledger.n_answers <= len(returned_in_all) + times
    assert ledger.spent().epsilon == Fraction(ledger.n_answers, 2**20)
    account = ledger.open_account("after", 1, 0)
    for name, value in returned_in_all.items():
        assert ask(ledger, account, name) == ({"value": value}, True)
    return len(returned_in_all)


def test_killed_at_random_times(memory_path):
    killed_at_random_times(memory_path, 12, seed=0)


@pytest.mark.statistical
def test_killed_at_random_times_often(memory_path):
    assert killed_at_random_times(memory_path, 200, seed=1) > 200


class TestFullDisk:
    def test_database_may_not_grow(self, tmp_path):
        ledger = open_ledger(tmp_path / "l.db")
        account = ledger.open_account("s", 1, 0)
        ask(ledger, account, "small")
        connection = ledger._file._connections[0]
        connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")
        with pytest.raises(LedgerIntegrityError, match=r"the disk is full.*No answer was given"):
            ask(ledger, account, "large", answer="x" * 10**6)
        connection.execute("PRAGMA max_page_count = 100000")
        ledger.verify()
        assert ledger.n_answers == 1
        assert ledger.spent() == PART
        assert ask(ledger, account, "large", answer="x" * 10**6)[1] is False

    @pytest.mark.parametrize("pages", range(0, 12, 2))
    def test_full_at_different_steps(self, tmp_path, pages):
        ledger = open_ledger(tmp_path / "l.db")
        account = ledger.open_account("s", 1, 0)
        connection = ledger._file._connections[0]
        count = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {count + pages}")
        rng, answered = np.random.default_rng(pages), []

        def ask_until_full():
            for k in range(200):
                asked = np.flatnonzero(rng.random(N) < 0.5)
                ask(ledger, account, str(k), asked, answer="x" * int(rng.integers(3000)))
                answered.append(asked)

        with pytest.raises(LedgerIntegrityError, match="the disk is full"):
            ask_until_full()
        ledger.verify()
        expected = np.zeros(N)
        for asked in answered:
            expected[asked] += 1 / 64
        np.testing.assert_array_equal(ledger.spent_per_individual(), expected)
        assert ledger.n_answers == len(answered)

    @pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="needs to mount a small disk")
    def test_small_disk(self, tmp_path):
        disk = tmp_path / "disk"
        disk.mkdir()
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk], capture_output=True, check=False
        ).returncode:
            pytest.skip("mounting is not allowed here")
        try:
            ledger = open_ledger(disk / "l.db")
            account = ledger.open_account("s", 1, 0)
            answered = []
            with pytest.raises(LedgerIntegrityError, match=r"disk.*No answer was given"):
                answered.extend(ask(ledger, account, str(k), answer="x" * 30_000) for k in range(50))
            answered = len(answered)
            assert answered > 0
            assert ledger.n_answers == answered
            assert ledger.spent() == PART * answered
            ledger.verify()
            ledger.close()
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_file_size_limit(self, tmp_path):
        code = (
            "import resource, signal, sys\n"
            "sys.path.insert(0, sys.argv[2])\n"
            "from test_ledger_faults import *\n"
            "ledger = open_ledger(sys.argv[1])\n"
            "account = ledger.open_account('s', 1, 0)\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
            "for k in range(20):\n"
            "    ask(ledger, account, str(k), answer='x' * 30_000)\n"
            "    print('answered', flush=True)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, tmp_path / "l.db", Path(__file__).parent],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "LedgerIntegrityError" in done.stderr
        assert "No answer was given" in done.stderr
        ledger = open_ledger(tmp_path / "l.db")
        ledger.verify()
        assert 0 < ledger.n_answers == done.stdout.count("answered")


def run_unprivileged(work):
    """Run work in a child that may not write what root may; return what it returns."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            os.write(write, work().encode())
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        said = stream.read().decode()
    os.waitpid(child, 0)
    return said


class TestReadOnly:
    @pytest.fixture
    def folder(self):
        # Not tmp_path: its parents are closed to an unprivileged child.
        folder = Path(tempfile.mkdtemp())
        yield folder
        folder.chmod(0o700)
        shutil.rmtree(folder)

    def test_archived_copy_can_be_read_and_gives_no_answers(self, folder):
        ledger = open_ledger(folder / "l.db")
        ask(ledger, ledger.open_account("s", 1, 0), "q")
        head, before = ledger.head(), ledger.history()
        ledger.close()
        (folder / "l.db").chmod(0o444)
        folder.chmod(0o555)

        def work():
            archived = PrivacyLedger(folder / "l.db", epsilon=None)
            archived.verify(head=head)
            same = archived.history().equals(before)
            try:
                ask(archived, 1, "another")
            except LedgerIntegrityError as error:
                return f"{same} {archived.n_answers} {error}"
            return "answered"

        said = run_unprivileged(work)
        assert said.startswith("True 1 ")
        assert "is read-only" in said
        assert "No answer was given" in said

    def test_folder_that_cannot_be_written(self, folder):
        folder.chmod(0o555)
        said = run_unprivileged(lambda: repr(open_ledger(folder / "new.db")))
        assert said.startswith("LedgerIntegrityError: The ledger")
        assert "cannot be created: Permission denied" in said

    def test_file_that_cannot_be_read(self, folder):
        open_ledger(folder / "l.db").close()
        (folder / "l.db").chmod(0o000)
        folder.chmod(0o555)
        said = run_unprivileged(lambda: repr(PrivacyLedger(folder / "l.db", epsilon=None)))
        assert said.startswith("LedgerIntegrityError: The ledger")
        assert "cannot be opened" in said

    def test_folder_that_is_not_there(self, folder):
        with pytest.raises(LedgerIntegrityError, match="cannot be created: No such file"):
            open_ledger(folder / "no" / "l.db")


class TestForeignFiles:
    @pytest.mark.parametrize(
        "content", [b"garbage", os.urandom(5000), b"SQLite format 3\x00" + b"\x00" * 4080]
    )
    def test_not_a_database(self, tmp_path, content):
        (tmp_path / "l.db").write_bytes(content)
        with pytest.raises(LedgerIntegrityError, match=r"not a database|corrupt"):
            open_ledger(tmp_path / "l.db")
        assert (tmp_path / "l.db").read_bytes() == content

    def test_database_of_something_else(self, tmp_path):
        with contextlib.closing(sqlite3.connect(tmp_path / "l.db")) as connection:
            connection.execute("CREATE TABLE theirs (x)")
        before = (tmp_path / "l.db").read_bytes()
        with pytest.raises(LedgerIntegrityError, match="database of something else"):
            open_ledger(tmp_path / "l.db")
        assert (tmp_path / "l.db").read_bytes() == before

    def test_empty_file_becomes_a_ledger_only_with_a_budget(self, tmp_path):
        (tmp_path / "l.db").touch()
        with pytest.raises(ValueError, match="give epsilon"):
            PrivacyLedger(tmp_path / "l.db", epsilon=None)
        assert (tmp_path / "l.db").stat().st_size == 0
        open_ledger(tmp_path / "l.db").verify()

    def test_newer_schema(self, template):
        with contextlib.closing(sqlite3.connect(template)) as connection:
            connection.execute("PRAGMA user_version = 2")
        with pytest.raises(LedgerIntegrityError, match=r"schema 2, newer than 1.*Upgrade sklearn_fairleak"):
            open_ledger(template)

    def test_truncated_file(self, template):
        content = template.read_bytes()
        template.write_bytes(content[: len(content) // 2])
        with pytest.raises(LedgerIntegrityError, match="is corrupt"):
            open_ledger(template)

    def test_flipped_bits_never_change_a_budget_unseen(self, memory_path, template):
        flip_bits(memory_path, template, times=150, seed=2)

    @pytest.mark.statistical
    def test_many_flipped_bits_never_change_a_budget_unseen(self, memory_path, template):
        flip_bits(memory_path, template, times=3000, seed=3)


def flip_bits(tmp_path, template, times, seed):
    """A flipped bit is found, or it changes nothing that the ledger says."""
    rng = np.random.default_rng(seed)
    original = template.read_bytes()
    ledger = PrivacyLedger(template, epsilon=None)
    expected = ledger.spent(), ledger.head(), ledger.remaining(), ledger.n_answers
    path, found = tmp_path / "flipped.db", 0
    for _ in range(times):
        content = bytearray(original)
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        flipped = None
        try:
            flipped = PrivacyLedger(path, epsilon=None)
            flipped.verify()
            told = flipped.spent(), flipped.head(), flipped.remaining(), flipped.n_answers
            answer = ask(flipped, 1, "earlier", answer="made anew")
        except LedgerIntegrityError:
            found += 1
            continue
        finally:
            if flipped is not None:
                flipped.close()
            for left in ("-wal", "-shm"):
                Path(f"{path}{left}").unlink(missing_ok=True)
        assert told == expected
        assert answer == ({"value": "fresh"}, True)
    assert 0 < found < times


class TestLockedAndMoved:
    def test_locked_by_another_process(self, template, monkeypatch):
        monkeypatch.setattr(ledger_file, "_PATIENCE", 0.1)
        ledger = open_ledger(template)
        with contextlib.closing(sqlite3.connect(template, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(
                LedgerIntegrityError, match=r"is locked by another process.*No answer was given"
            ):
                ask(ledger, 1, "q")
            # Reading goes on.
            assert ledger.n_answers == 1
            other.execute("ROLLBACK")
        assert ask(ledger, 1, "q")[1] is False

    def test_waits_for_another_process(self, template):
        ledger = open_ledger(template)
        other = sqlite3.connect(template, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, other.execute, ["ROLLBACK"])
        timer.start()
        assert ask(ledger, 1, "q")[1] is False
        timer.join()
        other.close()

    def test_deleted_under_an_open_ledger(self, template):
        ledger = open_ledger(template)
        template.unlink()
        with pytest.raises(LedgerIntegrityError, match=r"cannot be found.*No answer was given"):
            ask(ledger, 1, "q")

    def test_replaced_under_an_open_ledger(self, template):
        older = shutil.copy(template, template.parent / "older.db")
        ledger = open_ledger(template)
        os.replace(older, template)
        with pytest.raises(LedgerIntegrityError, match=r"was replaced by another file.*No answer was given"):
            ask(ledger, 1, "q")


class TestInterrupted:
    @pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, SystemExit])
    def test_in_the_release(self, template, error):
        ledger = open_ledger(template)

        def release():
            raise error

        with pytest.raises(error):
            ask(ledger, 1, "q", release=release)
        assert ledger.n_answers == 1
        assert ledger.spent() == PART
        ledger.verify()

    @pytest.mark.parametrize("step", ["reserve", "seal", "append"])
    def test_between_the_writes(self, template, monkeypatch, step):
        ledger = open_ledger(template)
        original = getattr(ledger_module, step)

        def interrupted(*arguments):
            original(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(ledger_module, step, interrupted)
            write = {"append": partial(ledger.open_account, "new", 1, 0)}.get(
                step, partial(ask, ledger, 1, "q", np.arange(3))
            )
            with pytest.raises(KeyboardInterrupt):
                write()
        assert ledger.n_answers == 1
        assert ledger.spent() == PART
        ledger.verify()
        assert ask(ledger, 1, "q", np.arange(3))[1] is False

    def test_while_sums_are_brought_up_to_date(self, template, monkeypatch):
        ledger = open_ledger(template)
        for k in range(3):
            ask(ledger, 1, f"q{k}", np.arange(N // 2))
        original = Charges.add

        def interrupted(self, members, loss):
            original(self, members, loss)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Charges, "add", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ledger.spent()
        assert ledger.spent() == PART * 4
        assert ledger.epsilon == 1.0
        np.testing.assert_array_equal(
            ledger.spent_per_individual(), np.repeat([4 / 64, 1 / 64], [N // 2, N // 2])
        )

    def test_refusals_survive_a_restart(self, template):
        ledger = open_ledger(template)
        account = ledger.open_account("small", Fraction(1, 128), 0)
        with pytest.raises(PrivacyBudgetExceeded):
            ask(ledger, account, "q")
        ledger.close()
        assert PrivacyLedger(template, epsilon=None).n_refused(account) == 1
