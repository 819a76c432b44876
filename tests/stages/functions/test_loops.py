"""Loops that call functions of rows: what they return, on which rows they fail, and who may keep a row."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connect.batching import RowLists
from penstock.operators.function import Row
from penstock.stages.functions.calls import RowLoop, RowValidator
from penstock.stages.functions.loops import (
    build_accumulate_loop,
    build_filter_loop,
    build_loop,
    build_map_loop,
    find_columns_read,
)
from penstock.stages.rows.batch import Batch, RowBatch, rows_to_columns
from tests.naive.row_calls import call_each

UP = pa.schema({"k": pa.int64(), "v": pa.int64(), "word": pa.string()})
DOWN = pa.schema({"k": pa.int64(), "total": pa.float64()})
ROWS = [{"k": at % 3, "v": at, "word": "ab"[at % 2]} for at in range(9)]

rows_of_up = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.integers(0, 3),
            "v": st.none() | st.integers(-(2**63), 2**63 - 1),
            "word": st.none() | st.text(max_size=2),
        }
    ),
    max_size=30,
)


def divide(row: Row) -> dict[str, Any]:
    return {"k": row.k, "total": 100 / row["v"]}


def hand_out(row: Row) -> dict[str, Any]:
    RETURNED.update(k=row.k, total=float(len(row.word)))
    return RETURNED


RETURNED: dict[str, Any] = {}


def run(loop: RowLoop, rows: list[dict[str, Any]], states: Any = None, slots: Any = None) -> Any:
    """Return the lists of a loop and the numbers of the rows on which it failed."""
    lists: list[list[Any]] = [[] for _ in range(loop.n_lists)]
    columns = [[row[name] for row in rows] for name in loop.columns]
    values = zip(*([] if slots is None else [slots]), *columns, strict=True)
    rest = values if columns or slots is not None else iter([()] * len(rows))
    failed: list[int] = []
    while len(lists[0]) + len(failed) < len(rows):
        try:
            loop.run(rest, states, *lists)
        except Exception:
            failed.append(len(lists[0]) + len(failed))
    return lists, failed


@given(rows_of_up, st.sampled_from([divide, hand_out]))
def test_a_map_returns_what_a_row_object_per_call_would(rows: list[Any], call: Callable[..., Any]) -> None:
    lists, failed = run(build_map_loop(call, UP, RowValidator(DOWN)), rows)
    expected = call_each(call, rows)
    assert failed == [at for at, row in enumerate(expected) if isinstance(row, Exception)]
    assert lists == [[row[name] for row in expected if isinstance(row, dict)] for name in DOWN.names]


@given(rows_of_up)
def test_a_predicate_may_return_none_or_a_numpy_bool(rows: list[Any]) -> None:
    lists, failed = run(
        build_filter_loop(lambda row: None if row.v is None else np.bool_(row.v > 0), UP), rows
    )
    assert lists == [[row["v"] is not None and row["v"] > 0 for row in rows]]
    assert failed == []


@given(rows_of_up)
def test_states_belong_to_slots_and_a_state_that_does_not_fit_leaves_the_old_one(rows: list[Any]) -> None:
    def add(row: Row, state: int) -> Any:
        return "wrong" if row.v is None else state + 1

    def refuse(state: Any) -> Any:
        raise ValueError(state)

    states: dict[int, int] = {}
    slots = [row["k"] for row in rows]
    loop = build_accumulate_loop(add, UP, pa.schema({"n": pa.int64()}), refuse, lambda: 10)
    lists, failed = run(loop, rows, states, slots)
    counts, expected = dict[int, int](), []
    for row in rows:
        if row["v"] is not None:
            counts[row["k"]] = counts.get(row["k"], 10) + 1
            expected.append(counts[row["k"]])
    assert lists == [expected]
    assert failed == [at for at, row in enumerate(rows) if row["v"] is None]
    assert {slot: n for slot, n in states.items() if n > 10} == counts


def test_a_function_gets_the_state_of_its_key_which_it_may_change() -> None:
    def note(row: Row, seen: list[int]) -> dict[str, Any]:
        seen.append(row.v)
        return {"k": row.k, "total": float(sum(seen))}

    states: dict[int, list[int]] = {}
    lists, failed = run(
        build_map_loop(note, UP, RowValidator(DOWN), list), ROWS, states, [row["k"] for row in ROWS]
    )
    assert failed == []
    assert states == {0: [0, 3, 6], 1: [1, 4, 7], 2: [2, 5, 8]}
    assert lists[1] == [0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 9.0, 12.0, 15.0]


KEPT: list[Any] = []


def keep_row(row: Row) -> bool:
    KEPT.append(row)
    return True


def keep_values(row: Row) -> bool:
    KEPT.append(vars(row))
    return True


def keep_copy(row: Row) -> bool:
    KEPT.append(copy.copy(row))
    return True


def keep_names(row: Row) -> bool:
    KEPT.append((lambda: row)())
    return True


@pytest.mark.parametrize("keep", [keep_row, keep_values, keep_copy, keep_names])
def test_a_row_that_a_function_keeps_never_changes(keep: Callable[..., Any]) -> None:
    KEPT.clear()
    run(build_filter_loop(keep, UP), ROWS)
    assert [dict(row) for row in KEPT] == ROWS


def test_rows_that_a_generator_still_reads_are_its_own() -> None:
    def spell_row(row: Row) -> Iterator[str]:
        yield row.word
        yield f"{row.word}{row.v}"

    lists, _ = run(build_loop(spell_row, UP, lambda returned: returned), ROWS)
    assert [list(words) for words in lists[0]] == [[row["word"], f"{row['word']}{row['v']}"] for row in ROWS]


def test_a_row_that_is_returned_is_not_filled_anew() -> None:
    lists, _ = run(build_loop(lambda row: row, UP, lambda returned: returned), ROWS)
    assert [dict(row) for row in lists[0]] == ROWS


def test_a_function_that_catches_exceptions_may_keep_the_row_in_one() -> None:
    problems = []

    def fail(row: Row) -> bool:
        try:
            raise ValueError
        except ValueError as problem:
            problems.append((problem, row.v))
        return True

    run(build_filter_loop(fail, UP), ROWS)
    frames = [
        problem.__traceback__.tb_frame.f_locals["row"].v for problem, _ in problems if problem.__traceback__
    ]
    assert frames == [row["v"] for row in ROWS]


def _with_default(row: Row, least: int = 3) -> bool:
    return bool(row.v > least)


def _in_two_places(row: Row) -> Any:
    return row.k if row["v"] else row.k + 1


def _reads_nothing(row: Row, state: int) -> int:
    return state + 1


@pytest.mark.parametrize(
    ("call", "columns"),
    [
        (lambda row: row.v > 1, ("v",)),
        (lambda row: {"a": row["word"], "b": row.k}, ("word", "k")),
        (_with_default, ("v",)),
        (_in_two_places, ("v", "k")),
        (_reads_nothing, ()),
    ],
)
def test_what_a_function_reads_of_its_row_is_found_in_its_code(
    call: Callable[..., Any], columns: tuple[str, ...]
) -> None:
    read = find_columns_read(call, UP)
    assert read is not None
    assert sorted(read) == sorted(columns)


class Callee:
    """An object that can be called."""

    def __call__(self, row: Row) -> Any:
        return row.v


def _assigns(row: Row) -> Any:
    other = row
    return other.v


def _reads_frame(row: Row) -> Any:
    return locals()["row"].v


def _deletes(row: Row) -> Any:
    v = row.v
    del row
    return v


async def _waits(row: Row) -> Any:
    return row.v


def _takes_all(*rows: Row) -> Any:
    return rows[0].v


@pytest.mark.parametrize(
    "call",
    [
        lambda row: row,
        lambda row: {**row},
        lambda row: row.keys(),
        lambda row: row.nope,
        lambda row: row["k" + "v"[:0]],
        lambda row: [row.v for _ in "ab"] if row else lambda: row,
        lambda row: len(row) + 1,
        lambda row: row == row,
        lambda row: (yield row.v),
        Callee(),
        Callee().__call__,
        len,
        _assigns,
        _reads_frame,
        _deletes,
        _waits,
        _takes_all,
        keep_row,
    ],
)
def test_of_a_function_that_may_do_more_with_its_row_nothing_is_assumed(call: Callable[..., Any]) -> None:
    assert find_columns_read(call, UP) is None


def test_a_column_with_the_name_of_something_that_a_row_has_is_not_assumed_to_be_read() -> None:
    schema = pa.schema({"keys": pa.int64(), "_own": pa.int64()})
    assert find_columns_read(lambda row: row.keys, schema) is None
    assert find_columns_read(lambda row: row._own, schema) is None


@given(rows_of_up, st.data())
def test_rows_as_lists_are_the_same_rows(rows: list[Any], data: st.DataObject) -> None:
    lists = RowLists.of(rows, UP.names)
    assert list(lists) == rows
    assert len(lists) == len(rows)
    assert [lists[at] for at in range(len(rows))] == rows
    assert list(lists[1:]) == rows[1:]
    holds = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    assert list(lists.where(holds)) == list(compress(rows, holds))
    batch = RowBatch(lists, UP, np.arange(len(rows)))
    selected = batch.where(np.array(holds, np.bool_))
    assert selected.rows.equals(rows_to_columns(list(compress(rows, holds)), UP))
    assert selected.times.tolist() == list(compress(range(len(rows)), holds))
    whole = Batch(rows_to_columns(rows, UP), np.arange(len(rows)))
    assert all(batch.values(name) == whole.values(name) for name in UP.names)
