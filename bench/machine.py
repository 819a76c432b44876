"""The machine and software that a benchmark ran on: processor, memory, versions, commit.

Only facts that help to interpret a figure; nothing that names the machine, its user or a folder.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("penstock", "pyarrow", "numpy", "numba", "pandas", "polars")
DISTURBED = 0.02
"""A greater share of stolen time is worth a word."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware that a figure depends on.

    load    the load average before the first round
    stolen  the share of the time in which a core had work, but the host of a virtual machine ran others
    awake   whether the cores were kept from sleeping
    step_ns  how long a step of a loop in plain Python took just before, as awake as then
    """

    cpu: str
    cores: int
    memory_bytes: int
    system: str
    load: float | None
    stolen: float | None = None
    awake: bool = False
    step_ns: float | None = None

    def same_hardware(self, other: Machine) -> bool:
        """Return whether figures of the two machines may be compared."""
        return (self.cpu, self.cores, self.system.split()[0]) == (
            other.cpu,
            other.cores,
            other.system.split()[0],
        )

    @property
    def busy(self) -> bool:
        """Return whether others were using a good part of the cores when the benchmark began."""
        return self.load is not None and self.load > self.cores / 2

    @property
    def is_disturbed(self) -> bool:
        """Return whether the host took away a good part of the cores while the benchmark ran."""
        return self.stolen is not None and self.stolen > DISTURBED


@dataclass(frozen=True, slots=True)
class Commit:
    """The version of the code that ran; `dirty` if the working tree had uncommitted changes."""

    id: str
    dirty: bool


def describe_machine() -> Machine:
    """Return the facts of this machine."""
    return Machine(
        cpu=_cpu(),
        cores=usable_cores(),
        memory_bytes=memory_bytes(),
        system=f"{platform.system()} {platform.release()}",
        load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    )


class CoreTimes(NamedTuple):
    """How long all cores together have had work, and how much of that the host ran others instead."""

    wanted: int
    stolen: int

    def stolen_since(self, before: CoreTimes) -> float:
        """Return the share that was stolen since an earlier look.

        >>> CoreTimes(300, 25).stolen_since(CoreTimes(200, 20))
        0.05
        """
        return (self.stolen - before.stolen) / max(self.wanted - before.wanted, 1)


def read_core_times() -> CoreTimes | None:
    """Return the times so far; None where the system does not say."""
    try:
        with Path("/proc/stat").open() as lines:
            user, nice, system, _, _, interrupts, soft, stolen = map(int, next(lines).split()[1:9])
    except (OSError, ValueError):
        return None
    return CoreTimes(user + nice + system + interrupts + soft + stolen, stolen)


@contextmanager
def keep_awake() -> Iterator[bool]:
    """Keep all cores busy with what runs only when nothing else wants to; yield whether that is possible.

    A virtual machine whose core has nothing to do gives it back to its host, and gets it again late: a sleep
    of 0.3 ms then takes several, which says nothing of what is measured.
    """
    if not hasattr(os, "SCHED_IDLE"):
        yield False
        return
    busy = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"
    command = [sys.executable, "-S", "-c", busy]
    processes = [subprocess.Popen(command) for _ in range(usable_cores())]  # noqa: S603 (fixed words, no shell)
    try:
        yield True
    finally:
        for process in processes:
            process.kill()
            process.wait()


def time_step(n_steps: int = 100_000, tries: int = 5) -> float:
    """Return the nanoseconds of a step of a loop in plain Python: about 40 on a processor of 2020."""

    def count() -> int:
        total = 0
        for number in range(n_steps):
            total += number
        return total

    best = float("inf")
    for _ in range(tries):
        started_at = time.perf_counter_ns()
        count()
        best = min(best, (time.perf_counter_ns() - started_at) / n_steps)
    return round(best, 1)


def usable_cores() -> int:
    """Return the number of cores this process may use; a container may allow fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Return the physical memory in bytes; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a figure depends on."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def commit_of(folder: Path = Path(__file__).parents[1]) -> Commit | None:
    """Return the commit of the code in a folder; None when it is not tracked (an installed package)."""
    # Why: an installed copy may be inside another repository, whose commit says nothing about this code.
    if _git(folder, "ls-files", "--error-unmatch", ".") is None:
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain")
    return Commit(commit, dirty=bool(changes)) if commit else None


def _git(folder: Path, *words: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    # Why: without optional locks, reading the state does not disturb a concurrent commit.
    command = [git, "-C", str(folder), "--no-optional-locks", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (fixed words, no shell)
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(errors="replace").splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or sys.platform
