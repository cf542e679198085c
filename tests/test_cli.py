"""The command line: what it prints, what it charges, and its exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sklearn_fairleak import PrivacyLedger
from sklearn_fairleak.cli import app
from sklearn_fairleak.cli_attack import read_log
from sklearn_fairleak.table_audit import Audit
from sklearn_fairleak.tables import read_table, write_table

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=.* barely protects")

N = 600
RNG = np.random.default_rng(0)
RACE = np.where(np.arange(N) % 3 == 0, "b", "w")
FRAME = pd.DataFrame(
    {
        "id": [f"p{i}" for i in range(N)],
        "race": RACE,
        "sex": np.where(np.arange(N) // 3 % 2, "f", "m"),
        "y": np.arange(N) // 6 % 2,
        "fair": np.arange(N) // 3 % 2,
        "biased": np.where(RACE == "w", 1, 0),
        "score": RNG.random(N).round(3),
        "text": np.where(np.arange(N) // 3 % 2, "yes", "no"),
        "same": 1,
        "void": np.nan,
        "holes": np.where(np.arange(N) == 5, np.nan, 1.0 * (np.arange(N) % 2)),
        "one": "w",
        "age": RNG.normal(size=N),
    }
)
SURE = ["--epsilon", "100"]


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.csv"
    FRAME.to_csv(path, index=False)
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def script(*arguments, cwd=None):
    """Run the installed console script."""
    program = Path(sys.executable).parent / "fairleak"
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=cwd, check=False
    )


def audit(data, *arguments, sensitive="race"):
    return run("audit", data, "--sensitive", sensitive, *arguments)


class TestAudit:
    def test_table_of_several_models(self, data):
        result = audit(data, "--prediction", "fair", "--prediction", "biased", *SURE)
        assert result.exit_code == 0
        assert "fair" in result.output
        assert "95 % interval" in result.output
        assert "spent epsilon = 100 of 100" in result.output

    def test_values_are_right_for_a_large_epsilon(self, data):
        result = audit(data, "--prediction", "fair", "--prediction", "biased", "--json", *SURE)
        fair, biased = json.loads(result.stdout)["answers"]
        assert fair["value"] == pytest.approx(0, abs=0.01)
        assert biased["value"] == pytest.approx(1, abs=0.01)
        assert biased["low"] <= biased["value"] <= biased["high"]

    @pytest.mark.parametrize(("model", "code"), [("fair", 0), ("biased", 1)])
    def test_exit_code_says_whether_the_threshold_is_met(self, data, model, code):
        result = audit(data, "--prediction", model, "--threshold", "0.5", *SURE)
        assert result.exit_code == code
        assert ("Threshold passed" if code == 0 else "Threshold FAILED") in result.output
        assert "cost epsilon = 25 of 100" in result.output

    def test_one_model_beyond_the_threshold_fails_all(self, data):
        arguments = ("--prediction", "fair", "--prediction", "biased", "--threshold", "0.5", "--json")
        result = audit(data, *arguments, *SURE)
        assert result.exit_code == 1
        tests = json.loads(result.stdout)["tests"]
        assert [test["passed"] for test in tests] == [True, False]

    def test_metrics_share_the_budget_and_fit_it_exactly(self, data, tmp_path):
        ledger = tmp_path / "audit.db"
        metrics = ["statistical_parity", "accuracy_parity", "equalized_odds"]
        flags = [flag for metric in metrics for flag in ("--metric", metric)]
        result = audit(
            data, "--prediction", "score", "--prediction", "fair", "--label", "y", *flags[:2], *flags[4:],
            "--threshold", "0.5", "--ledger", ledger, "--epsilon", "0.3", "--budget", "1"
        )  # fmt: skip
        assert result.exit_code in (0, 1)
        assert PrivacyLedger(ledger, epsilon=None).remaining() == pytest.approx(0.7, abs=1e-9)

    def test_parts_never_exceed_the_whole(self):
        for parts in (1, 2, 3, 7):
            terms = Audit(Path("x"), (), None, (), ("m",) * parts, (0.1,), epsilon=0.1, delta=1e-6)
            test, answer, delta = terms.costs()
            assert parts * (test + answer) <= 0.1 < parts * (test + answer) + 1e-12
            assert parts * delta <= 1e-6

    def test_the_same_audit_again_is_free_and_the_same(self, data, tmp_path):
        arguments = ("--prediction", "fair", "--threshold", "0.1", "--ledger", tmp_path / "a.db", "--json")
        first, again = (json.loads(audit(data, *arguments).stdout) for _ in range(2))
        assert first["answers"] == again["answers"]
        assert first["tests"] == again["tests"]
        assert again["ledger"]["n_answers_"] == first["ledger"]["n_answers_"]

    def test_a_used_up_ledger_refuses(self, data, tmp_path):
        ledger = tmp_path / "a.db"
        assert audit(data, "--prediction", "fair", "--ledger", ledger).exit_code == 0
        result = script("audit", data, "--sensitive", "race", "--prediction", "score", "--ledger", ledger)
        assert result.returncode == 2
        assert "budget" in result.stderr

    def test_ratio_has_a_least_value(self, data):
        arguments = ("--metric", "demographic_parity_ratio", "--threshold", "0.8", *SURE)
        assert audit(data, "--prediction", "fair", *arguments).exit_code == 0
        assert audit(data, "--prediction", "biased", *arguments).exit_code == 1

    def test_text_labels_and_positive_label(self, data):
        assert audit(data, "--prediction", "text", "--pos-label", "yes").exit_code == 0
        refused = audit(data, "--prediction", "text")
        assert isinstance(refused.exception, ValueError)
        assert "'no', 'yes'" in str(refused.exception)

    def test_crossed_features_with_public_groups(self, data):
        flags = ["race=b", "race=w", "sex=f", "sex=m", "sex=x"]
        flags = [item for label in flags for item in ("--group", label)]
        result = run(
            "audit", data, "--prediction", "fair", "--sensitive", "race", "--sensitive", "sex", *flags, "--json"
        )  # fmt: skip
        assert result.exit_code == 0
        assert len(json.loads(result.stdout)["ledger"]["groups"]) == 6

    def test_a_declared_group_may_be_empty(self, data):
        result = audit(
            data, "--prediction", "fair", "--group", "w", "--group", "b", "--json", sensitive="one"
        )
        assert result.exit_code == 0
        assert json.loads(result.stdout)["ledger"]["groups"] == ["w", "b"]

    @pytest.mark.parametrize("suffix", ["html", "json"])
    def test_report_file(self, data, tmp_path, suffix):
        if suffix == "html":
            pytest.importorskip("jinja2")
        out = tmp_path / f"report.{suffix}"
        result = audit(data, "--prediction", "fair", "--threshold", "0.5", "--out", out, *SURE)
        assert result.exit_code == 0
        text = out.read_text()
        assert "<!DOCTYPE html>" in text if suffix == "html" else json.loads(text)["threshold"]["passed"]
        assert "statistical_parity" in text

    def test_html_without_the_extra(self, data, tmp_path, monkeypatch):
        monkeypatch.setattr("sklearn_fairleak.cli_audit.find_spec", lambda name: None)
        result = audit(
            data, "--prediction", "fair", "--out", tmp_path / "r.html", "--ledger", tmp_path / "a.db"
        )
        assert "sklearn-fairleak[report]" in str(result.exception)
        assert not (tmp_path / "a.db").exists()

    def test_parquet(self, tmp_path):
        pytest.importorskip("pyarrow")
        path = tmp_path / "data.parquet"
        FRAME.drop(columns="void").to_parquet(path)
        assert audit(path, "--prediction", "fair", "--id", "id").exit_code == 0

    def test_names_are_text_and_not_markup(self, tmp_path):
        path = tmp_path / "data.csv"
        FRAME.rename(columns={"fair": "[bold]m[/bold]"}).to_csv(path, index=False)
        assert "[bold]m[/bold]" in audit(path, "--prediction", "[bold]m[/bold]").output


class TestAuditBadInput:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--prediction", "nope"], "no column 'nope'"),
            (["--prediction", "fare"], "Did you mean 'fair'"),
            (["--prediction", "void"], "no values"),
            (["--prediction", "holes"], "lacks 1 value"),
            (["--prediction", "same"], "constant"),
            (["--prediction", "age"], r"\[0, 1\]|pos_label"),
            (["--prediction", "text", "--prediction", "fair"], "all numbers or all texts"),
            (["--prediction", "fair", "--pos-label", "yes"], "not a number"),
            (["--prediction", "fair", "--label", "same", "--metric", "accuracy_parity"], "constant"),
            (["--prediction", "fair", "--label", "void"], "no values"),
            (["--prediction", "fair", "--label", "fair"], "given twice"),
            (["--prediction", "race"], "given twice"),
            (["--prediction", "fair", "--metric", "equal_opportunity"], "needs --label"),
            (["--prediction", "fair", "--metric", "auc"], "not supported"),
            (["--prediction", "score", "--label", "y", "--metric", "accuracy_parity"], "predicted labels"),
            (["--prediction", "fair", "--threshold", "1.5"], "--threshold"),
            (["--prediction", "fair", "--threshold", "0.1", "--threshold", "0.2"], "once"),
            (["--prediction", "fair", "--epsilon", "0"], "epsilon"),
            (["--prediction", "fair", "--epsilon", "nan"], "epsilon"),
            (["--prediction", "fair", "--delta", "1"], "delta"),
            (["--prediction", "fair", "--group", "b"], "outside the --group list"),
            (["--prediction", "fair", "--out", "report.pdf"], ".html or .json"),
            (["--prediction", "fair", "--mechanism", "magic"], "mechanism"),
        ],
    )
    def test_nothing_is_charged(self, data, tmp_path, arguments, message):
        ledger = tmp_path / "a.db"
        result = audit(data, *arguments, "--ledger", ledger)
        assert result.exit_code != 0
        assert isinstance(result.exception, ValueError)
        assert pd.Series([str(result.exception)]).str.contains(message).all(), result.exception
        assert not ledger.exists() or PrivacyLedger(ledger, epsilon=None).n_answers == 0

    @pytest.mark.parametrize(
        ("column", "message"),
        [
            ("one", "at least 2 group labels"),
            ("id", "identifier"),
            ("age", "continuous"),
            ("void", "no values"),
        ],
    )
    def test_sensitive_columns_that_cannot_be_groups(self, data, column, message):
        result = audit(data, "--prediction", "fair", sensitive=column)
        assert message in str(result.exception)

    def test_a_hundred_thousand_groups(self, tmp_path):
        path = tmp_path / "ids.csv"
        frame = pd.DataFrame({"id": [f"p{i}" for i in range(100_000)], "p": np.arange(100_000) % 2})
        frame.to_csv(path, index=False)
        result = audit(path, "--prediction", "p", sensitive="id")
        assert "100000 distinct labels" in str(result.exception)
        assert "p17" not in str(result.exception)

    def test_missing_sensitive_features_are_decided_on(self, tmp_path):
        path = tmp_path / "data.csv"
        FRAME.assign(race=FRAME["race"].where(FRAME.index != 3)).to_csv(path, index=False)
        assert "missing" in str(audit(path, "--prediction", "fair").exception)
        assert audit(path, "--prediction", "fair", "--missing", "group").exit_code == 0

    def test_repeated_ids(self, tmp_path):
        path = tmp_path / "data.csv"
        FRAME.assign(id="same").to_csv(path, index=False)
        assert "unique" in str(audit(path, "--prediction", "fair", "--id", "id").exception)

    def test_console_script_says_it_in_one_line(self, data, tmp_path):
        result = script("audit", data, "--prediction", "nope", "--sensitive", "race")
        assert result.returncode == 2
        assert result.stderr.startswith("fairleak: ")
        assert result.stderr.count("\n") == 1
        assert "Traceback" not in result.stderr

    @pytest.mark.parametrize(("threshold", "code"), [("0.9", 0), ("0.01", 1)])
    def test_console_script_keeps_exit_codes(self, data, threshold, code):
        arguments = (
            "--prediction",
            "score",
            "--sensitive",
            "race",
            "--epsilon",
            "2",
            "--threshold",
            threshold,
        )
        if code:
            arguments = ("--prediction", "biased", *arguments[2:])
        assert script("audit", data, *arguments).returncode == code

    def test_console_script_usage_error(self):
        assert script("audit").returncode == 2
        assert script("nonsense").returncode == 2
        assert script("--help").returncode == 0

    def test_console_script_shows_warnings_in_one_line(self, data):
        result = script("audit", data, "--prediction", "fair", "--sensitive", "race", "--epsilon", "5")
        assert result.returncode == 0
        assert result.stderr.count("fairleak: warning: epsilon=5 barely protects") == 1
        assert "auditor.py" not in result.stderr


class TestTables:
    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("x.csv", b"", "not a table"),
            ("x.csv", b"a,b\n", "no rows"),
            ("x.csv", b"a,b\n1,2\n1,2,3,4\n", "not a table"),
            ("x.csv", b"a,a\n1,2\n", "more than once"),
            ("x.csv", b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe", "not a table"),
            ("x.parquet", b"not parquet", "not a table|frames"),
            ("x.xlsx", b"", ".csv, .tsv, .parquet"),
        ],
    )
    def test_what_is_not_a_table(self, tmp_path, name, content, message):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_table(path)

    def test_no_file_and_a_folder(self, tmp_path):
        for path in (tmp_path / "no.csv", tmp_path):
            with pytest.raises(ValueError, match=r"does not exist|must be a"):
                read_table(path)

    def test_none_is_a_group_and_not_a_gap(self, tmp_path):
        path = tmp_path / "x.csv"
        path.write_text("religion,p\nNone,1\nNA,2\n")
        assert read_table(path)["religion"].tolist()[0] == "None"
        assert read_table(path)["religion"].isna().tolist() == [False, True]

    @pytest.mark.parametrize("suffix", ["csv", "parquet"])
    def test_round_trip(self, tmp_path, suffix):
        if suffix == "parquet":
            pytest.importorskip("pyarrow")
        path = tmp_path / f"x.{suffix}"
        frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=pd.Index(["p", "q"], name="id"))
        write_table(frame, path)
        again = read_table(path).set_index("id")
        assert again["a"].tolist() == [1, 2]
        assert again["b"].isna().tolist() == [False, True]


class TestAttack:
    n = 8
    H = RNG.random((7, 8)).round(6)
    a = np.array([1, 0, 1, 1, 0, 1, 0, 0])
    names: tuple[str, ...] = tuple(f"p{i}" for i in range(8))

    @property
    def given(self):
        return self.H[:, self.a == 1].mean(axis=1) - self.H[:, self.a == 0].mean(axis=1)

    def write(self, folder, long=False, suffix="csv"):
        wide = pd.DataFrame(
            self.H, columns=self.names, index=pd.Index([f"q{k}" for k in range(7)], name="query")
        )
        if long:
            table = wide.melt(
                ignore_index=False, var_name="individual", value_name="prediction"
            ).reset_index()
        else:
            table = wide.reset_index()
        answers = pd.DataFrame({"query": wide.index, "answer": self.given}).iloc[::-1]
        paths = folder / f"queries.{suffix}", folder / f"answers.{suffix}"
        for frame, path in zip((table, answers), paths, strict=True):
            frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
        return paths

    @pytest.mark.parametrize("long", [False, True])
    @pytest.mark.parametrize("suffix", ["csv", "parquet"])
    def test_everybody_is_found(self, tmp_path, long, suffix):
        if suffix == "parquet":
            pytest.importorskip("pyarrow")
        out = tmp_path / "report.csv"
        result = run("attack", *self.write(tmp_path, long, suffix), "--out", out, "--json")
        assert result.exit_code == 0
        found = json.loads(result.stdout)
        assert (found["n_answers"], found["determined"]) == (7, 8)
        report = pd.read_csv(out, index_col="individual")
        assert report.loc[list(self.names), "posterior"].round().astype(int).tolist() == self.a.tolist()

    def test_queries_and_answers_are_matched_by_name(self, tmp_path):
        asked, given = read_log(*self.write(tmp_path))
        assert list(asked.index) == list(given.index) == [f"q{k}" for k in range(6, -1, -1)]
        assert np.allclose(given, self.given[::-1])

    def test_a_plain_matrix_and_a_plain_column(self, tmp_path):
        queries, answers = tmp_path / "q.csv", tmp_path / "a.csv"
        pd.DataFrame(self.H, columns=self.names).to_csv(queries, index=False)
        pd.DataFrame({"gap": self.given}).to_csv(answers, index=False)
        result = run("attack", queries, answers)
        assert result.exit_code == 0
        assert "8 determined, 0 constrained, 0 untouched" in result.output

    def test_individuals_outside_a_query_stay_untouched(self, tmp_path):
        queries, answers = tmp_path / "q.csv", tmp_path / "a.csv"
        half = pd.DataFrame(self.H.copy(), columns=self.names)
        half.iloc[:, 5:] = np.nan
        half.to_csv(queries, index=False)
        inside, h = self.a[:5], self.H[:, :5]
        gaps = h[:, inside == 1].mean(axis=1) - h[:, inside == 0].mean(axis=1)
        pd.DataFrame({"answer": gaps}).to_csv(answers, index=False)
        found = json.loads(run("attack", queries, answers, "--json").stdout)
        assert (found["determined"], found["untouched"]) == (5, 3)

    def test_noisy_answers(self, tmp_path):
        result = run("attack", *self.write(tmp_path), "--noise", "laplace:0.5", "--json")
        assert json.loads(result.stdout)["determined"] == 0

    @pytest.mark.parametrize(
        ("queries", "answers", "arguments", "message"),
        [
            ("a,b\n1,0\n", "answer\n0.5\n0.5\n", [], "one answer a query"),
            ("a,b\n1,x\n", "answer\n0.5\n", [], "text in column 'b'"),
            ("a\n1\n", "answer\n0.5\n", [], "at least 2"),
            ("a,b\n1,0\n", "u,v\n1,2\n", [], "must have a column 'answer'"),
            ("a,b\n1,0\n", "answer\nhigh\n", [], "must hold numbers"),
            ("a,b\n1,0\n1,0\n", "answer\n0.5\n\n", [], "one answer a query"),
            ("a,b\n1,0\n", "query,answer\nq,0.5\n", [], "names its queries"),
            ("query,a,b\nq,1,0\n", "query,answer\nr,0.5\n", [], "does not hold"),
            ("query,a,b\nq,1,0\nq,1,0\n", "answer\n1\n1\n", [], "repeats"),
            ("query,a,b\nq,1,0\n", "query,answer\nq,1\nq,1\n", [], "more than once"),
            ("query,individual,prediction\nq,a,1\nq,a,1\n", "answer\n1\n", [], "already has"),
            ("a,b\n1,0\n", "answer\n0.5\n", ["--noise", "laplace"], "LAW:SCALE"),
            ("a,b\n1,0\n", "answer\n0.5\n", ["--noise", "nobody:1"], "LAW:SCALE"),
            ("a,b\n1,0\n", "answer\n0.5\n", ["--out", "x.txt"], "must end with"),
            ("a,b\n1,0\n", "answer\n0.5\n", ["--decimals", "-1"], "negative"),
        ],
    )
    def test_bad_input(self, tmp_path, queries, answers, arguments, message):
        paths = tmp_path / "q.csv", tmp_path / "a.csv"
        for path, text in zip(paths, (queries, answers), strict=True):
            path.write_text(text)
        result = run("attack", *paths, *arguments)
        assert isinstance(result.exception, ValueError)
        assert pd.Series([str(result.exception)]).str.contains(message).all(), result.exception

    def test_console_script(self, tmp_path):
        result = script("attack", *self.write(tmp_path), "--json")
        assert result.returncode == 0
        assert json.loads(result.stdout)["determined"] == 8
        broken = script("attack", tmp_path / "queries.csv", tmp_path / "none.csv")
        assert (broken.returncode, broken.stderr.count("\n")) == (2, 1)


class TestPlanAndLedger:
    def test_plan(self):
        result = run("plan", "--n", "1000", "--models", "10", "--json")
        found = json.loads(result.stdout)
        errors = {row["mechanism"]: row["expected_error"] for row in found["errors"]}
        assert errors["auto"] <= errors["laplace"]
        assert found["epsilon_per_answer"] == pytest.approx(0.1)
        assert isinstance(run("plan", "--n", "5", "--folds", "9").exception, ValueError)

    def test_plan_says_what_to_change(self, tmp_path):
        asked = ("plan", "--n", "1000", "--folds", "2", "--models", "4", "--wanted-error", "0.01")
        result = run(*asked, "--plot", tmp_path / "plan.png", "--json")
        assert (tmp_path / "plan.png").stat().st_size > 10_000
        ways = json.loads(result.stdout)["ways_to_reach"]
        assert ways["n_samples"] > 1000
        assert ways["epsilon"] > 1.0
        shown = run(*asked).output
        assert "To reach 0.01, change one of:" in shown
        assert f"individuals: {ways['n_samples']}" in shown
        assert "as things are" in run("plan", "--n", "999", "--wanted-error", "0.5").output

    def test_ledger_commands(self, data, tmp_path):
        ledger = tmp_path / "a.db"
        audit(data, "--prediction", "fair", "--ledger", ledger)
        shown = json.loads(run("ledger", "show", ledger, "--json").stdout)
        assert (shown["epsilon"], shown["remaining"]) == (1.0, 0.0)
        verified = run("ledger", "verify", ledger)
        assert verified.output.startswith("intact: 1 answer(s)")
        out = tmp_path / "history.csv"
        assert run("ledger", "export", ledger, out).exit_code == 0
        assert "statistical_parity" in out.read_text()
        assert "statistical_parity" in run("ledger", "show", ledger).output

    def test_ledger_bad_input(self, tmp_path):
        for command in ("show", "verify"):
            result = script("ledger", command, tmp_path / "none.db")
            assert result.returncode == 2
            assert "not a ledger file" in result.stderr
