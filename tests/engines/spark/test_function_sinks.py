"""Sinks whose files somebody else takes over: functions that get DataFrames, and Delta tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import col, crash_points
from penstock.engines.spark.driver import rounds

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark_session")]


class Died(BaseException):
    """The run ends here."""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(4):
        pq.write_table(pa.table({"v": [number, 10 * number]}), tmp_path / "in" / f"{number}.parquet")
    return tmp_path / "in"


def run(files: Path, folder: Path, sink: Any) -> Any:
    rows = ps.PipeGraph("functions").source(ps.read.parquet(files), name="rows")
    rows.filter(col("v") > 0, name="positive").sink(sink, name="out")
    return rows.graph.run("spark", checkpoint=str(folder / "checkpoint"), drain=True)


def die_once(monkeypatch: pytest.MonkeyPatch, files: Path, folder: Path, sink: Any) -> None:
    """Die right after the first commit of the sink."""

    def heard(point: str) -> None:
        if point == crash_points.COMMITTED:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(crash_points, "listener", heard)
        patch.setattr(rounds, "MAX_ROUNDS", 2)
        with pytest.raises(Died):
            run(files, folder, sink)


def test_a_function_gets_every_micro_batch_again_under_the_same_id(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, list[int]]] = []

    def save(frame: Any, batch: int) -> None:
        calls.append((batch, sorted(row.v for row in frame.collect())))

    die_once(monkeypatch, files, tmp_path, ps.write.spark(save))
    result = run(files, tmp_path, ps.write.spark(save))
    assert calls[0] == calls[1] == (1, [1, 10])
    by_id = dict(calls)  # what a function that is idempotent by id has written
    assert sorted(v for values in by_id.values() for v in values) == [1, 2, 3, 10, 20, 30]
    assert result.accounts["out"].rows_in == 6


def test_a_function_that_fails_stops_the_run_with_its_name(files: Path, tmp_path: Path) -> None:
    def refuse(frame: Any, batch: int) -> None:
        raise OSError("no route to the table")

    with pytest.raises(ps.FunctionError, match="refuse raised OSError: no route to the table") as failure:
        run(files, tmp_path, ps.write.spark(refuse))
    assert failure.value.step == "out"


def test_a_delta_table_has_every_row_once(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import DeltaTable

    sink = ps.write.delta(tmp_path / "table")
    die_once(monkeypatch, files, tmp_path, sink)
    run(files, tmp_path, sink)
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()["v"].to_pylist()
    assert Counter(rows) == Counter([1, 2, 3, 10, 20, 30])
