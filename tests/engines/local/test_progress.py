"""What a run tells of rows that failed: how many, under which policy, and one reason of them."""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock.events import RowsErrored


def inverse(row: Any) -> dict[str, float]:
    """Fails on zero."""
    return {"v": 1 / row.v}


def errors_of(parallelism: int, **options: Any) -> list[RowsErrored]:
    """What is told of a function that fails on every third row."""
    graph, events = ps.PipeGraph("fails"), list[Any]()
    batches = [[{"v": float(i % 3)} for i in range(6)] for _ in range(4)]
    rows = graph.source(ps.read.batches(batches, schema={"v": "float64"}), name="rows")
    pipe = rows.map(
        inverse,
        schema={"v": "float64"},
        on_error="skip",
        name="inverse",
        parallelism=parallelism,
        compile=False,
    )
    pipe.sink(ps.write.memory())
    graph.run("local", events=events.append, options=ps.LocalOptions(**options))
    return [event for event in events if isinstance(event, RowsErrored)]


def test_an_event_of_failed_rows_has_one_of_their_reasons() -> None:
    errors = errors_of(1)
    assert [(event.step, event.rows, event.policy) for event in errors] == [("inverse", 2, "skip")] * 4
    assert all("ZeroDivisionError" in event.example for event in errors)


def test_so_it_does_where_replicas_share_the_rows() -> None:
    errors = errors_of(2, workers="thread", deterministic=True)
    assert sum(event.rows for event in errors) == 8
    assert any("ZeroDivisionError" in event.example for event in errors)
    assert all("ZeroDivisionError" in event.example or "in batch" in event.example for event in errors)


def test_a_source_says_why_it_could_not_read_a_row(tmp_path: Any) -> None:
    (tmp_path / "rows.jsonl").write_text('{"v": 1}\nnonsense\n')
    graph, events = ps.PipeGraph("reads"), list[Any]()
    reader = ps.read.jsonl(tmp_path / "rows.jsonl", schema={"v": "int64"})
    graph.source(reader, on_error="skip", name="rows").sink(ps.write.memory())
    graph.run("local", events=events.append)
    (report,) = (event for event in events if isinstance(event, RowsErrored))
    assert (report.step, report.rows) == ("rows", 1)
    assert "in batch" not in report.example
