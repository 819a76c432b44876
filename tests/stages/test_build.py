"""Every step has its stage, by one call; and what has none is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.errors import NotSupported, Where
from penstock.operators import aggregates as spec
from penstock.operators.op import OUT
from penstock.operators.process import Process, ProcessOperator
from penstock.operators.rows import Relay
from penstock.operators.windows import KeyedWindows
from penstock.stages.build import build_stage
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.order import NO_ORDER, append_order, merge_batches
from penstock.stages.stage import StageContext
from penstock.stages.window.stage import WindowStage
from penstock.timing.windows import tumbling
from tests.support.stage_steps import WIDE, Driven, case


class Own(ProcessOperator):
    outputs = {OUT: {"n": "int64"}}  # noqa: RUF012  # as the docs show it

    async def process(self, ctx: Any) -> None:
        """Give nothing."""


def test_windows_have_their_stage() -> None:
    tried = case(KeyedWindows(windows=tumbling(10), aggregates={"n": spec.count()}), key=("k",))
    assert isinstance(Driven(tried).new_stage(), WindowStage)


def test_a_step_without_a_stage_is_refused_by_name() -> None:
    tried = case(Process(Own()))
    with pytest.raises(NotSupported) as caught:
        build_stage(
            tried.step.op, tried.step.up, StageContext("mine", Where("flow.py", 3), Accounts(), ManualClock())
        )
    assert caught.value.fact == "there is no stage for Process"
    assert (caught.value.step, str(caught.value.where)) == ("mine", "flow.py:3")
    assert caught.value.hint == 'run it with engine="reference"'


def test_a_stage_without_state_has_nothing_to_save() -> None:
    stage = Driven(case(Relay())).new_stage()
    stage.restore({})
    assert stage.snapshot() == {}
    assert list(stage.drain()) == []


def rows(*order: list[int]) -> Batch:
    n = len(order[0]) if order else 1
    whole = pa.RecordBatch.from_pylist([{"k": str(i), "t": i} for i in range(n)], schema=WIDE)
    return Batch(whole, np.zeros(n, np.int64), tuple(np.array(column) for column in order))


def test_streams_with_places_of_different_lengths_can_meet() -> None:
    met = merge_batches([rows([1, 1], [5, 6]), rows([2]), rows()], WIDE)
    assert [column.tolist() for column in met.order] == [
        [1, 1, 2, NO_ORDER],
        [5, 6, NO_ORDER, NO_ORDER],
    ]


def test_an_index_goes_behind_the_last_number_of_each_place() -> None:
    met = merge_batches([rows([1], [5]), rows([2])], WIDE)
    grown = append_order(met.order, np.array([7, 8]))
    assert [column.tolist() for column in grown] == [[1, 2], [5, 8], [7, NO_ORDER]]
    again = append_order(grown, np.array([0, 1]))
    assert [column.tolist() for column in again] == [[1, 2], [5, 8], [7, 1], [0, NO_ORDER]]
