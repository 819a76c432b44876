"""Trace the README's program in process: how many files and functions of ours does it run through?

    python tools/trace.py            the totals
    python tools/trace.py --list     each file, with its functions

A program that people can follow runs through few of them: at most 100 files and 600 functions, which a test
holds. Module bodies, class bodies, lambdas and comprehensions do not count as functions.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "penstock"
MOST_FILES = 100
MOST_FUNCTIONS = 600
"""They may only fall."""


def readme_program() -> str:
    """Return the README's first program, to run in process, without `explain()`, which carries no row."""
    block = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    assert block is not None, "the README shows a program"
    program = block.group(1)
    assert "graph.run()" in program, "the README's program runs its graph"
    program = re.sub(r"^print\(graph\.explain.*$", "", program, flags=re.M)
    return program.replace("graph.run()", 'graph.run(engine="local")')


def trace_program(program: str) -> dict[str, set[str]]:
    """Run the program on a few events; return the functions of ours that were called, by file."""
    from penstock.apps.campaign_views import ad_events, campaigns

    codes: set[CodeType] = set()

    def remember(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, table in (("events", ad_events(200)), ("campaigns", campaigns())):
            Path(name).mkdir()
            pq.write_table(table, Path(name) / "part-0.parquet")
        threading.setprofile(remember)
        sys.setprofile(remember)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(program, "README.md", "exec"), {"__name__": "readme"})  # noqa: S102
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return _by_file(codes)


def _by_file(codes: set[CodeType]) -> dict[str, set[str]]:
    called: dict[str, set[str]] = {}
    for code in codes:
        file = Path(code.co_filename)
        is_function = "<" not in code.co_name and bool(code.co_flags & 0x02)  # CO_NEWLOCALS: no class body
        if is_function and file.is_relative_to(PACKAGE):
            called.setdefault(str(file.relative_to(PACKAGE)), set()).add(code.co_qualname)
    return called


def main() -> int:
    """Print the totals; the exit code is 1 if they exceed the limits."""
    called = trace_program(readme_program())
    n_functions = sum(len(functions) for functions in called.values())
    if "--list" in sys.argv:
        for file, functions in sorted(called.items()):
            sys.stdout.write(f"{file}: {', '.join(sorted(functions))}\n")
    sys.stdout.write(
        f"{len(called)} files (at most {MOST_FILES}), {n_functions} functions (at most {MOST_FUNCTIONS})\n"
    )
    return int(len(called) > MOST_FILES or n_functions > MOST_FUNCTIONS)


if __name__ == "__main__":
    sys.exit(main())
