"""State per key: rows reach it in order of time, once the watermark has passed them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import penstock as ps
from penstock import col
from tests.conformance.case import Case, same_rows
from tests.conformance.engines import everywhere

FEATURE = "Keyed state and accumulate"


def step_up(row: Any, last: dict[str, int]) -> dict[str, Any]:
    """How much the value grew since the key's row before."""
    grown = row.v - last.get("v", 0)
    last["v"] = row.v
    return {"key": row.key, "v": row.v, "grown": grown}


GROWN = {"key": "string", "v": "int64", "grown": "int64"}


@everywhere
def test_map_with_state_sees_the_rows_of_a_key_in_order_of_time(case: Case) -> None:
    rows = case.timed_source("t key v", [(3, "a", 30), (1, "a", 10)], [(2, "a", 15), (2, "b", 7)], delay=10)
    grown = rows.key_by("key").map(step_up, schema=GROWN, state=dict)
    case.gives(grown, "key v grown", ("a", 10, 10), ("a", 15, 5), ("a", 30, 15), ("b", 7, 7))


def test_rows_of_equal_time_reach_state_in_the_order_of_their_reader(case: Case) -> None:
    rows = case.timed_source("t key v", [(1, "a", 9), (1, "a", 5)], [(1, "a", 7)])
    assert case.run(rows.key_by("key").map(step_up, schema=GROWN, state=dict)).bag("grown") == [-4, 2, 9]


def test_filter_with_state_can_drop_what_was_seen_before(case: Case) -> None:
    def new(row: Any, seen: set[int]) -> bool:
        fresh = row.v not in seen
        seen.add(row.v)
        return fresh

    rows = case.timed_source("t key v", [(1, "a", 5), (2, "a", 5), (3, "b", 5)], [(4, "a", 6), (5, "a", 5)])
    filtered = rows.key_by("key").filter(new, state=set, name="once")
    outcome = case.gives(filtered, "t key v", (1, "a", 5), (3, "b", 5), (4, "a", 6))
    assert outcome.account("once").filtered == 2


def test_flat_map_with_state_gives_rows_when_it_has_enough(case: Case) -> None:
    def pairs(row: Any, held: list[int]) -> Iterator[dict[str, int]]:
        held.append(row.v)
        if len(held) == 2:
            yield {"first": held[0], "second": held[1]}
            held.clear()

    rows = case.timed_source(
        "t key v", [(4, "a", 4), (1, "a", 1), (3, "a", 3)], [(2, "a", 2), (9, "b", 9)], delay=10
    )
    both = rows.key_by("key").flat_map(pairs, schema={"first": "int64", "second": "int64"}, state=list)
    case.gives(both, "first second", (1, 2), (3, 4))


def test_without_time_state_sees_rows_as_they_come(case: Case) -> None:
    rows = case.untimed_source("key v", [("a", 3), ("a", 1)], [("a", 2)])
    grown = rows.key_by("key").map(step_up, schema=GROWN, state=dict)
    assert case.run(grown).bag("grown") == [-2, 1, 3]


@pytest.mark.parametrize(("t", "late"), [(9, 1), (10, 0), (11, 0)])
def test_a_row_behind_the_watermark_is_late_for_state(case: Case, t: int, late: int) -> None:
    rows = case.timed_source("t key v", [(10, "a", 1)], [(t, "a", 2)]).key_by("key")
    grown = rows.map(step_up, schema=GROWN, state=dict, name="grown")
    outcome = case.run(grown, grown.late)
    same_rows(outcome.tables[1], "t key v", *([(t, "a", 2)] if late else []))
    assert outcome.account("grown").late == late


def test_a_step_with_state_hands_its_rows_on_in_time_for_windows(case: Case) -> None:
    batches = [[(t, "a", t)] for t in (3, 1, 7, 12, 9, 25)]
    rows = case.timed_source("t key v", *batches, delay=5).key_by("key")
    windows = rows.map(step_up, schema=GROWN, state=dict).keyless().window(ps.tumbling(10), name="w")
    outcome = case.gives(
        windows.aggregate(s=ps.sum("grown")),
        "window_start window_end s",
        (0, 10, 9),
        (10, 20, 3),
        (20, 30, 13),
    )
    assert outcome.account("w").late == 0


@everywhere
def test_accumulate_gives_the_new_state_for_every_row(case: Case) -> None:
    words = case.untimed_source("key", [("a",), ("b",), ("a",)], [("a",), ("c",), ("b",)])
    counts = words.key_by("key").accumulate(lambda row, n: n + 1, 0, schema={"n": "int64"})
    case.gives(counts, "key n", ("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1))


@dataclass
class Range:
    low: int
    high: int


def test_accumulate_may_keep_a_dataclass(case: Case) -> None:
    def widen(row: Any, held: Range) -> Range:
        return Range(min(held.low, row.v), max(held.high, row.v))

    rows = case.timed_source("t key v", [(2, "a", 9), (1, "a", 5)], [(3, "b", 1), (4, "a", 7)], delay=10)
    ranges = rows.key_by("key").accumulate(widen, Range(100, -100))
    case.gives(ranges, "key low high", ("a", 5, 5), ("a", 5, 9), ("a", 5, 9), ("b", 1, 1))


def test_accumulate_goes_by_time(case: Case) -> None:
    rows = case.timed_source("t key v", [(3, "a", 3), (1, "a", 1)], [(2, "a", 2)], delay=10)
    digits = rows.key_by("key").accumulate(lambda row, n: n * 10 + row.v, 0, schema={"n": "int64"})
    assert case.run(digits).bag("n") == [1, 12, 123]


def test_a_late_row_does_not_reach_an_accumulator(case: Case) -> None:
    rows = case.timed_source("t key v", [(10, "a", 1)], [(9, "a", 2), (12, "a", 4)]).key_by("key")
    sums = rows.accumulate(lambda row, s: s + row.v, 0, schema={"s": "int64"}, name="sums")
    outcome = case.run(sums, sums.late)
    same_rows(outcome.tables[0], "key s", ("a", 1), ("a", 5))
    same_rows(outcome.tables[1], "t key v", (9, "a", 2))
    assert outcome.account("sums").late == 1


def test_a_mutable_first_state_is_not_shared_by_keys_or_runs(case: Case) -> None:
    def append(row: Any, held: dict[str, list[int]]) -> dict[str, list[int]]:
        held["vs"].append(row.v)
        return {"vs": list(held["vs"])}

    rows = case.untimed_source("key v", [("a", 1), ("b", 2), ("a", 3)]).key_by("key")
    lists = rows.accumulate(append, {"vs": []}, schema={"vs": list[int]})
    memory = ps.write.memory()
    lists.sink(memory)
    for _ in range(2):
        case.graph.run(case.engine)
        same_rows(memory.table(), "key vs", ("a", [1]), ("b", [2]), ("a", [1, 3]))


def test_null_and_nan_keys_have_a_state_of_their_own(case: Case) -> None:
    nan = float("nan")
    rows = case.untimed_source("k:float64", [(nan,), (None,), (0.0,)], [(nan,), (None,), (-0.0,)]).key_by("k")
    counts = rows.accumulate(lambda row, n: n + 1, 0, schema={"n": "int64"})
    case.gives(counts, "k n", (nan, 1), (nan, 2), (None, 1), (None, 2), (0.0, 1), (0.0, 2))


def test_degrees_do_not_change_what_state_sees(case: Case) -> None:
    rows = case.timed_source("t key v", [(t, "abc"[t % 3], t) for t in range(12)]).key_by("key")
    sums = rows.accumulate(lambda row, s: s + row.v, 0, schema={"s": "int64"}, parallelism=3)
    last = sums.window(ps.tumbling(100)).aggregate(last=ps.last("s"))
    case.gives(
        last, "key window_start window_end last", ("a", 0, 100, 18), ("b", 0, 100, 22), ("c", 0, 100, 26)
    )


def test_expressions_follow_state_as_they_follow_anything(case: Case) -> None:
    rows = case.untimed_source("key v", [("a", 3), ("a", 5)]).key_by("key")
    grown = rows.map(step_up, schema=GROWN, state=dict).filter(col("grown") < 3).select("v")
    case.gives(grown, "v", (5,))
