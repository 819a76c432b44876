"""`penstock doctor`: is everything here that Penstock needs, and what could be added.

Each check has a result: ok, absent (optional) or broken (needed).
"""

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
from penstock.cli.screen import Code
from penstock.errors import PenstockError

OLDEST_PYTHON = (3, 11)

ABOUT = (
    "Look whether all that Penstock needs is here.\n\n"
    "Looks at Python, packages, extras, Java, engines and the machine. What is absent is optional, and "
    "the line that installs it is shown. What is broken ends the command with code 1.\n\n"
    "\b\nExamples:\n"
    "  penstock doctor\n"
    "  penstock doctor --json"
)
COLOURS = {"ok": "green", "absent": "yellow", "broken": "bold red"}
State = Literal["ok", "absent", "broken"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was looked at; the hint is a line that one can type."""

    name: str
    state: State
    detail: str
    hint: str | None = None


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Look at what Penstock needs."""
    results = examine()
    if json:
        screen.say_json([asdict(result) for result in results])
    else:
        table = Table(box=None, show_header=False, pad_edge=False)
        for result in results:
            detail = result.detail + (f"\n{result.hint}" if result.hint else "")
            table.add_row(Text(result.state, style=COLOURS[result.state]), Text(result.name), Text(detail))
        screen.out().print(table)
    if any(result.state == "broken" for result in results):
        raise typer.Exit(Code.FAILED)


def examine() -> list[CheckResult]:
    """Look at everything."""
    wanted = metadata.requires("penstock") or []
    packages = [*needed_packages(wanted), *extras(wanted)]
    return [python(), *packages, java(), *engines(), machine(), temporary_folder()]


def python(version: tuple[int, ...] = sys.version_info[:3]) -> CheckResult:
    """Check Python itself."""
    text = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        return CheckResult("python", "broken", f"{text}: too old", "install Python 3.11 or newer")
    return CheckResult("python", "ok", f"{text} ({platform.python_implementation()})")


def needed_packages(wanted: Iterable[str]) -> list[CheckResult]:
    """Check the packages without which nothing works."""
    results = []
    for requirement in wanted:
        if "extra ==" in requirement:
            continue
        name = _name_of(requirement)
        version, least = _version_of(name), re.search(r">=\s*([\d.]+)", requirement)
        hint = f'pip install "{requirement.partition(";")[0].strip()}"'
        if version is None:
            results.append(CheckResult(name, "broken", "not installed", hint))
        elif least and _numbers(version) < _numbers(least[1]):
            results.append(CheckResult(name, "broken", f"{version}: older than {least[1]}", hint))
        else:
            results.append(CheckResult(name, "ok", version))
    return results


def extras(wanted: Iterable[str]) -> list[CheckResult]:
    """Check each extra: whether all of its packages are here, else the line that installs them."""
    packages: dict[str, list[str]] = {}
    for line in wanted:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if extra:
            packages.setdefault(extra[1], []).append(_name_of(line))
    results = []
    for label, names in packages.items():
        versions = {name: _version_of(name) for name in names}
        missing = [name for name, version in versions.items() if version is None]
        if missing:
            detail, hint = f"missing {', '.join(missing)}", f'pip install "penstock[{label}]"'
            results.append(CheckResult(f"extra {label}", "absent", detail, hint))
        else:
            detail = ", ".join(f"{name} {version}" for name, version in versions.items())
            results.append(CheckResult(f"extra {label}", "ok", detail))
    return results


def java(environment: Mapping[str, str] = os.environ) -> CheckResult:
    """Check Java, which only Spark needs."""
    from penstock.engines.spark.session.java import find_java

    try:
        home = find_java(environment)
    except PenstockError as problem:
        return CheckResult("java", "absent", problem.detail or problem.fact, problem.hint)
    passed_over = "".join(f"\n{note}" for note in home.notes)
    return CheckResult("java", "ok", f"version {home.version} from {home.origin}{passed_over}")


def engines() -> list[CheckResult]:
    """Check the engines that are registered: each is loaded."""
    results = []
    for entry in sorted(metadata.entry_points(group="penstock.engines"), key=lambda entry: entry.name):
        try:
            entry.load()
        except Exception as error:  # whatever it raises is the finding
            results.append(CheckResult(f"engine {entry.name}", "broken", f"{type(error).__name__}: {error}"))
        else:
            results.append(CheckResult(f"engine {entry.name}", "ok", "loads"))
    return results or [
        CheckResult("engines", "broken", "none is registered", "pip install --force-reinstall penstock")
    ]


def machine() -> CheckResult:
    """Return cores and memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    system = f"{platform.system()} {platform.release()}"
    return CheckResult("machine", "ok", f"{cores} cores, {memory / 2**30:.1f} GiB, {system}")


def temporary_folder() -> CheckResult:
    """Check that there is a place for intermediate files."""
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"penstock")
    except OSError as error:
        return CheckResult(
            "temp folder", "broken", f"not writable: {error.strerror}", "set TMPDIR to one that is"
        )
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return CheckResult("temp folder", "ok", f"writable, {free / 2**30:.1f} GiB free")


def _version_of(name: str) -> str | None:
    """Return the version of an installed package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _name_of(requirement: str) -> str:
    return re.split(r"[\s\[<>=!~;(]", requirement, maxsplit=1)[0]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])
