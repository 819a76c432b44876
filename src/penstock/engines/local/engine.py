"""The in-process engine, as the engine registry loads it, and what `explain()` says of it.

Explained are which steps share a task, where rows go, and what scales on threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.accounts import Accounts
from penstock.clock import Clock, WallClock
from penstock.connect.protocol import may_wait
from penstock.engines.local import task_groups
from penstock.engines.local.options import resolve_settings
from penstock.engines.local.processes.pool import explain_workers
from penstock.engines.local.task_groups import Role, TaskGroup
from penstock.engines.protocol import Gap, RunOptions
from penstock.errors import NotSupported
from penstock.operators.ends import Source
from penstock.operators.function import RowFunction
from penstock.operators.op import JOIN, Routing
from penstock.operators.process import Process
from penstock.operators.rows import Filter, FlatMap, Map, Split, WithColumns, user_function
from penstock.operators.windows import DECOMPOSED, Windows
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Plan, Step
from penstock.stages.build import build_stage
from penstock.stages.stage import StageContext

if TYPE_CHECKING:
    from penstock.engines.local.run import LocalHarness, LocalRun
    from penstock.events import EventSink


_SPARK_HINT = 'run it with engine="spark", or say it with col(...)'
_WORKING = (WithColumns, Map, Filter, FlatMap, Split, Windows)
_PREAGGREGATED = "; with preaggregate=True rows are combined per slice and key before the exchange"


class LocalEngine:
    """Runs plans as co-routines on a pool of threads, in this process."""

    name = "local"

    def gaps(self, plan: Plan) -> Sequence[Gap]:
        """Return what this engine cannot run: expressions in Spark's SQL."""
        sql_steps = [(step.name, find_spark_sql(step.op)) for step in plan]
        return [Gap(name, f"{sql} runs on Spark only", _SPARK_HINT) for name, sql in sql_steps if sql]

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> LocalRun:
        """Start a run in threads of its own."""
        from penstock.engines.local.run import LocalRun

        settings = resolve_settings(options, plan)
        for step in plan:
            if options.checkpoint is not None and isinstance(step.op, Process):
                operator = type(step.op.operator).__name__
                raise NotSupported(
                    f"the state of {operator}, which has its own loop, cannot be saved",
                    step=step.name,
                    where=step.where,
                    hint="leave checkpoint out, or keep the state with key_by and state=",
                )
        return LocalRun(plan, settings, clock=clock, events=events, options=options)

    def open_harness(
        self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> LocalHarness:
        """Begin a run fed by hand."""
        from penstock.engines.local.run import LocalHarness

        if options.checkpoint is not None:
            raise NotSupported("a run fed by hand keeps no checkpoint", hint="leave checkpoint out")
        settings = resolve_settings(options, plan)
        return LocalHarness(plan, settings, clock=clock, events=events, options=options)

    def explain(self, plan: Plan) -> Sequence[str]:
        """Return one line per task group, then what scales on threads and what does not."""
        ordered = task_groups.totally_ordered_steps(plan)
        groups = task_groups.split_into_groups(plan, ordered=ordered)
        n_tasks = sum(group.width for group in groups)
        lines = [f"{n_tasks} co-routines on a pool of threads, by default one thread per core"]
        preaggregated = {
            name for group in task_groups.preaggregate_groups(groups, ordered) for name in group.preaggregates
        }
        for group in groups:
            line = _explain_group(group, groups)
            lines.append(
                line + _PREAGGREGATED * (group.head.name in preaggregated and group.role is Role.WHOLE)
            )
        for step in plan:
            lines += explain_join(step) if step.op.kind == JOIN else []
        gil_bound = [step.name for step in plan if holds_gil(step)]
        work = {
            "rows of one time are in order by the reader's numbers": sorted(ordered),
            "scale on threads (kernels, Arrow, compiled functions)": [
                step.name for step in plan if isinstance(step.op, _WORKING) and step.name not in gil_bound
            ],
            "plain Python, one thread at a time (the GIL)": gil_bound,
        }
        own_threads = {
            "with a thread of their own, because their readers wait": [
                step.name for step in plan if isinstance(step.op, Source) and may_wait(step.op.reader)
            ],
            "with a thread of their own, as written": [step.name for step in plan if step.op.dedicated],
        }
        lines += [f"{text}: {', '.join(names)}" for text, names in work.items() if names]
        lines += explain_workers(plan)
        return lines + [f"{text}: {', '.join(names)}" for text, names in own_threads.items() if names]


def explain_join(step: Step) -> list[str]:
    """Return the layout of a join's cells, how pairs are found, and what the model predicts (DP-Join, 5)."""
    from penstock.operators.join_predicate import Band, Equal
    from penstock.operators.stream_join import CENTRALISED, HANDSHAKE, StreamJoin
    from penstock.stages.join.model import ASSUMED_RATE, JoinLoad, pipeline_latency

    op = step.op
    assert isinstance(op, StreamJoin), "the only operator of its kind"
    left, right = (port.stream for port in step.inputs)
    bound = op.resolve(left, right)
    terms = op.match_terms(left, right)
    is_keyed = any(isinstance(term, Equal) for term in terms)
    has_bands = any(isinstance(term, Band) for term in terms)
    if is_keyed or has_bands:
        how = "a hash of the keys" if is_keyed else "a grid of the bands, where they are narrow, else a scan"
    else:
        how = "comparing all rows that may meet: the predicate is evaluated for each pair"
    layout = op.layout if isinstance(op.layout, tuple) else (1, 1)
    cells = {
        "auto": "layout auto: begins with one cell",
        CENTRALISED: "centralised: workers share one cell",
        HANDSHAKE: "handshake pipeline: both sides flow through its cells in opposite directions",
    }.get(str(op.layout), f"{layout[0]} x {layout[1]} cells")
    lines = [f"{step.name}: {cells}; partners are found by {how}"]
    if bound.last_rows is not None:
        return lines
    seconds = (bound.older_left / 1e6, bound.older_right / 1e6)
    load = JoinLoad.of_streams(op.rates or (ASSUMED_RATE, ASSUMED_RATE), seconds)
    source_of_rates = "" if op.rates else " (assumed: say rates=(left, right))"
    lines.append(f"{step.name}: predicted for a scan {load.describe(layout, source_of_rates)}")
    if op.layout == HANDSHAKE:
        lines.append(f"{step.name}: rows wait to meet, up to {pipeline_latency(seconds):.3g} s on average")
    return lines


def holds_gil(step: Step) -> bool:
    """Return whether a step runs plain Python row by row, of which the GIL lets one thread at a time."""
    op = step.op
    if isinstance(op, Windows):
        return op.function is not None
    if isinstance(op, Process) or op.stateful:
        return True
    if not isinstance(user_function(op), RowFunction):
        return False
    if not isinstance(op, Map | Filter | FlatMap):
        return True
    stage = build_stage(op, step.up, StageContext(step.name, step.where, Accounts(), WallClock()))
    lines: list[str] = stage.explain()  # type: ignore[attr-defined]  # every stage of a function has it
    return not any("is compiled by Numba" in line for line in lines)


def _explain_group(group: TaskGroup, groups: Sequence[TaskGroup]) -> str:
    """Return which steps share a task, how many replicas there are, and how rows reach them."""
    head, names = group.head, " + ".join(step.name for step in group.steps)
    if group.role is Role.MERGE:
        return f"{names}: {group.width} behind them merge the partial results"
    if _is_pipelined(group, groups):
        how = "each fed by the replica before it: no shuffle"
    elif group.role is Role.PARALLEL:
        assert isinstance(head.op, Windows), "only windows are decomposed"
        how = DECOMPOSED[head.op.pattern]
    elif task_groups.is_broadcast(head):
        how = "each gets every row"
    elif task_groups.is_keyed(head):
        how = f"rows by key ({', '.join(head.up.key) or 'none: one group'})"
    else:
        how = "forward from equally many, else batches round-robin, in order again behind them"
    if group.role is Role.WHOLE and task_groups.is_elastic(head):
        degree, moving = head.degree, ", and state moves with its keys" * task_groups.is_keyed(head)
        range_ = f"{degree.least} to {degree.most} replicas with elastic=ps.Elastic(), else {degree.least}"
        return f"{names}: {range_}; {how}{moving}"
    if group.width == 1:
        return f"{names}: one task" + (", fused" if len(group.steps) > 1 else "")
    return f"{names}: {group.width} replicas, {how}"


def _is_pipelined(group: TaskGroup, groups: Sequence[TaskGroup]) -> bool:
    """Return whether rows go from replica to replica (AIR, 3.4): forward, from equally many."""
    head = group.head
    if group.role is not Role.WHOLE or head.routing is not Routing.FORWARD or head.degree.most == 1:
        return False
    producers = [producer for ref in head.data_feeds for producer in groups if producer.runs(ref.step)]
    widths = {(producer.width, producer.head.degree.most) for producer in producers}
    if widths - {(group.width, head.degree.most)}:
        return False
    heads = [head, *(producer.head for producer in producers)]
    return group.width > 1 or all(map(task_groups.is_elastic, heads))
