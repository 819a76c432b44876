"""What is wrong with the options of a run is said before Spark starts."""

from __future__ import annotations

from datetime import timedelta

import pytest

import penstock as ps
from penstock import EngineError
from penstock.engines.spark.engine import spell_trigger


@pytest.mark.parametrize(
    ("trigger", "spelling"),
    [
        ("5 seconds", "5000 milliseconds"),
        ("500 ms", "500 milliseconds"),
        ("1 Minute 30 seconds", "90000 milliseconds"),
        ("interval 2 seconds", "2000 milliseconds"),
        ("0 seconds", "0 milliseconds"),
        (timedelta(minutes=1), "60000 milliseconds"),
        (None, None),
    ],
)
def test_triggers_are_written_as_spark_or_penstock_writes_durations(
    trigger: object, spelling: str | None
) -> None:
    assert spell_trigger(trigger) == spelling


@pytest.mark.parametrize("trigger", ["often", "5", 5, "-5 seconds", "1 us", "5 furlongs", "availableNow"])
def test_a_trigger_that_is_no_interval_is_refused_before_the_run(trigger: object) -> None:
    graph = ps.PipeGraph("wrong")
    graph.source(ps.read.batches([[{"v": 1}]], schema={"v": int})).sink(ps.write.memory())
    with pytest.raises(EngineError, match="is not how often a micro-batch can start") as raised:
        graph.run("spark", options=ps.SparkOptions(trigger=trigger))  # type: ignore[arg-type]
    assert f"trigger={trigger!r}" in str(raised.value)
    assert 'SparkOptions(trigger="5 seconds")' in str(raised.value.hint)
