"""Check the types of every Python block of the README and the docs, and of the examples, as users would.

    python tools/doc_types.py

The blocks of a page are one program, as they are when the tests run them, with `mypy --strict`. A block that
is marked `no-run` is checked too. Libraries without types of their own, such as pyarrow, are `Any`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_FENCE = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ERROR = re.compile(r"^(?:\S*/)?(\w+)\.py:(\d+): ", re.MULTILINE)
_CONFIGURATION = "[mypy]\n[mypy-pyarrow.*,pandas.*,deltalake.*]\nignore_missing_imports = True\n"
_CONFIGURATION += "[mypy-bench.*]\nignore_errors = True\n"


def page_programs(root: Path) -> dict[str, tuple[Path, str]]:
    """Return the program of every page that has one, by a name for its module, with the lines of the page."""
    programs = {}
    for page in (*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))):
        text = page.read_text(encoding="utf-8")
        lines = [""] * (text.count("\n") + 1)
        for block in _FENCE.finditer(text):
            first = text.count("\n", 0, block.start(1))
            for number, line in enumerate(block[1].splitlines()):
                lines[first + number] = line
        if any(lines):
            programs["page_" + re.sub(r"\W", "_", page.stem)] = page, "\n".join(lines) + "\n"
    return programs


def check_types(root: Path = ROOT) -> str:
    """Run mypy over all programs; return its complaints, by page and line, or an empty text."""
    programs = page_programs(root)
    with tempfile.TemporaryDirectory() as folder:
        for module, (_, text) in programs.items():
            (Path(folder) / f"{module}.py").write_text(text, encoding="utf-8")
        files = [f"{module}.py" for module in programs]
        files += [str(example) for example in sorted((root / "examples").glob("*.py"))]
        options = ["--strict", "--allow-redefinition-new", "--local-partial-types", "--no-error-summary"]
        options += ["--cache-dir", str(ROOT / ".mypy_cache" / "docs"), "--config-file", "mypy.ini"]
        (Path(folder) / "mypy.ini").write_text(_CONFIGURATION, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "mypy", *options, *files],
            cwd=folder,
            env={**os.environ, "MYPYPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    def name_page(match: re.Match[str]) -> str:
        page = programs.get(match[1])
        return match[0] if page is None else f"{page[0].relative_to(root)}:{match[2]}: "

    return _ERROR.sub(name_page, done.stdout + done.stderr)


def main() -> int:
    """Print what mypy says; the exit code is 1 if it says anything."""
    complaints = check_types()
    sys.stdout.write(complaints)
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
