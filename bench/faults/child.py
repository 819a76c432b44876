"""Run programs in a process of its own, which somebody may kill, and tell how far they are.

    python -m bench.faults.child < orders

One order per line on standard input, as JSON; the next is read when the last one is done, so that several
share one Spark. One JSON object per line on standard output: `started` when Spark is there and a run begins,
`batch` for every round that is done, and at the end `accounts`; `refused` with what a checkpoint was refused
with, or `failed` with any other error. The same order continues a run that was killed.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import penstock as ps
from bench.faults.programs import Place, Program, find_program
from penstock.events import BatchDone, Event, RunStarted

FOLLOW_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Order:
    """What a child is to run: a program, where, and with which settings of Spark."""

    program: str
    input: str
    output: str
    checkpoint: str
    master: str | None
    conf: Mapping[str, str] = field(default_factory=dict)
    partitions: int = 2
    pause_s: float = 0.0
    markers: str | None = None
    engine: str = "spark"

    def to_json(self) -> str:
        """Return the order as a line of JSON."""
        return json.dumps(asdict(self)) + "\n"


def run_order(order: Order) -> None:
    """Run the program from wherever its checkpoint is, to its end."""
    program = find_program(order.program)
    markers = Path(order.markers) if order.markers else None
    place = Place(Path(order.input), Path(order.output), order.pause_s, markers)
    settings: dict[str, Any] = {
        "engine": order.engine,
        "master": order.master,
        "checkpoint": order.checkpoint,
        "drain": True,
        "options": ps.SparkOptions(conf=order.conf, partitions=order.partitions),
        "events": _tell_event,
    }
    if order.engine == "local":
        settings |= {"master": None, "options": ps.LocalOptions(save_every="200 ms")}
    try:
        run = _follow if program.follows else _run_in_parts
        result = run(program, place, settings)
    except ps.CheckpointError as refusal:
        _tell("refused", error=str(refusal))
    except Exception as failure:
        _tell("failed", error=f"{type(failure).__name__}: {failure}")
    else:
        _tell("accounts", accounts={step: dict(one.to_dict()) for step, one in result.accounts.items()})


def _run_in_parts(program: Program, place: Place, settings: dict[str, Any]) -> ps.RunResult:
    """Run some rounds at a time, each time from the checkpoint, until the sources have ended."""
    while True:
        result = program.build(place).run(until=program.rounds, **settings)
        if result.outcome == "drained":
            return result


def _follow(program: Program, place: Place, settings: dict[str, Any]) -> ps.RunResult:
    """Run until all rows have been read, by this run or by earlier ones, then stop."""
    with ps.handle_signals() as wait:
        run = program.build(place).start(**settings)

        def stop_at_the_end() -> None:
            while run.status().rows_in.get("rows", 0) < program.n_rows:  # all runs of the checkpoint count
                time.sleep(FOLLOW_POLL_S)
            run.stop()

        threading.Thread(target=stop_at_the_end, daemon=True).start()
        return wait(run)


def _tell_event(event: Event) -> None:
    if isinstance(event, RunStarted):
        _tell("started")
    elif isinstance(event, BatchDone):
        _tell("batch", number=event.batch)


def _tell(kind: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"is": kind, "at": time.time(), **fields}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
    for line in sys.stdin:
        run_order(Order(**json.loads(line)))
