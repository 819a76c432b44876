"""Windows that hold nothing, do not fit the time column, or are told to make nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock import GraphError, SchemaError, TimeError, col
from tests.support.mistakes import Mistake, check_refusal
from tests.support.trades import TRADES, timeless, trades

MINUTE = ps.tumbling("1 min")
N = {"n": ps.count()}
WRONG: Any = "10 s"  # an argument of the wrong type
BACK = timedelta(seconds=-1)


def by_date() -> ps.MultiPipe:
    """Trades whose time is a date."""
    return ps.PipeGraph("shop").source(ps.read.rows([], schema=TRADES), time="day", delay="1 d", name="dated")


WINDOWS = [
    Mistake("no time", lambda p: timeless().window(MINUTE).aggregate(N), TimeError,
            "a window needs event time", "window", also='time="ts"'),
    Mistake("size zero", lambda p: p.window(ps.tumbling("0 s")).aggregate(N), TimeError,
            "window size 0 us is not longer than zero", "window"),
    Mistake("negative size", lambda p: p.window(ps.tumbling(BACK)).aggregate(N), TimeError,
            "window size -1 s is not longer", "window"),
    Mistake("slide zero", lambda p: p.window(ps.sliding("1 s", every="0 s")).aggregate(N), TimeError,
            "window slide 0 us is not longer", "window", also='every="1 s"'),
    Mistake("negative slide", lambda p: p.window(ps.sliding("1 s", every=BACK)).aggregate(N), TimeError,
            "window slide -1 s", "window"),
    Mistake("gap zero", lambda p: p.window(ps.session("0 s")).aggregate(N), TimeError,
            "session gap 0 us is not longer", "window", also='ps.session("30 s")'),
    Mistake("gap beyond all times", lambda p: p.window(ps.session("53375996 d")).aggregate(N), TimeError,
            "session gap 53375996 d is too long", "window", also="13343998 days"),
    Mistake("size beyond all times", lambda p: p.window(ps.tumbling("13343999 d")).aggregate(N), TimeError,
            "window size 13343999 d is too long", "window", also="13343998 days"),
    Mistake("lateness beyond all times", lambda p: p.window(MINUTE, lateness="13343999 d").aggregate(N),
            TimeError, "lateness 13343999 d is too long", "window", also="13343998 days"),
    Mistake("bare size on a timestamp", lambda p: p.window(ps.tumbling(10)).aggregate(N), TimeError,
            "window size 10 has no unit", "window"),
    Mistake("hours of a date", lambda p: by_date().window(ps.tumbling("1 h")).aggregate(N), TimeError,
            "window size 1 h is not a whole number of days", "window"),
    Mistake("a slide of hours of a date", lambda p: by_date().window(ps.sliding("2 d", "36 h")).aggregate(N),
            TimeError, "window slide 36 h is not a whole number of days", "window"),
    Mistake("no window", lambda p: p.window(), GraphError, "one window, or several by name", "window"),
    Mistake("one and several", lambda p: p.window(MINUTE, slow=MINUTE), GraphError,
            "one window, or several", "window"),
    Mistake("a misspelt option", lambda p: p.window(MINUTE, latenes="1 s"), GraphError,
            "window has no option latenes=", "window", also="did you mean lateness=?"),
    Mistake("an option that is none", lambda p: p.window(size="10 s"), GraphError,
            "window has no option size=, and '10 s' is not a window", "window"),
    Mistake("text for a window", lambda p: p.window(WRONG).aggregate(N), TimeError,
            "'10 s' is not a window", "window"),
    Mistake("negative lateness", lambda p: p.window(MINUTE, lateness=BACK).aggregate(N), TimeError,
            "lateness -1 s is negative", "window"),
    Mistake("early at once", lambda p: p.window(MINUTE, early="0 s").aggregate(N), TimeError,
            "early 0 us is not longer than zero", "window"),
    Mistake("early in the column's unit", lambda p: p.window(MINUTE, early=5).aggregate(N), TimeError,
            "early 5 has no unit", "window"),
    Mistake("partial time windows", lambda p: p.window(MINUTE, partial=True).aggregate(N), TimeError,
            "partial=True is for count windows", "window"),
    Mistake("an unknown pattern", lambda p: p.window(MINUTE, pattern="pained").aggregate(N), GraphError,
            "pattern='pained' is unknown", "window", also='"paned"'),
    Mistake("a name of its own", lambda p: p.window(MINUTE, partial=True, name="views").aggregate(N),
            TimeError, "partial=True", "views"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", WINDOWS, ids=str)
def test_a_window_that_cannot_be_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


@pytest.mark.parametrize("size", [0, -3, True, "3", 2.5])
def test_a_count_window_holds_a_whole_number_of_rows(size: Any) -> None:
    check_refusal(
        Mistake("size", lambda p: ps.count_window(size), TimeError, f"size {size!r} of a count window")
    )
    check_refusal(
        Mistake("slide", lambda p: ps.count_window(5, size), TimeError, f"slide {size!r} of a count window")
    )


RESULTS = [
    Mistake("nothing aggregated", lambda p: p.window(MINUTE).aggregate(), GraphError,
            "needs aggregates or a function", "window"),
    Mistake("an aggregate without a name", lambda p: p.window(MINUTE).aggregate(ps.count()), GraphError,
            "count() has no name", "window", also="result=ps.count()"),
    Mistake("a function for an aggregate", lambda p: p.window(MINUTE).aggregate(n=sum), GraphError,
            '"n" is given <built-in function sum>', "window"),
    Mistake("a share above one", lambda p: ps.quantile("price", 95), SchemaError, "quantile 95"),
    Mistake("a verb on a windowed pipe", lambda p: p.window(MINUTE).with_columns(x=col("n")), GraphError,
            "a windowed pipe has no .with_columns", "window", also=".aggregate"),
    Mistake("a sink on a windowed pipe", lambda p: p.window(MINUTE, name="w").sink(None), GraphError,
            "a windowed pipe has no .sink", "w"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", RESULTS, ids=str)
def test_a_window_must_be_told_what_to_make_of_its_rows(mistake: Mistake) -> None:
    check_refusal(mistake)


NUMBERS = [ps.var, ps.std]
SUMS = [ps.sum, ps.mean]
ORDERED = [ps.min, ps.max, ps.min_count, ps.max_count, ps.approx_distinct]


@pytest.mark.parametrize(
    ("aggregate", "column"),
    [(make, column) for make in (*NUMBERS, *SUMS) for column in ("user", "paid", "at", "day", "tags")]
    + [(make, "tags") for make in ORDERED]
    + [(lambda value: ps.quantile(value, 0.5), column) for column in ("user", "paid", "at", "tags")],
)
def test_an_aggregate_refuses_types_it_cannot_take(aggregate: Any, column: str) -> None:
    spec = aggregate(column)
    with pytest.raises(SchemaError) as caught:
        trades().window(MINUTE, name="views").aggregate(x=spec)
    error = caught.value
    assert error.fact.startswith(f'{spec.label} cannot take col("{column}") of type')
    assert (error.step, bool(error.hint)) == ("views", True)
    assert error.detail is not None
    assert error.detail.startswith(f"{spec.label} takes ")
