"""A reader and a writer for SQLite: rows go from one table to another, each exactly once.

Run it with `python examples/sqlite_connector.py`. Kill it as often as you like, let rows be added meanwhile,
and run it again: the totals are those of a run that was never killed. The reader's position is the id of the
last row of a batch; the writer keeps the number of its last batch in the database, and changes it in the
transaction of the rows.

A run that was killed may have committed batches behind the position that the next one begins at. They come
again, are left out by their numbers, and must be the same rows. A full batch is, where ids only rise and rows
stay. A batch that is shorter, because the table ended there, would be longer once rows were added, and these
would be left out with it; so the reader records where it cut such a batch before it gives it.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.connectors import Delivery, Output, SourceBatch


class SqliteReader:
    """The rows of a query, from any of them on.

    query  has two parameters, the id after which rows are wanted and how many; its first column is the id
    """

    bounded, keeps_raw, delivery = True, False, Delivery.EXACTLY_ONCE

    def __init__(self, path: Path, query: str, schema: pa.Schema, batch: int = 1_000) -> None:
        self.path, self.query, self.schema, self.batch = path, query, schema, batch

    def batches(self, position: int | None = None) -> Iterator[SourceBatch]:
        after = -1 if position is None else position
        # Engines use a reader, and an output, from one thread at a time, not always the same.
        with closing(sqlite3.connect(self.path, check_same_thread=False)) as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS cuts "
                "(query TEXT, after INTEGER, last INTEGER, PRIMARY KEY (query, after))"
            )
            while rows := self._read_batch(database, after):
                after = rows[-1][0]
                columns = [
                    pa.array(column, field.type)
                    for column, field in zip(zip(*rows, strict=True), self.schema, strict=True)
                ]
                yield SourceBatch(pa.RecordBatch.from_arrays(columns, schema=self.schema), position=after)

    def _read_batch(self, database: sqlite3.Connection, after: int) -> list[tuple[Any, ...]]:
        """Return the rows behind an id: if they were a short batch once, these and no more."""
        rows = database.execute(self.query, (after, self.batch)).fetchall()
        find = "SELECT last FROM cuts WHERE query = ? AND after = ?"
        if cut := database.execute(find, (self.query, after)).fetchone():
            return [row for row in rows if row[0] <= cut[0]]
        if 0 < len(rows) < self.batch:
            with database:
                database.execute("INSERT INTO cuts VALUES (?, ?, ?)", (self.query, after, rows[-1][0]))
        return rows

    def describe(self) -> str:
        return f"sqlite {self.path.name}"


class SqliteWriter:
    """Writes rows by a statement with a parameter for each column."""

    delivery, accepts_updates = Delivery.EXACTLY_ONCE, False

    def __init__(self, path: Path, statement: str) -> None:
        self.path, self.statement = path, statement

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> Output:
        return SqliteOutput(self, sink, resume=resume)

    def describe(self) -> str:
        return f"sqlite {self.path.name}"


class SqliteOutput:
    """One sink of one run. A batch is a transaction, which also records its number."""

    def __init__(self, writer: SqliteWriter, sink: str, *, resume: bool) -> None:
        self._database = sqlite3.connect(writer.path, check_same_thread=False)
        self._statement, self._sink = writer.statement, sink
        self._rows: list[tuple[object, ...]] = []
        with self._database as database:
            database.execute("CREATE TABLE IF NOT EXISTS batches (sink TEXT PRIMARY KEY, number INTEGER)")
        if not resume and self.last_committed is not None:
            self._database.close()
            raise ps.ConnectorError(
                f"{writer.describe()} holds what an earlier run has written",
                hint="resume from the checkpoint of that run, or write to another database",
            )

    @property
    def last_committed(self) -> int | None:
        found = self._database.execute("SELECT number FROM batches WHERE sink = ?", (self._sink,)).fetchone()
        return None if found is None else int(found[0])

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        self._rows += zip(*(column.to_pylist() for column in rows.columns), strict=True)

    def commit(self, batch: int) -> None:
        rows, self._rows = self._rows, []
        last = self.last_committed
        if last is not None and batch <= last:
            return  # an earlier run has come that far
        with self._database as database:  # all of it, or nothing
            database.executemany(self._statement, rows)
            database.execute("INSERT OR REPLACE INTO batches VALUES (?, ?)", (self._sink, batch))

    def close(self) -> None:
        self._database.close()


def create_orders(path: Path, n_rows: int) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, shop TEXT, price REAL)")
        database.execute("CREATE TABLE IF NOT EXISTS copies (id INTEGER, shop TEXT, price REAL)")
        orders = ((id, f"shop {id % 7}", id * 0.25) for id in range(n_rows))
        database.executemany("INSERT OR IGNORE INTO orders VALUES (?, ?, ?)", orders)


def copy_orders(path: Path, batch: int = 100) -> ps.PipeGraph:
    schema = pa.schema([("id", pa.int64()), ("shop", pa.string()), ("price", pa.float64())])
    query = "SELECT id, shop, price FROM orders WHERE id > ? ORDER BY id LIMIT ?"
    graph = ps.PipeGraph("copy-orders", engine="local")
    orders = graph.source(SqliteReader(path, query, schema, batch), name="orders")
    orders.sink(SqliteWriter(path, "INSERT INTO copies VALUES (?, ?, ?)"), name="copies")
    return graph


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    create_orders(folder / "shop.db", 10_000)
    copy_orders(folder / "shop.db").run(checkpoint=str(folder / "checkpoint"))
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        print(
            *database.execute("SELECT count(*), count(DISTINCT id) FROM copies").fetchone(), "rows, and ids"
        )
