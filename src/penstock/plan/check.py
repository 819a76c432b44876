"""Build a plan from the steps of a graph, with the checks that need all of them.

Refused are a graph without a sink, dead letters that nobody reads, early results that a sink cannot take,
input that a sink would remove, and merges that no rule of the algebra covers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.caller import find_call_site
from penstock.errors import GraphError
from penstock.expr import Expr
from penstock.expr.node import post_order
from penstock.expr.nodes.forms import SparkSql
from penstock.operators.ends import Sink, Source
from penstock.operators.function import Expressions
from penstock.operators.op import ERRORS, JOIN, OUT, OnError, Op
from penstock.operators.rows import Filter, FlatMap, Split, WithColumns
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import FINAL, Windows
from penstock.plan.plan import Plan, Ref, Step

if TYPE_CHECKING:
    from penstock.blocks import Composition


def build_plan(
    graph: str,
    steps: tuple[Step, ...],
    *,
    collects: tuple[Ref, ...] = (),
    composition: Composition = "combined",
) -> Plan:
    """Return the plan of what the sinks, or the collected ports, need; raise what is wrong with it."""
    by_name = {step.name: step for step in steps}
    wanted = [ref.step for ref in collects] or [step.name for step in steps if isinstance(step.op, Sink)]
    if not wanted:
        raise GraphError(
            f'graph "{graph}" has no sink, so nothing would come of it',
            where=find_call_site(),
            detail=f"its steps are {', '.join(by_name)}" if by_name else "it has no steps at all",
            hint="end a pipe with .sink(ps.write.memory()), or take rows in hand with pipe.collect()",
        )
    needed: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in needed:
            needed.add(name)
            wanted += [ref.step for ref in by_name[name].feeds]
    steps = tuple(step for step in steps if step.name in needed)
    sinks = {step.name for step in steps if isinstance(step.op, Sink)}
    derived = None
    # The algebra refuses merges that no rule covers, with relays or without. Where nothing merges and nothing
    # follows a sink there is nothing to refuse, and it is not loaded.
    if any(len(step.feeds) > 1 or sinks.intersection(ref.step for ref in step.feeds) for step in steps):
        from penstock.plan.building_blocks import derive_blocks, insert_relays

        try:
            derived = derive_blocks(steps, composition=composition)
        except GraphError as refusal:
            relayed = insert_relays(steps)
            if relayed is None:
                raise
            try:
                steps, derived = relayed, derive_blocks(relayed, composition=composition)
            except GraphError:  # it is something else, and the user did not write the relays
                raise refusal from None
    plan = Plan(graph, steps, collects, derived)
    for step in plan:
        if step.op.on_error == OnError.DEAD_LETTER or getattr(step.op, "early", None) is not None:
            _check_readers(step, plan)
    _refuse_own_input(plan)
    return plan


def _check_readers(step: Step, plan: Plan) -> None:
    """Raise if failed rows of a step go nowhere, or if its early results reach what cannot take them."""
    dead_letters = step.op.on_error == OnError.DEAD_LETTER and not plan.collects
    if dead_letters and not plan.is_read(Ref(step.name, ERRORS)):
        raise GraphError(
            f'dead-lettered rows of step "{step.name}" go nowhere',
            step=step.name,
            where=step.where,
            hint=f'sink them: graph["{step.name}"].errors.sink(...), or only count them: on_error="skip"',
        )
    if not isinstance(step.op, Windows) or step.op.early is None:
        return
    for reader in _steps_after_early(step.name, plan):
        below = plan[reader].op
        if isinstance(below, Windows) or below.kind == JOIN:
            raise GraphError(
                f'early results of step "{step.name}" reach step "{reader}", which would count them again',
                step=step.name,
                where=step.where,
                hint='keep only final results: .filter(col("final")) before it',
            )
        if isinstance(below, Sink) and not below.writer.accepts_updates:
            raise GraphError(
                f'early results of step "{step.name}" reach sink "{reader}", which cannot take updates',
                step=step.name,
                where=step.where,
                detail=f"it writes {below.writer.describe()}",
                hint='keep only final results, .filter(col("final")), or use a sink that accepts updates',
            )


def _refuse_own_input(plan: Plan) -> None:
    """Raise if a sink writes to a folder that the graph reads: starting it over would remove input."""
    files: dict[str, Any] = {}
    for step in plan:
        reader = step.op.table if isinstance(step.op, TableJoin) else getattr(step.op, "reader", None)
        if hasattr(reader, "reads_from"):
            files[step.name] = reader
    if not plan.sinks or not files:
        return
    from penstock.connect.writers.folder import FolderWriter

    for sink in plan.sinks:
        writer = sink.op.writer if isinstance(sink.op, Sink) else None
        for name, reader in files.items():
            if isinstance(writer, FolderWriter) and reader.reads_from(writer.folder):
                raise GraphError(
                    f'sink "{sink.name}" writes to "{writer.folder}", which step "{name}" reads',
                    step=sink.name,
                    where=sink.where,
                    hint="write to another folder",
                )


def _steps_after_early(name: str, plan: Plan) -> set[str]:
    """Return the steps below a window that may see results that are not final."""
    below: set[str] = set()
    waiting = [name]
    while waiting:
        step = plan[waiting.pop()]
        if isinstance(step.op, Filter) and str(step.op.how) == f'col("{FINAL}")':
            continue
        # Why: late and failed rows of the window itself are input rows, not results.
        ports = [OUT] if step.name == name else list(step.outputs)
        for reader in (consumer for port in ports for consumer, _ in plan.readers(Ref(step.name, port))):
            if reader not in below:
                below.add(reader)
                waiting.append(reader)
    return below


def find_spark_sql(op: Op) -> str | None:
    """Return the first piece of Spark SQL in an operator's expressions, or None."""
    expressions: list[object] = []  # none of operators that take functions only
    match op:
        case WithColumns() | FlatMap():
            if isinstance(op.how, Expressions):
                expressions += [expr for _, expr in op.how.columns]
        case Filter():
            expressions.append(op.how)
        case Split():
            expressions += [op.how, *(op.predicates or {}).values()]
        case Windows():
            expressions += [aggregate.value for aggregate in (op.aggregates or {}).values()]
        case Source():
            expressions.append(op.watermark)
    nodes = (node for expr in expressions if isinstance(expr, Expr) for node in post_order(expr))
    return next((str(node) for node in nodes if isinstance(node, SparkSql)), None)
