"""Distributed for real: a master, two workers, cases of the suite, and an executor that is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.spark import dying
from tests.engines.spark.cluster import Cluster, cluster

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def test_cases_of_the_conformance_suite_pass_on_a_cluster(running: Cluster) -> None:
    options = ["-q", "-p", "no:cacheprovider", "--engines=spark", f"--master={running.master}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-m", "everywhere", "tests/conformance"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


def test_a_run_that_loses_an_executor_writes_every_row_once(running: Cluster, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.engines.spark.cluster_program"),
            *(str(tmp_path), running.master, str(running.workers[0])),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    killed, packages = done.stdout.splitlines()
    assert killed == "killed"
    assert dying.written(tmp_path) == dying.expected(tmp_path / "whole")
    # Executors here could import the installed package; they use the one that came with the program.
    assert all("penstock-" in package and ".zip/" in package for package in packages.split())
