"""What the ledger costs: time per charged answer, beside a bare commit of the same bytes, and file growth.

Run ``python benchmarks/ledger.py``. Every answer is charged to its individuals, recorded with
a released value, hash-chained and synced to disk before it is returned.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_fairleak import PrivateFairnessScorer
from sklearn_fairleak.accounting import PrivacyLoss
from sklearn_fairleak.datasets import load_adult
from sklearn_fairleak.ledger import PrivacyLedger

#: What a noisy-sums answer about two groups looks like.
ANSWER = {"law": "laplace", "sums": [[1234.5, 2345.25]], "counts": [[3456.0, 4567.0]], "bounds": "clip"}
QUERY = {"metric": "statistical_parity", "mechanism": "noisy_sums", "n_samples": 1000, "n_models": 1}


def main(quick: bool = False) -> list[dict[str, Any]]:
    """Print and return one row per size and kind of question.

    Parameters
    ----------
    quick : bool, default=False
        Fewer answers and a smaller ledger.

    Returns
    -------
    list of dict
        ``n_individuals``, ``asked_about``, ``median_ms`` and ``p95_ms`` of a charge, ``bare_ms``
        of a plain SQLite commit of as many bytes, and ``bytes_per_answer``. The last row is
        about a search: ``answers``, ``search_s``, ``ledger_s`` and ``share_percent``.
    """
    rows = []
    for n in (10**3, 10**5 if quick else 10**6):
        for asked_about, questions in _questions(n):
            rows.append(_measure(n, asked_about, questions, 20 if quick else 200))
            print(
                "{n_individuals:>9,} individuals, {asked_about:<22} {median_ms:6.2f} ms (95 %: {p95_ms:6.2f}), bare "
                "commit {bare_ms:6.2f} ms, {bytes_per_answer:7.0f} bytes an answer".format(**rows[-1])
            )
    rows.append(_search(quick))
    print(
        "GridSearchCV on {n_individuals:,} rows of Adult, {answers} answers: {search_s:.1f} s, of which the ledger "
        "{ledger_s:.2f} s ({share_percent:.1f} %)".format(**rows[-1])
    )
    return rows


def _search(quick: bool) -> dict[str, Any]:
    """Time the ledger within a search of 20 candidates by 5 folds with cheap fits."""
    data = load_adult()
    X = data.data[["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]].astype(float)
    y = data.target
    candidates = 4 if quick else 20
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        ledger = TimedLedger(Path(folder, "ledger.db"), epsilon=1.0)
        scorer = PrivateFairnessScorer(n_queries=candidates, epsilon=1.0, ledger=ledger)
        scorer.fit(X, y, sensitive_features=data.sensitive_features)
        search = GridSearchCV(
            make_pipeline(StandardScaler(), LogisticRegression()),
            {"logisticregression__C": np.logspace(-3, 2, candidates).tolist()},
            scoring=scorer,
            cv=5,
            refit=False,
        )
        start = time.perf_counter()
        search.fit(X, y)
        elapsed = time.perf_counter() - start
        answers = ledger.n_answers
        ledger.close()
    return {
        "n_individuals": len(X),
        "answers": answers,
        "search_s": elapsed,
        "ledger_s": ledger.seconds,
        "share_percent": 100 * ledger.seconds / elapsed,
    }


class TimedLedger(PrivacyLedger):
    """A ledger that adds up the time it takes beside the release itself."""

    seconds = 0.0

    def charge(self, *, release: Callable[[], Any], **question: Any) -> tuple[dict[str, Any], bool]:
        """Charge, and note the time."""
        released = 0.0

        def timed() -> Any:
            nonlocal released
            start = time.perf_counter()
            answer = release()
            released = time.perf_counter() - start
            return answer

        start = time.perf_counter()
        result = super().charge(release=timed, **question)
        self.seconds += time.perf_counter() - start - released
        return result


def _questions(n: int) -> Iterator[tuple[str, Callable[[int], np.ndarray | None]]]:
    """Yield kinds of evaluation sets: the k-th question's individuals."""
    shuffled = np.random.default_rng(0).permutation(n)
    folds = [np.sort(fold) for fold in np.array_split(shuffled, 5)]
    yield "everyone", lambda k: None
    yield "5 shuffled folds", lambda k: folds[k % 5]
    yield "a new random half each", lambda k: np.flatnonzero(np.random.default_rng(k).random(n) < 0.5)


def _measure(
    n: int, asked_about: str, questions: Callable[[int], np.ndarray | None], answers: int
) -> dict[str, Any]:
    """Time charges on a new ledger, then bare commits of as many bytes on the same disk."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        ledger = PrivacyLedger(Path(folder, "ledger.db"), epsilon=1.0)
        ledger.bind(b"benchmark", n)
        account = ledger.open_account("benchmark", 1, 0)
        part = PrivacyLoss.pure(Fraction(1, 2**20))
        bare = _bare_database(Path(folder, "bare.db"))
        charged, size = [], 0
        for k in range(-10, answers):
            if k == 0:
                size = _size(folder)
            individuals, digest = questions(k + 10), ledger.digest(str(k).encode())
            start = time.perf_counter()
            ledger.charge(
                account=account,
                digest=digest,
                individuals=individuals,
                loss=part,
                query=QUERY,
                release=lambda: ANSWER,
            )
            charged.append(time.perf_counter() - start)
        growth = (_size(folder) - size) / answers
        committed = [_bare_commit(bare, round(growth)) for _ in range(-10, answers)]
        bare.close()
        ledger.verify()
        ledger.close()
    return {
        "n_individuals": n,
        "asked_about": asked_about,
        "median_ms": 1e3 * float(np.median(charged[10:])),
        "p95_ms": 1e3 * float(np.quantile(charged[10:], 0.95)),
        "bare_ms": 1e3 * float(np.median(committed[10:])),
        "bytes_per_answer": growth,
    }


def _bare_database(path: Path) -> sqlite3.Connection:
    """Open a database with the same durability and nothing else."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE bare (number INTEGER PRIMARY KEY, content BLOB)")
    return connection


def _bare_commit(connection: sqlite3.Connection, nbytes: int) -> float:
    """Time one committed insert."""
    content = os.urandom(nbytes)
    start = time.perf_counter()
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO bare (content) VALUES (?)", (content,))
    connection.execute("COMMIT")
    return time.perf_counter() - start


def _size(folder: str) -> int:
    """Return the size of the ledger once its log is merged into it."""
    with closing(sqlite3.connect(Path(folder, "ledger.db"))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(folder, "ledger.db").stat().st_size


if __name__ == "__main__":
    main()
