"""Terminals and exit codes: what is printed where, in colour only where somebody looks at it.

Results go to standard output, everything else (progress, notes, errors) to standard error. Rich leaves
colours out when the stream is no terminal or NO_COLOR is set. Consoles are made when needed, because
tests and pipes exchange the streams. Exit codes say to scripts how a command ended, and which error gives
which.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout, suppress
from enum import IntEnum
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from penstock.errors import GraphError, NotSupported, PenstockError, SchemaError, TimeError
from penstock.events import BatchDone, Event, RunStarted

_TYPER = Path(typer.__file__).resolve().parent
FAR_US = 86_400_000_000  # rows of a day ago and more are no live stream: how far they are behind says nothing
PIPE_WIDTH = 120  # where there is no terminal to ask, tables may be this wide


class ResultConsole(Console):
    """A console whose output may be piped into something that stops reading."""

    def on_broken_pipe(self) -> None:
        """Let the command end as a broken pipe ends any other."""
        raise BrokenPipeError


def out() -> Console:
    """Return the console for results."""
    return ResultConsole(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def err() -> Console:
    """Return the console for everything else."""
    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else PIPE_WIDTH)


def say(text: str) -> None:
    """Print plain text as a result: no markup is read, no line is broken."""
    out().print(Text(text), soft_wrap=True)


def note(text: str) -> None:
    """Print something beside the result."""
    err().print(Text(text), soft_wrap=True)


def say_json(value: object) -> None:
    """Print a value as JSON, for scripts.

    Why in ASCII: an error may quote text that no encoding has, such as half of a surrogate pair.
    """
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def programs_own_text(aside: bool) -> AbstractContextManager[object]:
    """Send what the user's program prints to standard error, when scripts want nothing but JSON."""
    return redirect_stdout(sys.stderr) if aside else nullcontext()


def show_error(error: PenstockError) -> None:
    """Print an error in the library's own form: the fact, then where, detail and hint."""
    if error.where is not None and Path(error.where.file).resolve().is_relative_to(_TYPER):
        error.where = None  # the call came from this command and not from a line of the user's
    fact, _, rest = str(error).partition("\n")
    text = Text.assemble((f"{type(error).__name__}: ", "bold red"), fact)
    if rest:
        text.append(f"\n{rest}")
    err().print(text, soft_wrap=True)


@contextmanager
def progress() -> Iterator[Callable[[int, int | None, str], None]]:
    """Yield a function that shows how far the work is (done, of how many) and what it is on.

    It moves a bar on standard error; nothing at all when that is no terminal.
    """
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, doing: bar.update(task, completed=done, total=total, description=doing)


class ProgressText:
    """How a run goes, from its events: batches, rows a second, how far the watermark is behind the clock."""

    def __init__(self, graph: str, show: Callable[[str], None]) -> None:
        self._graph, self._show = graph, show
        self._began: int | None = None
        self._batches = self._rows = 0

    def update(self, event: Event) -> None:
        """Take an event in and show how far the run is."""
        if isinstance(event, RunStarted):
            self._began = event.at
        elif isinstance(event, BatchDone):
            self._batches += 1
            self._rows += sum(event.rows_in.values())
            took_us = max(1, event.at - (event.at - event.took_us if self._began is None else self._began))
            parts = [self._graph, f"{self._batches:,} batches", f"{self._rows:,} rows"]
            parts.append(f"{self._rows * 1_000_000 // took_us:,} rows/s")
            lag_us = max(event.lag_us.values(), default=0)
            if 0 < lag_us < FAR_US:
                parts.append(f"watermark {lag_us / 1e6:,.1f} s behind")
            self._show("  ".join(parts))


@contextmanager
def progress_line(graph: str, *, shows: bool = True) -> Iterator[Callable[[Event], None]]:
    """Yield a function that takes the events of a run and shows how it goes.

    It changes a line on standard error; nothing at all when that is no terminal.
    """
    if not shows or not sys.stderr.isatty():
        yield lambda event: None
        return
    with Live(console=err(), transient=True, refresh_per_second=5) as live:
        yield ProgressText(graph, lambda text: live.update(Text(text))).update


ALWAYS = ("rows_in", "rows_out")
SOMETIMES = ("late", "filtered", "no_window", "unfinished", "unmatched", "unrouted", "errors")


def accounts_table(accounts: Mapping[str, Any]) -> Table:
    """Return what became of every row: one line per step, and only the columns that say something."""
    used = [column for column in SOMETIMES if any(getattr(counts, column) for counts in accounts.values())]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("step")
    for column in (*ALWAYS, *used):
        table.add_column(column.replace("_", " "), justify="right")
    for step, counts in accounts.items():
        table.add_row(Text(step), *(f"{getattr(counts, column):,}" for column in (*ALWAYS, *used)))
    return table


class Code(IntEnum):
    """How a command ended."""

    FINE = 0
    FAILED = 1
    WRONG = 2
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    TERMINATED = 143


MEANING = {
    Code.FINE: "fine",
    Code.FAILED: "a run failed, a recount differs, or doctor or checkpoint found something broken",
    Code.WRONG: "wrong usage, or a mistake in the program found before it ran",
    Code.INTERRUPTED: "stopped by Ctrl-C (SIGINT)",
    Code.PIPE_CLOSED: "nobody reads the output any more",
    Code.TERMINATED: "stopped by SIGTERM",
}

# Raised while a program is put together: nothing has run yet, so the program is what to change.
BEFORE_THE_RUN = (GraphError, SchemaError, TimeError, NotSupported)


def epilog() -> str:
    """Return the table of exit codes as it stands under every `--help`."""
    rows = "\n".join(f"  {code.value:<5}{meaning}" for code, meaning in MEANING.items())
    return f"\b\nExit codes:\n{rows}"


def code_of(error: PenstockError) -> Code:
    """Return the exit code of an error whose moment is not known better."""
    return Code.WRONG if isinstance(error, BEFORE_THE_RUN) else Code.FAILED


@contextmanager
def ending_with(code: Code) -> Iterator[None]:
    """Show what Penstock refuses in here without a traceback, and end the command with this code."""
    try:
        yield
    except PenstockError as error:
        if is_pipe_closed(error):
            raise BrokenPipeError from error
        show_error(error)
        raise typer.Exit(code) from error


def is_pipe_closed(error: BaseException | None) -> bool:
    """Return whether an error comes from printing to a standard output that nobody reads any more."""
    seen: set[int] = set()
    while error is not None and not isinstance(error, BrokenPipeError):
        seen.add(id(error))  # Why: an error that passed several places may be its own cause
        error = next((e for e in (error.__cause__, error.__context__) if e and id(e) not in seen), None)
    if error is None:
        return False
    try:  # the pipe may be another, such as a connection of a sink
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (OSError, ValueError):  # no file at all, as in tests and notebooks
        return False


def drop_output() -> None:
    """Send what is still to be printed nowhere: Python would complain when it flushes at the end."""
    with suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
