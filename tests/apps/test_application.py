"""What all applications have in common: seeded rows, options, and rows that are replayed."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.apps import APPLICATIONS
from penstock.apps.application import Options, Replay, draw_keys, let_arrive
from penstock.cli.applications import same_rows
from tests.support.applications import FORMS, TINY, tiny

TIMED = [name for name, application in APPLICATIONS.items() if application.time is not None]


@pytest.mark.parametrize("name", list(APPLICATIONS))
def test_the_same_seed_gives_the_same_rows(name: str) -> None:
    application, options = tiny(name)
    one, other = application.generate(options), application.generate(options)
    assert all(one[source].equals(other[source]) for source in one)
    assert sum(table.num_rows for table in one.values()) == options.rows


@pytest.mark.parametrize(
    "name", [name for name in TIMED if name not in ("yahoo", "ysb-ratio", "windowed-count")]
)
def test_another_seed_gives_other_rows(name: str) -> None:
    application, options = tiny(name)
    _, other = tiny(name, seed=2)
    rows, different = application.generate(options), application.generate(other)
    assert not any(rows[source].equals(different[source]) for source in rows)


@pytest.mark.parametrize("name", TIMED)
def test_no_row_is_further_behind_than_was_asked_for(name: str) -> None:
    application, options = tiny(name, disorder_us=5_000_000, rows=300)
    for table in application.generate(options).values():
        times = table.column("time").to_numpy() * application.unit_us
        behind = np.maximum.accumulate(times) - times
        assert 0 < behind.max() <= 5_000_000


@pytest.mark.parametrize("name", TIMED)
def test_without_disorder_rows_come_in_order(name: str) -> None:
    application, options = tiny(name, disorder_us=0)
    for table in application.generate(options).values():
        assert (np.diff(table.column("time").to_numpy()) >= 0).all()


@pytest.mark.parametrize(("name", "form"), FORMS, ids=lambda value: value)
def test_degrees_and_chaining_change_no_answer(name: str, form: str) -> None:
    few = {"rows": 300} if name == "linear-road" else {}
    application, options = tiny(name, form=form, parallelism=3, chaining=False, **few)
    tables, out = application.generate(options), ps.write.memory()
    application.graph(options, tables=tables, writer=out).run("local")
    assert same_rows([dict(row) for row in out.rows()], application.recount(tables, options))


def test_every_application_has_settings_for_a_few_rows() -> None:
    assert set(TINY) == set(APPLICATIONS)


def test_an_unknown_option_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ps.GraphError, match="yahoo has no option 'sed'") as caught:
        APPLICATIONS["yahoo"].make_options(sed=1)
    assert "seed" in str(caught.value.detail)


def test_an_unknown_form_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ps.GraphError, match="yahoo has no form 'rows'") as caught:
        APPLICATIONS["yahoo"].make_options(form="rows")
    assert caught.value.detail == "its forms are columns"


def test_a_graph_without_tables_generates_them() -> None:
    out = ps.write.memory()
    application, options = tiny("windowed-count")
    application.graph(options, writer=out).run("reference")
    assert sum(row["events"] for row in out.rows()) == 4 * 200  # every event is in four windows


def test_keys_are_drawn_as_often_as_their_rank_says() -> None:
    drawn = np.bincount(draw_keys(np.random.default_rng(1), 100_000, 10, 1.0))
    assert drawn[0] / drawn[1] == pytest.approx(2, rel=0.05)
    assert drawn[0] / drawn[9] == pytest.approx(10, rel=0.1)


def test_rows_arrive_as_they_are_without_disorder() -> None:
    rows = pa.table({"time": [3, 1, 2]})
    assert let_arrive(rows, np.random.default_rng(1), Options()) is rows


ROWS = pa.table({"time": [10, 12, 11], "v": [1, 2, 3]})


def test_rows_are_replayed_once_without_a_time_to_fill() -> None:
    batches = list(Replay(ROWS, "time", 1, 2, None, None)())
    assert [batch.to_pydict()["time"] for batch in batches] == [[10, 12], [11]]


def test_rows_are_replayed_with_later_times() -> None:
    endless = Replay(ROWS, "time", 1, 3, None, 1_000.0)()
    assert [next(endless).to_pydict()["time"] for _ in range(3)] == [[10, 12, 11], [13, 15, 14], [16, 18, 17]]


@pytest.mark.parametrize("unit_us", [1, 1_000_000])
def test_at_a_rate_times_begin_with_that_of_the_clock(unit_us: int) -> None:
    before = time.time_ns() // 1_000 // unit_us
    first, second, third = next(Replay(ROWS, "time", unit_us, 3, 1e6, None)()).to_pydict()["time"]
    assert before <= first <= time.time_ns() // 1_000 // unit_us
    assert (second - first, third - first) == (2, 1)


class HandClock:
    """A clock that a test moves: sleeping takes exactly as long as was asked for."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def time_ns(self) -> int:
        return int(self.now * 1e9)


def test_at_a_rate_batches_are_a_hundredth_of_a_second_and_all_that_is_due_when_they_are_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = HandClock()
    monkeypatch.setattr("penstock.apps.application.time", clock)
    batches = Replay(pa.table({"v": list(range(1_000))}), None, 1, 300, 5_000.0, None)()
    assert [next(batches).num_rows for _ in range(3)] == [50, 50, 50]
    assert clock.now == pytest.approx(0.02)  # the third batch was due when 100 rows had come
    clock.now = 0.08  # whoever reads was away: 250 more rows are due
    assert next(batches).num_rows == 250
    clock.now = 1.0
    assert next(batches).num_rows == 300  # as many as a batch has, at most


def test_a_replay_ends_when_its_time_is_over() -> None:
    assert list(Replay(ROWS, "time", 1, 3, None, -1.0)()) == []


def test_nothing_is_replayed_of_no_rows() -> None:
    assert list(Replay(ROWS.slice(0, 0), "time", 1, 3, None, 1.0)()) == []
