"""Shipped tables against the counts UCI publishes, and synthetic audits against their own law."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_fairleak.datasets import load_adult, load_german_credit, make_audit

SHA256 = {
    "adult.csv.gz": "020e937679cdc52788c5245ee380b93586fdfdcbd89503550194edbfa5a35831",
    "german_credit.csv": "efa8d157eb7ee5ac09b980f1f1a9a278a4d0083aed79a273d841d04da7553058",
}


@pytest.fixture(scope="module")
def adult():
    return load_adult(binary_race=False)


@pytest.fixture(scope="module")
def german():
    return load_german_credit()


@pytest.mark.parametrize("name", sorted(SHA256))
def test_shipped_file_is_the_one_described(name):
    folder = files("sklearn_fairleak.datasets") / "data"
    assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == SHA256[name]
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert f"{SHA256[name]}  {name}" in readme
    assert "CC BY 4.0" in readme


def test_adult_counts(adult):
    assert adult.frame.shape == (48842, 15)
    assert adult.target.sum() == 11687
    assert adult.frame["sex"].value_counts().to_dict() == {"Male": 32650, "Female": 16192}
    races = adult.sensitive_features.value_counts()
    assert (races["White"], races["Black"]) == (41762, 4685)
    missing = adult.frame.isna().sum()
    assert missing[missing > 0].to_dict() == {"workclass": 2799, "occupation": 2809, "native-country": 857}
    assert not adult.frame.isin(["?", " ?"]).any(axis=None)


def test_adult_binary_race_keeps_white_and_black():
    adult = load_adult()
    assert set(adult.sensitive_features) == {"White", "Black"}
    assert len(adult.target) == 46447
    assert (adult.sensitive_features == "Black").mean() == pytest.approx(0.1009, abs=5e-5)


def test_adult_subsets_split_by_file_position(adult):
    train, test = (load_adult(subset=name, binary_race=False) for name in ("train", "test"))
    assert train.ids[0] == "adult-0"
    assert train.ids[-1] == "adult-32560"
    assert test.ids[0] == "adult-32561"
    assert test.ids[-1] == "adult-48841"
    pd.testing.assert_frame_equal(pd.concat([train.frame, test.frame]), adult.frame)


def test_adult_ids_are_the_same_in_every_view(adult):
    filtered = load_adult(subset="test")
    pd.testing.assert_frame_equal(filtered.frame, adult.frame.loc[filtered.ids])
    assert adult.frame.index.is_unique


def test_adult_leaves_the_sensitive_column_out_of_the_features(adult):
    assert "race" not in adult.data
    assert "sex" in adult.data
    by_sex = load_adult(sensitive_feature="sex")
    assert "sex" not in by_sex.data
    assert "race" in by_sex.data
    assert by_sex.sensitive_features.name == "sex"
    kept = load_adult(keep_sensitive=True)
    assert "race" in kept.data
    assert "income" not in kept.data


def test_adult_target_is_one_for_the_high_income(adult):
    labels = np.array(adult.target_names)[adult.target]
    assert (labels == adult.frame["income"]).all()
    assert adult.target_names == ["<=50K", ">50K"]


def test_german_counts(german):
    assert german.frame.shape == (1000, 22)
    assert german.target.sum() == 700
    assert german.sensitive_features.value_counts().to_dict() == {"male": 690, "female": 310}
    assert not german.frame.isna().any(axis=None)
    assert (np.array(german.target_names)[german.target] == german.frame["class"]).all()


def test_german_sex_is_the_first_word_of_personal_status(german):
    assert (german.frame["personal_status"].str.split().str[0] == german.frame["sex"]).all()


def test_german_leaves_everything_that_tells_sex_out_of_the_features(german):
    assert not {"sex", "personal_status", "class"} & set(german.data)
    assert {"sex", "personal_status"} <= set(load_german_credit(keep_sensitive=True).data)


@pytest.mark.parametrize("load", [load_adult, load_german_credit])
def test_bunch_is_aligned_and_typed(load):
    bunch = load()
    assert bunch.data.index.equals(bunch.target.index)
    assert bunch.data.index.equals(bunch.sensitive_features.index)
    assert bunch.data.index.tolist() == bunch.ids.tolist()
    assert bunch.feature_names == bunch.data.columns.tolist()
    assert bunch.target.dtype == np.int64
    assert set(bunch.target) == {0, 1}
    for words in ("CC BY 4.0", "doi:10.24432/", "Caveats"):
        assert words in bunch.DESCR


@pytest.mark.parametrize("load", [load_adult, load_german_credit])
def test_arrays_hold_the_same_values_as_frames(load):
    framed, plain = load(), load(as_frame=False)
    assert plain.frame is None
    assert isinstance(plain.data, np.ndarray)
    assert plain.data.shape == framed.data.shape
    same = (plain.data == framed.data.to_numpy(dtype=object)) | (pd.isna(plain.data) & framed.data.isna())
    assert same.all(axis=None)
    assert (plain.target == framed.target.to_numpy()).all()
    assert (plain.sensitive_features == framed.sensitive_features.to_numpy()).all()


@pytest.mark.parametrize("load", [load_adult, load_german_credit])
def test_return_x_y_is_data_and_target(load):
    bunch = load()
    X, y = load(return_X_y=True)
    pd.testing.assert_frame_equal(X, bunch.data)
    pd.testing.assert_series_equal(y, bunch.target)


def test_changing_a_loaded_table_does_not_change_the_next():
    first = load_german_credit()
    first.data.loc[:, "duration"] = -1
    first.frame.loc[:, "duration"] = -1
    assert (load_german_credit().data["duration"] > 0).all()


@pytest.mark.parametrize(
    "bad", [{"subset": "validation"}, {"sensitive_feature": "age"}, {"binary_race": "no"}]
)
def test_adult_names_the_bad_parameter(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        load_adult(**bad)


@settings(deadline=None, max_examples=50)
@given(
    n=st.integers(2, 200),
    share=st.floats(0.001, 0.999),
    m=st.integers(1, 4),
    noise=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_audit_has_both_groups_and_models_within_the_noise(n, share, m, noise, seed):
    audit = make_audit(n, share, m, noise, random_state=seed)
    n_minority = int((audit.sensitive_features == 0).sum())
    assert 1 <= n_minority <= n - 1
    assert n_minority == round(share * n) or n_minority in (1, n - 1)
    assert audit.X.shape == (n, 1)
    assert audit.predictions.shape == (m, n)
    assert (audit.predictions >= 0).all()
    assert (audit.predictions <= 1).all()
    assert (np.abs(audit.predictions - audit.base) <= noise + 1e-12).all()
    assert (audit.predictions[0] == audit.base).all()
    assert set(audit.y) <= {0, 1}


def test_audit_perturbations_are_uniform_before_clipping():
    audit = make_audit(20_000, n_models=2, noise=0.05, random_state=3)
    inside = (audit.base > 0.05) & (audit.base < 0.95)
    shift = (audit.predictions[1] - audit.base)[inside] / 0.05
    assert inside.sum() > 5_000
    # Four standard errors of the first two moments of U(-1, 1): variance 1/3, variance of squares 4/45.
    assert abs(shift.mean()) < 4 * np.sqrt(1 / 3 / inside.sum())
    assert abs((shift**2).mean() - 1 / 3) < 4 * np.sqrt(4 / 45 / inside.sum())


def test_audit_labels_follow_the_base_model():
    audit = make_audit(20_000, random_state=5)
    spread = np.sqrt((audit.base * (1 - audit.base)).mean() / 20_000)
    assert abs(audit.y.mean() - audit.base.mean()) < 4 * spread


def test_audit_advantaged_group_is_scored_higher():
    audit = make_audit(20_000, random_state=7)
    advantaged = (audit.sensitive_features == 1).to_numpy()
    assert audit.base[advantaged].mean() > audit.base[~advantaged].mean()


def test_audit_repeats_with_its_seed_and_only_then():
    one, same, other = (make_audit(50, n_models=2, random_state=seed) for seed in (1, 1, 2))
    assert (one.predictions == same.predictions).all()
    pd.testing.assert_series_equal(one.sensitive_features, same.sensitive_features)
    assert (one.base != other.base).any()


@pytest.mark.parametrize(
    "bad",
    [{"n_samples": 1}, {"minority_share": 0.0}, {"minority_share": 1.0}, {"n_models": 0}, {"noise": -0.1}],
)
def test_audit_names_the_bad_parameter(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        make_audit(**bad)
