"""The examples in the docstrings of the benchmarks are right."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["result", "text", "workload"])
def test_the_examples_in_docstrings_are_right(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"bench.{name}"))
    assert outcome.attempted > 0
    assert outcome.failed == 0
