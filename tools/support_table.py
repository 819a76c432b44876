"""Write docs/support.md: which engine can do what, from the conformance suite and its gap markers.

A feature is a file of the suite (its FEATURE); a cell says yes, or not yet where the engine does not exist,
or names the gaps that its cases are marked with. Run it after a case or a marker has changed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs" / "support.md"
ALL = "all of it"

HEAD = """# What runs where

Every feature below is a file of cases in `tests/conformance`, run on every engine that exists. A gap is
*not yet* (ours to do), *upstream* (what the engine stands on lacks it) or *never* (it does not belong
there), and a case marked as a gap must be refused with an error on that engine: never a wrong answer.

This table is written by `tools/support_table.py`; a test checks that it is current.
"""


@dataclass(frozen=True, slots=True)
class Gap:
    """A case that an engine cannot do, as its marker says it."""

    case: str
    kind: str
    engine: str
    reason: str


def table() -> str:
    """The page as it should be."""
    sys.path.insert(0, str(ROOT))
    try:
        engines = import_module("tests.conformance.engines")
        features = [(module, str(module.FEATURE)) for module in _modules()]
    finally:
        sys.path.remove(str(ROOT))
    names: Sequence[str] = engines.NAMES
    built: Sequence[str] = engines.find_engines()
    lines = [f"| feature | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    notes: list[str] = []
    for module, feature in sorted(features, key=lambda each: each[1]):
        gaps = list(_gaps(module))
        cells = [_cell([gap for gap in gaps if gap.engine == name], name in built) for name in names]
        lines.append(f"| {feature} | {' | '.join(cells)} |")
        notes += _notes(feature, [gap for gap in gaps if gap.engine in built])
    page = HEAD + "\n" + "\n".join(lines) + "\n"
    return page + ("\n## Gaps\n\n" + "\n".join(notes) + "\n" if notes else "")


def _modules() -> Iterator[ModuleType]:
    for file in sorted((ROOT / "tests" / "conformance").glob("test_*.py")):
        module = import_module(f"tests.conformance.{file.stem}")
        if hasattr(module, "FEATURE"):
            yield module


def _gaps(module: ModuleType) -> Iterator[Gap]:
    whole = getattr(module, "pytestmark", [])
    for mark in whole if isinstance(whole, list) else [whole]:
        if mark.name == "gap":
            kind, engines, reason = mark.args
            yield from (Gap(ALL, kind, engine, reason) for engine in engines)
    for name, case in vars(module).items():
        if name.startswith("test_"):
            for mark in getattr(case, "pytestmark", ()):
                if mark.name == "gap":
                    kind, engines, reason = mark.args
                    yield from (Gap(name, kind, engine, reason) for engine in engines)


def _cell(gaps: Sequence[Gap], built: bool) -> str:
    if not built:
        return "not yet"
    if not gaps:
        return "yes"
    kinds = sorted({gap.kind for gap in gaps})
    if any(gap.case == ALL for gap in gaps):
        return kinds[0]
    return f"partly ({', '.join(kinds)})"


def _notes(feature: str, gaps: Sequence[Gap]) -> list[str]:
    """One line per engine and reason, with the cases it is the reason of."""
    cases: dict[tuple[str, str, str], list[str]] = {}
    for gap in gaps:
        told = gap.case.removeprefix("test_").replace("_", " ")
        cases.setdefault((gap.engine, gap.kind, gap.reason), []).append(told)
    return [
        f"- {feature}, {engine}, {kind} ({reason}): {'; '.join(told)}"
        for (engine, kind, reason), told in cases.items()
    ]


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
    print(f"wrote {TABLE.relative_to(ROOT)}")
