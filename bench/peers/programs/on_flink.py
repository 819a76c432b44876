"""The queries in Flink SQL through PyFlink, in streaming mode: everything runs in Java, no Python per row.

Rows are made of a running number by Flink's own `datagen` source, by the formula of the data that the others
read from memory: no file and no parser in its way. Two slots, one for each core.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.ipc
from child import Rows, serve
from pyflink.table import EnvironmentSettings, TableEnvironment

N_ADS, ROUND = 1_000, 100_000
SLOTS = 2


class Views:
    """YSB: views per campaign and ten seconds."""

    sql = """
        SELECT campaign, window_start, COUNT(*) FROM TABLE(
          TUMBLE(TABLE viewed, DESCRIPTOR(ts), INTERVAL '10' SECONDS))
        GROUP BY campaign, window_start, window_end
    """

    def prepare(self, folder: Path) -> None:
        """Declare the source of as many rows as the file has, and the views that queries use."""
        n_rows = pyarrow.ipc.open_file(folder / "events.arrow").read_all().num_rows
        self.tables = open_tables()
        self.tables.execute_sql(f"""
            CREATE TABLE numbers (
              v BIGINT,
              ts AS TO_TIMESTAMP_LTZ(v / 1000, 3),
              WATERMARK FOR ts AS ts
            ) WITH ('connector' = 'datagen', 'rows-per-second' = '1000000000',
              'fields.v.kind' = 'sequence', 'fields.v.start' = '0', 'fields.v.end' = '{n_rows - 1}')
        """)
        self.tables.execute_sql(f"""
            CREATE VIEW events AS
            SELECT MOD(MOD(v, {ROUND}), {N_ADS}) AS ad, MOD(MOD(v, {ROUND}), 3) AS event_type, ts
            FROM numbers
        """)  # noqa: S608 (constants)
        # Why no join: behind a join with a static table a row has no event time in Flink SQL, and looking
        # campaigns up needs a connector. Ten advertisements make a campaign: a division is quicker anyway.
        for name, kind in (("viewed", 0), ("clicked", 1)):
            self.tables.execute_sql(
                f"CREATE VIEW {name} AS SELECT ad / 10 AS campaign, ts FROM events WHERE event_type = {kind}"  # noqa: S608
            )

    def run(self) -> None:
        """Run the job to its end and take its rows."""
        with self.tables.execute_sql(self.sql).collect() as results:
            self.rows = [list(row) for row in results]

    def answer(self) -> Rows:
        """Return campaign, window start in microseconds, views."""
        return [[campaign, micros(start), n] for campaign, start, n in self.rows]


class Counts(Views):
    """SWA: all rows per ten seconds."""

    sql = """
        SELECT window_start, COUNT(*) FROM TABLE(
          TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECONDS))
        GROUP BY window_start, window_end
    """

    def answer(self) -> Rows:
        """Return window start in microseconds, rows."""
        return [[micros(start), n] for start, n in self.rows]


class Ratios(Views):
    """YSB*: views and clicks per campaign and ten seconds, joined by window, and the ratio of the two."""

    sql = """
        SELECT v.campaign, v.window_start, CAST(c.n AS DOUBLE) / v.n FROM (
          SELECT campaign, window_start, window_end, COUNT(*) AS n FROM TABLE(
            TUMBLE(TABLE viewed, DESCRIPTOR(ts), INTERVAL '10' SECONDS))
          GROUP BY campaign, window_start, window_end) v
        JOIN (
          SELECT campaign, window_start, window_end, COUNT(*) AS n FROM TABLE(
            TUMBLE(TABLE clicked, DESCRIPTOR(ts), INTERVAL '10' SECONDS))
          GROUP BY campaign, window_start, window_end) c
        ON v.campaign = c.campaign AND v.window_start = c.window_start AND v.window_end = c.window_end
    """


class Words:
    """WordCount: the running count of each word."""

    def prepare(self, folder: Path) -> None:
        """Declare the file of lines."""
        self.tables = open_tables()
        self.tables.execute_sql(f"""
            CREATE TABLE lines (line STRING) WITH (
              'connector' = 'filesystem', 'path' = '{(folder / "lines.txt").as_uri()}', 'format' = 'raw')
        """)
        self.tables.execute_sql("""
            CREATE TABLE counts (word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED)
            WITH ('connector' = 'blackhole')
        """)

    def run(self) -> None:
        """Run the job to its end: every new count is written, to nowhere."""
        self.tables.execute_sql("""
            INSERT INTO counts SELECT word, COUNT(*) FROM lines CROSS JOIN UNNEST(SPLIT(line, ' ')) AS w(word)
            GROUP BY word
        """).wait()

    def answer(self) -> Rows:
        """Return word and count: the last counts of a run that collects them."""
        sql = """
            SELECT word, COUNT(*) FROM lines CROSS JOIN UNNEST(SPLIT(line, ' ')) AS w(word)
            WHERE word <> '' GROUP BY word
        """
        counts: dict[str, int] = {}
        with self.tables.execute_sql(sql).collect() as results:
            for word, n in results:
                counts[word] = max(n, counts.get(word, 0))
        return [[word, n] for word, n in counts.items()]


class LastRows:
    """Queries over the last rows of a key, from a file of lines: the generator cannot make these rows.

    The file is compressed, so that one task reads it and rows stay in order; they are taken as they come.
    """

    columns = name = sql = ""

    def prepare(self, folder: Path) -> None:
        """Declare the file."""
        self.tables = open_tables()
        self.folder = folder
        self.tables.execute_sql(f"""
            CREATE TABLE {self.name} ({self.columns}, now AS PROCTIME()) WITH (
              'connector' = 'filesystem', 'path' = '{(folder / self.name).with_suffix(".csv.gz").as_uri()}',
              'format' = 'csv')
        """)

    def run(self) -> None:
        """Run the job to its end and take its rows."""
        with self.tables.execute_sql(self.build_sql()).collect() as results:
            self.rows = [list(row) for row in results]

    def build_sql(self) -> str:
        """Return the query."""
        return self.sql

    def answer(self) -> Rows:
        """Return the rows."""
        return self.rows


class Frauds(LastRows):
    """FraudDetection: the mean of what the last four transitions of a customer had against them."""

    name = "transactions"
    columns = "`time` BIGINT, entity STRING, `transaction` STRING, state STRING, number BIGINT"

    def build_sql(self) -> str:
        """Return the query, with the model as an array."""
        model = json.loads((self.folder / "model.json").read_text())
        misses = ", ".join(f"CAST({miss!r} AS DOUBLE)" for row in model["misses"] for miss in row)
        kind = f"(POSITION(state IN '{','.join(model['states'])}') - 1) / 4"
        before = [f"LAG(kind, {back}) OVER w AS k{back}" for back in (1, 2, 3, 4)]
        steps = " + ".join(
            f"misses[{older} * 18 + {newer} + 1]"
            for older, newer in (("k4", "k3"), ("k3", "k2"), ("k2", "k1"), ("k1", "kind"))
        )
        return f"""
            SELECT entity, `transaction`, score FROM (
              SELECT entity, `transaction`, ({steps}) / 4 AS score FROM (
                SELECT entity, `transaction`, kind, {", ".join(before)}, ARRAY[{misses}] AS misses FROM (
                  SELECT entity, `transaction`, {kind} AS kind, now FROM transactions)
                WINDOW w AS (PARTITION BY entity ORDER BY now))
              WHERE k4 IS NOT NULL)
            WHERE score > {model["threshold"]}
        """  # noqa: S608 (a model of our own)


class Spikes(LastRows):
    """SpikeDetection: values far from the mean of the last 1,000 of their device."""

    name = "readings"
    columns = "`time` BIGINT, device BIGINT, `value` DOUBLE, number BIGINT"
    sql = """
        SELECT `time`, device, `value`, average FROM (
          SELECT `time`, device, `value`, AVG(`value`) OVER w AS average, COUNT(*) OVER w AS n FROM readings
          WINDOW w AS (PARTITION BY device ORDER BY now ROWS BETWEEN 999 PRECEDING AND CURRENT ROW))
        WHERE n = 1000 AND ABS(`value` - average) > 0.25 * average
    """


def open_tables() -> Any:
    """Return a table environment of two slots, in UTC, tuned as Flink's manual advises."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    config = tables.get_config()
    config.set("table.local-time-zone", "UTC")
    config.set("parallelism.default", str(SLOTS))
    config.set("pipeline.object-reuse", "true")
    config.set("table.exec.mini-batch.enabled", "true")
    config.set("table.exec.mini-batch.allow-latency", "100 ms")
    config.set("table.exec.mini-batch.size", "10000")
    return tables


def micros(time: Any) -> int:
    """Return a window's start, which Flink gives without zone, in microseconds."""
    return int((time - type(time)(1970, 1, 1)).total_seconds() * 1_000_000)


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
