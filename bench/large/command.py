"""`python -m bench large`: a line for every run over a large input, and whether it kept its limits."""

from __future__ import annotations

import json as jsonlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.large.inputs import ROW_BYTES, Shape, Totals, write_input
from bench.machine import commit_of, describe_machine, package_versions
from bench.workload import BenchError
from penstock.cli import screen
from penstock.errors import nearest_first

if TYPE_CHECKING:
    from bench.large.child import Report

ABOUT = (
    "Run programs over a hundred million rows on Spark, with a driver of 1 GB, and watch its memory.\n\n"
    "The same rows are read from one file, from 20 and from 5,000, and as a stream of Spark: a filter and "
    "more columns, sliding windows per key, a function with a state per key, and one with more than ten "
    "million keys, stopped and resumed half-way; all write parquet. The output is added up and compared with "
    "NumPy's totals. The code is 1 if a total differs, a run fails, or the memory of the driver's Python "
    "grows by more than 100 MB.\n\n"
    "\b\nExamples:\n"
    "  python -m bench large --quick\n"
    "  python -m bench large --only windows --only '5000 files'\n"
    "  python -m bench large --folder cache --cluster --json large.json"
)
ROWS, QUICK_ROWS = 100_000_000, 2_000_000
SOME_FILES, MANY_FILES, QUICK_MANY_FILES = 20, 5_000, 500
WARM_UP_ROWS = 200_000
GROWTH_LIMIT = 100_000_000
CONF = {"spark.driver.memory": "1g", "spark.executor.memory": "1g", "spark.executor.cores": "1"}
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Case:
    """A program over a layout of the input."""

    program: str
    n_files: int
    stream: bool = False
    restart: bool = False

    @property
    def name(self) -> str:
        """Return the name of the case, such as `windows, 20 files`."""
        files = f"{self.n_files} file{'s' * (self.n_files > 1)}"
        return f"{self.program}, {files}{', as a stream' * self.stream}{', resumed' * self.restart}"


@dataclass(frozen=True, slots=True)
class Measurement:
    """What became of a case: the report of its process, and what is wrong with it."""

    case: Case
    n_rows: int
    report: Report | None = None
    problems: list[str] = field(default_factory=list)


def run_large(
    *,
    quick: Annotated[bool, typer.Option("--quick", help=f"{QUICK_ROWS:,} rows.")] = False,
    rows: Annotated[
        int | None, typer.Option(help=f"Rows of the input [{ROWS:,}].", min=10_000, metavar="N")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only cases with this in their name; may be repeated.", metavar="NAME"),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the input here for the next time.", metavar="FOLDER")
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="On a master and two workers instead of local[2].")
    ] = False,
    seed: Annotated[int, typer.Option(help="The seed of the data.", metavar="N")] = 1,
    limit: Annotated[float, typer.Option(help="Seconds within which a case must end.", metavar="S")] = 3600.0,
    json: Annotated[
        Path | None, typer.Option(help="Write all figures here; - for standard output.", metavar="FILE")
    ] = None,
) -> None:
    """Run the cases one after the other, each in a process of its own."""
    many = QUICK_MANY_FILES if quick else MANY_FILES
    # Why a multiple: all files of a layout have equally many rows.
    n_rows = max((rows or (QUICK_ROWS if quick else ROWS)) // many, 1) * many
    cases = select_cases(build_cases(many), only or [])
    tell = screen.note if json == Path("-") else screen.say
    with _work_folder(folder) as work:
        tell(check_space(work, n_rows, len({case.n_files for case in cases}) if folder else 1))
        with _open_cluster(work / "cluster") if cluster else nullcontext("local[2,4]") as master:
            run = LargeRun(work, n_rows, many, seed, master, limit)
            measurements = run.measure(cases, tell, keep=folder is not None)
    if json is not None:
        text = to_json(measurements, seed)
        if json == Path("-"):
            sys.stdout.write(text)
        else:
            json.write_text(text, encoding="utf-8")
    n_wrong = sum(bool(one.problems) for one in measurements)
    tell(f"cases {len(measurements)}, wrong {n_wrong}")
    if n_wrong:
        raise typer.Exit(1)


def build_cases(many: int) -> list[Case]:
    """Return all cases, layout by layout, so that one input at a time is needed."""
    cases = [Case(program, n) for n in (1, SOME_FILES, many) for program in ("stateless", "windows", "keyed")]
    more = [Case(program, SOME_FILES, stream=True) for program in ("stateless", "windows", "keyed")]
    place = [case.n_files for case in cases].index(many)
    return [*cases[:place], Case("many keys", SOME_FILES, restart=True), *more, *cases[place:]]


def select_cases(cases: Sequence[Case], only: Sequence[str]) -> list[Case]:
    """Return the cases whose name has one of the texts in it; raise BenchError for a text that none has."""
    for text in only:
        if not any(text in case.name for case in cases):
            names = nearest_first(text, [case.name for case in cases])
            raise BenchError(
                f'no case has "{text}" in its name',
                detail=f"the cases: {'; '.join(names)}",
                hint=f'did you mean "{names[0]}"?',
            )
    return [case for case in cases if not only or any(text in case.name for text in only)]


def check_space(folder: Path, n_rows: int, n_layouts: int) -> str:
    """Return how much room is needed and there; raise BenchError if it is not enough."""
    # An output takes at most as much as its input.
    needed, free = (n_layouts + 1) * n_rows * ROW_BYTES, shutil.disk_usage(folder).free
    text = f"{n_rows:,} rows need about {needed / 1e9:.1f} GB of disk; {free / 1e9:.1f} GB are free"
    if needed > free:
        raise BenchError(
            text, detail=str(folder), hint="use fewer rows, --rows 10_000_000, or another disk, --folder"
        )
    return text


@contextmanager
def _work_folder(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="penstock-large-") as work:
        yield Path(work)


@contextmanager
def _open_cluster(folder: Path) -> Iterator[str]:
    from tests.support.spark_cluster import start_cluster  # it loads pyspark

    shutil.rmtree(folder, ignore_errors=True)
    with start_cluster(folder, worker_memory="1200m") as cluster:
        yield cluster.address


@dataclass(frozen=True, slots=True)
class LargeRun:
    """All cases over one set of rows, in one folder, at one master."""

    work: Path
    n_rows: int
    n_blocks: int
    seed: int
    master: str
    limit_s: float

    def measure(self, cases: Sequence[Case], tell: Callable[[str], None], *, keep: bool) -> list[Measurement]:
        """Write each layout when its first case needs it, run its cases, and remove it unless it is kept."""
        measurements: list[Measurement] = []
        # Why so many: an engine may load libraries only where rows are many, and that is no growth.
        warm_up = Shape(WARM_UP_ROWS, SOME_FILES, SOME_FILES, self.seed)
        write_input(warm_up, self.work / "warm-up")
        for n_files in dict.fromkeys(case.n_files for case in cases):
            layout = self.work / f"input-{n_files}"
            totals = write_input(Shape(self.n_rows, n_files, self.n_blocks, self.seed), layout)
            nbytes = sum(file.stat().st_size for file in layout.iterdir())
            tell(f"{self.n_rows:,} rows, {nbytes / 1e9:.2f} GB, in {n_files:,} parquet files")
            for case in (case for case in cases if case.n_files == n_files):
                measurements.append(self._measure_case(case, layout, totals))
                tell(format_measurement(measurements[-1]))
            if not keep:
                shutil.rmtree(layout)
        return measurements

    def _measure_case(self, case: Case, layout: Path, totals: Totals) -> Measurement:
        """Run a case in a process of its own, and check what it wrote."""
        from bench.large.child import Order, Report
        from bench.large.programs import expected_sums, explain_sums, sum_output

        output = self.work / "output"
        shutil.rmtree(output, ignore_errors=True)
        order = Order(
            case.program,
            str(layout),
            str(self.work / "warm-up"),
            str(output),
            self.master,
            CONF,
            files_per_trigger=1 if case.stream else None,
            until=case.n_files // 2 if case.restart else None,
        )
        measurement = Measurement(case, self.n_rows)
        fields, problem = run_child(["bench.large.child", order.to_json()], self.limit_s)
        if problem is not None:
            measurement.problems.append(problem)
        else:
            report = Report(**fields)
            expected = expected_sums(case.program, totals)
            wrong = explain_sums(expected, sum_output(case.program, output / "large" / "rows"))
            measurement = Measurement(case, self.n_rows, report, find_problems(report, wrong))
        shutil.rmtree(output, ignore_errors=True)
        return measurement


def run_child(command: Sequence[str], limit_s: float) -> tuple[dict[str, Any], str | None]:
    """Run a module in a process of its own; return the JSON of its last line, and what went wrong."""
    with subprocess.Popen(  # noqa: S603  # our own module
        [sys.executable, "-m", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            out, err = "", f"did not end within {limit_s:,.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its JVM and Python workers too
    try:
        fields = jsonlib.loads(out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        lines = [line for line in err.splitlines() if line.strip()]
        fields = {"failed": lines[-1] if lines else "its process was killed"}
    return fields, f"failed: {fields['failed']}" if "failed" in fields else None


def find_problems(report: Report, wrong: str | None) -> list[str]:
    """Return what is wrong with a run: its answer, or the memory of its driver."""
    problems = [f"WRONG: {wrong}"] if wrong else []
    if report.growth_bytes > GROWTH_LIMIT:
        problems.append(f"the driver grew by more than {GROWTH_LIMIT / 1e6:.0f} MB")
    return problems


def format_measurement(one: Measurement) -> str:
    """Return a line about a case."""
    if one.report is None:
        return f"  {one.case.name:<36}{'; '.join(one.problems)}"
    report = one.report
    received = ", ".join(f"{name} {value:,.0f}" for name, value in report.received.items()) or "not told"
    return (
        f"  {one.case.name:<36}{one.n_rows / report.seconds:>12,.0f} rows/s {report.seconds:>8.1f} s  "
        f"driver +{report.growth_bytes / 1e6:,.0f} MB on {report.before_bytes / 1e6:,.0f} MB, "
        f"a worker {report.worker_bytes / 1e6:,.0f} MB, heap {report.heap_bytes / 1e6:,.0f} MB  "
        f"micro-batches {report.micro_batches:,} of {report.rounds:,} rounds, driver received: {received}  "
        f"{'; '.join(one.problems) or 'exact'}"
    )


def to_json(measurements: Sequence[Measurement], seed: int) -> str:
    """Return all figures as JSON text."""
    fields: dict[str, Any] = {
        "kind": "penstock-large",
        "schema": 1,
        "seed": seed,
        "machine": asdict(describe_machine()),
        "versions": package_versions(),
        "commit": asdict(commit) if (commit := commit_of()) else None,
        "cases": [{"name": one.case.name, **asdict(one)} for one in measurements],
    }
    return jsonlib.dumps(fields, indent=2, ensure_ascii=False) + "\n"
