"""The README's Python runs as shown, in one go, and says what it shows."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.fixture(scope="module")
def namespace():
    """Run every Python block of the README, in order, as a reader would."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 3
    shown: dict = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), shown)
    return shown


def test_search_of_the_readme_pays_one_answer_a_candidate(namespace):
    report = namespace["auditor"].report()
    assert report["n_answers_"] == 3 * 5
    assert report["remaining_"] == pytest.approx(0, abs=1e-9)
    assert (namespace["search"].cv_results_["mean_test_parity"] <= 0).all()


def test_attack_of_the_readme_learns_everyone(namespace):
    attack = namespace["attack"]
    assert attack.leakage(namespace["race"]) == 1.0
    assert attack.n_queries_ <= 30


def test_both_commands_are_marked_for_the_build():
    text = README.read_text(encoding="utf-8")
    for marker in ("demo-command", "test-command"):
        assert re.search(rf"<!-- {marker} -->\n```bash\npython3 -m venv [^\n]+\n```", text)
