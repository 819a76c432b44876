"""Who reads a source that is files: the driver, the JVM, or Python workers; and which columns they need.

Where rows go to Python anyway, Python workers read them: Arrow gives the columns that stages take, in a third
of the time in which Spark makes rows of a file and groups them. What is nothing but expressions stays in the
JVM, as one would write it by hand; so do table joins, because the table is sent only once there.
"""

from __future__ import annotations

from penstock.connect.readers.spark import SparkReader
from penstock.engines.spark.fragments import Fragments
from penstock.engines.spark.jvm.pipeline import LEAST_ROWS, SourcePipeline, source_pipelines, why_driver_reads
from penstock.expr import Expr
from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.columns import Select, WithColumns
from penstock.operators.ends import Source
from penstock.operators.map import Filter
from penstock.operators.op import ERRORS, LATE
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import Windows
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Plan, Ref, Step


def why_jvm_reads(plan: Plan, chain: SourcePipeline) -> str | None:
    """Why the JVM reads the source of a chain; None when Python workers do."""
    assert isinstance(chain.source.op, Source), "chains begin with a source"
    if isinstance(chain.source.op.reader, SparkReader):
        return "it is a DataFrame"
    for step in chain.steps:
        sql = find_spark_sql(step.op)
        if sql is not None:
            return f"{sql} is Spark's own"
        if isinstance(step.op, TableJoin):
            return f"{step.name} joins a table"
    readers = [plan[name] for name, _ in plan.readers(chain.last)]
    only_written = chain.window is None and not any(step.outputs for step in readers)
    return "all that is done is expressions" if chain.steps and only_written else None


def needed_columns(plan: Plan, chain: SourcePipeline) -> tuple[str, ...]:
    """The columns of the source that somebody looks at."""
    op = chain.source.op
    assert isinstance(op, Source), "chains begin with a source"
    names, time = op.reader.schema.names, op.resolve()
    found = _at_the_end(plan, chain.last)
    for step in reversed(chain.steps):
        found = _before(plan, step, found)
    if found is None:
        return tuple(names)
    found |= set() if time is None or time.column is None else {time.column}
    return tuple(name for name in names if name in found) or tuple(names[:1])


def _at_the_end(plan: Plan, ref: Ref) -> set[str] | None:
    """The columns that the readers of a port look at; None for all."""
    found = set[str]()
    for name, _ in plan.readers(ref):
        step = plan[name]
        if not isinstance(step.op, Windows) or step.op.aggregates is None or _shows_rows(plan, step):
            return None
        for columns in (step.up.key, *map(_of_aggregate, step.op.aggregates.values())):
            if columns is None:
                return None
            found |= set(columns)
    return None if ref in plan.collects else found


def _of_aggregate(aggregate: Aggregate) -> tuple[str, ...] | None:
    if isinstance(aggregate, Fold):
        return aggregate.columns
    return () if aggregate.value is None else aggregate.value.columns()


def _before(plan: Plan, step: Step, after: set[str] | None) -> set[str] | None:
    """The columns that must come to a step of a chain, when these are looked at behind it; None for all."""
    op = step.op
    if _shows_rows(plan, step):
        return None
    if isinstance(op, Select):
        return {name for _, expr in op.how.columns for name in expr.columns()}
    if after is None:
        return None
    if isinstance(op, Filter):
        assert isinstance(op.how, Expr), "only expressions are in a chain"
        return after | set(op.how.columns())
    assert isinstance(op, WithColumns), "only such steps are in a chain that workers read"
    return (after - set(op.how.names)) | {name for _, expr in op.how.columns for name in expr.columns()}


def _shows_rows(plan: Plan, step: Step) -> bool:
    """Whether rows of a step are seen as they came to it."""
    return any(plan.is_read(Ref(step.name, port)) for port in (LATE, ERRORS))


def explain_source(plan: Plan, step: Step, fragments: Fragments) -> list[str]:
    """Who reads a source, which steps stay in the JVM behind it, and why others do not."""
    why = why_driver_reads(step)
    if why is not None or not fragments.fragments:
        return [
            f"{step.name} is read on the driver: {why or 'there is nothing to do on the way to the sinks'}"
        ]
    chain = next(each for each in source_pipelines(plan, fragments) if each.source is step)
    inside = [each.name for each in chain.steps]
    if chain.window is not None:
        inside.append(f"late rows and the parts of {chain.window.name}")
    with_what = ", ".join(inside) or "no further step"
    why = why_jvm_reads(plan, chain)
    if why is None:
        lines = [f"{step.name} is read by Python workers, into columns, with {with_what}"]
    else:
        lines = [f"{step.name} is read by Spark, in the JVM with {with_what}: {why}"]
        lines += [f"rows leave the JVM behind {chain.last.step}: {chain.ends}"] if chain.ends else []
    return [*lines, f"batches of less than {LEAST_ROWS:,} rows are read on the driver: that is faster"]
