"""Audits of frames that are larger than memory, beside the bare group-by of their engine."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: Rows of the Parquet file that is audited, in a full and in a reduced run.
ROWS, QUICK_ROWS = 10**8, 10**6
REPEATS = 3

_MAKE = """
import duckdb, sys
path, rows = sys.argv[1], int(sys.argv[2])
duckdb.sql('SET enable_progress_bar = false')
duckdb.sql(f'''
    COPY (
        SELECT
            CASE WHEN hash(i) % 10 < 3 THEN 'f' ELSE 'm' END AS sex,
            'r' || (hash(i + 1) % 5) AS region,
            CAST(hash(i + 2) % 4 = 0 AS INTEGER) AS label,
            CAST(hash(i + 3) % 5 < 2 AS INTEGER) AS hired,
            (hash(i + 4) % 1000003) / 1000003.0 AS score
        FROM range({rows}) AS numbers(i)
    ) TO '{path}' (FORMAT parquet)
''')
"""

#: Each is timed in a process of its own, which also tells its peak memory.
_RUN = """
import json, resource, sys, time, warnings
import duckdb
path, what = sys.argv[1], sys.argv[2]
connection = duckdb.connect()
connection.sql("SET memory_limit = '3GB'")
connection.sql("SET enable_progress_bar = false")
if what.startswith("audit"):
    from fairlearn.metrics import false_positive_rate, mean_prediction, selection_rate, true_positive_rate
    from sklearn_fairleak import PrivateMetricFrame
times = []
for _ in range(int(sys.argv[3])):
    start = time.perf_counter()
    if what == "SQL of labels":
        connection.sql(
            f"SELECT sex, label, hired, count(*) FROM '{path}' GROUP BY sex, label, hired"
        ).fetchall()
    elif what == "SQL of a mean":
        connection.sql(f"SELECT sex, count(*), sum(score) FROM '{path}' GROUP BY sex").fetchall()
    elif what == "audit of labels":
        PrivateMetricFrame.from_frame(
            connection.sql(f"FROM '{path}'"),
            metrics={"selected": selection_rate, "tpr": true_positive_rate, "fpr": false_positive_rate},
            y_true="label", y_pred="hired", sensitive_features="sex",
        ).difference()
    else:
        PrivateMetricFrame.from_frame(
            connection.sql(f"FROM '{path}'"), metrics=mean_prediction, y_pred="score", sensitive_features="sex"
        ).difference()
    times.append(time.perf_counter() - start)
print(json.dumps([min(times), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))
"""


def main(quick: bool = False) -> list[dict[str, Any]]:
    """Audit a Parquet file through DuckDB, in time and memory."""
    rows = QUICK_ROWS if quick else ROWS
    table = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.parquet"
        subprocess.run([sys.executable, "-c", _MAKE, str(path), str(rows)], check=True)
        for subject in ("labels", "a mean"):
            bare, _ = _measured(path, f"SQL of {subject}")
            seconds, memory = _measured(path, f"audit of {subject}")
            table.append(
                {
                    "what": f"audit of {subject}, {rows:.0e} rows of Parquet through DuckDB",
                    "seconds": round(seconds, 2),
                    "bare SQL, seconds": round(bare, 2),
                    "times the bare SQL": round(seconds / bare, 2),
                    "wanted at most": 1.5,
                    "peak memory, GB": round(memory, 2),
                    "memory wanted below, GB": 4,
                }
            )
    return table


def _measured(path: Path, what: str) -> tuple[float, float]:
    """Return the least seconds of several runs and the peak memory of their process, in GB."""
    run = subprocess.run(
        [sys.executable, "-c", _RUN, str(path), what, str(REPEATS)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, memory = json.loads(run.stdout)
    return float(seconds), float(memory)
