"""The demonstration's findings, on real data."""

import json

import pytest

from sklearn_fairleak.demo import plot_demo, run_demo, write_demo


@pytest.fixture(scope="module")
def results():
    steps = []
    found = run_demo(report=steps.append)
    assert len(steps) == 7
    return found


def test_exact_answers_give_everyone_away(results):
    linear, sensing, positional = results["exact"]
    assert [entry["leakage"] for entry in (linear, positional)] == [1.0, 1.0]
    assert sensing["leakage"] > 0.9
    assert (linear["queries"], sensing["queries"]) == (1000, 400)
    assert positional["queries"] <= 30
    assert positional["max_shift"] <= 0.1
    assert sensing["max_shift"] <= 0.1 + 1e-9
    assert positional["accuracy_loss"] == 0.0


def test_private_answers_do_not(results):
    for entry in results["private"]:
        # In expectation at most 0.73, the ceiling at epsilon = 1; 100 people of the minority scatter.
        assert entry["leakage"] < 0.9


def test_auto_answers_are_more_accurate_than_the_papers(results):
    printed, _, auto = results["private"]
    assert auto["error_many"] < 0.25 < printed["error_many"]
    assert auto["error_one"] < 0.08


def test_results_are_written(results, tmp_path):
    write_demo(results, tmp_path / "demo.json")
    assert json.loads((tmp_path / "demo.json").read_text())["exact"] == results["exact"]
    plot_demo(results, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
