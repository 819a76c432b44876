"""The examples of connectors: on both engines, and after a crash."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import crash_points
from tests.docs.blocks import ROOT
from tests.support.file_runs import Died, dying_at

ON_SPARK = (pytest.mark.slow, pytest.mark.xdist_group("spark-0"))
POINTS = (crash_points.COMMITTED, crash_points.READ, crash_points.CLEANED)
ENGINES = pytest.mark.parametrize("runs_on", ["reference", "local", pytest.param("spark", marks=ON_SPARK)])
OFTEN: Any = {"options": ps.LocalOptions(save_every="0 s")}


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


def count_copies(database: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(database)) as opened:
        counts: tuple[int, int] = opened.execute("SELECT count(*), count(DISTINCT id) FROM copies").fetchone()
    return counts


@ENGINES
def test_rows_are_copied_from_sqlite_to_sqlite(tmp_path: Path, runs_on: str) -> None:
    sqlite_connector = import_module("sqlite_connector")

    sqlite_connector.create_orders(tmp_path / "shop.db", 1_000)
    result = sqlite_connector.copy_orders(tmp_path / "shop.db").run(runs_on)
    assert count_copies(tmp_path / "shop.db") == (1_000, 1_000)
    assert result.batches == 10


@pytest.mark.parametrize(
    ("runs_on", "point"),
    [
        *(("local", point) for point in POINTS),
        pytest.param("spark", crash_points.COMMITTED, marks=ON_SPARK),
        *(pytest.param("spark", point, marks=[*ON_SPARK, pytest.mark.nightly]) for point in POINTS[1:]),
    ],
)
def test_a_copy_that_dies_goes_on_with_every_row_once(tmp_path: Path, point: str, runs_on: str) -> None:
    sqlite_connector = import_module("sqlite_connector")

    sqlite_connector.create_orders(tmp_path / "shop.db", 1_000)
    options: Any = {"checkpoint": str(tmp_path / "checkpoint"), **(OFTEN if runs_on == "local" else {})}
    for times in (1, 3):
        with dying_at(point, times), pytest.raises((Died, ps.PenstockError)):
            sqlite_connector.copy_orders(tmp_path / "shop.db", 10 if runs_on == "local" else 1).run(
                runs_on, until=90, **options
            )
        if runs_on == "spark":
            break
    asked: list[Any] = []
    begin = sqlite_connector.SqliteReader.batches

    def note(self: Any, position: Any = None) -> Any:
        asked.append(position)
        return begin(self, position)

    sqlite_connector.SqliteReader.batches = note
    try:
        sqlite_connector.copy_orders(tmp_path / "shop.db", 10 if runs_on == "local" else 1).run(
            runs_on, **options
        )
    finally:
        sqlite_connector.SqliteReader.batches = begin
    assert count_copies(tmp_path / "shop.db") == (1_000, 1_000)
    if runs_on == "local":
        assert asked != [None] or point == crash_points.COMMITTED  # it goes on behind what was read


KILLED = """
import os, signal, sys
from pathlib import Path
from penstock import LocalOptions, crash_points
from sqlite_connector import copy_orders
left = [int(sys.argv[2])]
def die(point):
    left[0] -= point == sys.argv[1]
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
crash_points.listener = die
copy_orders(Path("shop.db"), 20).run(checkpoint="checkpoint", options=LocalOptions(save_every="0 s"))
"""


def test_a_copy_whose_process_is_killed_goes_on_with_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_connector = import_module("sqlite_connector")

    sqlite_connector.create_orders(tmp_path / "shop.db", 200)
    paths = {"PYTHONPATH": str(ROOT / "examples")}
    for point, times, code in (
        (crash_points.COMMITTED, 3, -signal.SIGKILL),
        (crash_points.COMMITTED, 4, -signal.SIGKILL),
        ("", -1, 0),
    ):
        ended = subprocess.run(
            [sys.executable, "-c", KILLED, point, str(times)],
            cwd=tmp_path,
            env={**os.environ, **paths},
            check=False,
        )
        assert ended.returncode == code
    assert count_copies(tmp_path / "shop.db") == (200, 200)


@pytest.mark.parametrize("n_rows", [250, 40])
@pytest.mark.parametrize("runs_on", ["local", pytest.param("spark", marks=ON_SPARK)])
def test_a_copy_that_dies_behind_its_last_rows_loses_none_that_come_before_the_next_run(
    tmp_path: Path, runs_on: str, n_rows: int
) -> None:
    sqlite_connector = import_module("sqlite_connector")
    database = tmp_path / "shop.db"
    options: Any = {"checkpoint": str(tmp_path / "checkpoint"), **(OFTEN if runs_on == "local" else {})}
    n_batches = -(-n_rows // 100) if runs_on == "local" else 1

    for n_more in (0, 150):  # rows also come behind a batch that was short before
        sqlite_connector.create_orders(database, n_rows + n_more)
        with dying_at(crash_points.COMMITTED, n_batches), pytest.raises((Died, ps.PenstockError)):
            sqlite_connector.copy_orders(database).run(runs_on, **options)
    sqlite_connector.create_orders(database, 600)
    for _ in range(2):
        sqlite_connector.copy_orders(database).run(runs_on, **{**options, "drain": False})
    assert count_copies(database) == (600, 600)


def test_a_database_with_the_rows_of_another_run_is_refused(tmp_path: Path) -> None:
    sqlite_connector = import_module("sqlite_connector")

    sqlite_connector.create_orders(tmp_path / "shop.db", 10)
    sqlite_connector.copy_orders(tmp_path / "shop.db").run()
    with pytest.raises(ps.ConnectorError, match="holds what an earlier run has written"):
        sqlite_connector.copy_orders(tmp_path / "shop.db").run()


@ENGINES
def test_frames_of_a_server_are_rows(runs_on: str) -> None:
    frame_source = import_module("frame_source")

    server, out = frame_source.FrameServer(20), ps.write.memory()
    frame_source.measure(server.port, out).run(runs_on)
    server.close()
    assert sorted(row["value"] for row in out.rows()) == [n + i / 10 for n in range(20) for i in range(5)]


@pytest.mark.parametrize("runs_on", ["local", pytest.param("spark", marks=ON_SPARK)])
def test_a_subscriber_that_dies_subscribes_behind_the_frames_it_has_seen(
    tmp_path: Path, runs_on: str
) -> None:
    frame_source = import_module("frame_source")

    server = frame_source.FrameServer(20)
    options: Any = {"checkpoint": str(tmp_path / "checkpoint"), **(OFTEN if runs_on == "local" else {})}
    for _ in range(2):
        with dying_at(crash_points.COMMITTED, 2 if runs_on == "local" else 1):
            try:
                frame_source.measure(server.port, ps.write.jsonl(tmp_path / "out")).run(
                    runs_on, until=8, drain=False, **options
                )
            except (Died, ps.PenstockError):
                continue
    frame_source.measure(server.port, ps.write.jsonl(tmp_path / "out")).run(runs_on, **options)
    server.close()
    files = [file.read_text().splitlines() for file in (tmp_path / "out").glob("*.jsonl")]
    assert sum(map(len, files)) == len({line for lines in files for line in lines}) == 100
    if runs_on == "local":
        assert server.asked[-1] >= 0


@ENGINES
def test_batches_are_posted_and_a_server_that_is_busy_is_asked_again(runs_on: str) -> None:
    http_sink = import_module("http_sink")

    server = http_sink.RowServer(busy=2)
    http_sink.post_squares(server, 100).run(runs_on)
    server.close()
    assert sorted(server.rows, key=lambda row: int(str(row["n"]))) == [
        {"n": n, "square": n * n} for n in range(100)
    ]


def test_a_batch_that_is_posted_again_after_a_crash_counts_once(tmp_path: Path) -> None:
    http_sink = import_module("http_sink")

    server = http_sink.RowServer()
    for times in (3, 4):
        with dying_at(crash_points.COMMITTED, times), pytest.raises((Died, ps.PenstockError)):
            http_sink.post_squares(server, 100).run(checkpoint=str(tmp_path / "checkpoint"), **OFTEN)
    http_sink.post_squares(server, 100).run(checkpoint=str(tmp_path / "checkpoint"), **OFTEN)
    server.close()
    assert len(server.rows) == 100
    assert server.n_posts > 10


def test_a_server_that_takes_nothing_is_named(tmp_path: Path) -> None:
    http_sink = import_module("http_sink")

    server = http_sink.RowServer(busy=1_000)
    with pytest.raises(ps.ConnectorError, match="did not take batch 0"):
        http_sink.post_squares(server, 10).run()
    server.close()
