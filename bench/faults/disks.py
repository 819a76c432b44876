"""Disks that become full or read-only in the middle of a run, which fails with an error of ours and goes on.

A program is run on a small disk of its own. At one of the moments at which a crash would do most harm the
disk is filled, or its journal is aborted, after which Linux lets nobody write to it. The run must end with an
error that names the folder, or come to its end. Then there is space again, or the disk is mounted anew, and
the same program runs to its end: rows and counts must be as if nothing had happened. Mounting takes root.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

from bench.faults.mutations import PROGRAMS, Life, SmallProgram, Tell
from bench.faults.rows import compare_sinks
from bench.workload import BenchError
from penstock import PenstockError, crash_points

Kind = Literal["full", "read-only"]
_IMAGE_MB = 24
BUSY_S = 30.0
"""How long a disk may be busy after a run."""
_STRUCK_AT = 120
"""The last point of a run at which a disk is struck; a run passes about so many."""


@dataclass(slots=True)
class DiskCase:
    """One run on a disk that failed, and what became of it; no problem means that all is well."""

    number: int
    kind: Kind
    program: str
    point: str = "not struck"
    failure: str = ""
    problem: str = ""

    def __str__(self) -> str:
        first_line = self.failure.partition("\n")[0]
        verdict = self.problem or "exact"
        return f"{self.number:>4} {self.kind:<10}{self.program:<9}{self.point:<18}{first_line:.70}  {verdict}"


class SmallDisk:
    """A disk in a file, mounted on a folder."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image, self.folder = image, folder
        folder.mkdir(parents=True)
        with image.open("wb") as file:
            file.truncate(_IMAGE_MB << 20)
        _call("mkfs.ext4", "-q", "-m", "0", str(image))
        self.mount()

    def mount(self) -> None:
        """Mount it."""
        _call("mount", "-o", "loop", str(self._image), str(self.folder))

    def unmount(self) -> None:
        """Unmount it, and mend it as a machine does that starts again."""
        deadline = time.monotonic() + BUSY_S
        while True:
            _collect_garbage()
            try:
                _call("umount", str(self.folder))
                break
            except BenchError as problem:  # a worker of Spark may close its files after the run
                if time.monotonic() > deadline:
                    problem.detail = f"{problem.detail}; open files: {self._find_open_files()}"
                    raise
                time.sleep(BUSY_S / 100)
        subprocess.run(["e2fsck", "-p", str(self._image)], check=False, capture_output=True)  # noqa: S603, S607

    def _find_open_files(self) -> list[str]:
        """Return the files on the disk that some process has open."""
        files = []
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            with suppress(OSError):
                if str(self.folder) in (target := str(link.readlink())):
                    files.append(f"{link.parts[2]}: {target}")
        return files

    def strike(self, kind: Kind) -> None:
        """Fill it, or let nobody write to it any more."""
        if kind == "read-only":
            _call("mount", "-o", "remount,abort", str(self.folder))
            return
        with suppress(OSError), (self.folder / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))

    def mend(self, kind: Kind) -> None:
        """Give it space again, or mount it anew."""
        if kind == "read-only":
            self.unmount()
            self.mount()
        else:
            (self.folder / "ballast").unlink(missing_ok=True)


class LifeOnDisk(Life):
    """A program whose folder is on a disk that fails once."""

    def __init__(self, engine: Any, program: SmallProgram, folder: Path, random: Random) -> None:
        super().__init__(engine, program, folder, random)
        self.moments.clear()

    def judge_disk(self, case: DiskCase, disk: SmallDisk) -> DiskCase:
        """Run the program on the disk, strike it meanwhile, mend it, run the program on, and judge."""
        self.folder, left = disk.folder / "life", self._random.randrange(_STRUCK_AT)
        self.put_files()
        os.sync()  # what is lost with the disk shall be the run's own

        def strike(point: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                case.point = point
                disk.strike(case.kind)

        before, crash_points.listener = crash_points.listener, strike
        try:
            self._run(drain=True)
        except PenstockError as failure:
            case.failure = str(failure)
            if str(self.folder) not in case.failure or not failure.hint:
                case.problem = f"UNNAMED: {failure}"
        except Exception:
            case.problem = f"RAW: {traceback.format_exc()}"
        finally:
            crash_points.listener = before
            disk.mend(case.kind)
        try:
            result, (rows, accounts) = self._run(drain=True), self.answers[0]
            differences = compare_sinks(rows, self._read())
            if differences or result.accounts != accounts:
                case.problem = f"WRONG: {differences or 'the accounts differ'}"
        except Exception:
            case.problem += f"NOT RESUMED: {traceback.format_exc()}"
        return case


def strike_disks(
    engine: Any, name: str, count: int, *, folder: Path, seed: int, tell: Tell
) -> list[DiskCase]:
    """Strike a number of disks of either kind while programs run."""
    if os.geteuid() != 0:
        raise BenchError("disks can be mounted by root only", hint="sudo python -m bench disks")
    cases, lives = [], dict[str, LifeOnDisk]()
    for number in range(2 * count):
        kind: Kind = "read-only" if number % 2 else "full"
        program = ("files", "arrivals", "table")[number // 2 % 3]
        if program not in lives:
            random = Random(f"{seed} {name} {program}")  # noqa: S311  # no secret hangs on it
            lives[program] = LifeOnDisk(engine, PROGRAMS[program], folder / program, random)
        disk = SmallDisk(folder / f"{number}.img", folder / f"disk-{number}")
        try:
            cases.append(lives[program].judge_disk(DiskCase(number, kind, program), disk))
        finally:
            disk.unmount()
        tell(str(cases[-1]))
    return cases


def _collect_garbage() -> None:
    """Let go of what a run that failed had open, in this process and in Spark's Java.

    Spark does not close the file of its log that it could not write: Java does when it finds that out.
    """
    gc.collect()
    if "pyspark" in sys.modules:
        from pyspark import SparkContext

        context = SparkContext._active_spark_context
        if context is not None and context._jvm is not None:
            context._jvm.System.gc()


def _call(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        raise BenchError(f"{' '.join(command)} failed", detail=done.stderr.strip())
