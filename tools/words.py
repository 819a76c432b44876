"""Check the words of the package, the benchmarks and the tests: names, and how docstrings begin.

    python tools/words.py

- No metaphor of our own in a name (`leg`, `seat`, `shelf`): docs/glossary.md has the field's word for it.
- No participle or gerund as the name of a function, class or file (`made`, `told`, `sending`): a function
  is a verb (`build_plan`), a class a noun.
- No filler as a variable (`found`, `each`, `given`) where the thing has a name.
- The docstring of a function begins with a verb: "Return …", "Raise …", "Stop …".

The name of a test is a sentence, and may have any words; docstrings below `tests` may begin with any.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = (ROOT / "src" / "penstock", ROOT / "bench", ROOT / "tests")

_LISTS = {
    name: frozenset(words.split())
    for name, words in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}
METAPHORS = _LISTS["metaphors"]
FILLERS = _LISTS["fillers"]


def faults(package: Path) -> Iterator[str]:
    """Yield every fault of a package as `file:line: what is wrong`."""
    root = ROOT if package.is_relative_to(ROOT) else package.parent.parent
    for file in sorted(package.rglob("*.py")):
        path = file.relative_to(root)
        if _is_participle(file.stem) or _metaphors(file.stem):
            yield f"{path}:1: the file is named {file.stem!r}"
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            for fault in _faults_of(node, in_tests=package.name == "tests"):
                yield f"{path}:{getattr(node, 'lineno', 1)}: {fault}"


def _faults_of(node: ast.AST, *, in_tests: bool) -> Iterator[str]:
    is_test = str(getattr(node, "name", "")).startswith("test_")
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not is_test:
        if _is_participle(node.name):
            yield f"{node.name!r} is a participle: a function is a verb, a class a noun"
        for word in _metaphors(node.name):
            yield f"{node.name!r}: {word!r} is not a word of the field (docs/glossary.md)"
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not in_tests:
        text = ast.get_docstring(node) or ""
        first = text.split(" ", 1)[0].rstrip(",.:;")
        if text and (first in _LISTS["not_verbs"] or first.endswith("ing")):
            yield f"the docstring of {node.name!r} begins with {first!r}, not with a verb"
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        if node.id.lstrip("_") in FILLERS:
            yield f"the variable {node.id!r} does not say what it holds"
        for word in _metaphors(node.id):
            yield f"{node.id!r}: {word!r} is not a word of the field (docs/glossary.md)"
    if isinstance(node, ast.arg) and node.arg.lstrip("_") in FILLERS:
        yield f"the parameter {node.arg!r} does not say what it holds"


def _words(name: str) -> list[str]:
    """Return the words of a name in snake or camel case.

    >>> _words("HashIndex_of")
    ['hash', 'index', 'of']
    """
    return re.findall(r"[a-z0-9]+", re.sub(r"([A-Z][a-z]*)", r"_\1", name).lower())


def _metaphors(name: str) -> list[str]:
    return [word for word in _words(name) if word in METAPHORS]


def _is_participle(name: str) -> bool:
    words = _words(name)
    if len(words) != 1 or name.endswith("__") or words[0] in _LISTS["nouns"]:
        return False
    (word,) = words
    return word in _LISTS["irregular_participles"] or (len(word) > 4 and word.endswith(("ed", "ing")))


def main() -> int:
    """Print the faults; the exit code is 1 if there are any."""
    lines = [line for package in PACKAGES for line in faults(package)]
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
