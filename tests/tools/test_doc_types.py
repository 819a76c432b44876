"""Typed programs of users pass mypy: those of the docs, and some that use all that has a type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, assert_type

import pytest

import penstock as ps
from penstock import col
from tools.doc_types import check_types


@pytest.mark.slow
def test_every_block_of_the_docs_and_every_example_passes_mypy() -> None:
    assert check_types() == ""


@pytest.mark.slow
def test_a_block_that_is_wrong_is_named_with_its_page_and_line(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "some-page.md"
    page.write_text("# Title\n\n```python\nx: int = 1\n```\n\ntext\n\n```python no-run\nx + 'a'\n```\n")
    assert check_types(tmp_path).startswith("docs/some-page.md:10: error: Unsupported operand types")


class RoomReading(NamedTuple):
    """A row as a class."""

    room: str
    celsius: float


@dataclass
class Total:
    """The state of a key."""

    rows: int = 0
    celsius: float = 0.0


def warm(row: ps.Row) -> bool:
    return bool(row.celsius > 20)


def to_reading(row: ps.Row) -> RoomReading:
    return RoomReading(row.room.upper(), row["celsius"] + 0.5)


def twice(row: ps.Row) -> Iterator[RoomReading]:
    for _ in range(2):
        yield RoomReading(row.room, row.celsius)


def add(row: ps.Row, total: Total) -> Total:
    return Total(total.rows + 1, total.celsius + row.celsius)


def widest(rows: list[ps.Row], window: ps.WindowContext) -> dict[str, float]:
    values = [row.celsius for row in rows]
    return {"spread": max(values) - min(values), "seconds": window.end - window.start}


def test_a_program_that_uses_all_verbs_has_types_and_runs() -> None:
    """mypy checks this file: the types below are what editors show."""
    graph = ps.PipeGraph("typed", engine="local")
    rows = [{"at": at, "room": "ab"[at % 2], "celsius": 19.0 + at % 4} for at in range(20)]
    source = assert_type(
        graph.source(ps.read.rows(rows), time="at", time_unit="s", delay="2 s"), ps.MultiPipe
    )
    assert_type(col("a") == 1, ps.Expr)
    assert_type((col("a") > 1) & ~(col("b") != "x") | col("c").is_null(), ps.Expr)
    assert_type(1 - col("a") * 2 / -col("b") % 3, ps.Expr)
    assert_type(ps.when(col("a") > 1).then(col("a")).otherwise(0).cast("int64"), ps.Expr)
    fahrenheit = source.with_columns(fahrenheit=col("celsius") * 1.8 + 32).filter(col("fahrenheit") > 60)
    windows = fahrenheit.key_by("room").window(ps.tumbling("5 s"))
    assert_type(windows.aggregate(n=ps.count()), ps.MultiPipe)
    readings = source.filter(warm).map(to_reading).flat_map(twice)
    totals = source.key_by("room").accumulate(add, Total(), name="totals")
    sessions = source.key_by("room").window(ps.session("5 s"))
    spreads = sessions.apply(widest, schema={"spread": float, "seconds": int})
    tables = graph.collect(readings, totals, spreads)
    assert [table.num_rows for table in tables] == [20, 20, 2]
    readings.sink(ps.write.memory())
    run = assert_type(graph.start("local", options=ps.LocalOptions(threads=1)), ps.Run)
    result = assert_type(run.wait(), ps.RunResult)
    status = assert_type(run.status(), ps.RunStatus)
    assert (result.outcome, status.state) == ("drained", "drained")
