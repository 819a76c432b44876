"""The queries in DuckDB over tables in memory: no streams, no watermarks; a floor of cost."""

from __future__ import annotations

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


if __name__ == "__main__":
    serve({"swa": Counts, "ysb": Views, "ysb-star": Ratios, "word-count": Words})
