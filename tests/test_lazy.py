"""Names that a package looks up on demand."""

from __future__ import annotations

import ast
import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.operators import aggregates

SOURCE = Path(ps.__file__).parent
THREADS = """
import sys, threading
sys.setswitchinterval(1e-6)
import penstock as ps
names = [name for name in ps.__all__ if name not in ("read", "write")]
values, begin = [], threading.Barrier(8)
def ask(start):
    begin.wait()
    for name in names[start:] + names[:start]:
        values.append((name, id(getattr(ps, name))))
threads = [threading.Thread(target=ask, args=(5 * n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(values) == 8 * len(names), len(values)
assert len(set(values)) == len(names)
"""


def lazy_packages() -> list[Path]:
    return [
        file
        for file in sorted(SOURCE.rglob("*.py"))
        if "    defer(\n" in file.read_text(encoding="utf-8") and file.name != "lazy.py"
    ]


def names_for_type_checkers(tree: ast.Module) -> set[tuple[str, str]]:
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = (node for node in block.body if isinstance(node, ast.ImportFrom))
    pairs = {(node.module or "", alias.asname or alias.name) for node in imports for alias in node.names}
    return {(f"penstock.{name}" if home == "penstock" else home, name) for home, name in pairs}


def names_in_table(tree: ast.Module) -> set[tuple[str, str]]:
    (table,) = (node for node in ast.walk(tree) if isinstance(node, ast.Dict))
    homes: dict[str, str] = ast.literal_eval(table)
    return {(home, name) for home, names in homes.items() for name in names.split()}


@pytest.mark.parametrize("file", lazy_packages(), ids=lambda file: str(file.relative_to(SOURCE)))
def test_type_checkers_see_the_names_that_are_in_the_table(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert names_for_type_checkers(tree) == names_in_table(tree)


def test_the_packages_that_defer_were_found() -> None:
    assert {"__init__.py", "read.py", "write.py"} <= {
        str(file.relative_to(SOURCE)) for file in lazy_packages()
    }


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
    ("name", "message"),
    [
        ("Grph", "'Grph'; did you mean 'PipeGraph'?"),
        ("Pipegraph", "'Pipegraph'; did you mean 'PipeGraph'?"),
        ("tumbler", "'tumbler'; did you mean 'tumbling'?"),
        ("xyzzy", "'xyzzy'"),
        ("_tumbling", "'_tumbling'; did you mean 'tumbling'?"),
    ],
)
def test_a_name_that_is_mistyped_is_refused_with_the_one_that_is_most_alike(name: str, message: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(ps, name)
    assert str(refused.value) == f"module 'penstock' has no attribute {message}"


def test_nothing_is_looked_for_before_the_message_is_read() -> None:
    program = "import sys, penstock as ps; hasattr(ps, 'Grph'); assert 'difflib' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_readers_and_writers_that_are_mistyped_are_refused_likewise() -> None:
    with pytest.raises(AttributeError, match="did you mean 'parquet'"):
        getattr(ps.read, "parket")  # noqa: B009 (type checkers know that it is not there)
    with pytest.raises(AttributeError, match="did you mean 'memory'"):
        getattr(ps.write, "memry")  # noqa: B009 (type checkers know that it is not there)


def test_a_package_travels_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(ps)) is ps


def test_a_star_gives_the_public_names() -> None:
    namespace: dict[str, object] = {}
    exec("from penstock import *", namespace)
    assert namespace["tumbling"] is ps.tumbling
    assert "defer" not in namespace
