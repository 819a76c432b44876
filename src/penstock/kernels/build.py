"""Build every loop into the on-disk cache, so that no program waits for Numba.

Run once when an environment is made: `python -m penstock.kernels.build`. Loops that the cache already holds
cost a few milliseconds each.
"""

from __future__ import annotations

import importlib
import pkgutil

from penstock import kernels
from penstock.kernels.compile.loops import Loop

_NOT_HERE = (f"{kernels.__name__}.build", f"{kernels.__name__}.cuda")


def list_loops() -> list[Loop]:
    """Every loop of this folder that is compiled for itself; devices have their own."""
    found: dict[int, Loop] = {}
    for module in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):
        if module.ispkg or module.name.startswith(_NOT_HERE):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            each = value.values() if isinstance(value, dict) else [value]
            # Loops under users' rules, which a program may have added by now, are of a class of their own.
            found |= {id(loop): loop for loop in each if type(loop) is Loop and loop.is_typed}
    return list(found.values())


def build() -> int:
    """Build them all; how many there are."""
    return len([loop.compiled for loop in list_loops()])


if __name__ == "__main__":
    build()
