"""The queries in PySpark's Structured Streaming, written as in its manual: a file stream, its own windows.

Rows are parquet files, a million each, and the run takes what is there (`availableNow`), all files as one
micro-batch, which is quickest. A view and a click a day later close the last windows: only closed ones leave.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
from child import Rows, serve
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

CORES = 2
ROWS_PER_FILE = 1_000_000
DAY_US = 86_400_000_000
SCHEMA = "ts timestamp, ad long, event_type long"


class Views:
    """YSB: views per campaign and ten seconds."""

    columns: tuple[str, ...] = ("campaign", "start", "n")

    def prepare(self, folder: Path) -> None:
        """Write the events as files, and open a session."""
        self.spark = open_spark()
        self.files = folder / "parquet"
        if not self.files.exists():
            write_files(folder / "events.arrow", self.files)
        campaigns = pyarrow.ipc.open_file(folder / "campaigns.arrow").read_all()
        self.campaigns = F.broadcast(self.spark.createDataFrame(campaigns.to_pandas()))

    def frame(self) -> Any:
        """Return the query."""
        return self._count(0)

    def _events(self) -> Any:
        events = self.spark.readStream.schema(SCHEMA).parquet(str(self.files))
        return events.withWatermark("ts", "0 seconds")

    def _count(self, kind: int) -> Any:
        joined = self._events().filter(F.col("event_type") == kind).join(self.campaigns, "ad")
        return joined.groupBy(F.window("ts", "10 seconds"), "campaign").agg(F.count(F.lit(1)).alias("n"))

    def run(self) -> None:
        """Run the query over all files."""
        self.rows: list[Any] = []
        frame = self.frame().withColumn("start", F.unix_micros(F.col("window.start")))
        run_query(frame.select(*self.columns), "append", self.rows.extend)

    def answer(self) -> Rows:
        """Return campaign, window start in microseconds, views."""
        return [list(row) for row in self.rows]


class Counts(Views):
    """SWA: all rows per ten seconds."""

    columns = ("start", "n")

    def frame(self) -> Any:
        """Return the query."""
        return self._events().groupBy(F.window("ts", "10 seconds")).agg(F.count(F.lit(1)).alias("n"))


class Ratios(Views):
    """YSB*: views and clicks per campaign and ten seconds, joined by window, and the ratio of the two."""

    def frame(self) -> Any:
        """Return the query."""
        views, clicks = self._count(0), self._count(1).withColumnRenamed("n", "clicks")
        joined = views.join(clicks, ["window", "campaign"])
        return joined.withColumn("n", F.col("clicks") / F.col("n"))


class Words:
    """WordCount: the count of each word."""

    def prepare(self, folder: Path) -> None:
        """Give the file a folder of its own, since Spark streams folders."""
        self.spark = open_spark()
        self.files = folder / "lines"
        self.files.mkdir(exist_ok=True)
        file = self.files / "lines.txt"
        if not file.exists():
            file.hardlink_to(folder / "lines.txt")

    def run(self) -> None:
        """Run the query over all lines."""
        self.rows: list[Any] = []
        lines = self.spark.readStream.text(str(self.files))
        words = lines.select(F.explode(F.split("value", " ")).alias("word"))
        run_query(words.groupBy("word").count(), "complete", self._replace)

    def _replace(self, rows: list[Any]) -> None:
        self.rows = rows

    def answer(self) -> Rows:
        """Return word and count."""
        return [[word, n] for word, n in self.rows if word]


def run_query(frame: Any, mode: str, take: Any) -> None:
    """Run a streaming query to the end of its input; `take` gets the rows of each micro-batch."""
    with tempfile.TemporaryDirectory(prefix="pyspark-peer-") as folder:
        writer = frame.writeStream.outputMode(mode).foreachBatch(lambda rows, number: take(rows.collect()))
        query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()


def write_files(source: Path, folder: Path) -> None:
    """Write events as parquet files, with rows behind them that close the last windows."""
    table = pyarrow.ipc.open_file(source).read_all().select(["time", "ad", "event_type"])
    last = table.column("time")[-1].as_py() + DAY_US
    ends = pa.table({"time": [last, last], "ad": [0, 0], "event_type": [0, 1]})
    table = pa.concat_tables([table, ends.cast(table.schema)])
    stamps = table.column("time").cast(pa.timestamp("us", "UTC"))
    table = table.set_column(0, "ts", stamps)
    folder.mkdir()
    for number, start in enumerate(range(0, table.num_rows, ROWS_PER_FILE)):
        part = table.slice(start, ROWS_PER_FILE)
        pyarrow.parquet.write_table(part, folder / f"{number:05d}.parquet")


def open_spark() -> SparkSession:
    """Return a session with a partition per core, in UTC."""
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("peer")
    settings = {
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


if __name__ == "__main__":
    serve({"swa": Counts, "ysb": Views, "ysb-star": Ratios, "word-count": Words})
