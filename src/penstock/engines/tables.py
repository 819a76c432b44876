"""Joined tables are read once and travel with the steps that look rows up in them.

A worker need not see the file, and all replicas look into the same table.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.connect.readers.table import table
from penstock.errors import PenstockError
from penstock.operators.static_join import StaticJoin
from penstock.plan.plan import Plan
from penstock.plan.step import Step


def with_tables(plan: Plan) -> Plan:
    """The plan with every joined table in hand."""
    return replace(plan, steps=tuple(_with_table(step) for step in plan))


def _with_table(step: Step) -> Step:
    if not isinstance(step.op, StaticJoin):
        return step
    try:
        return replace(step, op=replace(step.op, table=table(step.op.load())))
    except PenstockError as problem:
        raise problem.at(step.name, step.where) from None
