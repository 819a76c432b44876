"""The help of every command, as golden texts: a change of the command line shows in a diff."""

from __future__ import annotations

import pytest

from tests.cli.typing_at import penstock
from tests.conftest import Golden

COMMANDS = {
    "penstock": [],
    "demo": ["demo"],
    "run": ["run"],
    "explain": ["explain"],
    "bench": ["bench"],
    "bench-run": ["bench", "graphs"],
    "bench-compare": ["bench", "compare"],
    "doctor": ["doctor"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_what_it_was(name: str, golden: Golden) -> None:
    done = penstock(*COMMANDS[name], "--help")
    assert done.code == 0
    golden(f"help/{name}.txt", done.out)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_examples_and_exit_codes(name: str) -> None:
    text = penstock(*COMMANDS[name], "--help").out
    assert "Examples:" in text
    assert "Exit codes:" in text
