"""A part of the campaign of mutations, with a fixed seed: refused by name, or the same answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.faults.mutations import GOOD, IN_PROCESS, Case, mutate_on, summarize
from tests.support.spark_in_process import InProcessSparkEngine


def mutate(engine: Any, programs: tuple[str, ...], count: int, folder: Path, seed: int) -> list[Case]:
    cases = mutate_on(engine, "engine", programs, count, folder=folder, seed=seed, tell=lambda line: None)
    wrong = [f"{case}\n{case.text}" for case in cases if case.verdict not in GOOD]
    assert not wrong, "\n".join(wrong)
    return cases


def test_what_is_damaged_is_refused_by_name_or_makes_no_difference(tmp_path: Path) -> None:
    cases = mutate("local", ("arrivals",), 8, tmp_path, seed=1)
    assert "refused" in {case.verdict for case in cases}
    assert summarize(cases).startswith("mutations 8, refused ")


@pytest.mark.slow
def test_the_same_holds_for_every_program_and_for_the_fragments_of_spark(tmp_path: Path) -> None:
    mutate("local", IN_PROCESS, 48, tmp_path / "local", seed=2)
    mutate(InProcessSparkEngine(), IN_PROCESS, 48, tmp_path / "fragments", seed=3)
