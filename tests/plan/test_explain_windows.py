"""What explain() says of window steps: pattern, slices, algorithms, rows kept, device and memory."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

import penstock as ps
from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.operators.windows import Windows
from penstock.stages.stage import StageContext
from penstock.stages.window.stage import WindowStage
from penstock.stages.window.time_store import TimeStore

SCHEMA = {"k": "string", "t": "timestamp[us]", "v": "int64", "x": "float64"}
EVERY_SECOND = ps.sliding("10 s", every="1 s")
SWEEP = "sweep: two stacks"
TREE = "B-PAT when few windows close at once, for a logarithm of 10 slices each"


def source() -> ps.MultiPipe:
    graph = ps.PipeGraph("g")
    return graph.source(ps.read.rows([], schema=SCHEMA), time="t", delay="1 s").key_by("k")


def explain_by_topic(pipe: ps.MultiPipe) -> dict[str, list[str]]:
    """What is said of the window step, by topic."""
    pipe.sink(ps.write.memory())
    result = defaultdict(list)
    (step,) = [step for step in json.loads(pipe.graph.explain(format="json"))["steps"] if step["windows"]]
    for line in step["windows"]:
        result[line["topic"]].append(line["says"])
    return dict(result)


def test_a_pattern_that_was_chosen_says_why_and_what_becomes_of_the_step() -> None:
    unkeyed = ps.PipeGraph("g").source(ps.read.rows([], schema=SCHEMA), time="t", delay="1 s")
    notes = explain_by_topic(unkeyed.window(EVERY_SECOND, parallelism=4).aggregate(n=ps.count()))
    assert notes["pattern"] == [
        "paned, chosen because there is no key, and windows overlap: each is made of up to 10 slices, "
        "which are shared out; PLQ + WLQ: slices go to replicas in turn, and windows are combined "
        "from them by key"
    ]


@pytest.mark.parametrize("pattern", ["keyed", "parallel", "paned", "map_reduce"])
def test_a_pattern_that_was_named_says_so(pattern: Any) -> None:
    (notes,) = explain_by_topic(source().window(EVERY_SECOND, pattern=pattern).aggregate(n=ps.count()))[
        "pattern"
    ]
    assert notes.startswith(f"{pattern}, asked for by name; ")


def test_a_tumbling_window_is_one_slice_and_needs_no_tree() -> None:
    notes = explain_by_topic(source().window(ps.tumbling("10 s")).aggregate(n=ps.count(), most=ps.max("v")))
    assert notes["slices"] == ["tumbling 10 s: 1 per slide, 1 in a window"]
    assert notes["algorithm"] == [
        'n=count(), most=max(col("v")): direct: a window is one slice, and needs no tree'
    ]
    assert notes["memory"] == ["24 bytes per key and open slice"]  # rows, values, the greatest


def test_windows_of_several_slices_go_over_two_stacks_or_a_tree() -> None:
    notes = explain_by_topic(
        source()
        .window(EVERY_SECOND)
        .aggregate(n=ps.count(), total=ps.sum("v"), mean=ps.mean("x"), most=ps.max("v"))
    )
    assert notes["slices"] == ["sliding 10 s every 1 s: 1 per slide, 10 in a window"]
    names = 'n=count(), total=sum(col("v")), mean=mean(col("x")), most=max(col("v"))'
    assert notes["algorithm"] == [f"{names}: {SWEEP}; {TREE}"]


def test_a_slide_that_does_not_divide_the_window_has_two_slices() -> None:
    notes = explain_by_topic(source().window(ps.sliding("10 s", every="3 s")).aggregate(n=ps.count()))
    assert notes["slices"] == ["sliding 10 s every 3 s: 2 per slide, 7 in a window"]


def test_windows_that_share_slices_say_so() -> None:
    notes = explain_by_topic(
        source().window(fast=ps.tumbling("1 s"), slow=EVERY_SECOND).aggregate(n=ps.count())
    )
    assert notes["slices"] == [
        "fast: tumbling 1 s: 1 per slide, 1 in a window, shared with other windows",
        "slow: sliding 10 s every 1 s: 1 per slide, 10 in a window, shared with other windows",
    ]


def test_sessions_and_count_windows_have_no_slices_of_time() -> None:
    windows = source().window(visit=ps.session("5 s"), ten=ps.count_window(10))
    notes = explain_by_topic(windows.aggregate(n=ps.count()))
    assert notes["slices"] == [
        "visit: session with gap 5 s: none; where a session ends depends on its rows",
        "ten: count 10: none of time; rows wait to be put in order, then panes of rows",
    ]
    assert notes["algorithm"] == [
        "n=count() in visit: kept per open session, as rows come",
        "n=count() in ten: direct: a window is one slice, and needs no tree",
    ]
    assert notes["memory"] == [
        "24 bytes per key and open session",
        "24 bytes per key and pane of rows",
        "every row of a count window until the watermark puts it in order",
    ]
    assert notes["device"] == ["cpu: session with gap 5 s is not made of slices of time"]


def lift(row: Any) -> tuple[float, float]:
    return row.x, 1.0


def combine(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return a[0] + b[0], a[1] + b[1]


def mean(part: tuple[float, float]) -> float:
    return part[0] / part[1]


def of_row(row: Any) -> int:
    return int(row.v)


def add(a: int, b: int) -> int:
    return a + b


def test_a_fold_says_whether_it_is_compiled_and_why_not() -> None:
    notes = explain_by_topic(
        source()
        .window(EVERY_SECOND)
        .aggregate(
            fast=ps.fold(lift, combine, (0.0, 0.0), mean, columns="x"),
            slow=ps.fold(of_row, add, 0),
        )
    )
    why = "its zero is not of floats; with 0.0 in it, it could be compiled"
    assert notes["fold"] == [
        "fast=fold(combine) is compiled, if Numba can",
        f"slow=fold(add) runs in Python: {why}",
    ]
    assert notes["keeps rows"] == [f"for slow=fold(add): {why}"]
    assert notes["memory"][0].startswith("24 bytes per key and open slice")


def test_rows_that_are_kept_say_for_what() -> None:
    notes = explain_by_topic(
        source().window(EVERY_SECOND).aggregate(all=ps.collect("v"), first=ps.first("v"))
    )
    assert notes["keeps rows"] == [
        'for all=collect(col("v")): it is made from all values of a window',
        'for first=first(col("v")), unless the reader numbers them: '
        "rows of one time have no number that puts them in order",
    ]
    assert notes["slices"] == ["sliding 10 s every 1 s: none; only rows are kept"]
    assert notes["memory"] == ["every row until its last window leaves"]


def whole(rows: list[Any]) -> dict[str, int]:
    return {"n": len(rows)}


def test_a_function_of_whole_windows_keeps_their_rows() -> None:
    notes = explain_by_topic(source().window(EVERY_SECOND).apply(whole, schema={"n": "int64"}))
    assert notes["keeps rows"] == ["for row function whole: it sees whole windows"]
    assert "algorithm" not in notes


def test_sketches_are_kept_per_slice_and_told_of() -> None:
    notes = explain_by_topic(
        source().window(EVERY_SECOND).aggregate(n=ps.count(), middle=ps.quantile("x", 0.5))
    )
    assert 'middle=quantile(col("x")): a sketch per slice; a window\'s are merged' in notes["algorithm"]
    assert notes["memory"][0].startswith("8 bytes and 1 sketch per key and open slice")
    assert "keeps rows" not in notes


@pytest.mark.parametrize(
    ("device", "says"),
    [("auto", "a CUDA device where the run has one, else cpu"), ("cpu", "cpu, asked for by name")],
)
def test_the_device_is_told(device: Any, says: str) -> None:
    assert explain_by_topic(source().window(EVERY_SECOND, device=device).aggregate(n=ps.count()))[
        "device"
    ] == [says]


def test_steps_without_windows_say_nothing_of_them() -> None:
    pipe = source().with_columns(v=ps.col("v") + 1)
    pipe.sink(ps.write.memory())
    assert all(step["windows"] == [] for step in json.loads(pipe.graph.explain(format="json"))["steps"])


def test_what_is_said_is_printed_with_the_step() -> None:
    pipe = source().window(ps.tumbling("10 s"), name="views").aggregate(n=ps.count())
    pipe.sink(ps.write.memory())
    lines = [line.strip() for line in pipe.graph.explain().splitlines()]
    assert "slices      tumbling 10 s: 1 per slide, 1 in a window" in lines
    assert "memory      8 bytes per key and open slice" in lines


AGGREGATES: dict[str, Any] = {
    "n": ps.count(),
    "total": ps.sum("v"),
    "mean": ps.mean("v"),
    "spread": ps.std("x"),
    "most": ps.max_count("x"),
    "least": ps.min("v"),
    "fold": ps.fold(lift, combine, (0.0, 0.0), mean, columns="x"),
}


@pytest.mark.parametrize("names", [["n"], ["total", "mean"], ["spread", "most", "least"], list(AGGREGATES)])
def test_memory_is_what_the_stage_takes_per_slice(names: list[str]) -> None:
    pipe = source().window(ps.tumbling("10 s")).aggregate({name: AGGREGATES[name] for name in names})
    (notes,) = explain_by_topic(pipe)["memory"]
    step = pipe.graph.steps["window"]
    assert isinstance(step.op, Windows)
    stage = WindowStage(step.op, step.up, StageContext("window", None, Accounts(), ManualClock()))
    store = stage._groups[0].store
    assert isinstance(store, TimeStore)
    assert notes == f"{8 * sum(rule.width for rule in store._arena.rules)} bytes per key and open slice"
