"""The machine and software that a benchmark ran on: processor, memory, versions, commit.

Only facts that help to interpret a figure; nothing that names the machine, its user or a folder.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PACKAGES = ("penstock", "pyarrow", "numpy", "numba", "pandas", "polars")


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware that a figure depends on; `load` is the load average before the first round."""

    cpu: str
    cores: int
    memory_bytes: int
    system: str
    load: float | None

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
