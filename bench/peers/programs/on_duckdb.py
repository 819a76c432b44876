"""The queries in DuckDB over tables in memory: no streams, no watermarks; a floor of cost."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.ipc
from child import Rows, serve

COUNT = """
    SELECT campaign, time // 10000000 * 10000000 AS start, count(*) AS n, max(time) AS last
    FROM events JOIN campaigns USING (ad) WHERE event_type = {kind} GROUP BY ALL
"""


class Query:
    """A query over the events and their campaigns."""

    sql = ""

    def prepare(self, folder: Path) -> None:
        """Copy the events and the campaigns into tables of DuckDB's own."""
        self.database = duckdb.connect()
        for name in ("events", "campaigns"):
            table = pyarrow.ipc.open_file(folder / f"{name}.arrow").read_all()
            self.database.register("arrow", table)
            self.database.execute(f"CREATE TABLE {name} AS FROM arrow")  # (one of two names)

    def run(self) -> None:
        """Run the query."""
        self.rows = self.database.execute(self.sql).fetchall()

    def answer(self) -> Rows:
        """Return the rows of the query."""
        return [list(row) for row in self.rows]


class Views(Query):
    """YSB: views per campaign and ten seconds."""

    sql = f"SELECT campaign, start, n FROM ({COUNT.format(kind=0)})"  # noqa: S608 (constants)


class Counts(Query):
    """SWA: all rows per ten seconds."""

    sql = "SELECT time // 10000000 * 10000000 AS start, count(*) FROM events GROUP BY ALL"


class Ratios(Query):
    """YSB*: views and clicks per campaign and ten seconds, and the ratio of the two."""

    sql = f"""
        SELECT campaign, start, clicks.n / seen.n
        FROM ({COUNT.format(kind=0)}) seen JOIN ({COUNT.format(kind=1)}) clicks USING (campaign, start)
    """  # noqa: S608 (constants)


class Words(Query):
    """WordCount: the count of each word."""

    sql = """
        SELECT word, count(*) FROM (SELECT unnest(string_split(line, ' ')) AS word FROM lines)
        WHERE word <> '' GROUP BY word
    """

    def prepare(self, folder: Path) -> None:
        """Load the lines into a table."""
        self.database = duckdb.connect()
        self.database.register("arrow", pa.table({"line": (folder / "lines.txt").read_text().splitlines()}))
        self.database.execute("CREATE TABLE lines AS FROM arrow")


class Frauds(Query):
    """FraudDetection: the mean of what the last four transitions of a customer had against them."""

    sql = """
        WITH kinds AS (
          SELECT number, entity, transaction, list_position(getvariable('states'), state) - 1 AS kind
          FROM transactions),
        pairs AS (
          SELECT *, lag(kind) OVER w * 18 + kind + 1 AS pair FROM kinds
          WINDOW w AS (PARTITION BY entity ORDER BY number)),
        steps AS (SELECT *, getvariable('misses')[pair] AS step FROM pairs)
        SELECT entity, transaction, score FROM (
          SELECT entity, transaction,
            (step + lag(step, 1) OVER w + lag(step, 2) OVER w + lag(step, 3) OVER w) / 4 AS score
          FROM steps WINDOW w AS (PARTITION BY entity ORDER BY number))
        WHERE score > getvariable('threshold')
    """

    def prepare(self, folder: Path) -> None:
        """Copy the transactions into a table, and the model into variables."""
        self.database = duckdb.connect()
        self.database.register("arrow", pyarrow.ipc.open_file(folder / "transactions.arrow").read_all())
        self.database.execute("CREATE TABLE transactions AS FROM arrow")
        model = json.loads((folder / "model.json").read_text())
        misses = [miss for row in model["misses"] for miss in row]
        for name, value in (("states", model["states"]), ("misses", misses)):
            self.database.execute(f"SET VARIABLE {name} = ?", [value])
        self.database.execute("SET VARIABLE threshold = ?", [model["threshold"]])


class Spikes(Query):
    """SpikeDetection: values far from the mean of the last 1,000 of their device."""

    sql = """
        SELECT time, device, value, average FROM (
          SELECT *, avg(value) OVER w AS average, count(*) OVER w AS n FROM readings
          WINDOW w AS (PARTITION BY device ORDER BY number ROWS 999 PRECEDING))
        WHERE n = 1000 AND abs(value - average) > 0.25 * average
    """

    def prepare(self, folder: Path) -> None:
        """Copy the readings into a table."""
        self.database = duckdb.connect()
        self.database.register("arrow", pyarrow.ipc.open_file(folder / "readings.arrow").read_all())
        self.database.execute("CREATE TABLE readings AS FROM arrow")


if __name__ == "__main__":
    serve(
        {
            "swa": Counts,
            "ysb": Views,
            "ysb-star": Ratios,
            "word-count": Words,
            "fraud-detection": Frauds,
            "spike-detection": Spikes,
        }
    )
