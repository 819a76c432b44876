"""Feed a pipe batch by batch and look at what comes out, to test a streaming program without streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any

from penstock import read
from penstock.accounts import Accounts
from penstock.caller import find_call_site
from penstock.clock import Clock, ManualClock
from penstock.connect.protocol import SourceBatch
from penstock.engines.deadlines import Deadlines
from penstock.engines.protocol import Engine, EngineHarness, RunOptions, RunResult
from penstock.errors import EngineError, GraphError, RowFailure, TimeError, nearest_first
from penstock.events import EventSink, ignore_event
from penstock.expr import from_python
from penstock.graph.multipipe import MultiPipe
from penstock.graph.run import refuse_gaps, resolve_engine
from penstock.graph.steps import locate_errors
from penstock.operators.ends import Source
from penstock.operators.op import ERRORS, LATE
from penstock.plan.plan import Ref
from penstock.timing.units import Duration, micros


class Harness:
    """Runs what is upstream of a pipe in this process, one batch at a time, on an engine named here.

    The graph's own engine plays no part: the default is "local".

    >>> import penstock as ps
    >>> from penstock.testing import Harness
    >>> graph = ps.PipeGraph("counts")
    >>> events = graph.source(ps.read.rows([], schema={"t": int}), time="t", time_unit="s", delay="0 s")
    >>> counts = events.window(ps.tumbling("10 s")).aggregate(n=ps.count())
    >>> harness = Harness(counts, engine="reference")
    >>> harness.push([{"t": 1}, {"t": 12}])
    >>> harness.take()
    [{'window_start': 0, 'window_end': 10, 'n': 1}]
    >>> harness.push([{"t": 2}])
    >>> harness.late()
    [{'t': 2}]
    """

    def __init__(
        self,
        pipe: MultiPipe,
        *,
        engine: str | Engine = "local",
        clock: Clock | None = None,
        events: EventSink = ignore_event,
    ) -> None:
        if not isinstance(pipe, MultiPipe) and not hasattr(pipe, "graph"):
            raise GraphError(
                f"Harness takes a pipe, and got {type(pipe).__name__}",
                where=find_call_site(),
                hint='Harness(graph["views"], engine="reference")',
            )
        self.clock: Clock = clock or ManualClock()
        self._pipe = pipe
        # Its own .late and .errors too, where it has them, so that they can be looked at.
        step = pipe.graph.steps[pipe.feeds[0].step]
        ports = [port for port in (LATE, ERRORS) if port in step.outputs and len(pipe.feeds) == 1]
        sides = [MultiPipe(pipe.graph, (Ref(step.name, port),)) for port in ports]
        self._plan = pipe.graph.plan(pipe, *sides)
        chosen = resolve_engine(engine)
        refuse_gaps(chosen, self._plan)
        self._deadlines = Deadlines(self._plan, self.clock.now())
        self._harness: EngineHarness = chosen.open_harness(
            self._plan, clock=self.clock, events=events, options=RunOptions()
        )

    def push(self, rows: Iterable[object], *, source: str | None = None) -> None:
        """Push a batch of rows (dicts, dataclasses or NamedTuples); name the source if there are several."""
        self.push_all({self._source(source): rows})

    def push_all(self, rows: Mapping[str, Iterable[object]]) -> None:
        """Push a batch to each named source at once, as one round."""
        batches = {self._source(name): self._batch(name, batch) for name, batch in rows.items()}
        self._harness.push(batches)
        with_rows = [name for name, batch in batches.items() if batch.num_rows]
        self._deadlines.end_round(self.clock.now(), with_rows)

    def watermark(self, time: int | datetime | date) -> None:
        """Say that no row before `time` will come any more, on any source; `time` as in the time column."""
        self._harness.promise(self._micros(time))

    def advance(self, duration: Duration) -> None:
        """Move the clock on, and run the rounds that it makes on the way, while no row comes.

        >>> import penstock as ps
        >>> graph = ps.PipeGraph("counts")
        >>> clicks = graph.source(ps.read.rows([], schema={"ad": int}), time=ps.ingest_time())
        >>> harness = Harness(clicks.window(ps.tumbling("1 s")).aggregate(n=ps.count()))
        >>> harness.push([{"ad": 1}, {"ad": 2}])
        >>> harness.advance("1 s")
        >>> [row["n"] for row in harness.take()]
        [2]
        """
        clock = self.clock
        if not isinstance(clock, ManualClock):
            raise EngineError(
                f"{type(clock).__name__} cannot be moved",
                where=find_call_site(),
                hint="leave clock= out, or give a ps.ManualClock()",
            )
        with locate_errors(None, find_call_site()):
            until = clock.now() + micros(duration)
        while (at := self._deadlines.next) is not None and at <= until:
            clock.advance(max(0, at - clock.now()))
            self._harness.push({})
            self._deadlines.end_round(clock.now(), ())
        clock.advance(until - clock.now())

    def take(self) -> list[dict[str, Any]]:
        """Return the rows that the pipe emitted since the last call."""
        return [dict(row) for ref in self._pipe.feeds for row in self._harness.take(ref).to_pylist()]

    def late(self) -> list[dict[str, Any]]:
        """Return the rows that went to the pipe's `.late` since the last call."""
        return self._take_side(LATE)

    def errors(self) -> list[dict[str, Any]]:
        """Return the rows that went to the pipe's `.errors` since the last call."""
        return self._take_side(ERRORS)

    def end(self) -> RunResult:
        """End every source: all windows close."""
        return self._harness.end()

    @property
    def accounts(self) -> Mapping[str, Accounts]:
        """Return what became of every row so far, by step."""
        return self._harness.metrics()

    def _take_side(self, port: str) -> list[dict[str, Any]]:
        for ref in self._plan.collects:
            if ref.port == port:
                return [dict(row) for row in self._harness.take(ref).to_pylist()]
        raise EngineError(
            f"the pipe under test has no .{port}",
            where=find_call_site(),
            hint='windows, joins and steps with state have late rows; errors need on_error="dead_letter"',
        )

    def _source(self, name: str | None) -> str:
        names = [step.name for step in self._plan.sources]
        if name is None and len(names) == 1:
            return names[0]
        if name not in names:
            known = ", ".join(nearest_first(name or "", names))
            raise EngineError(
                f"which source? {name!r} is none of {known}",
                where=find_call_site(),
                hint=f'name it: push(rows, source="{names[0]}")',
            )
        return name

    def _batch(self, name: str, rows: Iterable[object]) -> SourceBatch:
        op = self._plan[name].op
        assert isinstance(op, Source), "sources are steps with a Source"
        # Why: what is no iterable of rows, one row for instance, is passed on and refused by name.
        listed = list(rows) if isinstance(rows, Iterable) and not isinstance(rows, Mapping | str) else rows
        with locate_errors(name, find_call_site()):
            reader = read.batches([listed], schema=op.reader.schema)  # type: ignore[list-item]  # see above
        return next(iter(reader.batches()))

    def _micros(self, time: int | datetime | date) -> int:
        types = [next(iter(step.outputs.values())).time for step in self._plan.sources]
        type_ = next(filter(None, types), None)
        if type_ is None:
            raise EngineError(
                "no source of this pipe has event time, so there is no watermark to move",
                where=find_call_site(),
                hint='give it one: graph.source(reader, time="ts", delay="2 s")',
            )
        try:
            value = time if isinstance(time, int) else from_python(time, type_.type)
        except RowFailure:
            value = None
        if not isinstance(value, int):
            raise TimeError(
                f"{time!r} is not a time of the source",
                where=find_call_site(),
                hint=f"give a value of its time column, {type_}",
            )
        return type_.micros(value)
