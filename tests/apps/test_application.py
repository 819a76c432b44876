"""What all applications have in common: seeded rows, options, and rows that are replayed."""

from __future__ import annotations

import time
from pathlib import Path

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


@pytest.mark.parametrize(
    ("name", "form"),
    [
        pair
        for pair in FORMS
        if pair[0] in ("fraud-detection", "linear-road") or pair == ("spike-detection", "columns")
    ],
    ids=lambda value: value,
)
def test_without_any_option_there_is_something_to_find(name: str, form: str) -> None:
    application, out = APPLICATIONS[name], ps.write.memory()
    application.graph(application.make_options(form=form), writer=out).run("local")
    assert out.table().num_rows > 10


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


def test_a_file_with_dates_is_read_in_order_of_its_times(tmp_path: Path) -> None:
    file = tmp_path / "readings.csv"
    file.write_text("timestamp,value\n1970-01-01 00:00:02,20.5\n1970-01-01 00:00:01,20.0\n")
    rows = APPLICATIONS["spike-detection"].load(file)["readings"]  # type: ignore[misc]
    assert rows.to_pydict() == {"time": [1_000_000, 2_000_000], "device": [0, 0], "value": [20.0, 20.5]}


def test_lines_of_a_file_without_times_come_a_millisecond_apart(tmp_path: Path) -> None:
    file = tmp_path / "transactions.csv"
    file.write_text("001,AB12,LNL\nXYZ,CD34,HHS\n")
    rows = APPLICATIONS["fraud-detection"].load(file)["transactions"]  # type: ignore[misc]
    assert rows.to_pylist() == [
        {"time": 0, "entity": "001", "transaction": "AB12", "state": "LNL"},
        {"time": 1_000, "entity": "XYZ", "transaction": "CD34", "state": "HHS"},
    ]


def test_calls_of_a_file_get_their_numbers_in_order_of_time(tmp_path: Path) -> None:
    file = tmp_path / "calls.csv"
    file.write_text("491,492,1970-01-01 00:00:09,12,true\n493,491,1970-01-01 00:00:08,0,false\n")
    rows = APPLICATIONS["voip-stream"].load(file)["calls"]  # type: ignore[misc]
    assert rows.schema.names == ["time", "call", "caller", "callee", "duration", "established"]
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        (8_000_000, 0, "493", "491", 0, False),
        (9_000_000, 1, "491", "492", 12, True),
    ]


def test_a_file_of_taxis_has_speeds_in_whole_numbers(tmp_path: Path) -> None:
    file = tmp_path / "taxis.csv"
    file.write_text("7,33556,1970-01-01T00:00:03,40.04,116.61,12.6,90\n")
    rows = APPLICATIONS["traffic-monitoring"].load(file)["positions"]  # type: ignore[misc]
    assert rows.to_pylist() == [
        {"time": 3_000_000, "vehicle": 33556, "lat": 40.04, "lon": 116.61, "speed": 13}
    ]


def test_a_file_of_the_generator_of_linear_road_has_nine_columns_of_fifteen(tmp_path: Path) -> None:
    file = tmp_path / "road.csv"
    file.write_text(
        "0,30,107,32,0,0,1,10,53320,-1,-1,-1,-1,-1,-1\n0,0,106,50,0,0,0,9,47521,-1,-1,-1,-1,-1,-1\n"
    )
    rows = APPLICATIONS["linear-road"].load(file)["reports"]  # type: ignore[misc]
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        (0, 0, 106, 50, 0, 0, 0, 9, 47521),
        (0, 30, 107, 32, 0, 0, 1, 10, 53320),
    ]
