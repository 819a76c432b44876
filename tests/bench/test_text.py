"""Results, durations and rates as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import format_result, measure
from bench.text import align_columns, format_duration, format_number, format_rate
from tests.support.sort_workload import ScriptedClock, build_result, build_sorting


def test_the_report_gives_claims_then_ratios_then_figures() -> None:
    clock = ScriptedClock()
    text = format_result(measure(build_sorting(clock), rounds=3, clock=clock))
    assert (
        "HELD: insertion costs at most 5x (measured 3.00x, quartiles 3.00x to 3.00x; wanted at most 5.00x)"
        in text
    )
    assert "insertion  3.00x (3.00 to 3.00)" in text
    last = next(line for line in text.splitlines() if line.endswith("33.3 M rows/s") and "many" in line)
    assert " ".join(last.split()) == "many insertion 3.00 us 3.00 us to 3.00 us 3.00 us 33.3 M rows/s"
    assert text.index("HELD:") < text.index("time against") < text.index("median")


def test_a_claim_that_does_not_hold_is_said_loudly() -> None:
    clock = ScriptedClock()
    result = measure(build_sorting(clock, factor=9), rounds=1, clock=clock)
    assert "NOT HELD: insertion costs at most 5x" in format_result(result)


def test_the_report_says_so_when_the_machine_was_busy() -> None:
    result = build_result()
    assert "busy" not in format_result(result)
    assert "busy" in format_result(replace(result, machine=replace(result.machine, load=99.0)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.34, "12.3 s"), (1.0, "1.00 s"), (0.0123, "12.3 ms"), (0.000004, "4.00 us"), (3e-8, "0.030 us")],
)
def test_a_duration_has_three_digits_and_a_fitting_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_rates_and_large_numbers_are_readable() -> None:
    assert format_rate(1_250_000, "rows") == "1.25 M rows/s"
    assert format_rate(12, "rows") == "12.0 rows/s"
    assert format_number(1_234_567.0) == "1,234,567"


def test_columns_are_aligned_without_trailing_space() -> None:
    assert align_columns([["a", "bb"], ["ccc", "d"], ["e", ""]]) == "a    bb\nccc  d\ne"
