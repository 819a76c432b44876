"""The rules for a node are in the module of the lowering that is named as the node's own."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize("lowering", ["arrow", "python"])
def test_every_rule_lies_in_the_module_named_as_its_node_s_family(lowering: str) -> None:
    package = f"penstock.expr.{lowering}"
    rules = importlib.import_module(f"{package}.lower").RULES
    assert len(rules) > 40
    for node in rules:
        family = importlib.import_module(f"{package}.{node.__module__.rpartition('.')[2]}")
        assert node in family.RULES
