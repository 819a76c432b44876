"""The commit of a result is that of the code that ran; cores can be kept awake, and stolen time is told."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from bench import format_result, measure
from bench.machine import commit_of, keep_awake, read_core_times, usable_cores
from tests.support.sort_workload import ScriptedClock, build_sorting


def test_the_commit_is_that_of_the_code_and_of_nothing_else(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
    commit = commit_of(Path(__file__).parent)
    assert commit is None or len(commit.id) == 40


def list_children() -> list[int]:
    """Return the processes that this one has started and that are still there."""
    return [
        int(one)
        for task in Path("/proc/self/task").iterdir()
        for one in (task / "children").read_text().split()
    ]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are listed by Linux")
def test_while_cores_are_kept_awake_each_has_a_process_that_gives_way_to_all_others() -> None:
    before = set(list_children())
    with keep_awake() as is_awake:
        assert is_awake
        started = [child for child in list_children() if child not in before]
        assert len(started) == usable_cores()
        while not all(os.sched_getscheduler(child) == os.SCHED_IDLE for child in started):
            continue
    assert not set(started) & set(list_children())


def test_a_result_tells_whether_cores_were_awake_and_how_much_was_stolen() -> None:
    clock = ScriptedClock()
    result = measure(build_sorting(clock), rounds=1, warm_up=0, awake=True, clock=clock)
    assert result.machine.awake == hasattr(os, "SCHED_IDLE")
    assert (result.machine.stolen is None) == (read_core_times() is None)
    assert result.machine.step_ns
    assert "ns a step of plain Python" in format_result(result)
    calm, disturbed = (
        format_result(replace(result, machine=replace(result.machine, stolen=share, awake=True)))
        for share in (0.001, 0.25)
    )
    assert "kept awake; 0.1% of the time that they were wanted for went to other machines" in calm
    assert "note: the host of this machine ran others" not in calm
    assert "note: the host of this machine ran others for 25% of the time" in disturbed
