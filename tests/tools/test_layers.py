"""Imports point one way: in our tree, and in small trees where they do not."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "layers.py"


@pytest.fixture(scope="module")
def layers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("layers", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plant_package(folder: Path, name: str, text: str) -> Path:
    """A package with one file in it."""
    package = folder / "src" / "penstock"
    file = package / name
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    return package


@pytest.mark.slow
def test_our_own_imports_point_one_way(layers: ModuleType) -> None:
    assert list(layers.faults()) == []


@pytest.mark.slow
def test_the_command_says_nothing_and_succeeds() -> None:
    done = subprocess.run([sys.executable, str(TOOL)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


WRONG = {
    "graph/x.py": [
        ("from penstock.engines.protocol import Engine\n", "graph must not import engines"),
        ("import penstock.engines.protocol\n", "graph must not import engines"),
        ("from penstock import testing\n", "graph must not import testing"),
        ("import numba\n", "numba may only be imported in kernels"),
        (
            "from pyspark.sql import functions\n",
            "pyspark may only be imported in connect/writers/spark.py, engines/spark",
        ),
        ("def f():\n    import hypothesis\n", "hypothesis may only be imported in testing"),
    ],
    "engines/local/x.py": [
        ("from penstock.graph.pipegraph import PipeGraph\n", "engines must not import graph"),
        ("import pyspark\n", "pyspark may only be imported in connect/writers/spark.py, engines/spark"),
    ],
    "engines/reference/x.py": [
        ("from penstock.stages.stage import Stage\n", "engines/reference must not import stages"),
        ("def f():\n    import penstock.kernels.build\n", "engines/reference must not import kernels"),
    ],
    "engines/x.py": [
        ("from penstock.engines.local.run import LocalRun\n", "engines must not import engines/local"),
    ],
    "stages/rows/x.py": [
        ("from penstock.stages.keys import slots\n", "stages/rows must not import stages/keys"),
    ],
    "operators/x.py": [
        ("from penstock.plan.plan import Step\n", "operators must not import plan"),
        ("def f():\n    from penstock.engines import protocol\n", "operators must not import engines"),
    ],
    "timing/x.py": [("from penstock.expr import col\n", "timing must not import expr")],
    "errors.py": [("from penstock.caller import called_from\n", "errors must not import caller")],
}


@pytest.mark.parametrize(
    ("name", "text", "fault"), [(name, *pair) for name, pairs in WRONG.items() for pair in pairs]
)
def test_an_import_that_points_the_wrong_way_is_found(
    layers: ModuleType, tmp_path: Path, name: str, text: str, fault: str
) -> None:
    (report,) = layers.faults(plant_package(tmp_path, name, text))
    line = text.splitlines().index(next(part for part in text.splitlines() if "import" in part)) + 1
    assert report == f"src/penstock/{name}:{line}: {fault}"


RIGHT = {
    "graph/x.py": "def f():\n    from penstock.engines.protocol import find\n",
    "graph/y.py": "from typing import TYPE_CHECKING\n"
    "if TYPE_CHECKING:\n    from penstock.engines.protocol import Engine\n",
    "kernels/x.py": "import numba\n",
    "engines/spark/x.py": "import pyspark\nfrom penstock.plan.plan import Plan\n",
    "engines/spark/y.py": "from penstock.stages.window.stage import WindowStage\n",
    "stages/rows/x.py": "from typing import TYPE_CHECKING\n"
    "if TYPE_CHECKING:\n    from penstock.stages.window.stage import WindowStage\n",
    "testing/x.py": "import hypothesis\n",
    "plan/x.py": "from penstock.blocks import derive\nimport json\n",
}


@pytest.mark.parametrize("name", list(RIGHT))
def test_an_import_that_points_the_right_way_is_left_alone(
    layers: ModuleType, tmp_path: Path, name: str
) -> None:
    assert list(layers.faults(plant_package(tmp_path, name, RIGHT[name]))) == []
