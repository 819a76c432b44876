"""The dying graph in process, as a program: its arguments are FOLDER [POINT NUMBER].

Says every point it comes by on stdout, and ends there at once, as if killed, when it has come by POINT so
often.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import penstock as ps
from penstock import crash_points
from tests.support import crashing_graph as dying

DIED = 9
OPTIONS = ps.LocalOptions(save_every="0 s", threads=2, queue_size=2)


def main(folder: Path, at: str | None = None, number: str = "0") -> None:
    """Begin, or go on."""
    left, lock = int(number), threading.Lock()

    def heard(point: str) -> None:
        nonlocal left
        with lock:  # the point at which it dies is the last that it says, whatever other threads do
            os.write(1, f"{point}\n".encode())
            left -= point == at
            if at is not None and left == 0:
                os._exit(DIED)

    crash_points.listener = heard
    dying.run(folder, "local", options=OPTIONS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
