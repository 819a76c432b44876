"""How runs end: drained, kept open, stopped after some rounds; and results before the end."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.testing import Harness
from tests.conformance.case import Case, same_rows

FEATURE = "Ends of runs and early results"
WINDOW = "window_start window_end"


def test_a_bounded_run_closes_every_window_at_its_end(case: Case) -> None:
    counts = (
        case.timed_source("t", [(1,)], [(100,)], delay=1000).window(ps.tumbling(10)).aggregate(n=ps.count())
    )
    outcome = case.gives(counts, f"{WINDOW} n", (0, 10, 1), (100, 110, 1))
    assert (outcome.result.outcome, outcome.result.batches) == ("drained", 2)


def test_without_draining_open_windows_stay_open(case: Case) -> None:
    counts = case.timed_source("t", [(1,)], [(25,)]).window(ps.tumbling(10)).aggregate(n=ps.count())
    outcome = case.run(counts, balanced=False, drain=False)
    same_rows(outcome.tables[0], f"{WINDOW} n", (0, 10, 1))


def test_a_run_may_be_asked_to_stop_after_so_many_rounds(case: Case) -> None:
    counts = case.timed_source("t", [(1,)], [(12,)], [(25,)]).window(ps.tumbling(10)).aggregate(n=ps.count())
    outcome = case.run(counts, balanced=False, until=2)
    same_rows(outcome.tables[0], f"{WINDOW} n", (0, 10, 1))
    assert (outcome.result.outcome, outcome.result.batches) == ("stopped", 2)


def test_a_round_takes_one_batch_of_each_source(case: Case) -> None:
    a = case.untimed_source("v", [(1,)], [(2,)], [(3,)], name="a")
    b = case.untimed_source("v", [(10,)], [(20,)], name="b")
    outcome = case.run(a.merge(b), balanced=False, until=2)
    same_rows(outcome.tables[0], "v", (1,), (2,), (10,), (20,))


def test_a_graph_may_run_any_number_of_times_with_the_same_answer(case: Case) -> None:
    memory = ps.write.memory()
    rows = case.timed_source("t key v", [(1, "a", 1)], [(12, "a", 2)], [(3, "a", 4)]).key_by("key")
    rows.window(ps.tumbling(10)).aggregate(s=ps.sum("v")).sink(memory)
    for _ in range(3):
        case.graph.run(case.engine, clock=case.clock)
        same_rows(memory.table(), f"key {WINDOW} s", ("a", 0, 10, 1), ("a", 10, 20, 2))


def test_collect_gives_rows_in_hand_and_writes_no_sink(case: Case) -> None:
    rows = case.untimed_source("v", [(1,), (2,)])
    memory = ps.write.memory()
    rows.sink(memory)
    same_rows(rows.with_columns(v=ps.col("v") * 2).collect(case.engine), "v", (2,), (4,))
    with pytest.raises(ps.ConnectorError):
        memory.table()


def test_several_sinks_see_the_same_rows(case: Case) -> None:
    rows = case.untimed_source("v", [(1,)], [(2,)])
    outcome = case.run(rows, rows, rows)
    assert [outcome.bag("v", i) for i in range(3)] == [[1, 2]] * 3


def test_a_graph_of_empty_sources_runs_and_gives_nothing(case: Case) -> None:
    a, b = (
        case.timed_source("t key v", name="a"),
        case.timed_source("u:int64 k:string w:int64", [], [], name="b"),
    )
    joined = a.join(b, on=ps.equal("key", "k"), within=5, how="full")
    summed = joined.key_by("key").window(ps.session(5)).aggregate(s=ps.sum("v"))
    case.gives(summed, f"key {WINDOW} s")


def early_sums(case: Case) -> Harness:
    """Sums in windows of ten seconds, unfinished ones every 200 ms of the clock."""
    rows = case.timed_source("t key v", delay=100).key_by("key")
    sums = rows.window(ps.tumbling(10), early="200 ms").aggregate(s=ps.sum("v"))
    return Harness(sums, engine=case.engine, clock=case.clock)


def push(harness: Harness, *rows: tuple[int, str, int]) -> list[dict[str, Any]]:
    """Push a batch, and take what leaves."""
    harness.push([{"t": t, "key": key, "v": v} for t, key, v in rows])
    return harness.take()


def test_early_results_leave_when_the_clock_has_moved_on(case: Case) -> None:
    harness = early_sums(case)
    assert push(harness, (1, "a", 1)) == []
    case.clock.advance(199_999)
    assert push(harness, (2, "a", 2)) == []
    case.clock.advance(1)
    same_rows(push(harness, (3, "a", 4)), f"key {WINDOW} s final", ("a", 0, 10, 7, False))


def test_only_windows_that_changed_are_given_early(case: Case) -> None:
    harness = early_sums(case)
    case.clock.advance(200_000)
    same_rows(
        push(harness, (1, "a", 1), (12, "b", 2)),
        f"key {WINDOW} s final",
        ("a", 0, 10, 1, False),
        ("b", 10, 20, 2, False),
    )
    case.clock.advance(200_000)
    same_rows(push(harness, (13, "b", 4)), f"key {WINDOW} s final", ("b", 10, 20, 6, False))


def test_every_window_ends_with_one_final_result(case: Case) -> None:
    harness = early_sums(case)
    case.clock.advance(200_000)
    push(harness, (1, "a", 1))
    harness.push([{"t": 2, "key": "a", "v": 2}])
    harness.end()
    same_rows(harness.take(), f"key {WINDOW} s final", ("a", 0, 10, 3, True))


def test_without_the_clock_moving_all_results_are_final(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 1)], [(12, 2)])
    sums = rows.window(ps.tumbling(10), early="200 ms").aggregate(s=ps.sum("v"))
    case.gives(sums, f"{WINDOW} s final", (0, 10, 1, True), (10, 20, 2, True))
