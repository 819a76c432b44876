"""A watched folder on Spark: a run that dies goes on with every file once, in the order it saw."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import crash_points
from penstock.connect.readers import files as file_readers
from penstock.errors import PenstockError
from tests.support.file_runs import Died, dying_at, put, read_rows, run


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_run_that_dies_again_and_again_goes_on_with_every_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_readers, "POLL_S", 0.05)
    monkeypatch.setattr(file_readers, "EMPTY_BATCHES_PER_ENTRY", 2)
    files = tmp_path / "files"
    files.mkdir()
    put(files, "z.jsonl", (1, "a", 1))
    run(files, tmp_path, "spark", until=1, drain=False)
    put(files, "a.jsonl", (2, "a", 2), (3, "b", 4))  # by name before what has been read
    for point in (crash_points.JOURNALED, crash_points.PROCESSED, crash_points.COMMITTED):
        with dying_at(point), pytest.raises((Died, PenstockError)):
            run(files, tmp_path, "spark", until=6, drain=False)
        put(files, f"{point}.jsonl", (3, "c", 64))
    put(files, "m.jsonl", (4, "b", 8))
    put(files, "n.jsonl", (15, "b", 16))
    put(files, "o.jsonl", (5000, "c", 32))  # so that the windows leave
    run(files, tmp_path, "spark", until=14)
    assert {row[2]: times for row, times in read_rows(tmp_path / "rows").items()} == {
        **dict.fromkeys([1, 2, 4, 8, 16, 32], 1),
        64: 3,
    }
    sums = {(row[0], row[1]): row[-1] for row in read_rows(tmp_path / "sums")}
    assert sums == {("a", 0): 3, ("b", 0): 12, ("b", 10): 16, ("c", 0): 192}
