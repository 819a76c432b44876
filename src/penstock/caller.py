"""Find the line of the user's program that called us, so that every error can name it."""

from __future__ import annotations

import functools
import inspect
import sys
from pathlib import Path
from types import CodeType, FrameType

from penstock.errors import Where

_OURS = str(Path(__file__).parent)
_APPS = str(Path(__file__).parent / "apps")  # programs that ship with the package are users of it


def find_call_site() -> Where | None:
    """Return the nearest frame outside this package, or None when there is none (an interactive shell)."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    return Where(_shorten(frame.f_code.co_filename), frame.f_lineno)


def find_definition(function: object) -> Where | None:
    """Return where a user's function was written; None for builtins and C functions."""
    plain = inspect.unwrap(function) if callable(function) else function
    plain = getattr(plain, "func", plain)  # functools.partial
    code = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    if not isinstance(code, CodeType):
        return None
    return Where(_shorten(code.co_filename), code.co_firstlineno)


def name_of(function: object) -> str:
    """Return the name of a user's function for errors and explain(): `clean`, `<lambda>`, `Scorer`."""
    plain = getattr(function, "func", function)
    return str(getattr(plain, "__qualname__", None) or type(plain).__qualname__)


def is_ours(file: str) -> bool:
    """Return whether a file is part of this package; programs that ship with it are not."""
    return file.startswith(_OURS) and not file.startswith(_APPS)


@functools.lru_cache(maxsize=256)
def _shorten(file: str) -> str:
    """Return the path as the user would type it: relative when it lies below the working folder."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file
