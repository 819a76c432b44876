"""A small workload on a clock that moves only by hand, so that every figure is exact."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from bench import Case, Cell, Claim, Result, Way, Workload, measure


class ScriptedClock:
    """Nanoseconds that pass only by `pass_by`."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now

    def pass_by(self, ns: int) -> None:
        self.now += ns


def numbers(n: int) -> Callable[[int], list[int]]:
    return lambda seed: random.Random(seed).choices(range(1_000), k=n)


def insertion(data: list[int]) -> list[int]:
    out: list[int] = []
    for value in data:
        at = next((i for i, other in enumerate(out) if other > value), len(out))
        out.insert(at, value)
    return out


def build_sorting(clock: ScriptedClock, *, factor: int = 3) -> Workload:
    """Build a workload where built-in sorting takes 10 ns a value, insertion `factor` times as much."""

    def built_in(data: list[int]) -> list[int]:
        clock.pass_by(10 * len(data))
        return sorted(data)

    def by_hand(data: list[int]) -> list[int]:
        clock.pass_by(10 * factor * len(data))
        return insertion(data)

    return Workload(
        name="sorting",
        about="sort numbers, two ways",
        cases=(Case("few", numbers(10), {"rows": 10}), Case("many", numbers(100), {"rows": 100})),
        ways=(Way("built-in", built_in), Way("insertion", by_hand)),
        oracle=sorted,
        claims=(Claim("insertion costs at most 5x", Cell("many", "insertion"), 5, Cell("many", "built-in")),),
    )


def build_result(
    *,
    built_in: tuple[int, ...] = (100,) * 5,
    insertion: tuple[int, ...] = (300,) * 5,
    workload: str = "sorting",
) -> Result:
    """Build a result of one case with those samples."""
    clock = ScriptedClock()
    plain = build_sorting(clock)
    result = measure(replace(plain, cases=plain.cases[:1], claims=()), rounds=1, warm_up=0, clock=clock)
    figures = tuple(
        replace(one, samples_ns=samples)
        for one, samples in zip(result.figures, (built_in, insertion), strict=True)
    )
    machine = replace(result.machine, load=0.0)
    return replace(result, workload=workload, rounds=len(built_in), figures=figures, machine=machine)
