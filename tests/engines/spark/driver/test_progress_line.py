"""The line on a terminal: what it says, when it shows, and that nothing else is ever written to."""

from __future__ import annotations

import io

import pytest

from penstock.engines.spark.driver.run import add_progress_line
from penstock.events import BatchDone, Event, RunEnded, RunStarted


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def batch(at: int, number: int, rows: int, lag: int | None = None) -> BatchDone:
    lags = {} if lag is None else {"trades": lag}
    return BatchDone(at, number, {"trades": rows}, {}, 180_000, {}, lags)


def run(*batches: BatchDone) -> list[Event]:
    return [RunStarted(0, "views", "spark", ()), *batches, RunEnded(9_000_000, "drained", len(batches))]


def render_lines(events: list[Event]) -> list[str]:
    screen, heard = Terminal(), list[Event]()
    sink = add_progress_line(heard.append, screen)
    for event in events:
        sink(event)
    assert heard == events  # whoever listens hears the same
    return screen.getvalue().split("\r")[1:]


def test_the_line_tells_rows_a_second_latency_and_lag() -> None:
    lines = render_lines(run(batch(2_000_000, 0, 3_000, lag=2_500_000)))
    assert lines == ["views  1 batches  1,500 rows/s  latency 180 ms  lag 2.5 s\x1b[K", "\x1b[K"]


def test_a_source_without_time_has_no_lag() -> None:
    assert render_lines(run(batch(2_000_000, 0, 10)))[0] == "views  1 batches  5 rows/s  latency 180 ms\x1b[K"


def test_a_short_run_shows_nothing() -> None:
    assert render_lines(run(batch(300_000, 0, 10), batch(900_000, 1, 10))) == []


def test_the_line_changes_five_times_a_second_at_most() -> None:
    batches = [batch(1_000_000 + 50_000 * i, i, 1) for i in range(20)]
    assert len(render_lines(run(*batches))) == 5 + 1


@pytest.mark.parametrize(("us", "text"), [(50, "50 us"), (90_000_000, "1.5 min"), (172_800_000_000, "2 d")])
def test_times_are_told_in_the_unit_that_fits(us: int, text: str) -> None:
    assert f"lag {text}\x1b" in render_lines(run(batch(2_000_000, 0, 1, lag=us)))[0]


def test_what_is_no_terminal_is_left_alone() -> None:
    screen, heard = io.StringIO(), list[Event]()
    assert add_progress_line(heard.append, screen) == heard.append
    assert screen.getvalue() == ""
