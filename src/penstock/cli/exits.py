"""Exit codes: what they mean to scripts, and which error gives which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer

from penstock.cli import screen
from penstock.errors import GraphError, NotSupported, PenstockError, SchemaError, TimeError


class Code(IntEnum):
    """How a command ended."""

    FINE = 0
    FAILED = 1
    WRONG = 2
    INTERRUPTED = 130


MEANING = {
    Code.FINE: "fine",
    Code.FAILED: "a run failed, or doctor found something broken",
    Code.WRONG: "wrong usage, or a mistake in the program found before it ran",
    Code.INTERRUPTED: "stopped by Ctrl-C",
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
        screen.show_error(error)
        raise typer.Exit(code) from error
