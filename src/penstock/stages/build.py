"""From an operator to the stage that does its work: one call for every engine.

Sources are `source.SourceStage`, because an engine feeds them what a reader cut; sinks are the engine's own
affair. The four window patterns with their degrees are `decompose` in `patterns/pattern.py`. A program uses
few of the stages, so each is imported where it is built: that keeps the start of a small program short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import NotSupported
from penstock.expr import Expr
from penstock.operators.function import BatchFunction, Expressions
from penstock.operators.op import Op, Stream
from penstock.operators.rows import Accumulate, Filter, FlatMap, Map, Relay, Split, WithColumns
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import Windows
from penstock.stages.stage import Stage, StageContext

if TYPE_CHECKING:
    from penstock.operators.stream_join import StreamJoin
    from penstock.stages.join.cell_places import CellPlace
    from penstock.stages.join.cells import RunCells
    from penstock.stages.join.stage import JoinStage


def build_join_stage(
    op: StreamJoin,
    left: Stream,
    right: Stream,
    site: StageContext,
    *,
    layout: tuple[int, int] = (1, 1),
    sharing: int = 1,
    run_cells: RunCells | None = None,
    place: CellPlace | None = None,
) -> JoinStage:
    """Return the stage of a join of two streams, which is fed by port.

    layout     (m, n): parts of the left and of the right
    sharing    the number of workers that share a cell
    run_cells  runs the searches of the cells side by side; None: one after the other
    place      which cell the stage is, if others are elsewhere; None: it has all rows
    """
    from penstock.stages.join.cell_places import WHOLE
    from penstock.stages.join.cells import run_in_turn
    from penstock.stages.join.last_rows import LastRowsJoinStage
    from penstock.stages.join.stage import JoinStage

    stage = JoinStage if op.last_rows is None else LastRowsJoinStage
    run = run_cells or run_in_turn
    return stage(op, left, right, site, layout=layout, sharing=sharing, run_cells=run, place=place or WHOLE)


def build_stage(op: Op, up: Stream, site: StageContext, *, totally_ordered: bool = False) -> Stage:
    """Return a stage for one replica of a step with one input; each replica has a site of its own.

    totally_ordered  batches come with one column of order in which no two rows are alike (`WindowStage`)
    """
    match op:
        case Windows():
            from penstock.stages.window.stage import WindowStage

            return WindowStage(op, up, site, totally_ordered=totally_ordered)
        case TableJoin():
            from penstock.stages.table_join import TableJoinStage

            return TableJoinStage(op, up, site)
        case Split() | Relay():
            return _build_split(op, up, site)
        case Accumulate():
            from penstock.stages.state.operators import AccumulateStage

            return AccumulateStage(op, up, site)
        case WithColumns() | Map() | Filter() | FlatMap():
            return _build_map(op, up, site)
    raise NotSupported(
        f"there is no stage for {type(op).__name__}",
        step=site.step,
        where=site.where,
        hint='run it with engine="reference"',
    )


def _build_map(op: WithColumns | Map | Filter | FlatMap, up: Stream, site: StageContext) -> Stage:
    from penstock.stages import map as stages

    if isinstance(op, WithColumns):
        return stages.ExpressionMap(op, up, site)
    classes: dict[type[Op], Callable[..., Stage]]
    if op.state is not None:
        from penstock.stages.state import operators

        classes = {Map: operators.StateMap, Filter: operators.StateFilter, FlatMap: operators.StateFlatMap}
    elif isinstance(op.how, BatchFunction):
        classes = {Map: stages.BatchMap, Filter: stages.BatchFilter, FlatMap: stages.BatchFlatMap}
    elif isinstance(op.how, Expr | Expressions):
        classes = {Filter: stages.ExpressionFilter, FlatMap: stages.ExpressionFlatMap}
    else:
        classes = {Map: stages.RowMap, Filter: stages.RowFilter, FlatMap: stages.RowFlatMap}
    return classes[type(op)](op, up, site)


def _build_split(op: Split | Relay, up: Stream, site: StageContext) -> Stage:
    from penstock.stages.split import IndexSplit, PredicateSplit, RelayStage, RowSplit

    if isinstance(op, Relay):
        return RelayStage(up, site)
    if op.predicates is not None:
        return PredicateSplit(op, up, site)
    return IndexSplit(op, up, site) if isinstance(op.how, Expr) else RowSplit(op, up, site)
