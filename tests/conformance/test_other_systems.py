"""What Flink, Beam, Kafka Streams, Spark, Bytewax and Pathway test, with the answers of our semantics.

Ported by meaning: the shapes are theirs, rows and expected results are our own. Two answers are ours alone:
a window leaves once, after its lateness (Flink and Kafka Streams give it again for every late row), and a
watermark W lets windows go that end at W, because it says that no row before W comes any more.
"""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.testing import Harness
from tests.conformance.case import Case

FEATURE = "What other systems test"
Result = tuple[Any, ...]


def follow(
    engine: str, window: Any, *script: list[tuple[int, str]] | int, lateness: int = 0
) -> list[tuple[list[Result], list[int]]]:
    """Feed a window step by hand: a list is a batch of (time, key), a number a watermark.

    Gives, for every entry, the results (key, start, end, count) and the times of the late rows; the
    end of the stream comes last.
    """
    graph = ps.PipeGraph("followed")
    reader = ps.read.rows([], schema={"t": int, "key": str})
    rows = graph.source(reader, time="t", time_unit="s", delay="1000 d")
    step = rows.key_by("key").window(window, lateness=lateness, name="w").aggregate(n=ps.count())
    harness = Harness(step, engine=engine)
    output = []
    for entry in [*script, None]:
        if entry is None:
            assert harness.end().accounts["w"].is_balanced
        elif isinstance(entry, int):
            harness.watermark(entry)
        else:
            harness.push([{"t": t, "key": key} for t, key in entry])
        results = [(r["key"], r["window_start"], r["window_end"], r["n"]) for r in harness.take()]
        output.append((results, [row["t"] for row in harness.late()]))
    return output


NOTHING: tuple[list[Result], list[int]] = ([], [])


def test_flink_a_tumbling_window_waits_out_its_lateness_and_leaves_once(engine: str) -> None:
    output = follow(
        engine, ps.tumbling(20), [(5, "a")], 20, [(19, "a")], 24, [(18, "a")], 25, [(17, "a")], lateness=5
    )
    assert output == [*[NOTHING] * 5, ([("a", 0, 20, 3)], []), ([], [17]), NOTHING]


def test_flink_a_window_is_there_until_the_watermark_is_at_its_end(engine: str) -> None:
    output = follow(engine, ps.tumbling(20), [(0, "a"), (19, "b")], 19, [(1, "a")], 20)
    assert output == [*[NOTHING] * 3, ([("a", 0, 20, 2), ("b", 0, 20, 1)], []), NOTHING]


def test_flink_a_row_late_for_the_first_of_its_sliding_windows_is_in_the_others(engine: str) -> None:
    #  size 30, every 10: a row at 10 is in [-10, 20), [0, 30) and [10, 40)
    output = follow(engine, ps.sliding(30, every=10), [(10, "a")], 20, [(11, "a")], 40, [(12, "a")])
    assert output[1] == ([("a", -10, 20, 1)], [])
    assert output[3] == ([("a", 0, 30, 2), ("a", 10, 40, 2)], [])
    assert output[4:] == [([], [12]), NOTHING]


def test_flink_a_session_that_a_row_prolongs_does_not_leave_at_its_old_end(engine: str) -> None:
    output = follow(engine, ps.session(30), [(10, "a"), (20, "a")], 49, [(45, "a")], 74, 75)
    assert output == [*[NOTHING] * 4, ([("a", 10, 75, 3)], []), NOTHING]


def test_flink_a_row_behind_the_watermark_that_touches_an_open_session_is_in_it(engine: str) -> None:
    #  W = 60: a row at 20 would be a session [20, 50) that is gone, but [50, 80) is open and touches it
    output = follow(engine, ps.session(30), [(50, "a")], 60, [(20, "a")], [(19, "b")], 80)
    assert output == [NOTHING, NOTHING, NOTHING, ([], [19]), ([("a", 20, 80, 2)], []), NOTHING]


def test_flink_sessions_with_lateness_merge_until_it_is_over(engine: str) -> None:
    output = follow(
        engine, ps.session(10), [(0, "a"), (30, "a")], 14, [(8, "a")], 27, 28, [(19, "a")], lateness=10
    )
    assert output[3:5] == [NOTHING, ([("a", 0, 18, 2)], [])]
    #  [19, 29) is in time until W = 39, and joins nothing: [0, 18) has gone, [30, 40) does not touch it
    assert output[5:] == [NOTHING, ([("a", 19, 29, 1), ("a", 30, 40, 1)], [])]


@pytest.mark.parametrize(
    ("t", "starts"),
    [(4_999, [0, 1_000, 2_000, 3_000, 4_000]), (5_000, [1_000, 2_000, 3_000, 4_000, 5_000]), (-1, None)],
)
def test_flink_a_row_at_the_last_and_at_the_first_moment_of_windows(
    engine: str, t: int, starts: list[int] | None
) -> None:
    starts = starts or [-5_000, -4_000, -3_000, -2_000, -1_000]
    output = follow(engine, ps.sliding(5_000, every=1_000), [(t, "a")])
    assert output[-1][0] == [("a", start, start + 5_000, 1) for start in starts]


def test_kafka_streams_stream_time_and_grace_close_a_window(engine: str) -> None:
    #  Kafka's stream time is a watermark without delay, its grace is our lateness
    case = Case(engine)
    rows = case.timed_source("t", *([(t,)] for t in (0, 9, 14, 3, 15, 2)))
    counts = rows.window(ps.tumbling(10), lateness=5, name="w").aggregate(n=ps.count())
    outcome = case.run(counts, counts.late)
    assert [(r["window_start"], r["n"]) for r in outcome.rows()] == [(0, 3), (10, 2)]
    assert outcome.values("t", pipe=1) == [2]


def test_kafka_streams_one_key_moves_stream_time_for_all(engine: str) -> None:
    output = follow(engine, ps.tumbling(10), [(1, "a")], [(2, "b")], 10, [(3, "a"), (11, "b")])
    assert output[2] == ([("a", 0, 10, 1), ("b", 0, 10, 1)], [])
    assert output[3] == ([], [3])


@pytest.mark.parametrize(
    ("times", "sessions"),
    [
        ([0, 61], [(0, 60, 1), (61, 121, 1)]),
        ([0, 61, 30], [(0, 121, 3)]),  # a bridge
        ([0, 60], [(0, 120, 2)]),  # exactly a gap apart
        ([0, 0, 0], [(0, 60, 3)]),
        ([100, 41, 200, 150, 41], [(41, 260, 5)]),
        ([0, 70, 140, 210], [(0, 60, 1), (70, 130, 1), (140, 200, 1), (210, 270, 1)]),
        ([0, 70, 140, 210, 35, 175], [(0, 130, 3), (140, 270, 3)]),
        ([0, 70, 140, 210, 35, 175, 105], [(0, 270, 7)]),
    ],
)
def test_kafka_streams_sessions_merge_in_whatever_order_their_rows_come(
    engine: str, times: list[int], sessions: list[tuple[int, int, int]]
) -> None:
    one_by_one = follow(engine, ps.session(60), *([(t, "a")] for t in times))
    at_once = follow(engine, ps.session(60), [(t, "a") for t in times])
    assert one_by_one[-1][0] == at_once[-1][0] == [("a", *session) for session in sessions]


def pairs(case: Case, left: list[int], right: list[int], **options: Any) -> list[tuple[Any, Any]]:
    """Join two streams on time alone, every row a batch; the pairs of times, sorted."""
    one = case.timed_source("t", *([(t,)] for t in left), delay=1_000)
    other = case.timed_source("u:int64", *([(u,)] for u in right), delay=1_000)
    joined = one.join(other, on=lambda a, b: True, **options)
    rows = case.run(joined).rows()
    return sorted(((r["t"], r["u"]) for r in rows), key=lambda pair: tuple(n is None or n for n in pair))


def test_kafka_streams_a_join_window_has_both_its_ends(case: Case) -> None:
    assert pairs(case, [1_000], [899, 900, 1_000, 1_100, 1_101], within=100) == [
        (1_000, 900),
        (1_000, 1_000),
        (1_000, 1_100),
    ]


@pytest.mark.parametrize(
    ("within", "met"), [((100, 0), [1_000, 1_100]), ((0, 100), [900, 1_000]), ((0, 0), [1_000])]
)
def test_kafka_streams_a_join_window_may_lie_before_or_after(
    case: Case, within: tuple[int, int], met: list[int]
) -> None:
    matches = pairs(case, [1_000], [899, 900, 1_000, 1_100, 1_101], within=within)
    assert matches == [(1_000, u) for u in met]


def test_kafka_streams_a_left_join_gives_a_row_alone_only_if_it_stays_alone(engine: str) -> None:
    graph = ps.PipeGraph("alone")
    schemas = ({"t": int, "key": str}, {"u": int, "key": str})
    left, right = (
        graph.source(ps.read.rows([], schema=schema), time=next(iter(schema)), time_unit="s", delay="1 d")
        for schema in schemas
    )
    harness = Harness(left.join(right, on="key", within="10 s", how="left"), engine=engine)
    harness.push([{"t": 0, "key": "a"}, {"t": 0, "key": "b"}], source="source")
    harness.watermark(10)
    assert harness.take() == []
    harness.push([{"u": 10, "key": "a"}], source="source-2")
    assert harness.take() == [{"t": 0, "key": "a", "u": 10}]
    harness.watermark(11)
    assert harness.take() == [{"t": 0, "key": "b", "u": None}]


def test_kafka_streams_rows_without_a_key_join_nothing(case: Case) -> None:
    left = case.timed_source("t key v", [(1, None, 1), (1, "a", 2)])
    right = case.timed_source("u:int64 key w:int64", [(1, None, 3), (1, "a", 4)])
    case.gives(left.join(right, on="key", within=5), "t key v u w", (1, "a", 2, 1, 4))


def test_spark_a_window_leaves_when_the_delay_has_passed_and_a_later_row_is_late(case: Case) -> None:
    rows = case.timed_source("t", [(t,) for t in range(10, 16)], [(25,)], [(10,)], [(24,)], delay=10)
    counts = rows.window(ps.tumbling(5), name="w").aggregate(n=ps.count())
    outcome = case.run(counts, counts.late)
    assert [(r["window_start"], r["n"]) for r in outcome.rows()] == [(10, 5), (15, 1), (20, 1), (25, 1)]
    assert outcome.values("t", pipe=1) == [10]


def test_spark_sessions_of_words(case: Case) -> None:
    #  Spark drops the row at 25 only when W has passed 35; here W is 11
    feeds = [(40, "hello"), (40, "world")], [(41, "world"), (41, "hello")], [(25, "spark")], [(90, "x")]
    rows = case.timed_source("t key", *feeds, delay=30).key_by("key")
    case.gives(
        rows.window(ps.session(10)).aggregate(n=ps.count()),
        "key window_start window_end n",
        ("hello", 40, 51, 2),
        ("world", 40, 51, 2),
        ("spark", 25, 35, 1),
        ("x", 90, 100, 1),
    )


def test_spark_two_streams_have_the_slower_watermark(case: Case) -> None:
    fast = case.timed_source("t", [(5,)], [(100,)], [(101,)])
    slow = case.timed_source("t", [(5,)], [(9,)], [(8,)])
    counts = fast.merge(slow).window(ps.tumbling(10), name="w").aggregate(n=ps.count())
    outcome = case.gives(counts, "window_start window_end n", (0, 10, 4), (100, 110, 2))
    assert outcome.account("w").late == 0


def test_spark_windows_of_windows_add_up(case: Case) -> None:
    rows = case.timed_source("t", *([(t,)] for t in range(40)))
    fives = rows.window(ps.tumbling(5), name="fives").aggregate(n=ps.count())
    twenties = fives.window(ps.tumbling(20), name="twenties").aggregate(parts=ps.count(), rows=ps.sum("n"))
    outcome = case.gives(twenties, "window_start window_end parts rows", (0, 20, 4, 20), (20, 40, 4, 20))
    assert outcome.account("twenties").late == 0


def test_spark_duplicates_can_be_dropped_with_state(case: Case) -> None:
    def first_of_its_kind(row: ps.Row, seen: list[int]) -> bool:
        seen.append(1)
        return len(seen) == 1

    rows = case.timed_source("t key", [(1, "a"), (1, "a"), (2, "b")], [(3, "a"), (2, "c")], delay=2)
    case.gives(
        rows.key_by("key").filter(first_of_its_kind, state=list), "t key", (1, "a"), (2, "b"), (2, "c")
    )


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_spark_a_range_of_time_and_a_condition_join(case: Case, how: Any) -> None:
    #  clicks up to 20 after their impression
    left = case.timed_source("t ad:int64", [(10, 1), (20, 2)], [(30, 3)], delay=50)
    right = case.timed_source("u:int64 of:int64", [(15, 1), (41, 2)], [(50, 3), (5, 3)], delay=50)
    joined = left.join(right, on=ps.equal("ad", "of"), within=(20, 0), how=how)
    wanted: list[Result] = [(10, 1, 15, 1), (30, 3, 50, 3)]
    wanted += [(20, 2, None, None)] if how in ("left", "full") else []
    wanted += [(None, None, 41, 2), (None, None, 5, 3)] if how in ("right", "full") else []
    case.gives(joined, "t ad u of", *wanted)


def two_sources(graph: ps.PipeGraph) -> tuple[ps.MultiPipe, ps.MultiPipe]:
    """Two streams, (t, key) and (u, key), whose watermark only a harness moves."""
    schemas = ({"t": int, "key": str}, {"u": int, "key": str})
    left, right = (
        graph.source(ps.read.rows([], schema=schema), time=next(iter(schema)), time_unit="s", delay="1 d")
        for schema in schemas
    )
    return left, right


@pytest.mark.parametrize("how", ["left", "right", "full"])
def test_spark_rows_without_a_partner_leave_when_the_watermark_has_passed_their_range(
    engine: str, how: Any
) -> None:
    left, right = two_sources(ps.PipeGraph("alone"))
    harness = Harness(left.join(right, on="key", within=("5 s", "3 s"), how=how), engine=engine)
    harness.push([{"t": 10, "key": "a"}], source="source")
    harness.push([{"u": 10, "key": "b"}], source="source-2")
    harness.watermark(13)
    assert harness.take() == []  # a left row at 13 could still come for "b"
    harness.watermark(14)
    assert [row["key"] for row in harness.take()] == (["b"] if how != "left" else [])
    harness.watermark(15)
    assert harness.take() == []  # and a right row at 15 for "a"
    harness.watermark(16)
    assert [row["key"] for row in harness.take()] == (["a"] if how != "right" else [])


def test_spark_a_left_semi_join_gives_a_row_when_its_first_partner_comes(engine: str) -> None:
    left, right = two_sources(ps.PipeGraph("semi"))
    harness = Harness(left.join(right, on="key", within="5 s", how="semi"), engine=engine)
    harness.push([{"t": 1, "key": "a"}, {"t": 2, "key": "b"}], source="source")
    assert harness.take() == []
    harness.push([{"u": 3, "key": "a"}, {"u": 2, "key": "a"}], source="source-2")
    assert harness.take() == [{"t": 1, "key": "a"}]
    harness.push([{"u": 4, "key": "a"}], source="source-2")
    harness.end()
    assert harness.take() == []


def test_flink_a_left_anti_join_gives_a_row_when_no_partner_can_come(engine: str) -> None:
    left, right = two_sources(ps.PipeGraph("anti"))
    harness = Harness(left.join(right, on="key", within="5 s", how="anti"), engine=engine)
    harness.push([{"t": 1, "key": "a"}, {"t": 2, "key": "b"}], source="source")
    harness.push([{"u": 3, "key": "a"}], source="source-2")
    harness.watermark(7)
    assert harness.take() == []
    harness.watermark(8)
    assert harness.take() == [{"t": 2, "key": "b"}]


@pytest.mark.parametrize(
    ("lower", "upper", "met"),
    [(-2, 2, [3, 4, 5, 6, 7]), (0, 2, [5, 6, 7]), (-2, 0, [3, 4, 5]), (0, 0, [5])],
)
def test_flink_an_interval_join_includes_both_its_bounds(
    case: Case, lower: int, upper: int, met: list[int]
) -> None:
    #  left + lower <= right <= left + upper
    matches = pairs(case, [5], list(range(10)), within=(upper, -lower))
    assert matches == [(5, u) for u in met]


def test_flink_an_interval_join_may_leave_its_bounds_out(case: Case) -> None:
    left = case.timed_source("t", [(5,)], name="left")
    right = case.timed_source("u:int64", [(u,) for u in range(10)], name="right")
    apart = ps.right("u") - ps.left("t")
    joined = left.join(right, on=(apart > -2) & (apart < 2), within=2)
    assert case.run(joined).bag("u") == [4, 5, 6]


def test_flink_and_beam_rows_are_paired_in_each_sliding_window(case: Case) -> None:
    left = case.timed_source("t key", [(0, "a"), (1, "a"), (2, "a")], name="left")
    right = case.timed_source("u:int64 key", [(1, "a")], name="right")
    joined = left.join(right, on="key", window=ps.sliding(2, every=1))
    case.gives(
        joined,
        "t key u window_start window_end",
        (0, "a", 1, 0, 2),
        (1, "a", 1, 0, 2),
        (1, "a", 1, 1, 3),
        (2, "a", 1, 1, 3),
    )


def test_beam_groups_of_two_streams_in_one_window_with_a_side_missing(case: Case) -> None:
    left = case.timed_source("t key", [(0, "a"), (1, "b"), (10, "a")], name="left")
    right = case.timed_source("u:int64 key", [(2, "a"), (3, "c")], name="right")
    joined = left.join(right, on="key", window=ps.tumbling(10), how="full")
    case.gives(joined, "t key u", (0, "a", 2), (1, "b", None), (10, "a", None), (None, "c", 3))


def test_kafka_streams_an_outer_join_gives_both_kinds_of_rows_alone(case: Case) -> None:
    left = case.timed_source("t key v", [(0, "a", 1), (0, "b", 2)], [(30, "z", 0)], name="left")
    right = case.timed_source("u:int64 key w:int64", [(1, "a", 3), (1, "c", 4)], [(30, "z", 0)], name="right")
    joined = left.join(right, on="key", within=5, how="full")
    case.gives(
        joined,
        "t key v u w",
        (0, "a", 1, 1, 3),
        (0, "b", 2, None, None),
        (None, "c", None, 1, 4),
        (30, "z", 0, 30, 0),
    )


def test_databases_an_as_of_join_takes_the_latest_row_before(case: Case) -> None:
    #  a trade meets the quote before it, of whatever symbol: the predicate is asked after the count
    trades = case.timed_source("t v", [(3, 1), (6, 2), (0, 3)], name="trades")
    quotes = case.timed_source("u:int64 bid:int64", [(1, 10), (2, 20), (5, 30)], name="quotes")
    joined = trades.join(quotes, on=lambda trade, quote: True, last_rows=(0, 1), how="left")
    case.gives(joined, "t v u bid", (0, 3, None, None), (3, 1, 2, 20), (6, 2, 5, 30))


def test_beam_fixed_windows_begin_at_multiples_on_both_sides_of_zero(engine: str) -> None:
    output = follow(engine, ps.tumbling(5), [(t, "a") for t in (-6, -5, -1, 0, 4, 5)])
    assert output[-1][0] == [("a", -10, -5, 1), ("a", -5, 0, 2), ("a", 0, 5, 2), ("a", 5, 10, 1)]


def test_beam_sliding_windows_whose_period_is_longer_than_they_are(engine: str) -> None:
    output = follow(engine, ps.sliding(2, every=5), [(t, "a") for t in range(12)])
    assert output[-1][0] == [("a", 0, 2, 2), ("a", 5, 7, 2), ("a", 10, 12, 2)]


def test_beam_sessions_are_of_one_key(engine: str) -> None:
    output = follow(engine, ps.session(10), [(1, "a"), (2, "b"), (9, "a"), (14, "b"), (20, "a")])
    assert sorted(output[-1][0]) == [("a", 1, 19, 2), ("a", 20, 30, 1), ("b", 2, 12, 1), ("b", 14, 24, 1)]


def test_beam_fixed_windows_can_be_put_into_sessions(case: Case) -> None:
    #  a result happens just before the end of its window, so these are 10 and 30 apart
    rows = case.timed_source("t", *([(s,)] for s in (1, 11, 41)))
    counts = rows.window(ps.tumbling("10 s")).aggregate(n=ps.count())
    again = counts.window(ps.session("10 s")).aggregate(n=ps.sum("n"))
    assert case.run(again).values("n") == [2, 1]


def test_beam_an_infinite_watermark_lets_everything_go(engine: str) -> None:
    output = follow(engine, ps.tumbling(10), [(1, "a"), (1_000_000, "a")], lateness=1_000_000_000)
    assert output == [NOTHING, ([("a", 0, 10, 1), ("a", 1_000_000, 1_000_010, 1)], [])]


def test_bytewax_sessions_in_order_and_a_late_row(case: Case) -> None:
    rows = case.timed_source("t", *([(t,)] for t in (1, 5, 11, 12, 13, 14, 20, 1)))
    sessions = rows.window(ps.session(5), name="w").aggregate(n=ps.count())
    outcome = case.run(sessions, sessions.late)
    assert [(r["window_start"], r["n"]) for r in outcome.rows()] == [(1, 2), (11, 4), (20, 1)]
    assert outcome.values("t", pipe=1) == [1]


def test_bytewax_a_window_collects_in_order_of_time_whatever_the_order_of_arrival(case: Case) -> None:
    rows = case.timed_source("t key", [(8, "c"), (4, "b")], [(0, "a"), (12, "d")], delay=10)
    lists = rows.window(ps.tumbling(10)).aggregate(keys=ps.collect("key"))
    assert case.run(lists).values("keys") == [["a", "b", "c"], ["d"]]


def test_bytewax_the_latest_and_the_greatest_of_a_window(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 5), (3, 9), (2, 7)], [(11, 1)])
    pipe = rows.window(ps.tumbling(10)).aggregate(last=ps.last("v"), most=ps.max("v"), least=ps.min("v"))
    case.gives(pipe, "window_start window_end last most least", (0, 10, 9, 9, 5), (10, 20, 1, 1, 1))


def test_bytewax_and_flink_streams_are_joined_inside_a_tumbling_window(case: Case) -> None:
    left = case.timed_source("t key", [(0, "a"), (1, "a"), (2, "b")], [(3, "a")], delay=3)
    right = case.timed_source("u:int64 key", [(2, "a")], [(3, "b"), (5, "a")], delay=3)
    joined = left.join(right, on="key", window=ps.tumbling(3))
    case.gives(joined, "t key u", (0, "a", 2), (1, "a", 2), (3, "a", 5))


TIMES, OTHERS = [-2, 0, 3, 4, 9, 14], [3, 6, 7, 11, 16]


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("within", [1, 2, 3])
def test_pathway_an_interval_join_on_time_alone(case: Case, how: str, within: int) -> None:
    met = [(t, u) for t in TIMES for u in OTHERS if abs(t - u) <= within]
    alone: list[tuple[Any, Any]] = []
    if how in ("left", "full"):
        alone += [(t, None) for t in TIMES if all(t != pair[0] for pair in met)]
    if how in ("right", "full"):
        alone += [(None, u) for u in OTHERS if all(u != pair[1] for pair in met)]
    matches = pairs(case, TIMES, OTHERS, within=within, how=how)
    assert sorted(matches, key=str) == sorted(met + alone, key=str)


def test_pathway_windows_by_a_computed_key(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 1), (2, -1), (3, 4), (12, -9)])
    sums = rows.key_by(positive=col("v") > 0).window(ps.tumbling(10)).aggregate(total=ps.sum("v"))
    case.gives(
        sums,
        "positive window_start window_end total",
        (True, 0, 10, 5),
        (False, 0, 10, -1),
        (False, 10, 20, -9),
    )


def test_pathway_a_cutoff_ignores_what_comes_too_late_and_nothing_else(engine: str) -> None:
    output = follow(engine, ps.sliding(10, every=5), [(12, "a")], 18, [(9, "a")], [(4, "a")], lateness=2)
    #  W = 18: windows that end at 15 stay until 17, so a row at 9 has only missed [5, 15) and [0, 10)
    assert output[1][0] == [("a", 5, 15, 1)]
    assert output[2:4] == [([], [9]), ([], [4])]
    assert output[4][0] == [("a", 10, 20, 1)]
