"""PipeGraph: the program. Sources start pipes, verbs add steps, and a run carries rows through them.

Steps are checked as they are added; `plan` checks the whole. What a graph says of itself, in words, as
data, as pictures and in WindFlow's algebra, runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, get_args

import pyarrow as pa

from penstock.caller import find_call_site
from penstock.errors import GraphError
from penstock.expr import Expr
from penstock.graph import run as runs
from penstock.graph.multipipe import MultiPipe
from penstock.graph.pipe import refuse_unknown
from penstock.graph.steps import Steps, locate_errors
from penstock.operators.ends import IngestTime, Source, WatermarkFromSource
from penstock.operators.op import OUT, Op
from penstock.operators.process import Process, ProcessOperator
from penstock.operators.rows import Split
from penstock.options import CollectSettings, RunSettings, StepOptions
from penstock.plan.check import build_plan
from penstock.plan.plan import Input, Plan, Ref
from penstock.timing.units import Duration

if TYPE_CHECKING:
    from penstock.blocks import PBB, Composition, Derivation
    from penstock.connect.protocol import Reader
    from penstock.engines.protocol import Engine, Run, RunResult

ExplainFormat = Literal["text", "json", "mermaid", "svg"]


class PipeGraph:
    """A graph of operators over streams.

    `engine` is what `run`, `start` and `collect` use unless they name another: "spark" (the default),
    "local" or "reference", or an Engine object. `steps` has the steps so far, by name, in the order they were
    written.

    >>> import penstock as ps
    >>> graph = ps.PipeGraph("doubles", engine="reference")
    >>> out = ps.write.memory()
    >>> pipe = graph.source(ps.read.rows([{"a": 1}, {"a": 2}]))
    >>> _ = pipe.with_columns(a=ps.col("a") * 2).sink(out)
    >>> _ = graph.run()
    >>> out.rows()
    [{'a': 2}, {'a': 4}]
    """

    def __init__(
        self,
        name: str,
        *,
        engine: str | Engine = "spark",
        chaining: bool = True,
        composition: Composition = "combined",
    ) -> None:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise GraphError(
                f"a graph needs a plain name, and got {name!r}",
                where=find_call_site(),
                hint='ps.PipeGraph("campaign-views")',
            )
        if composition != "combined":
            from penstock.blocks import Composition

            _check_choice("composition", composition, get_args(Composition))
        self.name = name
        self.engine = engine
        self.chaining = chaining
        self.composition = composition
        self.steps = Steps(fuse=chaining)

    def source(
        self,
        reader: Reader,
        *,
        time: str | IngestTime | None = None,
        time_unit: Literal["s", "ms", "us", "ns"] | None = None,
        delay: Duration | None = None,
        idle: Duration | None = None,
        watermark: str | Expr | Callable[[pa.RecordBatch], Any] | WatermarkFromSource | None = None,
        max_future: Duration | None = None,
        **options: Unpack[StepOptions],
    ) -> MultiPipe:
        """Start a pipe from a reader.

        time        the column that says when a row happened, or `ps.ingest_time()`
        time_unit   what an int64 time column counts: "s", "ms", "us" or "ns"
        delay       how far behind the latest row another one may come: rows behind that are late
        idle        ignore this source's watermark when it has been silent for this long
        watermark   a column, expression or function that knows better, or `ps.source_watermark()`
        max_future  refuse rows further ahead of the wall clock than this
        """
        refuse_unknown(Source.verb, options)
        make = partial(Source, reader, time, time_unit, delay, idle, watermark, max_future, **options)
        step = self.steps.add(make, stem=Source.verb, name=options.get("name"), inputs=(), fuse=False)
        return MultiPipe(self, (Ref(step),))

    def add_source(self, source: Source) -> MultiPipe:
        """Start a pipe from a `Source` object."""
        step = self.steps.add(lambda: source, stem=Source.verb, name=source.name, inputs=(), fuse=False)
        return MultiPipe(self, (Ref(step),))

    def operator(
        self,
        op: ProcessOperator | Op,
        *,
        inputs: Sequence[MultiPipe],
        control: Sequence[MultiPipe] = (),
        **options: Unpack[StepOptions],
    ) -> tuple[MultiPipe, ...]:
        """Attach an operator with several ports; return one MultiPipe per output port, in order.

        The options are for a `ProcessOperator`; an operator object has its own.
        """
        refuse_unknown("operator", options)
        with locate_errors(options.get("name") or getattr(op, "name", None) or "process", find_call_site()):
            if isinstance(op, Op) and options:
                raise GraphError(
                    f"{type(op).__name__} has options of its own, and got {next(iter(options))}= beside it",
                    hint=f"write it into the object: ps.{type(op).__name__}(..., {next(iter(options))}=...)",
                )
            whole = op if isinstance(op, Op) else Process(op, **options)
            feeds = connect_ports(whole, inputs, control, self)
        step = self.steps.add(lambda: whole, stem=whole.verb, name=whole.name, inputs=feeds, fuse=False)
        return tuple(MultiPipe(self, (Ref(step, port),)) for port in self.steps[step].outputs)

    def __getitem__(self, step: str) -> MultiPipe:
        """Return the pipe that a step made, by the step's name: `graph["views"].late`."""
        if step not in self.steps:
            raise self.steps.unknown(step).at(None, find_call_site())
        ports = list(self.steps[step].outputs)
        return MultiPipe(self, (Ref(step, OUT if OUT in ports or not ports else ports[0]),))

    def plan(self, *collects: MultiPipe) -> Plan:
        """Return the checked plan, which engines run. Raises everything that is wrong with the graph."""
        for pipe in collects:
            _ = pipe.stream  # raises for what is behind a sink
        refs = tuple(ref for pipe in collects for ref in pipe.feeds)
        return build_plan(self.name, tuple(self.steps.values()), collects=refs, composition=self.composition)

    def run(self, engine: str | Engine | None = None, **settings: Unpack[RunSettings]) -> RunResult:
        """Run to the end of the sources and return the accounts of every step.

        In the main thread SIGINT (Ctrl-C) and SIGTERM stop the run cleanly, unless the program handles them
        itself: rounds in progress are completed, state is saved, and KeyboardInterrupt or SystemExit(143) is
        raised. A second signal ends it at once.

        engine      "spark", "local" or "reference", or an Engine object; the graph's own when left out
        master      a Spark master, e.g. "spark://host:7077"; embedded when left out
        checkpoint  a folder that makes the run survive a crash
        renamed     the name of a step in the checkpoint -> its name now
        until       stop after this number of rounds
        drain       close all windows at the end; with a checkpoint they are kept for the next run if it is
                    left out
        options     `ps.LocalOptions(...)` or `ps.SparkOptions(...)`
        clock       what tells the time; the machine's by default
        events      a function that is called with every event of the run
        """
        with runs.handle_signals() as wait:
            return wait(runs.start(self.plan(), engine or self.engine, settings, "run"))

    def start(self, engine: str | Engine | None = None, **settings: Unpack[RunSettings]) -> Run:
        """Start a run and return a handle with `.wait()`, `.stop()`, `.status()` and `.metrics()`.

        In asyncio, `await handle.finished()` waits for the end. The settings are those of `run`.
        """
        return runs.start(self.plan(), engine or self.engine, settings, "start")

    def collect(
        self, *pipes: MultiPipe, engine: str | Engine | None = None, **settings: Unpack[CollectSettings]
    ) -> tuple[pa.Table, ...]:
        """Run what the pipes need, write no sink, and return their rows as tables, in order.

        The settings are those of `run`, but for the checkpoint.
        """
        with locate_errors(None, find_call_site()):
            if not pipes:
                raise GraphError(
                    "nothing to collect", hint="name the pipes: graph.collect(views, views.late)"
                )
            for pipe in pipes:
                if not isinstance(pipe, MultiPipe):
                    raise GraphError(
                        f"collect takes pipes, and got {type(pipe).__name__}",
                        hint="graph.collect(views, views.late)",
                    )
                if pipe.graph is not self:
                    raise GraphError(
                        f'a pipe of graph "{pipe.graph.name}" cannot be collected in "{self.name}"',
                        hint="collect it in its own graph: pipe.collect()",
                    )
        with runs.handle_signals() as wait:
            used = cast("RunSettings", settings)
            collected = wait(runs.start(self.plan(*pipes), engine or self.engine, used, "collect")).collected
        return tuple(pa.concat_tables([collected[ref] for ref in pipe.feeds]) for pipe in pipes)

    def blocks(self, *, composition: Composition | None = None) -> PBB:
        """Return the graph as a term of WindFlow's building-block algebra; `ps.blocks.count` measures it."""
        return self.derivation(composition=composition).term

    def derivation(self, *, composition: Composition | None = None) -> Derivation:
        """Return how the term is derived: which rule made which part of it."""
        # Why here: the algebra is loaded when somebody asks for it, and most runs do not.
        from penstock.plan.building_blocks import derive_blocks

        return derive_blocks(tuple(self.steps.values()), composition=composition or self.composition)

    def explain(self, engine: str | Engine | None = None, *, format: ExplainFormat = "text") -> str:
        """Describe the graph: its steps and schemas, its building blocks, and an engine's choices and why.

        format  "text"; "json", the same as data, with nothing cut; or a picture, "mermaid" or "svg", which
                shows everything, sink or not
        """
        _check_choice("format", format, get_args(ExplainFormat))
        if format in ("mermaid", "svg"):
            from penstock.plan import picture, svg

            draw = picture.to_mermaid if format == "mermaid" else svg.to_svg
            return draw(Plan(self.name, tuple(self.steps.values())))
        from penstock.plan.building_blocks import derive_blocks
        from penstock.plan.explain import explain_plan

        plan = self.plan()
        used = {step.name for step in plan}
        return explain_plan(
            plan,
            derivation=plan.derived or derive_blocks(plan.steps, composition=self.composition),
            engine=runs.resolve_engine(engine).explain(plan) if engine is not None else (),
            unused=[name for name in self.steps if name not in used],
            format="json" if format == "json" else "text",
        )

    def __repr__(self) -> str:
        return f"PipeGraph({self.name!r}, {len(self.steps)} steps)"


def connect_ports(
    op: Op, inputs: Sequence[MultiPipe], control: Sequence[MultiPipe], graph: PipeGraph
) -> tuple[Input, ...]:
    """Return what feeds the ports of an operator: pipes are matched with ports by position."""
    n_control = len(op.operator.control) if isinstance(op, Process) else 0
    ports = op.ports[: len(op.ports) - n_control]
    for pipes in (inputs, control):
        for pipe in pipes if isinstance(pipes, Sequence) else (pipes,):
            if not isinstance(pipes, Sequence) or not isinstance(pipe, MultiPipe):
                raise GraphError(
                    f"operator takes pipes, and got {type(pipe).__name__}",
                    hint="graph.operator(op, inputs=[a, b], control=[c])",
                )
    if len(inputs) != len(ports):
        raise GraphError(
            f"{len(inputs)} inputs were given, and the operator has {len(ports)}: {', '.join(ports)}",
            hint="give one pipe per input port, in order",
        )
    if len(control) > n_control:
        raise GraphError(
            f"{len(control)} control inputs were given, and the operator has {n_control}",
            hint='declare them in the class: control = ("limit",)',
        )
    pipes = [pipe._behind_one_operator() if isinstance(op, Split) else pipe for pipe in inputs]
    feeds = [pipe.as_input(port, graph) for port, pipe in zip(ports, pipes, strict=True)]
    feeds += [
        pipe.as_input(port, graph, control=True)
        for port, pipe in zip(op.ports[len(ports) :], control, strict=False)
    ]
    return tuple(feeds)


def _check_choice(option: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise GraphError(
            f"{option}={value!r} is unknown",
            where=find_call_site(),
            hint=f"use one of {', '.join(map(repr, choices))}",
        )
