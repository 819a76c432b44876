"""The examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import penstock as ps

SOURCE = Path(ps.__file__).parent


def modules_with_examples() -> list[str]:
    files = [file for file in sorted(SOURCE.rglob("*.py")) if ">>> " in file.read_text("utf-8")]
    paths = [file.relative_to(SOURCE.parent).with_suffix("") for file in files]
    return [".".join(path.parts).removesuffix(".__init__") for path in paths]


def test_there_are_examples() -> None:
    assert len(modules_with_examples()) > 20


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_print_what_they_say(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert outcome.attempted > 0
    assert outcome.failed == 0
