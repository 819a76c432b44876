"""Rows that fail: the run stops and says where, or the row is counted, or it goes to `.errors`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock import col
from tests.conformance.case import Case, same_rows
from tests.conformance.engines import everywhere

FEATURE = "Error policies"
Step = Callable[..., ps.MultiPipe]


def hundredth(row: Any) -> dict[str, int]:
    """Fails on zero."""
    return {"v": 100 // row.v}


def hundredths(row: Any) -> Iterator[dict[str, int]]:
    """Gives one row and only then fails on zero."""
    yield {"v": row.v}
    yield {"v": 100 // row.v}


def by_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Fails as a whole when a single value is zero."""
    return pa.RecordBatch.from_arrays([pc.divide_checked(100, batch["v"])], names=["v"])


V = {"v": "int64"}
FAILING: dict[str, Step] = {
    "map by expression": lambda rows, **o: rows.with_columns(v=100 // col("v"), **o),
    "select": lambda rows, **o: rows.select(v=100 // col("v"), **o),
    "filter by expression": lambda rows, **o: rows.filter(100 // col("v") > 0, **o),
    "map by row function": lambda rows, **o: rows.map(hundredth, schema=V, **o),
    "filter by row function": lambda rows, **o: rows.filter(lambda row: 100 // row.v > 0, **o),
    "flat_map by row function": lambda rows, **o: rows.flat_map(hundredths, schema=V, **o),
    "map by batch function": lambda rows, **o: rows.map(ps.batch(by_batch, schema=V), **o),
    "flat_map by batch function": lambda rows, **o: rows.flat_map(ps.batch(by_batch, schema=V), **o),
    "filter by batch function": lambda rows, **o: rows.filter(
        ps.batch(lambda batch: pc.greater(pc.divide_checked(100, batch["v"]), 0)), **o
    ),
    "split": lambda rows, **o: rows.split(lambda row: 100 // row.v and 0, 2, **o)[0],
}
"""Steps that cannot handle a zero."""


@pytest.mark.parametrize("step", list(FAILING))
def test_a_failing_row_stops_the_run_and_the_error_names_step_place_and_row(case: Case, step: str) -> None:
    rows = case.untimed_source("v", [(4,), (0,)])
    with pytest.raises(ps.FunctionError) as failure:
        case.run(FAILING[step](rows, name="risky"))
    assert failure.value.step == "risky"
    assert "test_error_policies.py" in str(failure.value.where)
    assert "zero" in (failure.value.detail or "")
    if "batch function" not in step:  # a batch that failed as a whole does not say which row it was
        assert "v=0" in (failure.value.detail or "")


@pytest.mark.parametrize("step", list(FAILING))
def test_skip_drops_and_counts_the_failing_row_only(case: Case, step: str) -> None:
    rows = case.untimed_source("v", [(4,), (0,), (5,)], [(0,), (2,)])
    outcome = case.run(FAILING[step](rows, name="risky", on_error="skip"))
    account = outcome.account("risky")
    assert (account.rows_in, account.errors, account.passed) == (5, 2, 3)
    assert 0 not in outcome.values("v")


@pytest.mark.parametrize("step", list(FAILING))
def test_dead_letters_carry_the_row_the_reason_and_the_step(case: Case, step: str) -> None:
    rows = case.untimed_source("v", [(4,), (0,), (5,)], [(2,)])
    good = FAILING[step](rows, name="risky", on_error="dead_letter")
    outcome = case.run(good, case.graph["risky"].errors)
    (letter,) = outcome.rows(1)
    assert (letter["v"], letter["error_step"]) == (0, "risky")
    assert "zero" in letter["error"]
    assert (outcome.account("risky").errors, outcome.account("risky").passed) == (1, 3)


def stop_at_zero(row: ps.Row) -> dict[str, object]:
    """What Python itself takes for the end of a loop."""
    if row.v == 0:
        raise StopIteration
    return {"v": row.v}


@pytest.mark.parametrize("sizes", [(4,), (1, 1, 2)], ids=["one batch", "several"])
def test_a_function_that_raises_what_ends_loops_loses_no_other_row(
    case: Case, sizes: tuple[int, ...]
) -> None:
    values = iter([(4,), (0,), (5,), (0,)])
    rows = case.untimed_source("v", *([next(values) for _ in range(size)] for size in sizes))
    outcome = case.run(rows.map(stop_at_zero, schema=V, name="risky", on_error="skip"))
    assert outcome.bag("v") == [4, 5]
    assert outcome.account("risky").errors == 2


@everywhere
def test_an_error_keeps_what_the_function_raised(case: Case) -> None:
    with pytest.raises(ps.FunctionError) as failure:
        case.run(case.untimed_source("v", [(0,)]).map(hundredth, schema=V))
    assert isinstance(failure.value.__cause__, ZeroDivisionError)
    assert "hundredth" in str(failure.value)


@pytest.mark.parametrize(
    ("expression", "value", "reason"),
    [
        (col("v") + 1, 2**63 - 1, "overflow"),
        (-col("v"), -(2**63), "overflow"),
        (col("v") * 2, 2**62, "overflow"),
        (col("v") / 0, 1, "zero"),
        (col("v") % 0, 1, "zero"),
        (col("v").cast("int8"), 128, "128"),
    ],
    ids=str,
)
def test_what_cannot_be_computed_is_a_row_error_never_a_wrong_value(
    case: Case, expression: ps.Expr, value: int, reason: str
) -> None:
    rows = case.untimed_source("v", [(1 if value != 1 else 2,), (value,), (None,)])
    mapped = rows.with_columns(x=expression, on_error="dead_letter", name="m")
    letters = case.run(mapped.errors).rows()
    assert value in [letter["v"] for letter in letters]
    assert all(reason in letter["error"] for letter in letters)
    assert None not in [letter["v"] for letter in letters]


@pytest.mark.parametrize(
    "wrong",
    [{"v": "text"}, {"v": 2**63}, {}, {"v": 1, "x": 2}, 7, None],
    ids=["type", "range", "missing", "unknown", "no row", "nothing"],
)
def test_what_is_no_row_of_the_schema_is_a_row_error(case: Case, wrong: object) -> None:
    rows = case.untimed_source("v", [(1,), (2,)])
    mapped = rows.map(lambda row: {"v": 1} if row.v == 1 else wrong, schema=V, on_error="skip", name="m")
    assert case.gives(mapped, "v", (1,)).account("m").errors == 1


def test_a_filter_function_must_say_true_or_false(case: Case) -> None:
    rows = case.untimed_source("v", [(1,), (2,)]).filter(
        lambda row: row.v == 1 or "yes", on_error="skip", name="f"
    )
    assert case.gives(rows, "v", (1,)).account("f").errors == 1


@pytest.mark.parametrize("index", [2, -1, "0", 0.0, True])
def test_an_index_that_is_no_branch_is_a_row_error(case: Case, index: object) -> None:
    a, b = case.untimed_source("v", [(0,), (5,)]).split(
        lambda row: index if row.v == 5 else 0, 2, on_error="skip", name="s"
    )
    outcome = case.run(a, b)
    assert (outcome.values("v", 0), outcome.values("v", 1)) == ([0], [])
    assert outcome.account("s").errors == 1


def test_a_failing_row_with_state_leaves_the_others_of_its_key_alone(case: Case) -> None:
    rows = case.timed_source("t key v", [(1, "a", 10), (2, "a", 0), (3, "a", 5)]).key_by("key")
    sums = rows.accumulate(
        lambda row, s: s + 100 // row.v, 0, schema={"s": "int64"}, on_error="skip", name="acc"
    )
    assert case.gives(sums, "key s", ("a", 10), ("a", 30)).account("acc").errors == 1


def test_a_row_whose_aggregated_value_fails_is_in_no_window(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 10), (2, 0), (3, 5), (4, 0)])
    sums = rows.window(ps.tumbling(10), on_error="dead_letter", name="w").aggregate(
        s=ps.sum(100 // col("v")), n=ps.count()
    )
    outcome = case.run(sums, sums.errors)
    same_rows(outcome.tables[0], "window_start window_end s n", (0, 10, 30, 2))
    assert outcome.bag("t", 1) == [2, 4]
    assert (outcome.account("w").errors, outcome.account("w").passed) == (2, 2)


def test_a_row_that_a_fold_cannot_lift_is_a_row_error(case: Case) -> None:
    total = ps.fold(lambda row: 100 // row.v, lambda a, b: a + b, 0, type="int64")
    rows = case.timed_source("t v", [(1, 10), (2, 0)])
    sums = rows.window(ps.tumbling(10), on_error="skip", name="w").aggregate(s=total)
    assert case.gives(sums, "window_start window_end s", (0, 10, 10)).account("w").errors == 1


def fails(*_: object) -> int:
    """A function with a mistake in it."""
    raise ValueError("broken on purpose")


@pytest.mark.parametrize("part", ["combine", "lower", "apply"])
def test_a_failure_that_belongs_to_no_row_stops_the_run_whatever_the_policy(case: Case, part: str) -> None:
    rows = case.timed_source("t key v", [(1, "hot", 1), (2, "hot", 2)]).key_by("key")
    window = rows.window(ps.tumbling(10), on_error="skip", name="w")
    if part == "apply":
        pipe = window.apply(lambda rows: fails(), schema=V)
    else:
        combine = fails if part == "combine" else lambda a, b: a + b
        lower = fails if part == "lower" else None
        pipe = window.aggregate(s=ps.fold(lambda row: row.v, combine, 0, lower, type="int64"))
    with pytest.raises(ps.FunctionError) as failure:
        case.run(pipe)
    assert failure.value.step == "w"
    assert "broken on purpose" in str(failure.value)
    assert "hot" in str(failure.value)


def test_a_pair_for_which_the_predicate_fails_is_an_error_of_the_join(case: Case) -> None:
    # Two pairs fail, of one row: two letters, and one row that did not pass.
    left = case.timed_source("t v", [(1, 1), (1, 0)], name="left")
    right = case.timed_source("u:int64 w:int64", [(1, 5), (1, 6)], name="right")
    joined = left.join(right, on=lambda x, y: y.w // x.v > 0, within=5, on_error="dead_letter", name="j")
    outcome = case.run(joined, joined.errors)
    same_rows(outcome.tables[0], "t v u w", (1, 1, 1, 5), (1, 1, 1, 6))
    assert sorted((row["v"], row["w"], row["error_step"]) for row in outcome.rows(1)) == [
        (0, 5, "j"),
        (0, 6, "j"),
    ]
    assert (outcome.account("j").errors, outcome.account("j").passed) == (1, 3)


@pytest.mark.parametrize("bad", [None, 2**61 + 1, -(2**61) - 1])
def test_a_row_without_a_usable_time_is_an_error_of_its_source(case: Case, bad: int | None) -> None:
    source = case.timed_source(
        "t v", [(1, 1), (bad, 2)], [(2, 3)], time_unit="us", on_error="dead_letter", name="src"
    )
    outcome = case.run(source, source.errors)
    same_rows(outcome.tables[0], "t v", (1, 1), (2, 3))
    assert outcome.values("v", 1) == [2]
    assert (outcome.account("src").rows_in, outcome.account("src").errors) == (3, 1)


@pytest.mark.parametrize("edge", [2**61, -(2**61)])
def test_the_last_usable_time_is_usable(case: Case, edge: int) -> None:
    source = case.timed_source("t v", [(edge, 1)], time_unit="us")
    assert case.run(source.window(ps.tumbling(10)).aggregate(n=ps.count())).values("n") == [1]


def test_a_bad_time_stops_the_run_unless_said_otherwise(case: Case) -> None:
    with pytest.raises(ps.TimeError, match="time") as failure:
        case.run(case.timed_source("t v", [(None, 2)], name="src"))
    assert failure.value.step == "src"


def test_input_that_cannot_be_read_goes_to_the_errors_of_its_source(case: Case, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"v": 1}\n{"v": \n{"v": 3}\n', encoding="utf-8")
    source = case.graph.source(
        ps.read.jsonl(str(tmp_path / "rows.jsonl"), schema=V), on_error="dead_letter", name="src"
    )
    outcome = case.run(source, source.errors)
    assert outcome.bag("v") == [1, 3]
    (letter,) = outcome.rows(1)
    assert (letter["v"], letter["raw"], letter["error_step"]) == (None, '{"v": ', "src")
    assert (outcome.account("src").rows_in, outcome.account("src").errors) == (3, 1)


def test_input_that_cannot_be_read_stops_the_run_unless_said_otherwise(case: Case, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"v": 1}\nnonsense\n', encoding="utf-8")
    with pytest.raises(ps.ConnectorError):
        case.run(case.graph.source(ps.read.jsonl(str(tmp_path / "rows.jsonl"), schema=V)))


@everywhere
def test_dead_letters_can_be_worked_on_like_any_rows(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 0), (2, 1)], [(11, 0)])
    risky = rows.with_columns(v=100 // col("v"), on_error="dead_letter")
    counts = risky.errors.window(ps.tumbling(10)).aggregate(n=ps.count())
    case.gives(counts, "window_start window_end n", (0, 10, 1), (10, 20, 1))
