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

LAW = settings(deadline=None, derandomize=True, max_examples=60)


def plain_batch(source: SourceBatch) -> Batch:
    """As `stage_batch`, of plain rows."""
    names = source.rows.schema.names
    values = zip(*(to_plain(column) for column in source.rows.columns), strict=True)
    rows = [dict(zip(names, row, strict=True)) for row in values]
    batch = stage_batch(source)
    times, order = tuple(batch.times.tolist()), tuple(tuple(column.tolist()) for column in batch.order)
    return RowBatch(rows, source.rows.schema, times, order)


class PlainlyDriven(Driven):
    """A stage that gets plain rows."""

    def batch_of(self, source: SourceBatch) -> Batch:
        return plain_batch(source)

    @property
    def n_waiting(self) -> int:
        return self.stage._buffer.n_rows


def one_by_one(case: Case) -> Case:
    """The same rows, each a batch of its own."""
    parts = [
        replace(
            batch,
            rows=batch.rows.slice(place, 1),
            seq=None if batch.seq is None else batch.seq.slice(place, 1),
        )
        for batch in case.batches
        for place in range(batch.rows.num_rows)
    ]
    case.batches = parts
    return case


@settings(LAW, max_examples=15)
@given(cases(windows=timed, least=10).map(one_by_one))
def test_a_few_streams_row_by_row_are_those_of_the_reference_engine(case: Case) -> None:
    driven = PlainlyDriven(case)
    for batch in case.batches:
        driven.push(batch)
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
    case: Case, at: set[int], ticks: list[int], early: bool
) -> None:
    if early:
        case.op = KeyedWindows(case.op.windows, aggregates=case.op.aggregates, early="2 us")
    driven, saved = PlainlyDriven(case), dict[int, bytes]()
    for number, batch in enumerate(case.batches):
        driven.clock.advance(ticks[number])
        driven.push(batch)
        if number in at and number % 2:
            saved |= driven.stage.snapshot()
            fired_at, driven.stage = driven.stage.fired_at, driven.new_stage()
            driven.stage.restore(saved)
            driven.stage.fired_at = fired_at
        elif number in at:
            saved |= driven.stage.snapshot()
            driven.stage.replace_buckets(driven.stage.export_buckets(), removed=(), added=())
    assert_same(driven.end(), shown_by_reference(case, ticks), approximate=tuple(SKETCHES))


def driven(op: KeyedWindows, *rows: tuple[Any, ...], delay: int = 0) -> PlainlyDriven:
    driven = PlainlyDriven(case(op, [[row] for row in rows], delay=delay))
    for batch in driven.case.batches:
        driven.push(batch)
    return driven


def test_rows_wait_until_a_window_leaves_and_no_longer() -> None:
    op = KeyedWindows(windows=sliding(20, 10), aggregates={"sum": spec.sum("v")})
    run = driven(op, ("a", 1, 1), ("b", 2, 2), ("a", 9, 3))
    # Where windows stand is known from the first watermark on, which comes behind the first row.
    assert (run.n_waiting, run.out["out"]) == (2, [])
    run.push(case(op, [[("a", 10, 4)]]).batches[0])
    assert run.n_waiting == 0
    sums = [row["sum"] for batch in run.out["out"] for row in batch.rows.to_pylist()]
    assert sums == [4, 2]


def test_a_late_row_does_not_wait() -> None:
    run = driven(
        KeyedWindows(windows=tumbling(10), aggregates={"sum": spec.sum("v")}), ("a", 25, 1), ("a", 5, 2)
    )
    assert [batch.rows.to_pylist() for batch in run.out["late"]] == [[{"k": "a", "t": 5, "v": 2}]]


def test_a_row_on_which_an_expression_fails_does_not_wait() -> None:
    op = KeyedWindows(
        windows=tumbling(10), aggregates={"sum": spec.sum(col("v") * 2**62)}, on_error="dead_letter"
    )
    run = driven(op, ("a", 1, 1), ("a", 2, 100))
    assert [batch.num_rows for batch in run.out["errors"]] == [1]
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
