"""Frames that are only counted: the same audit as in memory, from one group-by of any engine."""

from __future__ import annotations

import warnings

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from fairlearn.metrics import count, false_positive_rate, mean_prediction, selection_rate, true_positive_rate
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, mean_squared_error, precision_score

from sklearn_fairleak import PrivacyBudgetExceeded, PrivacyLedger, PrivateMetricFrame, frames, lazy_frames
from sklearn_fairleak.noise import SeededNoise

N = 3000
LABELS = {
    "selected": selection_rate,
    "tpr": true_positive_rate,
    "fpr": false_positive_rate,
    "accuracy": accuracy_score,
    "precision": precision_score,
    "count": count,
}
REAL = [
    ({"mean": mean_prediction, "mae": mean_absolute_error, "mse": mean_squared_error}, (0.0, 1.0)),
    ({"mean": mean_prediction, "mae": mean_absolute_error}, (-1.0, 2.0)),
    ({"log": log_loss}, (0.01, 0.99)),
]


def people(n=N, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n, p=[0.3, 0.7])
    score = np.clip(rng.normal(0.4, 0.2, n) + 0.1 * (sex == "m"), 0.0, 1.0)
    return pd.DataFrame(
        {
            "sex": sex,
            "race": rng.choice(["a", "b", "c"], n),
            "region": rng.choice(["north", "south"], n),
            "label": (rng.random(n) < score).astype(int),
            "score": score,
            "hired": (score > 0.5).astype(int),
        }
    )


def polars_lazy(table):
    return pl.from_pandas(table).lazy()


def in_duckdb(table):
    return duckdb.connect().from_df(table)


ENGINES = {"pandas": lambda table: table, "polars": polars_lazy, "duckdb": in_duckdb}


@pytest.fixture
def same_noise(monkeypatch):
    """Let every release draw the same noise, in memory and counted."""
    monkeypatch.setattr(frames, "SecureNoise", lambda: SeededNoise(0, b"the same"))


def both(table, engine, metrics, y_pred, *, secret="sex", control=None, **settings):
    if len(np.unique(table[secret])) > 2:
        settings["groups"] = sorted(table[secret].unique())
    in_memory = PrivateMetricFrame(
        metrics=metrics,
        y_true=table["label"],
        y_pred=table[y_pred],
        sensitive_features=table[secret],
        control_features=None if control is None else table[control],
        **settings,
    )
    counted = PrivateMetricFrame.from_frame(
        ENGINES[engine](table),
        metrics=metrics,
        y_true="label",
        y_pred=y_pred,
        sensitive_features=secret,
        control_features=control,
        **settings,
    )
    return in_memory, counted


def assert_same(in_memory, counted, **tolerance):
    pd.testing.assert_frame_equal(counted.by_group, in_memory.by_group, **tolerance)
    for what in ("difference", "ratio", "group_min", "group_max"):
        pd.testing.assert_series_equal(getattr(counted, what)(), getattr(in_memory, what)(), **tolerance)
    for limits, wanted in zip(counted.interval(0.9), in_memory.interval(0.9), strict=True):
        pd.testing.assert_frame_equal(limits, wanted, **tolerance)
    np.testing.assert_allclose(
        np.asarray(counted.overall, dtype=float), np.asarray(in_memory.overall, dtype=float), rtol=1e-12
    )


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("secret", ["sex", "race"])
def test_label_metrics_are_those_of_memory(same_noise, engine, secret):
    assert_same(*both(people(), engine, LABELS, "hired", secret=secret))


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_control_features_and_gaussian_noise(same_noise, engine):
    from sklearn_fairleak.mechanisms import NoisySums

    settings = {"mechanism": NoisySums("gaussian"), "delta": 1e-6}
    in_memory, counted = both(people(), engine, LABELS, "hired", control="region", **settings)
    assert counted.control_levels == in_memory.control_levels
    pd.testing.assert_frame_equal(counted.by_group, in_memory.by_group)
    pd.testing.assert_frame_equal(counted.difference(), in_memory.difference())
    pd.testing.assert_frame_equal(counted.overall, in_memory.overall.astype(float), check_dtype=False)


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize(("metrics", "bounds"), REAL)
def test_real_values_are_those_of_memory(same_noise, engine, metrics, bounds):
    """A logarithm may round otherwise in another engine: one step of 2^-20 in the sum."""
    assert_same(*both(people(), engine, metrics, "score", bounds=bounds), atol=2e-8, rtol=0)


@pytest.mark.parametrize("engine", list(ENGINES))
def test_mean_predictions_need_no_labels(same_noise, engine):
    table = people()
    counted = PrivateMetricFrame.from_frame(
        ENGINES[engine](table), metrics=mean_prediction, y_pred="score", sensitive_features=["sex"]
    )
    wanted = PrivateMetricFrame(
        metrics=mean_prediction,
        y_true=table["label"],
        y_pred=table["score"],
        sensitive_features=table["sex"],
    )
    pd.testing.assert_series_equal(counted.by_group, wanted.by_group, atol=1e-8, rtol=0)
    assert counted.overall == pytest.approx(table["score"].mean(), abs=1e-12)


def test_several_sensitive_features_are_crossed(same_noise):
    table = people()
    keys = ["sex", "race"]
    groups = [(sex, race) for sex in "fm" for race in "abc"]
    counted = PrivateMetricFrame.from_frame(
        polars_lazy(table), metrics=selection_rate, y_pred="hired", sensitive_features=keys, groups=groups
    )
    wanted = PrivateMetricFrame(
        metrics=selection_rate,
        y_true=table["label"],
        y_pred=table["hired"],
        sensitive_features=table[keys],
        groups=groups,
    )
    pd.testing.assert_series_equal(counted.by_group, wanted.by_group)


def test_text_labels_and_dotted_names(same_noise):
    table = people().rename(columns={"hired": "hired? (y/n)"})
    table["hired? (y/n)"] = np.where(table["hired? (y/n)"] == 1, "yes", "no")
    for engine in ENGINES:
        counted = PrivateMetricFrame.from_frame(
            ENGINES[engine](table),
            metrics={"selected": selection_rate},
            y_pred="hired? (y/n)",
            sensitive_features="sex",
            pos_label="yes",
        )
        assert counted.overall["selected"] == pytest.approx((table["hired? (y/n)"] == "yes").mean())


def test_everyone_is_charged_once_an_audit(tmp_path):
    table = people()
    ledger = PrivacyLedger(tmp_path / "audits.db", epsilon=1.0)
    asked = {"metrics": LABELS, "y_true": "label", "y_pred": "hired", "sensitive_features": "sex"}
    first = PrivateMetricFrame.from_frame(polars_lazy(table), epsilon=0.5, ledger=ledger, **asked)
    again = PrivateMetricFrame.from_frame(polars_lazy(table), epsilon=0.5, ledger=ledger, **asked)
    assert not first.replayed
    assert not again.replayed
    assert ledger.remaining() == 0.0
    with pytest.raises(PrivacyBudgetExceeded):
        PrivateMetricFrame.from_frame(polars_lazy(table), epsilon=0.5, ledger=ledger, **asked)
    history = ledger.history()
    assert set(history.loc[history["kind"] == "answer", "n_individuals"]) == {N}


def test_answers_are_noisy_and_fresh():
    asked = {"metrics": selection_rate, "y_pred": "hired", "sensitive_features": "sex", "epsilon": 0.1}
    values = {
        float(PrivateMetricFrame.from_frame(polars_lazy(people()), **asked).by_group["f"]) for _ in "12345"
    }
    assert len(values) > 1


def _null(table, column):
    table = table.copy()
    table[column] = table[column].astype(object)
    table.loc[5, column] = None
    return pl.from_pandas(table).lazy()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_pred": "nothing"}, "no column 'nothing'"),
        ({"sensitive_features": "nothing"}, "no column 'nothing'"),
        ({"control_features": "sex"}, "more than one purpose"),
        ({"y_true": None}, "need y_true="),
        ({"metrics": max}, "not known to be a function of group sums"),
        ({"metrics": {}}, "at least one metric"),
        ({"mechanism": "randomized_response"}, "one by one"),
        ({"metrics": mean_squared_error}, "no public upper limit"),
        ({"metrics": mean_prediction, "y_pred": "wide"}, "need public bounds"),
        ({"metrics": mean_prediction, "y_pred": "broken"}, "missing, NaN or infinite"),
        ({"y_pred": "score"}, "y_pred"),
        ({"sensitive_features": "constant"}, "one group|at least 2|only one"),
        ({"epsilon": 0.0}, "epsilon must be"),
    ],
)
@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_bad_input_is_named_and_nothing_charged(engine, change, message):
    table = people().assign(wide=7.0, broken=np.nan, constant="x")
    ledger = PrivacyLedger(epsilon=1.0)
    asked = {"metrics": LABELS, "y_true": "label", "y_pred": "hired", "sensitive_features": "sex"}
    with pytest.raises(ValueError, match=message):
        PrivateMetricFrame.from_frame(ENGINES[engine](table), **asked | {"ledger": ledger} | change)
    assert ledger.remaining() == 1.0


@pytest.mark.parametrize("column", ["sex", "hired", "label"])
def test_missing_values_are_refused_without_a_secret(column):
    asked = {"metrics": LABELS, "y_true": "label", "y_pred": "hired", "sensitive_features": "sex"}
    with pytest.raises(ValueError, match="missing") as caught:
        PrivateMetricFrame.from_frame(_null(people(), column), **asked)
    assert str(N) not in str(caught.value)


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
def test_numbers_that_are_none_are_refused(engine, bad, bounds):
    table = people()
    table.loc[7, "score"] = bad
    with pytest.raises(ValueError, match="score"):
        PrivateMetricFrame.from_frame(
            ENGINES[engine](table),
            metrics=mean_prediction,
            y_pred="score",
            sensitive_features="sex",
            bounds=bounds,
        )


@pytest.mark.parametrize("column", ["sensitive_features", "control_features", "y_pred"])
@pytest.mark.parametrize("n", [12_000, 1_200_000])
def test_an_id_column_by_mistake_is_recognised(column, n):
    table = duckdb.sql(
        f"SELECT i AS id, CASE WHEN i % 3 = 0 THEN 'f' ELSE 'm' END AS sex, i % 2 AS hired FROM range({n}) AS t(i)"
    )
    asked = {"metrics": selection_rate, "y_pred": "hired", "sensitive_features": "sex"}
    with pytest.raises(ValueError, match="is one of the columns an id") as caught:
        PrivateMetricFrame.from_frame(table, **asked | {column: "id"})
    assert str(n - 1) not in str(caught.value)


@pytest.mark.parametrize("k", [49, 51])
def test_who_is_in_which_group_plays_no_part_in_a_refusal(monkeypatch, k):
    """As many combinations with groups as without, or twice as many: the same outcome."""
    monkeypatch.setattr(lazy_frames, "_MOST_COMBINATIONS", 50)
    outcomes = []
    for spread in (1, 2):
        table = pl.LazyFrame({"control": [*range(k), *range(k)], "hired": [1] * (2 * k)}).with_columns(
            sex=pl.Series(["f", "m"] * k if spread == 2 else ["f"] * k + ["f"] * (k - 1) + ["m"])
        )
        try:
            PrivateMetricFrame.from_frame(
                table,
                metrics=selection_rate,
                y_pred="hired",
                sensitive_features="sex",
                groups=["f", "m"],
                control_features="control",
            )
            outcomes.append(None)
        except ValueError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
    assert (outcomes[0] is None) == (k < 50)


SECRETS = ("okapi", "zebra")


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize(
    ("metric", "role"),
    [
        (mean_prediction, "y_pred"),
        *((metric, role) for metric in (mean_absolute_error, log_loss) for role in ("y_pred", "y_true")),
    ],
)
def test_text_in_place_of_numbers_is_refused_without_quoting_it(engine, metric, role):
    """The secret column given by mistake: its values are in no message and in no chained error."""
    table = people().assign(kind=np.where(people()["sex"] == "f", *SECRETS))
    asked = {"y_true": "label", "y_pred": "score", "sensitive_features": "sex", "bounds": (0.01, 0.99)}
    with pytest.raises(ValueError) as caught:
        PrivateMetricFrame.from_frame(ENGINES[engine](table), metrics=metric, **asked | {role: "kind"})
    error = caught.value
    while error is not None:
        assert not any(secret in str(error) for secret in SECRETS)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_a_query_that_fails_in_its_engine_quotes_nothing():
    table = people().assign(kind=np.where(people()["sex"] == "f", *SECRETS))
    broken = polars_lazy(table).with_columns(number=pl.col("kind").cast(pl.Float64))
    with pytest.raises(ValueError, match="own query failed") as caught:
        PrivateMetricFrame.from_frame(
            broken, metrics=mean_prediction, y_pred="number", sensitive_features="sex"
        )
    assert caught.value.__suppress_context__
    assert not any(secret in str(caught.value) for secret in SECRETS)


@pytest.mark.parametrize("engine", list(ENGINES))
def test_columns_may_have_any_name(same_noise, engine):
    names = {"sex": "individuals", "region": "mean_prediction sum", "score": "count"}
    in_memory, counted = (
        PrivateMetricFrame.from_frame(
            ENGINES[engine](table),
            metrics={"mean": mean_prediction},
            y_pred=columns["score"],
            sensitive_features=columns["sex"],
            control_features=columns["region"],
        )
        for table, columns in ((people(), {n: n for n in names}), (people().rename(columns=names), names))
    )
    np.testing.assert_array_equal(in_memory.by_group.to_numpy(), counted.by_group.to_numpy())


def test_what_is_no_frame_is_refused():
    with pytest.raises(TypeError, match="a frame that narwhals knows"):
        PrivateMetricFrame.from_frame([1, 2], metrics=selection_rate, y_pred="a", sensitive_features="b")


def test_seeds_are_not_private_and_say_so():
    asked = {"metrics": selection_rate, "y_pred": "hired", "sensitive_features": "sex", "random_state": 1}
    with pytest.warns(Warning, match="not private"):
        first = PrivateMetricFrame.from_frame(polars_lazy(people()), **asked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = PrivateMetricFrame.from_frame(in_duckdb(people()), **asked)
        other = PrivateMetricFrame.from_frame(
            polars_lazy(people(seed=1)), **asked, ledger=PrivacyLedger(epsilon=1.0)
        )
    pd.testing.assert_series_equal(first.by_group, again.by_group)
    # Another question has other noise.
    errors = [
        frame.by_group["f"] - table.loc[table["sex"] == "f", "hired"].mean()
        for frame, table in ((first, people()), (other, people(seed=1)))
    ]
    assert errors[0] != pytest.approx(errors[1], abs=1e-9)
