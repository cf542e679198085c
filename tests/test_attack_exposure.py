"""Who is exposed by a log of answers: bounds against brute force, statuses against closed forms."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_fairleak.attack import NoiseLaw, exposure
from sklearn_fairleak.attack.decoders import predict_gaps, rounding_tolerance
from sklearn_fairleak.attack.exposure import membership_bounds


def attributes(n, n_disadvantaged, rng):
    a = np.ones(n, dtype=int)
    a[rng.choice(n, n_disadvantaged, replace=False)] = 0
    return a


def brute_force(H, answers, tolerance, sizes=None):
    fits = []
    for assignment in product([0, 1], repeat=H.shape[1]):
        a = np.array(assignment)
        if a.sum() not in (0, a.size) and np.abs(predict_gaps(H, a) - answers).max() <= tolerance:
            fits += [assignment] if sizes is None or a.sum() == sizes[1] else []
    return np.array(fits)


@settings(deadline=None, max_examples=50)
@given(
    n=st.integers(2, 7),
    m=st.integers(1, 3),
    binary=st.booleans(),
    known=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_small_logs_are_reported_exactly(n, m, binary, known, seed):
    rng = np.random.default_rng(seed)
    a = attributes(n, int(rng.integers(1, n)), rng)
    H = rng.integers(0, 2, (m, n)).astype(float) if binary else rng.integers(0, 5, (m, n)) / 4
    answers = predict_gaps(H, a)
    sizes = (int((a == 0).sum()), int(a.sum())) if known else None
    report = exposure(H, answers, group_sizes=sizes, signed=True)
    touched = (np.abs(H - H.mean(axis=1, keepdims=True)) > 1e-12).sum(axis=0)
    assert report["n_answers"].tolist() == touched.tolist()
    fits = brute_force(H, answers, rounding_tolerance(H), sizes)
    for j in range(n):
        values = set(fits[:, j].tolist())
        if touched[j] == 0:
            assert report["status"][j] == "untouched"
        elif len(values) == 1:
            assert report["status"][j] == "determined"
            assert report["lower"][j] == report["upper"][j] == report["posterior"][j] == values.pop()
        else:
            assert report["status"][j] == "constrained"
            assert (report["lower"][j], report["upper"][j]) == (0, 1)
            assert report["posterior"][j] == pytest.approx(fits[:, j].mean())


def test_the_answer_that_determined_somebody_is_named():
    rng = np.random.default_rng(0)
    n = 12
    a = attributes(n, 5, rng)
    H = np.zeros((3, n))
    H[0, 4] = H[1, 7] = H[2, 4] = 1.0
    frame = pd.DataFrame(H, index=["monday", "tuesday", "wednesday"], columns=[f"p{j}" for j in range(n)])
    report = exposure(frame, predict_gaps(H, a))
    assert report.index.tolist() == frame.columns.tolist()
    assert report.loc["p4", "determined_by"] == "monday"
    assert report.loc["p7", "determined_by"] == "tuesday"
    assert report["status"].value_counts().to_dict() == {"constrained": n - 2, "determined": 2}
    assert report.loc["p0", "determined_by"] is None


@pytest.mark.parametrize("known", [True, False])
def test_single_acceptances_in_a_large_log_expose_the_accepted_alone(known):
    rng = np.random.default_rng(1)
    n = 300
    a = attributes(n, 60, rng)
    H = np.zeros((4, n))
    H[np.arange(4), [5, 50, 100, 200]] = 1.0
    report = exposure(H, predict_gaps(H, a), group_sizes=(60, 240) if known else None)
    exposed = np.flatnonzero(report["status"] == "determined")
    assert exposed.tolist() == [5, 50, 100, 200]
    assert report["lower"][exposed].tolist() == a[exposed].tolist()
    assert report["determined_by"][exposed].tolist() == [0, 1, 2, 3]


def test_enough_realistic_models_expose_everyone_from_some_answer_on():
    rng = np.random.default_rng(2)
    n, m = 150, 80
    a = attributes(n, 20, rng)
    H = np.clip(rng.random(n) + rng.uniform(-0.1, 0.1, (m, n)), 0, 1)
    report = exposure(H, predict_gaps(H, a))
    assert (report["status"] == "determined").all()
    assert report["lower"].tolist() == a.tolist()
    moment = report["determined_by"].unique()
    assert len(moment) == 1
    assert 15 < moment[0] < m - 1


def test_nobody_is_called_determined_wrongly_while_answers_are_few():
    rng = np.random.default_rng(3)
    n = 80
    for m in (5, 15, 25):
        a = attributes(n, 12, rng)
        H = np.clip(rng.random(n) + rng.uniform(-0.1, 0.1, (m, n)), 0, 1)
        report = exposure(H, predict_gaps(H, a), group_sizes=(12, 68))
        sure = (report["status"] == "determined").to_numpy()
        assert report["lower"].to_numpy()[sure].tolist() == a[sure].tolist()
        assert np.all(report["lower"] <= a)
        assert np.all(report["upper"] >= a)


def test_linear_programs_bound_soundly_and_as_tightly_as_the_relaxation_allows():
    rng = np.random.default_rng(4)
    a = attributes(9, 4, rng)
    H = rng.integers(0, 2, (4, 9)).astype(float)
    answers = predict_gaps(H, a)
    lower, upper = membership_bounds(H, answers, sizes=(4, 5), tolerance=1e-12)
    fits = brute_force(H, answers, 1e-12, (4, 5))
    assert np.all(lower <= fits.min(axis=0))
    assert np.all(upper >= fits.max(axis=0))
    # Linear algebra and the box settle what is a vertex: accepting exactly the disadvantaged.
    extreme = (1 - a)[None, :].astype(float)
    lower, upper = membership_bounds(extreme, predict_gaps(extreme, a), sizes=(4, 5), tolerance=1e-12)
    assert lower.tolist() == upper.tolist() == a.tolist()


def test_a_few_honest_models_expose_a_hundred_people_but_no_twins():
    pytest.importorskip("fpylll")
    rng = np.random.default_rng(8)
    n = 100
    a = attributes(n, 10, rng)
    a[:2] = [0, 1]
    H = rng.random((10, n))
    H[:, 1] = H[:, 0]
    report = exposure(H, predict_gaps(H, a), group_sizes=(int((a == 0).sum()), int(a.sum())))
    assert report["status"].tolist() == ["constrained"] * 2 + ["determined"] * (n - 2)
    assert report["posterior"].tolist() == [0.5, 0.5, *a[2:]]


def test_rounding_widens_what_is_possible():
    rng = np.random.default_rng(5)
    n = 20
    a = attributes(n, 8, rng)
    H = rng.random((1, n))
    exact = exposure(H, predict_gaps(H, a), signed=True)
    rounded = exposure(H, np.round(predict_gaps(H, a), 2), decimals=2, signed=True)
    assert (exact["status"] == "determined").all()
    assert (rounded["status"] == "constrained").all()
    loose = exposure(H, predict_gaps(H, a) + 1e-4, ulp=2e-4, signed=True)
    assert (loose["status"] == "constrained").all()


def test_individuals_outside_every_evaluation_set_are_untouched():
    a = np.array([0, 1, 1, 0, 1, 1])
    H = np.full((2, 6), np.nan)
    H[0, :3] = [1.0, 0.0, 0.0]
    H[1, 3:5] = [0.5, 0.25]
    answers = [0.0 - 1.0, 0.25 - 0.5]
    report = exposure(H, answers)
    assert a[0] == 0
    assert report["status"][0] == "determined"
    assert report["posterior"][[0, 3, 4]].tolist() == [0.0, 0.0, 1.0]
    assert report["status"][5] == "untouched"
    assert report["posterior"][5] == 0.5
    assert report["determined_by"][3] == 1


def test_defended_answers_constrain_to_a_posterior():
    rng = np.random.default_rng(6)
    n, m = 100, 150
    a = attributes(n, 30, rng)
    H = rng.integers(0, 2, (m, n)).astype(float)
    law = NoiseLaw("laplace", 0.02)
    report = exposure(H, predict_gaps(H, a) + law.sample(m, rng), noise_law=law, group_sizes=(30, 70))
    assert (report["status"] == "constrained").all()
    assert report["posterior"][a == 1].mean() > 0.9
    assert report["posterior"][a == 0].mean() < 0.2


def test_constant_models_touch_nobody():
    report = exposure(np.full((3, 5), 0.4), np.zeros(3))
    assert (report["status"] == "untouched").all()
    assert (report["posterior"] == 0.5).all()


def test_contradictory_answers_are_reported_and_nobody_is_determined():
    H = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    report = exposure(H, [0.5, -1.0])
    assert (report["status"] == "constrained").all()
    assert any("contradict" in message for message in report.attrs["messages"])


def test_answers_that_fit_nobody_determine_nobody():
    rng = np.random.default_rng(9)
    H = rng.random((20, 50))
    report = exposure(H, rng.normal(scale=0.05, size=20), group_sizes=(10, 40))
    assert (report["status"] == "constrained").all()
    assert report.attrs["messages"]


def test_absolute_answers_determine_up_to_naming():
    rng = np.random.default_rng(7)
    a = attributes(12, 4, rng)
    H = rng.random((2, 12)) * 0.2 + 0.7 * a
    report = exposure(H, predict_gaps(H, a))
    assert not report.attrs["orientation_known"]
    assert (report["status"] == "determined").all()


@pytest.mark.parametrize(
    ("queries", "answers", "extra", "match"),
    [
        (np.zeros((2, 3)), [0.1], {}, "one answer per query"),
        (np.zeros((1, 3)), [np.nan], {}, "NaN"),
        (np.array([[np.inf, 0.0]]), [0.1], {}, "infinite"),
        (np.zeros(3), [0.1], {}, "matrix"),
        (np.zeros((1, 1)), [0.1], {}, "at least 1 query"),
        (np.zeros((1, 3)), [0.0], {"prior": [0.5]}, "prior"),
        (np.array([[0, 1, np.nan], [0, 1, 1]]), [0.1, 0.1], {"group_sizes": (1, 2)}, "several"),
    ],
)
def test_bad_logs_are_refused(queries, answers, extra, match):
    with pytest.raises(ValueError, match=match):
        exposure(queries, answers, **extra)


def test_progress_is_reported():
    seen = []
    exposure(np.array([[1.0, 0.0, np.nan], [0.0, 1.0, 1.0]]), [1.0, -1.0], progress=seen.append)
    assert seen == [0.5, 1.0]
