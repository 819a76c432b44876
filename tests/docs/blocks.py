"""Find the Python blocks of a Markdown file; a block marked `python no-run` only has to compile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_FENCE = re.compile(r"^```(python[^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    file: Path
    line: int
    code: str
    runs: bool


def blocks(file: Path) -> list[Block]:
    text = file.read_text(encoding="utf-8")
    return [
        Block(file, text.count("\n", 0, match.start()) + 2, match[2], "no-run" not in match[1])
        for match in _FENCE.finditer(text)
    ]


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
