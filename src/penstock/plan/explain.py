"""What explain() says of a plan: as text for people, and as plain data for scripts.

One pass over the steps; both forms are made from the same words. Knows no engine: what an engine has
chosen comes in as lines.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.expr import Expr
from penstock.expr.node import post_order
from penstock.expr.nodes.functions import SparkSql
from penstock.operators.columns import WithColumns
from penstock.operators.function import Expressions
from penstock.operators.map import Filter, FlatMap
from penstock.operators.op import IN, OUT, Op
from penstock.operators.source import Source
from penstock.operators.split import Split
from penstock.operators.stream import Stream
from penstock.operators.windows import Windows
from penstock.plan.drawing.picture import describe_routing, is_side_output, make_printable
from penstock.plan.explain_windows import explain_windows
from penstock.plan.fusion import fused_with, groups
from penstock.plan.plan import Input, Plan, Ref, Step

WIDTH = 100
MOST_COLUMNS = 24
_FIELD = 12  # where the text of a field begins, after the step's indent
_INDENT = "   "
_JOINED = "\u00a0"  # the no-break space keeps a column's name and type on one line


def explain_plan(
    plan: Plan,
    *,
    blocks: str | None = None,
    derivation: Sequence[str] = (),
    engine: Sequence[str] = (),
    unused: Sequence[str] = (),
) -> str:
    """The plan as text: its steps, its building blocks and their derivation, the engine's choices."""
    fused = fused_with(plan)
    shared = {node[0].name: [step.name for step in node[1:]] for node in groups(plan, fused)}
    lines = [_headline(plan)]
    for number, step in enumerate(plan, 1):
        lines += [
            "",
            f"{number}. {make_printable(step.name)}",
            *_step(plan, step, _stage(step, fused, shared)),
        ]
    lines += _section("Building blocks", blocks.splitlines() if blocks else ())
    lines += _section("Derivation", derivation)
    lines += _section("Engine", engine)
    lines += _section("Not run, because no sink needs it", unused)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def explain_dict(
    plan: Plan,
    *,
    blocks: str | None = None,
    derivation: Sequence[str] = (),
    engine: Sequence[str] = (),
    unused: Sequence[str] = (),
) -> dict[str, object]:
    """The same as data that JSON can hold; nothing is cut."""
    fused = fused_with(plan)
    return {
        "graph": plan.graph,
        "steps": [_step_dict(plan, step, fused) for step in plan],
        "blocks": blocks,
        "derivation": [str(line) for line in derivation],
        "engine": list(engine),
        "not_run": list(unused),
    }


def _headline(plan: Plan) -> str:
    counts = ((len(plan.steps), "step"), (len(plan.sources), "source"), (len(plan.sinks), "sink"))
    return f"{make_printable(plan.graph)}: " + ", ".join(
        f"{n} {what}{'' if n == 1 else 's'}" for n, what in counts
    )


def _section(title: str, lines: Sequence[object]) -> list[str]:
    return ["", title, *(f"{_INDENT}{line}" for line in lines)] if lines else []


def _stage(step: Step, fused: Mapping[str, str], shared: Mapping[str, list[str]]) -> str:
    if step.name in fused:
        return f"fused with {fused[step.name]}"
    others = shared[step.name]
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return f"one stage with {', '.join(others[:3])}{more}" if others else "a stage of its own"


def _step(plan: Plan, step: Step, stage: str) -> Iterator[str]:
    yield from _wrapped(step.op.describe(), _INDENT, _INDENT)
    for given in step.inputs:
        yield from _field("reads", _reads(step, given))
    yield from _field("runs", _runs(step, stage))
    if step.inputs and step.up.key:
        yield from _field("key", ", ".join(step.up.key))
    for topic, text in explain_windows(step):
        yield from _field(topic, text)
    yield from _gives(plan, step)
    if step.where is not None:
        yield from _field("written", f"{step.where}")


def _reads(step: Step, given: Input) -> str:
    feeds = " and ".join(map(str, given.feeds))
    merged = ", merged" if len(given.feeds) > 1 else ""
    port = f" on {'control ' if given.control else ''}port {given.port}"
    return feeds + merged + (port if len(step.inputs) > 1 or given.port != IN else "")


def _runs(step: Step, stage: str) -> str:
    if step.degree.elastic:
        how_many = f"{step.degree.least} to {step.degree.most} replicas"
    else:
        how_many = f"{step.degree} replica{'' if step.degree.least == 1 else 's'}"
    routing = [] if step.routing is None else [describe_routing(step)]
    return ", ".join([how_many, *routing, stage])


def _gives(plan: Plan, step: Step) -> Iterator[str]:
    """The outputs: columns once where all ports have the same, and who reads each port."""
    ports = {port: stream for port, stream in step.outputs.items() if not is_side_output(port)}
    alike = len(set(map(_key_of, ports.values()))) == 1
    if alike:
        yield from _stream(next(iter(ports.values())))
    for port, stream in ports.items():
        if len(ports) > 1 or port != OUT:
            what = "branch" if isinstance(step.op, Split) else "port"
            yield from _field(what, f"{port}, {_readers(plan, step, port) or 'nobody reads it'}")
        if not alike:
            yield from _stream(stream)
    for port in step.outputs:
        if is_side_output(port):
            yield from _field(
                port, _readers(plan, step, port) or "nobody reads it: its rows are only counted"
            )


def _key_of(stream: Stream) -> tuple[object, ...]:
    return (*((field.name, field.type) for field in stream.schema), stream.time)


def _stream(stream: Stream) -> Iterator[str]:
    yield from _field("gives", _columns(stream.schema))
    yield from _field("time", "none" if stream.time is None else str(stream.time))


def _readers(plan: Plan, step: Step, port: str) -> str:
    ref = Ref(step.name, port)
    names = list(dict.fromkeys(name for name, _ in plan.readers(ref)))
    collected = ["collected"] if ref in plan.collects else []
    return ", ".join([f"read by {', '.join(names)}"] * bool(names) + collected)


def _columns(schema: pa.Schema) -> str:
    shown = [f"{field.name} {field.type}" for field in list(schema)[:MOST_COLUMNS]]
    more = len(schema) - len(shown)
    if more:
        shown[-1] += f" … and {more} more column{'' if more == 1 else 's'}"
    return ", ".join(part.replace(" ", _JOINED) for part in shown)


def _field(label: str, text: str) -> Iterator[str]:
    start = f"{_INDENT}{label:<{_FIELD}}" if len(label) < _FIELD else f"{_INDENT}{label} "
    yield from _wrapped(text, start, _INDENT + " " * _FIELD)


def _wrapped(text: str, start: str, after: str) -> list[str]:
    lines = [start + make_printable(text)]
    if len(lines[0]) > WIDTH:
        lines = textwrap.wrap(
            lines[0], WIDTH, subsequent_indent=after, break_long_words=False, break_on_hyphens=False
        )
    return [line.replace(_JOINED, " ") for line in lines]


def _step_dict(plan: Plan, step: Step, fused: Mapping[str, str]) -> dict[str, object]:
    return {
        "name": step.name,
        "kind": step.op.kind,
        "does": step.op.describe(),
        "reads": [
            {"port": given.port, "feeds": [str(ref) for ref in given.feeds], "control": given.control}
            for given in step.inputs
        ],
        "routing": None if step.routing is None else str(step.routing),
        "degree": {"least": step.degree.least, "most": step.degree.most},
        "fused_with": fused.get(step.name),
        "key": list(step.up.key) if step.inputs else [],
        "windows": [{"topic": topic, "says": text} for topic, text in explain_windows(step)],
        "gives": {port: _stream_dict(plan, Ref(step.name, port), s) for port, s in step.outputs.items()},
        "written": None if step.where is None else str(step.where),
    }


def _stream_dict(plan: Plan, ref: Ref, stream: Stream) -> dict[str, object]:
    return {
        "columns": [{"name": field.name, "type": str(field.type)} for field in stream.schema],
        "time": None if stream.time is None else str(stream.time),
        "key": list(stream.key),
        "read_by": list(dict.fromkeys(name for name, _ in plan.readers(ref))),
        "collected": ref in plan.collects,
    }


# The expressions that a step evaluates, wherever its operator keeps them.


def expressions_of(op: Op) -> Iterator[Expr]:
    """All expressions of an operator; none for those that take functions only."""
    match op:
        case WithColumns():
            yield from (expr for _, expr in op.how.columns)
        case FlatMap():
            if isinstance(op.how, Expressions):
                yield from (expr for _, expr in op.how.columns)
        case Filter() | Split():
            if isinstance(op.how, Expr):
                yield op.how
            if isinstance(op, Split):
                yield from (op.predicates or {}).values()
        case Windows():
            yield from (each.value for each in (op.aggregates or {}).values() if each.value is not None)
        case Source():
            if isinstance(op.watermark, Expr):
                yield op.watermark


def only_on_spark(op: Op) -> str | None:
    """The first piece of Spark SQL in an operator's expressions, or None."""
    for expr in expressions_of(op):
        for node in post_order(expr):
            if isinstance(node, SparkSql):
                return str(node)
    return None
