"""The peer's side of a comparison: a process that prepares data, runs a program, and gives its answer.

It runs in the environment of one peer, where nothing of ours is installed. Requests come as lines of JSON on
standard input, replies leave as lines on standard output; what a library prints goes to standard error. Data
is prepared before the clock starts and the answer is read after it stopped: only `run` is timed.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

Rows = list[list[Any]]


class Program(Protocol):
    """One query on one peer."""

    def prepare(self, folder: Path) -> None:
        """Load the data of that folder in the form that suits the peer best."""

    def run(self) -> None:
        """Compute the answer of all rows."""

    def answer(self) -> Rows:
        """Return the rows of the last run."""


def serve(programs: Mapping[str, Callable[[], Program]]) -> None:
    """Answer requests until standard input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    program: Program | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "prepare":
                program = programs[request["query"]]()
                program.prepare(Path(request["folder"]))
                reply: Any = None
            else:
                assert program is not None, "a program is prepared before it runs"
                reply = None
                if request["do"] == "run":
                    program.run()
                else:
                    reply = program.answer()
            message = {"reply": reply}
        except Exception:
            message = {"error": traceback.format_exc()}
        print(json.dumps(message), file=replies, flush=True)
