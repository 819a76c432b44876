"""Which window steps a device can take is known before a run, and a step that asks in vain is refused."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import GraphError, NotSupported, PenstockError
from penstock.operators import aggregates as spec
from penstock.operators.op import IN
from penstock.operators.windows import KeyedWindows, MapReduceWindows, PanedWindows, ParallelWindows, Windows
from penstock.timing.windows import count_window, session, sliding, tumbling
from tests.support.window_cases import REGISTERS, ROWS, SKETCHES, WIDE
from tests.support.windows import Case

COUNT = {"n": spec.count()}


def refusal(op: Windows) -> PenstockError:
    with pytest.raises(PenstockError) as failure:
        op.outputs({IN: Case(op, [], schema=WIDE).up})
    return failure.value


def sample(rows: list[Any]) -> dict[str, int]:
    return {"n": len(rows)}


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (
            KeyedWindows(windows=session(5), aggregates=COUNT, device="cuda"),
            "session with gap 5 is not made of slices of time",
        ),
        (
            KeyedWindows(windows={"a": tumbling(5), "b": count_window(5)}, aggregates=COUNT, device="cuda"),
            "count 5 is not made of slices of time",
        ),
        (
            KeyedWindows(windows=tumbling(5), apply=sample, schema={"n": int}, device="cuda"),
            "rows are kept for row function sample, which sees whole windows",
        ),
        (
            KeyedWindows(windows=tumbling(5), aggregates={"all": spec.collect("v")}, device="cuda"),
            'all=collect(col("v")) needs more than accumulators: it is made from all values of a window',
        ),
        (
            PanedWindows(windows=tumbling(5), aggregates=COUNT, device="cuda"),
            "paned windows are merged from partials",
        ),
        (
            MapReduceWindows(windows=tumbling(5), aggregates=COUNT, device="cuda"),
            "map_reduce windows are merged from partials",
        ),
    ],
)
def test_a_step_that_no_device_can_take_is_refused_when_it_is_built(op: Windows, why: str) -> None:
    error = refusal(op)
    assert isinstance(error, NotSupported)
    assert error.fact == f'device="cuda" was asked for, but {why}'
    assert (error.hint or "").startswith('say device="auto"')


@pytest.mark.parametrize("name", [*ROWS, *SKETCHES])
def test_an_aggregate_that_registers_cannot_hold_is_refused(name: str) -> None:
    aggregate = {**ROWS, **SKETCHES}[name]
    op = KeyedWindows(windows=tumbling(5), aggregates={name: aggregate}, device="cuda")
    if name in ("last", "first_v"):  # a reader that numbers rows makes these possible, so a run decides
        op.outputs({IN: Case(op, [], schema=WIDE).up})
    else:
        assert f"{name}={aggregate} needs more than accumulators: " in refusal(op).fact


@pytest.mark.parametrize("name", REGISTERS)
@pytest.mark.parametrize("kind", [KeyedWindows, ParallelWindows])
def test_every_register_may_be_on_a_device(kind: type[Windows], name: str) -> None:
    op = kind(windows=sliding(5, 2), aggregates={name: REGISTERS[name]}, device="cuda")
    op.outputs({IN: Case(op, [], schema=WIDE).up})


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_other_devices_refuse_nothing(device: str) -> None:
    op = KeyedWindows(windows=session(5), aggregates=COUNT, device=device)
    op.outputs({IN: Case(op, [], schema=WIDE).up})


def test_an_unknown_device_lists_the_known_ones_nearest_first() -> None:
    with pytest.raises(GraphError) as failure:
        KeyedWindows(windows=tumbling(5), aggregates=COUNT, device="cudo")
    assert failure.value.fact == "device='cudo' is unknown"
    assert (failure.value.detail or "").startswith("the devices are cuda, ")
    assert failure.value.hint == 'say device="cuda"'


def sum_windows(**options: Any) -> ps.MultiPipe:
    rows = [{"t": 1, "v": 2}]
    source = ps.PipeGraph("g").source(ps.read.rows(rows), time="t", time_unit="us", delay="0 s")
    return source.window(name="sums", parallelism=4, **options).aggregate(s=ps.sum("v"))


def test_the_verb_hands_the_device_on_and_names_the_step_that_is_refused() -> None:
    with pytest.raises(NotSupported) as failure:
        sum_windows(window=ps.session("5 us"), device="cuda")
    assert failure.value.step == "sums"
    assert failure.value.where is not None


def test_a_step_that_asks_for_a_device_is_not_cut_into_parts() -> None:
    pipe = sum_windows(window=ps.sliding("5 us", "1 us"), device="cuda")
    assert isinstance(pipe.graph.steps["sums"].op, KeyedWindows)
