"""Time columns of every type: windows mean the same, and results come back in the input's type and unit."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from tests.conformance.case import Case, cut

FEATURE = "Time columns"
WINDOW = "window_start window_end"


@pytest.mark.parametrize(("unit", "second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_integers_count_whatever_unit_was_declared(case: Case, unit: str, second: int) -> None:
    rows = case.timed_source(
        "t v", [(-1 * second, 1), (0, 2), (9 * second, 4), (10 * second, 8)], time_unit=unit
    )
    case.gives(
        rows.window(ps.tumbling("10 s")).aggregate(s=ps.sum("v"), at=ps.event_time_max()),
        f"{WINDOW} s at",
        (-10 * second, 0, 1, -1 * second),
        (0, 10 * second, 6, 9 * second),
        (10 * second, 20 * second, 8, 10 * second),
    )


@pytest.mark.parametrize(("unit", "us"), [("s", 10**6), ("ms", 10**3), ("us", 1)])
def test_a_bare_number_is_a_duration_in_the_unit_of_the_column(case: Case, unit: str, us: int) -> None:
    rows = case.timed_source("t", [(0,), (9,), (10,)], time_unit=unit, delay=5)
    case.gives(rows.window(ps.tumbling(10)).aggregate(n=ps.count()), f"{WINDOW} n", (0, 10, 2), (10, 20, 1))


def test_nanoseconds_are_floored_to_microseconds_also_before_1970(case: Case) -> None:
    #  -1 ns lies in the microsecond before 1970, 999 ns in the first one
    rows = case.timed_source("t", [(-1,), (0,), (999,), (1000,)], time_unit="ns")
    counts = rows.window(ps.tumbling("1 us")).aggregate(n=ps.count())
    case.gives(counts, f"{WINDOW} n", (-1000, 0, 1), (0, 1000, 2), (1000, 2000, 1))


def test_timestamps_without_a_zone_are_read_as_utc(case: Case) -> None:
    rows = case.timed_source(
        "t:timestamp v", [(datetime(1969, 12, 31, 23, 59, 59, 999_999), 1), (datetime(1970, 1, 1), 2)]
    )
    case.gives(
        rows.window(ps.tumbling("1 h")).aggregate(s=ps.sum("v"), at=ps.event_time_max()),
        f"{WINDOW} s at",
        (
            datetime(1969, 12, 31, 23),
            datetime(1970, 1, 1),
            1,
            datetime(1969, 12, 31, 23, 59, 59, 999_999),
        ),
        (datetime(1970, 1, 1), datetime(1970, 1, 1, 1), 2, datetime(1970, 1, 1)),
    )


def zoned_source(case: Case, *batches: list[tuple[Any, ...]], zone: str = "UTC") -> ps.MultiPipe:
    """A source with a zoned timestamp."""
    schema = {"t": pa.timestamp("us", zone), "v": "int64"}
    return case.graph.source(cut("t v", *batches, schema=schema), time="t", delay="0 s")


def test_timestamps_with_a_zone_are_instants(case: Case) -> None:
    plus_two = timezone(timedelta(hours=2))
    rows = zoned_source(
        case,
        [(datetime(2024, 1, 1, 0, 30, tzinfo=UTC), 1), (datetime(2024, 1, 1, 2, 45, tzinfo=plus_two), 2)],
    )
    case.gives(
        rows.window(ps.tumbling("1 h")).aggregate(s=ps.sum("v")),
        f"{WINDOW} s",
        (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 1, tzinfo=UTC), 3),
    )


def test_a_zone_changes_how_results_look_not_where_windows_begin(case: Case) -> None:
    rows = zoned_source(case, [(datetime(2024, 7, 1, 0, 30, tzinfo=UTC), 1)], zone="Asia/Kolkata")
    outcome = case.run(rows.window(ps.tumbling("1 h")).aggregate(s=ps.sum("v")))
    assert outcome.tables[0].schema.field("window_start").type == pa.timestamp("us", "Asia/Kolkata")
    assert outcome.values("window_start") == [datetime(2024, 7, 1, tzinfo=UTC)]


def test_an_hour_that_a_clock_change_repeats_is_two_hours(case: Case) -> None:
    #  In Berlin 02:30 comes twice on 2024-10-27; as instants they are an hour apart.
    first = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
    rows = zoned_source(case, [(first, 1), (first + timedelta(hours=1), 2)], zone="Europe/Berlin")
    outcome = case.run(rows.window(ps.tumbling("1 h")).aggregate(s=ps.sum("v")))
    assert sorted(outcome.values("s")) == [1, 2]


def test_dates_make_windows_of_days(case: Case) -> None:
    #  Weeks begin on Thursdays, as 1970 did.
    rows = case.timed_source(
        "t:date v",
        [(date(1969, 12, 31), 1), (date(1970, 1, 1), 2), (date(1970, 1, 7), 4), (date(1970, 1, 8), 8)],
    )
    case.gives(
        rows.window(ps.tumbling("7 d")).aggregate(s=ps.sum("v")),
        f"{WINDOW} s",
        (date(1969, 12, 25), date(1970, 1, 1), 1),
        (date(1970, 1, 1), date(1970, 1, 8), 6),
        (date(1970, 1, 8), date(1970, 1, 15), 8),
    )


def test_sessions_and_count_windows_come_back_in_the_type_of_the_column(case: Case) -> None:
    rows = case.timed_source("t:date", [(date(2024, 2, 28),), (date(2024, 2, 29),)])
    pipe = rows.window(rest=ps.session("1 d"), pair=ps.count_window(2)).aggregate(n=ps.count())
    case.gives(
        pipe,
        f"window {WINDOW} window_index n",
        ("rest", date(2024, 2, 28), date(2024, 3, 1), None, 2),
        ("pair", date(2024, 2, 28), date(2024, 2, 29), 0, 2),
    )


def test_nanosecond_timestamps_of_a_table_are_floored(case: Case) -> None:
    table = pa.table({"t": pa.array([-1, 0, 1_000_000_999], pa.timestamp("ns"))})
    rows = case.graph.source(ps.read.table(table), time="t", delay="0 s")
    case.gives(
        rows.window(ps.tumbling("1 s")).aggregate(at=ps.event_time_max()),
        f"{WINDOW} at",
        (
            datetime(1969, 12, 31, 23, 59, 59),
            datetime(1970, 1, 1),
            datetime(1969, 12, 31, 23, 59, 59, 999_999),
        ),
        (datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 1), datetime(1970, 1, 1)),
        (datetime(1970, 1, 1, 0, 0, 1), datetime(1970, 1, 1, 0, 0, 2), datetime(1970, 1, 1, 0, 0, 1)),
    )


def test_a_timedelta_is_a_duration_anywhere(case: Case) -> None:
    rows = case.timed_source("t", [(0,), (89,), (90,)], delay=timedelta(seconds=1))
    counts = rows.window(ps.tumbling(timedelta(minutes=1, seconds=30))).aggregate(n=ps.count())
    case.gives(counts, f"{WINDOW} n", (0, 90, 2), (90, 180, 1))


def test_watermarks_may_be_yielded_as_datetimes(case: Case) -> None:
    def feed() -> Any:
        yield {"t": datetime(2024, 1, 1, 0, 0, 5)}
        yield ps.Watermark(datetime(2024, 1, 1, 0, 0, 10))
        yield {"t": datetime(2024, 1, 1, 0, 0, 9)}

    rows = case.graph.source(
        ps.read.generator(feed, schema={"t": datetime}), time="t", watermark=ps.source_watermark()
    )
    counts = rows.window(ps.tumbling("10 s"), name="w").aggregate(n=ps.count())
    assert case.run(counts).account("w").late == 1
