"""Rows that come by themselves wait for each other, and nobody can tell, but from the time that it takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connect.protocol import SourceBatch
from penstock.expr import col, to_plain
from penstock.operators import aggregates as spec
from penstock.operators.windows import KeyedWindows
from penstock.stages.rows.batch import Batch, RowBatch
from penstock.timing.windows import sliding, tumbling
from tests.support.sizes import set_sizes
from tests.support.window_cases import SKETCHES, cases, timed
from tests.support.windows import (
    Case,
    Driven,
    assert_same,
    by_reference,
    case,
    shown_by_reference,
    stage_batch,
)

LAW = settings(deadline=None, derandomize=True, max_examples=100)


def plain_batch(given: SourceBatch) -> Batch:
    """As `stage_batch`, of plain rows."""
    names = given.rows.schema.names
    values = zip(*(to_plain(column) for column in given.rows.columns), strict=True)
    rows = [dict(zip(names, each, strict=True)) for each in values]
    made = stage_batch(given)
    times, order = tuple(made.times.tolist()), tuple(tuple(each.tolist()) for each in made.order)
    return RowBatch(rows, given.rows.schema, times, order)


class PlainlyDriven(Driven):
    """A stage that gets plain rows."""

    def batch_of(self, given: SourceBatch) -> Batch:
        return plain_batch(given)

    @property
    def n_waiting(self) -> int:
        return self.stage._buffer.n_rows


def one_by_one(given: Case) -> Case:
    """The same rows, each a batch of its own."""
    parts = [
        replace(
            each, rows=each.rows.slice(place, 1), seq=None if each.seq is None else each.seq.slice(place, 1)
        )
        for each in given.batches
        for place in range(each.rows.num_rows)
    ]
    given.batches = parts
    return given


@settings(LAW, max_examples=15)
@given(cases(windows=timed, least=10).map(one_by_one))
def test_a_few_streams_row_by_row_are_those_of_the_reference_engine(case: Case) -> None:
    driven = PlainlyDriven(case)
    for each in case.batches:
        driven.push(each)
    assert_same(driven.end(), by_reference(case), approximate=tuple(SKETCHES))


@pytest.mark.slow
@LAW
@given(
    cases(least=10).map(one_by_one),
    st.sets(st.integers(0, 30)),
    st.lists(st.sampled_from([1, 0, 3]), min_size=30, max_size=30),
    st.booleans(),
)
def test_rows_that_wait_are_saved_shown_and_handed_over_as_if_they_did_not(
    given: Case, at: set[int], ticks: list[int], early: bool
) -> None:
    if early:
        given.op = KeyedWindows(given.op.windows, aggregates=given.op.aggregates, early="2 us")
    driven, saved = PlainlyDriven(given), dict[int, bytes]()
    for number, each in enumerate(given.batches):
        driven.clock.advance(ticks[number])
        driven.push(each)
        if number in at and number % 2:
            saved |= driven.stage.snapshot()
            fired_at, driven.stage = driven.stage.fired_at, driven.new_stage()
            driven.stage.restore(saved)
            driven.stage.fired_at = fired_at
        elif number in at:
            saved |= driven.stage.snapshot()
            driven.stage.replace_buckets(driven.stage.export_buckets(), removed=(), added=())
    assert_same(driven.end(), shown_by_reference(given, ticks), approximate=tuple(SKETCHES))


def driven(op: KeyedWindows, *rows: tuple[Any, ...], delay: int = 0) -> PlainlyDriven:
    found = PlainlyDriven(case(op, [[row] for row in rows], delay=delay))
    for each in found.case.batches:
        found.push(each)
    return found


def test_rows_wait_until_a_window_leaves_and_no_longer() -> None:
    op = KeyedWindows(windows=sliding(20, 10), aggregates={"sum": spec.sum("v")})
    run = driven(op, ("a", 1, 1), ("b", 2, 2), ("a", 9, 3))
    # Where windows stand is known from the first watermark on, which comes behind the first row.
    assert (run.n_waiting, run.out["out"]) == (2, [])
    run.push(case(op, [[("a", 10, 4)]]).batches[0])
    assert run.n_waiting == 0
    sums = [row["sum"] for each in run.out["out"] for row in each.rows.to_pylist()]
    assert sums == [4, 2]


def test_a_late_row_does_not_wait() -> None:
    run = driven(
        KeyedWindows(windows=tumbling(10), aggregates={"sum": spec.sum("v")}), ("a", 25, 1), ("a", 5, 2)
    )
    assert [each.rows.to_pylist() for each in run.out["late"]] == [[{"k": "a", "t": 5, "v": 2}]]


def test_a_row_on_which_an_expression_fails_does_not_wait() -> None:
    op = KeyedWindows(
        windows=tumbling(10), aggregates={"sum": spec.sum(col("v") * 2**62)}, on_error="dead_letter"
    )
    run = driven(op, ("a", 1, 1), ("a", 2, 100))
    assert [each.num_rows for each in run.out["errors"]] == [1]
    assert run.accounts.errors == 1


def test_rows_that_wait_are_counted_as_memory_and_are_not_many(monkeypatch: pytest.MonkeyPatch) -> None:
    set_sizes(monkeypatch, buffered_rows=5)
    op = KeyedWindows(windows=tumbling(100), aggregates={"sum": spec.sum("v")})
    run = driven(op, ("a", 1, 1))
    before = run.stage.nbytes
    run.push(case(op, [[("a", 2, 1)]]).batches[0])
    assert (run.n_waiting, run.stage.nbytes > before + 100) == (1, True)
    for number in range(3, 12):
        run.push(case(op, [[("a", number, 1)]]).batches[0])
        assert run.n_waiting <= 5
    assert [row["sum"] for row in run.end().tables["out"].to_pylist()] == [11]


def test_a_users_lift_sees_each_row_once_and_at_once() -> None:
    seen: list[int] = []

    def lift(row: Any) -> int:
        seen.append(row["v"])
        return int(row["v"])

    fold = spec.fold(lift, max, 0, columns="v", type="int64")
    run = driven(KeyedWindows(windows=tumbling(10), aggregates={"most": fold}), ("a", 1, 7), ("a", 2, 8))
    assert run.n_waiting == 0
    assert seen == [7, 8]
