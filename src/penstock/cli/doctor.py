"""What `penstock doctor` looks at: each finding is ok, absent (optional) or broken (needed)."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli import screen
from penstock.cli.exits import Code, epilog
from penstock.errors import PenstockError

OLDEST_PYTHON = (3, 11)

State = Literal["ok", "absent", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; the hint is a line that one can type."""

    name: str
    state: State
    detail: str
    hint: str | None = None


def examine() -> list[Finding]:
    """Look at everything."""
    wanted = metadata.requires("penstock") or []
    return [
        python(),
        *needed_packages(wanted),
        *extras(wanted),
        java(),
        *engines(),
        machine(),
        temporary_folder(),
    ]


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Python itself."""
    told = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        return Finding("python", "broken", f"{told}: too old", "install Python 3.11 or newer")
    return Finding("python", "ok", f"{told} ({platform.python_implementation()})")


def needed_packages(wanted: Iterable[str]) -> list[Finding]:
    """The packages without which nothing works."""
    return [_package(line) for line in wanted if "extra ==" not in line]


def extras(wanted: Iterable[str]) -> list[Finding]:
    """Each extra: whether all of its packages are here, else the line that installs them."""
    packages: dict[str, list[str]] = {}
    for line in wanted:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if extra:
            packages.setdefault(extra[1], []).append(_name_of(line))
    return [_extra(extra, names) for extra, names in packages.items()]


def java(environment: Mapping[str, str] = os.environ) -> Finding:
    """Java, which only Spark needs."""
    from penstock.engines.spark.session.java import find_java

    try:
        found = find_java(environment)
    except PenstockError as problem:
        return Finding("java", "absent", problem.detail or problem.fact, problem.hint)
    passed_over = "".join(f"\n{note}" for note in found.notes)
    return Finding("java", "ok", f"version {found.version} from {found.origin}{passed_over}")


def engines() -> list[Finding]:
    """The engines that are registered, each loaded to see that it can be."""
    found = []
    for entry in sorted(metadata.entry_points(group="penstock.engines"), key=lambda entry: entry.name):
        try:
            entry.load()
        except Exception as error:  # whatever it raises is the finding
            found.append(Finding(f"engine {entry.name}", "broken", f"{type(error).__name__}: {error}"))
        else:
            found.append(Finding(f"engine {entry.name}", "ok", "loads"))
    return found or [
        Finding("engines", "broken", "none is registered", "pip install --force-reinstall penstock")
    ]


def machine() -> Finding:
    """Cores and memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    system = f"{platform.system()} {platform.release()}"
    return Finding("machine", "ok", f"{cores} cores, {memory / 2**30:.1f} GiB, {system}")


def temporary_folder() -> Finding:
    """A place for intermediate files."""
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"penstock")
    except OSError as error:
        return Finding(
            "temp folder", "broken", f"not writable: {error.strerror}", "set TMPDIR to one that is"
        )
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return Finding("temp folder", "ok", f"writable, {free / 2**30:.1f} GiB free")


def _package(requirement: str) -> Finding:
    name = _name_of(requirement)
    least = re.search(r">=\s*([\d.]+)", requirement)
    hint = f'pip install "{requirement.partition(";")[0].strip()}"'
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, "broken", "not installed", hint)
    if least and _numbers(version) < _numbers(least[1]):
        return Finding(name, "broken", f"{version}: older than {least[1]}", hint)
    return Finding(name, "ok", version)


def _extra(extra: str, names: list[str]) -> Finding:
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        return Finding(
            f"extra {extra}", "absent", f"missing {', '.join(missing)}", f'pip install "penstock[{extra}]"'
        )
    return Finding(f"extra {extra}", "ok", ", ".join(f"{name} {metadata.version(name)}" for name in names))


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _name_of(requirement: str) -> str:
    return re.split(r"[\s\[<>=!~;(]", requirement, maxsplit=1)[0]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])


# `penstock doctor`: is everything here that Penstock needs, and what could be added.

ABOUT = (
    "Look whether all that Penstock needs is here.\n\n"
    "Looks at Python, packages, extras, Java, engines and the machine. What is absent is optional, and "
    "the line that installs it is shown. What is broken ends the command with code 1.\n\n"
    "\b\nExamples:\n"
    "  penstock doctor\n"
    "  penstock doctor --json"
)
COLOURS = {"ok": "green", "absent": "yellow", "broken": "bold red"}


def add_to(parent: typer.Typer) -> None:
    """Add the command."""
    parent.command("doctor", help=ABOUT, epilog=epilog())(doctor)


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Look at what Penstock needs."""
    findings = examine()
    if json:
        screen.say_json([asdict(finding) for finding in findings])
    else:
        screen.out().print(_table(findings))
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(Code.FAILED)


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        told = finding.detail + (f"\n{finding.hint}" if finding.hint else "")
        table.add_row(Text(finding.state, style=COLOURS[finding.state]), Text(finding.name), Text(told))
    return table
