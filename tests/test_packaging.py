"""What is installed, what an import costs, and that the files around the package agree with it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points, metadata, requires
from importlib.resources import files
from pathlib import Path

import pytest

import sklearn_fairleak

ROOT = Path(__file__).resolve().parent.parent
HEAVY = [
    "pandas",
    "fairlearn",
    "matplotlib",
    "rich",
    "typer",
    "polars",
    "duckdb",
    "jinja2",
    "fpylll",
    "sqlite3",
]
PUBLIC_MODULES = ["sklearn_fairleak", "sklearn_fairleak.datasets", "sklearn_fairleak.mechanisms"]


def fresh(code: str) -> str:
    """Run code in a new interpreter, so that this process' imports do not count."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_version_is_one_and_the_same():
    assert metadata("sklearn-fairleak")["Version"] == sklearn_fairleak.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {sklearn_fairleak.__version__}\n" in citation
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{sklearn_fairleak.__version__}]" in changelog


def test_types_data_and_licences_are_inside_the_package():
    package = files("sklearn_fairleak")
    for name in ("py.typed", "datasets/data/README.md", "datasets/data/adult.csv.gz"):
        assert (package / name).is_file()
    assert metadata("sklearn-fairleak")["License-Expression"] == "BSD-3-Clause"


def test_command_line_is_installed():
    (command,) = entry_points(group="console_scripts", name="fairleak")
    assert callable(command.load())


def test_plain_import_loads_nothing_heavy():
    code = f"import sys, sklearn_fairleak; print([name for name in {HEAVY} if name in sys.modules])"
    assert fresh(code).strip() == "[]"


@pytest.mark.parametrize("name", ["PrivateFairnessScorer", "FairnessAuditor", "AttributeRevealAttack"])
def test_public_classes_load_only_what_they_need(name):
    unneeded = [heavy for heavy in HEAVY if heavy not in ("pandas", "sqlite3")]
    code = (
        f"import sys; from sklearn_fairleak import {name}; print([m for m in {unneeded} if m in sys.modules])"
    )
    assert fresh(code).strip() == "[]"


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_every_public_name_is_there_and_documented(module):
    home = import_module(module)
    for name in home.__all__:
        value = getattr(home, name)
        if callable(value):
            assert (value.__doc__ or "").strip(), name
    assert set(home.__all__) <= set(dir(home))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = sklearn_fairleak.no_such_name


def test_oldest_supported_versions_are_the_declared_ones():
    declared = {}
    for requirement in requires("sklearn-fairleak") or []:
        found = re.match(r"([\w-]+)>=([\d.]+)(?:$|;.*extra==.plot.)", requirement.replace(" ", ""))
        if found:
            declared[found[1]] = found[2]
    lines = (ROOT / ".ci" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.removesuffix(".*").split("==") for line in lines if not line.startswith("#"))
    assert pinned.keys() == declared.keys()
    for name, version in pinned.items():
        assert version.removesuffix(".0") == declared[name].removesuffix(".0"), name


def test_ci_takes_its_commands_from_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for marker in ("test-command", "demo-command"):
        block = re.search(rf"^<!-- {marker} -->\n```bash\n(.+?)\n```$", readme, re.MULTILINE | re.DOTALL)
        assert block is not None
        assert block[1].startswith("python3 -m venv .venv")
        assert f"readme_command {marker}" in script
    assert '-m "not statistical"' in readme
    assert "-m statistical" in readme
