"""A CUDA device with limits of the user's own: what it may be told, and how it is told of."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import GraphError
from penstock.operators.choices import on_cuda
from penstock.operators.windows import KeyedWindows


def on(device: Any) -> KeyedWindows:
    return KeyedWindows(windows=ps.tumbling(10), aggregates={"n": ps.count()}, device=device)


@pytest.mark.parametrize("value", [0, -1, 2.5, "25", True])
@pytest.mark.parametrize("name", ["n_windows", "batch_rows", "max_keys_per_batch", "max_pending"])
def test_a_limit_that_is_no_number_of_things_is_refused(name: str, value: object) -> None:
    limits: Any = {name: value}
    with pytest.raises(GraphError) as refusal:
        ps.options.Cuda(**limits)
    assert refusal.value.fact == f"{name}={value!r} of a CUDA device is not a whole number of at least 1"
    assert refusal.value.hint is not None
    assert f"ps.options.Cuda({name}=" in refusal.value.hint


def test_any_number_of_keys_may_share_a_batch() -> None:
    assert ps.options.Cuda(max_keys_per_batch=None).limits()["max_keys_per_batch"] is None


def test_asking_for_a_device_with_limits_is_asking_for_it() -> None:
    assert on_cuda(on(ps.options.Cuda()))
    assert on_cuda(on("cuda"))
    assert not on_cuda(on("auto"))


def test_only_limits_of_ones_own_are_told() -> None:
    assert str(ps.options.Cuda()) == "cuda"
    assert str(ps.options.Cuda(max_keys_per_batch=25)) == "cuda (max_keys_per_batch=25)"


def test_explain_tells_the_limits() -> None:
    graph = ps.PipeGraph("device")
    rows = graph.source(ps.read.rows([{"t": 1, "v": 2}]), time="t", time_unit="s", delay="0 s")
    device = ps.options.Cuda(max_keys_per_batch=25)
    rows.window(ps.tumbling("10 s"), device=device).aggregate(n=ps.count()).sink(ps.write.memory())
    assert "cuda (max_keys_per_batch=25), asked for by name" in graph.explain()
