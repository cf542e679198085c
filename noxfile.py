"""Sessions named after what they prove: ``nox`` runs all, ``nox -s tests`` one."""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.sessions = ["lint", "tests", "statistical", "oldest", "docs", "benchmarks"]
nox.options.reuse_existing_virtualenvs = True
SUPPORTED = ["3.11", "3.12", "3.13", "3.14"]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
#: What touches scikit-learn, fairlearn and pandas most.
OLDEST_TESTS = [
    "test_scorer*.py",
    "test_sklearn*.py",
    "test_attack_reveal.py",
    "test_auditor.py",
    "test_metrics.py",
    "test_datasets.py",
]


@nox.session(python=SUPPORTED)
def tests(session: nox.Session) -> None:
    """Prove what the package promises, on every supported Python that is installed."""
    session.install("-e", ".[test]")
    session.run("pytest", "-n", "2", "-m", "not statistical", *session.posargs, env=ONE_THREAD)


@nox.session
def statistical(session: nox.Session) -> None:
    """Prove the laws of noise, attacks and intervals on many draws."""
    session.install("-e", ".[test]")
    session.run("pytest", "-n", "2", "-m", "statistical", *session.posargs, env=ONE_THREAD)


@nox.session
def oldest(session: nox.Session) -> None:
    """Prove that the lower ends declared in pyproject.toml work."""
    session.install("-c", ".ci/oldest.txt", ".[plot]", "pytest==8.*", "hypothesis")
    tests = session.posargs or sorted(str(path) for name in OLDEST_TESTS for path in Path("tests").glob(name))
    session.run("pytest", "-m", "not statistical", *tests, env=ONE_THREAD)


@nox.session
def docs(session: nox.Session) -> None:
    """Prove that the documentation builds without a warning and that its examples run."""
    session.install("-e", ".[docs,test]")
    session.run("pytest", "-q", "--doctest-modules", "sklearn_fairleak", env=ONE_THREAD)
    session.run("pytest", "-q", "--doctest-glob=*.rst", "docs", env=ONE_THREAD)
    session.run(
        "sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html", env=ONE_THREAD
    )


@nox.session
def lint(session: nox.Session) -> None:
    """Prove style and types."""
    session.install("-e", ".[test]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Measure beside the peers; ``nox -s benchmarks -- --quick`` for a reduced run."""
    session.install("-e", ".[benchmarks]")
    session.run("python", "-m", "benchmarks", *session.posargs)
