"""A result kept in the repository: small, and with the command that measures it again.

A file of `bench/results` is a result as `--json` writes it, with two differences. It names its command, and
of more than five samples it has the least, the quartiles and the greatest: five numbers whose own quartiles
are those of all samples, so that text, tables and plots follow from them as from the whole.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from bench.result import Figures, Result, load_result, spread_of, to_json
from bench.workload import BenchError, Size

RESULTS = Path(__file__).parents[1] / "results"
DIGITS = 4
"""Significant digits of what ways note."""


def command_of(
    workload: str, size: Size, groups: Sequence[str] = (), rounds: int | None = None, *, awake: bool = False
) -> str:
    """Return the command that measures a workload, or some groups of it.

    >>> print(command_of("spark", "quick", ["grid, 10"]))
    python -m bench spark --quick --group 'grid, 10'
    >>> print(command_of("join", "full", rounds=3, awake=True))
    python -m bench join --rounds 3 --awake
    """
    words = ["python", "-m", "bench", workload, *(["--quick"] if size == "quick" else [])]
    words += [word for group in groups for word in ("--group", group)]
    words += [] if rounds is None else ["--rounds", str(rounds)]
    return shlex.join([*words, *(["--awake"] if awake else [])])


def file_of(workload: str, groups: Sequence[str] = (), folder: Path = RESULTS) -> Path:
    """Return where the result of a workload is kept, or of some groups of it."""
    words = [workload, *("".join(c if c.isalnum() else "-" for c in group) for group in groups)]
    name = "-".join(part for word in words for part in word.lower().split("-") if part)
    return folder / f"{name}.json"


def summarise(result: Result, command: str) -> Result:
    """Return the result as it is kept."""
    figures = tuple(_summarise_figures(one) for one in result.figures)
    return replace(result, command=command, figures=figures)


def _summarise_figures(one: Figures) -> Figures:
    return replace(
        one,
        warm_up_ns=(),
        samples_ns=tuple(round(ns) for ns in _thin(one.samples_ns)),
        notes={name: tuple(_shorten(value) for value in _thin(noted)) for name, noted in one.notes.items()},
    )


def _thin(samples: Sequence[float]) -> Sequence[float]:
    return samples if len(samples) <= 5 else astuple(spread_of(samples))


def _shorten(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def save_summary(result: Result, path: Path) -> None:
    """Write a summary, a figure or claim per line, so that a new measurement is a readable difference."""
    fields: dict[str, Any] = json.loads(to_json(result))
    lines = []
    for name, value in fields.items():
        if isinstance(value, list) and value:
            inner = ",\n".join(f"  {json.dumps(item, ensure_ascii=False)}" for item in value)
            lines.append(f" {json.dumps(name)}: [\n{inner}\n ]")
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def load_summaries(folder: Path = RESULTS) -> dict[str, Result]:
    """Read all results that are kept, by the names of their files."""
    summaries = {path.stem: load_result(path) for path in sorted(folder.glob("*.json"))}
    for name, result in summaries.items():
        if not result.command:
            raise BenchError(
                f'the result "{name}" does not name its command',
                hint=f"measure it again: python -m bench {result.workload} --save",
            )
    if not summaries:
        raise BenchError(
            f'there are no results in "{folder}"', hint="measure one: python -m bench NAME --save"
        )
    return summaries
