"""The dying graph on Spark, one round a turn, as a program: its arguments are FOLDER [POINT NUMBER].

Says every point it comes by on stdout, and ends there at once, as if killed, when it has come by POINT so
often.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import penstock as ps
from penstock import crash_points
from penstock.engines.spark.driver import join_planner, rounds
from tests.support import crashing_graph as dying

DIED = 9


def main(folder: Path, at: str | None = None, number: str = "0") -> None:
    """Begin, or go on."""
    left = int(number)

    def heard(point: str) -> None:
        nonlocal left
        print(point, flush=True)
        left -= point == at
        if at is not None and left == 0:
            os._exit(DIED)

    rounds.MAX_ROUNDS = 1
    join_planner.MIN_SAMPLE = 1  # so that few rows are enough to cut their values into ranges
    crash_points.listener = heard
    dying.run(folder, "spark", options=ps.SparkOptions(partitions=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
