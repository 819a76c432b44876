"""From a pipe back to a DataFrame: `pipe.to_spark()`.

A pipe of a graph that ends is run now, and the DataFrame has its rows. A pipe of a stream with only stateless
steps before it becomes a streaming DataFrame: the steps run wherever Spark then runs it, as a part of its
plan. Nothing counts rows or releases windows there, so everything else on a stream is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import WallClock
from penstock.connect.protocol import SourceBatch
from penstock.connect.readers.program import table
from penstock.connect.readers.spark import SparkStreamReader
from penstock.engines.frontiers import WatermarkAdvance
from penstock.engines.protocol import RunOptions
from penstock.engines.spark.driver.jobs import ArrowFunction
from penstock.engines.spark.driver.run import SparkRun, add_progress_line, build_loop
from penstock.engines.spark.fragment_task import FragmentTask
from penstock.engines.spark.fragments import RoundPlan, plan_fragment, split_into_fragments
from penstock.engines.spark.session.session import RunSession
from penstock.engines.spark.types import from_spark, spark_schema, to_spark
from penstock.engines.spark.wire import Kind
from penstock.engines.wire import unpack_batch
from penstock.errors import NotSupported
from penstock.events import ignore_event
from penstock.operators.ends import Source
from penstock.operators.op import OUT
from penstock.plan.plan import Plan, Ref, Step, load_tables
from penstock.stages.source import SourceStage
from penstock.stages.stage import StageContext
from penstock.timing.windows import BEFORE_ALL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INSTEAD = 'write a table and read that: pipe.sink(ps.write.parquet("out/")), then spark.read.parquet("out/")'


def build_frame(plan: Plan, feeds: Sequence[Ref], session: RunSession, user: SparkSession) -> DataFrame:
    """Return the rows of a pipe as a DataFrame of the user's session."""
    streams = [
        step
        for step in plan.sources
        if isinstance(_reader(step), SparkStreamReader) or not _reader(step).bounded
    ]
    if not streams:
        events, options = add_progress_line(ignore_event), RunOptions()
        loop = build_loop(plan, session, clock=WallClock(), events=events, options=options)
        collected = SparkRun(loop, session).wait().collected
        return user.createDataFrame(to_spark(pa.concat_tables([collected[ref] for ref in feeds])))
    _refuse_what_needs_a_run(plan, streams, feeds)
    schema = plan[feeds[0].step].outputs[feeds[0].port].schema
    frame: DataFrame = _reader(streams[0]).frame
    run_steps = _stream_function(load_tables(plan), streams[0], feeds[0], schema)
    return frame.mapInArrow(run_steps, spark_schema(schema))


def _reader(step: Step) -> Any:
    return step.as_source.reader


def _refuse_what_needs_a_run(plan: Plan, streams: Sequence[Step], feeds: Sequence[Ref]) -> None:
    fragments = split_into_fragments(plan).fragments
    keyed = [step for fragment in fragments if fragment.keyed for step in fragment.steps]
    endless = next((step for step in streams if not isinstance(_reader(step), SparkStreamReader)), None)
    if endless is not None:
        why, step = f'source "{endless.name}" does not end, and Spark does not read it', endless
    elif keyed:
        why, step = f'step "{keyed[0].name}" keeps state, and only a run releases it', keyed[0]
    elif len(plan.sources) > 1 or len(feeds) > 1:
        why, step = "rows of several sources flow together, and only a run brings them in order", streams[0]
    else:
        return
    raise NotSupported(
        "a stream cannot be a DataFrame here", step=step.name, where=step.where, detail=why, hint=_INSTEAD
    )


def _stream_function(plan: Plan, source: Step, ref: Ref, schema: pa.Schema) -> ArrowFunction:
    """Return what runs the stateless steps between a stream and a port, wherever Spark has its rows.

    A step that fails on a row fails the query.
    """
    fragments, op = split_into_fragments(plan), source.op
    fragment, names, collected = None, list[str](), set[int]()
    if fragments.fragments:
        fragment = plan_fragment(plan, fragments, 0, run="to_spark")
        names = [step.name for step in fragment.fragment.steps]
        collected = {edge.number for edge in fragment.edges_out.get(ref, ()) if edge.step is None}
    assert isinstance(op, Source), "a plan begins with a source"
    # Why: the DataFrame cannot go to where its rows are; all that matters of the reader is its columns.
    op, rows_in = replace(op, reader=table(op.reader.schema.empty_table())), Ref(source.name, OUT)
    where = source.where

    def run_steps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clock = WallClock()
        stage = SourceStage(op, StageContext(rows_in.step, where, Accounts(), clock))
        task = None if fragment is None else FragmentTask(fragment, 0)
        advances = dict.fromkeys(names, WatermarkAdvance(BEFORE_ALL, BEFORE_ALL, over=False))
        for columns in batches:
            round_ = RoundPlan(0, clock.now(), advances)
            for port, batch in stage.on_read(SourceBatch(from_spark(columns, op.reader.schema))):
                if ref == Ref(rows_in.step, port):
                    yield to_spark(batch.rows)
                elif port == OUT and task is not None:
                    for row in task.run_rows(rows_in, batch, round_):
                        if row.kind is Kind.BATCH and row.edge in collected and row.body is not None:
                            yield to_spark(unpack_batch(row.body, schema).rows)

    return run_steps
