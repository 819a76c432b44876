"""Build every loop into the on-disk cache, so that no program waits for Numba.

Run once when an environment is set up: `python -m penstock.kernels.build`. Loops that the cache already holds
cost a few milliseconds each.
"""

from __future__ import annotations

import importlib
import pkgutil

from penstock import kernels
from penstock.kernels.loops import Loop
from penstock.kernels.windows.accumulate import RULES, build_rule_loop
from penstock.kernels.windows.combine import sweep_numbers

_EXCLUDED = (f"{kernels.__name__}.build", f"{kernels.__name__}.cuda")


def list_loops() -> list[Loop]:
    """Return every loop of this package that is compiled on its own; devices have their own."""
    loops: dict[int, Loop] = {}
    for module in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):
        if not module.ispkg and not module.name.startswith(_EXCLUDED):
            values = vars(importlib.import_module(module.name)).values()
            loops |= {id(value): value for value in values if type(value) is Loop and value.signature}
    return [typed for loop in loops.values() for typed in _under_all_rules(loop)]


def _under_all_rules(loop: Loop) -> list[Loop]:
    """Return the loop itself; one over cells of any rule, under each of ours that has what it calls."""
    if "N" not in (loop.signature or ""):
        return [loop]
    rules = [rule for rule in RULES if loop is not sweep_numbers or rule.merge_numbers is not None]
    return [build_rule_loop(loop, rule) for rule in rules]


def build() -> int:
    """Build them all; return how many there are."""
    return len([loop.compiled for loop in list_loops()])


if __name__ == "__main__":
    build()
