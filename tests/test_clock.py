"""Clocks: the machine's, and one that is held."""

from __future__ import annotations

import time

import penstock as ps


def test_a_manual_clock_moves_only_when_it_is_told() -> None:
    clock = ps.ManualClock(1_000)
    assert (clock.now(), clock.now()) == (1_000, 1_000)
    clock.advance(500)
    assert clock.now() == 1_500
    clock.advance(-2_000)
    assert clock.now() == -500


def test_a_manual_clock_starts_at_1970() -> None:
    assert ps.ManualClock().now() == 0


def test_the_wall_clock_counts_microseconds_since_1970() -> None:
    before = time.time_ns() // 1_000
    now = ps.WallClock().now()
    assert before <= now <= time.time_ns() // 1_000
