"""Where the rows of a join go: every pair that may be one meets on one partition, whatever the layout."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.join_exchange import JoinExchange, JoinPartitioner, plan_join_exchange
from penstock.operators.op import Stream
from penstock.operators.stream_join import StreamJoin
from penstock.stages.join.grid_place import GridPlace, choose_cells
from penstock.stages.keys.slots import BUCKETS
from penstock.stages.rows.batch import Batch

SCHEMA = pa.schema(
    [("key", pa.string()), ("v", pa.int64()), ("id", pa.int64()), ("tags", pa.list_(pa.string()))]
)
BAND, FUNCTION = ps.band("v", 3), lambda left, right: True


def plan_exchange(op: StreamJoin) -> JoinExchange:
    return plan_join_exchange(op, Stream(SCHEMA), Stream(SCHEMA))


def batch_of(rows: list[tuple[str, int, int]], *, has_order: bool) -> Batch:
    """Rows (key, v, time), numbered."""
    columns = [
        [row[0] for row in rows],
        [row[1] for row in rows],
        list(range(len(rows))),
        [["x"]] * len(rows),
    ]
    table = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
    order = (np.zeros(len(rows), np.int64), np.arange(len(rows), dtype=np.int64)) if has_order else ()
    return Batch(table, np.array([row[2] for row in rows], np.int64), order)


def places_of(exchange: JoinExchange, side: int, batch: Batch, n: int) -> dict[int, set[int]]:
    """Row -> the partitions that it is sent to."""
    places: dict[int, set[int]] = {}
    for partitions, rows in JoinPartitioner(exchange, side, SCHEMA).partition(batch, n, exchange.cells(n)):
        assert len(partitions) == len(set(partitions))
        for id_ in rows.rows.column("id").to_pylist():
            assert id_ not in places, "a row is given once"
            places[id_] = set(partitions)
    return places


joins = st.builds(
    lambda on, how, layout: StreamJoin(on, within=5, how=how, layout=layout),
    st.sampled_from([BAND, "key", ["key", BAND], FUNCTION]),
    st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]),
    st.just("auto") | st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 3)), max_size=30)


@pytest.mark.slow
@given(joins, rows, rows, st.integers(1, 40), st.booleans())
def test_every_two_rows_that_may_be_a_pair_meet_on_one_partition(
    op: StreamJoin, lefts: list[Any], rights: list[Any], n: int, has_order: bool
) -> None:
    exchange = plan_exchange(op)
    n = max(n, exchange.n_least)
    of_left = places_of(exchange, 0, batch_of(lefts, has_order=has_order), n)
    of_right = places_of(exchange, 1, batch_of(rights, has_order=has_order), n)
    assert (len(of_left), len(of_right)) == (len(lefts), len(rights))
    assert all(max(places) < n for places in (*of_left.values(), *of_right.values()))
    for i, left in enumerate(lefts):
        for j, right in enumerate(rights):
            if not exchange.keys or left[0] == right[0]:
                assert len(of_left[i] & of_right[j]) == 1
    # A row that leaves for having a partner, or none, is known in one place.
    if op.how in ("left", "full", "semi", "anti"):
        assert all(len(places) == 1 for places in of_left.values())
    if op.how in ("right", "full"):
        assert all(len(places) == 1 for places in of_right.values())


@pytest.mark.slow
@given(joins, rows.filter(bool), st.integers(1, 40), st.booleans())
def test_where_a_row_goes_depends_on_nothing_but_the_row(
    op: StreamJoin, given_rows: list[Any], n: int, has_order: bool
) -> None:
    exchange, batch = plan_exchange(op), batch_of(given_rows, has_order=has_order)
    for side in (0, 1):
        whole = places_of(exchange, side, batch, n)
        alone = [places_of(exchange, side, batch.take(np.array([at])), n) for at in range(len(given_rows))]
        if has_order:
            assert whole == {at: places for one in alone for at, places in one.items()}
        else:  # its number is one of its columns here
            assert all(whole[at] == one[at] for at, one in enumerate(alone))


@pytest.mark.slow
@given(joins, st.integers(1, 40))
def test_every_bucket_of_state_has_one_home_and_is_restored_wherever_its_rows_are(
    op: StreamJoin, n: int
) -> None:
    exchange = plan_exchange(op)
    n = max(n, exchange.n_least)
    for bucket in range(2 * BUCKETS):
        side = bucket // BUCKETS
        owners = [part for part in range(n) if exchange.owns(bucket, part, n, exchange.cells(n))]
        homes = [part for part in owners if exchange.place(part, exchange.cells(n)).is_home(side)]
        m_n = exchange.cells(n)
        assert len(homes) == 1
        assert len(owners) == (1 if exchange.keys else m_n[1 - side])


@given(st.integers(1, 16), st.integers(1, 16), st.lists(st.integers(0, 10_000), min_size=1))
def test_new_rows_have_buckets_that_their_own_cell_restores(m: int, n: int, numbers: list[int]) -> None:
    for i in range(m):
        place = GridPlace((i, 0), (m, n))
        buckets = place.buckets(0, np.array(numbers))
        assert all(0 <= bucket < BUCKETS and place.owns(0, bucket) for bucket in buckets.tolist())


@pytest.mark.parametrize("has_order", [True, False])
def test_rows_are_spread_evenly_even_if_all_are_of_one_time_and_value(has_order: bool) -> None:
    exchange = plan_exchange(StreamJoin(BAND, within=5, layout=(4, 2)))
    places = places_of(exchange, 0, batch_of([("a", 1, 7)] * 4000, has_order=has_order), 8)
    counts = Counter(min(of_row) for of_row in places.values())
    assert len(counts) == 4
    assert max(counts.values()) < 1.3 * min(counts.values())


@pytest.mark.slow
@given(st.integers(1, 64), st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)))
def test_no_layout_brings_fewer_rows_to_a_cell_than_the_one_that_is_chosen(
    max_cells: int, rates: tuple[float, float]
) -> None:
    m, n = choose_cells(max_cells, rates)
    assert m * n <= max_cells
    best = min(
        rates[0] / rows + rates[1] / columns
        for rows in range(1, max_cells + 1)
        for columns in range(1, max_cells + 1)
        if rows * columns <= max_cells
    )
    assert rates[0] / m + rates[1] / n <= best * (1 + 1e-9)


def test_cells_follow_the_rows_of_each_side_when_that_is_worth_its_price() -> None:
    exchange = plan_exchange(StreamJoin(BAND, within=5))
    assert exchange.cells(6) == (2, 3)
    assert exchange.cells(6, (1000, 900), now=(2, 3)) == (2, 3)
    assert exchange.cells(6, (3000, 10), now=(2, 3)) == (6, 1)
    assert exchange.cells(6, (10, 3000), now=(6, 1)) == (1, 6)
    assert exchange.cells(2, (1000, 900), now=(2, 3)) == (2, 1), "there are fewer partitions"
    fixed = plan_exchange(StreamJoin(BAND, within=5, layout=(3, 2)))
    assert fixed.cells(6, (3000, 10), now=(3, 2)) == (3, 2)


EXPLAINED = [
    ({"on": "key"}, "rows of equal key meet, over all partitions"),
    ({"on": "key", "layout": (2, 3)}, "rows of equal key meet, over 6 partitions"),
    (
        {"on": BAND},
        "m x n cells, which follow the rows that are kept of each side: each pair meets in one cell",
    ),
    ({"on": BAND, "layout": (2, 3)}, "2 x 3 cells: each pair meets in one cell"),
    (
        {"on": BAND, "how": "left", "layout": (2, 3)},
        "6 x 1 cells, for layout=(2, 3): whether a left row has a partner must be known in one place",
    ),
    (
        {"on": BAND, "how": "right"},
        "1 x n cells, one for each partition: whether a right row has a partner must be known in one place",
    ),
    (
        {"on": BAND, "how": "full"},
        "1 x 1 cell: rows of both sides leave if they have no partner, which must be known in one place",
    ),
    (
        {"on": FUNCTION, "on_error": "skip"},
        "1 x 1 cell: a row of which several pairs fail is one error, and must be known in one place",
    ),
    (
        {"on": "key", "within": None, "last_rows": 3},
        "1 x 1 cell: the last rows are those of the whole stream",
    ),
]


@pytest.mark.parametrize(("options", "text"), EXPLAINED, ids=[text for _, text in EXPLAINED])
def test_explain_says_how_rows_reach_cells_and_why(options: dict[str, Any], text: str) -> None:
    graph = ps.PipeGraph("explained")
    schema = {"t": "int64", "key": "string", "v": "int64"}
    left, right = (
        graph.source(ps.read.batches([], schema=schema), time="t", time_unit="s", delay="1 s", name=name)
        for name in ("left", "right")
    )
    joined = left.join(right, suffix="_right", name="pairs", **{"within": "5 s"} | options)
    joined.sink(ps.write.memory())
    lines = SparkEngine().explain(graph.plan())
    assert "fragment 1, after an exchange: pairs" in lines
    assert f"pairs: {text}" in lines


def test_a_join_of_pairs_that_cannot_fail_is_spread_whatever_becomes_of_errors() -> None:
    join = StreamJoin(BAND, within=5)
    assert plan_exchange(replace(join, on_error="skip")).lines == (True, True)
