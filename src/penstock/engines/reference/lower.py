"""From a step to the node that does its work: one rule per operator, an honest refusal for the rest."""

from __future__ import annotations

from functools import singledispatch

from penstock.engines.reference.batches import BatchFilterNode, BatchFlatMapNode, BatchMapNode
from penstock.engines.reference.joins import JoinNode
from penstock.engines.reference.node import Node, Site
from penstock.engines.reference.process import ProcessNode
from penstock.engines.reference.sinks import SinkNode
from penstock.engines.reference.source import SourceNode
from penstock.engines.reference.split import SplitNode
from penstock.engines.reference.state import AccumulateNode, StateFilterNode, StateFlatMapNode, StateMapNode
from penstock.engines.reference.stateless import (
    FilterNode,
    FlatMapNode,
    MapNode,
    RelayNode,
    Replicas,
    SelectNode,
)
from penstock.engines.reference.static_join import StaticJoinNode
from penstock.engines.reference.window_step import WindowNode
from penstock.errors import NotSupported
from penstock.expr import Expr
from penstock.operators.accumulator import Accumulator
from penstock.operators.filter import Filter
from penstock.operators.flat_map import FlatMap
from penstock.operators.function import BatchFunction, RowFunction
from penstock.operators.map import Map, Select
from penstock.operators.op import Op, Routing
from penstock.operators.process import Process
from penstock.operators.sink import Sink
from penstock.operators.source import Source
from penstock.operators.split import Relay, Split
from penstock.operators.static_join import StaticJoin
from penstock.operators.window_join import WindowJoin
from penstock.operators.windows import Windows

_COPIED = (Map, Select, Filter, FlatMap, Split, Relay, StaticJoin)
"""Operators whose every replica works on every row of a broadcast; the others have a routing of their own."""


def node_for(site: Site) -> Node:
    """The node of a step. The degree changes nothing, except that a broadcast copies rows per replica."""
    op = site.step.op
    if site.step.routing == Routing.BROADCAST and isinstance(op, _COPIED) and not op.stateful:
        replicas = site.step.degree.least
        if replicas > 1:
            return Replicas(site, [lower(op, site) for _ in range(replicas)])
    return lower(op, site)


@singledispatch
def lower(op: Op, site: Site) -> Node:
    """The node of one replica."""
    raise NotSupported(
        f"the reference engine has no rule for {type(op).__name__}",
        step=site.step.name,
        where=site.step.where,
        hint="add it in engines/reference/lower.py",
    )


@lower.register
def _source(op: Source, site: Site) -> Node:
    rank = [step.name for step in site.plan.sources].index(site.step.name)
    return SourceNode(site, op, rank)


@lower.register
def _map(op: Map, site: Site) -> Node:
    if isinstance(op.how, BatchFunction):
        return BatchMapNode(site, op.how)
    if op.state is not None and isinstance(op.how, RowFunction):
        return StateMapNode(site, op.how, op.state)
    return MapNode(site, op.how)


@lower.register
def _filter(op: Filter, site: Site) -> Node:
    if isinstance(op.how, Expr):
        return FilterNode(site, op.how)
    if isinstance(op.how, BatchFunction):
        return BatchFilterNode(site, op.how)
    return StateFilterNode(site, op.how, op.state) if op.state is not None else FilterNode(site, op.how)


@lower.register
def _flat_map(op: FlatMap, site: Site) -> Node:
    if isinstance(op.how, BatchFunction):
        return BatchFlatMapNode(site, op.how)
    if op.state is not None and isinstance(op.how, RowFunction):
        return StateFlatMapNode(site, op.how, op.state)
    return FlatMapNode(site, op.how)


@lower.register
def _relay(op: Relay, site: Site) -> Node:
    return RelayNode(site)


lower.register(Select, lambda op, site: SelectNode(site, op))
lower.register(Split, lambda op, site: SplitNode(site, op))
lower.register(StaticJoin, lambda op, site: StaticJoinNode(site, op))
lower.register(Accumulator, lambda op, site: AccumulateNode(site, op))
lower.register(Windows, lambda op, site: WindowNode(site, op))
lower.register(WindowJoin, lambda op, site: JoinNode(site, op))
lower.register(Process, lambda op, site: ProcessNode(site, op))
lower.register(Sink, lambda op, site: SinkNode(site, op))
