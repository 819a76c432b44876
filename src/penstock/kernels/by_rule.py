"""The loops that put windows together, once per combine rule."""

from __future__ import annotations

from penstock.kernels import stacks, tree
from penstock.kernels.loops import Loop
from penstock.kernels.rules import RULES, Rule

SWEEPS: dict[str, Loop] = {}
UPDATES: dict[str, Loop] = {}
QUERIES: dict[str, Loop] = {}
NUMBER_SWEEPS: dict[str, Loop] = {}
"""For rules of one number, on flat arrays."""


def add_rule(rule: Rule, *, cached: bool = True) -> None:
    """Make the loops for a rule, under its name.

    A user's own rule is not kept in the on-disk cache, since its code is not the package's.
    """
    x = "F2" if rule.floats else "I2"
    if rule.join is not None:
        n, line = ("f", "F") if rule.floats else ("i", "I")
        letters = f"{line} I2 I I I {n} {line} {line}"
        NUMBER_SWEEPS[rule.name] = stacks.sweep_numbers.under(rule.join, letters, cached=cached)
    SWEEPS[rule.name] = stacks.sweep.under(rule.merge, f"{x} {x} I2 I I I {x} {x}", cached=cached)
    UPDATES[rule.name] = tree.update.under(rule.merge, f"{x} {x} I2 I i", cached=cached)
    QUERIES[rule.name] = tree.query.under(rule.merge, f"{x} {x} {x} I2 I I I i {x}", cached=cached)


for _rule in RULES:
    add_rule(_rule)
