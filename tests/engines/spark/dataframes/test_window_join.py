"""Joins of DataFrames: the reference engine's pairs, from batch frames, streams and both."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import FunctionError, GraphError, NotSupported, PenstockError, SchemaError, TimeError
from penstock.spark import window_join
from tests.support.dataframes import UTC, Files, S, same

pytestmark = pytest.mark.slow
LIMITS = [None, 0, 1, 5, -7, 2**63 - 1, 2**63 - 3, -(2**63), -(2**63) + 4]
FLOATS = [None, float("nan"), -0.0, 0.0, 1.5, 2.5, 1e300, float("inf"), -float("inf")]
SCHEMA = pa.schema([("ts", UTC), ("x", pa.int64()), ("y", pa.float64()), ("k", pa.string())])
HOWS = ("inner", "left", "right", "full", "semi", "anti")
PREDICATES: Sequence[Any] = [
    "k",
    ps.equal("y", "y"),
    ps.band("x", 3),
    ps.band("x", 2.5, strict=True),
    ps.band("y", 1),
    ps.band("x", "y", 2),
    ps.band("x", 0, strict=True),
    [ps.band("x", 3), ps.band("y", 1.0)],
    ["k", ps.band("x", 3)],
    ps.left("x") > ps.right("x"),
    ["k", ps.left("y") < ps.right("y")],
]
BOUNDS: Sequence[Mapping[str, Any]] = [
    {"within": "5 s"},
    {"within": ("0 s", "7 s")},
    {"window": ps.tumbling("10 s")},
]
FAR_S = 10_000


def draw(n: int, seed: int, first: int, last: int, numbers: Sequence[Any] = LIMITS) -> pa.Table:
    """Rows at random seconds, with every odd number there is."""
    chance = random.Random(seed)
    times = [chance.randrange(first * S, last * S) for _ in range(n)]
    columns = [
        pa.array(times, pa.int64()).cast(UTC),
        pa.array([chance.choice(numbers) for _ in range(n)], pa.int64()),
        pa.array([chance.choice(FLOATS) for _ in range(n)], pa.float64()),
        pa.array([chance.choice([None, "a", "b"]) for _ in range(n)], pa.string()),
    ]
    return pa.table(columns, schema=SCHEMA)


def judge(left: pa.Table, right: pa.Table, **asked: Any) -> list[dict[str, Any]]:
    graph = ps.PipeGraph("judge")
    sides = [graph.source(ps.read.table(table), time="ts", delay="0 s") for table in (left, right)]
    rows: list[dict[str, Any]] = (
        sides[0].join(sides[1], suffix="_r", **asked).collect(engine="reference").to_pylist()
    )
    return rows


def join(left: Any, right: Any, **asked: Any) -> Any:
    return window_join(left, right, **{"time": "ts", "suffix": "_r", **asked})


@pytest.mark.parametrize(
    "how",
    [
        how if how in ("inner", "full", "anti") else pytest.param(how, marks=pytest.mark.nightly)
        for how in HOWS
    ],
)
def test_batch_frames_are_joined_as_the_reference_engine_joins(users: Any, how: str) -> None:
    left, right = draw(40, 1, -30, 30), draw(40, 2, -30, 30)
    frames = users.createDataFrame(left), users.createDataFrame(right)
    n_pairs = 0
    for place, on in enumerate(PREDICATES):
        asked = {"on": on, "how": how, **BOUNDS[place % len(BOUNDS)]}
        rows, expected = join(*frames, **asked).toArrow().to_pylist(), judge(left, right, **asked)
        assert same(rows, expected), asked
        n_pairs += len(expected)
    assert n_pairs > 100


def test_bounds_and_bands_are_inclusive_to_the_microsecond_and_for_every_width(users: Any) -> None:
    times = [0, 1, 4_999_999, 5_000_000, 5_000_001, -5_000_000, -5_000_001]
    left = pa.table({"ts": pa.array(times, pa.int64()).cast(UTC), "x": pa.array(range(7), pa.int64())})
    right = left.set_column(1, "x", pa.array([x * 3 for x in range(7)], pa.int64()))
    frames = users.createDataFrame(left), users.createDataFrame(right)
    for within in ("5 s", ("5 s", "0 s"), ("0 s", "0 s")):
        for width in (0, 1, 2, 3, 100, 2**62, 2**64, 0.5, 1e300):
            asked: dict[str, Any] = {"on": ps.band("x", width), "within": within}
            assert same(join(*frames, **asked).toArrow().to_pylist(), judge(left, right, **asked)), asked


class Sides:
    """Two streams of files."""

    def __init__(self, folder: Path, left: Sequence[pa.Table], right: Sequence[pa.Table]) -> None:
        self.left, self.right = Files(_new(folder / "left")), Files(_new(folder / "right"))
        self._batches = left, right
        self.put(0, len(left))

    def put(self, first: int, last: int) -> None:
        for files, batches in zip((self.left, self.right), self._batches, strict=True):
            files.put(*batches[first:last])

    def run(self, spark: Any, **asked: Any) -> tuple[list[dict[str, Any]], list[int]]:
        """Work off what is there; return the results, and how many rows of state each batch left."""
        left, right = (files.read(spark, SCHEMA) for files in (self.left, self.right))
        left, right = asked.pop("prepare", lambda *frames: frames)(left, right)
        rows: list[dict[str, Any]] = []
        query = (
            join(left, right, **asked)
            .writeStream.foreachBatch(lambda batch, _: rows.extend(batch.toArrow().to_pylist()))
            .option("checkpointLocation", str(self.left.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return rows, [one["stateOperators"][0]["numRowsTotal"] for one in query.recentProgress]


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def batches(seed: int, first: int = -60) -> list[pa.Table]:
    """Five batches that overlap in time by ten seconds, and one that is far behind them."""
    numbers = list(range(40))
    drawn = [draw(25, seed + n, first + 20 * n, first + 30 + 20 * n, numbers) for n in range(5)]
    return [*drawn, draw(1, seed + 9, FAR_S, FAR_S + 1, [-500])]


STREAMS: Sequence[Any] = [
    pytest.param(ps.band("x", 3), "inner", {"within": "5 s"}, id="band"),
    pytest.param(
        [ps.band("x", 3), ps.left("k") != ps.right("k")],
        "left",
        {"within": "5 s"},
        id="left",
        marks=pytest.mark.nightly,  # a full join has all that it has
    ),
    pytest.param(ps.band("x", 3), "right", {"window": ps.tumbling("10 s")}, id="right"),
    pytest.param(ps.left("x") > ps.right("x"), "semi", {"within": ("5 s", "2 s")}, id="expression"),
    pytest.param(["k", ps.band("x", 9)], "full", {"within": "5 s"}, id="full"),
]


@pytest.mark.parametrize(("on", "how", "bound"), STREAMS)
def test_streams_are_joined_as_in_a_graph_also_before_1970(
    users: Any, tmp_path: Path, on: Any, how: Any, bound: dict[str, Any]
) -> None:
    left, right = batches(100), batches(200)
    rows, n_kept = Sides(tmp_path, left, right).run(users, on=on, how=how, delay="30 s", **bound)
    expected = judge(pa.concat_tables(left), pa.concat_tables(right), on=on, how=how, **bound)
    near = [row for row in expected if _second_of(row) < FAR_S]  # what is far waits for what comes later
    assert same([row for row in rows if _second_of(row) < FAR_S], near)
    assert len(near) > 50
    assert n_kept[-1] < max(n_kept) / 5, "rows are forgotten when nothing can join them any more"


def _second_of(row: Mapping[str, Any]) -> float:
    return float((row["ts"] or row["ts_r"]).timestamp())


def test_watermarks_of_the_frames_are_kept(users: Any, tmp_path: Path) -> None:
    left, right = batches(100, first=0), batches(200, first=0)
    rows, _ = Sides(tmp_path, left, right).run(
        users,
        on=ps.band("x", 3),
        within="5 s",
        prepare=lambda *frames: [frame.withWatermark("ts", "30 seconds") for frame in frames],
    )
    expected = judge(pa.concat_tables(left), pa.concat_tables(right), on=ps.band("x", 3), within="5 s")
    assert same(rows, expected)


def test_a_stream_is_joined_with_a_batch_frame_without_a_watermark(users: Any, tmp_path: Path) -> None:
    left, right = batches(100), draw(30, 7, -60, 60, list(range(40)))
    frame = users.createDataFrame(right)
    asked: dict[str, Any] = {"on": ps.band("x", 3), "how": "left", "within": "5 s"}
    sides = Sides(tmp_path, left, [])
    rows: list[dict[str, Any]] = []
    query = join(sides.left.read(users, SCHEMA), frame, **asked).writeStream
    query = query.foreachBatch(lambda batch, _: rows.extend(batch.toArrow().to_pylist()))
    query.option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert same(rows, judge(pa.concat_tables(left), right, **asked))


def test_a_predicate_fails_the_query_only_on_pairs_that_the_rest_allows(users: Any) -> None:
    left = users.createDataFrame(draw(1, 1, 0, 1, [6]).set_column(3, "k", pa.array(["a"])))
    right = users.createDataFrame(draw(1, 1, 0, 1, [0]).set_column(3, "k", pa.array(["b"])))
    divides = ps.left("x") // ps.right("x") > 2
    assert join(left, right, on=["k", divides], within="5 s").count() == 0
    with pytest.raises(Exception, match="failed on a pair of rows"):
        join(left, right, on=[ps.band("x", 10), divides], within="5 s").collect()


MISTAKES: Sequence[tuple[dict[str, Any], type[PenstockError], str]] = [
    (
        {"on": "kk"},
        SchemaError,
        'there is no column "kk" on the left of the join[\\s\\S]*the columns are k, ',
    ),
    (
        {"on": ps.left("x") > ps.right("xx")},
        SchemaError,
        'there is no column "xx" on the right of the join[\\s\\S]*the columns are x, ',
    ),
    ({"on": ps.band("k", 1)}, SchemaError, 'a band needs numbers, and column "k" is string'),
    ({"on": ps.left("x") + 1}, SchemaError, "a join's predicate"),
    ({"time": "x"}, TimeError, 'time column "x" is of type bigint'),
    (
        {"time": ("ts", "tss")},
        SchemaError,
        'there is no column "tss" on the right of the join[\\s\\S]*the columns are ts, [\\s\\S]*time="ts"',
    ),
    ({"time": ("ts", "ts", "ts")}, TimeError, "is not one for both frames, or two"),
    ({"delay": ("1 s",)}, TimeError, "delay=\\('1 s',\\) is not one for both frames"),
    ({"suffix": None}, SchemaError, 'both sides have a column "ts"'),
    ({"within": None}, TimeError, 'window_join needs within= or window=[\\s\\S]*write within="5 min"'),
    ({"within": "-5 s"}, TimeError, "within"),
    ({"how": "outer"}, GraphError, "how='outer' is unknown"),
    ({"on": []}, FunctionError, "is not a join predicate"),
    ({"on": lambda left, right: True}, NotSupported, "is a function of Python[\\s\\S]*write it as a graph"),
    ({"within": None, "window": ps.sliding("10 s", "5 s")}, NotSupported, "tumbling windows only"),
]


@pytest.mark.parametrize(("asked", "error", "message"), MISTAKES, ids=[message for *_, message in MISTAKES])
def test_a_wrong_call_is_refused_where_it_is_made(
    users: Any, asked: dict[str, Any], error: type[PenstockError], message: str
) -> None:
    frame = users.createDataFrame(draw(3, 1, 0, 5))
    with pytest.raises(error, match=message) as raised:
        join(frame, frame, **{"on": "k", "within": "5 s", **asked})
    assert Path(__file__).name in str(raised.value)


def test_what_spark_cannot_do_with_streams_is_refused_with_the_graph_as_the_way_out(users: Any) -> None:
    batch = users.createDataFrame(draw(3, 1, 0, 5)).withColumnRenamed("x", "value")
    stream = users.readStream.format("rate").load().withColumnRenamed("timestamp", "ts")
    cases = [
        (stream, stream, "anti", "value", "an anti join of two streams"),
        (stream, stream, "full", ps.band("value", 3), "a full join of two streams without an equality"),
        (stream, batch, "right", "value", "a right join of a stream with a batch frame"),
        (batch, stream, "semi", "value", "a semi join of a batch frame with a stream"),
    ]
    for left, right, how, on, message in cases:
        with pytest.raises(NotSupported, match=f"{message}[\\s\\S]*write it as a graph"):
            join(left, right, on=on, how=how, within="5 s", delay="1 s")
    with pytest.raises(TimeError, match="a streaming frame needs a watermark"):
        join(stream, stream, on="value", within="5 s")
    with pytest.raises(TimeError, match="one side has a watermark of its own"):
        join(stream.withWatermark("ts", "1 second"), stream, on="value", within="5 s", delay=(None, "1 s"))
    with pytest.raises(NotSupported, match="'complete' is not one of window_join's"):
        join(stream, stream, on="value", within="5 s", delay="1 s").writeStream.outputMode("complete")
