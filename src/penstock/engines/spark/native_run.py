"""Programs of expressions alone: Spark's own plan from the scan to the files, which never meets Python.

Parquet files or a DataFrame, filters, columns and selections by expressions, and parquet files at the other
end: that is a plan that Spark runs best by itself. It writes below the staged folder of the sink, by its own
commit protocol, and the files are published as those of every other task are.

How many rows a filter dropped is known by difference: from the footers what came, from the files what left.
Between two filters, and where a row can fail, rows are observed on their way. If one failed, the rounds are
run again by the stages, which know what to do about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as kind
from pyspark.sql import Observation
from pyspark.sql import functions as F

from penstock.accounts import Accounts
from penstock.connect.writers.folder import FolderWriter
from penstock.connect.writers.staged_files import STAGED, StagedFile, sync_path
from penstock.engines.spark.expressions.columns import column
from penstock.engines.spark.file_splits import RemoteBatch, SourceFile
from penstock.engines.spark.fragments import FILES, Fragments
from penstock.engines.spark.jvm_source import OUTCOME, RemoteSource
from penstock.engines.spark.read_placement import SourcePipeline
from penstock.engines.spark.tasks import ALIVE, FAILED
from penstock.operators.ends import Sink
from penstock.operators.rows import Filter, WithColumns
from penstock.plan.plan import Plan, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NATIVE_ROWS = 256
"""So many rows count as one when a micro-batch is filled: only Spark sees them."""
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"


def native_sink(plan: Plan, pipeline: SourcePipeline, fragments: Fragments) -> Step | None:
    """Return the only sink of a plan that is nothing but a pipeline of expressions; None if it is more."""
    if len(plan.sources) != 1 or len(plan.sinks) != 1 or plan.collects:
        return None
    (sink,) = plan.sinks
    steps = {pipeline.source.name, *(step.name for step in pipeline.steps), sink.name}
    if {step.name for step in plan} != steps or sink.feeds != (pipeline.last,):
        return None
    assert isinstance(sink.op, Sink), "sinks write"
    writer = sink.op.writer
    if fragments.placement[sink.name] != FILES or not isinstance(writer, FolderWriter):
        return None
    if writer.format.name != "parquet" or writer.partition_by or not all(map(_is_native, sink.up.schema)):
        return None
    return sink if all(isinstance(step.op, Filter | WithColumns) for step in pipeline.steps) else None


def _is_native(field: pa.Field) -> bool:
    """Return whether Spark writes the column as Arrow would."""
    naive = kind.is_timestamp(field.type) and field.type.tz is None
    return not naive and not kind.is_nested(field.type)


class NativeRun:
    """Runs the rounds of such a program as one plan of Spark's."""

    def __init__(self, source: RemoteSource, sink: Step) -> None:
        self._source, self.sink = source, sink
        assert isinstance(sink.op, Sink), "sinks write"
        assert isinstance(sink.op.writer, FolderWriter), "it was chosen for that"
        self._writer = sink.op.writer
        source.rows_as_one = NATIVE_ROWS

    def write(
        self, batches: Sequence[RemoteBatch], tag: str
    ) -> tuple[list[StagedFile], dict[str, Accounts], Counter[int]]:
        """Write the rows of some batches to staged files.

        Returns the files, what became of the rows step by step, and how many had which outcome.
        """
        n_rows = sum(batch.n_rows for batch in batches)
        files = [file for batch in batches for file in batch.files]
        frame, observed = self._observe_rows(files)
        folder = Path(self._writer.folder).absolute() / STAGED / tag
        limit = self._writer.max_rows_per_file or 0
        frame.sparkSession.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
        frame.write.mode("errorifexists").option("maxRecordsPerFile", limit).parquet(folder.as_uri())
        counts = {place: observation.get for place, observation in observed.items()}
        outcomes = Counter({ALIVE: counts[None]["rows"], FAILED: counts[None]["failed"] or 0})
        if outcomes[FAILED]:
            return [], {}, outcomes
        return _list_files(folder, tag), self._accounts(n_rows, counts), outcomes

    def _observe_rows(self, files: Sequence[SourceFile]) -> tuple[DataFrame, dict[int | None, Observation]]:
        """Return the rows of the last step, and what is observed at its end and before later filters."""
        observed: dict[int | None, Observation] = {}

        def observe(frame: DataFrame, place: int | None) -> DataFrame:
            observed[place] = Observation()
            failed: Any = F.lit(0)
            if OUTCOME in frame.columns:
                failed = F.sum((column(OUTCOME) == FAILED).cast("long"))
            return frame.observe(observed[place], F.count(F.lit(1)).alias("rows"), failed.alias("failed"))

        frame = observe(self._source.frame(files, numbered=False, observe=observe), None)
        names = [column(name) for name in self.sink.up.schema.names]
        return frame.select(*names), observed

    def _accounts(self, n_rows: int, counts: dict[int | None, Any]) -> dict[str, Accounts]:
        places: list[int | None] = [*self._source.filters, None]
        # Before each filter, and behind the last.
        n_before = [n_rows, *(counts[place]["rows"] for place in places[1:])]
        dropped = (before - after for before, after in pairwise(n_before))
        return self._source.count_steps(n_rows, dict(zip(self._source.filters, dropped, strict=True)))


def _list_files(folder: Path, tag: str) -> list[StagedFile]:
    """Return the files that Spark has committed in a staged folder, once they are durable."""
    files = []
    for path in sorted(folder.glob("part-*")):
        sync_path(path)
        files.append(StagedFile(f"{tag}/{path.name}", "", 0, path.stat().st_size))
    sync_path(folder)
    return files
