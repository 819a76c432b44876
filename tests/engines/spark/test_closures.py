"""What cannot be sent to workers is named with its function, and a worker says which package it lacks."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import penstock as ps
from penstock import FunctionError
from penstock.engines.spark.closures import find_culprit, require_picklable, run_in_worker
from tests.support.window_tasks import recipe

LOCK = threading.Lock()


def add(a: float, b: float) -> float:
    return a + b


def keep(a: object, b: object) -> object:
    return a or b


def close_over(value: object) -> Callable[[Any], float]:
    return lambda row: float(row.n if value else 0)


def call_another(inner: Callable[[Any], float]) -> Callable[[Any], float]:
    def outer(row: Any) -> float:
        return inner(row)

    return outer


class Counter:
    """A function with a state that cannot be sent."""

    def __init__(self) -> None:
        self.guard = threading.Lock()

    def __call__(self, row: Any) -> float:
        with self.guard:
            return 1.0


def test_a_fold_that_holds_a_lock_is_refused_with_the_line_of_its_function() -> None:
    fold = ps.fold(close_over(threading.Lock()), add, 0.0, columns="n")
    with pytest.raises(FunctionError, match=r"aggregate twice=fold\(add\) cannot be sent") as raised:
        require_picklable(f"aggregate twice={fold}", fold)
    error = raised.value
    assert error.where is not None
    assert error.where.file == "tests/engines/spark/test_closures.py"
    assert error.where.line == close_over.__code__.co_firstlineno + 1
    assert error.detail is not None
    assert "close_over.<locals>.<lambda>" in error.detail
    assert 'holds "value", a _thread.lock: cannot pickle' in error.detail
    assert error.hint is not None
    assert 'create "value" inside the function' in error.hint


def test_an_open_file_is_named_by_its_variable(tmp_path: Any) -> None:
    with (tmp_path / "log").open("w") as log, pytest.raises(FunctionError, match=r"a _io\.TextIOWrapper"):
        require_picklable("aggregate a", close_over(log))


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (call_another(close_over(LOCK)), "value"),
        (partial(keep, LOCK), "argument 0"),
        (partial(keep, b=LOCK), "b"),
        (Counter(), "guard"),
        (Counter().__call__, "guard"),
        ([{"a": LOCK}], "a"),
    ],
    ids=["inner function", "argument", "keyword", "object", "method", "collection"],
)
def test_the_innermost_value_is_to_blame(function: object, name: str) -> None:
    culprit = find_culprit(function)
    assert culprit is not None
    assert culprit.name == name
    assert isinstance(culprit.value, type(LOCK))


def test_what_can_be_sent_is_not_refused() -> None:
    require_picklable("aggregate a", ps.fold(close_over(3), add, 0.0, columns="n"))


def test_an_object_that_refuses_by_itself_is_to_blame() -> None:
    class Stubborn:
        def __reduce__(self) -> Any:
            raise RuntimeError("not me")

    with pytest.raises(FunctionError, match="Stubborn: not me"):
        require_picklable("aggregate a", close_over(Stubborn()))


def test_a_wrapped_method_does_what_the_method_does() -> None:
    task = recipe(ps.session("4 s"))
    run = cloudpickle.loads(cloudpickle.dumps(run_in_worker(task.pack_by_group)))
    assert list(run(iter([]))) == []


def test_a_worker_without_the_package_says_so_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloudpickle, "dumps", lambda task: b"cnot_installed.here\nTask\n.")
    run = run_in_worker(iter)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from ()

    with pytest.raises(ImportError, match='a Python worker of Spark cannot import "not_installed"') as raised:
        run(batches())
    assert 'os.environ["PYSPARK_PYTHON"] = sys.executable' in str(raised.value)


WITHOUT_US = """
import pickle, sys
sys.modules["penstock"] = None
run = pickle.loads(sys.stdin.buffer.read())
try:
    run(iter([]))
except ImportError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_wrapped_method_is_loaded_where_penstock_is_missing_and_says_that() -> None:
    run = run_in_worker(recipe(ps.session("4 s")).pack_by_group)
    worker = subprocess.run(
        [sys.executable, "-c", WITHOUT_US], input=cloudpickle.dumps(run), capture_output=True, check=True
    )
    assert b'a Python worker of Spark cannot import "penstock"' in worker.stdout
