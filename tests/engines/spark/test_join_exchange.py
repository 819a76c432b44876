"""Where the rows of a join go: every pair that may be one meets on one partition, whatever the layout."""

from __future__ import annotations

import math
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
from penstock.engines.spark.join_exchange import (
    Cells,
    JoinExchange,
    JoinLayout,
    JoinPartitioner,
    plan_join_exchange,
    share_of_cells,
)
from penstock.operators.op import Stream
from penstock.operators.stream_join import StreamJoin
from penstock.stages.join.cell_places import GridPlace, HomeLayout, RangeLayout
from penstock.stages.join.model import ExchangeLoad
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


def cells_of(exchange: JoinExchange, n: int) -> Cells:
    """The cells for equal streams, as many as can be."""
    load = ExchangeLoad((1.0, 1.0), (1, 1), comparison=1.0)
    return min(exchange.grids(n), key=lambda cells: load.seconds([share_of_cells(cells)]))


def places_of(
    exchange: JoinExchange, side: int, batch: Batch, n: int, layout: JoinLayout | None = None
) -> dict[int, list[int]]:
    """Row -> the partitions that it is sent to, its home first."""
    homes: dict[int, int] = {}
    copies: dict[int, list[int]] = {}
    partitioner = JoinPartitioner(exchange, side, SCHEMA)
    for home, away, rows in partitioner.partition(batch, n, layout or cells_of(exchange, n)):
        for id_ in rows.rows.column("id").to_pylist():
            copies.setdefault(id_, []).extend(away)
            if home is not None:
                assert id_ not in homes, "a row has one home"
                homes[id_] = home
    places = {id_: [home, *copies[id_]] for id_, home in homes.items()}
    assert all(len(set(partitions)) == len(partitions) for partitions in places.values())
    return places


joins = st.builds(
    lambda on, how, layout, on_error, last_rows: StreamJoin(
        on, layout=layout, on_error=on_error, **bound_of(how, last_rows)
    ),
    st.sampled_from([BAND, "key", ["key", BAND], FUNCTION]),
    st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]),
    st.just("auto") | st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from(["fail", "skip", "dead_letter"]),
    st.none() | st.sampled_from([(0, 2), (2, 0), (2, 3)]),
)


def bound_of(how: str, last_rows: tuple[int, int] | None) -> dict[str, Any]:
    """Options of a join: the last rows, if such a join may have them, or a time."""
    may = {"inner": [(0, 2), (2, 0), (2, 3)], "right": [(2, 0)], "full": []}.get(how, [(0, 2)])
    return {"how": how, "last_rows": last_rows} if last_rows in may else {"how": how, "within": 5}


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
    has_all = isinstance(cells_of(exchange, n), HomeLayout)
    for i, left in enumerate(lefts):
        for j, right in enumerate(rights):
            common = set(of_left[i]) & set(of_right[j])
            if has_all:
                assert common >= {of_left[i][0], of_right[j][0]}, "the home of a row sees all rows"
            elif not exchange.keys or left[0] == right[0]:
                assert len(common) == 1
    # A row that leaves for having a partner, or none, or that meets the last rows, is known in one place.
    n_left, n_right = op.last_rows if isinstance(op.last_rows, tuple) else (0, 0)
    if not has_all and (op.how in ("left", "full", "semi", "anti") or n_right):
        assert all(len(places) == 1 for places in of_left.values())
    if not has_all and (op.how in ("right", "full") or n_left):
        assert all(len(places) == 1 for places in of_right.values())
    # A side whose last rows are met is in all cells that rows of the other are in.
    for n_last, of_side, opposite in ((n_left, of_left, of_right), (n_right, of_right, of_left)):
        everywhere = {place for places in opposite.values() for place in places}
        assert not n_last or all(everywhere <= set(places) for places in of_side.values())


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
    cells = cells_of(exchange, n)
    for bucket in range(2 * BUCKETS):
        side = bucket // BUCKETS
        owners = [part for part in range(n) if exchange.owns(bucket, part, n, cells)]
        saved = [exchange.place(part, cells).own_buckets()[side, bucket % BUCKETS] for part in owners]
        homes = [part for part, is_home in zip(owners, saved, strict=True) if is_home or exchange.keys]
        assert len(homes) == 1
        n_copies = cells.n_parts if isinstance(cells, HomeLayout) else cells[1 - side]
        assert len(owners) == (1 if exchange.keys else n_copies)


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
@given(
    st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]),
    st.sampled_from([BAND, ps.band("v", 0), ps.band("v", 1, strict=True), ps.band("v", 0.5, strict=True)]),
    st.lists(st.integers(-2, 12), min_size=1, max_size=6, unique=True).map(sorted),
    rows,
    rows,
    st.integers(0, 1),
)
def test_rows_within_a_band_meet_in_the_range_of_the_one_and_of_the_other_if_both_are_copied(
    how: str, band: Any, cuts: list[int], lefts: list[Any], rights: list[Any], choice: int
) -> None:
    exchange = plan_exchange(StreamJoin(band, within=5, how=how))
    layout = RangeLayout(0, tuple(cuts), exchange.copies[choice % len(exchange.copies)])
    lefts.append(("a", None, 0))
    of_left, of_right = (
        places_of(exchange, side, batch_of(given_rows, has_order=True), layout.n_parts, layout)
        for side, given_rows in enumerate((lefts, rights))
    )
    assert (len(of_left), len(of_right)) == (len(lefts), len(rights))
    whole = math.ceil(band.width) - 1 if band.strict else band.width
    for i, left in enumerate(lefts):
        for j, right in enumerate(rights):
            if left[1] is None or abs(left[1] - right[1]) > whole:
                continue
            if how in ("left", "semi", "anti", "full"):
                assert of_left[i][0] in of_right[j], "the home of the left row sees all its partners"
            if how in ("right", "full"):
                assert of_right[j][0] in of_left[i]
            if how != "full":
                assert len(set(of_left[i]) & set(of_right[j])) == 1
    assert len(of_left[len(lefts) - 1]) == 1, "a row that is close to nothing is not copied"
    for side, places in enumerate((of_left, of_right)):
        assert layout.copies[side] or all(len(partitions) == 1 for partitions in places.values())
        for partitions in places.values():
            for bucket in (partitions[0], partitions[0] + layout.n_parts):
                for partition in partitions:
                    assert exchange.owns(side * BUCKETS + bucket, partition, layout.n_parts, layout)


def test_only_bands_by_themselves_may_be_cut_into_ranges() -> None:
    assert not plan_exchange(StreamJoin([BAND, "key"], within=5)).bands
    assert not plan_exchange(StreamJoin(BAND, within=5, layout=(2, 2))).bands
    assert not plan_exchange(StreamJoin(BAND, last_rows=5)).bands
    assert plan_exchange(StreamJoin([BAND, FUNCTION], within=5)).bands == ((BAND, False),)
    failing = plan_exchange(StreamJoin([BAND, FUNCTION], within=5, on_error="skip"))
    assert failing.bands == ((BAND, False),)
    assert failing.copies == ((True, True),), "the home of each row sees all its pairs"


EXPLAINED = [
    ({"on": "key"}, "rows of equal key meet, over all partitions"),
    ({"on": "key", "layout": (2, 3)}, "rows of equal key meet, over 6 partitions"),
    (
        {"on": BAND},
        "m x n cells, which follow the rows of each side, or ranges of v once its values are known: "
        "each pair meets in one cell",
    ),
    ({"on": BAND, "layout": (2, 3)}, "2 x 3 cells: each pair meets in one cell"),
    (
        {"on": BAND, "how": "left", "layout": (2, 3)},
        "6 x 1 cells, for layout=(2, 3): whether a left row has a partner must be known in one place",
    ),
    (
        {"on": BAND, "how": "right"},
        "1 x n cells, one for each partition, or ranges of v once its values are known: "
        "whether a right row has a partner must be known in one place",
    ),
    (
        {"on": BAND, "how": "full"},
        "1 x 1 cell, or where comparisons cost more than rows, a cell for each partition that has all rows, "
        "or ranges of v once its values are known: "
        "rows of both sides leave if they have no partner, which must be known in one place",
    ),
    (
        {"on": FUNCTION, "on_error": "skip"},
        "1 x 1 cell, or where comparisons cost more than rows, a cell for each partition that has all rows: "
        "a row of which several pairs fail is one error, and must be known in one place",
    ),
    (
        {"on": FUNCTION, "how": "full", "layout": (2, 3)},
        "6 cells with all rows, for layout=(2, 3): "
        "rows of both sides leave if they have no partner, which must be known in one place",
    ),
    (
        {"on": "key", "within": None, "last_rows": 3},
        "1 x 1 cell, or where comparisons cost more than rows, a cell for each partition that has all rows: "
        "rows of both sides meet the last rows of a whole stream, so all must be in order",
    ),
    (
        {"on": "key", "within": None, "last_rows": (0, 3), "how": "left"},
        "m x 1 cells, one for each partition: each left row meets the last rows of the whole right",
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
    assert any(line.startswith("pairs: predicted for 4 partitions") for line in lines)


def test_a_join_of_pairs_that_cannot_fail_is_spread_whatever_becomes_of_errors() -> None:
    join = StreamJoin(BAND, within=5)
    assert plan_exchange(replace(join, on_error="skip")).lines == (True, True)


PREDICTED = [
    ("key", {}, "by key, each of which takes in 500 rows/s"),
    (BAND, {}, "2 x 2 cells, each of which takes in 1,000 rows/s, in ranges from 500"),
    (BAND, {"how": "left"}, "4 x 1 cells, each of which takes in 1,250 rows/s, in ranges from 500"),
    (BAND, {"layout": (4, 1)}, "4 x 1 cells, each of which takes in 1,250 rows/s"),
    (BAND, {"how": "full", "layout": (2, 1)}, "2 cells with all rows, each of which takes in 2,000 rows/s"),
    (FUNCTION, {"how": "full"}, "4 cells with all rows, each of which takes in 2,000 rows/s"),
    (BAND, {"how": "full"}, "1 x 1 cells, each of which takes in 2,000 rows/s, in ranges from 500"),
]


@pytest.mark.parametrize(("on", "options", "text"), PREDICTED, ids=[text for *_, text in PREDICTED])
def test_explain_predicts_what_a_cell_takes_in(on: Any, options: dict[str, Any], text: str) -> None:
    predicted = plan_exchange(StreamJoin(on, within=5, **options)).predict(4)
    assert predicted == f"predicted for 4 partitions at 1,000 rows/s of each side: {text}"
