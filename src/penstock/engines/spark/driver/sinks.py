"""Sinks at the end of a micro-batch: files that tasks have written become visible, rows reach the driver.

Sinks of files are published under the number of the micro-batch's last round. Sinks that live in the process
of the driver, and `collect`, take their rows piece by piece: few come with the reports of a job, more in a
file that a task has written beside the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.connect.protocol import ScratchWriter
from penstock.engines.checkpoint.state_files import StateFiles
from penstock.engines.ends import SinkWriter
from penstock.engines.spark.driver.epochs import PlannedRound
from penstock.engines.spark.driver.job_results import JobResult
from penstock.engines.spark.fragments import DRIVER, FILES, Edge, Fragments
from penstock.engines.wire import unpack_batch
from penstock.operators.ends import Sink
from penstock.plan.plan import Plan, Ref


def place_sinks(plan: Plan, folder: Path) -> Plan:
    """Return the plan with a folder for every sink whose rows are handed on by the driver, below `folder`."""
    steps = []
    for step in plan:
        if isinstance(step.op, Sink) and isinstance(step.op.writer, ScratchWriter):
            place = folder / "sinks" / quote((*step.history.former, step.name)[0], safe="")
            steps.append(replace(step, op=replace(step.op, writer=step.op.writer.in_folder(str(place)))))
        else:
            steps.append(step)
    return replace(plan, steps=tuple(steps))


class SinkDelivery:
    """What leaves a micro-batch: files for sinks, and rows for sinks of the driver and for `collect`."""

    def __init__(self, plan: Plan, fragments: Fragments, accounts: Mapping[str, Accounts]) -> None:
        self._plan, self._direct = plan, not fragments.fragments
        self._edges = [edge for edge in fragments.edges if edge.fragment == DRIVER]
        self.writers = {step.name: SinkWriter(step, accounts[step.name]) for step in plan.sinks}
        self._in_files = [step.name for step in plan.sinks if fragments.placement[step.name] == FILES]
        self.collected: dict[Ref, list[pa.RecordBatch]] = {ref: [] for ref in plan.collects}

    @property
    def last_rounds(self) -> dict[str, int]:
        """Return the last round that is visible in every sink that tasks write."""
        return {name: self.writers[name].last_committed for name in self._in_files}

    def write(self, round_: PlannedRound, result: JobResult, files: StateFiles) -> dict[str, int]:
        """Write a round to the sinks of the driver; return the number of rows of every sink."""
        number = round_.plan.number
        edges: dict[str, list[Edge]] = {name: [] for name in self.writers if name not in self._in_files}
        for edge in self._edges:
            if edge.step is None:
                self.collected[edge.ref] += self._rows(edge, round_, result, files)
            else:
                edges[edge.step].append(edge)
        written = {
            name: self.writers[name].write(
                number, chain.from_iterable(self._rows(edge, round_, result, files) for edge in of_sink)
            )
            for name, of_sink in edges.items()
        }
        return written | {name: counts[number] for name, counts in result.written.items()}

    def _rows(
        self, edge: Edge, round_: PlannedRound, result: JobResult, files: StateFiles
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows on an edge to the driver, a piece at a time."""
        number = round_.plan.number
        if self._direct:
            yield from (batch.rows for ref, batch in round_.batches if ref == edge.ref)
        for body in result.rows.get(edge.number, {}).get(number, []):
            yield unpack_batch(body, edge.schema).rows
        for file, edge_number, of_round, offset, nbytes in result.files:
            if (edge_number, of_round) == (edge.number, number):
                yield unpack_batch(files.read_rows(file, offset, nbytes), edge.schema).rows

    def publish(self, number: int, result: JobResult) -> None:
        """Make the files of a micro-batch visible, whose last round has this number."""
        for name in self._in_files:
            n_rows = sum(result.written.get(name, {}).values())
            self.writers[name].publish(number, result.staged.get(name, []), n_rows)

    def table(self, ref: Ref, first: int = 0) -> pa.Table:
        """Return the collected rows of a port, from batch `first` on."""
        schema = self._plan[ref.step].outputs[ref.port].schema
        return pa.Table.from_batches(self.collected[ref][first:], schema=schema)
