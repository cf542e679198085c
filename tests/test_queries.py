"""Labels and predictions of every kind, and what is refused."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from sklearn_fairleak.groups import encode_groups
from sklearn_fairleak.queries import METRICS, canonical_metric, make_queries

PRED = np.array([0, 1, 0, 1, 1, 1, 0, 1])
TRUE = np.array([0, 1, 0, 1, 0, 1, 1, 1])
TEXT = np.where(PRED == 1, "Yes", "No")


@pytest.mark.parametrize(
    ("y_pred", "pos_label"),
    [
        (PRED, None),
        (PRED.tolist(), None),
        (PRED.astype(bool), None),
        (np.array(PRED.astype(bool), dtype=object), None),
        (2 * PRED - 1, None),
        (PRED + 1, 2),
        (TEXT, "Yes"),
        (TEXT.tolist(), "Yes"),
        (pd.Series(TEXT, dtype="category"), "Yes"),
        (pd.Series(TEXT, dtype="string"), "Yes"),
        (pd.Series(PRED).astype("Int64"), None),
        (pd.Series(PRED).astype("boolean"), None),
        (pl.Series(PRED), None),
        (pl.Series(TEXT.tolist()), "Yes"),
        (np.where(PRED == 1, 2, [0, 1, 0, 1, 1, 1, 0, 0]), 2),
        (PRED.astype(float), None),
        (PRED.astype(np.float32), None),
    ],
)
def test_labels_of_every_kind_are_read_alike(y_pred, pos_label):
    batch = make_queries("statistical_parity", y_pred, pos_label=pos_label)
    assert batch.queries[0].values.tolist() == [PRED.tolist()]


@pytest.mark.parametrize(
    ("y_pred", "message"),
    [
        (TEXT, r"labels \{'No', 'Yes'\}: give pos_label="),
        (PRED + 1, r"labels \{1, 2\}: give pos_label="),
        (np.array([0, 1, 2, 0]), r"labels \{0, 1, 2\}: give pos_label="),
        (np.array([0.1, np.nan]), "NaN or infinite"),
        (np.array([0.1, np.inf]), "NaN or infinite"),
        (np.array([-0.56, 1.4]), "within \\[0, 1\\]"),
        (pd.Series([1, pd.NA], dtype="Int64"), "missing values"),
        (np.array([1, None], dtype=object), "missing values"),
        (np.array([1, "1"], dtype=object), "mixes values of types"),
        (np.array([1]), "at least 2 individuals"),
        (np.zeros((2, 2, 2)), "shape \\(2, 2, 2\\)"),
        ([], "must not be empty|at least 2"),
    ],
)
def test_unreadable_predictions_are_refused(y_pred, message):
    with pytest.raises(ValueError, match=message):
        make_queries("statistical_parity", y_pred)


@pytest.mark.parametrize("metric", ["accuracy_parity", "predictive_parity", "negative_predictive_parity"])
def test_label_metrics_refuse_probabilities(metric):
    with pytest.raises(ValueError, match="about predicted labels"):
        make_queries(metric, np.full(8, 0.5), TRUE)


@pytest.mark.parametrize("metric", sorted(set(METRICS) - {"statistical_parity"}))
def test_metrics_of_labels_need_labels(metric):
    with pytest.raises(ValueError, match="needs y_true"):
        make_queries(metric, PRED)
    with pytest.raises(ValueError, match="same length"):
        make_queries(metric, PRED, TRUE[:-1])


@pytest.mark.parametrize(
    ("metric", "y_true", "y_pred", "message"),
    [
        ("equal_opportunity", np.zeros(8, int), PRED, "positive, got 0"),
        ("false_positive_rate_parity", np.ones(8, int), PRED, "negative, got 0"),
        ("predictive_parity", TRUE, np.zeros(8, int), "predicted positive, got 0"),
        ("negative_predictive_parity", TRUE, np.ones(8, int), "predicted negative, got 0"),
    ],
)
def test_empty_subsets_are_refused(metric, y_true, y_pred, message):
    with pytest.raises(ValueError, match=message):
        make_queries(metric, y_pred, y_true)


def test_subsets_and_values_of_each_metric():
    batch = make_queries("equalized_odds", PRED, TRUE)
    assert [query.subset.tolist() for query in batch.queries] == [[1, 3, 5, 6, 7], [0, 2, 4]]
    assert batch.rows.tolist() == [[0, 1]]
    assert batch.multiplicity == 1
    batch = make_queries("predictive_parity", PRED, TRUE)
    assert batch.queries[0].values.tolist() == [TRUE[PRED == 1].tolist()]
    batch = make_queries("negative_predictive_parity", PRED, TRUE)
    assert batch.queries[0].values.tolist() == [(1 - TRUE[PRED == 0]).tolist()]
    batch = make_queries("accuracy_parity", PRED, TRUE)
    assert batch.queries[0].values.tolist() == [(PRED == TRUE).astype(float).tolist()]


def test_batches_of_models_share_or_split_subsets():
    models = np.stack([PRED, 1 - PRED, PRED])
    batch = make_queries("equalized_odds", models, TRUE)
    assert batch.rows.tolist() == [[0, 3], [1, 4], [2, 5]]
    batch = make_queries("predictive_parity", models, TRUE)
    assert len(batch.queries) == 3
    assert batch.multiplicity == 2


def test_bounds_clip_and_rescale_regression_predictions():
    batch = make_queries("statistical_parity", np.array([-1.0, 0.5, 3.0]), bounds=(0, 2))
    assert batch.queries[0].values.tolist() == [[0.0, 0.25, 1.0]]
    assert batch.scale == 2.0
    for bounds in [(1, 1), (0, np.inf), (0,), "ab"]:
        with pytest.raises(ValueError, match="bounds must be"):
            make_queries("statistical_parity", np.zeros(3), bounds=bounds)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros(8), "all zero"),
        (-np.ones(8), "non-negative"),
        (np.ones(7), "length 8"),
        (np.full(8, np.nan), "finite"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        make_queries("statistical_parity", PRED, sample_weight=weights)


def test_weights_of_a_subset_may_not_be_all_zero():
    with pytest.raises(ValueError, match="with y_true positive are zero"):
        make_queries("equal_opportunity", PRED, TRUE, sample_weight=1 - TRUE)


@pytest.mark.parametrize("metric", [len, "roc_auc", "demographic_parity_", 3, None])
def test_unsupported_metrics_are_refused_by_name(metric):
    with pytest.raises(ValueError, match=r"statistical_parity|Supported metrics"):
        canonical_metric(metric)


class TestGroups:
    def test_labels_of_every_kind(self):
        for column in (
            ["f", "m", "m"],
            np.array(["f", "m", "m"]),
            np.array(["f", "m", "m"], dtype=object),
            pd.Series(["f", "m", "m"], dtype="string"),
            pd.Series(["f", "m", "m"], dtype="category"),
            pl.Series(["f", "m", "m"]),
        ):
            encoded = encode_groups(column)
            assert encoded.labels == ("f", "m")
            assert encoded.codes.tolist() == [0, 1, 1]

    def test_unused_categories_stay_declared(self):
        column = pd.Series([0, 1, 1]).astype("category").cat.set_categories([0, 1, 2])
        assert encode_groups(column).labels == (0, 1, 2)
        assert encode_groups(column.array).labels == (0, 1, 2)

    def test_whole_floats_are_the_same_labels_as_integers(self):
        assert encode_groups([0.0, 1.0]).labels == (0, 1)

    def test_missing_is_decided_once(self):
        column = pd.Series(["f", None, "m"])
        with pytest.raises(ValueError, match="missing='group'"):
            encode_groups(column)
        encoded = encode_groups(column, missing="group")
        assert encoded.codes.tolist() == [0, 2, 1]
        assert (encoded.n_groups, encoded.n_statuses) == (2, 3)

    def test_continuous_features_need_public_edges(self):
        age = pd.Series([23.5, 31.0, 44.2, 67.0], name="age")
        with pytest.raises(ValueError, match="continuous"):
            encode_groups(age)
        encoded = encode_groups(age, bins=[0, 30, 50, 120])
        assert encoded.labels == ("[0, 30)", "[30, 50)", "[50, 120)")
        assert encoded.codes.tolist() == [0, 1, 1, 2]
        with pytest.raises(ValueError, match="outside bins"):
            encode_groups(age, bins=[0, 30, 50])

    def test_one_label_and_identifiers_are_refused(self):
        with pytest.raises(ValueError, match="at least 2 group labels, got 1"):
            encode_groups(["f", "f"])
        with pytest.raises(ValueError, match="looks like an identifier"):
            encode_groups(np.arange(101))

    def test_undeclared_lists_of_labels_warn(self):
        with pytest.warns(UserWarning, match="becomes public"):
            encode_groups(list("abc"), declare=True)
        encode_groups(list("abc"), groups=list("abcd"), declare=True)
        encode_groups(list("ab"), declare=True)

    def test_declared_groups_must_hold_every_label(self):
        encoded = encode_groups(["b", "a"], groups=["b", "a", "c"])
        assert encoded.codes.tolist() == [0, 1]
        with pytest.raises(ValueError, match="outside groups"):
            encode_groups(["b", "x"], groups=["b", "a"])
        with pytest.raises(ValueError, match="distinct"):
            encode_groups(["b", "a"], groups=["b", "a", "a"])

    def test_several_features_are_crossed(self):
        frame = pd.DataFrame({"sex": ["f", "m", "f"], "race": ["b", "b", "w"]})
        encoded = encode_groups(frame)
        assert encoded.labels == (("f", "b"), ("f", "w"), ("m", "b"), ("m", "w"))
        assert encoded.codes.tolist() == [0, 2, 1]
        assert encoded.names == ("sex", "race")

    def test_codes_are_not_in_the_repr(self):
        assert "codes" not in repr(encode_groups(["f", "m"]))

    def test_mixed_types_are_refused(self):
        with pytest.raises(ValueError, match="mixes values of types"):
            encode_groups(np.array(["a", 1], dtype=object))

    def test_advantaged_is_a_label(self):
        encoded = encode_groups(["f", "m"])
        assert encoded.advantaged_code(None) == 1
        assert encoded.advantaged_code("f") == 0
        with pytest.raises(ValueError, match="advantaged='x'"):
            encoded.advantaged_code("x")
