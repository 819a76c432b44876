"""A run into a Delta table that is killed at any moment, and restarted, loses nothing and doubles nothing.

The killed run dies at the k-th crash point or call that touches the disk's order (sync or rename), for every
k until one run comes through. Every run is a child process, and only children load deltalake, because its
threads do not outlive a fork. A killed one ends by os._exit, so no cleanup code of ours runs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

PROGRAM = """
import os, sys
import pyarrow as pa
import pyarrow.parquet
import penstock.write as write
from penstock import crash_points
from penstock.connect.writers import delta  # not deltalake

folder, overwrite = sys.argv[1], sys.argv[2] == "overwrite"
SCHEMA = pa.schema([("a", pa.int64())])

def run(place, overwrite, first=0, checkpoint="checkpoint"):
    checkpoint = f"{place}-{checkpoint}"  # as engines do: there is one once the sinks have been opened
    out = write.delta(place, overwrite=overwrite).open(SCHEMA, "sink", resume=os.path.exists(checkpoint))
    open(checkpoint, "w").close()
    for batch in range(2):
        for value in (2 * batch, 2 * batch + 1):
            out.write(batch, pa.record_batch({"a": [first + value]}))
        out.commit(batch)
    out.close()

def in_child(call):
    child = os.fork()
    if child == 0:
        try:
            call()
        except BaseException as problem:
            os.write(2, f"{type(problem).__name__}: {problem}\\n".encode())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def die_at(place, k):
    left = k

    def count(*args):
        nonlocal left
        left -= 1
        if left == 0:
            os._exit(9)

    def dying(call):
        return lambda *args, **kwargs: (count(), call(*args, **kwargs))[1]

    os.replace, os.fsync = dying(os.replace), dying(os.fsync)
    crash_points.listener = count
    run(place, overwrite)

k = 1
while True:
    place = f"{folder}/{k}"
    assert in_child(lambda: run(place, False, first=100, checkpoint="of-another-run")) == 0
    code = in_child(lambda: die_at(place, k))
    if code == 0:
        break
    assert code == 9, code
    assert in_child(lambda: run(place, overwrite)) == 0
    k += 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["append", "overwrite"])
def test_a_run_killed_at_any_moment_and_restarted_writes_every_row_once(tmp_path: Path, kind: str) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), kind], check=True, timeout=300)
    places = [place for place in tmp_path.iterdir() if place.is_dir()]
    assert len(places) > 15
    earlier = [100, 101, 102, 103] if kind == "append" else []
    for place in places:
        rows = DeltaTable(place).to_pyarrow_table()["a"].to_pylist()
        assert sorted(rows) == [0, 1, 2, 3, *earlier], place.name
