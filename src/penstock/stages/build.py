"""From an operator to the stage that does its work: one call for every engine.

Sources are `source.SourceStage`, because an engine feeds them what a reader cut; sinks are the engine's own
affair. The four window patterns with their degrees are `patterns.decompose`. A program uses few of the
stages, so each is imported where it is built: that keeps the start of a small program short.
"""

from __future__ import annotations

from functools import singledispatch

from penstock.errors import NotSupported
from penstock.expr import Expr
from penstock.operators.function import BatchFunction, Expressions
from penstock.operators.op import Op, Stream
from penstock.operators.rows import Accumulate, Filter, FlatMap, Map, Relay, Split, WithColumns
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import Windows
from penstock.stages.stage import Stage, StageContext


def build_stage(op: Op, up: Stream, site: StageContext, *, totally_ordered: bool = False) -> Stage:
    """Returns a stage for one replica of a step with one input; each replica has a site of its own.

    totally_ordered  batches come with one column of order in which no two rows are alike (`WindowStage`)
    """
    if isinstance(op, Windows):
        from penstock.stages.window.stage import WindowStage

        return WindowStage(op, up, site, totally_ordered=totally_ordered)
    return _build(op, up, site)


@singledispatch
def _build(op: Op, up: Stream, site: StageContext) -> Stage:
    raise NotSupported(
        f"there is no stage for {type(op).__name__}",
        step=site.step,
        where=site.where,
        hint='run it with engine="reference"',
    )


@_build.register(WithColumns)
def _build_with_columns(op: WithColumns, up: Stream, site: StageContext) -> Stage:
    from penstock.stages.map import ExpressionMap

    return ExpressionMap(op, up, site)


@_build.register(Map)
def _build_map(op: Map, up: Stream, site: StageContext) -> Stage:
    if op.state is not None:
        from penstock.stages.state.keyed import StateMap

        return StateMap(op, up, site)
    from penstock.stages.map import BatchMap, RowMap

    return BatchMap(op, up, site) if isinstance(op.how, BatchFunction) else RowMap(op, up, site)


@_build.register(Filter)
def _build_filter(op: Filter, up: Stream, site: StageContext) -> Stage:
    if op.state is not None:
        from penstock.stages.state.keyed import StateFilter

        return StateFilter(op, up, site)
    from penstock.stages.map import BatchFilter, ExpressionFilter, RowFilter

    if isinstance(op.how, Expr):
        return ExpressionFilter(op, up, site)
    return BatchFilter(op, up, site) if isinstance(op.how, BatchFunction) else RowFilter(op, up, site)


@_build.register(FlatMap)
def _build_flat_map(op: FlatMap, up: Stream, site: StageContext) -> Stage:
    if op.state is not None:
        from penstock.stages.state.keyed import StateFlatMap

        return StateFlatMap(op, up, site)
    from penstock.stages.map import BatchFlatMap, ExpressionFlatMap, RowFlatMap

    if isinstance(op.how, Expressions):
        return ExpressionFlatMap(op, up, site)
    return BatchFlatMap(op, up, site) if isinstance(op.how, BatchFunction) else RowFlatMap(op, up, site)


@_build.register(Split)
def _build_split(op: Split, up: Stream, site: StageContext) -> Stage:
    from penstock.stages.split import IndexSplit, PredicateSplit, RowSplit

    if op.predicates is not None:
        return PredicateSplit(op, up, site)
    return IndexSplit(op, up, site) if isinstance(op.how, Expr) else RowSplit(op, up, site)


@_build.register(Relay)
def _build_relay(op: Relay, up: Stream, site: StageContext) -> Stage:
    from penstock.stages.split import RelayStage

    return RelayStage(up, site)


@_build.register(TableJoin)
def _build_table_join(op: TableJoin, up: Stream, site: StageContext) -> Stage:
    from penstock.stages.table_join import TableJoinStage

    return TableJoinStage(op, up, site)


@_build.register(Accumulate)
def _build_accumulate(op: Accumulate, up: Stream, site: StageContext) -> Stage:
    from penstock.stages.state.keyed import AccumulateStage

    return AccumulateStage(op, up, site)
