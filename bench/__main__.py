"""Run `python -m bench`.

SIGTERM ends it as Ctrl-C does, so that whatever it has started is ended before: clusters, and programs in
processes of their own.
"""

import os
import signal
from types import FrameType

from bench.cli import app

_OWN = os.getpid()


def exit_by_signal(number: int, frame: FrameType | None) -> None:
    """Raise SystemExit, once; a process that was forked is ended as if nobody had handled the signal."""
    signal.signal(number, signal.SIG_DFL if os.getpid() != _OWN else signal.SIG_IGN)
    if os.getpid() == _OWN:
        raise SystemExit(128 + number)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, exit_by_signal)
    app(prog_name="python -m bench")
