"""The data source whose rows are what the driver loop plans, as Spark meets it in processes of its own.

    asked-3        Spark asks for micro-batch 3; the driver loop plans it then, and not before
    3.arrow        the wire rows of micro-batch 3, one record batch per task
    planned        how many micro-batches are planned; a negative number once the run is over

Spark starts a Python process for every query, and up to three more for the first, so this module imports
next to nothing: that is most of what a query costs at its start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

FORMAT = "penstock"
"""The name of the data source."""
POLL_S = 0.003
"""Seconds between looks into the folder."""
PATIENCE_S = 1.0
"""Seconds that Spark waits for a micro-batch before it asks again."""


class PlannedRows(InputPartition):  # type: ignore[misc]
    """The wire rows of one task."""

    def __init__(self, packed: bytes) -> None:
        self.packed = packed


class PlanReader(DataSourceStreamReader):  # type: ignore[misc]
    """What Spark asks of the driver loop, in the process in which Spark plans."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def initialOffset(self) -> dict[str, int]:
        """Return that no micro-batch has been planned."""
        return {"planned": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        """Ask for the next micro-batch, and return how many are planned after waiting a while."""
        n_done, deadline = start["planned"], time.monotonic() + PATIENCE_S
        (self._folder / f"asked-{n_done}").touch()
        while 0 <= (n_planned := _read_count(self._folder)) <= n_done and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return {"planned": max(n_planned, n_done)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return a partition for each task of the planned micro-batches."""
        tasks: list[InputPartition] = []
        for number in range(start["planned"], end["planned"]):
            # Why: Spark may repeat from its log what has not been planned in this run yet.
            while (n_planned := _read_count(self._folder)) <= number:
                if n_planned < 0:
                    raise RuntimeError("the run is over, and plans no more")
                (self._folder / f"asked-{number}").touch()  # raises once the run is over, and its folder gone
                time.sleep(POLL_S)
            with pa.ipc.open_file(pa.memory_map(str(self._folder / f"{number}.arrow"))) as file:
                for place in range(file.num_record_batches):
                    sink = pa.BufferOutputStream()
                    with pa.ipc.new_stream(sink, file.schema) as stream:
                        stream.write_batch(file.get_batch(place))
                    tasks.append(PlannedRows(sink.getvalue().to_pybytes()))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the wire rows of one task, in a worker."""
        assert isinstance(partition, PlannedRows), "partitions are made above"
        yield from pa.ipc.open_stream(partition.packed)

    def commit(self, end: dict[str, int]) -> None:
        """Remove the plans of micro-batches that are done."""
        for number in range(end["planned"]):
            for name in (f"{number}.arrow", f"asked-{number}"):
                (self._folder / name).unlink(missing_ok=True)


class PlanSource(DataSource):  # type: ignore[misc]
    """The data source `penstock`; the option `folder` says where Spark and the driver loop meet."""

    @classmethod
    def name(cls) -> str:
        """Return the name by which Spark finds it."""
        return FORMAT

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        return PlanReader(self.options["folder"])


def _read_count(folder: Path) -> int:
    with suppress(FileNotFoundError):
        return int((folder / "planned").read_text("ascii"))
    return 0
