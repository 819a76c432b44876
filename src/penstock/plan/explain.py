"""What explain() says of a plan, as text and as JSON, made from the same words.

Knows no engine: what an engine has chosen is passed in as lines. What is said of windows (pattern, slices,
algorithms, memory, and why) is known before a run, from `operators/choices.py`. Engines that build windows
from slices do as it says; the reference engine, which is made to be right and not fast, gets the same rows
its own way.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from penstock.blocks import Derivation, tree
from penstock.operators import choices
from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.choices import AUTO, AccumulatorKind, why_rows
from penstock.operators.op import IN, OUT, Stream
from penstock.operators.rows import Split
from penstock.operators.windows import DECOMPOSED, Windows
from penstock.plan.picture import describe_routing, is_side_output, make_printable
from penstock.plan.plan import Plan, Ref, Step, group_fused
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow

WIDTH = 100
MOST_COLUMNS = 24
_FIELD = 12  # where the text of a field begins, after the step's indent
_INDENT = "   "
_JOINED = "\u00a0"  # the no-break space keeps a column's name and type on one line
NUMBER = 8  # bytes
BOUNDS = 2 * NUMBER  # the first and the last time of a session or of a pane of rows
Explanations = Iterator[tuple[str, str]]
"""(topic, what is said of it); a topic may come several times."""


def explain_plan(
    plan: Plan,
    *,
    derivation: Derivation | None = None,
    engine: Sequence[str] = (),
    unused: Sequence[str] = (),
    format: Literal["text", "json"] = "text",
) -> str:
    """Return what the plan is: its steps, its building blocks and their derivation, the engine's choices.

    As text, or as the same in JSON, where nothing is cut.
    """
    groups = group_fused(plan)
    fused = {after.name: before.name for group in groups for before, after in pairwise(group)}
    blocks = tree(derivation.term) if derivation else None
    rules = str(derivation).splitlines() if derivation else []
    if format == "json":
        data = {
            "graph": plan.graph,
            "steps": [_step_dict(plan, step, fused) for step in plan],
            "blocks": blocks,
            "derivation": rules,
            "engine": list(engine),
            "not_run": list(unused),
        }
        return json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n"
    shared = {group[0].name: [step.name for step in group[1:]] for group in groups}
    counts = ((len(plan.steps), "step"), (len(plan.sources), "source"), (len(plan.sinks), "sink"))
    numbers = ", ".join(f"{n} {noun}{'' if n == 1 else 's'}" for n, noun in counts)
    lines = [f"{make_printable(plan.graph)}: {numbers}"]
    for number, step in enumerate(plan, 1):
        lines += ["", f"{number}. {make_printable(step.name)}"]
        stage = f"fused with {fused.get(step.name)}"
        if step.name not in fused:
            after = shared[step.name]
            more = f" and {len(after) - 3} more" if len(after) > 3 else ""
            stage = f"one stage with {', '.join(after[:3])}{more}" if after else "a stage of its own"
        lines += _step(plan, step, stage)
    lines += _section("Building blocks", blocks.splitlines() if blocks else ())
    lines += _section("Derivation", rules)
    lines += _section("Engine", engine)
    lines += _section("Not run, because no sink needs it", unused)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _section(title: str, lines: Sequence[object]) -> list[str]:
    return ["", title, *(f"{_INDENT}{line}" for line in lines)] if lines else []


def _step(plan: Plan, step: Step, stage: str) -> Iterator[str]:
    yield from _wrap(step.op.describe(), _INDENT, _INDENT)
    for port in step.inputs:
        feeds = " and ".join(map(str, port.feeds)) + (", merged" if len(port.feeds) > 1 else "")
        on_port = f" on {'control ' if port.control else ''}port {port.port}"
        yield from _field("reads", feeds + (on_port if len(step.inputs) > 1 or port.port != IN else ""))
    if step.degree.elastic:
        how_many = f"{step.degree.least} to {step.degree.most} replicas"
    else:
        how_many = f"{step.degree} replica{'' if step.degree.least == 1 else 's'}"
    routing = [] if step.routing is None else [describe_routing(step)]
    yield from _field("runs", ", ".join([how_many, *routing, stage]))
    if (key := _explain_key(step)) is not None:
        yield from _field("key", key)
    for topic, text in explain_windows(step):
        yield from _field(topic, text)
    yield from _gives(plan, step)
    if step.where is not None:
        yield from _field("written", f"{step.where}")


def _explain_key(step: Step) -> str | None:
    """Return the key of the rows that a step gets, and what becomes of it; None where rows never had one."""
    if not step.inputs:
        return None
    key = ", ".join(step.up.key)
    lost = next((stream.lost_key for stream in step.outputs.values() if stream.lost_key is not None), None)
    if lost is not None and lost.step == step.name:
        return f"{', '.join(lost.key)}, lost behind this step: {lost.reason}"
    if step.up.lost_key is not None:
        return f"{', '.join(step.up.lost_key.key)}, lost behind {step.up.lost_key.step}"
    if isinstance(step.op, Windows) and not key:
        return "none: all rows are one group"
    return key or None


def _gives(plan: Plan, step: Step) -> Iterator[str]:
    """Yield the outputs: columns once where all ports have the same, and who reads each port."""
    ports = {port: stream for port, stream in step.outputs.items() if not is_side_output(port)}
    alike = len({(*((f.name, f.type) for f in s.schema), s.time) for s in ports.values()}) == 1
    if alike:
        yield from _stream(next(iter(ports.values())))
    for port, stream in ports.items():
        if len(ports) > 1 or port != OUT:
            kind = "branch" if isinstance(step.op, Split) else "port"
            yield from _field(kind, f"{port}, {_readers(plan, step, port) or 'nobody reads it'}")
        if not alike:
            yield from _stream(stream)
    for port in step.outputs:
        if is_side_output(port):
            yield from _field(
                port, _readers(plan, step, port) or "nobody reads it: its rows are only counted"
            )


def _stream(stream: Stream) -> Iterator[str]:
    columns = [f"{field.name} {field.type}" for field in list(stream.schema)[:MOST_COLUMNS]]
    more = len(stream.schema) - len(columns)
    if more:
        columns[-1] += f" … and {more} more column{'' if more == 1 else 's'}"
    yield from _field("gives", ", ".join(part.replace(" ", _JOINED) for part in columns))
    yield from _field("time", "none" if stream.time is None else str(stream.time))


def _readers(plan: Plan, step: Step, port: str) -> str:
    ref = Ref(step.name, port)
    names = list(dict.fromkeys(name for name, _ in plan.readers(ref)))
    collected = ["collected"] if ref in plan.collects else []
    return ", ".join([f"read by {', '.join(names)}"] * bool(names) + collected)


def _field(label: str, text: str) -> Iterator[str]:
    start = f"{_INDENT}{label:<{_FIELD}}" if len(label) < _FIELD else f"{_INDENT}{label} "
    yield from _wrap(text, start, _INDENT + " " * _FIELD)


def _wrap(text: str, start: str, after: str) -> list[str]:
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
            {"port": port.port, "feeds": [str(ref) for ref in port.feeds], "control": port.control}
            for port in step.inputs
        ],
        "routing": None if step.routing is None else str(step.routing),
        "degree": {"least": step.degree.least, "most": step.degree.most},
        "fused_with": fused.get(step.name),
        "key": list(step.up.key) if step.inputs else [],
        "windows": [{"topic": topic, "says": text} for topic, text in explain_windows(step)],
        "gives": {
            port: {
                "columns": [{"name": field.name, "type": str(field.type)} for field in stream.schema],
                "time": None if stream.time is None else str(stream.time),
                "key": list(stream.key),
                "lost_key": None if stream.lost_key is None else list(stream.lost_key.key),
                "read_by": list(dict.fromkeys(name for name, _ in plan.readers(Ref(step.name, port)))),
                "collected": Ref(step.name, port) in plan.collects,
            }
            for port, stream in step.outputs.items()
        },
        "written": None if step.where is None else str(step.where),
    }


def explain_windows(step: Step) -> Explanations:
    """Return the choices for a step; nothing where it has no windows."""
    op = step.op
    if not isinstance(op, Windows):
        return
    why = f"chosen because {op.because}" if op.because else "asked for by name"
    yield "pattern", f"{op.pattern}, {why}; {DECOMPOSED[op.pattern]}"
    windows = _Windows(op, step.up)
    yield from windows.slices()
    yield from windows.algorithms()
    yield from windows.folds()
    yield from windows.rows()
    if op.device != AUTO:
        yield "device", f"{op.device}, asked for by name"
    else:
        # Only a run can tell whether its readers number rows, and whether its machine has a device.
        why_not = choices.why_not_cuda(op, step.up, totally_ordered=True) or choices.why_not_by_itself(op)
        yield "device", f"cpu: {why_not}" if why_not else "a CUDA device where the run has one, else cpu"
    yield from windows.memory()


class _Windows:
    """The windows of a step, and its aggregates by what is kept of them: numbers, a sketch, or rows."""

    def __init__(self, op: Windows, up: Stream) -> None:
        self.op, self.up = op, up
        self.windows = op.resolve(up).windows
        slicings = Slicing.groups([window for _, window in self.windows if isinstance(window, TimeWindow)])
        self.slicing = {window: slicing for slicing in slicings for window in slicing.windows}
        named, kinds = op.aggregates or {}, [window for _, window in self.windows]
        self.numbers = {n: a for n, a in named.items() if why_rows(a, up, totally_ordered=False) is None}
        self.sketched = {n: a for n, a in named.items() if choices.uses_sketch(a, kinds)}
        self.of_rows = {n: a for n, a in named.items() if n not in self.numbers and n not in self.sketched}

    def slices(self) -> Explanations:
        """Return the number of slices a slide and a window have, and who shares them."""
        for label, window in self.windows:
            named = f"{label}: {window}" if label else str(window)
            if isinstance(window, CountWindow):
                yield "slices", f"{named}: none of time; rows wait to be put in order, then panes of rows"
            elif isinstance(window, SessionWindow):
                yield "slices", f"{named}: none; where a session ends depends on its rows"
            elif not self.numbers and not self.sketched:
                yield "slices", f"{named}: none; only rows are kept"
            else:
                slicing = self.slicing[window]
                shared = ", shared with other windows" if len(slicing.windows) > 1 else ""
                per_slide = _most_slices(slicing, window.every, window.every)
                in_window = _most_slices(slicing, window.size, window.every)
                yield "slices", f"{named}: {per_slide} per slide, {in_window} in a window{shared}"

    def algorithms(self) -> Explanations:
        """Return how windows are put together, with the aggregates that it holds for."""
        labels: dict[int | None, list[str]] = {}  # by the most slices or panes of a window; None for sessions
        for label, window in self.windows:
            longest = None
            if isinstance(window, TimeWindow):
                longest = self.slicing[window].longest
            elif isinstance(window, CountWindow):
                longest = Slicing.of([TimeWindow(window.size, window.every)]).longest
            labels.setdefault(longest, []).append(label or str(window))
        for longest, windows in labels.items():
            about = f" in {', '.join(windows)}" if len(labels) > 1 else ""
            together: dict[str, list[str]] = {}
            for name, aggregate in {**self.numbers, **self.sketched}.items():
                way = "kept per open session, as rows come"
                if longest is not None:
                    way = choices.explain_method(longest)
                    if name in self.sketched:
                        way = "a sketch per slice; a window's are merged"
                together.setdefault(way, []).append(f"{name}={aggregate}")
            for way, names in together.items():
                yield "algorithm", f"{', '.join(names)}{about}: {way}"

    def folds(self) -> Explanations:
        """Return what is compiled, and why the rest is not."""
        for name, aggregate in (self.op.aggregates or {}).items():
            if isinstance(aggregate, Fold):
                why = choices.why_python(aggregate, self.up)
                how = "is compiled, if Numba can" if why is None else f"runs in Python: {why}"
                yield "fold", f"{name}={aggregate} {how}"

    def rows(self) -> Explanations:
        """Yield what the rows of windows are kept for, and why."""
        if self.op.function is not None:
            yield "keeps rows", f"for {self.op.function}: it sees whole windows"
        for name, aggregate in self.of_rows.items():
            why = why_rows(aggregate, self.up, totally_ordered=False)
            always = why_rows(aggregate, self.up, totally_ordered=True) is not None
            unless = "" if always else ", unless the reader numbers them"
            yield "keeps rows", f"for {name}={aggregate}{unless}: {why}"

    def memory(self) -> Explanations:
        """Return what grows with keys and what is open of their windows, and what with rows."""
        kinds = {type(window) for _, window in self.windows}
        # A cell has the row count first; aggregates of one value share accumulators.
        accumulators: list[tuple[AccumulatorKind, Aggregate]] = []
        for aggregate in self.numbers.values():
            accumulators += [
                (accumulator, aggregate)
                for accumulator in choices.accumulators_of(aggregate, self.up)
                if not any(
                    accumulator is other and _same_value(aggregate, known) for other, known in accumulators
                )
            ]
        n_numbers = 1 + sum(choices.width_of(accumulator, owner) for accumulator, owner in accumulators)
        cell, n = NUMBER * n_numbers, len(self.sketched)
        sketch = f" and {n} sketch{'es' if n > 1 else ''}" if n else ""
        if self.numbers or self.sketched:
            if TimeWindow in kinds:
                tree = max(slicing.longest for slicing in self.slicing.values()) > 1
                again = ", and as much again once a B-PAT is built" if tree else ""
                yield "memory", f"{cell} bytes{sketch} per key and open slice{again}"
            if SessionWindow in kinds:
                yield "memory", f"{cell + BOUNDS} bytes{sketch} per key and open session"
            if CountWindow in kinds:
                yield "memory", f"{cell + BOUNDS} bytes per key and pane of rows"
        if CountWindow in kinds:
            yield "memory", "every row of a count window until the watermark puts it in order"
        if self.of_rows or self.op.function is not None:
            yield "memory", "every row until its last window leaves"


def _most_slices(slicing: Slicing, size: int, every: int) -> int:
    """Return the most slices in a stretch of a size that begins where a window does."""
    starts = range(0, max(slicing.period, every), every)
    return max(slicing.id_of(start + size) - slicing.id_of(start) for start in starts)


def _same_value(one: Aggregate, other: Aggregate) -> bool:
    """Return whether two aggregates are of one value, so that they share accumulators of one kind."""
    if one.value is None or other.value is None:
        return one.value is other.value and not isinstance(one, Fold)
    return one.value.same_as(other.value)
