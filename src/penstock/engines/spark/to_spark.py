"""From a pipe back to a DataFrame: `pipe.to_spark()`.

A pipe of a graph that ends is run now, and the DataFrame has its rows. A pipe of a stream that no step with
state is behind becomes a streaming DataFrame: the steps run wherever Spark then runs it, as a part of its
plan. There is nobody then to count rows or to release windows, so everything else on a stream is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import WallClock
from penstock.connect.protocol import SourceBatch
from penstock.connect.readers.rows import table
from penstock.connect.readers.spark import SparkStreamReader
from penstock.engines.frontiers import WatermarkAdvance
from penstock.engines.protocol import RunOptions
from penstock.engines.sources import load_tables
from penstock.engines.spark.driver.run import start_run
from penstock.engines.spark.fragment_plan import FragmentPlan, RoundPlan, plan_fragment
from penstock.engines.spark.fragments import split_into_fragments
from penstock.engines.spark.session.session import RunSession
from penstock.engines.spark.types import from_spark, spark_schema, to_spark
from penstock.engines.spark.worker.operators import FragmentTask
from penstock.engines.wire import unpack_batch
from penstock.errors import NotSupported
from penstock.events import ignore_event
from penstock.operators.ends import Source
from penstock.operators.op import OUT
from penstock.plan.plan import Plan, Ref, Step
from penstock.stages.rows.batch import Batch
from penstock.stages.source import SourceStage
from penstock.stages.stage import Site
from penstock.timing.watermark import BEFORE_ALL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INSTEAD = 'write a table and read that: pipe.sink(ps.write.parquet("out/")), then spark.read.parquet("out/")'


def build_frame(plan: Plan, feeds: Sequence[Ref], opened: RunSession, user: SparkSession) -> DataFrame:
    """The rows of a pipe as a DataFrame of the user's session."""
    streams = [step for step in plan.sources if not _reader(step).bounded or _is_stream(step)]
    if not streams:
        run = start_run(plan, opened, clock=WallClock(), events=ignore_event, options=RunOptions())
        collected = run.wait().collected
        return user.createDataFrame(to_spark(pa.concat_tables([collected[ref] for ref in feeds])))
    _refuse_what_needs_a_run(plan, streams, feeds)
    source, ref = streams[0], feeds[0]
    schema = plan[ref.step].outputs[ref.port].schema
    work = _work(load_tables(plan), source.name, ref)
    frame: DataFrame = _reader(source).frame
    return frame.mapInArrow(work, spark_schema(schema))


def _reader(step: Step) -> Any:
    assert isinstance(step.op, Source), "only sources read"
    return step.op.reader


def _is_stream(step: Step) -> bool:
    return isinstance(_reader(step), SparkStreamReader)


def _refuse_what_needs_a_run(plan: Plan, streams: Sequence[Step], feeds: Sequence[Ref]) -> None:
    keyed = [
        step for fragment in split_into_fragments(plan).fragments if fragment.keyed for step in fragment.steps
    ]
    stays = next((step for step in streams if not _is_stream(step)), None)
    if stays is not None:
        why, step = f'source "{stays.name}" does not end, and Spark does not read it', stays
    elif keyed:
        why, step = f'step "{keyed[0].name}" keeps state, and only a run releases it', keyed[0]
    elif len(plan.sources) > 1 or len(feeds) > 1:
        why, step = "rows of several sources flow together, and only a run brings them in order", streams[0]
    else:
        return
    raise NotSupported(
        "a stream cannot be a DataFrame here", step=step.name, where=step.where, detail=why, hint=_INSTEAD
    )


def _work(plan: Plan, source: str, ref: Ref) -> Any:
    fragments = split_into_fragments(plan)
    fragment = (
        plan_fragment(plan, fragments, 0, run="to_spark", n_partitions=1) if fragments.fragments else None
    )
    step, schema = plan[source], plan[ref.step].outputs[ref.port].schema
    assert isinstance(step.op, Source), "a plan begins with a source"
    # The DataFrame itself cannot go to where its rows are; all that matters of the reader is its columns.
    step = replace(step, op=replace(step.op, reader=table(step.op.reader.schema.empty_table())))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_batches(fragment, step, ref, schema, batches)

    return work


def run_batches(
    fragment: FragmentPlan | None,
    source: Step,
    ref: Ref,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The rows of a stream through its steps, batch by batch; a step that fails on a row fails the query."""
    assert isinstance(source.op, Source), "a plan begins with a source"
    read, clock = source.op.reader.schema, WallClock()
    stage = SourceStage(source.op, Site(source.name, source.where, Accounts(), clock))
    work = None if fragment is None else FragmentTask(fragment, 0)
    advances = {
        step.name: WatermarkAdvance(BEFORE_ALL, BEFORE_ALL, over=False)
        for step in (fragment.fragment.steps if fragment else ())
    }
    for given in batches:
        round_ = RoundPlan(0, clock.now(), advances)
        for port, batch in stage.on_read(SourceBatch(from_spark(given, read))):
            if ref == Ref(source.name, port):
                yield to_spark(batch.rows)
            elif port == OUT and work is not None:
                yield from _left(work, fragment, batch, round_, Ref(source.name, port), ref, schema)


def _left(
    work: FragmentTask,
    fragment: FragmentPlan | None,
    batch: Batch,
    round_: RoundPlan,
    at: Ref,
    ref: Ref,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    assert fragment is not None, "steps have a fragment"
    wanted = {edge.number for edge in fragment.edges.get(ref, ()) if edge.step is None}
    for sent in work.given(at, batch, round_):
        if sent.edge in wanted and sent.body is not None:
            yield to_spark(unpack_batch(sent.body, schema).rows)
