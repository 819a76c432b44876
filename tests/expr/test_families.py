"""The rules for a node are in the file where `rule_for` looks for them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from penstock.expr.arrow.rule import rule as arrow_rule
from penstock.expr.program import FAMILY
from penstock.expr.python.rule import rule as python_rule


@pytest.mark.parametrize("rule", [arrow_rule, python_rule])
def test_every_rule_lies_in_the_file_of_its_node_s_family(rule: Any) -> None:
    lowering = rule.__module__.rpartition(".")[0]
    for family in FAMILY.values():
        importlib.import_module(f"{lowering}.{family}")
    filed: dict[type, Callable[..., Any]] = {
        node: function for node, function in rule.registry.items() if node is not object
    }
    homes = {
        node.__name__: (function.__module__, f"{lowering}.{FAMILY[node.__module__.rpartition('.')[2]]}")
        for node, function in filed.items()
    }
    assert len(homes) > 20
    assert {name: pair for name, pair in homes.items() if pair[0] != pair[1]} == {}
