"""`python -m bench faults`: a line for every run, the totals, and JSON for scripts."""

from __future__ import annotations

import json as jsonlib
import logging
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import penstock as ps
from bench.faults.kills import Disturbance, Kind, plan_campaign
from bench.faults.programs import PROGRAMS
from bench.faults.rows import Difference
from bench.machine import commit_of, describe_machine, package_versions
from bench.workload import BenchError
from penstock.cli import screen
from penstock.errors import nearest_first

if TYPE_CHECKING:
    from bench.faults.campaign import Outcome

ABOUT = (
    "Kill processes of a Spark cluster while programs run; compare every row with the reference engine.\n\n"
    "A master and two workers are started on loopback. In runs of kind executor, an executor, a Python "
    "worker, its daemon or a worker is killed, and the run must end by itself. In runs of kind driver, the "
    "program is killed and started again on its checkpoint. In runs of kind speculation, two attempts of a "
    "task both finish. In runs of kind signal and kill, which need no cluster, a program gets SIGTERM or "
    "SIGINT, or is killed, up to three times, and is started again; --engine says where it runs. The code is "
    "1 if a row or a count differs, a run does not end, or no run of a kind was hit.\n\n"
    "\b\nExamples:\n"
    "  python -m bench faults --quick\n"
    "  python -m bench faults --runs 100 --seed 7 --json faults.json\n"
    "  python -m bench faults --kind driver --only state --runs 5\n"
    "  python -m bench faults --kind signal\n"
    "  python -m bench faults --kind kill --runs 150 --seed 7\n"
    "  python -m bench faults --kind signal --engine spark --runs 20"
)
KINDS: dict[Kind, tuple[int, int]] = {
    "executor": (40, 4),
    "driver": (40, 4),
    "speculation": (4, 1),
    "signal": (50, 5),
    "kill": (150, 8),
}
"""Kind -> the usual number of runs, and that of `--quick`."""


def run_faults(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the runs.")] = False,
    runs: Annotated[
        int | None,
        typer.Option(
            help="Runs of each kind [40, of speculation 4, of signal 50, of kill 150].", min=1, metavar="N"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the data and the kills.", metavar="N")] = 1,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only this kind; may be repeated.", metavar="KIND")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this program; may be repeated.", metavar="NAME")
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="Where runs of kind signal and kill are: local or spark.", metavar="ENGINE"),
    ] = "local",
    limit: Annotated[float, typer.Option(help="Seconds within which a try must end.", metavar="S")] = 180.0,
    json: Annotated[
        Path | None, typer.Option(help="Write every run here; - for standard output.", metavar="FILE")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="Keep what runs that went wrong left, in this folder.", metavar="FOLDER"),
    ] = None,
) -> None:
    """Run the campaign."""
    counts = count_runs(runs, kind or list(KINDS), quick=quick)
    programs = [require_known("program", name, PROGRAMS) for name in only or PROGRAMS]
    require_known("engine", engine, ("local", "spark"))
    tell = screen.note if json == Path("-") else screen.say
    logging.getLogger("penstock").setLevel(logging.ERROR)  # rows that are late are part of the programs
    work = Path(tempfile.mkdtemp(prefix="penstock-faults-", dir=keep))
    try:
        outcomes = _run_all(work, counts, programs, seed, limit, tell, engine)
    finally:
        if keep is None:
            shutil.rmtree(work, ignore_errors=True)
    tell(format_totals(count_totals(outcomes)))
    if json is not None:
        text = to_json(outcomes, seed)
        if json == Path("-"):
            sys.stdout.write(text)
        else:
            json.write_text(text, encoding="utf-8")
    if not has_passed(outcomes):
        raise typer.Exit(1)


def count_runs(runs: int | None, kinds: Collection[str], *, quick: bool) -> dict[Kind, int]:
    """Return the number of runs of every kind that is asked for."""
    names = [require_known("kind", name, KINDS) for name in kinds]
    return {name: runs or KINDS[name][quick] for name in KINDS if name in names}


def require_known(sort: str, name: str, known: Collection[str]) -> str:
    """Return a name that is known; raise BenchError otherwise."""
    if name in known:
        return name
    names = nearest_first(name, known)
    raise BenchError(
        f'the campaign has no {sort} "{name}"',
        detail=f"its {sort}s: {', '.join(names)}",
        hint=f'did you mean "{names[0]}"?',
    )


def _run_all(
    work: Path,
    counts: dict[Kind, int],
    programs: Sequence[str],
    seed: int,
    limit_s: float,
    tell: Callable[[str], None],
    engine: str,
) -> list[Outcome]:
    from bench.faults.campaign import Campaign, open_campaign  # it loads pyspark
    from bench.faults.signals import SignalCampaign

    planned = plan_campaign(counts, programs, seed)
    outcomes: list[Outcome] = []

    def run_planned(campaign: Campaign | SignalCampaign, runs: Sequence[Disturbance]) -> None:
        wrong = set()  # Why: a program that goes wrong by itself tells nothing about what is killed
        for outcome in campaign.prepare(list(dict.fromkeys(run.program for run in runs))):
            outcomes.append(outcome)
            wrong |= set() if outcome.exact else {outcome.program}
            tell(format_outcome(outcome))
        for run in runs:
            if run.program not in wrong:
                outcomes.append(campaign.run(run))
                tell(format_outcome(outcomes[-1]))

    on_cluster = [run for run in planned if run.kind not in ("signal", "kill")]
    if on_cluster:
        with open_campaign(work, seed=seed, limit_s=limit_s, tell=tell) as campaign:
            run_planned(campaign, on_cluster)
    if len(on_cluster) < len(planned):
        signals = SignalCampaign(work, seed=seed, limit_s=limit_s, tell=tell, engine=engine)
        run_planned(signals, [run for run in planned if run.kind in ("signal", "kill")])
    return outcomes


def format_outcome(outcome: Outcome) -> str:
    """Return one line about a run."""
    kills = ", ".join(f"{target} at {seconds:.1f} s" for target, seconds in outcome.kills)
    number = "" if outcome.kind is None else str(outcome.number + 1)
    tries = f"{outcome.tries} {'try' if outcome.tries == 1 else 'tries'}"
    return (
        f"{number:>3} {outcome.kind or 'undisturbed':<12}{outcome.program:<10}"
        f"{kills or 'nothing killed':<44}  {tries:<8}{outcome.seconds:>6.1f} s  {outcome.verdict()}"
    )


def count_totals(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Return how many runs there were, and what went wrong in them."""
    rows = sum((outcome.difference for outcome in outcomes), Difference())
    return {
        "runs": sum(outcome.kind is not None for outcome in outcomes),
        **asdict(rows),
        "not ended": sum(not outcome.ended for outcome in outcomes),
        "with problems": sum(bool(outcome.problems) for outcome in outcomes),
        "kills": sum(len(outcome.kills) for outcome in outcomes),
        "after a round": sum(bool(n) for outcome in outcomes for n in outcome.rounds),
        "missed": sum(outcome.missed for outcome in outcomes),
    }


def format_totals(totals: dict[str, int]) -> str:
    """Return the totals as one line.

    >>> format_totals({"runs": 80, "lost": 0, "doubled": 0, "wrong": 0})
    'runs 80, lost 0, doubled 0, wrong 0'
    """
    return ", ".join(f"{name} {count:,}" for name, count in totals.items())


def has_passed(outcomes: Sequence[Outcome]) -> bool:
    """Return whether all runs are exact, and every kind has a run that was not missed."""
    kinds = {outcome.kind for outcome in outcomes}
    hit = {outcome.kind for outcome in outcomes if not outcome.missed}
    return all(outcome.exact for outcome in outcomes) and kinds == hit


def to_json(outcomes: Sequence[Outcome], seed: int) -> str:
    """Return all runs as JSON text."""
    fields: dict[str, Any] = {
        "kind": "penstock-faults",
        "schema": 1,
        "seed": seed,
        "passed": has_passed(outcomes),
        "totals": count_totals(outcomes),
        "machine": asdict(describe_machine()),
        "versions": package_versions(),
        "commit": asdict(commit) if (commit := commit_of()) else None,
        "runs": [{**asdict(one), "exact": one.exact, "verdict": one.verdict()} for one in outcomes],
    }
    return jsonlib.dumps(fields, indent=2, ensure_ascii=False) + "\n"


ABOUT_MUTATIONS = (
    "Damage, remove, exchange and roll back files that runs leave on the disk, and run the programs on.\n\n"
    "Programs are run with a checkpoint, in process and on embedded Spark, and their folders are copied at "
    "every moment at which a crash would do most harm. Each case mutates one of these copies and runs the "
    "program to its end: it must be refused with an error that names the file, or give the same rows and "
    "counts. The code is 1 if any case does otherwise.\n\n"
    "\b\nExamples:\n"
    "  python -m bench mutations --quick\n"
    "  python -m bench mutations --seed 7\n"
    "  python -m bench mutations --runs 300 --spark-runs 0"
)


def run_mutations(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the cases.")] = False,
    runs: Annotated[int | None, typer.Option(help="Cases in process [220].", min=0, metavar="N")] = None,
    spark_runs: Annotated[
        int | None, typer.Option(help="Cases on embedded Spark [80].", min=0, metavar="N")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The seed of all choices [another one every time].", metavar="N")
    ] = None,
) -> None:
    """Run the campaign of mutations."""
    from bench.faults import mutations

    logging.getLogger("penstock").setLevel(logging.CRITICAL)  # refusals are what is looked for
    seed = random.randrange(1 << 30) if seed is None else seed  # noqa: S311  # no secret hangs on it
    n_local = (22 if quick else 220) if runs is None else runs
    n_spark = (8 if quick else 80) if spark_runs is None else spark_runs
    screen.say(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="penstock-mutations-") as name:
        options: dict[str, Any] = {"folder": Path(name), "seed": seed, "tell": screen.say}
        cases = mutations.mutate_on("local", "local", mutations.IN_PROCESS, n_local, **options)
        if n_spark:
            from penstock.engines.spark.session.session import open_session

            session = open_session(ps.SparkOptions())  # which all cases share
            cases += mutations.mutate_on("spark", "spark", list(mutations.PROGRAMS), n_spark, **options)
            del session
    screen.say(mutations.summarize(cases))
    if any(case.verdict not in mutations.GOOD for case in cases):
        raise typer.Exit(1)


ABOUT_DISKS = (
    "Fill a disk, or make it read-only, in the middle of a run; then give it space again, and run on.\n\n"
    "Programs run in process, or on embedded Spark, on small disks, which are mounted for it: that takes "
    "root, mkfs.ext4 and loop devices. The code is 1 if a row or a count differs in the end, or a failure is "
    "not ours.\n\n"
    "\b\nExamples:\n"
    "  python -m bench disks --runs 20 --seed 7\n"
    "  python -m bench disks --runs 0 --spark-runs 3"
)


def run_disks(
    *,
    runs: Annotated[int, typer.Option(help="Disks that are filled, and as many read-only.", min=0)] = 20,
    spark_runs: Annotated[int, typer.Option(help="The same on embedded Spark.", min=0, metavar="N")] = 0,
    seed: Annotated[int, typer.Option(help="The seed of all choices.", metavar="N")] = 1,
) -> None:
    """Run the campaign of disks."""
    from bench.faults.disks import strike_disks

    logging.getLogger("penstock").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="penstock-disks-") as name:
        cases = strike_disks("local", "local", runs, folder=Path(name), seed=seed, tell=screen.say)
        if spark_runs:
            from penstock.engines.spark.session.session import open_session

            session, place = open_session(ps.SparkOptions()), Path(name) / "spark"  # which all cases share
            place.mkdir()
            cases += strike_disks("spark", "spark", spark_runs, folder=place, seed=seed, tell=screen.say)
            del session
    wrong = [case for case in cases if case.problem]
    struck = sum(case.point != "not struck" for case in cases)
    screen.say(
        f"disks {len(cases)}, struck {struck}, failed runs {sum(bool(case.failure) for case in cases)}, "
        f"with problems {len(wrong)}"
    )
    if wrong:
        raise typer.Exit(1)
