"""Which process is killed when, in which run: drawn by a seed, so that a campaign can be repeated.

A moment is a share of the time that the undisturbed run took, because runs take longer on slower machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

Kind = Literal["executor", "driver", "speculation", "signal", "kill"]
Target = Literal["executor", "python worker", "python daemon", "worker", "driver", "program"]
TARGETS: tuple[Target, ...] = ("executor", "python worker", "python daemon", "worker")
"""What a run must survive by itself; a program whose driver is killed is started again."""
TWICE = 0.2
"""How many of the runs lose two processes."""
MOST_DRIVERS = MOST_SIGNALS = 3
LATEST_DRIVER = 0.8
"""The latest moment at which a driver is killed: a run may be over sooner than the undisturbed one was."""
FIRST_PROGRAM: dict[Kind, int] = {"driver": 4}
"""Kind -> the program that it begins with, so that a short campaign has most of them."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A process to be killed, after this share of the run's usual time since it began."""

    target: Target
    share: float


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A run of the campaign: its program, and what is killed; for drivers and signals, one kill per try.

    kind  None if nothing is to happen
    """

    number: int
    kind: Kind | None
    program: str
    kills: tuple[Kill, ...] = ()


def plan_campaign(runs: dict[Kind, int], programs: Sequence[str], seed: int) -> list[Disturbance]:
    """Plan all runs: every kind goes through the programs and targets in turn, at random moments.

    >>> [run.program for run in plan_campaign({"driver": 3}, ["a", "b"], seed=1)]
    ['a', 'b', 'a']
    """
    planned: list[Disturbance] = []
    for kind, n in runs.items():
        for index in range(n):
            # Why a generator of its own: a run is the same however many there are.
            chance = Random(f"{seed} {kind} {index}")  # noqa: S311  # no secret hangs on it
            place = (index + FIRST_PROGRAM.get(kind, 0)) % len(programs)
            program = "attempts" if kind == "speculation" else programs[place]
            kills = draw_kills(kind, index, chance)
            planned.append(Disturbance(len(planned), kind, program, kills))
    return planned


def draw_kills(kind: Kind, index: int, chance: Random) -> tuple[Kill, ...]:
    """Draw what is killed in the n-th run of a kind, in order of time."""
    if kind == "speculation":
        return ()
    if kind == "driver":
        return tuple(
            Kill("driver", LATEST_DRIVER * chance.random()) for _ in range(1 + chance.randrange(MOST_DRIVERS))
        )
    if kind in ("signal", "kill"):
        return tuple(Kill("program", chance.random()) for _ in range(1 + chance.randrange(MOST_SIGNALS)))
    # Why by turns: a campaign of any length has as many kills of every target, with every program.
    first = TARGETS[(index + index // len(TARGETS)) % len(TARGETS)]
    kills = [Kill(first, chance.random())]
    if chance.random() < TWICE:
        kills.append(Kill(chance.choice(TARGETS), chance.random()))
    return tuple(sorted(kills, key=lambda kill: kill.share))
