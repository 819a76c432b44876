"""Keys to slots, of every type, small and large, against a plain dict."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.expr.values import to_plain
from penstock.stages import policy
from penstock.stages.keys import index as key_index
from penstock.stages.keys.index import build_keys
from penstock.stages.keys.slots import KeySlots
from penstock.testing.strategies import values
from tests.naive.slots import KnownSlots, same

DECIMAL = pa.decimal128(38, 3)
DECIMALS = st.one_of(st.none(), st.decimals(min_value=-(10**34), max_value=10**34, places=3, allow_nan=False))
TYPES = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), DECIMAL),
]
KEYS = [
    *((type,) for type in TYPES),
    (pa.string(), pa.float64()),
    (pa.int64(), pa.int64(), pa.int8()),
    (pa.bool_(), DECIMAL, pa.date32(), pa.binary()),
]


@pytest.fixture(params=["dict", "dense", "hash"])
def table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which table holds the words: small inputs never leave the dict by themselves."""
    if request.param != "dict":
        monkeypatch.setattr(policy, "SIZES", policy.SizePolicy(hash_batch_rows=0))
    if request.param == "hash":
        monkeypatch.setattr(key_index, "DENSE_RANGE", 0)
        monkeypatch.setattr(key_index, "DENSE_PER_SLOT", 0)
    which: str = request.param
    return which


def some(type: pa.DataType) -> st.SearchStrategy[Any]:
    return DECIMALS if type is DECIMAL else values(type)


def plain_rows(columns: Sequence[pa.Array]) -> list[tuple[object, ...]]:
    return list(zip(*(to_plain(column) for column in columns), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("types", KEYS, ids=lambda types: "-".join(map(str, types)))
@given(data=st.data())
@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keys_come_and_go_as_in_a_dict(
    types: tuple[pa.DataType, ...], table: str, data: st.DataObject
) -> None:
    pool = data.draw(st.lists(st.tuples(*map(some, types)), min_size=1, max_size=8))
    keys, known = build_keys(types), KnownSlots()
    for _ in range(data.draw(st.integers(1, 5))):
        rows = data.draw(st.lists(st.sampled_from(pool), max_size=12))
        columns = [pa.array([row[i] for row in rows], type) for i, type in enumerate(types)]
        slots = keys.assign(columns)
        assert slots.dtype == np.int64
        known.see(plain_rows(columns), slots.tolist(), keys.capacity)
        assert keys.n_live == len(known.slots)
        assert keys.live().tolist() == sorted(known.slots.values())
        live = keys.columns_of(keys.live())
        assert [column.type for column in live] == list(types)
        assert [same(row) for row in plain_rows(live)] == known.keys_of(keys.live().tolist())
        gone = data.draw(st.permutations(keys.live().tolist()))[: data.draw(st.integers(0, 6))]
        keys.free(np.array(gone, dtype=np.int64))
        known.forget(gone)


def ints(keys: KeySlots, *words: int | None) -> list[int]:
    return keys.assign([pa.array(words, pa.int64())]).tolist()  # type: ignore[no-any-return]  # pyarrow is untyped


def test_all_nans_are_one_key_and_minus_zero_comes_out_as_zero(table: str) -> None:
    for type in (pa.float64(), pa.float32()):
        keys = build_keys([type])
        strange = np.array([0x7FF0000000000001], np.uint64).view(np.float64)[0]
        slots = keys.assign([pa.array([-0.0, math.nan, 0.0, -math.nan, strange, None], type)])
        assert slots.tolist() == [0, 1, 0, 1, 1, 2]
        zero, nan, null = keys.columns_of(np.array([0, 1, 2]))[0].to_pylist()
        assert (math.copysign(1, zero), math.isnan(nan), null) == (1.0, True, None)


def test_zero_and_null_are_two_keys(table: str) -> None:
    keys = build_keys([pa.int64()])
    assert ints(keys, None, 0, None, 0) == [1, 0, 1, 0]
    keys.free(np.array([1]))
    assert ints(keys, 0, 5, None) == [0, 1, 2]
    assert keys.columns_of(np.array([0, 1, 2]))[0].to_pylist() == [0, 5, None]


def test_a_slice_of_a_column_is_read_from_where_it_begins(table: str) -> None:
    column = pa.array([1, None, 3, 3, None, 1], pa.int64())
    assert build_keys([pa.int64()]).assign([column.slice(2, 3)]).tolist() == [0, 0, 1]
    texts = pa.array(["x", None, "y", "y"])
    assert build_keys([pa.string()]).assign([texts.slice(1, 2)]).tolist() == [1, 0]
    money = pa.array([Decimal(1), Decimal(2), None, Decimal(2)], pa.decimal128(5, 0))
    assert build_keys([money.type]).assign([money.slice(1)]).tolist() == [0, 1, 0]


def test_texts_of_two_columns_do_not_run_together(table: str) -> None:
    keys = build_keys([pa.string(), pa.string()])
    slots = keys.assign([pa.array(["x", "xy", "x", None]), pa.array(["yz", "z", "yz", "xyz"])])
    assert slots.tolist() == [0, 1, 0, 2]


def test_without_key_columns_all_rows_have_one_slot() -> None:
    keys = build_keys([])
    assert (keys.n_live, keys.capacity) == (0, 1)
    assert keys.assign([], n_rows=3).tolist() == [0, 0, 0]
    assert (keys.n_live, keys.live().tolist(), keys.columns_of(keys.live())) == (1, [0], [])
    keys.free(np.array([0]))
    assert keys.n_live == 0


def test_slots_are_handed_out_in_order_of_appearance_whichever_table_holds_the_words(table: str) -> None:
    keys = build_keys([pa.int64()])
    words = [7, -(2**63), 7, 2**63 - 1, 0, *range(1000, 1300), 7]
    assert ints(keys, *words) == [0, 1, 0, 2, 3, *range(4, 304), 0]
    assert keys.capacity == 512


def test_keys_move_from_the_dict_to_a_table_and_keep_their_slots() -> None:
    keys = build_keys([pa.int64()])
    small = ints(keys, 5, None, 9, -1)
    large = keys.assign([pa.array(np.arange(5000))])
    assert ints(keys, 5, None, 9, -1) == small
    assert large[[5, 9]].tolist() == [small[0], small[2]]
    far = keys.assign([pa.array(np.arange(5000) * 10**15)])
    assert far[0] == large[0]
    assert ints(keys, 5, None, 9, -1) == small
    assert keys.n_live == 5000 + 2 + 4999


def test_a_range_of_words_that_moves_on_keeps_a_small_table() -> None:
    keys = build_keys([pa.int64()])
    for start in range(0, 2_000_000, 10_000):
        slots = keys.assign([pa.array(np.arange(start, start + 10_000))])
        assert keys.columns_of(slots[[0, -1]])[0].to_pylist() == [start, start + 9_999]
        keys.free(slots)
    assert keys.nbytes < 2_000_000


def test_memory_is_given_back_when_most_keys_have_gone() -> None:
    for type, spread in ((pa.int64(), 1), (pa.int64(), 10**12), (pa.string(), 1)):
        keys = build_keys([type])
        slots = keys.assign([pa.array(np.arange(50_000) * spread).cast(type)])
        held = keys.nbytes
        keys.free(slots[100:])
        assert (keys.n_live, keys.capacity) == (100, 256)
        assert keys.nbytes < held / 4
        again = keys.assign([pa.array(np.arange(50_000) * spread).cast(type)])
        assert again.tolist() == slots.tolist()


def test_values_that_no_combination_uses_are_swept() -> None:
    keys = build_keys([pa.string(), pa.int64()])
    for start in range(0, 50_000, 1_000):
        numbers = pa.array(np.arange(start, start + 1_000))
        slots = keys.assign([numbers.cast(pa.string()), numbers])
        assert keys.columns_of(slots)[1].equals(numbers)
        keys.free(slots[1:])
    assert keys.n_live == 50
    assert keys.columns_of(keys.live())[1].to_pylist() == list(range(0, 50_000, 1_000))
    assert keys.nbytes < 1_000_000


def test_combined_keys_stay_the_same_when_a_column_gets_many_values(table: str) -> None:
    keys = build_keys([pa.int64(), pa.int64()])
    first = keys.assign([pa.array([1, 2, 1]), pa.array([10, 10, 20])])
    assert first.tolist() == [0, 1, 2]
    many = pa.array(np.arange(1000))
    rest = keys.assign([pa.array(np.ones(1000, np.int64)), many])
    assert (rest[10], rest[20], keys.n_live) == (0, 2, 1001)
    assert keys.assign([pa.array([1, 2, 1]), pa.array([10, 10, 20])]).tolist() == [0, 1, 2]


def test_freeing_what_is_not_in_use_is_a_broken_promise() -> None:
    keys = build_keys([pa.int64()])
    ints(keys, 1, 2)
    with pytest.raises(AssertionError, match="not in use"):
        keys.free(np.array([2]))
    with pytest.raises(AssertionError, match="twice"):
        keys.free(np.array([1, 1]))


def test_an_export_assigned_elsewhere_brings_the_same_keys() -> None:
    keys = build_keys([pa.string(), pa.float64()])
    keys.assign([pa.array(["a", "b", None]), pa.array([1.5, None, math.nan])])
    saved = keys.export(np.array([2, 0]))
    assert saved.schema.names == ["key_0", "key_1"]
    other = build_keys([pa.string(), pa.float64()])
    slots = other.assign(saved.columns)
    assert other.export(slots).equals(saved) or repr(other.export(slots)) == repr(saved)
    assert slots.tolist() == [0, 1]


def test_texts_come_and_go_in_an_arena_that_closes_its_holes() -> None:
    keys = build_keys([pa.binary()])
    stay = keys.assign([pa.array([b"", b"stays", b"s" * 1000])])
    for turn in range(40):
        texts = pa.array([b"%d" % n * (1 + n % 7) for n in range(turn * 5_000, turn * 5_000 + 5_000)])
        slots = keys.assign([texts])
        assert keys.columns_of(slots)[0].equals(texts)
        keys.free(slots)
    assert keys.columns_of(stay)[0].to_pylist() == [b"", b"stays", b"s" * 1000]
    assert keys.nbytes < 3_000_000


def test_a_text_longer_than_the_arena_finds_room() -> None:
    keys = build_keys([pa.string()])
    texts = pa.array(["x" * n for n in (1, 100_000, 3, 50_000)] + ["y"] * 5000)
    assert keys.assign([texts])[:5].tolist() == [0, 1, 2, 3, 4]
    assert keys.columns_of(np.array([3, 1]))[0].equals(texts.take(pa.array([3, 1])))


@pytest.mark.slow
@pytest.mark.parametrize("spread", [1, 2**43 + 1], ids=["near", "far"])
def test_a_million_keys(spread: int) -> None:
    n = 1_000_000
    keys = build_keys([pa.int64()])
    words = np.random.default_rng(3).permutation(n) * spread
    slots = keys.assign([pa.array(words)])
    assert np.array_equal(slots, np.arange(n))
    keys.free(slots[::2])
    assert np.array_equal(keys.assign([pa.array(words[1::2])]), slots[1::2])
    assert np.array_equal(keys.columns_of(slots[1::2])[0].to_numpy(), words[1::2])
    again = keys.assign([pa.array(words)])
    assert np.array_equal(np.sort(again), np.arange(n))


SMALL = """
import sys
import numpy as np, pyarrow as pa
from penstock.stages.keys.index import build_keys
types = [pa.int64(), pa.string(), pa.float32()]
columns = [pa.array(np.arange(900)), pa.array(map(str, range(900))), pa.array(np.zeros(900, np.float32))]
for which in ([0], [1], [2], [0, 1, 2]):
    keys = build_keys([types[i] for i in which])
    keys.free(keys.assign([columns[i] for i in which])[:1])
    keys.buckets_of(keys.live())
sys.exit("numba" in sys.modules)
"""


def test_small_inputs_do_not_load_numba() -> None:
    assert subprocess.run([sys.executable, "-c", SMALL], check=False).returncode == 0


def test_long_streams_of_small_batches_move_to_tables_and_keep_their_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy, "SIZES", policy.SizePolicy(hash_total_rows=10))
    for type in (pa.int64(), pa.string(), pa.decimal128(20, 0)):
        keys = build_keys([type])
        column = pa.array([3, None, 4, 3, 5]).cast(type)
        before = keys.assign([column])
        assert before.tolist() == [0, 3, 1, 0, 2]
        for _ in range(3):
            assert keys.assign([column]).tolist() == before.tolist()
        assert keys.columns_of(before)[0].equals(column)


@pytest.mark.parametrize("types", KEYS, ids=lambda types: "-".join(map(str, types)))
@pytest.mark.parametrize("limit", [0, 1 << 18])
@given(data=st.data())
@settings(deadline=None, max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_restored_keys_are_the_keys_that_were_saved(
    types: tuple[pa.DataType, ...], limit: int, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    monkeypatch.setattr(policy, "SIZES", policy.SizePolicy(hash_batch_rows=4, restored_keys=limit))
    rows = data.draw(st.lists(st.tuples(*map(some, types)), min_size=8, max_size=12))
    columns = [pa.array([row[i] for row in rows], type) for i, type in enumerate(types)]
    first, again = build_keys(types), build_keys(types)
    first.assign(columns)
    live = first.live()
    slots = again.restore(list(first.export(live).columns), len(live))
    assert sorted(slots.tolist()) == again.live().tolist()
    assert again.buckets_of(slots).tolist() == first.buckets_of(live).tolist()
    assert again._dict is not None or not limit
    assert [same(row) for row in plain_rows(again.columns_of(slots))] == [
        same(row) for row in plain_rows(first.columns_of(live))
    ]
    # The next large batch moves them into a table, and they keep their slots.
    assert again.assign(list(first.export(live).columns)).tolist() == slots.tolist()


def test_a_slot_that_another_key_gets_has_the_bucket_of_that_key() -> None:
    keys, other = build_keys([pa.int64()]), build_keys([pa.int64()])
    slots = keys.assign([pa.array([1, 2, 3])])
    keys.buckets_of(slots)
    keys.free(slots[:1])
    assert keys.assign([pa.array([4])]).tolist() == slots[:1].tolist()
    assert keys.buckets_of(slots[:1]).tolist() == other.buckets_of(other.assign([pa.array([4])])).tolist()


EXACT = [(pa.string(),), (pa.int64(),), (pa.bool_(),), (pa.string(), pa.int32()), (pa.date32(),) * 3]


@pytest.mark.parametrize("types", EXACT, ids=str)
@given(data=st.data())
@settings(deadline=None, derandomize=True, max_examples=30)
def test_plain_keys_have_the_slots_of_keys_in_columns(
    types: tuple[pa.DataType, ...], data: st.DataObject
) -> None:
    by_value, by_column = build_keys(types), build_keys(types)
    for _ in range(3):
        rows = data.draw(st.lists(st.tuples(*map(some, types)), min_size=1, max_size=6))
        columns = [pa.array(part, type_) for part, type_ in zip(zip(*rows, strict=True), types, strict=True)]
        expected = by_column.assign(columns).tolist()
        plain = [to_plain(column) for column in columns]
        slots = by_value.assign_plain(plain)
        assert (slots is None) == any(None in values for values in plain)
        if slots is None:
            slots = by_value.assign(columns)
        assert sorted(zip(slots.tolist(), expected, strict=True)) == sorted(
            zip(expected, expected, strict=True)
        )


def test_plain_keys_are_looked_up_as_columns_once_they_have_left_the_dict(table: str) -> None:
    keys = build_keys([pa.string()])
    keys.assign([pa.array(["a", "b"])])
    slots = keys.assign_plain([["b", "c"]])
    assert (slots is None) == (table != "dict")
    assert slots is None or slots.tolist() == [1, 2]
