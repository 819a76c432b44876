"""Mutations of what a run leaves on the disk: each must be refused by name, or make no difference.

A program is run with a checkpoint, and its folder is copied at every moment at which a crash would do most
harm. For a case, one of these moments is put back, one of its files is damaged, removed, exchanged with
another or replaced by an older copy, and the program is run to its end. Files that hold rows are left alone:
they are the answer, and say nothing of what is to be read, written or skipped. So is the log of a Delta
table but for versions that are missing, because it has no checksums of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

import penstock as ps
from bench.faults.rows import Rows, compare_sinks, read_rows
from penstock import crash_points
from penstock.connect.writers.staged_files import METADATA

N_FILES, ROWS_PER_FILE = 9, 8
MAX_MOMENTS = 40
SCHEMA = {"t": "int64", "k": "int64", "v": "int64"}
Verdict = Literal["refused", "same", "WRONG", "RAW", "UNNAMED"]
"""RAW: an exception that is none of ours. UNNAMED: a refusal without a file or without a good hint."""
GOOD = ("refused", "same")
Tell = Callable[[str], None]
ACTIONS = ("flip a bit", "change a byte", "cut", "empty", "delete", "swap", "roll back", "roll back all")


@dataclass(frozen=True, slots=True)
class SmallProgram:
    """A program that runs in a moment.

    build    makes its graph of a folder, with the input in `in` and a folder per sink
    sinks    the folder of each sink -> the format of its files
    arrives  another file comes between the crash and the restart, which is older than all others
    """

    name: str
    build: Callable[[Path], ps.PipeGraph]
    sinks: dict[str, str]
    arrives: bool = False


@dataclass(slots=True)
class Case:
    """One mutation, and what became of it."""

    number: int
    engine: str
    program: str
    moment: str
    action: str
    files: list[str] = field(default_factory=list)
    verdict: Verdict = "same"
    text: str = ""

    def __str__(self) -> str:
        files = ", ".join(self.files)
        return (
            f"{self.number:>4} {self.engine:<9}{self.program:<9}{self.action:<14}{files:<60} {self.verdict}"
        )


def count_files(folder: Path) -> ps.PipeGraph:
    """Copy the rows of files, and count them in windows that close while files are read."""
    graph = ps.PipeGraph("files")
    reader = ps.read.jsonl(folder / "in", schema=SCHEMA)
    rows = graph.source(reader, time="t", time_unit="s", delay="4 s", name="rows")
    rows.sink(ps.write.jsonl(folder / "copy"), name="copy")
    windows = rows.key_by("k").window(ps.sliding("12 s", every="6 s"), name="windows")
    sums = windows.aggregate(n=ps.count(), s=ps.sum("v"))
    sums.sink(ps.write.parquet(folder / "sums", partition_by="k"), name="sums")
    sums.late.sink(ps.write.csv(folder / "late"), name="late")
    return graph


def count_arrivals(folder: Path) -> ps.PipeGraph:
    """Copy the rows of files, and sum them by key when all have been read, in whatever order they came."""
    graph = ps.PipeGraph("arrivals")
    reader = ps.read.jsonl(folder / "in", schema=SCHEMA)
    rows = graph.source(reader, time="t", time_unit="s", delay="1 h", name="rows")
    rows.sink(ps.write.jsonl(folder / "copy"), name="copy")
    sums = rows.key_by("k").window(ps.tumbling("30 s"), name="windows").aggregate(s=ps.sum("v"))
    sums.sink(ps.write.jsonl(folder / "sums"), name="sums")
    return graph


def fill_table(folder: Path) -> ps.PipeGraph:
    """Write the rows of a program, and what they add up to, to a Delta table and to files."""
    graph = ps.PipeGraph("table")
    batches = [list(draw_rows(number)) for number in range(N_FILES)]
    rows = graph.source(
        ps.read.batches(batches, schema=SCHEMA), time="t", time_unit="s", delay="4 s", name="rows"
    )
    rows.sink(ps.write.delta(folder / "copy"), name="copy")
    total = rows.key_by("k").accumulate(lambda row, n: n + row.v, 0, schema={"value": int}, name="so far")
    total.sink(ps.write.jsonl(folder / "totals"), name="totals")
    return graph


def follow_stream(folder: Path) -> ps.PipeGraph:
    """Copy a stream of Spark's, and count it in windows."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    stream = spark.readStream.schema("t long, k long, v long").option("maxFilesPerTrigger", 2)
    graph = ps.PipeGraph("stream")
    reader = ps.read.spark(stream.json(str(folder / "in")), follow=False)
    rows = graph.source(reader, time="t", time_unit="s", delay="4 s", name="rows")
    rows.sink(ps.write.jsonl(folder / "copy"), name="copy")
    counts = rows.key_by("k").window(ps.tumbling("12 s"), name="windows").aggregate(n=ps.count())
    counts.sink(ps.write.jsonl(folder / "counts"), name="counts")
    return graph


PROGRAMS = {
    program.name: program
    for program in (
        SmallProgram("files", count_files, {"copy": "jsonl", "sums": "parquet", "late": "csv"}),
        SmallProgram("arrivals", count_arrivals, {"copy": "jsonl", "sums": "jsonl"}, arrives=True),
        SmallProgram("table", fill_table, {"copy": "delta", "totals": "jsonl"}),
        SmallProgram("stream", follow_stream, {"copy": "jsonl", "counts": "jsonl"}),
    )
}
IN_PROCESS = ("files", "arrivals", "table")
"""The programs that need no Spark."""


def draw_rows(number: int) -> Iterator[dict[str, int]]:
    """Yield the rows of a file: mostly in the order of time, and one far too late."""
    for row in range(ROWS_PER_FILE):
        t = number * ROWS_PER_FILE + row
        yield {"t": t - 40 if row == 5 and number % 3 == 2 else t, "k": (number + row) % 3, "v": number * row}


def put_file(folder: Path, name: str, number: int, at: int) -> None:
    """Write a file of input, with a time of modification."""
    (folder / "in").mkdir(parents=True, exist_ok=True)
    file = folder / "in" / f"{name}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in draw_rows(number)), "utf-8")
    os.utime(file, (at, at))


class Life:
    """A program that is run once on an engine, with copies of what its folder was at many moments.

    engine  its name, or an engine to run it on
    """

    def __init__(self, engine: Any, program: SmallProgram, folder: Path, random: Random) -> None:
        self.engine, self.program, self.folder, self._random = engine, program, folder / "life", random
        self._copies = folder / "copies"
        self.moments: list[tuple[str, Path]] = []
        shutil.rmtree(folder, ignore_errors=True)
        self.put_files()
        with self._listen():
            for until in (3, 2, None):
                self._keep("stopped")
                last = self._run(until=until, drain=until is None)
        self._keep("ended")
        self.answers = [(self._read(), last.accounts)]
        if program.arrives:
            self._arrive()
            shutil.rmtree(self.folder / "checkpoint")
            for sink in program.sinks:
                shutil.rmtree(self.folder / sink)
            last = self._run(drain=True)
            # Why both: a run that was about to close its windows ends without what arrives after that.
            self.answers.append((self._read(), last.accounts))
        thin = random.sample(self.moments, min(MAX_MOMENTS, len(self.moments)))
        self.moments = sorted(thin, key=lambda moment: int(moment[1].name))

    def put_files(self) -> None:
        """Write the input."""
        for number in range(N_FILES):
            put_file(self.folder, f"{number:03d}", number, 1_700_000_000 + number)

    def _arrive(self) -> None:
        put_file(self.folder, "arrived", N_FILES + 1, 1_600_000_000)

    @contextmanager
    def _listen(self) -> Iterator[None]:
        before, crash_points.listener = crash_points.listener, self._keep
        try:
            yield
        finally:
            crash_points.listener = before

    def _keep(self, moment: str) -> None:
        """Copy the folder; Spark may remove files of its own meanwhile."""
        if not (self.folder / "checkpoint" / "penstock.json").exists():
            return
        copy = self._copies / str(len(self.moments))
        for _ in range(5):
            shutil.rmtree(copy, ignore_errors=True)
            try:
                shutil.copytree(self.folder, copy)
            except shutil.Error:
                continue
            self.moments.append((moment, copy))
            return

    def _run(self, **options: Any) -> Any:
        if self.engine == "local":
            seed = self._random.randrange(1 << 30)
            options["options"] = ps.LocalOptions(save_every="0 s", queue_size=2, seed=seed)
        elif self.engine == "spark":
            options["options"] = ps.SparkOptions(max_files_per_batch=2)
        graph = self.program.build(self.folder)
        return graph.run(self.engine, checkpoint=str(self.folder / "checkpoint"), **options)

    def _read(self) -> dict[str, Rows]:
        rows = {}
        for sink, kind in self.program.sinks.items():
            if kind == "delta":
                from deltalake import DeltaTable

                table = DeltaTable(self.folder / sink).to_pyarrow_table()
                rows[sink] = Rows(json.dumps(row, sort_keys=True) for row in table.to_pylist())
            else:
                rows[sink] = read_rows(self.folder / sink, kind)
        return rows

    def judge(self, case: Case) -> Case:
        """Put a moment back, mutate it, run the program to its end, and judge what comes of it."""
        number = self._random.randrange(len(self.moments))
        case.moment, copy = self.moments[number]
        shutil.rmtree(self.folder)
        shutil.copytree(copy, self.folder)
        if self.program.arrives:
            self._arrive()
        self.mutate(case)
        try:
            result = self._run(drain=True)
            rows = self._read()
            if not any((rows, result.accounts) == answer for answer in self.answers):
                wanted, accounts = self.answers[-1]
                problems = [f"{sink}: {how}" for sink, how in compare_sinks(wanted, rows).items()]
                differ = [] if result.accounts == accounts else ["the accounts differ"]
                case.verdict, case.text = "WRONG", "; ".join([*problems, *differ])
        except ps.PenstockError as refusal:
            case.text = str(refusal)
            named = re.search(re.escape(f"{self.folder}/") + r"\S+/\S+", case.text)
            bad_hint = "overwrite" in str(refusal.hint)
            case.verdict = "refused" if named and refusal.hint and not bad_hint else "UNNAMED"
        except Exception:
            case.verdict, case.text = "RAW", traceback.format_exc()
        return case

    def mutate(self, case: Case) -> None:
        """Do to a file, or to all files of a kind, what the case says."""
        files, random = self.control_files(), self._random
        file = random.choice(files)
        if case.action == "roll back all":
            self._roll_back_all(case)
            return
        case.files = [str(file.relative_to(self.folder))]
        data = file.read_bytes()
        place = random.randrange(len(data)) if data else 0
        if case.action == "delete" or "_delta_log" in file.parts:
            case.action = "delete"
            file.unlink()
        elif case.action == "flip a bit" and data:
            changed = bytes([data[place] ^ (1 << random.randrange(8))])
            file.write_bytes(data[:place] + changed + data[place + 1 :])
        elif case.action == "change a byte" and data:
            changed = bytes([(data[place] + random.randrange(1, 256)) % 256])
            file.write_bytes(data[:place] + changed + data[place + 1 :])
        elif case.action == "cut":
            file.write_bytes(data[:place])
        elif case.action == "empty":
            file.write_bytes(b"")
        elif case.action == "swap":
            other = random.choice([other for other in files if other != file])
            case.files.append(str(other.relative_to(self.folder)))
            file.write_bytes(other.read_bytes())
            other.write_bytes(data)
        else:
            self._roll_back(case, file)

    def _roll_back(self, case: Case, file: Path) -> None:
        """Replace a file by an older copy that differs, if there is one."""
        name = file.relative_to(self.folder)
        for _, copy in self._random.sample(self.moments, len(self.moments)):
            older = copy / name
            is_older = int(copy.name) < self._moment_of(case)
            if is_older and older.exists() and older.read_bytes() != file.read_bytes():
                file.write_bytes(older.read_bytes())
                return
        case.action = "delete"
        file.unlink()

    def _roll_back_all(self, case: Case) -> None:
        """Replace the checkpoint, or the output of a sink, by an older copy."""
        part = self._random.choice(
            ["checkpoint", "checkpoint/files", "checkpoint/commits", *self.program.sinks]
        )
        case.files = [part]
        older = [copy for _, copy in self.moments if int(copy.name) < self._moment_of(case)]
        shutil.rmtree(self.folder / part, ignore_errors=True)
        if older and (copy := self._random.choice(older) / part).exists():
            shutil.copytree(copy, self.folder / part)

    def _moment_of(self, case: Case) -> int:
        return next(int(copy.name) for moment, copy in self.moments if moment is case.moment)

    def control_files(self) -> list[Path]:
        """Return all files of checkpoint and output that hold no rows, a few of each kind."""
        by_kind: dict[str, list[Path]] = {}
        for file in sorted(self.folder.rglob("*")):
            name = file.relative_to(self.folder)
            if not file.is_file() or name.parts[0] == "in" or file.name in ("lock", "copy.lock"):
                continue
            is_control = name.parts[0] == "checkpoint" or METADATA in name.parts or "_delta_log" in name.parts
            if is_control and "staged" not in name.parts and not file.name.startswith("."):
                kind = re.sub(r"[0-9a-f]{6,}|\d+", "#", str(name))
                by_kind.setdefault(kind, []).append(file)
        # Why: otherwise nearly all would be files of state.
        return [file for files in by_kind.values() for file in self._random.sample(files, min(3, len(files)))]


def mutate_on(
    engine: Any, name: str, programs: Sequence[str], count: int, *, folder: Path, seed: int, tell: Tell
) -> list[Case]:
    """Run a number of cases on an engine, spread over programs and actions.

    engine  its name, or an engine, which is called `name` here
    """
    cases, lives = [], dict[str, Life]()
    for number in range(count):
        program = programs[number % len(programs)]
        if program not in lives:
            tell(f"running {program} on {name}")
            random = Random(f"{seed} {name} {program}")  # noqa: S311  # no secret hangs on it
            lives[program] = Life(engine, PROGRAMS[program], folder / name / program, random)
        case = Case(number, name, program, "", ACTIONS[number // len(programs) % len(ACTIONS)])
        cases.append(lives[program].judge(case))
        tell(str(case))
        if case.verdict not in GOOD:
            tell(f"     at {case.moment!r}: {case.text}")
    return cases


def summarize(cases: Sequence[Case]) -> str:
    """Return how many cases there were of each verdict."""
    verdicts: dict[str, int] = dict.fromkeys((*GOOD, "WRONG", "RAW", "UNNAMED"), 0)
    for case in cases:
        verdicts[case.verdict] += 1
    return f"mutations {len(cases)}, " + ", ".join(f"{name} {n}" for name, n in verdicts.items())
