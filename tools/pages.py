"""Check that a file is an idea that a reader would look for, not a page of its only importer.

    python tools/pages.py

- A module with one importer, in its own folder, and fewer than 120 lines is a page: merge it.
- A module of more than 450 lines has room for a second idea: split it, or name it in LONG with the reason.
- A folder has at most fifteen modules of its own.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"

SHORTEST_PAGE = 120
LONGEST = 450
MOST_MODULES = 15
LONG: dict[str, str] = {}
"""Modules that may be longer, with the reason."""
STANDALONE: dict[str, str] = {
    "penstock.expr.arrow.": "the same files in every lowering",
    "penstock.expr.python.": "the same files in every lowering",
    "penstock.engines.spark.expressions.": "the same files in every lowering",
    "penstock.apps.": "one file per application",
    "penstock.cli.": "one file per command",
    "penstock.engines.spark.driver.plan_source": "loaded by Spark's own processes, without the rest",
    "penstock.engines.spark.to_spark": "it loads pyspark, which an engine that only explains does not need",
    "penstock.engines.spark.session.daemon": "Spark starts it by its name",
    "penstock.connectors": "a public name",
    "penstock.schedulers": "a public name",
    "penstock.stages.table_join": "an operator, loaded only by programs that use it",
}
"""Short modules with one importer that stay by themselves, by the start of their name, with the reason."""


def faults(source: Path = SOURCE) -> Iterator[str]:
    """Yield every fault as `file: what is wrong`."""
    modules = {_name(file, source): file for file in sorted(source.rglob("*.py"))}
    lines = {name: len(file.read_text(encoding="utf-8").splitlines()) for name, file in modules.items()}
    importers = _importers(modules)
    for name, file in modules.items():
        path = file.relative_to(source)
        if lines[name] > LONGEST and name not in LONG:
            yield f"{path}: {lines[name]} lines, more than {LONGEST}: did a second idea move in?"
        if file.stem != "__init__" and lines[name] < SHORTEST_PAGE and not name.startswith(tuple(STANDALONE)):
            (importer, *others) = importers[name] or {""}
            if importer and not others and modules[importer].parent == file.parent:
                yield f"{path}: {lines[name]} lines and only {importer} imports it: a page of that module"
    folders = Counter(file.parent for file in modules.values() if file.stem != "__init__")
    for folder, count in folders.items():
        if count > MOST_MODULES:
            yield f"{folder.relative_to(source)}: {count} modules, more than {MOST_MODULES}"


def _name(file: Path, source: Path) -> str:
    parts = file.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _importers(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Return, for each module, the modules that import it, at the top or inside functions, or name it."""
    importers: dict[str, set[str]] = defaultdict(set)
    for name, file in modules.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                targets = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
            elif isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                targets = [node.value.partition(":")[0]]  # lazy tables name modules in strings
            else:
                continue
            for target in targets:
                if target in modules and target != name:
                    importers[target].add(name)
    return importers


def main() -> int:
    """Print the faults; the exit code is 1 if there are any."""
    lines = list(faults())
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
