"""Windows behind an exchange give one answer, whether they are sent rows, parts, or now this and now that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.engines.spark.fragment_task import AdaptiveFinalStage, AdaptivePartials
from penstock.operators.op import LATE, OUT
from penstock.plan.plan import Step
from penstock.stages.patterns.pattern import PARTIALS
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import StageContext
from penstock.stages.window.stage import WindowStage
from penstock.testing.assertions import difference

SCHEMA = pa.schema([("t", pa.int64()), ("key", pa.int64()), ("v", pa.int64())])


def step() -> Step:
    graph = ps.PipeGraph("both")
    source = graph.source(ps.read.table(SCHEMA.empty_table()), time="t", time_unit="us", delay="0 s")
    windows = source.key_by("key").window(ps.sliding(10, every=4), lateness=3, name="w")
    windows.aggregate(n=ps.count(), v=ps.sum("v"), most=ps.max("v"))
    return next(step for step in graph.steps.values() if step.name == "w")


def site(accounts: Accounts) -> StageContext:
    return StageContext("w", None, accounts, ManualClock())


def rows(times: list[int]) -> Batch:
    stamps = np.array(times, np.int64)
    columns = [pa.array(stamps), pa.array(stamps % 3), pa.array(stamps * 7 % 100)]
    return Batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), stamps, (np.arange(len(stamps)),))


def table(batches: list[Batch], schema: Any) -> pa.Table:
    return pa.Table.from_batches([batch.rows for batch in batches], schema=schema)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.integers(-50, 50), min_size=1, max_size=20)),
        min_size=1,
        max_size=6,
    )
)
@settings(deadline=None)
def test_rows_and_parts_give_the_results_late_rows_and_accounts_of_rows_alone(
    rounds: list[tuple[bool, list[int]]],
) -> None:
    windows, counted, wanted = step(), [Accounts(), Accounts()], Accounts()
    before = AdaptivePartials(windows, site(counted[0]))
    behind, alone = (
        AdaptiveFinalStage(windows.op, windows.up, site(counted[1])),  # type: ignore[arg-type]  # it is of windows
        WindowStage(windows.op, windows.up, site(wanted)),  # type: ignore[arg-type]  # the same
    )
    got: dict[str, list[Batch]] = {OUT: [], LATE: []}
    expected: dict[str, list[Batch]] = {OUT: [], LATE: []}
    watermark = float("-inf")
    for in_parts, times in rounds:
        batch, after = rows(times), max(watermark, max(times) - 5)
        result: list[Any] = []
        if in_parts:
            before.worthwhile = True
            before.pending.append(batch)
            output, _ = before.aggregate(watermark)
            for port, part in output:
                if port == PARTIALS:
                    behind.on_partials(part)
                else:
                    result.append((port, part))
        else:
            result += behind.on_batch(batch, watermark)
        for port, part in [*result, *behind.on_watermark(after)]:
            got[port].append(part)
        for port, part in [*alone.on_batch(batch, watermark), *alone.on_watermark(after)]:
            expected[port].append(part)
        watermark = after
    got[OUT] += [batch for _, batch in behind.drain()]
    expected[OUT] += [batch for _, batch in alone.drain()]
    for port in (OUT, LATE):
        schema = windows.outputs[port].schema
        assert difference(table(got[port], schema), table(expected[port], schema)) is None
    assert counted[0].passed + counted[1].passed == wanted.passed
    assert counted[0].late + counted[1].late == wanted.late
    assert counted[0].rows_in + counted[1].rows_in == wanted.rows_in


@pytest.mark.parametrize(("copies", "worth"), [(4, True), (1, False)])
def test_parts_are_made_as_long_as_they_are_fewer_than_rows(copies: int, worth: bool) -> None:
    windows, accounts = step(), Accounts()
    before = AdaptivePartials(windows, site(accounts))
    before.pending.append(rows(list(range(100)) * copies))
    output, left = before.aggregate(float("-inf"))
    assert [port for port, _ in output] == [PARTIALS]
    assert left == []
    assert before.worthwhile is worth
    before.pending.append(rows([5]))
    output, left = before.aggregate(float("-inf"))
    assert (len(output) == 1, len(left) == 1) == (worth, not worth)


def test_a_round_that_is_done_again_is_judged_by_its_own_watermark() -> None:
    windows, accounts = step(), Accounts()
    before = AdaptivePartials(windows, site(accounts))
    for watermark in (1_000, 0):
        before.worthwhile = True
        before.pending.append(rows([20]))
        output, _ = before.aggregate(watermark)
        assert [port for port, _ in output] == ([LATE] if watermark == 1_000 else [PARTIALS])
