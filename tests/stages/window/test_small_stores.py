"""Small programs must start at once: stores that see few rows run without Numba."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from penstock.stages.window.count_store import CountStore
from penstock.stages.window.session_store import SessionStore
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow
from tests.support.window_rounds import ENDED, NEVER, REGISTERS, SCHEMA, Row, input_rows

for store in (
    CountStore([CountWindow(4, 2)], 0, REGISTERS, rows=SCHEMA),
    SessionStore(SessionWindow(5), 0, REGISTERS, rows=SCHEMA),
    TimeStore(Slicing.of([TimeWindow(10, 5)]), 0, (), rows=SCHEMA),
):
    store.add(input_rows([Row(i, i % 3, i) for i in range(100)]), NEVER)
    assert len(store.close(ENDED, ended=True).slots)
print("numba" in sys.modules)
"""


def test_a_hundred_rows_do_not_load_numba() -> None:
    command = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
