"""What a benchmark is: cases to try, ways to do them, what a right answer is, and what is claimed.

A workload is data only; it does not know how it is timed. Every name a claim uses exists, or the
workload cannot be made: a claim about nothing would always hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from penstock.bench.errors import BenchError
from penstock.errors import nearest_first

Size = Literal["quick", "full"]


class Cell(NamedTuple):
    """One figure of a result: this way on this case."""

    case: str
    way: str


def unequal(expected: Any, answer: Any) -> str | None:
    """What is wrong with an answer, or None: the plain judgement, by `==`."""
    if expected == answer:
        return None
    return f"expected {_short(expected)}, got {_short(answer)}"


@dataclass(frozen=True, slots=True)
class Case:
    """One input: `make(seed)` gives the data, `units` says how much work one run is ({"rows": 1_000_000})."""

    name: str
    make: Callable[[int], Any]
    units: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do the work: `run(data)` is timed, `setup(data)` before it is not.

    With a setup, `run` gets what the setup gave back; it is called anew before every run. A way that
    answers another question than its neighbours brings an oracle of its own. `only` names the cases that
    it is tried on, where that is not all of them.
    """

    name: str
    run: Callable[[Any], Any]
    setup: Callable[[Any], Any] | None = None
    oracle: Callable[[Any], Any] | None = None
    only: tuple[str, ...] = ()

    def takes(self, case: str) -> bool:
        """Whether it is tried on that case."""
        return not self.only or case in self.only


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement that a result bears out or not: a median of so many seconds, or so many times another.

    >>> Claim("ten times the rows cost at most twelve times the time",
    ...       Cell("10,000 rows", "sort"), at_most=12, over=Cell("1,000 rows", "sort")).at_most
    12
    """

    says: str
    cell: Cell
    at_most: float
    over: Cell | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A benchmark. The first way is the one that the others are measured against.

    `oracle(data)` gives the right answer, once per case; `wrong(expected, answer)` says what is wrong
    with an answer, or None. `collector=True` leaves the garbage collector on while the clock runs.
    """

    name: str
    about: str
    cases: tuple[Case, ...]
    ways: tuple[Way, ...]
    oracle: Callable[[Any], Any]
    wrong: Callable[[Any, Any], str | None] = unequal
    claims: tuple[Claim, ...] = ()
    collector: bool = False

    def __post_init__(self) -> None:
        _require_distinct(self.name, "case", [case.name for case in self.cases])
        _require_distinct(self.name, "way", [way.name for way in self.ways])
        cases, ways = [case.name for case in self.cases], {way.name: way for way in self.ways}
        for way in self.ways:
            for case in way.only:
                _require_known(self.name, f'has way "{way.name}" for', "case", case, cases)
        for claim in self.claims:
            for cell in (claim.cell, claim.over):
                if cell is not None:
                    says = f'claims "{claim.says}" about'
                    _require_known(self.name, says, "case", cell.case, cases)
                    _require_known(self.name, says, "way", cell.way, ways)
                    trying = [way.name for way in self.ways if way.takes(cell.case)]
                    _require_known(self.name, f'{says} case "{cell.case}" and', "way", cell.way, trying)


def _require_distinct(workload: str, what: str, names: list[str]) -> None:
    if not names:
        raise BenchError(f'workload "{workload}" has no {what}', hint=f"give it at least one {what}")
    for name in names:
        if names.count(name) > 1:
            raise BenchError(
                f'workload "{workload}" has two {what}s named "{name}"', hint=f"name each {what} differently"
            )


def _require_known(workload: str, says: str, what: str, name: str, known: Iterable[str]) -> None:
    names = nearest_first(name, known)
    if name not in names:
        raise BenchError(
            f'workload "{workload}" {says} {what} "{name}", which it does not have',
            detail=f"its {what}s: {', '.join(names)}",
            hint=f'did you mean "{names[0]}"?' if names else None,
        )


def _short(value: Any, limit: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
