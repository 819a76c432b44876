"""What leaves a round: rows for sinks, written under the round's number, and rows that are collected."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

import pyarrow as pa

from penstock.engines.packed import unpack
from penstock.engines.spark.ahead import Ready
from penstock.engines.spark.came import Came
from penstock.engines.spark.legs import DRIVER, Edge, Legs
from penstock.engines.writing import Writing
from penstock.plan.accounts import Accounts
from penstock.plan.plan import Plan
from penstock.plan.step import Ref


class Delivering:
    """The sinks of a plan, and what is collected of it."""

    def __init__(self, plan: Plan, legs: Legs, accounts: Mapping[str, Accounts]) -> None:
        self._plan, self._accounts = plan, accounts
        self._edges = [edge for edge in legs.edges if edge.leg == DRIVER]
        self._writings = {step.name: Writing(step, accounts[step.name]) for step in plan.sinks}
        self.collected: dict[Ref, list[pa.RecordBatch]] = {ref: [] for ref in plan.collects}

    def open(self, known: Collection[str]) -> None:
        """Open all sinks; those that the checkpoint knows go on where they were."""
        for name, writing in self._writings.items():
            writing.open(resume=name in known, n_written=self._accounts[name].rows_out)

    def write(self, ready: Ready, came: Came) -> dict[str, int]:
        """Write a round and make it visible; gives the rows of every sink."""
        batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._writings}
        for edge in self._edges:
            rows = self._rows(edge, ready, came)
            if edge.step is None:
                self.collected[edge.ref] += rows
            else:
                batches[edge.step] += rows
        number = ready.plan.number
        return {name: writing.write(number, batches[name]) for name, writing in self._writings.items()}

    def table(self, ref: Ref, first: int = 0) -> pa.Table:
        """The collected rows of a port, from the given batch on."""
        schema = self._plan[ref.step].outputs[ref.port].schema
        return pa.Table.from_batches(self.collected[ref][first:], schema=schema)

    def close(self) -> list[Exception]:
        """Close all sinks, whatever happens to one of them; gives what went wrong."""
        return closed(self._writings.values())

    def _rows(self, edge: Edge, ready: Ready, came: Came) -> list[pa.RecordBatch]:
        schema = self._plan[edge.ref.step].outputs[edge.ref.port].schema
        here = [batch.rows for ref, batch in ready.batches if ref == edge.ref]
        there = came.rows.get(edge.number, {}).get(ready.plan.number, [])
        return here + [unpack(body, schema).rows for body in there]


class Closes(Protocol):
    """A reader or a writer at work."""

    def close(self) -> None:
        """Let go what it holds."""


def closed(all_of_them: Iterable[Closes]) -> list[Exception]:
    """Close everything; gives what went wrong."""
    failures = []
    for each in all_of_them:
        try:
            each.close()
        except Exception as failure:
            failures.append(failure)
    return failures
