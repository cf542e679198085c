"""Who is who: ids in fitted order, plain counts that take no memory, and rows known by their content."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest

from sklearn_fairleak import UnknownIndividuals
from sklearn_fairleak.individuals import (
    Individuals,
    RowIds,
    find_row_ids,
    fingerprint_rows,
    is_plain_count,
    plain_ids,
)

KEY = b"0123456789abcdef"


@pytest.mark.parametrize(
    ("index", "is_count"),
    [
        (pd.RangeIndex(4), True),
        (pd.RangeIndex(1, 5), False),
        (pd.RangeIndex(0, 8, 2), False),
        (pd.RangeIndex(3, -1, -1), False),
        (pd.RangeIndex(0), False),
        (pd.Index([0, 1, 2]), True),
        (pd.Index([0, 2, 1]), False),
        (pd.Index([0.0, 1.0, 2.0]), False),
        (pd.Index(["0", "1"]), False),
    ],
)
def test_plain_counts_are_recognised(index, is_count):
    assert is_plain_count(index) is is_count


def test_a_plain_count_is_the_same_however_it_is_written():
    counted = Individuals(None, n_individuals=5)
    assert counted.digest() == Individuals(range(5)).digest() == Individuals(np.arange(5)).digest()
    assert counted.digest() != Individuals(None, n_individuals=6).digest()
    assert counted.digest() != Individuals([4, 3, 2, 1, 0]).digest()
    assert counted.digest() != Individuals([str(k) for k in range(5)]).digest()


def test_ids_and_their_order_make_the_digest():
    first = Individuals(["a", "b", "c"])
    assert first.digest() == Individuals(pd.Index(["a", "b", "c"])).digest()
    assert first.digest() != Individuals(["a", "c", "b"]).digest()
    assert first.digest() != Individuals(["a", "b", "d"]).digest()


def test_a_hundred_million_people_of_a_plain_count_take_no_memory():
    tracemalloc.start()
    people = Individuals(None, n_individuals=10**8)
    assert len(people) == 10**8
    assert people.is_count
    people.digest()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_rows_are_found_by_id_in_any_order():
    people = Individuals(["a", "b", "c", "d"])
    rows = RowIds(plain_ids(["d", "a"]), explicit=True)
    assert people.positions(rows).tolist() == [3, 0]
    assert people.order_of(np.array(["a", "b", "c", "d"], dtype=object)) is None
    assert people.order_of(np.array(["b", "a", "d", "c"], dtype=object)).tolist() == [1, 0, 3, 2]


@pytest.mark.parametrize(
    ("asked", "known"), [(["a", "x"], ["a", "b"]), ([1, 2], ["1", "2"]), (["1"], [1, 2])]
)
def test_strangers_are_refused_without_their_names(asked, known):
    with pytest.raises(UnknownIndividuals) as caught:
        Individuals(known).positions(RowIds(plain_ids(asked), explicit=True))
    assert "'x'" not in str(caught.value)


def test_nobody_is_asked_about_twice():
    with pytest.raises(ValueError, match="more than once"):
        Individuals(["a", "b"]).positions(RowIds(plain_ids(["a", "a"]), explicit=True))


@pytest.mark.parametrize(
    ("ids", "message"), [(["a", "a"], "must be unique"), (["a", None], "missing"), ([1.0, np.nan], "missing")]
)
def test_ids_must_be_unique_and_present(ids, message):
    with pytest.raises(ValueError, match=message):
        Individuals(ids)


def test_shuffled_rows_of_a_plain_count_are_noticed():
    X = pd.DataFrame({"x": np.arange(6.0), "y": list("abcdef")})
    people = Individuals(None, fingerprint_rows(X, KEY), n_individuals=6)
    same = find_row_ids(X, None, sample_ids=None, id_column=None, key=KEY)
    assert people.positions(same).tolist() == list(range(6))
    shuffled = X.iloc[[1, 0, 2, 3, 4, 5]].reset_index(drop=True)
    with pytest.raises(ValueError, match="row"):
        people.positions(find_row_ids(shuffled, None, sample_ids=None, id_column=None, key=KEY))


def test_fingerprints_need_the_key():
    X = np.arange(12.0).reshape(6, 2)
    assert fingerprint_rows(X, KEY).tolist() == fingerprint_rows(X.copy(), KEY).tolist()
    assert not (fingerprint_rows(X, KEY) == fingerprint_rows(X, KEY[::-1])).any()
    assert len(set(fingerprint_rows(X, KEY).tolist())) == 6
