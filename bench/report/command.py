"""`python -m bench results`: write what follows from the results that are kept, or measure them all again."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from bench.report.markdown import build_markdown
from bench.report.overview import build_overview
from bench.report.readme import fill_table
from bench.report.summary import RESULTS, load_summaries
from bench.workload import BenchError
from penstock.cli import screen

ROOT = Path(__file__).parents[2]
PAGE = Path("build") / "results.html"

ABOUT = (
    "Write docs/results.md, README's table and a page with plots from the files of bench/results.\n\n"
    "With --measure, all of them are measured again first, one command after the other; `make results` does "
    "that. A single one: `python -m bench NAME --save`.\n\n"
    "\b\nExamples:\n"
    "  python -m bench results\n"
    "  python -m bench results --check\n"
    "  python -m bench results --measure"
)

COMMANDS = (
    "windows --quick",
    "runtime --quick",
    "cstream --quick",
    "join --quick --group band",
    "join --group latency",
    "join --quick --group layouts",
    "join --quick --group spark",
    "spark --quick --group windows",
    'spark --quick --group overlap --group "grid, 1" --group "grid, 100"',
    "sustainable --quick",
    "peers --quick",
    "latency --quick",
)
"""What `--measure` runs, each with `--save`: the commands of README and docs/results.md."""
NOT_HELD = 3


def write_results(
    *,
    html: Annotated[Path, typer.Option(help="Write the page with plots here.", metavar="FILE")] = PAGE,
    measure: Annotated[bool, typer.Option("--measure", help="Measure everything again first.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if a document is not what the results give.")
    ] = False,
) -> None:
    """Write the documents that follow from kept results."""
    if measure:
        measure_again()
    texts = build_documents()
    if check:
        stale = [str(path.relative_to(ROOT)) for path, text in texts.items() if not _is_current(path, text)]
        if stale:
            raise BenchError(
                f"{' and '.join(stale)} {'is' if len(stale) == 1 else 'are'} not what bench/results gives",
                hint="run: python -m bench results",
            )
        return
    html.parent.mkdir(parents=True, exist_ok=True)
    for path, text in {**texts, html: build_overview(load_summaries())}.items():
        path.write_text(text, encoding="utf-8")
        screen.note(f"wrote {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")


def build_documents(results: Path = RESULTS, root: Path = ROOT) -> dict[Path, str]:
    """Return the text of every document that follows from the results."""
    summaries = load_summaries(results)
    readme = root / "README.md"
    return {
        root / "docs" / "results.md": build_markdown(summaries),
        readme: fill_table(readme.read_text(encoding="utf-8"), summaries),
    }


def measure_again() -> None:
    """Run every command, each in a process of its own; one that fails is told, and the others still run."""
    failures = []
    for command in COMMANDS:
        screen.note(f"python -m bench {command} --save")
        words = [sys.executable, "-m", "bench", *shlex.split(command), "--save"]
        code = subprocess.run(words, cwd=ROOT, check=False).returncode  # noqa: S603 (our own commands)
        if code not in (0, NOT_HELD):
            failures.append(command)
    if failures:
        raise BenchError(f"{len(failures)} commands failed: {'; '.join(failures)}")


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text
