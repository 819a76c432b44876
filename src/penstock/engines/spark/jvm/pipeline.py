"""Which steps stay in the JVM: the chain behind a source that Spark itself can read.

A chain is a source and the expression steps behind it, as far as each is the only reader of the one before.
It ends in rows for Python workers and sinks, or in the parts of time windows. `who_reads.py` says who carries
it out, the JVM or Python workers. What the JVM dropped must be known afterwards: in rows only one step of a
chain may drop some, so that it is known by difference; parts count each kind of dropped row as a group.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.protocol import Reader
from penstock.connect.readers.files import FileReader
from penstock.connect.readers.parquet import ParquetFormat
from penstock.connect.readers.spark import SparkReader
from penstock.engines.spark.fragments import Fragments
from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.choices.accumulators import AccumulatorKind, accumulators_of
from penstock.operators.choices.patterns import PANED, why_not_pattern
from penstock.operators.columns import WithColumns
from penstock.operators.ends import Source
from penstock.operators.map import Filter
from penstock.operators.op import OUT, Routing
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref, Step
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

LEAST_ROWS = 50_000
"""Smaller batches are read on the driver: planning a scan costs more than reading them."""
OURS = "penstock:"
"""How the columns begin that are added to those of the program."""
_NO_RULE = {
    AccumulatorKind.MAX_COUNT: "how many values equal the extreme takes two passes in the JVM",
    AccumulatorKind.MIN_COUNT: "how many values equal the extreme takes two passes in the JVM",
    AccumulatorKind.FOLD: "a fold is Python",
}


@dataclass(frozen=True, slots=True)
class SourcePipeline:
    """A source, the steps behind it that stay in the JVM, and how it ends.

    window  the window step whose parts are made in the JVM; None when the chain ends in rows
    ends    why it goes no further
    """

    source: Step
    steps: tuple[Step, ...]
    window: Step | None
    ends: str | None

    @property
    def last(self) -> Ref:
        """Whose rows the chain gives."""
        return Ref((self.steps or (self.source,))[-1].name, OUT)

    @property
    def droppers(self) -> tuple[Step, ...]:
        """The steps that give fewer rows than they take."""
        return tuple(step for step in self.steps if drops(step))


def source_pipelines(plan: Plan, fragments: Fragments) -> list[SourcePipeline]:
    """The chains of a plan. The groups of one chain only can go to a fragment, beside what is on the wire."""
    free, found = dict(fragments.parts), []
    for step in plan.sources:
        if why_driver_reads(step) is None:
            found.append(_chain(plan, step, frozenset(free)))
            window = found[-1].window
            taken = None if window is None else free[window.name].fragment
            free = {name: edge for name, edge in free.items() if edge.fragment != taken}
    return found


def why_driver_reads(step: Step) -> str | None:
    """Why the driver reads a source; None when Spark can."""
    assert isinstance(step.op, Source), "only sources read"
    reader, time = step.op.reader, step.op.resolve()
    why = _why_not_read(reader)
    if why is not None:
        return why
    if time is not None and (time.column is None or time.rule is not None or time.idle is not None):
        return "its watermark follows the clock or a rule of its own"
    return _why_not_columns(reader.schema)


def _why_not_read(reader: Reader) -> str | None:
    if isinstance(reader, SparkReader):
        zoneless = [each.name for each in reader.schema if kind.is_timestamp(each.type) and not each.type.tz]
        return f"column {zoneless[0]} is a TIMESTAMP_NTZ" if zoneless else None
    if not (isinstance(reader, FileReader) and isinstance(reader.format, ParquetFormat)):
        return "only parquet files and DataFrames are read in the JVM"
    return None if reader.batch is None else "batch= cuts inside of files"


def drops(step: Step) -> bool:
    """Whether a step of a chain gives fewer rows than it takes."""
    return isinstance(step.op, Filter) or (isinstance(step.op, TableJoin) and step.op.how == "inner")


def why_python(step: Step) -> str | None:
    """Why a step without state runs in Python workers; None when it can stay in the JVM."""
    op = step.op
    if op.stateful or isinstance(op, Windows):
        return "it keeps state"
    if step.routing == Routing.BROADCAST:
        return "its rows are copied to every replica"
    native = isinstance(op, WithColumns | TableJoin) or (isinstance(op, Filter) and isinstance(op.how, Expr))
    return _why_not_columns(step.outputs[OUT].schema) if native else "it is not an expression"


def why_no_parts(step: Step) -> str | None:
    """Why the parts of a window step cannot be made in the JVM; None when they can."""
    op, up = step.op, step.up
    assert isinstance(op, Windows), "only windows come in parts"
    refused = why_not_pattern(PANED, op, up, totally_ordered=False)
    if refused is not None:
        return f"{refused[0]}: {refused[1]}"
    windows = [window for _, window in op.resolve(up).windows if isinstance(window, TimeWindow)]
    if len(Slicing.groups(windows)) > 1:
        return "its windows do not share slices"
    for name, aggregate in (op.aggregates or {}).items():
        for register in accumulators_of(aggregate, up):
            if register in _NO_RULE:
                return f"{name}={aggregate}: {_NO_RULE[register]}"
    return None


def _chain(plan: Plan, source: Step, parts: frozenset[str]) -> SourcePipeline:
    steps: list[Step] = []
    window: Step | None = None
    ends: str | None = None
    ref = Ref(source.name, OUT)
    while ends is None and window is None:
        readers = plan.readers(ref)
        if len(readers) != 1 or ref in plan.collects:
            ends = "several read it" if readers else "it is collected"
            break
        step = plan[readers[0][0]]
        ends = _why_ends(step, parts)
        if ends is None and isinstance(step.op, Windows):
            window = step
        elif ends is None:
            steps.append(step)
            ref = Ref(step.name, OUT)
    if window is None:
        steps, ends = _with_one_dropper(steps, ends)
    return SourcePipeline(source, tuple(steps), window, ends)


def _why_ends(step: Step, parts: frozenset[str]) -> str | None:
    """Why a chain does not take a step in."""
    if len(step.feeds) > 1:
        return f"{step.name} merges several streams"
    if isinstance(step.op, Windows):
        why = why_no_parts(step)
        if why is None and step.name not in parts:
            why = "its late or failed rows, or the parts of another chain, are with its windows"
        return None if why is None else f"{step.name} takes rows: {why}"
    if not step.outputs:
        return f"{step.name} writes rows"
    why = why_python(step)
    return None if why is None else f"{step.name} runs in Python: {why}"


def _with_one_dropper(steps: list[Step], ends: str | None) -> tuple[list[Step], str | None]:
    """The steps up to the second that drops rows: what was dropped is known by difference only once."""
    places = [place for place, step in enumerate(steps) if drops(step)]
    if len(places) < 2:
        return steps, ends
    second = steps[places[1]]
    return steps[: places[1]], f"{second.name} runs in Python: the rows it drops are counted there"


def _why_not_columns(schema: pa.Schema) -> str | None:
    for field in schema:
        if kind.is_nested(field.type):
            return f"column {field.name} is nested"
        if field.name.startswith(OURS):
            return f"column {field.name} has a name that is ours"
    return None


PLAIN_PATH = re.compile(r"[\w./+@, -]+")
"""Paths that Hadoop reads as they are: no globs, no partition folders, nothing to escape."""
