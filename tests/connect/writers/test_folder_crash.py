"""A run that is killed at any moment, and restarted, loses nothing and doubles nothing.

The killed run dies inside the k-th call that touches the disk's order (sync or rename), for every k until
one run comes through. It is a child process that ends by os._exit, so no cleanup code of ours runs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import penstock.read as read
from tests.support.reader_contents import rows_of

PROGRAM = """
import os, sys
import pyarrow as pa
import pyarrow.parquet
import penstock.write as write

kind, folder = sys.argv[1:]
SCHEMA = pa.schema([("a", pa.int64())])

def run(place, resume):
    out = getattr(write, kind)(place).open(SCHEMA, "sink", resume=resume)
    for batch in range(3):
        for value in (2 * batch, 2 * batch + 1):
            out.write(batch, pa.record_batch({"a": [value]}))
        out.commit(batch)
    out.close()

def dying(call, left, when):
    def patched(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0 and when == "before":
            os._exit(9)
        done = call(*args, **kwargs)
        if left[0] == 0:
            os._exit(9)
        return done
    return patched

def killed(place, k, when):
    child = os.fork()
    if child == 0:
        left = [k]
        os.replace, os.fsync = dying(os.replace, left, when), dying(os.fsync, left, when)
        run(place, resume=False)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

for when in ("before", "after"):
    k = 1
    while killed(f"{folder}/{when}-{k}", k, when):
        run(f"{folder}/{when}-{k}", resume=True)
        k += 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_run_killed_at_any_moment_and_restarted_writes_every_row_once(tmp_path: Path, kind: str) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, kind, str(tmp_path)], check=True, timeout=120)
    places = sorted(tmp_path.iterdir())
    assert len(places) > 20
    for place in places:
        rows = rows_of(getattr(read, kind)(place, schema={"a": int}))
        assert [row["a"] for row in rows] == [0, 1, 2, 3, 4, 5], place.name
        assert [entry.name for entry in place.glob(".*")] == []
