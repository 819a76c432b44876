"""Hypothesis strategies for window steps: any windows, any aggregates, disordered rows, and every cut."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.expr import col
from penstock.operators import aggregates as spec
from penstock.operators.aggregates import Aggregate
from penstock.operators.windows import KeyedWindows, Windows
from penstock.timing.windows import count_window, session, sliding, tumbling
from tests.support.windows import Case, case

WIDE = pa.schema(
    [
        ("k", pa.string()),
        ("t", pa.int64()),
        ("v", pa.int64()),
        ("x", pa.float64()),
        ("word", pa.string()),
        ("price", pa.decimal128(30, 2)),
    ]
)

timed = st.one_of(
    st.builds(tumbling, st.integers(1, 20)),
    st.builds(sliding, st.integers(1, 20), st.integers(1, 20)),
)
sessions = st.builds(session, st.integers(1, 20))
counts = st.builds(count_window, st.integers(1, 5), st.integers(1, 5))
windows = st.one_of(timed, sessions, counts)
specs = st.one_of(windows, st.dictionaries(st.sampled_from("xyz"), windows, min_size=1, max_size=3))
several_counts = st.dictionaries(st.sampled_from("xyz"), counts, min_size=2, max_size=3)
small = st.integers(0, 15)

FLOATS = st.one_of(
    st.none(),
    st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf")]),
    st.floats(-1e6, 1e6).map(lambda value: round(value, 3)),
)
wide_row = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.integers(-40, 40),
    st.one_of(st.none(), st.integers(-1000, 1000), st.sampled_from([2**62, -(2**62)])),
    FLOATS,
    st.sampled_from(["", "one", "two", None, "é"]),
    st.one_of(st.none(), st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents).scaleb(-2))),
)
wide_rows = st.lists(wide_row, max_size=30)


def total(a: int, b: int) -> int:
    return a + b


def join_text(a: str, b: str) -> str:
    return a + b


def lift(row: Any) -> tuple[float, float, float]:
    value = float(row.v % 1000)
    return value, 1.0, value


def combine(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float, float]:
    return a[0] + b[0], a[1] + b[1], max(a[2], b[2])


def lower(part: tuple[float, ...]) -> float | None:
    return part[0] / part[1] + part[2] if part[1] else None


REGISTERS: dict[str, Aggregate] = {
    "folded": spec.fold(lift, combine, (0.0, 0.0, -1.0), lower, columns="v", type="float64"),
    "rows": spec.count(),
    "words": spec.count("word"),
    "n": spec.count("v"),
    "halves": spec.sum((col("v") % 1000) / 2),
    "sum": spec.sum(col("v") % 1000),
    "sum_x": spec.sum("x"),
    "mean": spec.mean("v"),
    "mean_x": spec.mean("x"),
    "least": spec.min("v"),
    "most": spec.max("v"),
    "least_x": spec.min("x"),
    "most_x": spec.max("x"),
    "true": spec.max(col("v") > 10),
    "most_of": spec.max_count("v"),
    "least_of": spec.min_count("x"),
    "var": spec.var(col("v") % 1000),
    "std": spec.std("x", population=True),
    "latest": spec.event_time_max(),
}
ROWS: dict[str, Aggregate] = {
    "all": spec.collect("v"),
    "words": spec.collect("word"),
    "first": spec.first("word"),
    "last": spec.last("x"),
    "first_v": spec.first("v"),
    "least_word": spec.min("word"),
    "most_word": spec.max_count("word"),
    "exact": spec.sum("price"),
    "least_price": spec.min_count("price"),
    "mean_exact": spec.mean("price"),
    "fold": spec.fold(lambda row: row["v"] % 1000, total, 0, columns="v", type="int64"),
    "text": spec.fold(lambda row: row["word"] or "-", join_text, "", type="string", commutative=False),
}
SKETCHES: dict[str, Aggregate] = {"different": spec.approx_distinct("v"), "middle": spec.quantile("x", 0.4)}
ALL = {**ROWS, **REGISTERS, **SKETCHES}

some_registers = st.lists(st.sampled_from(sorted(REGISTERS)), min_size=1, max_size=4, unique=True)
some_of_all = st.lists(st.sampled_from(sorted(ALL)), min_size=1, max_size=4, unique=True)


def cut(rows: list[Any], places: list[int]) -> list[list[Any]]:
    ends = sorted({*(min(place, len(rows)) for place in places), len(rows)})
    return [rows[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    windows: st.SearchStrategy[Any] = specs,
    names: st.SearchStrategy[list[str]] = some_of_all,
    pattern: type[Windows] = KeyedWindows,
    least: int = 0,
) -> Case:
    """A window step and a stream cut into batches; with `least` rows it is cut at least twice."""
    rows = draw(st.lists(wide_row, min_size=least, max_size=30))
    spec_, chosen = draw(windows), draw(names)
    op = pattern(
        windows=spec_,
        aggregates={name: ALL[name] for name in chosen},
        lateness=draw(small),
        partial=draw(st.booleans()) and _is_counted(spec_),
    )
    places = st.lists(st.integers(0, 30), max_size=6)
    if least:
        places = st.lists(st.integers(1, least - 1), min_size=2, max_size=6, unique=True)
    batches = cut(rows, draw(places))
    key = draw(st.sampled_from([("k",), ("k", "word"), (), ("x",), ("v",)]))
    return case(op, batches, seq=draw(st.booleans()), key=key, delay=draw(small), schema=WIDE)


ticks = st.lists(st.sampled_from([2, 0, 1, 3]), min_size=7, max_size=7)
"""How far the clock goes before each batch of a case; early results come every 2."""
some_batches = st.sets(st.integers(0, 5), min_size=1)


@st.composite
def early_cases(draw: st.DrawFn, /, **options: Any) -> Case:
    """A case with early results, in most of which windows stay open for several batches."""
    case_ = draw(cases(least=10, **options))
    delay = draw(st.sampled_from([100, 20, case_.delay]))
    return replace(case_, op=replace(case_.op, early="2 us"), delay=delay)


def _is_counted(spec_: Any) -> bool:
    parts = spec_.values() if isinstance(spec_, dict) else [spec_]
    return any(type(part).__name__ == "Counted" for part in parts)
