"""`python -m bench inputs`: changes of input files between two runs, each refused by name or without a trace.

A program copies rows with a checkpoint, and is stopped or dies. Then something happens to its input: rows are
put behind others; a file is rewritten, cut, rotated, copied and cut, touched, renamed, removed, replaced by
one of the same size; its rows are reordered; another file comes. The program is run on. What only grew
or moved must be read on, and every row must be there once; what changed is refused by an error that names
the file. Then the file is brought back, and the same checkpoint must give every row once.
"""

from __future__ import annotations

import json as jsonlib
import logging
import os
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import typer

import penstock as ps
from bench.machine import commit_of, describe_machine, package_versions
from penstock import crash_points
from penstock.cli import screen

ABOUT = (
    "Change input files between runs of a checkpoint; every row must be there once, or the file named.\n\n"
    "The code is 1 if an answer differs, a change is taken that must be refused or refused that must not be, "
    "or an error does not name the file.\n\n"
    "\b\nExamples:\n"
    "  python -m bench inputs\n"
    "  python -m bench inputs --changes 300 --seed 7\n"
    "  python -m bench inputs --engine spark --changes 10 --json inputs.json"
)
READ_ON = ("append", "rotate", "copy and cut", "touch", "rename", "add a file", "move to another machine")
REFUSED = ("rewrite", "truncate", "replace with the same size", "reorder")
EITHER = ("delete",)
"""A file whose rows have all been read may be removed; another must be named."""
POINTS = (None, crash_points.READ, crash_points.COMMITTED, crash_points.CLEANED, crash_points.JOURNALED)
Verdict = Literal["refused", "same", "WRONG", "TAKEN", "REFUSED", "UNNAMED", "RAW"]
GOOD = ("refused", "same")


class Died(Exception):
    """The run ends here."""


@dataclass(slots=True)
class Change:
    """One change, and what became of it."""

    number: int
    engine: str
    format: str
    place: str
    cut: str
    moment: str
    action: str
    verdict: Verdict = "same"
    text: str = ""

    def __str__(self) -> str:
        place = f"{self.format} {self.place} by {self.cut}, {self.moment}"
        return f"{self.number:>4} {self.engine:<6}{place:<52}{self.action:<28}{self.verdict}"


class Trial:
    """A program with its input, and the rows that must be in its output."""

    def __init__(self, change: Change, folder: Path, random: Random) -> None:
        self.change, self.folder, self._random = change, folder, random
        self.input, self._next, self.expected = folder / "in", 0, Counter[int]()
        self.rows: dict[Path, list[int]] = {}
        self.input.mkdir(parents=True)
        names = ["app.log"] if change.place == "file" else ["app.log", "b.log", "c.log"]
        for at, name in enumerate(names):
            self.put(self.input / name, self.draw(random.randrange(4, 12)))
            os.utime(self.input / name, (1_700_000_000 + at, 1_700_000_000 + at))

    def draw(self, n_rows: int) -> list[int]:
        """Return the numbers of new rows."""
        self._next += n_rows
        return list(range(self._next - n_rows, self._next))

    def put(self, file: Path, rows: list[int], *, count: bool = True) -> None:
        """Write a file; the numbers have three digits, so that files of as many rows have one size."""
        if self.change.format == "parquet":
            pq.write_table(pa.table({"v": [f"{row:03d}" for row in rows]}), file)
        else:
            file.write_text(self._header() + self._encode(rows))
        if count:
            self.rows[file] = rows
            self.expected.update(rows)

    def _header(self) -> str:
        return "v\n" if self.change.format == "csv" else ""

    def _encode(self, rows: list[int]) -> str:
        form = '{{"v": "{:03d}"}}\n' if self.change.format == "jsonl" else "{:03d}\n"
        return "".join(form.format(row) for row in rows)

    def run(self, **options: Any) -> None:
        """Run the program on its checkpoint."""
        change = self.change
        path = {"file": self.input / "app.log", "folder": self.input, "glob": self.input / "*.log*"}
        reading: dict[str, Any] = {} if change.format == "text" else {"schema": {"v": str}}
        if change.cut == "rows":
            reading["batch"] = 3
        graph = ps.PipeGraph("inputs")
        reader = getattr(ps.read, change.format)(str(path[change.place]), **reading)
        graph.source(reader, name="rows").sink(ps.write.jsonl(self.folder / "out"), name="out")
        if change.engine == "local":
            options["options"] = ps.LocalOptions(save_every="0 s")
        graph.run(change.engine, checkpoint=str(self.folder / "checkpoint"), drain=False, **options)

    def read_output(self) -> Counter[int]:
        """Return the rows of the output, and how often each is there."""
        files = (self.folder / "out").glob("*.jsonl")
        lines = [line for file in files for line in file.read_text().splitlines()]
        return Counter(int(next(iter(jsonlib.loads(line).values()))) for line in lines)

    def act(self) -> Callable[[], None]:
        """Change the input; return what brings it back."""
        file = self._random.choice(list(self.rows))
        before, times = file.read_bytes(), (file.stat().st_atime_ns, file.stat().st_mtime_ns)

        def bring_back() -> None:
            file.write_bytes(before)
            os.utime(file, ns=times)

        _ACTIONS[self.change.action](self, file)
        return bring_back

    def append(self, file: Path) -> None:
        """Put rows behind those of a file."""
        rows = self.draw(3)
        with file.open("a") as opened:
            opened.write(self._encode(rows))
        self.expected.update(rows)

    def rotate(self, file: Path) -> None:
        """Rename a log that has grown, and begin another."""
        self.append(file)
        file.rename(file.with_name(f"{file.name}.1"))
        self.put(file, self.draw(2))

    def copy_and_cut(self, file: Path) -> None:
        """Copy a log that has grown, and cut it."""
        self.append(file)
        shutil.copy(file, file.with_name(f"{file.name}.1"))
        with file.open("r+") as opened:
            opened.truncate(0)
            rows = self.draw(2)
            opened.write(self._header() + self._encode(rows))
        self.expected.update(rows)

    def rename(self, file: Path) -> None:
        """Give a file another name, beside it."""
        file.rename(file.with_name(f"{file.name}.moved"))

    def add(self, file: Path) -> None:
        """Put another file beside a file, older than all others."""
        other = file.with_name("added.log")
        self.put(other, self.draw(4))
        os.utime(other, (1_600_000_000, 1_600_000_000))

    def move_all(self, file: Path) -> None:
        """Copy all files, so that their inodes and times differ."""
        copies = self.folder / "copies"
        shutil.copytree(self.input, copies, copy_function=shutil.copy)
        shutil.rmtree(self.input)
        copies.rename(self.input)

    def rewrite(self, file: Path) -> None:
        """Put other rows into a file, more than it had."""
        self.put(file, self.draw(len(self.rows[file]) + 2), count=False)

    def truncate(self, file: Path) -> None:
        """Leave only the first rows of a file."""
        self.put(file, self.rows[file][:2], count=False)

    def replace(self, file: Path) -> None:
        """Put as many other rows into a file, and give it its time back."""
        times = file.stat().st_atime_ns, file.stat().st_mtime_ns
        self.put(file, self.draw(len(self.rows[file])), count=False)
        os.utime(file, ns=times)

    def reorder(self, file: Path) -> None:
        """Reverse the rows of a file."""
        self.put(file, self.rows[file][::-1], count=False)


_ACTIONS: dict[str, Callable[[Trial, Path], None]] = {
    "append": Trial.append,
    "rotate": Trial.rotate,
    "copy and cut": Trial.copy_and_cut,
    "touch": lambda trial, file: os.utime(file),
    "rename": Trial.rename,
    "add a file": Trial.add,
    "move to another machine": Trial.move_all,
    "rewrite": Trial.rewrite,
    "truncate": Trial.truncate,
    "replace with the same size": Trial.replace,
    "reorder": Trial.reorder,
    "delete": lambda trial, file: file.unlink(),
}


def draw_change(number: int, engine: str, random: Random) -> Change:
    """Return a change that makes sense: parquet files do not grow, and a single file keeps its name."""
    format, place = (
        random.choice(["jsonl", "csv", "text", "parquet"]),
        random.choice(["file", "folder", "glob"]),
    )
    actions = [*READ_ON, *REFUSED, *EITHER]
    if format == "parquet":
        actions = [name for name in actions if name not in ("append", "rotate", "copy and cut")]
    if place == "file":
        actions = [name for name in actions if name not in ("rename", "add a file", "delete")]
    moment = random.choice(POINTS)
    at = "stopped" if moment is None else moment
    return Change(number, engine, format, place, random.choice(["files", "rows"]), at, random.choice(actions))


def judge(change: Change, folder: Path, random: Random) -> Change:
    """Run the program, change its input, run it again, and judge what comes of it."""
    trial = Trial(change, folder, random)
    with _die_at(change.moment, random.randrange(1, 3)), suppress(Died, ps.PenstockError):
        trial.run(until=random.randrange(1, 4))
    journal = folder / "checkpoint" / "files" / "rows.jsonl"
    if not journal.exists() or str(trial.input) not in journal.read_text():
        trial.run(until=1)  # it died before it had seen a file
    bring_back = trial.act()
    try:
        trial.run()
    except ps.PenstockError as refusal:
        change.text = str(refusal)
        if change.action in READ_ON:
            change.verdict = "REFUSED"
            return change
        if not refusal.hint or str(trial.input) not in change.text:
            change.verdict = "UNNAMED"
            return change
        bring_back()
        return _finish(change, trial, "refused")
    except Exception:
        change.verdict, change.text = "RAW", traceback.format_exc()
        return change
    if change.action in REFUSED:
        change.verdict = "TAKEN"
        return change
    return _finish(change, trial, "same")


def _finish(change: Change, trial: Trial, verdict: Verdict) -> Change:
    """Run the program once more, which must find nothing new, and compare every row."""
    try:
        trial.run()
        trial.run()
    except Exception:
        change.verdict, change.text = "RAW", traceback.format_exc()
        return change
    written = trial.read_output()
    lost, doubled = trial.expected - written, written - trial.expected
    change.verdict = "WRONG" if lost or doubled else verdict
    if lost or doubled:
        change.text = f"lost {sorted(lost.elements())}, too many {sorted(doubled.elements())}"
    return change


@contextmanager
def _die_at(point: str, times: int) -> Iterator[None]:
    left = [times]

    def listen(reached: str) -> None:
        left[0] -= reached == point
        if left[0] == 0 and reached == point:
            raise Died

    before, crash_points.listener = crash_points.listener, listen
    try:
        yield
    finally:
        crash_points.listener = before


def run_inputs(
    *,
    changes: Annotated[int, typer.Option(help="How many changes.", min=1, metavar="N")] = 100,
    seed: Annotated[int, typer.Option(help="The seed of the changes.", metavar="N")] = 1,
    engine: Annotated[str, typer.Option(help="local or spark.", metavar="NAME")] = "local",
    json: Annotated[
        Path | None, typer.Option(help="Write every change here; - for standard output.", metavar="FILE")
    ] = None,
) -> None:
    """Run the campaign."""
    tell = screen.note if json == Path("-") else screen.say
    logging.getLogger("penstock").setLevel(logging.ERROR)
    work = Path(tempfile.mkdtemp(prefix="penstock-inputs-"))
    judged = []
    try:
        for number in range(changes):
            random = Random(seed * 1_000_003 + number)  # noqa: S311
            change = judge(draw_change(number, engine, random), work / str(number), random)
            shutil.rmtree(work / str(number), ignore_errors=True)
            judged.append(change)
            tell(str(change))
            if change.verdict not in GOOD:
                tell(change.text)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    counts = Counter(change.verdict for change in judged)
    tell(", ".join(f"{verdict} {n}" for verdict, n in sorted(counts.items())))
    if json is not None:
        commit = commit_of()
        about = {
            "commit": asdict(commit) if commit else None,
            "machine": asdict(describe_machine()),
            "versions": package_versions(),
        }
        text = jsonlib.dumps(
            {**about, "seed": seed, "changes": [asdict(change) for change in judged]}, indent=1
        )
        screen.say(text) if json == Path("-") else json.write_text(text, encoding="utf-8")
    if any(change.verdict not in GOOD for change in judged):
        raise typer.Exit(1)
