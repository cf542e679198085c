"""The HTML report: escaping, self-containment, what it says, and how a browser takes it."""

import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

from sklearn_fairleak import FairnessAuditor, NotPrivateWarning
from sklearn_fairleak.report import audit_data, guessing_ceiling, render_report, write_report

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=http://example.com/x onerror=alert(2)>',
    "$x_{1}$ {{ 7 * 7 }}",
]


@pytest.fixture(scope="module")
def data():
    auditor = FairnessAuditor(
        ["<b>w</b>", "m&m"] * 100, ids=[f"p{i}" for i in range(200)], epsilon=1.0, delta=1e-6
    )
    scorer = auditor.scorer(n_queries=3)
    answers = [scorer.answer(np.random.default_rng(k).random(200)) for k in range(3)]
    return audit_data(
        answers,
        names=HOSTILE,
        auditor=auditor,
        threshold={"max_gap": 0.1, "passed": False, "epsilon": 0.2},
        reproduce="fairleak audit 'a&b.csv'",
        title="Audit of <model>",
    )


class Elements(HTMLParser):
    """Collect tags and the addresses that they point to."""

    def __init__(self):
        super().__init__()
        self.tags, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "action")]


def test_hostile_names_are_text(data):
    page = render_report(data)
    elements = Elements()
    elements.feed(page)
    assert "script" not in elements.tags
    assert "b" not in elements.tags
    assert elements.tags.count("img") == 1  # the figure, and none from a name
    assert "{{ 7 * 7 }}" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_nothing_is_fetched(data):
    elements = Elements()
    elements.feed(render_report(data))
    assert all(link.startswith(("data:", "#")) for link in elements.links)


def test_the_page_says_what_was_released_and_guaranteed(data):
    page = render_report(data)
    for row in data["answers"]:
        assert f"{row['value']:.4f}" in page
        assert row["low"] <= row["value"] <= row["high"]
    assert "Failed" in page
    assert f"{100 * guessing_ceiling(1.0, 1e-6):.1f} %" in page
    assert "Not private" not in page


def test_answers_without_protection_are_marked():
    auditor = FairnessAuditor(["b", "w"] * 50, ids=[f"p{i}" for i in range(100)])
    with pytest.warns(NotPrivateWarning):
        answer = auditor.answer(np.arange(100) % 2, mechanism="exact")
    assert "Not private" in render_report(audit_data([answer]))


def test_ceiling_is_the_bayes_rule_of_randomised_response():
    for epsilon in (0.1, 1.0, 5.0):
        keep = np.exp(epsilon) / (1 + np.exp(epsilon))
        assert guessing_ceiling(epsilon) == pytest.approx(keep)
    assert guessing_ceiling(0.0) == 0.5


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_browser_shows_it_without_complaint_or_request(data, tmp_path):
    page = tmp_path / "report.html"
    write_report(data, page)
    log = tmp_path / "net.json"
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={log}",
        "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    assert "Audit of &lt;model&gt;" in done.stdout
    assert "example.com" not in log.read_text(encoding="utf-8", errors="replace").replace(page.as_uri(), "")
