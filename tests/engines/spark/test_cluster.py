"""Distributed for real: a master, two workers, cases of the suite, and an executor that is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_cluster import cluster

ROOT = Path(__file__).parents[3]
FILES = ("tests/conformance", "tests/support/spark_cluster_program.py")


@pytest.mark.slow
def test_cases_of_the_conformance_suite_and_the_loss_of_an_executor_pass_on_a_cluster(tmp_path: Path) -> None:
    with cluster(tmp_path) as master:
        options = ["-q", "-p", "no:cacheprovider", "-m", "everywhere"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, "--engines=spark", f"--master={master}", *FILES],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    n_passed = int(done.stdout.split(" passed")[0].split()[-1])
    assert n_passed >= 15, done.stdout
