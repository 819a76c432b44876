"""Names that a package looks up on demand."""

from __future__ import annotations

import ast
import gc
import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.lazy import load_module
from penstock.operators import aggregates

SOURCE = Path(ps.__file__).parent
THREADS = """
import sys, threading
sys.setswitchinterval(1e-6)
import penstock as ps
names = [name for name in ps.__all__ if name not in ("read", "write")]
found, begin = [], threading.Barrier(8)
def ask(turn):
    begin.wait()
    for name in names[turn:] + names[:turn]:
        found.append((name, id(getattr(ps, name))))
threads = [threading.Thread(target=ask, args=(5 * turn,)) for turn in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == 8 * len(names), len(found)
assert len(set(found)) == len(names)
"""


def deferring() -> list[Path]:
    return [
        file
        for file in sorted(SOURCE.rglob("*.py"))
        if "    defer(\n" in file.read_text(encoding="utf-8") and file.name != "lazy.py"
    ]


def for_type_checkers(tree: ast.Module) -> set[tuple[str, str]]:
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = (node for node in block.body if isinstance(node, ast.ImportFrom))
    pairs = {(node.module or "", alias.asname or alias.name) for node in imports for alias in node.names}
    return {(f"penstock.{name}" if home == "penstock" else home, name) for home, name in pairs}


def in_the_table(tree: ast.Module) -> set[tuple[str, str]]:
    (table,) = (node for node in ast.walk(tree) if isinstance(node, ast.Dict))
    homes: dict[str, str] = ast.literal_eval(table)
    return {(home, name) for home, names in homes.items() for name in names.split()}


@pytest.mark.parametrize("file", deferring(), ids=lambda file: str(file.relative_to(SOURCE)))
def test_type_checkers_see_the_names_that_are_in_the_table(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert for_type_checkers(tree) == in_the_table(tree)


def test_the_packages_that_defer_were_found() -> None:
    assert {"__init__.py", "read.py", "write.py"} <= {str(file.relative_to(SOURCE)) for file in deferring()}


def test_a_name_is_the_same_object_for_all_threads_that_ask_at_once() -> None:
    subprocess.run([sys.executable, "-c", THREADS], check=True)


def test_a_name_that_is_also_that_of_its_file_is_what_the_file_has() -> None:
    importlib.import_module("penstock.operators.aggregates.basic")
    assert aggregates.sum is ps.sum
    assert callable(ps.sum)


def test_a_name_that_is_not_there_is_an_attribute_error_with_the_name() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'tumbler'"):
        getattr(ps, "tumbler")  # noqa: B009 (type checkers know that it is not there)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("Grph", "'Grph'; did you mean 'PipeGraph'?"),
        ("Pipegraph", "'Pipegraph'; did you mean 'PipeGraph'?"),
        ("tumbler", "'tumbler'; did you mean 'tumbling'?"),
        ("xyzzy", "'xyzzy'"),
        ("_tumbling", "'_tumbling'; did you mean 'tumbling'?"),
    ],
)
def test_a_name_that_is_mistyped_is_told_with_the_one_that_is_most_alike(asked: str, told: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(ps, asked)
    assert str(refused.value) == f"module 'penstock' has no attribute {told}"


def test_nothing_is_looked_for_before_the_message_is_read() -> None:
    program = "import sys, penstock as ps; hasattr(ps, 'Grph'); assert 'difflib' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_readers_and_writers_that_are_mistyped_are_told_too() -> None:
    with pytest.raises(AttributeError, match="did you mean 'parquet'"):
        getattr(ps.read, "parket")  # noqa: B009 (type checkers know that it is not there)
    with pytest.raises(AttributeError, match="did you mean 'memory'"):
        getattr(ps.write, "memry")  # noqa: B009 (type checkers know that it is not there)


def test_a_package_travels_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(ps)) is ps


def test_a_star_gives_the_public_names() -> None:
    space: dict[str, object] = {}
    exec("from penstock import *", space)
    assert space["tumbling"] is ps.tumbling
    assert "defer" not in space


@pytest.mark.parametrize("enabled", [True, False])
def test_loading_a_module_leaves_the_search_for_garbage_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        sys.modules.pop("this_is_not_there", None)
        with pytest.raises(ModuleNotFoundError):
            load_module("this_is_not_there")
        assert gc.isenabled() is enabled
        assert load_module("penstock.read") is ps.read
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
