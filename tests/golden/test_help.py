"""The help of every command, as golden texts: a change of the command line shows in a diff."""

from __future__ import annotations

import pytest

from tests.conftest import Golden
from tests.support.command_line import Outcome, bench, penstock

COMMANDS = {
    "penstock": [],
    "demo": ["demo"],
    "run": ["run"],
    "explain": ["explain"],
    "apps": ["apps"],
    "checkpoint": ["checkpoint"],
    "checkpoint-show": ["checkpoint", "show"],
    "checkpoint-verify": ["checkpoint", "verify"],
    "checkpoint-diff": ["checkpoint", "diff"],
    "checkpoint-skip": ["checkpoint", "skip"],
    "doctor": ["doctor"],
    "bench": [],
    "bench-run": ["graphs"],
    "bench-compare": ["compare"],
}


def _help(name: str) -> Outcome:
    command = bench if name.startswith("bench") else penstock
    return command(*COMMANDS[name], "--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_what_it_was(name: str, golden: Golden) -> None:
    done = _help(name)
    assert done.code == 0
    golden(f"help/{name}.txt", done.out)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_examples_and_exit_codes(name: str) -> None:
    text = _help(name).out
    assert "Examples:" in text
    assert "Exit codes:" in text
