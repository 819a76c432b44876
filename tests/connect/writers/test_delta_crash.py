"""A run into a Delta table that is killed at any moment, and restarted, loses nothing and doubles nothing.

What a death would leave is kept at every crash point, and before and after every call that touches the disk's
order (sync or rename).
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import penstock.write as write
from tests.support.disk_states import keep_states

SCHEMA = pa.schema([("a", pa.int64())])


def run(folder: Path, *, overwrite: bool, first: int = 0, checkpoint: str = "checkpoint") -> None:
    """Write two batches of two rows each, after what a checkpoint says is there."""
    begun = folder / checkpoint  # as engines do: there is one once the sinks have been opened
    out = write.delta(folder / "table", overwrite=overwrite).open(SCHEMA, "sink", resume=begun.exists())
    begun.touch()
    for batch in range(2):
        for value in (2 * batch, 2 * batch + 1):
            out.write(batch, pa.record_batch({"a": [first + value]}))
        out.commit(batch)
    out.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["append", "overwrite"])
def test_a_run_killed_at_any_moment_and_restarted_writes_every_row_once(tmp_path: Path, kind: str) -> None:
    folder, overwrite = tmp_path / "run", kind == "overwrite"
    run(folder, overwrite=False, first=100, checkpoint="of another run")
    with keep_states(folder, tmp_path / "states", "replace", "fsync") as states:
        run(folder, overwrite=overwrite)
    assert len(states.moments) >= 6
    earlier = [] if overwrite else [100, 101, 102, 103]
    for moment in states.restore_each():
        run(folder, overwrite=overwrite)
        rows = DeltaTable(folder / "table").to_pyarrow_table()["a"].to_pylist()
        assert sorted(rows) == [0, 1, 2, 3, *earlier], moment
