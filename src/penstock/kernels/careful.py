"""Loops that users' functions are part of: compiled where Numba can, plain Python where it cannot."""

from __future__ import annotations

import copy
import re
from collections import namedtuple
from collections.abc import Callable
from functools import cached_property
from types import FunctionType
from typing import Any

import numpy as np

from penstock.kernels.loops import Function, Loop

_BUILD: Callable[[Loop], Function] = vars(Loop)["compiled"].func
"""What `Loop.compiled` does, for those who do more."""


class Careful(Loop):
    """A loop that stays plain where Numba cannot compile it."""

    refusal: str | None = None
    """Why it is not compiled, once that has been tried."""

    @classmethod
    def of(cls, inner: Loop, *, cached: bool = False) -> Careful:
        """The same loop, careful; `cached` where all that it calls lasts until the next process."""
        return cls(inner._source, inner._letters, rules=inner._rules, cached=cached)

    def at(self, compiled: bool) -> Function:
        """The loop at one of its two speeds, if it has both."""
        return self.compiled if compiled and self.compiles else self.plain

    @property
    def compiles(self) -> bool:
        """Whether there is machine code; this makes it."""
        if self.refusal is None:
            try:
                return self.compiled is not None  # kept once it is made
            except Exception as cause:  # Numba's errors have no common ground below this
                self.refusal = _reason(cause)
        return False

    @cached_property
    def compiled(self) -> Function:
        """The loop as machine code, from the disk where that works."""
        return self._built()

    def _built(self) -> Function:
        from numba.core.errors import NumbaError

        try:
            return _BUILD(self)
        except NumbaError:
            raise
        except Exception:  # no place to keep it, or what was kept cannot be read
            if not self._cached:
                raise
            self._cached = False
            return _BUILD(self)


class Generated(Careful):
    """A loop that is written by a program: `text` defines the function `name`."""

    def __init__(
        self, text: str, name: str, space: dict[str, Any], letters: str | None, *, cached: bool = False
    ) -> None:
        space = {"np": np, "namedtuple": namedtuple, "__name__": __name__, **space}
        exec(compile(text, "<fold>", "exec"), space)  # noqa: S102  # our own text, with numbers put in
        super().__init__(space[name], letters, cached=cached)
        self._text = text

    def _built(self) -> Function:
        """Numba keeps machine code by the file that a function is said to be from, so that is this one."""
        code: Any = self._source.__code__.replace(co_filename=__file__)
        twin = copy.copy(self)
        twin._source = FunctionType(code, self._source.__globals__, self.__name__)
        return Careful._built(twin)

    def _digest(self) -> str:
        inner = [f"{name} {each._digest()}" for name, each in sorted(self._inner().items())]
        import hashlib  # for what is compiled only

        return hashlib.sha256("\0".join([self._text, *inner]).encode()).hexdigest()[:12]


def _reason(cause: Exception) -> str:
    """Numba's reason in one line: its first names only the pass that failed, and colours come between."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in str(cause).splitlines()]
    told = [line for line in lines if line and not line.startswith("Failed in nopython")]
    return told[0] if told else type(cause).__name__
