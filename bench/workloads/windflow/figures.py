"""The experiments of WindFlow 5.3 and 5.5 on the in-process engine: figures 12 to 15, 17, 18 and 20.

Each has a group of its own, so that what is compared runs in the same rounds. Claims are those of the paper
that do not hang on a machine with 64 cores; they were written down before the first measurement.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import penstock as ps
from bench.workload import Case, Cell, Chart, Claim, Line, Outcome, Point, Way
from bench.workloads.windflow.programs import BY_COLUMNS, SUITE, Data, Figure, Program, make_bars, run_program

AS_FAST = 1.05
"""A way is not slower than another if its median is at most so many times the other's."""
GAIN = 1.2
"""How much faster a way is at least where the paper says that it helps."""
DEGREES = {"one replica": 1, "two replicas": 2, "four replicas": 4}
RULES = ("combined", "dedicated", "centralised")
BATCHES = (1, 2, 4, 8, 64, 512)
BUNDLES = (10, 100)


def compare_degrees(*, quick: bool) -> Figure:
    """Figure 12 and Table 4: one replica of every operator, and several; the best of them is the best degree.

    The paper's applications gain 1.5 to 38 times on 64 cores, FraudDetection and TrafficMonitoring most.
    """
    group, programs = "degrees", (*SUITE, *BY_COLUMNS)
    ways = [
        Way(name, partial(run_program, parallelism=n), only=names_in(programs, group))
        for name, n in DEGREES.items()
    ]
    claims = [
        Claim(
            f"{program.label}: two replicas are at least {GAIN} times as fast as one",
            Cell(program.case_name(group), "two replicas"),
            1 / GAIN,
            Cell(program.case_name(group), "one replica"),
            speed="rows",
        )
        for program in SUITE
        if program.label in ("FD", "TM")
    ]
    caption = (
        "Rows as fast as they are taken. Bars of one application by the replicas of its operators (WindFlow, "
        "Fig. 12, Table 4)."
    )
    charts = [
        make_bars("Throughput with one and several replicas", caption, SUITE, group, list(DEGREES)),
        make_bars("The same by columns", caption, BY_COLUMNS, group, list(DEGREES)),
    ]
    return Figure(make_cases(programs, group, quick=quick), ways, claims, charts)


def compare_chaining(*, quick: bool) -> Figure:
    """Figure 13: operators that forward rows are fused, or each is a task of its own.

    In the paper it is a gain for SD, TM, WC and YB, hardly any for FD, and a loss for LR and VS.
    """
    group, names = "chaining", ("chained", "a task each")
    ways = [
        Way(name, partial(run_program, chaining=name == names[0]), only=names_in(SUITE, group))
        for name in names
    ]
    claims = [
        not_slower(f"{program.label}: chaining is not slower", program, group, *names)
        for program in SUITE
        if program.label not in ("LR", "VS")
    ]
    caption = "One replica of every operator (WindFlow, Fig. 13)."
    chart = make_bars("Chaining", caption, SUITE, group, names)
    return Figure(make_cases(SUITE, group, quick=quick), ways, claims, [chart])


def compare_batches(*, quick: bool) -> Figure:
    """Figure 14, left: WordCount with jumbo tuples of 1 to 8 lines, and more."""
    group, program = "batches", find_program("WC")
    n_rows = program.n_rows(quick=quick) // 2
    name = program.case_name(group)
    ways = [Way(f"b = {b}", partial(run_program, batch=b), only=(name,)) for b in BATCHES]
    claim = Claim(
        f"WC: batches of 8 lines are at least {GAIN} times as fast as single lines",
        Cell(name, "b = 8"),
        1 / GAIN,
        Cell(name, "b = 1"),
        speed="rows",
    )
    line = Line("WC", tuple(Point(b, str(b), Cell(name, f"b = {b}")) for b in BATCHES))
    chart = Chart("Batches in WordCount", "Lines that are read at once (WindFlow, Fig. 14).", "b", (line,))
    return Figure([program.make_case(group, n_rows)], ways, [claim], [chart])


def compare_waiting(*, quick: bool) -> Figure:
    """Figure 14, right: workers that spin or block for work in TrafficMonitoring.

    The paper has 3 % for spinning with a thread per core, and 12 % for blocking with more threads than cores.
    """
    group, program, cores = "waiting", find_program("TM"), len(os.sched_getaffinity(0))
    name = program.case_name(group)
    modes: Sequence[Any] = ("blocking", "spinning")
    threads = {"a thread per core": cores, "four threads per core": 4 * cores}
    ways = [
        Way(
            f"{mode}, {label}",
            partial(
                run_program, options=ps.LocalOptions(channels=mode, threads=n), parallelism=n, chaining=False
            ),
            only=(name,),
        )
        for label, n in threads.items()
        for mode in modes
    ]
    claim = not_slower(
        "TM: blocking is not slower than spinning where threads outnumber cores",
        program,
        group,
        "blocking, four threads per core",
        "spinning, four threads per core",
    )
    chart = make_bars(
        "Blocking and spinning",
        "Every operator a task of its own, as many replicas as threads (WindFlow, Fig. 14).",
        [program],
        group,
        [way.name for way in ways],
    )
    return Figure([program.make_case(group, program.n_rows(quick=quick))], ways, [claim], [chart])


def compare_pinning(*, quick: bool) -> Figure:
    """Figure 15: workers that stay on a core, or that the system moves.

    The paper loses 3.5 % to 43 % without pinning, by caches that groups of its 64 cores share. Nothing
    of that follows for a few cores, so there is no claim.
    """
    group, names = "pinning", ("pinned", "not pinned")
    ways = [
        Way(
            name,
            partial(run_program, options=ps.LocalOptions(pinning=name == names[0]), parallelism=2),
            only=names_in(SUITE, group),
        )
        for name in names
    ]
    chart = make_bars("Pinning", "Two replicas (WindFlow, Fig. 15).", SUITE, group, names)
    return Figure(make_cases(SUITE, group, quick=quick), ways, [], [chart])


def compare_rules(*, quick: bool) -> Figure:
    """Figures 17 and 18: who distributes rows to the replicas of the next operator.

    In the paper dedicated distributors never help, and centralised ones cost throughput everywhere but in TM.
    """
    group = "composition"
    rules: Sequence[Any] = RULES
    ways = [
        Way(
            rule,
            partial(run_program, options=ps.LocalOptions(composition=rule), parallelism=2),
            only=names_in(SUITE, group),
        )
        for rule in rules
    ]
    claims = [
        not_slower(
            f"{program.label}: the usual rule is not slower than {rule}", program, group, RULES[0], rule
        )
        for program in SUITE
        for rule in RULES[1:]
        if (program.label, rule) != ("TM", "centralised")
    ]
    caption = "Two replicas; distribution by the operator before, by tasks beside it, by one task (Fig. 18)."
    chart = make_bars("Composition rules", caption, SUITE, group, RULES)
    return Figure(make_cases(SUITE, group, quick=quick), ways, claims, [chart])


def compare_cores(*, quick: bool) -> Figure:
    """Figure 20: WordCount on one core and more, with bundles of 10 and 100 lines.

    StreamBox itself is no longer to be had, so only WindFlow's side of the figure is measured: that it gains
    from cores with both sizes.
    """
    group, programs = "cores", (find_program("WC"), find_program("WC by columns"))
    n_cores = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= len(os.sched_getaffinity(0))]
    ways = [
        Way(bundle_way(b, n), partial(run_on_cores, n=n, batch=b), only=names_in(programs, group))
        for b in BUNDLES
        for n in n_cores
    ]
    claims = [
        Claim(
            f"{program.label}, b = {b}: two cores are at least {GAIN} times as fast as one",
            Cell(program.case_name(group), bundle_way(b, 2)),
            1 / GAIN,
            Cell(program.case_name(group), bundle_way(b, 1)),
            speed="rows",
        )
        for program in programs
        for b in BUNDLES
        if 2 in n_cores
    ]
    charts = [
        Chart(
            f"{program.label} on several cores",
            "A replica per core, lines that are read at once (WindFlow, Fig. 20).",
            "cores",
            tuple(
                Line(
                    f"b = {b}",
                    tuple(
                        Point(n, str(n), Cell(program.case_name(group), bundle_way(b, n))) for n in n_cores
                    ),
                )
                for b in BUNDLES
            ),
            up="characters/s",
        )
        for program in programs
    ]
    cases = [make_text_case(program, group, program.n_rows(quick=quick)) for program in programs]
    return Figure(cases, ways, claims, charts)


def make_text_case(program: Program, group: str, n_rows: int) -> Case:
    """Return a case of WordCount whose rate is also told in characters, as in Figure 20."""
    lines = Data.generate(program, rows=n_rows).tables["lines"].column("line").to_pylist()
    case = program.make_case(group, n_rows)
    return Case(case.name, case.make, {**case.units, "characters": sum(map(len, lines))}, group)


def bundle_way(b: int, n_cores: int) -> str:
    """Return the name of the way with bundles of b lines on so many cores."""
    return f"b = {b}, {n_cores} core{'s' * (n_cores > 1)}"


def run_on_cores(data: Data, *, n: int, batch: int) -> Outcome:
    """Run a program on the first n cores that this process may use, with a replica for each."""
    with limit_cores(n):
        return run_program(data, parallelism=n, batch=batch)


@contextmanager
def limit_cores(n: int) -> Iterator[None]:
    """Keep all threads of this process, and those that it starts meanwhile, on n cores."""
    usual = os.sched_getaffinity(0)
    _move_threads(set(sorted(usual)[:n]))
    try:
        yield
    finally:
        _move_threads(usual)


def _move_threads(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), cores)
        except ProcessLookupError:  # it has ended meanwhile
            continue


def make_cases(programs: Sequence[Program], group: str, *, quick: bool) -> list[Case]:
    """Return a case for each program."""
    return [program.make_case(group, program.n_rows(quick=quick)) for program in programs]


def names_in(programs: Sequence[Program], group: str) -> tuple[str, ...]:
    """Return the names of the programs' cases in a group."""
    return tuple(program.case_name(group) for program in programs)


def find_program(label: str) -> Program:
    """Return a program by its label."""
    return next(program for program in (*SUITE, *BY_COLUMNS) if program.label == label)


def not_slower(says: str, program: Program, group: str, way: str, than: str) -> Claim:
    """Return the claim that a way is about as fast as another, or faster."""
    return Claim(says, Cell(program.case_name(group), way), AS_FAST, Cell(program.case_name(group), than))
