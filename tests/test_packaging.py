"""What is installed, what an import costs, and that the files around the package agree with it."""

from __future__ import annotations

import getpass
import json
import platform
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points, metadata, requires
from importlib.resources import files
from pathlib import Path

import numpy as np
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


def test_benchmarks_are_found_by_name():
    listed = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--list"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    modules = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if not path.stem.startswith("_")}
    assert set(listed) == modules


def test_unknown_benchmark_is_refused():
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "unknown benchmark 'nothing'; there are: accuracy" in result.stderr


def test_benchmark_results_tell_versions_and_no_place(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    runner = import_module("benchmarks.__main__")
    rows = [{"n": np.int64(3), "error": np.float64(0.5)}, {"n": 4, "peer": None}]
    runner.write(tmp_path / "new", "some", rows, seconds=1.26, quick=True)
    document = json.loads((tmp_path / "new" / "some.json").read_text(encoding="utf-8"))
    assert document["rows"] == [{"n": 3, "error": 0.5}, {"n": 4, "peer": None}]
    assert document["environment"]["sklearn_fairleak"] == sklearn_fairleak.__version__
    text = json.dumps(document["environment"])
    for place in (platform.node(), getpass.getuser(), str(Path.home()), sys.prefix):
        assert f'"{place}"' not in text
        assert len(place) < 6 or place not in text
    assert (tmp_path / "new" / "some.csv").read_text(encoding="utf-8") == "n,error,peer\n3,0.5,\n4,,\n"


def test_failing_benchmark_sets_the_exit_code_and_spares_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT)
    runner = import_module("benchmarks.__main__")
    package = import_module("benchmarks")
    (tmp_path / "good_one.py").write_text("def main(quick=False):\n    return [{'quick': quick}]\n")
    (tmp_path / "bad_one.py").write_text("def main(quick=False):\n    return []\n")
    monkeypatch.setattr(package, "__path__", [str(tmp_path)])
    assert runner.main(["--quick", "--out", str(tmp_path / "out")]) == 1
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == ["good_one.csv", "good_one.json"]
    assert "failed: bad_one" in capsys.readouterr().out
    assert runner.main(["good_one", "--quick"]) == 0
