"""What came for a part of a fragment, unpacked: rows and parts, by round and step."""

from __future__ import annotations

import pyarrow as pa

from penstock.engines.spark.fragment_plan import FragmentPlan
from penstock.engines.spark.jvm.groups import GroupForm, apart, grouped
from penstock.engines.spark.wire import FATES, READ, WAKE, WireRow, from_wire, report
from penstock.engines.spark.worker.files import FileSplit
from penstock.engines.wire import unpack_batch
from penstock.stages.rows.batch import Batch


class FragmentInput:
    """What came for a part.

    rows   (round, step) -> batches
    parts  (round, step) -> parts of windows; packed ones are unpacked by the stage, which knows their columns
    files  round -> pieces of files that are to be read
    told   what is to be passed on to the driver
    """

    def __init__(self, plan: FragmentPlan) -> None:
        self._takers, self._joins = plan.takers, plan.joins
        self.rows: dict[tuple[int, str], list[Batch]] = {}
        self.parts: dict[tuple[int, str], list[bytes | Batch]] = {}
        self.files: dict[int, list[FileSplit]] = {}
        self.told: list[WireRow] = []
        self.part = 0

    def take_groups(self, batch: pa.RecordBatch, form: GroupForm) -> pa.RecordBatch:
        """Take what Spark has grouped; gives back what else is on the wire."""
        wire, groups = apart(batch, form)
        for each in grouped(groups, form):
            self.parts.setdefault((each.round, form.step), []).append(each.parts)
            self.told.append(report(FATES, each.round, self.part, each.told))
        return wire

    def take(self, batch: pa.RecordBatch) -> None:
        """Take what is on the wire."""
        for sent in from_wire(batch):
            self.take_sent(sent)

    def take_sent(self, sent: WireRow) -> None:
        """Unpack one row of the wire."""
        self.part = sent.part
        if sent.body is None or sent.edge == WAKE:
            return
        if sent.edge == READ:
            self.files.setdefault(sent.round, []).append(FileSplit.unpacked(sent.body))
        elif sent.edge in self._joins:
            self.parts.setdefault((sent.round, self._joins[sent.edge]), []).append(sent.body)
        else:
            step, schema = self._takers[sent.edge]
            self.rows.setdefault((sent.round, step), []).append(unpack_batch(sent.body, schema))
