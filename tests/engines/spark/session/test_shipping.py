"""The package as a zip: Python imports it from there, kernels and all, and equal files make equal zips."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.engines.spark.session.py_files import PACKAGE, check_py_files

PROBE = """
import penstock.stages.window.stage, penstock.engines.spark.session.daemon, penstock.kernels.build
print(penstock.kernels.build.__file__)
from penstock.kernels.build import list_loops
print(list_loops()[0].compiled is not None)
"""


@pytest.mark.slow
def test_a_worker_imports_the_package_and_its_kernels_from_the_zip(tmp_path: Path) -> None:
    (package,) = check_py_files(PACKAGE)
    zipped = package.write(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={**os.environ, "PYTHONPATH": str(zipped), "NUMBA_CACHE_DIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where, built = done.stdout.split()
    assert where.startswith(str(zipped))
    assert built == "True"


def test_the_same_files_make_the_same_zip(tmp_path: Path) -> None:
    (first,), (second,) = check_py_files(PACKAGE), check_py_files(PACKAGE)
    assert first.name == second.name
    (tmp_path / "again").mkdir()
    assert first.write(tmp_path).read_bytes() == second.write(tmp_path / "again").read_bytes()
