"""Distributed for real: a master, two workers, cases of the suite, and an executor that is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_cluster import cluster

ROOT = Path(__file__).parents[3]
FILES = ("tests/conformance", "tests/support/spark_cluster_program.py")


def count_passed(folder: Path, *options: str) -> int:
    """Run cases of the conformance suite on a cluster; return how many passed, when none failed."""
    with cluster(folder) as master:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        done = subprocess.run(
            [*command, "--engines=spark", f"--master={master}", *FILES],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.split(" passed")[0].split()[-1])


@pytest.mark.slow
def test_cases_of_the_conformance_suite_and_the_loss_of_an_executor_pass_on_a_cluster(tmp_path: Path) -> None:
    assert count_passed(tmp_path, "-m", "everywhere") >= 15


@pytest.mark.nightly
def test_the_whole_conformance_suite_passes_on_a_cluster(tmp_path: Path) -> None:
    assert count_passed(tmp_path) >= 300
