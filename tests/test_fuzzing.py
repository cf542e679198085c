"""Hostile files and arguments: a clear sentence and exit code 2, and nothing charged.

Every command runs as the installed program does, in this process: whatever leaves ``main`` other
than through an exit code would be a traceback in front of a user.
"""

import contextlib
import csv
import io
import json
import os
import sys
import warnings
from html.parser import HTMLParser
from itertools import count

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sklearn_fairleak import PrivacyLedger, cli
from sklearn_fairleak.accounting import PrivacyLoss
from sklearn_fairleak.cli_attack import read_log
from sklearn_fairleak.tables import read_table, write_table

FIXED = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
PEOPLE = 24
HEADER = "id,race,y,p,q"
ROWS = [f"x{i},{'bw'[i % 2]},{i // 2 % 2},{i // 3 % 2},{i * 7 % 10 / 10}" for i in range(PEOPLE)]
GOOD = "\n".join([HEADER, *ROWS, ""]).encode()
MODEL = ["--prediction", "p", "--sensitive", "race"]

#: Cells that have broken readers, spreadsheets and browsers before.
NASTY = [
    "",
    " ",
    "1e400",
    "-1e400",
    "1e-400",
    "NaN",
    "inf",
    "-0",
    "0x10",
    "1_000",
    "١",
    "True",
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "$\\frac{1}{0}$",
    "[bold]x[/bold]",
    "\x1b[31mred",
    "a\x00b",
    "\ufeffx",
    "\u202ex",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "x" * 200_000,
    "'; DROP TABLE entries; --",
    "9" * 400,
    "../../etc/passwd",
    "%s%n",
]


class Outcome:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"exit {self.code}\n{self.out[-800:]}\n{self.err[-800:]}"


def run(*arguments):
    """Run the program; anything but an exit is an error of the program."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    before = sys.argv
    sys.argv = ["fairleak", *map(str, arguments)]
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("default")
            cli.main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
    outcome = Outcome(code, out.getvalue(), err.getvalue())
    assert "Traceback" not in outcome.out + outcome.err, outcome
    return outcome


def charged(ledger):
    """Return how many answers a ledger has paid for; 0 for what is no ledger."""
    if not os.path.isfile(ledger) or os.path.getsize(ledger) == 0:
        return 0
    return PrivacyLedger(ledger, epsilon=None).n_answers


def refused(outcome, ledger=None):
    """Assert a sentence for people, exit code 2, and no charge."""
    assert outcome.code == 2, outcome
    last = outcome.err.strip().splitlines()[-1]
    assert last.startswith(("fairleak: ", "Error: ")), outcome
    assert len(last) > len("fairleak: ") + 8, outcome
    assert ledger is None or charged(ledger) == 0, outcome


def sound(outcome, ledger):
    """Assert that an input was either served or refused for nothing."""
    if outcome.code in (0, 1):
        assert charged(ledger) >= 1
    else:
        refused(outcome, ledger)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a sound table in it."""
    monkeypatch.chdir(tmp_path)
    # Planning by trial takes most of a report's time and reads nothing from outside.
    monkeypatch.setattr("sklearn_fairleak.report._compare", lambda auditor: [])
    (tmp_path / "good.csv").write_bytes(GOOD)
    return tmp_path


@pytest.fixture
def fresh(place):
    """Return new file names: one for each example."""
    numbers = count()

    def name(suffix, content=None):
        path = place / f"f{next(numbers)}{suffix}"
        if content is not None:
            path.write_bytes(content)
        return path

    return name


def broken(draw, content):
    """Damage bytes a few times: cut, overwrite, insert, repeat."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        how = draw(st.sampled_from(["cut", "byte", "insert", "drop", "repeat"]))
        if how == "cut":
            del data[at:]
        elif how == "byte" and data:
            data[at] = draw(st.integers(0, 255))
        elif how == "insert":
            pieces = [b"\x00", b'"', b",", b"\n", b"\r", b"\xff\xfe", b"\xc3", b"\x00" * 64, b"\x1b[2J"]
            data[at:at] = draw(st.sampled_from(pieces) | st.binary(max_size=40))
        elif how == "drop":
            del data[at : at + draw(st.integers(1, 60))]
        else:
            data += data[at : at + 200]
    return bytes(data)


class TestTablesOfIndividuals:
    @given(data=st.data())
    @FIXED
    def test_damaged_csv(self, fresh, data):
        table, ledger = fresh(".csv", broken(data.draw, GOOD)), fresh(".db")
        sound(run("audit", table, *MODEL, "--ledger", ledger), ledger)

    @given(
        cells=st.lists(
            st.tuples(
                st.integers(0, PEOPLE), st.integers(0, 4), st.sampled_from(NASTY) | st.text(max_size=8)
            ),
            min_size=1,
            max_size=6,
        ),
        more=st.sampled_from(
            [
                [],
                ["--label", "y", "--metric", "equalized_odds"],
                ["--prediction", "q"],
                ["--id", "id", "--missing", "group"],
                ["--pos-label", "1"],
            ]
        ),
    )
    @FIXED
    def test_hostile_cells(self, fresh, cells, more):
        rows = [line.split(",") for line in [HEADER, *ROWS]]
        for row, column, text in cells:
            rows[row][column] = text
        text = io.StringIO()
        csv.writer(text).writerows(rows)
        table = fresh(".csv", text.getvalue().encode("utf-8", "surrogatepass"))
        ledger, report = fresh(".db"), fresh(".json")
        outcome = run("audit", table, *MODEL, *more, "--ledger", ledger, "--out", report)
        sound(outcome, ledger)
        assert report.exists() == (outcome.code in (0, 1))

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\n\n\n",
            b"\x00" * 1000,
            b"\xff\xfe" + GOOD.decode().encode("utf-16-le"),
            GOOD.decode().replace("x1", "é").encode("latin-1"),
            HEADER.encode(),
            GOOD.replace(b"race", b"p"),
            GOOD.replace(b",", b";"),
            GOOD.replace(b"x3,", b'"x3,'),
            GOOD.replace(b"b", b"w"),
            GOOD + b"1,2,3\n",
            GOOD + b"1,2,3,4,5,6,7\n",
            b"\x1f\x8b\x08\x00" + bytes(100),
            b"PK\x03\x04" + bytes(100),
            b'{"race": ["b", "w"], "p": [0, 1]}',
            b"<html><table><tr><td>race</td></tr></table>",
        ],
        ids=lambda content: repr(content[:12]),
    )
    def test_what_is_no_table_of_individuals(self, fresh, content):
        ledger = fresh(".db")
        refused(run("audit", fresh(".csv", content), *MODEL, "--ledger", ledger), ledger)

    @pytest.mark.parametrize("value", ["1e400", "NaN", "inf", "-0.1", "x", "\x00", "1,5", "9" * 400])
    @pytest.mark.parametrize("column", ["p", "y"])
    def test_numbers_that_are_none(self, fresh, value, column):
        frame = pd.read_csv(io.BytesIO(GOOD), dtype=str)
        frame.loc[3, column] = value
        ledger, arguments = fresh(".db"), ["--label", "y", "--metric", "equal_opportunity"]
        table = fresh(".csv", frame.to_csv(index=False).encode())
        refused(run("audit", table, *MODEL, *arguments, "--ledger", ledger), ledger)

    def test_a_huge_field_and_a_wide_table(self, fresh):
        ledger = fresh(".db")
        huge = GOOD.replace(b"x3,", b"x" * 3_000_000 + b",")
        sound(run("audit", fresh(".csv", huge), *MODEL, "--ledger", ledger), ledger)
        wide = "\n".join(",".join([line, *["0"] * 3000]) for line in [HEADER, *ROWS]).encode()
        ledger = fresh(".db")
        refused(run("audit", fresh(".csv", wide), *MODEL, "--ledger", ledger), ledger)

    @given(data=st.data())
    @settings(FIXED, max_examples=60)
    def test_damaged_parquet(self, fresh, data):
        pytest.importorskip("pyarrow")
        buffer = io.BytesIO()
        pd.read_csv(io.BytesIO(GOOD)).to_parquet(buffer)
        table, ledger = fresh(".parquet", broken(data.draw, buffer.getvalue())), fresh(".db")
        sound(run("audit", table, *MODEL, "--ledger", ledger), ledger)

    @pytest.mark.parametrize("kind", ["lists", "bytes", "dates", "structs"])
    def test_parquet_of_things_that_are_no_labels(self, fresh, kind):
        pytest.importorskip("pyarrow")
        frame = pd.read_csv(io.BytesIO(GOOD))
        made = {
            "lists": [[1, 2]] * PEOPLE,
            "bytes": [b"\x00\xff"] * PEOPLE,
            "dates": pd.date_range("2000", periods=PEOPLE),
            "structs": [{"a": 1}] * PEOPLE,
        }[kind]
        for column in ("p", "race"):
            table, ledger = fresh(".parquet"), fresh(".db")
            frame.assign(**{column: made}).to_parquet(table)
            outcome = run("audit", table, *MODEL, "--ledger", ledger)
            # A few dates may be groups; nothing else here can be anything.
            (sound if (kind, column) == ("dates", "race") else refused)(outcome, ledger)


class TestTerms:
    """Arguments: numbers out of range, names of nothing, too much of anything."""

    @given(
        given=st.lists(
            st.tuples(
                st.sampled_from(
                    ["--epsilon", "--delta", "--threshold", "--test-share", "--budget", "--confidence"]
                ),
                st.sampled_from(
                    ["0", "1", "0.5", "1e400", "-1", "nan", "1e-320", "1e-17", "700", "1e5", "1e308", "x", ""]
                )
                | st.floats().map(repr),
            )
            | st.tuples(
                st.sampled_from(
                    ["--metric", "--mechanism", "--missing", "--group", "--pos-label", "--label"]
                ),
                st.sampled_from(
                    [
                        "y",
                        "p",
                        "race",
                        "b",
                        "laplace",
                        "exact",
                        "smooth_laplace",
                        "equal_opportunity",
                        "group",
                    ]
                )
                | st.text(max_size=6),
            ),
            min_size=1,
            max_size=4,
        )
    )
    @settings(FIXED, max_examples=150)
    def test_audit(self, fresh, given):
        ledger = fresh(".db")
        arguments = [f"{name}={value}" for name, value in given]
        sound(run("audit", "good.csv", *MODEL, "--ledger", ledger, *arguments), ledger)

    @given(
        given=st.dictionaries(
            st.sampled_from(
                [
                    "--n", "--models", "--folds", "--epsilon", "--delta", "--minority-share",
                    "--positive-rate",
                ]
            ),
            st.sampled_from(["0", "-1", "1e400", "nan", "1e-320", "1e308", "x", "", "2", "0.5"]),
            min_size=1,
        )
    )  # fmt: skip
    @settings(FIXED, max_examples=30)
    def test_plan(self, place, given):
        arguments = [f"{name}={value}" for name, value in ({"--n": "30"} | given).items()]
        outcome = run("plan", *arguments)
        if outcome.code != 0:
            refused(outcome)

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--mechanism", "magic"],
            ["--mechanism", "smooth_laplace"],
            ["--mechanism", "smooth_laplace", "--delta", "1e-17"],
            ["--mechanism", "laplace", "--group", "b", "--group", "w", "--group", "z"],
            ["--mechanism", "laplace", "--epsilon", "1e-13"],
            ["--budget", "0.5"],
            ["--epsilon", "1e308"],
            ["--epsilon", "1e-300"],
            ["--test-share", "1e-300"],
        ],
    )
    def test_what_only_the_answers_refuse_is_refused_before_the_tests_are_paid(self, fresh, arguments):
        ledger = fresh(".db")
        refused(
            run("audit", "good.csv", *MODEL, "--threshold", "0.3", *arguments, "--ledger", ledger), ledger
        )

    @pytest.mark.parametrize("epsilon", ["1e-9", "700", "1000", "1e5"])
    def test_extreme_budgets_are_served_to_the_end(self, fresh, monkeypatch, epsilon):
        monkeypatch.undo()
        pytest.importorskip("jinja2")
        ledger, report = fresh(".db"), fresh(".html")
        os.chdir(ledger.parent)
        outcome = run("audit", "good.csv", *MODEL, "--epsilon", epsilon, "--ledger", ledger, "--out", report)
        assert outcome.code == 0, outcome
        assert charged(ledger) >= 1
        assert report.stat().st_size > 1000

    def test_a_paid_verdict_is_told_even_if_the_budget_ends(self, place):
        first = ["--epsilon", "0.4", "--budget", "0.6", "--ledger", "l.db"]
        assert run("audit", "good.csv", *MODEL, *first).code == 0
        outcome = run(
            "audit", "good.csv", "--prediction", "q", "--sensitive", "race", "--epsilon", "0.4",
            "--threshold", "0.9", "--ledger", "l.db",
        )  # fmt: skip
        assert outcome.code == 2
        assert "Answered before: q is" in outcome.err


class TestPaths:
    @pytest.fixture
    def tricks(self, place):
        (place / "dir.csv").mkdir()
        (place / "dir.json").mkdir()
        (place / "loop.csv").symlink_to("loop.csv")
        (place / "zero.csv").symlink_to("/dev/zero")
        (place / "dangling.json").symlink_to("nowhere/x.json")
        (place / "empty.csv").write_bytes(b"")
        (place / "junk.csv").write_bytes(np.random.default_rng(0).bytes(6000))
        os.mkfifo(place / "pipe.csv")
        return place

    BAD = (
        "dir.csv",
        "loop.csv",
        "zero.csv",
        "pipe.csv",
        "empty.csv",
        "junk.csv",
        "no.csv",
        "no/x.csv",
        "",
        "-",
        ".",
        "..",
        "/",
        "/dev/null",
        "/dev/stdin",
        "/proc/self/mem",
        "http://localhost/x.csv",
        "file:///etc/passwd",
        "s3://bucket/x.csv",
        "a\x00.csv",
        "x" * 300 + ".csv",
        "~/x.csv",
        "../../../../../../etc/passwd",
        "*.csv",
        "|ls",
    )

    @pytest.mark.parametrize("path", BAD)
    def test_data(self, tricks, path):
        refused(run("audit", path, *MODEL, "--ledger", "l.db"), "l.db")
        refused(run("attack", path, "good.csv"))
        refused(run("attack", "good.csv", path))

    @pytest.mark.parametrize(
        "path", [path for path in BAD if path not in ("no.csv", "a.csv", "~/x.csv", "-", "*.csv", "|ls")]
    )
    def test_ledger(self, tricks, path):
        inside = sorted(os.listdir("."))
        content = (tricks / "junk.csv").read_bytes()
        refused(run("audit", "good.csv", *MODEL, "--ledger", path))
        for command in (["show"], ["verify"], ["export"]):
            outcome = run("ledger", *command, path, *(["o.csv"] if command == ["export"] else []))
            # A file that is there and no ledger is reported by verify as altered: exit code 1.
            if command == ["verify"] and outcome.code == 1:
                assert outcome.err.startswith("altered: ")
            else:
                refused(outcome)
        assert sorted(os.listdir(".")) == inside
        assert (tricks / "junk.csv").read_bytes() == content

    def test_names_that_a_database_could_take_for_more_than_a_file(self, place):
        for name in (":memory:", "file:x?mode=memory", "l.db?mode=ro", "l#1.db", "l%41.db"):
            assert run("audit", "good.csv", *MODEL, "--ledger", name).code == 0
            assert charged(place / name) >= 1

    @pytest.mark.parametrize(
        "path",
        [
            "dir.json",
            "dangling.json",
            "no/x.json",
            "/proc/x.json",
            "x" * 300 + ".json",
            "good.csv",
            "x.pdf",
            "",
        ],
    )
    def test_reports_that_cannot_be_written(self, tricks, path):
        refused(run("audit", "good.csv", *MODEL, "--ledger", "l.db", "--out", path), "l.db")
        assert (tricks / "good.csv").read_bytes() == GOOD

    def test_nothing_that_is_read_is_overwritten(self, place):
        refused(run("audit", "good.csv", *MODEL, "--ledger", "l.json", "--out", "l.json"), "l.json")
        refused(run("audit", "good.csv", *MODEL, "--ledger", "l.json", "--out", "./l.json"), "l.json")
        assert run("audit", "good.csv", *MODEL, "--ledger", "l.json").code == 0
        (place / "alias.json").symlink_to("l.json")
        for out in ("l.json", "alias.json"):
            refused(run("ledger", "export", "l.json", out))
        assert charged("l.json") >= 1
        asked, given = "q.csv", "a.csv"
        (place / asked).write_text("i,j\n0,1\n1,0\n")
        (place / given).write_text("answer\n0.5\n-0.5\n")
        for out in (asked, given):
            before = (place / out).read_bytes()
            refused(run("attack", asked, given, "--out", out))
            assert (place / out).read_bytes() == before

    def test_demo_and_plan_say_it_before_they_work(self, tricks):
        (tricks / "fairleak-demo.json").mkdir()
        refused(run("demo", "--out", "."))
        refused(run("demo", "--out", "good.csv"))
        refused(run("demo", "--out", "no"))
        for path in ("dir.json", "x.txt", "no/x.png", "x" * 300 + ".png"):
            refused(run("plan", "--n", "100", "--plot", path))


class TestLogs:
    """Queries and answers that were given: two files that must fit together."""

    QUERIES = b"query,a,b,c,d\nq1,1,0,0,1\nq2,0,1,0,1\nq3,0.5,0.25,1,0\n"
    LONG = b"query,individual,prediction\nq1,a,1\nq1,b,0\nq2,a,0\nq2,b,1\n"
    ANSWERS = b"query,answer\nq1,0.5\nq2,-0.5\nq3,0.25\n"

    @given(data=st.data(), long=st.booleans(), out=st.sampled_from([".csv", ".json", None]))
    @settings(FIXED, max_examples=80)
    def test_damaged_logs(self, fresh, data, long, out):
        queries = fresh(".csv", broken(data.draw, self.LONG if long else self.QUERIES))
        answers = fresh(".csv", broken(data.draw, self.ANSWERS) if data.draw(st.booleans()) else self.ANSWERS)
        target = [] if out is None else ["--out", fresh(out)]
        outcome = run("attack", queries, answers, *target)
        if outcome.code != 0:
            refused(outcome)

    @given(
        cells=st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 4), st.sampled_from(NASTY)), min_size=1, max_size=3
        ),
        place_of=st.sampled_from(["queries", "answers"]),
    )
    @settings(FIXED, max_examples=80)
    def test_hostile_cells(self, fresh, cells, place_of):
        tables = {"queries": self.QUERIES, "answers": self.ANSWERS}
        rows = [line.split(",") for line in tables[place_of].decode().splitlines()]
        for row, column, text in cells:
            rows[row % len(rows)][column % len(rows[0])] = text
        text = io.StringIO()
        csv.writer(text).writerows(rows)
        tables[place_of] = text.getvalue().encode("utf-8", "surrogatepass")
        files = [fresh(".csv", tables[name]) for name in ("queries", "answers")]
        outcome = run("attack", *files, "--json")
        if outcome.code != 0:
            refused(outcome)
        else:
            json.loads(outcome.out)

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--decimals", "-1"],
            ["--decimals", "1e400"],
            ["--decimals", "99999"],
            ["--ulp", "nan"],
            ["--ulp", "-1"],
            ["--ulp", "inf"],
            ["--noise", "laplace"],
            ["--noise", "laplace:"],
            ["--noise", "laplace:nan"],
            ["--noise", "laplace:inf"],
            ["--noise", "laplace:-1"],
            ["--noise", "laplace:0"],
            ["--noise", "magic:1"],
            ["--noise", ":"],
            ["--sizes", "0", "4"],
            ["--sizes", "-1", "5"],
            ["--sizes", "1", "99"],
            ["--out", "x.exe"],
            ["--out", "no/x.csv"],
        ],
    )
    def test_arguments(self, fresh, arguments):
        files = fresh(".csv", self.QUERIES), fresh(".csv", self.ANSWERS)
        refused(run("attack", *files, *arguments))

    @pytest.mark.parametrize("value", ["1e400", "NaN", "", "inf", "2", "-1", "x"])
    def test_predictions_and_answers_out_of_range(self, fresh, value):
        rows = self.QUERIES.decode().splitlines()
        for row in range(1, 4):
            rows[row] = rows[row].rsplit(",", 1)[0] + "," + value
        outcome = run("attack", fresh(".csv", "\n".join(rows).encode()), fresh(".csv", self.ANSWERS))
        if value in ("NaN", ""):
            # Somebody who is in no question.
            assert "1 untouched" in outcome.out, outcome
        elif value in ("2", "-1"):
            # Not a share, but a prediction of something else may be.
            assert outcome.code == 0, outcome
        else:
            refused(outcome)

    def test_reading_is_what_the_command_does(self, fresh):
        asked, given = read_log(fresh(".csv", self.QUERIES), fresh(".csv", self.ANSWERS))
        assert asked.shape == (3, 4)
        assert given.tolist() == [0.5, -0.5, 0.25]


class TestLedgers:
    @pytest.fixture
    def ledger(self, place):
        assert run("audit", "good.csv", *MODEL, "--ledger", "l.db", "--budget", "2").code == 0
        return place / "l.db"

    @given(data=st.data())
    @FIXED
    def test_damaged_files(self, fresh, ledger, data):
        content = bytearray(ledger.read_bytes())
        for _ in range(data.draw(st.integers(1, 30))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path = fresh(".db", bytes(content[: data.draw(st.integers(0, len(content))) or None]))
        for command in (["show"], ["show", "--json"], ["verify"], ["export"]):
            arguments = [path, fresh(".csv")] if command == ["export"] else [path, *command[1:]]
            outcome = run("ledger", command[0], *arguments)
            if outcome.code == 1:
                assert command == ["verify"]
                assert outcome.err.startswith("altered: ")
            elif outcome.code != 0:
                refused(outcome)

    @pytest.mark.parametrize("head", ["", "x", "0" * 64, "\x00", "' OR 1=1 --"])
    def test_heads(self, ledger, head):
        outcome = run("ledger", "verify", ledger, "--head", head)
        assert outcome.code in (1, 2)
        assert "intact" not in outcome.out

    def test_of_other_people(self, fresh, ledger):
        other = fresh(".csv", GOOD + b"x99,b,1,0,0.5\n")
        outcome = run("audit", other, *MODEL, "--ledger", ledger)
        assert outcome.code == 2
        assert "another data set" in outcome.err
        assert charged(ledger) == 1


#: What a spreadsheet takes for the start of a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "|", "%", "\uff1d", "\uff0b")


def formulas(path):
    """Return the cells of a CSV file that a spreadsheet would compute."""
    with open(path, encoding="utf-8", newline="") as lines:
        cells = [cell for row in csv.reader(lines) for cell in row]
    found = []
    for cell in cells:
        if cell.lstrip(" \x00\ufeff").startswith(FORMULA):
            try:
                float(cell)
            except ValueError:
                found.append(cell)
    return found


class TestExports:
    NAMES = ("=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", " =1", "|calc", "%0", "=cmd|' /C calc'!A0")

    def test_names_of_individuals_are_no_formulas(self, fresh):
        names = [*self.NAMES, "ann"]
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(["query", *names])
        for k in range(len(names)):
            writer.writerow([f"=q{k}", *(float(j == k) for j in range(len(names)))])
        answers = "query,answer\n" + "".join(f"=q{k},0.1\n" for k in range(len(names)))
        out = fresh(".csv")
        outcome = run(
            "attack", fresh(".csv", text.getvalue().encode()), fresh(".csv", answers.encode()), "--out", out
        )
        assert outcome.code == 0, outcome
        assert formulas(out) == []
        shown = read_table(out)["individual"].tolist()
        assert shown[-1] == "ann"
        assert [name.removeprefix("'") for name in shown[:-1]] == list(self.NAMES)

    def test_tables_are_safe_in_every_cell(self, fresh):
        frame = pd.DataFrame({"=head": ["=1", "x"], "n": [-1.5, 2]}, index=pd.Index(["+a", "b"], name="@id"))
        out = fresh(".csv")
        write_table(frame, out)
        assert formulas(out) == []
        # Numbers stay numbers.
        assert read_table(out)["n"].tolist() == [-1.5, 2]

    def test_histories_are_no_formulas(self, fresh):
        ledger, out = PrivacyLedger(fresh(".db"), epsilon=1.0), fresh(".csv")
        ledger.bind(b"people", 3)
        for k, name in enumerate(self.NAMES):
            account = ledger.open_account(name, 1.0)
            ledger.charge(
                account=account,
                digest=ledger.digest(b"%d" % k),
                individuals=None,
                loss=PrivacyLoss.pure(0.01),
                query={"metric": name, "mechanism": name},
                release=lambda: {"value": 0.0},
            )
        ledger.close()
        assert run("ledger", "export", ledger.path, out).code == 0
        assert formulas(out) == []
        assert run("ledger", "show", ledger.path).code == 0


class Page(HTMLParser):
    """Whatever could run or fetch in a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.active, self.text = set(), [], []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        for name, value in attributes:
            fetched = name in ("src", "href", "srcset", "action", "data", "xlink:href")
            inside = (value or "").startswith(("data:image/png", "data:,", "#"))
            if name.startswith("on") or (fetched and not inside):
                self.active.append((tag, name, value))

    def handle_data(self, data):
        self.text.append(data)


class TestReports:
    HOSTILE = (
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onmouseover='alert(1)",
        "</title><svg onload=alert(1)>",
        "{{ 7 * 7 }}",
        "$\\frac{1}{0}$",
        "javascript:alert(1)",
        "&lt;b&gt;",
        "a\u202eb",
    )

    @pytest.mark.parametrize("name", HOSTILE)
    def test_names_stay_text(self, fresh, name):
        pytest.importorskip("jinja2")
        frame = pd.read_csv(io.BytesIO(GOOD)).rename(columns={"p": name})
        title = name.replace("/", "_")
        table = fresh(".csv", b"").parent / f"{title}.csv"
        frame.assign(race=frame["race"] + name).to_csv(table, index=False)
        ledger, report = fresh(".db"), fresh(".html")
        outcome = run(
            "audit", table, "--prediction", name, "--sensitive", "race", "--ledger", ledger, "--out", report
        )
        assert outcome.code == 0, outcome
        page = Page()
        page.feed(report.read_text(encoding="utf-8"))
        assert page.active == []
        assert not page.tags & {"script", "svg", "iframe", "object", "embed", "form", "base"}
        text = "".join(page.text)
        assert name in text
        assert title in text

    @given(name=st.text(st.characters(codec="utf-8"), min_size=1, max_size=30))
    @settings(FIXED, max_examples=15)
    def test_any_name(self, fresh, name):
        pytest.importorskip("jinja2")
        frame = pd.read_csv(io.BytesIO(GOOD)).rename(columns={"p": name})
        text = io.StringIO(newline="")
        csv.writer(text).writerows([frame.columns, *frame.to_numpy().tolist()])
        table, ledger, report = fresh(".csv", text.getvalue().encode()), fresh(".db"), fresh(".html")
        arguments = ["--sensitive=race", f"--prediction={name}", "--ledger", ledger, "--out", report]
        outcome = run("audit", table, *arguments)
        sound(outcome, ledger)
        if outcome.code == 0:
            page = Page()
            page.feed(report.read_text(encoding="utf-8"))
            assert page.active == []
