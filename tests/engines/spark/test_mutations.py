"""A part of the campaign of mutations on Spark, whose own files of a checkpoint are mutated too."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.faults.mutations import GOOD, PROGRAMS, mutate_on
from penstock.engines.spark.session.session import RunSession


@pytest.mark.nightly
def test_what_is_damaged_is_refused_by_name_or_makes_no_difference(
    tmp_path: Path, spark_session: RunSession
) -> None:
    cases = mutate_on("spark", "spark", list(PROGRAMS), 16, folder=tmp_path, seed=4, tell=lambda line: None)
    wrong = [f"{case}\n{case.text}" for case in cases if case.verdict not in GOOD]
    assert not wrong, "\n".join(wrong)
