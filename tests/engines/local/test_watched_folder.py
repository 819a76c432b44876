"""A watched folder in process: a run that dies or stops goes on with every file once, in the order it saw."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import crash_points
from penstock.connect.readers import files as file_readers
from penstock.errors import ConnectorError, PenstockError
from tests.support.file_runs import Died, dying_at, put, read_rows, run

OFTEN: Any = {"options": ps.LocalOptions(save_every="0 s")}
POINTS = (*crash_points.POINTS, crash_points.JOURNALED)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_readers, "POLL_S", 0.0)
    monkeypatch.setattr(file_readers, "EMPTY_BATCHES_PER_ENTRY", 3)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_run_that_dies_goes_on_with_every_file_once(
    files: Path, tmp_path: Path, point: str, times: int
) -> None:
    put(files, "z.jsonl", (1, "a", 1))
    run(files, tmp_path, "local", until=1, drain=False, **OFTEN)
    put(files, "a.jsonl", (2, "a", 2), (3, "b", 4))  # by name before what has been read
    with dying_at(point, times):
        try:
            run(files, tmp_path, "local", until=4, drain=False, **OFTEN)
        except (Died, PenstockError):
            put(files, "m.jsonl", (4, "b", 8))
    put(files, "n.jsonl", (15, "b", 16))
    put(files, "o.jsonl", (5000, "c", 32))  # so that the windows leave
    run(files, tmp_path, "local", until=12, **OFTEN)
    late = 8 if (files / "m.jsonl").exists() else 0
    seen = {row[2]: times for row, times in read_rows(tmp_path / "rows").items()}
    assert seen == dict.fromkeys([1, 2, 4, 16, 32] + [late] * bool(late), 1)
    sums = {(row[0], row[1]): row[-1] for row in read_rows(tmp_path / "sums")}
    assert sums == {("a", 0): 3, ("b", 0): 4 + late, ("b", 10): 16}


Lives = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(POINTS), st.integers(1, 6)), max_size=5)


@pytest.mark.slow
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives=Lives, seed=st.integers(0, 1000))
def test_however_often_it_dies_and_files_appear_every_row_is_written_once(
    tmp_path_factory: pytest.TempPathFactory, lives: list[tuple[int, str, int]], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("lives")
    files = folder / "files"
    files.mkdir()
    names, n = random.Random(seed).sample(range(100), 100), 0
    for n_new, point, times in lives:
        for _ in range(n_new):
            put(files, f"{names[n]:03d}.jsonl", (n, "k", n))
            n += 1
        with dying_at(point, times):
            try:
                run(files, folder, "local", until=3, drain=False, **OFTEN)
            except (Died, PenstockError):
                continue
    run(files, folder, "local", until=60, **OFTEN)
    assert read_rows(folder / "rows") == Counter((t, "k", t) for t in range(n))


def test_files_that_were_done_may_be_taken_away(files: Path, tmp_path: Path) -> None:
    put(files, "a.jsonl", (1, "a", 1))
    run(files, tmp_path, "local", until=2, drain=False)
    (files / "a.jsonl").unlink()
    put(files, "b.jsonl", (2, "a", 2))
    run(files, tmp_path, "local", until=20)
    assert read_rows(tmp_path / "rows") == Counter([(1, "a", 1), (2, "a", 2)])


def test_a_file_that_changed_between_two_runs_is_refused(files: Path, tmp_path: Path) -> None:
    put(files, "a.jsonl", (1, "a", 1))
    run(files, tmp_path, "local", until=2, drain=False)
    put(files, "a.jsonl", (1, "a", 2))
    with pytest.raises(ConnectorError, match=r'a.jsonl" changed after it was read'):
        run(files, tmp_path, "local", until=20)


def test_a_file_that_is_needed_again_and_gone_is_named(files: Path, tmp_path: Path) -> None:
    put(files, "a.jsonl", (1, "a", 1))
    with dying_at(crash_points.JOURNALED), pytest.raises((Died, PenstockError)):
        run(files, tmp_path, "local", until=2, drain=False)
    (files / "a.jsonl").unlink()
    with pytest.raises(ConnectorError, match=r'a.jsonl" cannot be read'):
        run(files, tmp_path, "local", until=20)
