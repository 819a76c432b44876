"""Which file has the rules for a node: every lowering has one per family, loaded with the first node of it.

A program uses few families, and loading the rules of all of them takes longer than most small runs.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from threading import RLock
from typing import Any

from penstock.expr.node import Node
from penstock.expr.program import Line

FAMILY = {
    "arithmetic": "arithmetic",
    "cast": "cast",
    "columns": "columns",
    "comparison": "comparison",
    "conditional": "choice",
    "hashing": "hashing",
    "json": "string",
    "lists": "string",
    "logic": "choice",
    "null": "choice",
    "string": "string",
    "time": "time",
}
"""The file with the rules, by the file with the nodes."""

Rule = Callable[[Node, Line], Any]

# Importing a family files its rules, and they must not be looked through meanwhile.
_FILING = RLock()


def rule_for(rule: Rule, node: Node, line: Line) -> Any:
    """`rule(node, line)`, with the rules of the node's family in place; `rule` lies beside those files."""
    nodes = type(node).__module__.rpartition(".")[2]
    lowering = rule.__module__.rpartition(".")[0]
    with _FILING:
        if nodes in FAMILY:
            import_module(f"{lowering}.{FAMILY[nodes]}")
        return rule(node, line)
