"""Who reads a source: Python workers, or the JVM, or the driver what lives there; and which columns of it.

Workers read files: Arrow gives the very columns that stages take, in a third of the time in which Spark makes
rows of a file. Where footers prove the times of parquet files, rows are read by the job that runs the steps;
otherwise a job before it reads them, and its reports say how far time has come. The JVM reads what only it
can: DataFrames, and files behind which Spark's own SQL follows. It applies the expressions behind the source
and hands the rows over to fragment 0.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.readers.files import FileReader
from penstock.connect.readers.parquet import ParquetFormat
from penstock.connect.readers.spark import SparkReader, SparkStreamReader
from penstock.engines.spark.fragments import Fragments, lives_on_driver, split_into_fragments
from penstock.expr import Expr
from penstock.frozen import Frozen
from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.choices import AccumulatorKind, accumulators_of
from penstock.operators.op import ERRORS, LATE, OUT, Routing, Stream
from penstock.operators.rows import Filter, Select, WithColumns
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import Windows
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Plan, Ref, Step
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

OURS = "penstock:"
"""The prefix of columns that are added to those of the program."""
_NOT_IN_JVM = {AccumulatorKind.MAX_COUNT, AccumulatorKind.MIN_COUNT, AccumulatorKind.FOLD}
"""How many values equal the extreme takes two passes in the JVM, and a fold is Python."""
PLAIN_PATH = re.compile(r"[\w./+@, -]+")
"""Paths that Hadoop reads as they are: no globs, no partition folders, nothing to escape."""


class SourcePipeline(Frozen):
    """A source whose times can be known before its rows, and the steps behind it.

    steps       expressions, each the only reader of its feed; with table joins where workers read
    stop        why the pipeline goes no further
    jvm_reason  why the JVM reads the source; None when workers do
    """

    source: Step
    steps: tuple[Step, ...]
    stop: str
    jvm_reason: str | None

    @property
    def last(self) -> Ref:
        """Return the port whose rows the pipeline gives."""
        return Ref((self.steps or (self.source,))[-1].name, OUT)


def source_pipelines(plan: Plan) -> list[SourcePipeline]:
    """Return the pipelines of all sources whose times can be known before their rows."""
    return [_pipeline(plan, step) for step in plan.sources if why_look_at_rows(step) is None]


def why_look_at_rows(step: Step) -> str | None:
    """Return why a source stage must see the rows of a source first; None when others can tell times."""
    reader, time = step.as_source.reader, step.as_source.resolve()
    if isinstance(reader, SparkReader):
        for field in reader.schema:
            if kind.is_timestamp(field.type) and not field.type.tz:
                return f"column {field.name} is a TIMESTAMP_NTZ"
    elif not isinstance(reader, FileReader):
        return "its rows come by themselves"
    elif not isinstance(reader.format, ParquetFormat):
        return "only parquet files have footers"
    elif reader.batch is not None:
        return "batch= cuts inside of files"
    if time is not None and (time.column is None or time.rule is not None):
        return "its watermark follows the clock or a rule of its own"
    return _why_not_columns(reader.schema)


def _why_not_columns(schema: pa.Schema) -> str | None:
    for field in schema:
        if kind.is_nested(field.type):
            return f"column {field.name} is nested"
        if field.name.startswith(OURS):
            return f"column {field.name} has a name that is ours"
    return None


def _pipeline(plan: Plan, source: Step) -> SourcePipeline:
    steps, stop = _follow(plan, source, joins=False)
    sql = next((sql for step in steps if (sql := find_spark_sql(step.op)) is not None), None)
    if isinstance(source.as_source.reader, SparkReader):
        reason = "it is a DataFrame"
    elif sql is not None:
        reason = f"{sql} is Spark's own"
    else:
        reason = None
        steps, stop = _follow(plan, source, joins=True)
    return SourcePipeline(source, tuple(steps), stop, reason)


def _follow(plan: Plan, source: Step, *, joins: bool) -> tuple[list[Step], str]:
    """Return the steps behind a source while each is the only reader of its feed, and why to stop."""
    steps: list[Step] = []
    ref = Ref(source.name, OUT)
    while True:
        readers = plan.readers(ref)
        if len(readers) != 1 or ref in plan.collects:
            return steps, "several read it" if readers else "it is collected"
        step = plan[readers[0][0]]
        stop = _why_stop(step, joins=joins)
        if stop is not None:
            return steps, stop
        steps.append(step)
        ref = Ref(step.name, OUT)


def _why_stop(step: Step, *, joins: bool) -> str | None:
    op = step.op
    if len(step.feeds) > 1:
        return f"{step.name} merges several streams"
    if not step.outputs:
        return f"{step.name} writes rows"
    if op.stateful or isinstance(op, Windows):
        return f"{step.name} runs in Python: it keeps state"
    if step.routing == Routing.BROADCAST:
        return f"{step.name} runs in Python: its rows are copied to every replica"
    if isinstance(op, TableJoin) and not joins:
        return f"{step.name} runs in Python: it joins a table"
    is_expression = isinstance(op, WithColumns | TableJoin) or (
        isinstance(op, Filter) and isinstance(op.how, Expr)
    )
    why = _why_not_columns(step.outputs[OUT].schema) if is_expression else "it is not an expression"
    return None if why is None else f"{step.name} runs in Python: {why}"


def can_group_in_jvm(op: Windows, up: Stream) -> bool:
    """Return whether Spark's grouping can make the partials of a window step that has partials."""
    windows = [window for _, window in op.resolve(up).windows if isinstance(window, TimeWindow)]
    aggregates = (op.aggregates or {}).values()
    kinds = {kind for aggregate in aggregates for kind in accumulators_of(aggregate, up)}
    return len(Slicing.groups(windows)) == 1 and not kinds & _NOT_IN_JVM


def grouped_windows(plan: Plan, pipeline: SourcePipeline, fragments: Fragments) -> Step | None:
    """Return the windows behind a DataFrame whose partials Spark's own grouping makes, if there are any.

    Only one filter may be before them, and all rows behind it must be in a window: then the rows that the
    filter dropped are known by difference. No row of a DataFrame can be late, because it is one batch.
    """
    readers = [plan[name] for name, _ in plan.readers(pipeline.last)]
    is_dataframe = isinstance(pipeline.source.as_source.reader, SparkReader)
    if not is_dataframe or len(readers) != 1 or readers[0].name not in fragments.partials:
        return None
    (step,) = readers
    filters = [before for before in pipeline.steps if isinstance(before.op, Filter)]
    assert isinstance(step.op, Windows), "only windows have partials"
    if len(step.feeds) > 1 or len(filters) > 1 or not can_group_in_jvm(step.op, step.up):
        return None
    windows = [window for _, window in step.op.resolve(step.up).windows if isinstance(window, TimeWindow)]
    return None if Slicing.of(windows).has_gaps else step


def source_columns(plan: Plan, source: Step) -> tuple[str, ...]:
    """Return the columns of a source that are used: those of a program's steps, and the time."""
    names, time = source.as_source.reader.schema.names, source.as_source.resolve()
    used = used_columns(plan, Ref(source.name, OUT))
    if used is None:
        return tuple(names)
    if time is not None and time.column is not None:
        used = used | {time.column}
    return tuple(name for name in names if name in used) or tuple(names[:1])


def used_columns(plan: Plan, ref: Ref) -> set[str] | None:
    """Return the columns of a port that the steps behind it use; None when they may use all."""
    if ref in plan.collects:
        return None
    used = set[str]()
    for name, _ in plan.readers(ref):
        columns = _used_by(plan, plan[name])
        if columns is None:
            return None
        used |= columns
    return used


def _used_by(plan: Plan, step: Step) -> set[str] | None:
    op = step.op
    if any(plan.is_read(Ref(step.name, port)) for port in (LATE, ERRORS)):
        return None  # rows are seen there as they arrived
    if isinstance(op, Windows):
        if op.aggregates is None:
            return None
        inputs = [aggregate_columns(aggregate) for aggregate in op.aggregates.values()]
        return None if None in inputs else set(step.up.key).union(*(names or () for names in inputs))
    if isinstance(op, Select):
        return {name for _, expr in op.how.columns for name in expr.columns()}
    computed, used = set[str](), set[str]()
    if isinstance(op, TableJoin):
        computed, used = {field.name for field in op.new_fields}, set(op.columns)
    elif isinstance(op, Filter) and isinstance(op.how, Expr):
        used = set(op.how.columns())
    elif isinstance(op, WithColumns):
        computed = {name for name, _ in op.how.columns}
        used = {name for _, expr in op.how.columns for name in expr.columns()}
    else:
        return None
    after = used_columns(plan, Ref(step.name, OUT))
    return None if after is None else (after - computed) | used


def aggregate_columns(aggregate: Aggregate) -> tuple[str, ...] | None:
    """Return the columns that an aggregate reads; None when it may read all."""
    if isinstance(aggregate, Fold):
        return aggregate.columns
    return () if aggregate.value is None else aggregate.value.columns()


def explain_source(plan: Plan, step: Step) -> list[str]:
    """Return who reads a source, which steps run in the JVM behind it, and why others do not."""
    reader, name = step.as_source.reader, step.name
    if lives_on_driver(reader):
        return [f"{name} is read on the driver, piece by piece: {reader.describe()} lives in its process"]
    why = why_look_at_rows(step)
    if why is not None:
        first = "in the job of its steps" if step.as_source.resolve() is None else "by a job of its own"
        if isinstance(reader, SparkReader | SparkStreamReader):
            return [f"{name} is read by Spark, {first}, and handed over to Python workers: {why}"]
        return [f"{name} is read by Python workers, {first}: {why}"]
    pipeline = _pipeline(plan, step)
    if pipeline.jvm_reason is None:
        columns = ", ".join(source_columns(plan, step))
        return [f"{name} is read by Python workers, only columns {columns}"]
    inside = [behind.name for behind in pipeline.steps]
    windows = grouped_windows(plan, pipeline, split_into_fragments(plan))
    if windows is not None:
        inside.append(f"partial aggregates of {windows.name}")
    steps = ", ".join(inside) or "no further step"
    return [
        f"{name} is read by Spark, in the JVM with {steps}: {pipeline.jvm_reason}",
        f"rows leave the JVM behind {pipeline.last.step}: {pipeline.stop}",
    ]
