"""Check that imports point one way, between rooms and inside engines/ and stages/.

Each room may import the rooms listed for it, and heavy libraries stay in the rooms that own them. An
import inside a function counts too, unless the pair is listed in LAZY with its reason.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "penstock"

GROUND = {
    "accounts",
    "caller",
    "clock",
    "crash_points",
    "errors",
    "events",
    "frozen",
    "lazy",
    "options",
}
ROOMS: dict[str, set[str]] = {
    "accounts": {"frozen"},
    "crash_points": set(),
    "options": {"clock", "errors", "events", "frozen"},
    "lazy": set(),
    "frozen": set(),
    "errors": {"frozen"},
    "events": {"frozen"},
    "clock": set(),
    "caller": {"errors"},
    "timing": {"caller", "errors", "frozen"},
    "blocks": {"errors", "frozen"},
    "expr": {"errors", "caller", "timing", "lazy", "frozen"},
    "connect": GROUND | {"expr", "timing"},
    "read": {"connect", "lazy"},
    "write": {"connect", "lazy"},
    "connectors": {"connect"},
    "schedulers": {"engines"},
    "operators": GROUND | {"timing", "expr", "connect"},
    "plan": GROUND | {"timing", "expr", "blocks", "connect", "operators"},
    "graph": GROUND | {"timing", "expr", "blocks", "connect", "operators", "plan"},
    "kernels": {"errors", "timing", "lazy", "frozen"},
    "stages": GROUND | {"timing", "expr", "connect", "operators", "kernels"},
    "engines": GROUND | {"timing", "expr", "blocks", "connect", "operators", "plan", "kernels", "stages"},
    "spark": {"engines", "lazy"},
    "testing": GROUND
    | {"timing", "expr", "connect", "operators", "plan", "graph", "engines", "read", "write"},
    "apps": {"penstock"},
    "cli": {"penstock", "errors", "events", "apps"},
}
LAZY = {
    ("graph", "engines"): "run() finds engines by name; types only otherwise",
    ("graph", "read"): "join_table takes a table as it is",
    ("cli", "engines"): "doctor lists what is installed",
}
OWNERS = {
    "pyspark": {"engines/spark", "connect/writers/spark.py"},
    "numba": {"kernels"},
    "typer": {"cli"},
    "rich": {"cli"},
    "hypothesis": {"testing"},
    "pytest": {"testing"},
}

# Directions inside engines/ and stages/: what lies below a folder must not import these. The longest prefix
# of a file's path counts. Imports for types only are free; those inside functions are not.
_ENGINES = ("engines/local", "engines/spark", "engines/reference")
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "engines/": _ENGINES,
    # The reference engine judges the other two, so it shares no code with them.
    "engines/reference/": ("stages", "kernels", "engines/local", "engines/spark"),
    "engines/local/": ("engines/spark", "engines/reference"),
    "engines/spark/": ("engines/local", "engines/reference"),
    "stages/rows/": (
        "stages/keys",
        "stages/functions",
        "stages/state",
        "stages/window",
        "stages/sketches",
        "stages/patterns",
    ),
    "stages/keys/": ("stages/functions", "stages/state", "stages/window", "stages/sketches"),
    "stages/functions/": ("stages/state", "stages/window", "stages/sketches", "stages/patterns"),
    "stages/state/": ("stages/window", "stages/sketches", "stages/patterns"),
    "stages/sketches.py": ("stages/state", "stages/window", "stages/patterns"),
    "stages/window/": ("stages/state", "stages/patterns"),
}


def faults(package: Path = PACKAGE) -> Iterator[str]:
    """Every import that points the wrong way, as `file:line: what`."""
    for file in sorted(package.rglob("*.py")):
        path = file.relative_to(package)
        room = path.parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for node, lazy, typing in _imports(ast.parse(file.read_text(encoding="utf-8"))):
            for name in _names(node):
                wrong = _wrong(room, path, name, lazy=lazy) or (None if typing else _inside(path, name))
                if wrong:
                    yield f"{file.relative_to(package.parent.parent)}:{node.lineno}: {wrong}"


def _wrong(room: str, path: Path, name: str, *, lazy: bool) -> str | None:
    top, _, rest = name.partition(".")
    if top != "penstock":
        owners = OWNERS.get(top)
        if owners is not None and not any(str(path).startswith(owner) for owner in owners):
            return f"{top} may only be imported in {', '.join(sorted(owners))}"
        return None
    target = rest.split(".")[0] or "penstock"
    if target == room or target in ROOMS.get(room, set()):
        return None
    if lazy and (room, target) in LAZY:
        return None
    return f"{room} must not import {target}"


def _inside(path: Path, name: str) -> str | None:
    """Return what is wrong with an import inside engines/ or stages/."""
    folders = [folder for folder in FORBIDDEN if path.as_posix().startswith(folder)]
    target = name.removeprefix("penstock.").replace(".", "/")
    if folders:
        folder = max(folders, key=len)
        for forbidden in FORBIDDEN[folder]:
            if f"{target}/".startswith(f"{forbidden}/"):
                return f"{folder.rstrip('/')} must not import {forbidden}"
    return None


def _imports(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    """Yield (import, whether it is inside a function or only for types, whether it is only for types)."""
    waiting: list[tuple[ast.AST, bool, bool]] = [(tree, False, False)]
    while waiting:
        node, lazy, typing = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, lazy, typing
        typing = typing or _is_typing_block(node)
        lazy = lazy or typing or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        waiting += [(child, lazy, typing) for child in ast.iter_child_nodes(node)]


def _is_typing_block(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if node.module == "penstock":
        return [f"penstock.{alias.name}" if alias.name in ROOMS else "penstock" for alias in node.names]
    return [node.module or "penstock"]


if __name__ == "__main__":
    found = list(faults())
    for line in found:
        sys.stderr.write(line + "\n")
    sys.exit(1 if found else 0)
