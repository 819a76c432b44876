"""Build every loop into the on-disk cache, so that no program waits for Numba.

Run once when an environment is set up: `python -m penstock.kernels.build`. Loops that the cache already holds
cost a few milliseconds each.
"""

from __future__ import annotations

import importlib
import pkgutil

from penstock import kernels
from penstock.kernels.compile.inline import SteppedLoop
from penstock.kernels.compile.loops import Loop

_EXCLUDED = (f"{kernels.__name__}.build", f"{kernels.__name__}.cuda")


def list_loops() -> list[Loop]:
    """Return every loop of this package that is compiled on its own; devices have their own."""
    loops: dict[int, Loop] = {}
    for module in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):
        if module.ispkg or module.name.startswith(_EXCLUDED):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            candidates = value.values() if isinstance(value, dict) else [value]
            # Why: loops under users' rules, which a program may have added by now, are of other classes.
            loops |= {
                id(loop): loop for loop in candidates if type(loop) in (Loop, SteppedLoop) and loop.is_typed
            }
    return list(loops.values())


def build() -> int:
    """Build them all; return how many there are."""
    return len([loop.compiled for loop in list_loops()])


if __name__ == "__main__":
    build()
