"""A source at work in a Python worker: reads its share of the input, gives rows their time, finds bad ones.

Where a footer proves that every time is valid, `file_splits.py` reads faster. Everything else is read here,
by the same source stage as in process: text, files whose times must be looked at, rows that Spark hands over.
The driver learns from a report per split how many rows there were, what became of them, and how far the
watermark may move.

Reading changes nothing, so a task that is tried again gives the same rows under the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.connect.batching import RowRange, to_source_batch
from penstock.connect.conversion import cast_batch
from penstock.connect.protocol import SourceBatch
from penstock.connect.readers.file_identity import FileRange
from penstock.connect.readers.file_journal import ListedFile
from penstock.connect.readers.files import FileReader
from penstock.connect.readers.input_format import FilePart
from penstock.engines.wire import failure_to_dict
from penstock.errors import ConnectorError, PenstockError, describe_cause
from penstock.expr import Expr
from penstock.frozen import Frozen
from penstock.operators.ends import WatermarkFromSource
from penstock.plan.plan import Step
from penstock.stages.rows.batch import Batch
from penstock.stages.source import SourceStage
from penstock.stages.stage import StageContext
from penstock.timing.windows import BEFORE_ALL

_MAX_READERS = 8
"""Sources that are read batch by batch and stay open in one worker; the oldest are dropped."""


class SourceSplit(Frozen):
    """What one task reads of a source.

    batch      the number of the batch that the rows belong to
    now        what the clock said when the batch was planned
    parts      of files: path, first, last, the number of the file's first row, and what is read of the file
    n_bytes    of all parts, about
    n_batches  0; or how many batches to read from `batch` on, where the reader cuts them by rows
    max_rows   stop behind the batch that reaches so many rows
    files      look, number, path, first and last byte of the files from there on, if the reader cuts by rows
    position   where to begin in them
    scan       only look whether the parts hold quotes, before they are cut (`InputFormat.needs_scan`)
    """

    source: str
    batch: int
    now: int
    parts: tuple[tuple[Any, ...], ...] = ()
    n_bytes: int = 0
    n_batches: int = 0
    max_rows: int = 0
    files: tuple[tuple[Any, ...], ...] = ()
    position: Any = None
    scan: bool = False

    def to_bytes(self) -> bytes:
        """Return the body of a wire row of kind SOURCE_READ."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> SourceSplit:
        """Return the split of such a body."""
        fields = json.loads(body)
        lists = {name: tuple(map(tuple, fields[name])) for name in ("parts", "files")}
        return cls(**{**fields, **lists})


class SourceReport(Frozen):
    """What a source stage found in a split, or in one batch of it.

    order      of the split among those of its batch: the first failure in this order counts
    watermark  how far the source has come by these rows alone, in microseconds; None if they do not tell
    accounts   what became of the rows
    reason     why a row failed, where one did
    failure    what stops the run
    ended      there are no more batches
    quoted     a file that holds quotes
    position   where to go on behind the batch, if the reader cuts batches by rows
    """

    source: str
    batch: int
    order: int = 0
    watermark: int | None = None
    accounts: Mapping[str, Any] | None = None
    reason: str | None = None
    failure: Mapping[str, Any] | None = None
    ended: bool = False
    quoted: str | None = None
    position: Any = None


Read = tuple[int, str, Batch] | SourceReport
"""A batch of rows with the number of the source's batch and the port that they leave by; or a report."""


class SourceReadPlan(Frozen):
    """How a source is read in workers.

    run   tells runs apart
    step  the source; of a reader that cannot travel only the columns are left
    rank  of the source among several; None in a graph with one
    """

    run: str
    step: Step
    rank: int | None

    def read(self, split: SourceSplit) -> Iterator[Read]:
        """Yield the rows of a split, and reports."""
        if split.n_batches:
            yield from self._read_batches(split)
            return
        reader = self.step.as_source.reader
        assert isinstance(reader, FileReader), "only files are read in parts"
        if split.scan:
            for path, first, last, *_ in split.parts:
                if reader.format.scan(FilePart(path, first, last)):
                    yield SourceReport(self.step.name, split.batch, quoted=path)
            return

        def ranges() -> Iterator[RowRange]:
            for path, first, last, start, begin, end in split.parts:
                yield from reader.read_part(FilePart(path, first, last, begin, end), start)

        whole = self.needs_whole_batch
        batches = [ranges()] if whole else ([rows] for rows in ranges())
        order = split.parts[0][1] if split.parts else 0
        yield from self._run_stage(
            split, order, (to_source_batch(list(rows), reader.schema) for rows in batches)
        )

    def read_rows(self, split: SourceSplit, columns: Iterable[pa.RecordBatch], order: int) -> Iterator[Read]:
        """Yield rows that Spark hands over, with times, and a report."""
        schema = self.step.as_source.reader.schema
        batches: Iterable[SourceBatch] = (SourceBatch(cast_batch(batch, schema)) for batch in columns)
        if self.needs_whole_batch:
            whole = pa.Table.from_batches([batch.rows for batch in batches], schema=schema)
            (rows,) = whole.combine_chunks().to_batches() or [schema.empty_table().to_batches()[0]]
            batches = [SourceBatch(rows)]
        yield from self._run_stage(split, order, batches)

    @property
    def needs_whole_batch(self) -> bool:
        """Return whether the watermark is a function of a batch, which must see all of its rows."""
        time = self.step.as_source.resolve()
        rule = None if time is None else time.rule
        return rule is not None and not isinstance(rule, Expr | WatermarkFromSource)

    def _run_stage(
        self, split: SourceSplit, order: int, batches: Iterable[SourceBatch], position: Any = None
    ) -> Iterator[Read]:
        """Give the rows of one batch their times; every failure becomes part of the report."""
        report = SourceReport(self.step.name, split.batch, order, position=position)
        reasons: list[str] = []
        accounts, clock = Accounts(), ManualClock(split.now)
        try:
            context = StageContext(self.step.name, self.step.where, accounts, clock, reasons=reasons)
            stage = SourceStage(self.step.as_source, context, rank=self.rank)
            for batch in batches:
                for port, rows in stage.on_read(batch):
                    yield split.batch, port, rows
            watermark = None if stage.watermark == BEFORE_ALL else int(stage.watermark)
            report = replace(report, watermark=watermark)
        except Exception as problem:
            failure = problem
            if not isinstance(failure, PenstockError):
                reader = self.step.as_source.reader
                failure = ConnectorError(
                    f"could not read {reader.describe()}", detail=describe_cause(problem)
                )
            report = replace(report, failure=failure_to_dict(failure.at(self.step.name, self.step.where)))
        reason = reasons[-1] if reasons else None
        yield replace(report, accounts=accounts.to_dict(), reason=reason)

    def _read_batches(self, split: SourceSplit) -> Iterator[Read]:
        """Yield whole batches as the reader cuts them, until there are enough rows."""
        n_rows, batch = 0, split.batch
        batches = _resume_batches(self, split)
        for batch in range(split.batch, split.batch + split.n_batches):
            one = replace(split, batch=batch)
            try:
                rows = next(batches, None)
            except Exception as problem:
                yield from self._run_stage(one, 0, _raise(problem))
                return
            if rows is None:
                yield SourceReport(self.step.name, batch, ended=True)
                return
            yield from self._run_stage(one, 0, [rows], rows.position)
            n_rows += rows.num_rows
            if n_rows >= split.max_rows:
                break
        _keep_batches(self, batch + 1, batches)


_OPEN: dict[tuple[str, str], tuple[int, Iterator[SourceBatch]]] = {}
"""(run, source) -> the number of its next batch here, and the batches from there on."""


def _resume_batches(plan: SourceReadPlan, split: SourceSplit) -> Iterator[SourceBatch]:
    """Return the batches from the split's first on: where this worker stopped, or at the split's position."""
    number, batches = _OPEN.pop((plan.run, plan.step.name), (-1, iter(())))
    if number == split.batch:
        return batches
    reader = plan.step.as_source.reader
    assert isinstance(reader, FileReader), "only files are cut elsewhere"
    files = (
        ListedFile(listing, number, FileRange(path, first, last))
        for listing, number, path, first, last in split.files
    )
    return reader.cut_by_rows(files, split.position)


def _keep_batches(plan: SourceReadPlan, number: int, batches: Iterator[SourceBatch]) -> None:
    _OPEN[plan.run, plan.step.name] = number, batches
    for old in list(_OPEN)[:-_MAX_READERS]:
        with suppress(Exception):
            del _OPEN[old]


def _raise(problem: Exception) -> Iterator[SourceBatch]:
    raise problem
    yield
