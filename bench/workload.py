"""What a benchmark is: cases to try, ways to do them, what a right answer is, and what is claimed.

A workload is data only; it does not know how it is timed. Every name a claim uses exists, or the
workload cannot be made: a claim about nothing would always hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bench.cell import Cell
from bench.chart import Chart
from bench.errors import BenchError
from penstock.errors import nearest_first

Size = Literal["quick", "full"]


def unequal(expected: Any, answer: Any) -> str | None:
    """Return what is wrong with an answer, or None: the plain judgement, by `==`."""
    if expected == answer:
        return None
    return f"expected {_short(expected)}, got {_short(answer)}"


@dataclass(frozen=True, slots=True)
class Case:
    """One input: `make(seed)` gives the data, `units` says how much work one run is ({"rows": 1_000_000}).

    Cases of one group are measured together, round by round; the data of a group is gone before the next
    one's is made, so only cases of one group can be held against each other.
    """

    name: str
    make: Callable[[int], Any]
    units: Mapping[str, int] = field(default_factory=dict)
    group: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do the work: `run(data)` is timed, `setup(data)` before it is not.

    With a setup, `run` gets what the setup gave back; it is called anew before every run. A way that
    answers another question than its neighbours brings an oracle of its own. `only` names the cases that
    it is tried on, where that is not all of them. `notes(answer)` gives what else a run has to tell, by
    name; a name that ends in `(s)` is of seconds, one in `(bytes)` of bytes.
    """

    name: str
    run: Callable[[Any], Any]
    setup: Callable[[Any], Any] | None = None
    oracle: Callable[[Any], Any] | None = None
    only: tuple[str, ...] = ()
    notes: Callable[[Any], Mapping[str, float]] | None = None

    def takes(self, case: str) -> bool:
        """Return whether it is tried on that case."""
        return not self.only or case in self.only


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement that a result bears out or not: a median of so many seconds, or so many times another.

    With `speed`, a unit of work such as `rows`, it is told as a speed: units per second, or times as fast.
    With `note`, it is about what the ways note under that name, such as bytes, and not about time.
    With `narrow`, it is about two costs that hardly differ: their cases get more rounds, and first quartiles
    are compared instead of medians, because what else a machine does only ever adds to a time.

    >>> Claim("ten times the rows cost at most twelve times the time",
    ...       Cell("10,000 rows", "sort"), at_most=12, over=Cell("1,000 rows", "sort")).at_most
    12
    """

    says: str
    cell: Cell
    at_most: float
    over: Cell | None = None
    speed: str = ""
    note: str = ""
    narrow: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """A benchmark. The first way is the one that the others are measured against.

    `oracle(data)` gives the right answer, once per case; `wrong(expected, answer)` says what is wrong
    with an answer, or None. `counts(expected)` gives units of work that only the right answer knows, such as
    its rows. `collector=True` leaves the garbage collector on while the clock runs. `rounds` is how many
    timed rounds it has unless told; 0 leaves that to the runner. `forget()` lets go of what cases share, so
    that `make` makes it anew.
    """

    name: str
    about: str
    cases: tuple[Case, ...]
    ways: tuple[Way, ...]
    oracle: Callable[[Any], Any]
    wrong: Callable[[Any, Any], str | None] = unequal
    claims: tuple[Claim, ...] = ()
    collector: bool = False
    charts: tuple[Chart, ...] = ()
    counts: Callable[[Any], Mapping[str, int]] | None = None
    rounds: int = 0
    forget: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        cases = [case.name for case in self.cases]
        _require_distinct(self.name, "case", cases)
        _require_distinct(self.name, "way", [way.name for way in self.ways])
        for way in self.ways:
            for case in way.only:
                _require_known(self.name, f'has way "{way.name}" for', "case", case, cases)
        for claim in self.claims:
            says = f'claims "{claim.says}" about'
            self._require_cell(says, claim.cell)
            if claim.over is not None:
                self._require_cell(says, claim.over)
                self._require_together(claim, claim.over)
        for chart in self.charts:
            for point in chart.points:
                self._require_cell(f'draws "{chart.title}" with', point.cell)

    @property
    def groups(self) -> list[str]:
        """Return the groups of its cases, in order."""
        return list(dict.fromkeys(case.group for case in self.cases))

    def part(self, groups: Collection[str]) -> Workload:
        """The same with the cases of some groups only, and what is claimed and drawn of those alone."""
        for group in groups:
            _require_known(self.name, "was asked for", "group", group, self.groups)
        cases = tuple(case for case in self.cases if case.group in groups)
        names = {case.name for case in cases}
        tried = (replace(way, only=tuple(n for n in names if way.takes(n))) for way in self.ways)
        return replace(
            self,
            cases=cases,
            ways=tuple(way for way in tried if way.only),
            claims=tuple(claim for claim in self.claims if claim.cell.case in names),
            charts=tuple(c for c in self.charts if {point.cell.case for point in c.points} <= names),
        )

    def cells_of(self, group: str) -> set[Cell]:
        """Return what one round of a group runs."""
        cases = [case.name for case in self.cases if case.group == group]
        return {Cell(case, way.name) for case in cases for way in self.ways if way.takes(case)}

    def narrow_cells_of(self, group: str) -> set[Cell]:
        """Return the cells of that group that a narrow claim compares."""
        cases = {case.name for case in self.cases if case.group == group}
        return {
            cell
            for claim in self.claims
            for cell in (claim.cell, claim.over)
            if claim.narrow and cell is not None and cell.case in cases
        }

    def _require_cell(self, says: str, cell: Cell) -> None:
        _require_known(self.name, says, "case", cell.case, [case.name for case in self.cases])
        _require_known(self.name, says, "way", cell.way, [way.name for way in self.ways])
        trying = [way.name for way in self.ways if way.takes(cell.case)]
        _require_known(self.name, f'{says} case "{cell.case}" and', "way", cell.way, trying)

    def _require_together(self, claim: Claim, over: Cell) -> None:
        groups = {case.name: case.group for case in self.cases}
        if groups[claim.cell.case] != groups[over.case]:
            raise BenchError(
                f'workload "{self.name}" claims "{claim.says}" across groups',
                detail=f'"{claim.cell.case}" is in group "{groups[claim.cell.case]}", '
                f'"{over.case}" in group "{groups[over.case]}": they see different moments of the machine',
                hint="put both cases in one group",
            )


def _require_distinct(workload: str, what: str, names: list[str]) -> None:
    if not names:
        raise BenchError(f'workload "{workload}" has no {what}', hint=f"give it at least one {what}")
    for name in names:
        if names.count(name) > 1:
            raise BenchError(
                f'workload "{workload}" has two {what}s named "{name}"', hint=f"name each {what} differently"
            )


def _require_known(workload: str, says: str, what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        # Ranking names takes long where there are hundreds: only when one is missing.
        names = nearest_first(name, known)
        raise BenchError(
            f'workload "{workload}" {says} {what} "{name}", which it does not have',
            detail=f"its {what}s: {', '.join(names)}",
            hint=f'did you mean "{names[0]}"?' if names else None,
        )


def _short(value: Any, limit: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
