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


def stubs() -> list[Path]:
    return sorted(SOURCE.rglob("*.pyi"))


@pytest.mark.parametrize("stub", stubs(), ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_package_has_the_names_of_its_stub(stub: Path) -> None:
    path = stub.with_suffix("").relative_to(SOURCE.parent)
    package = importlib.import_module(".".join(path.parts).removesuffix(".__init__"))
    imports = [node for node in ast.parse(stub.read_text("utf-8")).body if isinstance(node, ast.ImportFrom)]
    names = {alias.asname: (node.module, alias.name) for node in imports for alias in node.names}
    assert set(package.__all__) == set(names)
    for name, (home, original) in names.items():
        assert name == original
        assert getattr(package, name) is getattr(importlib.import_module(str(home)), name)


def test_the_public_packages_have_stubs() -> None:
    assert {"__init__.pyi", "read.pyi", "write.pyi"} <= {str(stub.relative_to(SOURCE)) for stub in stubs()}


def test_a_name_is_the_same_object_for_all_threads_that_ask_at_once() -> None:
    subprocess.run([sys.executable, "-c", THREADS], check=True)


def test_a_name_that_is_also_that_of_its_file_is_what_the_file_has() -> None:
    importlib.import_module("penstock.operators.aggregates")
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
    assert "attach_stub" not in namespace
