"""Applications in Flink SQL on rows that come one by one over a connection, for their latency.

A line is a row with its number in front; it comes from a socket of the harness, and results leave as lines
for another one, each with the number of the row that caused it. All of it is Java: SQL, and the sockets of
Flink's own. Flink is set for latency: buffers are flushed after every row, small batches are off.
"""

from __future__ import annotations

import json
from pathlib import Path

from child import Rows, serve
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment

HOST = "127.0.0.1"


class Live:
    """A query over the fields of lines: `fields` are columns and their types, the row's number first."""

    fields = "number BIGINT"
    sql = ""

    def prepare(self, folder: Path) -> None:
        """Remember where rows come from and go to, and the model."""
        self.settings = json.loads((folder / "live.json").read_text())

    def build_sql(self) -> str:
        """Return the query; its columns are the number of the row, and text of the result."""
        return self.sql

    def run(self) -> None:
        """Run the job until its input ends."""
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(1)
        env.set_buffer_timeout(0)
        tables = StreamTableEnvironment.create(env)
        java_env, jvm = env._j_stream_execution_environment, get_gateway().jvm
        lines = DataStream(java_env.socketTextStream(HOST, self.settings["source_port"], "\n", 0))
        tables.create_temporary_view("lines", tables.from_data_stream(lines))
        columns = [field.split() for field in self.fields.split(", ")]
        fields = ", ".join(
            f"CAST(SPLIT_INDEX(f0, ',', {at}) AS {kind}) AS `{name}`"
            for at, (name, kind) in enumerate(columns)
        )
        tables.execute_sql(
            f"CREATE TEMPORARY VIEW events AS SELECT {fields}, PROCTIME() AS now FROM lines"  # noqa: S608
        )
        text = f"SELECT CAST(number AS STRING) || ',' || text || CHR(10) AS line FROM ({self.build_sql()})"  # noqa: S608
        results = tables._j_tenv.toDataStream(
            tables.sql_query(text)._j_table, jvm.org.apache.flink.table.api.DataTypes.STRING()
        )
        schema = jvm.org.apache.flink.api.common.serialization.SimpleStringSchema()
        results.writeToSocket(HOST, self.settings["sink_port"], schema)
        env.execute("latency")

    def answer(self) -> Rows:
        """Return nothing: results left by the socket."""
        return []


class Frauds(Live):
    """FraudDetection: the mean of what the last four transitions of a customer had against them."""

    fields = "number BIGINT, entity STRING, name STRING, kind INT"

    def build_sql(self) -> str:
        """Return the query, with the model as an array."""
        misses = ", ".join(f"CAST({miss!r} AS DOUBLE)" for row in self.settings["misses"] for miss in row)
        before = ", ".join(f"LAG(kind, {back}) OVER w AS k{back}" for back in (1, 2, 3, 4))
        steps = " + ".join(
            f"misses[{older} * 18 + {newer} + 1]"
            for older, newer in (("k4", "k3"), ("k3", "k2"), ("k2", "k1"), ("k1", "kind"))
        )
        return f"""
            SELECT number, name AS text FROM (
              SELECT number, name, ({steps}) / 4 AS score FROM (
                SELECT number, name, kind, {before}, ARRAY[{misses}] AS misses FROM events
                WINDOW w AS (PARTITION BY entity ORDER BY now))
              WHERE k4 IS NOT NULL)
            WHERE score > {self.settings["threshold"]}
        """  # noqa: S608 (a model of our own)


class Spikes(Live):
    """SpikeDetection: values far from the mean of the last 1,000 of their device."""

    fields = "number BIGINT, device BIGINT, v DOUBLE"

    def build_sql(self) -> str:
        """Return the query, with the threshold."""
        return f"""
            SELECT number, CAST(device AS STRING) AS text FROM (
              SELECT number, device, v, AVG(v) OVER w AS average FROM events
              WINDOW w AS (PARTITION BY device ORDER BY now ROWS BETWEEN 999 PRECEDING AND CURRENT ROW))
            WHERE ABS(v - average) > {self.settings["threshold"]} * average
        """  # noqa: S608 (a number of our own)


class Words(Live):
    """WordCount: every word with its count so far."""

    fields = "number BIGINT, line STRING"
    sql = """
        SELECT number, word || ' ' || CAST(n AS STRING) AS text FROM (
          SELECT number, word, COUNT(*) OVER w AS n
          FROM (SELECT number, word, now FROM events CROSS JOIN UNNEST(SPLIT(line, ' ')) AS t(word))
          WINDOW w AS (PARTITION BY word ORDER BY now ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
    """


class Roads(Live):
    """LinearRoad as the benchmark suites have it: three notifications of every report."""

    fields = "number BIGINT, type INT, vid BIGINT"
    sql = " UNION ALL ".join(["SELECT number, CAST(vid AS STRING) AS text FROM events WHERE type = 0"] * 3)


if __name__ == "__main__":
    serve(
        {
            "fraud-detection": Frauds,
            "spike-detection": Spikes,
            "word-count": Words,
            "linear-road": Roads,
        }
    )
