"""A function that gets the rows of each micro-batch as a DataFrame, and writes them by any means of Spark.

Tasks write the rows to parquet files below the checkpoint; then the function is called where the graph was
started, with a DataFrame that reads them. Only there is the function needed: what travels to tasks has none.

A micro-batch after whose call the run died is done again, with the same id and the same rows. A function to
which a second call with an id makes no difference therefore writes exactly once.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.connect.protocol import Delivery
from penstock.connect.writers import staged_files
from penstock.connect.writers.folder import PARQUET, FolderWriter, remove_staged_files
from penstock.connect.writers.program import call_function
from penstock.connect.writers.staged_files import STAGED, StagedFile, translate_os_errors
from penstock.errors import ConnectorError, SchemaError
from penstock.frozen import Frozen

_GLOB = re.compile(r"[\\{}\[\]*?]")


class SparkFunctionWriter(Frozen):
    """A writer that calls a function with a DataFrame of each micro-batch.

    folder  a folder that tasks reach, of this sink alone; None until the engine has given one
    """

    function: Callable[[Any, int], object]
    folder: str | None = None

    delivery: ClassVar[Delivery] = Delivery.AT_LEAST_ONCE
    accepts_updates: ClassVar[bool] = True  # early results are rows too

    def __reduce__(self) -> tuple[object, ...]:
        # Why: tasks only stage. A function may hold what cannot travel, such as the session.
        return SparkFunctionWriter, (_refuse_call, self.folder)

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise SchemaError for columns that a DataFrame cannot tell apart."""
        by_lower_case: dict[str, str] = {}
        for name in schema.names:
            other = by_lower_case.setdefault(name.lower(), name)
            if other != name:
                raise SchemaError(
                    f'columns "{other}" and "{name}" are one for Spark, which takes no regard to case',
                    hint="rename one of them before the sink",
                )

    def in_folder(self, folder: str) -> SparkFunctionWriter:
        """Return the writer with a folder for its staged files, which is created."""
        with translate_os_errors(Path(folder)):
            (Path(folder) / STAGED).mkdir(parents=True, exist_ok=True)
        return replace(self, folder=folder)

    def stage(self, schema: pa.Schema, tag: str) -> staged_files.FolderStage:
        """Begin the files of one task."""
        return self._files().stage(schema, tag)

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> SparkFunctionOutput:
        """Begin a run; files that an earlier one has left are removed."""
        self.check_schema(schema)
        files = self._files()
        with translate_os_errors(files.folder):
            (files.folder / STAGED).mkdir(parents=True, exist_ok=True)
            remove_staged_files(files.folder)
        return SparkFunctionOutput(self.function, files, schema)

    def describe(self) -> str:
        """Return such as `spark save_batch`."""
        return f"spark {name_of(self.function)}"

    def _files(self) -> FolderWriter:
        """Return a writer that stages the files, and publishes none."""
        if self.folder is None:
            raise ConnectorError(
                "ps.write.spark calls its function with DataFrames, and this engine has none",
                hint='run the graph with engine="spark", or give a function of Arrow batches to '
                "ps.write.callback",
            )
        return FolderWriter(PARQUET, Path(self.folder), overwrite=True)


class SparkFunctionOutput(staged_files.StagingOutput):
    """Calls the function with each batch of files, in rising order, once in a run."""

    hint: ClassVar[str] = staged_files.REACH

    def __init__(
        self, function: Callable[[Any, int], object], files: FolderWriter, schema: pa.Schema
    ) -> None:
        super().__init__(files, schema, tag=f"{uuid4().hex}-")
        self._function = function

    def _publish_files(self, batch: int, files: Sequence[StagedFile], paths: Sequence[Path]) -> None:
        """Call the function with the rows of the files, and remove these."""
        n_rows = sum(file.n_rows for file in files)
        call_function(
            self._function,
            read_frame(paths, self._schema),
            batch,
            detail=f"it got micro-batch {batch}: {n_rows} rows of {', '.join(self._schema.names)}",
            hint="mend the function; the micro-batch will come again after a restart, under this number",
        )
        self._last = batch
        for path in paths:
            path.unlink(missing_ok=True)

    def _clean(self) -> None:
        remove_staged_files(self._folder)


def read_frame(paths: Sequence[Path], schema: pa.Schema) -> Any:
    """Return parquet files as a DataFrame of the running session, with the columns of the schema."""
    from pyspark.sql import SparkSession
    from pyspark.sql.pandas.types import from_arrow_schema

    session = SparkSession.builder.getOrCreate()
    columns = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    # Why the option: days before 1582 are those of Arrow, whatever the session says of old files of Spark's.
    reader = session.read.schema(columns).option("datetimeRebaseMode", "CORRECTED")
    names = [_GLOB.sub(r"\\\g<0>", str(path.absolute())) for path in paths]
    return reader.parquet(*(f"file://{name}" for name in names))


def _refuse_call(rows: Any, batch: int) -> None:
    raise AssertionError("tasks stage rows; the function is called where the graph was started")


def spark(function: Callable[[Any, int], object]) -> SparkFunctionWriter:
    """Call `function(df, batch_id)` for each micro-batch that has rows, with a PySpark DataFrame of them.

    It is called where the graph was started, and may write to anything that Spark writes to. The DataFrame
    can be read until the function returns. After a crash a micro-batch may come again, with the same id and
    the same rows: a function that takes care of that by the id writes exactly once.
    """
    if not callable(function):
        raise ConnectorError(
            f"{function!r:.80} cannot be called", hint="give a function: ps.write.spark(save_batch)"
        )
    try:
        inspect.signature(function).bind(None, 0)
    except ValueError:  # a builtin that does not say what it takes
        pass
    except TypeError as problem:
        raise ConnectorError(
            f"{name_of(function)} cannot be called with a DataFrame and the number of a micro-batch",
            where=find_definition(function),
            detail=f"calling it with these two: {problem}",
            hint="give a function of both: def save_batch(df, batch_id): ...",
        ) from problem
    return SparkFunctionWriter(function)
