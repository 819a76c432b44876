"""Programs that change between two runs of a checkpoint: what may change goes on, the rest is refused.

The Spark engine's fragments run in this process: nothing here depends on who carries them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import col
from tests.support.changing_program import ENGINES, FIRST, ROWS, SCHEMA, Program, read_rows, whole

PAIRS = pytest.mark.parametrize(
    "who", [("local", "local"), ("fragments", "fragments"), ("local", "fragments")], ids="-".join
)
EVERYWHERE = pytest.mark.parametrize("who", ["local", "fragments"])


def change(
    folder: Path, who: tuple[str, str], after: Program, until: int = 2, **options: Any
) -> list[dict[str, Any]]:
    """Run two rounds of the first program and the rest of another; return what both have written."""
    FIRST.run(folder, who[0], until=until)
    after.run(folder, who[1], drain=True, **options)
    return read_rows(folder)


@PAIRS
def test_another_delay_counts_from_the_next_row_on(tmp_path: Path, who: tuple[str, str]) -> None:
    slow = replace(FIRST, delay="30 s")
    slow.run(tmp_path, who[0], until=2)
    assert read_rows(tmp_path) == []
    FIRST.run(tmp_path, who[1], until=1)  # W is 21 - 2
    assert [row["window_start"] for row in read_rows(tmp_path)] == [0, 0]
    slow.run(tmp_path, who[0], until=2)  # and stays there
    assert [row["window_start"] for row in read_rows(tmp_path)] == [0, 0]
    FIRST.run(tmp_path, who[1], drain=True)
    assert read_rows(tmp_path) == whole(tmp_path, FIRST)


@PAIRS
def test_more_lateness_opens_no_window_again_that_has_left(tmp_path: Path, who: tuple[str, str]) -> None:
    # After two rounds W is 12 and [0, 10) has left; with a lateness of 20 s it would still be open.
    later = [*ROWS[:2], [(21, "b", 6), (17, "a", 7), (7, "new", 7), (3, "a", 9)], *ROWS[3:]]
    first = replace(FIRST, rows=later, window=ps.sliding("10 s", every="5 s"))
    first.run(tmp_path, who[0], until=2)
    result = replace(first, lateness="20 s").run(tmp_path, who[1], drain=True)
    assert read_rows(tmp_path) == whole(tmp_path, first)
    assert result.accounts["sums"].late == 1  # that of 3, both of whose windows have left
    assert sum(result.accounts["sums"].late_by_window.values()) == 3


@PAIRS
def test_less_lateness_closes_windows_at_once_and_loses_none(tmp_path: Path, who: tuple[str, str]) -> None:
    first = replace(FIRST, lateness="20 s", window=ps.sliding("10 s", every="5 s"))
    first.run(tmp_path, who[0], until=2)
    assert read_rows(tmp_path) == []
    replace(first, lateness="0 s").run(tmp_path, who[1], until=1)
    assert {row["window_start"] for row in read_rows(tmp_path)} == {-5, 0, 5}
    replace(first, lateness="0 s").run(tmp_path, who[1], drain=True)
    assert read_rows(tmp_path) == whole(tmp_path, replace(first, lateness="0 s"))


KINDS = {
    "tumbling": ps.tumbling("10 s"),
    "sliding": ps.sliding("10 s", every="4 s"),
    "sessions": ps.session("6 s"),
}
AGGREGATES: dict[str, Callable[[], Any]] = {
    "numbers": lambda: {"n": ps.count(), "m": ps.max("v"), "d": ps.mean(col("v") * 2)},
    "rows": lambda: {"all": ps.collect("v"), "twice": ps.collect(col("v") * 2)},
    "sketch": lambda: {"different": ps.approx_distinct("v")},
    "fold": lambda: {"f": ps.fold(lambda row: float(row["v"]), lambda a, b: a + b, 0.0, type="float64")},
    "text fold": lambda: {"f": ps.fold(lambda row: str(row["v"]), max, "", columns="v", type="string")},
}


@PAIRS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("added", AGGREGATES)
def test_a_new_aggregate_is_null_in_windows_that_may_have_older_rows(
    tmp_path: Path, who: tuple[str, str], kind: str, added: str
) -> None:
    first = replace(FIRST, window=KINDS[kind])
    after = replace(first, aggregates={**AGGREGATES[added](), "s": ps.sum("v")})
    first.run(tmp_path, who[0], until=2)
    after.run(tmp_path, who[1], until=1)
    after.run(tmp_path, who[0], drain=True)
    rows, wanted = read_rows(tmp_path), whole(tmp_path, after)
    assert len(rows) == len(wanted)
    known = 0
    for row, want in zip(rows, wanted, strict=True):
        assert row["s"] == want["s"]
        news = {name: row.get(name) for name in after.aggregates if name != "s"}
        if row["window_start"] >= 20:
            assert news == {name: want[name] for name in news}
            known += 1
        elif row["window_start"] <= 10:
            assert list(news.values()) == [None] * len(news)
    assert known > 2


@PAIRS
def test_an_aggregate_may_go_and_another_may_get_another_name(tmp_path: Path, who: tuple[str, str]) -> None:
    many = {"n": ps.count(), "s": ps.sum("v"), "all": ps.collect(col("v") * 2), "d": ps.approx_distinct("k")}
    first, after = replace(FIRST, aggregates=many), replace(FIRST, aggregates={"total": ps.sum("v")})
    first.run(tmp_path, who[0], until=2)
    after.run(tmp_path, who[1], drain=True)
    wanted = whole(tmp_path, FIRST)
    assert [row.get("total", row.get("s")) for row in read_rows(tmp_path)] == [row["s"] for row in wanted]
    assert "n" not in read_rows(tmp_path)[-1]


@PAIRS
def test_stateless_steps_come_and_go(tmp_path: Path, who: tuple[str, str]) -> None:
    doubled = replace(
        FIRST, more=lambda rows: rows.filter(col("v") >= 0).with_columns(v=col("v") + 0, w=col("v"))
    )
    FIRST.run(tmp_path, who[0], until=1)
    doubled.run(tmp_path, who[1], until=2)
    FIRST.run(tmp_path, who[0], drain=True)
    assert read_rows(tmp_path) == whole(tmp_path, FIRST)


@PAIRS
def test_steps_go_on_under_new_names(tmp_path: Path, who: tuple[str, str]) -> None:
    after = replace(FIRST, source="lines", step="totals", sinks=("written",))
    names = {"rows": "lines", "sums": "totals", "out": "written"}
    FIRST.run(tmp_path, who[0], until=2)
    after.run(tmp_path, who[1], until=1, renamed=names)
    after.run(tmp_path, who[0], until=1, renamed=names)  # it may stay in the program
    last = replace(after, step="amounts")
    last.run(tmp_path, who[1], drain=True, renamed={"totals": "amounts"})
    assert read_rows(tmp_path) == whole(tmp_path, FIRST)


@EVERYWHERE
def test_a_step_that_is_gone_may_have_been_renamed(tmp_path: Path, who: str) -> None:
    FIRST.run(tmp_path, who, until=1)
    with pytest.raises(ps.CheckpointError, match='has step "sums", and the graph has not') as no:
        replace(FIRST, step="totals").run(tmp_path, who)
    assert 'run(renamed={"sums": "totals"})' in str(no.value.hint)


@pytest.mark.parametrize(
    ("after", "renamed", "fact"),
    [
        (replace(FIRST, step="totals"), {"sums": "nothing"}, "names no step of the graph"),
        (replace(FIRST, step="totals"), {"nothing": "totals"}, "the checkpoint has no such step"),
        (FIRST, {"out": "sums"}, "it has both"),
    ],
)
def test_a_renaming_that_does_not_fit_is_refused(
    tmp_path: Path, after: Program, renamed: dict[str, str], fact: str
) -> None:
    FIRST.run(tmp_path, "local", until=1)
    with pytest.raises(ps.CheckpointError, match=fact):
        after.run(tmp_path, "local", renamed=renamed)


def test_an_old_name_is_not_given_to_another_step(tmp_path: Path) -> None:
    FIRST.run(tmp_path, "local", until=1)
    after = replace(FIRST, sinks=("written",))
    after.run(tmp_path, "local", until=1, renamed={"out": "written"})
    with pytest.raises(ps.CheckpointError, match="had before it was renamed") as no:
        replace(after, sinks=("written", "out")).run(tmp_path, "local")
    assert no.value.hint == "choose another name"


@PAIRS
def test_a_nullable_column_may_be_added_to_a_source(tmp_path: Path, who: tuple[str, str]) -> None:
    first = replace(FIRST, aggregates={"s": ps.sum("v"), "all": ps.collect("v")})
    wider = replace(first, columns={"w": "string", **SCHEMA})
    first.run(tmp_path, who[0], until=2)
    wider.run(tmp_path, who[1], drain=True)
    assert read_rows(tmp_path) == whole(tmp_path, first)


@PAIRS
def test_so_may_columns_of_rows_that_wait_for_keyed_state_or_a_partner(
    tmp_path: Path, who: tuple[str, str]
) -> None:
    def build(folder: Path, columns: dict[str, Any]) -> ps.PipeGraph:
        graph = ps.PipeGraph("wider")
        batches = [
            [dict.fromkeys(columns) | dict(zip(SCHEMA, row, strict=True)) for row in part] for part in ROWS
        ]
        rows = graph.source(
            ps.read.batches(batches, schema=columns), time="t", time_unit="s", delay="9 s", name="rows"
        )
        keyed = rows.key_by("k")
        state = keyed.accumulate(lambda row, n: n + row.v, 0, schema={"n": int}, name="so far")
        state.sink(ps.write.jsonl(folder / "state"), name="state")
        other = rows.with_columns(u=col("v")).select("t", "k", "u")
        pairs = rows.join(other, on="k", within="6 s", suffix="_right", name="pairs")
        pairs.select("k", "v", "u").sink(ps.write.jsonl(folder / "pairs"), name="paired")
        return graph

    def read_all(folder: Path) -> Counter[str]:
        files = [file for sink in ("state", "pairs") for file in (folder / sink).glob("*.jsonl")]
        return Counter(line for file in files for line in file.read_text().splitlines())

    build(tmp_path / "whole", SCHEMA).run("reference")
    for number, columns in enumerate((SCHEMA, {"w": "float64", **SCHEMA}, {**SCHEMA, "w": "float64"})):
        build(tmp_path, columns).run(
            ENGINES[who[number % 2]](),
            checkpoint=tmp_path / "c",
            until=2 if number < 2 else None,
            drain=number == 2,
        )
    assert read_all(tmp_path) == read_all(tmp_path / "whole")


@PAIRS
def test_other_degrees_and_more_sinks_change_nothing(tmp_path: Path, who: tuple[str, str]) -> None:
    assert change(tmp_path, who, replace(FIRST, degree=3, sinks=("out", "more"))) == whole(tmp_path, FIRST)
    assert read_rows(tmp_path, 1)[0]["window_start"] == 10


@EVERYWHERE
@pytest.mark.parametrize(
    ("after", "topic", "was", "now"),
    [
        (replace(FIRST, window=ps.tumbling("20 s")), "window", "tumbling 10 s", "tumbling 20 s"),
        (replace(FIRST, key="v"), "key", "k", "v"),
        (
            replace(FIRST, columns={"t": "int64", "k": "string", "v": "int32"}),
            "input schema",
            "v: int64",
            "v: int32",
        ),
    ],
    ids=["window", "key", "type"],
)
def test_all_else_is_refused_with_the_step_and_both_values(
    tmp_path: Path, who: str, after: Program, topic: str, was: str, now: str
) -> None:
    FIRST.run(tmp_path, who, until=2)
    with pytest.raises(ps.CheckpointError, match=f"its {topic} differs") as no:
        after.run(tmp_path, who)
    saved, _, present = str(no.value.detail).partition("; now: ")
    assert no.value.step in ("sums", "rows")
    assert was in saved
    assert now in present


@EVERYWHERE
def test_aggregates_of_count_windows_stay_as_they_are(tmp_path: Path, who: str) -> None:
    first = replace(FIRST, window=ps.count_window(3))
    first.run(tmp_path, who, until=2)
    with pytest.raises(ps.CheckpointError, match="its aggregates differs") as no:
        replace(first, aggregates={"n": ps.count()}).run(tmp_path, who)
    assert str(no.value.detail).startswith('saved: s: sum(col("v")) as int64; now: n: count() as int64')


@EVERYWHERE
def test_windows_behind_windows_go_on_when_the_lateness_of_the_first_changes(
    tmp_path: Path, who: str
) -> None:
    def build(folder: Path, lateness: str) -> ps.PipeGraph:
        graph = ps.PipeGraph("twice")
        batches = [[dict(zip(SCHEMA, row, strict=True)) for row in part] for part in ROWS]
        rows = graph.source(
            ps.read.batches(batches, schema=SCHEMA), time="t", time_unit="s", delay="2 s", name="rows"
        )
        first = (
            rows.key_by("k")
            .window(ps.tumbling("5 s"), lateness=lateness, name="small")
            .aggregate(s=ps.sum("v"))
        )
        large = first.key_by("k").window(ps.tumbling("20 s"), name="large").aggregate(s=ps.sum("s"))
        large.sink(ps.write.jsonl(folder / "out0"), name="out")
        return graph

    build(tmp_path / "whole", "10 s").run("reference")
    for until, lateness in ((2, "10 s"), (1, "60 s"), (1, "0 s"), (None, "10 s")):
        build(tmp_path, lateness).run(
            ENGINES[who](), checkpoint=tmp_path / "c", until=until, drain=until is None
        )
    assert read_rows(tmp_path) == read_rows(tmp_path / "whole")
