"""What `LocalOptions` may say, and what is told when they make no sense."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock import EngineError, NotSupported
from penstock.engines.local.settings import settings


def graph() -> ps.PipeGraph:
    """A small program."""
    made = ps.PipeGraph("small")
    rows = made.source(ps.read.rows([{"v": 1}], schema={"v": "int64"}), name="rows")
    rows.filter(ps.col("v") > 0, name="kept").sink(ps.write.memory(), name="out")
    return made


@pytest.mark.parametrize(
    ("asked", "fact", "hint"),
    [
        ({"threads": 0}, "threads=0 is not a number of threads", 'threads="per-node"'),
        ({"threads": "all"}, "threads='all' is not a number of threads", "threads=4"),
        ({"threads": True}, "threads=True is not a number of threads", "threads=4"),
        ({"queue_size": 0}, "queue_size=0 is not a number of batches", "queue_size=64"),
        ({"measure": "no"}, "measure='no' is neither True nor False", "use measure=True"),
        ({"preaggregate": 3}, "preaggregate=3 is neither True nor False", "use preaggregate=True"),
        ({"deterministic": "x"}, "deterministic='x' is neither True nor False", "use deterministic=True"),
        ({"pinning": None}, "pinning=None is neither True nor False", "use pinning=True"),
        ({"queue_size": 1.5}, "queue_size=1.5 is not a number of batches", "use 1 or more"),
        ({"quantum": "50"}, "quantum='50' is not a length of time", 'quantum="50 ms"'),
        ({"quantum": "0 s"}, "quantum='0 s' leaves no time to run", 'quantum="50 ms"'),
        ({"save_every": 3}, "save_every=3 is not a length of time", 'save_every="50 ms"'),
        ({"watchdog": "soon"}, "watchdog='soon' is not a length of time", 'watchdog="50 ms"'),
        ({"scheduler": "throughputs"}, "scheduler='throughputs' is unknown", 'scheduler="throughput"'),
        ({"channels": "spinnin"}, "channels='spinnin' is unknown", 'channels="spinning"'),
        ({"composition": "central"}, "composition='central' is unknown", 'composition="centralised"'),
        ({"dedicated": ("keep",)}, "dedicated='keep' is unknown", 'dedicated="kept"'),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_does(asked: dict[str, Any], fact: str, hint: str) -> None:
    with pytest.raises(EngineError) as refusal:
        graph().run("local", options=ps.LocalOptions(**asked))
    assert refusal.value.fact == fact
    assert hint in str(refusal.value.hint)


def test_options_of_another_engine_are_refused() -> None:
    with pytest.raises(EngineError, match="takes LocalOptions, and got SparkOptions"):
        graph().run("local", options=ps.SparkOptions())


def test_a_master_is_refused() -> None:
    with pytest.raises(NotSupported, match='was given master="spark://host:7077"'):
        graph().run("local", master="spark://host:7077")


def test_a_session_keeps_no_checkpoint() -> None:
    from penstock.engines.local.engine import LocalEngine
    from penstock.engines.protocol import RunOptions

    plan = graph().plan()
    with pytest.raises(NotSupported, match="fed by hand keeps no checkpoint"):
        LocalEngine().session(
            plan, clock=ps.ManualClock(), events=lambda event: None, options=RunOptions(checkpoint="state/")
        )


def test_a_preset_decides_what_was_left_open() -> None:
    plan = graph().plan()
    latency, throughput = (
        settings(ps.LocalOptions(scheduler=name), plan) for name in ("latency", "throughput")
    )
    assert latency.quantum_ns < throughput.quantum_ns
    assert latency.queue_size < throughput.queue_size
    assert settings(ps.LocalOptions(scheduler="latency", queue_size=7), plan).queue_size == 7
    assert settings(ps.LocalOptions(threads="per-node"), plan).threads == 0
