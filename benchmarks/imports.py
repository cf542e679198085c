"""Time to import the package, as a ratio to what it needs anyway."""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from typing import Any

BASELINE = "import sklearn.base, pandas"
#: Only used where they are needed, so an import must not pay for them.
HEAVY = ("fairlearn", "matplotlib", "rich", "typer", "polars", "duckdb", "jinja2", "fpylll")


def main(quick: bool = False) -> list[dict[str, Any]]:
    """Compare medians over fresh interpreters, taken in turns."""
    repeats = 3 if quick else 15
    statements = {
        "sklearn_fairleak": "import sklearn_fairleak",
        "the scorer": "from sklearn_fairleak import PrivateFairnessScorer",
        "the attack": "from sklearn_fairleak import AttributeRevealAttack",
    }
    times: dict[str, list[float]] = {statement: [] for statement in (BASELINE, *statements.values())}
    for statement in times:
        _seconds(statement)
    for _ in range(repeats):
        for statement, measured in times.items():
            measured.append(_seconds(statement))
    peer = median(times[BASELINE])
    return [
        {
            "import": name,
            "seconds": round(median(times[statement]), 3),
            f"{BASELINE}, seconds": round(peer, 3),
            "ratio": round(median(times[statement]) / peer, 3),
            "wanted at most": 1.3,
            "reached": median(times[statement]) <= 1.3 * peer,
            "heavy packages loaded": ", ".join(_loaded(statement)) or "none",
        }
        for name, statement in statements.items()
    ]


def _seconds(statement: str) -> float:
    """Time one import in a fresh interpreter, without the start of the interpreter itself."""
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    return float(_fresh(code))


def _loaded(statement: str) -> list[str]:
    """Return which heavy packages the import brings."""
    code = f"import sys; {statement}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    return _fresh(code).split()


def _fresh(code: str) -> str:
    """Run code in a new interpreter and return what it prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
