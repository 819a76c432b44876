"""From a pipe back to a DataFrame: `pipe.to_spark()`.

A pipe of a graph that ends is run now, and the DataFrame has its rows. A pipe of a stream with only stateless
steps before it becomes a streaming DataFrame: the steps run wherever Spark then runs it, as a part of its
plan. Nothing counts rows or releases windows there, so everything else on a stream is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import WallClock
from penstock.connect.protocol import SourceBatch
from penstock.connect.readers.rows import table
from penstock.connect.readers.spark import SparkStreamReader
from penstock.engines.ends import load_tables
from penstock.engines.frontiers import WatermarkAdvance
from penstock.engines.protocol import RunOptions
from penstock.engines.spark.driver.run import start_run
from penstock.engines.spark.fragments import FragmentPlan, RoundPlan, plan_fragment, split_into_fragments
from penstock.engines.spark.session.session import RunSession
from penstock.engines.spark.types import from_spark, spark_schema, to_spark
from penstock.engines.spark.wire import Kind, WireRow
from penstock.engines.spark.worker.operators import FragmentTask
from penstock.engines.wire import unpack_batch
from penstock.errors import NotSupported
from penstock.events import ignore_event
from penstock.frozen import dataclass
from penstock.operators.ends import Source
from penstock.operators.op import OUT
from penstock.plan.plan import Plan, Ref, Step
from penstock.stages.source import SourceStage
from penstock.stages.stage import StageContext
from penstock.timing.windows import BEFORE_ALL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INSTEAD = 'write a table and read that: pipe.sink(ps.write.parquet("out/")), then spark.read.parquet("out/")'


def build_frame(plan: Plan, feeds: Sequence[Ref], session: RunSession, user: SparkSession) -> DataFrame:
    """Returns the rows of a pipe as a DataFrame of the user's session."""
    streams = [step for step in plan.sources if not _reader(step).bounded or _is_stream(step)]
    if not streams:
        run = start_run(plan, session, clock=WallClock(), events=ignore_event, options=RunOptions())
        collected = run.wait().collected
        return user.createDataFrame(to_spark(pa.concat_tables([collected[ref] for ref in feeds])))
    _refuse_what_needs_a_run(plan, streams, feeds)
    stream = StreamSteps.of(load_tables(plan), streams[0].name, feeds[0])
    frame: DataFrame = _reader(streams[0]).frame

    def run_steps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stream.run(batches)

    return frame.mapInArrow(run_steps, spark_schema(stream.schema))


def _reader(step: Step) -> Any:
    assert isinstance(step.op, Source), "only sources read"
    return step.op.reader


def _is_stream(step: Step) -> bool:
    return isinstance(_reader(step), SparkStreamReader)


def _refuse_what_needs_a_run(plan: Plan, streams: Sequence[Step], feeds: Sequence[Ref]) -> None:
    fragments = split_into_fragments(plan).fragments
    keyed = [step for fragment in fragments if fragment.keyed for step in fragment.steps]
    endless = next((step for step in streams if not _is_stream(step)), None)
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


@dataclass(frozen=True, slots=True)
class StreamSteps:
    """The stateless steps between a stream and a port; a step that fails on a row fails the query.

    fragment  the steps; None when there are none
    ref       the port whose rows are wanted
    schema    of that port
    """

    fragment: FragmentPlan | None
    source: Step
    ref: Ref
    schema: pa.Schema

    @classmethod
    def of(cls, plan: Plan, source: str, ref: Ref) -> StreamSteps:
        """Plans the steps of a graph whose only source is a stream."""
        fragments = split_into_fragments(plan)
        fragment = None
        if fragments.fragments:
            fragment = plan_fragment(plan, fragments, 0, run="to_spark", n_partitions=1)
        step = plan[source]
        assert isinstance(step.op, Source), "a plan begins with a source"
        # Why: the DataFrame cannot go to where its rows are; all that matters of the reader is its columns.
        step = replace(step, op=replace(step.op, reader=table(step.op.reader.schema.empty_table())))
        return cls(fragment, step, ref, plan[ref.step].outputs[ref.port].schema)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs the rows of a stream through the steps, batch by batch."""
        source, op, clock = self.source, self.source.op, WallClock()
        assert isinstance(op, Source), "a plan begins with a source"
        stage = SourceStage(op, StageContext(source.name, source.where, Accounts(), clock))
        task = None if self.fragment is None else FragmentTask(self.fragment, 0)
        steps = () if self.fragment is None else self.fragment.fragment.steps
        advances = {step.name: WatermarkAdvance(BEFORE_ALL, BEFORE_ALL, over=False) for step in steps}
        for columns in batches:
            round_ = RoundPlan(0, clock.now(), advances)
            for port, batch in stage.on_read(SourceBatch(from_spark(columns, op.reader.schema))):
                if self.ref == Ref(source.name, port):
                    yield to_spark(batch.rows)
                elif port == OUT and task is not None:
                    yield from self._collect(task.run_rows(Ref(source.name, port), batch, round_))

    def _collect(self, rows: Iterable[WireRow]) -> Iterator[pa.RecordBatch]:
        assert self.fragment is not None, "only steps send rows"
        collected = {edge.number for edge in self.fragment.edges.get(self.ref, ()) if edge.step is None}
        for row in rows:
            if row.kind is Kind.BATCH and row.edge in collected and row.body is not None:
                yield to_spark(unpack_batch(row.body, self.schema).rows)
