"""Windows of batch frames: Spark's own answer where it has one, and the reference engine's for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException, SparkRuntimeException
from pyspark.sql import functions as F

import penstock as ps
from penstock import col
from penstock.engines.spark.dataframes.window_plan import result_schema
from penstock.spark import window_aggregate
from penstock.testing.assertions import difference
from tests.support.dataframes import SCHEMA, UTC, Aggregates, S, Windows, judge, rows

pytestmark = pytest.mark.slow
ROWS = rows(400)


def combine(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return a[0] + b[0], max(a[1], b[1])


def lower(part: tuple[float, float]) -> float:
    return part[0] - part[1]


FOLD = ps.fold(lambda row: (row.n * 0.5, float(row.n)), combine, (0.0, -1e300), lower, columns=["n"])
NATIVE: Aggregates = {
    "rows": ps.count(),
    "values": ps.count("price"),
    "total": ps.sum("price"),
    "mean": ps.mean("n"),
    "least": ps.min("price"),
    "most": ps.max("price"),
    "fewest": ps.min("n"),
    "any": ps.max("ok"),
    "latest": ps.max("ts"),
    "spread": ps.var(col("n") % 7),
    "deviation": ps.std(col("n") % 7, population=True),
    "seen": ps.event_time_max(),
}
BY_PARTS: Aggregates = {"fold": FOLD, "most": ps.max_count("n"), "rows": ps.count()}
BY_ROWS: Aggregates = {
    "first": ps.first("n"),
    "all": ps.collect("price"),
    "greatest": ps.max("page"),
    "kinds": ps.approx_distinct("price"),
}
SLIDING, HOPPING = ps.sliding("10 s", "3 s"), ps.sliding("3 s", "10 s")
CASES: list[tuple[Windows, Aggregates]] = [
    (SLIDING, NATIVE),
    (HOPPING, NATIVE),
    ({"fast": SLIDING, "slow": ps.tumbling("20 s")}, NATIVE),
    (SLIDING, BY_PARTS),
    (SLIDING, BY_ROWS),
    (ps.session("2 s"), {**NATIVE, **BY_ROWS}),
    (ps.count_window(3, 2), {**NATIVE, "first": ps.first("n")}),
]


def frame(spark: Any, table: pa.Table) -> Any:
    return spark.createDataFrame(table, schema=result_schema(table.schema)).repartition(3)


def ours(spark: Any, table: pa.Table, keys: list[str], window: Windows, aggregates: Aggregates) -> pa.Table:
    output = window_aggregate(
        frame(spark, table), keys=keys, time="ts", window=window, aggregates=aggregates
    ).toArrow()
    return output.cast(judge(table.slice(0, 0), keys, window, aggregates).schema)


@pytest.mark.parametrize(("size", "every"), [("10 seconds", "10 seconds"), ("9 seconds", "4 seconds")])
def test_tumbling_and_sliding_windows_are_those_of_spark(users: Any, size: str, every: str) -> None:
    table = ROWS.append_column("part", pa.array([i % 3 for i in range(len(ROWS))]))
    own = frame(users, table).groupBy("page", "part", F.window("ts", size, every).alias("w"))
    named = {"rows": F.count("*"), "values": F.count("n"), "least": F.min("price"), "most": F.max("price")}
    theirs = own.agg(*(aggregate.alias(name) for name, aggregate in named.items())).select(
        "page", "part", F.col("w.start").alias("window_start"), F.col("w.end").alias("window_end"), *named
    )
    aggregates: Aggregates = {name: NATIVE[name] for name in ("rows", "least", "most")}
    aggregates = {**aggregates, "values": ps.count("n")}
    ours = window_aggregate(
        frame(users, table),
        keys=["page", "part"],
        time="ts",
        window=ps.sliding(size, every),
        aggregates={name: aggregates[name] for name in named},
    )
    assert difference(ours.toArrow(), theirs.toArrow()) is None


@pytest.mark.parametrize(("window", "aggregates"), CASES)
def test_a_batch_gives_what_the_reference_engine_gives_and_rows_without_a_time_are_in_no_window(
    users: Any, window: Windows, aggregates: Aggregates
) -> None:
    untimed = pa.Table.from_pylist([{"page": "a", "n": 7}], schema=SCHEMA)
    rows = ours(users, pa.concat_tables([ROWS, untimed]), ["page"], window, aggregates)
    expected = judge(ROWS, ["page"], window, aggregates)
    assert difference(rows, expected, approximate=["kinds"]) is None


def test_numbers_are_counted_in_the_jvm_and_no_row_is_copied(users: Any) -> None:
    output = window_aggregate(
        frame(users, ROWS), keys=["page"], time="ts", window=SLIDING, aggregates={"mean": ps.mean("n")}
    )
    plan = str(output._jdf.queryExecution().optimizedPlan().toString())
    before, after = plan.split("Aggregate [", 1)
    assert (before.count("MapInArrow"), after.count("MapInArrow"), plan.count("Expand")) == (2, 0, 0)


def test_without_keys_all_rows_are_one_group(users: Any) -> None:
    few: Aggregates = {"rows": ps.count(), "most": ps.max_count("n")}
    for aggregates in (NATIVE, few, BY_ROWS):
        expected = judge(ROWS, [], SLIDING, aggregates)
        rows = ours(users, ROWS, [], SLIDING, aggregates)
        assert difference(rows, expected, approximate=["kinds"]) is None


KEYS: Mapping[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "i8": (pa.int8(), [-128, 127, None]),
    "i16": (pa.int16(), [1, -1, 0]),
    "i32": (pa.int32(), [2**31 - 1, None, 0]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "f32": (pa.float32(), [float("nan"), 0.0, None]),
    "f64": (pa.float64(), [-0.0, 0.0, float("nan")]),
    "text": (pa.string(), ["", None, "zoë"]),
    "raw": (pa.binary(), [b"", b"\x00\xff", None]),
    "day": (pa.date32(), [0, -1, None]),
    "when": (UTC, [-1, 0, None]),
    "local": (pa.timestamp("us"), [-1, 2**50, None]),
    "exact": (pa.decimal128(20, 3), [Decimal("1.500"), Decimal("-0.001"), None]),
}


def test_keys_of_every_type_tell_rows_apart_as_in_a_graph(users: Any) -> None:
    n = 24
    columns = {"ts": pa.array([i * S for i in range(n)], pa.int64()).cast(UTC)}
    for name, (type_, values) in KEYS.items():
        # Each column changes at its own pace, so that many combinations occur.
        column = [values[(i // (1 + len(name) % 3)) % 3] for i in range(n)]
        columns[name] = pa.array(column, type_, from_pandas=False)
    table = pa.table(columns)
    for keys in [list(KEYS), ["f64"], ["local"], ["when", "exact"]]:
        expected = judge(table, keys, SLIDING, {"rows": ps.count()})
        assert difference(ours(users, table, keys, SLIDING, {"rows": ps.count()}), expected) is None, keys


def test_names_may_have_dots_and_backticks(users: Any) -> None:
    table = ROWS.rename_columns(["pa.ge", "ts", "`n`", "pri ce", "ok"])
    for aggregate in (ps.sum("pri ce"), ps.max_count("pri ce"), ps.last("`n`")):
        expected = judge(table, ["pa.ge"], SLIDING, {"re.sult": aggregate})
        assert difference(ours(users, table, ["pa.ge"], SLIDING, {"re.sult": aggregate}), expected) is None


def test_times_without_a_zone_are_read_as_utc_in_every_session(in_new_york: Any) -> None:
    spring = int(datetime.fromisoformat("2026-03-08T01:30:00+00:00").timestamp()) * S  # clocks jump at 02:00
    times = pa.array([spring + i * 600 * S for i in range(12)], pa.int64())
    local = pa.timestamp("us")
    table = pa.table({"ts": times.cast(local), "seen": times.cast(local), "n": pa.array(range(12))})
    aggregates: Aggregates = {"rows": ps.count(), "last": ps.max("seen"), "end": ps.event_time_max()}
    hours: Aggregates = {"hours": ps.sum(col("seen").dt.hour())}
    for asked in (aggregates, hours):
        expected = judge(table, [], ps.tumbling("1 h"), asked)
        assert difference(ours(in_new_york, table, [], ps.tumbling("1 h"), asked), expected) is None


def test_times_with_a_zone_do_not_depend_on_the_zone_of_the_session(in_new_york: Any) -> None:
    for aggregates in (NATIVE, BY_ROWS):
        expected = judge(ROWS, ["page"], SLIDING, aggregates)
        rows = ours(in_new_york, ROWS, ["page"], SLIDING, aggregates)
        assert difference(rows, expected, approximate=["kinds"]) is None


def test_no_rows_give_no_windows(users: Any) -> None:
    for aggregates in (NATIVE, BY_PARTS, BY_ROWS):
        rows = ours(users, ROWS.slice(0, 0), ["page"], SLIDING, aggregates)
        assert rows.num_rows == 0


def test_a_row_on_which_an_expression_fails_stops_the_query(users: Any) -> None:
    table = ROWS.slice(0, 20)
    broken: Aggregates = {"x": ps.sum(col("n") * 4)}
    with pytest.raises(SparkRuntimeException, match=r"n.*\* 4.* failed on a row"):
        ours(users, table, ["page"], SLIDING, broken)
    with pytest.raises(PythonException, match=r"test_batch_frames.py:\d+"):
        ours(users, table, ["page"], ps.session("1 s"), broken)


def test_a_sum_beyond_int64_names_key_and_window(users: Any) -> None:
    table = pa.table({"ts": pa.array([1, 2], pa.int64()).cast(UTC), "n": pa.array([2**62, 2**62])})
    with pytest.raises(PythonException, match=r"the exact sum is 9223372036854775808, outside int64"):
        ours(users, table, [], SLIDING, {"total": ps.sum("n")})
