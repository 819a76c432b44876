"""What becomes of a chain's rows in Python workers: they are carried on through leg 0 as they come.

The frames of `native_frames.py` arrive here as Arrow batches; what leaves are wire rows like those of every
leg, and how many rows had which fate.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engines import failures
from penstock.engines.spark.leg_plan import LegPlan, RoundPlan
from penstock.engines.spark.tasks import first_leg, leave_warm, on_wire
from penstock.engines.spark.types import from_spark
from penstock.engines.spark.wire import FAILED, FATES, told
from penstock.frozen import dataclass
from penstock.plan.step import Ref
from penstock.stages.batch import Batch


@dataclass(frozen=True, slots=True)
class RowsTask:
    """Rows of a chain, as frames have them: the columns by place, time, perhaps seq and fate.

    ref      whose rows they are
    rank     of the source among several; None in a graph with one
    counted  whether these are all rows that the chain gives
    """

    source: str
    ref: Ref
    schema: pa.Schema
    rank: int | None
    numbered: bool
    fated: bool
    counted: bool


def carry_rows(
    plan: LegPlan, task: RowsTask, round_: RoundPlan, part: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Carry a chain's rows on through leg 0, a batch at a time; failures are told as data."""
    work = first_leg(plan, part)
    for given in batches:
        batch, n_failed = _rows(given, task)
        fates = {"0": batch.num_rows if task.counted else 0, "-1": n_failed}
        sent = [told(FATES, round_.number, part, {"source": task.source, "fates": fates})]
        if n_failed == 0:
            try:
                sent += work.given(task.ref, batch, round_)
            except Exception as failure:
                sent = [told(FAILED, round_.number, part, failures.as_data(failure, work.at))]
        yield from on_wire(sent)
    leave_warm(plan, work, part, "")


def _rows(given: pa.RecordBatch, task: RowsTask) -> tuple[Batch, int]:
    n_failed = 0
    if task.fated:
        fates = given.column(given.num_columns - 1)
        n_failed = int(pc.sum(pc.equal(fates, -1)).as_py() or 0)
    n = len(task.schema)
    rows = from_spark(given.select(list(range(n))), task.schema)
    times = np.asarray(given.column(n).to_numpy(zero_copy_only=False), np.int64)
    order = () if task.rank is None else (np.full(len(times), task.rank, np.int64),)
    if task.numbered:
        order = (*order, np.asarray(given.column(n + 1).to_numpy(zero_copy_only=False), np.int64))
    return Batch(rows, times, order), n_failed
