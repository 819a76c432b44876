"""The rules for a node are in the module of its family."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

from penstock.expr import nodes as families
from penstock.expr.arrow.lower import lower_node as lower_to_arrow
from penstock.expr.python.lower import lower_node as lower_to_python


@pytest.mark.parametrize("lower_node", [lower_to_arrow, lower_to_python])
def test_every_rule_lies_in_the_module_named_as_its_node_s_family(lower_node: Any) -> None:
    lowering = lower_node.__module__.rpartition(".")[0]
    for family in pkgutil.iter_modules(families.__path__):
        importlib.import_module(f"{lowering}.{family.name}")
    rules: dict[type, Callable[..., Any]] = {
        node: function for node, function in lower_node.registry.items() if node is not object
    }
    homes = {
        node.__name__: (function.__module__, f"{lowering}.{node.__module__.rpartition('.')[2]}")
        for node, function in rules.items()
    }
    assert len(homes) > 20
    assert {name: pair for name, pair in homes.items() if pair[0] != pair[1]} == {}
