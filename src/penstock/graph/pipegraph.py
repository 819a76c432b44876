"""Match pipes with the ports of an operator, by position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from penstock.caller import find_call_site
from penstock.clock import Clock
from penstock.errors import GraphError
from penstock.expr import Expr
from penstock.graph import run as running
from penstock.graph.explain import Explained
from penstock.graph.multipipe import MultiPipe
from penstock.graph.steps import Steps, placed
from penstock.operators.op import OUT, Op, Parallelism
from penstock.operators.process import Operator, Process
from penstock.operators.source import IngestTime, Source, Yielded
from penstock.operators.split import Split
from penstock.plan.check import checked_plan
from penstock.plan.plan import Input, Plan, Ref
from penstock.timing.duration import Duration

if TYPE_CHECKING:
    from penstock.blocks import Composition
    from penstock.connect.protocol import Reader
    from penstock.engines.protocol import Engine, Run, RunResult
    from penstock.events import EventSink


def not_a_pipe(given: object, verb: str) -> GraphError:
    """The error for something else where a pipe belongs."""
    hints = {
        "collect": "graph.collect(views, views.late)",
        "operator": "graph.operator(op, inputs=[a, b], control=[c])",
    }
    return GraphError(f"{verb} takes pipes, and got {type(given).__name__}", hint=hints[verb])


def wire(
    op: Op, inputs: Sequence[MultiPipe], control: Sequence[MultiPipe], graph: PipeGraph
) -> tuple[Input, ...]:
    """Match pipes with ports by position."""
    n_control = len(op.operator.control) if isinstance(op, Process) else 0
    ports = op.ports[: len(op.ports) - n_control]
    for given in (inputs, control):
        if not isinstance(given, Sequence):
            raise not_a_pipe(given, "operator")
        for pipe in given:
            if not isinstance(pipe, MultiPipe):
                raise not_a_pipe(pipe, "operator")
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
    whole = [pipe._one_operator() if isinstance(op, Split) else pipe for pipe in inputs]
    fed = [pipe.as_input(port, graph) for port, pipe in zip(ports, whole, strict=True)]
    fed += [
        pipe.as_input(port, graph, control=True)
        for port, pipe in zip(op.ports[len(ports) :], control, strict=False)
    ]
    return tuple(fed)


# PipeGraph: the program. Sources start pipes, verbs make steps, and a run carries rows through them.


class PipeGraph(Explained):
    """A graph of operators over streams.

    >>> import penstock as ps
    >>> graph = ps.PipeGraph("doubles")
    >>> out = ps.write.memory()
    >>> pipe = graph.source(ps.read.rows([{"a": 1}, {"a": 2}]))
    >>> _ = pipe.map(a=ps.col("a") * 2).sink(out)
    >>> _ = graph.run(engine="reference")
    >>> out.rows()
    [{'a': 2}, {'a': 4}]
    """

    def __init__(self, name: str, *, chaining: bool = True, composition: Composition = "combined") -> None:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise GraphError(
                f"a graph needs a plain name, and got {name!r}",
                where=find_call_site(),
                hint='ps.PipeGraph("campaign-views")',
            )
        if composition != "combined":
            _check_composition(composition)
        self.name = name
        self.chaining = chaining
        self.composition = composition
        self._steps = Steps(fuse=chaining)

    def source(
        self,
        reader: Reader,
        *,
        time: str | IngestTime | None = None,
        time_unit: str | None = None,
        delay: Duration | None = None,
        idle: Duration | None = None,
        watermark: str | Expr | Callable[[pa.RecordBatch], Any] | Yielded | None = None,
        max_future: Duration | None = None,
        name: str | None = None,
        parallelism: Parallelism = None,
        batch_size: int | None = None,
        on_error: str = "fail",
        dedicated: bool = False,
    ) -> MultiPipe:
        """Start a pipe from a reader.

        time        the column that says when a row happened, or `ps.ingest_time()`
        time_unit   what an int64 time column counts: "s", "ms", "us" or "ns"
        delay       how far behind the latest row another one may come: rows behind that are late
        idle        ignore this source's watermark when it has been silent so long
        watermark   a column, expression or function that knows better, or `ps.yielded()`
        max_future  refuse rows further ahead of the wall clock than this
        """

        def make() -> Op:
            return Source(
                reader,
                time=time,
                time_unit=time_unit,
                delay=delay,
                idle=idle,
                watermark=watermark,
                max_future=max_future,
                name=name,
                parallelism=parallelism,
                batch_size=batch_size,
                on_error=on_error,
                dedicated=dedicated,
            )

        return self._pipe(self._steps.add(make, stem=Source.verb, name=name, inputs=(), fuse=False))

    def add_source(self, source: Source) -> MultiPipe:
        """Start a pipe from a `Source` object."""
        return self._pipe(
            self._steps.add(lambda: source, stem=Source.verb, name=source.name, inputs=(), fuse=False)
        )

    def operator(
        self,
        op: Operator | Op,
        *,
        inputs: Sequence[MultiPipe],
        control: Sequence[MultiPipe] = (),
        name: str | None = None,
        parallelism: Parallelism = None,
        dedicated: bool = False,
    ) -> tuple[MultiPipe, ...]:
        """Attach an operator with several ports; gives one MultiPipe per output port, in order."""
        where = find_call_site()
        with placed(name or getattr(op, "name", None) or "process", where):
            options: dict[str, Any] = {"name": name, "parallelism": parallelism, "dedicated": dedicated}
            made = op if isinstance(op, Op) else Process(op, **options)
            wired = wire(made, inputs, control, self)
        step = self._steps.add(lambda: made, stem=made.verb, name=made.name, inputs=wired, fuse=False)
        return tuple(MultiPipe(self, (Ref(step, port),)) for port in self._steps[step].outputs)

    def __getitem__(self, step: str) -> MultiPipe:
        """The pipe that a step made, by the step's name: `graph["views"].late`."""
        if step not in self._steps:
            raise self._steps.unknown(step).at(None, find_call_site())
        ports = list(self._steps[step].outputs)
        return MultiPipe(self, (Ref(step, OUT if OUT in ports or not ports else ports[0]),))

    @property
    def steps(self) -> Steps:
        """The steps so far, by name, in the order they were written."""
        return self._steps

    def plan(self, *collects: MultiPipe) -> Plan:
        """The checked plan: what engines run. Raises everything that is wrong with the graph."""
        for pipe in collects:
            _ = pipe.stream  # raises for what is behind a sink
        refs = tuple(ref for pipe in collects for ref in pipe.feeds)
        return checked_plan(self.name, self._steps, collects=refs, composition=self.composition)

    def run(
        self,
        engine: str | Engine = "spark",
        *,
        master: str | None = None,
        checkpoint: str | None = None,
        until: int | None = None,
        drain: bool = True,
        options: object = None,
        clock: Clock | None = None,
        events: EventSink | None = None,
    ) -> RunResult:
        """Run to the end of the sources and give the accounts of every step.

        engine      "spark" (the default), "local" or "reference", or an Engine object
        master      a Spark master, e.g. "spark://host:7077"; embedded when left out
        checkpoint  a folder that makes the run survive a crash
        until       stop after so many rounds of batches
        drain       False keeps open windows for the next run instead of closing them at the end
        options     `ps.LocalOptions(...)` or `ps.SparkOptions(...)`
        """
        started = self.start(
            engine,
            master=master,
            checkpoint=checkpoint,
            until=until,
            drain=drain,
            options=options,
            clock=clock,
            events=events,
        )
        return running.wait(started)

    def start(
        self,
        engine: str | Engine = "spark",
        *,
        master: str | None = None,
        checkpoint: str | None = None,
        until: int | None = None,
        drain: bool = True,
        options: object = None,
        clock: Clock | None = None,
        events: EventSink | None = None,
    ) -> Run:
        """Start a run and give a handle with `.wait()`, `.stop()` and `.metrics()`."""
        asked = running.options_for(
            master=master, checkpoint=checkpoint, until=until, drain=drain, options=options
        )
        return running.start(self.plan(), engine, asked, clock=clock, events=events)

    def collect(
        self, *pipes: MultiPipe, engine: str | Engine = "local", **options: Any
    ) -> tuple[pa.Table, ...]:
        """Run what the pipes need, write no sink, and give their rows as tables, in order."""
        if not pipes:
            raise GraphError(
                "nothing to collect",
                where=find_call_site(),
                hint="name the pipes: graph.collect(views, views.late)",
            )
        for pipe in pipes:
            if not isinstance(pipe, MultiPipe):
                raise not_a_pipe(pipe, "collect").at(None, find_call_site())
            if pipe.graph is not self:
                raise GraphError(
                    f'a pipe of graph "{pipe.graph.name}" cannot be collected in "{self.name}"',
                    where=find_call_site(),
                    hint="collect it in its own graph: pipe.collect()",
                )
        return running.collect(self.plan(*pipes), [pipe.feeds for pipe in pipes], engine, options)

    def _pipe(self, step: str) -> MultiPipe:
        return MultiPipe(self, (Ref(step),))

    def __repr__(self) -> str:
        return f"PipeGraph({self.name!r}, {len(self._steps)} steps)"


def _check_composition(composition: object) -> None:
    from penstock.blocks import Composition

    if composition not in get_args(Composition):
        raise GraphError(
            f"composition={composition!r} is unknown",
            where=find_call_site(),
            hint=f"use one of {', '.join(map(repr, get_args(Composition)))}",
        )
