"""Programs that change between two runs of a checkpoint, on a real Spark session, change after change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.engines.spark.session.session import RunSession
from tests.support.changing_program import FIRST, ROWS, SCHEMA, Program, read_rows

MORE_ROWS = [*ROWS, [(58, "a", 3), (52, "b", 5)], [(69, "a", 1), (63, "b", 2)], [(75, "b", 9)]]
"""A batch for each change, and more."""


def change_all(folder: Path, who: str) -> list[tuple[int, dict[str, Any]]]:
    """Run a round of each program, which is that before it with one change; return what they have written.

    Results carry the number of the program after which they were there.
    """
    program = replace(FIRST, rows=MORE_ROWS)
    programs: list[tuple[Program, dict[str, str]]] = [(program, {})]

    def add(renamed: dict[str, str] | None = None, **changes: Any) -> None:
        programs.append((replace(programs[-1][0], **changes), renamed or {}))

    add(delay="4 s")
    add(lateness="3 s")
    add(aggregates={"s": ps.sum("v"), "n": ps.count()})
    add(more=lambda rows: rows.filter(col("v") > 0).with_columns(v=col("v") * 1))
    add({"sums": "totals"}, step="totals")
    add(columns={"w": "string", **SCHEMA})
    add(aggregates={"n": ps.count()})
    written: list[tuple[int, dict[str, Any]]] = []
    for number, (one, renamed) in enumerate(programs):
        options: dict[str, Any] = {"drain": True} if number == len(programs) - 1 else {"until": 1}
        one.run(folder, who, renamed=renamed, **options)
        rows = read_rows(folder)
        written += [(number, row) for row in rows if row not in [before for _, before in written]]
    with pytest.raises(ps.CheckpointError, match=r"step \"totals\""):
        replace(programs[-1][0], key="w").run(folder, who)
    return written


@pytest.mark.slow
def test_every_change_that_is_allowed_goes_on_as_in_process(
    tmp_path: Path, spark_session: RunSession
) -> None:
    on_spark, in_process = change_all(tmp_path / "spark", "spark"), change_all(tmp_path / "local", "local")
    assert on_spark == in_process
    assert {tuple(row) for _, row in on_spark} == {
        ("k", "window_start", "window_end", "s"),
        ("k", "window_start", "window_end", "s", "n"),
        ("k", "window_start", "window_end", "n"),
    }
    assert len({number for number, _ in on_spark}) > 3, "results came all along"
