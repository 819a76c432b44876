"""`python -m bench large`: its input at a tiny size, its cases, its limits and what it makes of events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import penstock as ps
from bench import BenchError
from bench.large import inputs
from bench.large.child import MemoryWatch, Report, count_micro_batches, find_received
from bench.large.command import (
    Case,
    Measurement,
    build_cases,
    check_space,
    find_problems,
    format_measurement,
    run_child,
    select_cases,
)
from bench.large.inputs import Shape, write_input
from bench.large.programs import PROGRAMS, expected_sums, explain_sums, sum_output
from penstock.events import BatchDone
from tests.support.command_line import bench

REPORT = Report(2.0, 5_000_000, 90_000_000, 1_000_000_000, 20, 4, {})


def tiny(n_files: int, seed: int = 1) -> Shape:
    return Shape(2_000, n_files, n_blocks=20, seed=seed)


def test_all_layouts_hold_the_same_rows_and_have_the_same_totals(tmp_path: Path) -> None:
    totals = [write_input(tiny(n), tmp_path / str(n)) for n in (1, 4, 20)]
    assert totals[0] == totals[1] == totals[2]
    one, many = (pq.read_table(sorted((tmp_path / name).glob("*.parquet"))) for name in ("1", "20"))
    assert one.equals(many)
    assert one.schema.equals(inputs.SCHEMA)


def test_totals_are_those_of_the_rows(tmp_path: Path) -> None:
    totals = write_input(tiny(2), tmp_path)
    table = pq.read_table(sorted(tmp_path.glob("*.parquet")))
    values = table.column("value").to_numpy()
    counts = np.unique(table.column("key").to_numpy(), return_counts=True)[1]
    assert (totals.rows, totals.total / 16) == (2_000, values.sum())
    assert (totals.selected, totals.selected_total / 16) == ((values < 250).sum(), values[values < 250].sum())
    assert totals.ranks == sum(n * (n + 1) // 2 for n in counts.tolist())
    pairs = table.group_by(["key", "value"]).aggregate([([], "count_all")]).column("count_all").to_pylist()
    assert (totals.pairs, totals.pair_ranks) == (len(pairs), sum(n * (n + 1) // 2 for n in pairs))


def test_payload_does_not_compress(tmp_path: Path) -> None:
    write_input(tiny(1), tmp_path)
    assert (tmp_path / "000000.parquet").stat().st_size > 2_000 * inputs.PAYLOAD


def test_an_input_that_is_there_is_written_once_and_another_one_replaces_it(tmp_path: Path) -> None:
    totals = write_input(tiny(2), tmp_path)
    first = (tmp_path / "000000.parquet").stat().st_ino
    assert write_input(tiny(2), tmp_path) == totals
    assert (tmp_path / "000000.parquet").stat().st_ino == first
    assert write_input(tiny(2, seed=2), tmp_path) != totals


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_arrives_at_the_totals(program: str, tmp_path: Path) -> None:
    totals = write_input(tiny(4), tmp_path / "input")
    graph = PROGRAMS[program](ps.read.parquet(tmp_path / "input"), tmp_path / "output")
    graph.run("reference")
    expected = expected_sums(program, totals)
    assert explain_sums(expected, sum_output(program, tmp_path / "output")) is None
    assert explain_sums(expected, sum_output(program, tmp_path / "nowhere")) is not None


def test_sums_that_differ_are_named() -> None:
    assert explain_sums({"rows": 1000, "total": 2}, {"rows": 999, "total": 2}) == "rows: 999 instead of 1,000"


def test_cases_are_programs_by_layouts_three_streams_and_one_that_is_resumed() -> None:
    cases = build_cases(5_000)
    assert len(cases) == 13
    assert sum(case.stream for case in cases) == 3
    assert sum(case.restart for case in cases) == 1
    files = [case.n_files for case in cases]
    assert files == sorted(files), "a layout is written once, for all its cases"


def test_cases_are_chosen_by_a_part_of_their_name() -> None:
    chosen = select_cases(build_cases(500), ["keyed", "as a stream"])
    assert [case.name for case in chosen] == [
        "keyed, 1 file",
        "keyed, 20 files",
        "stateless, 20 files, as a stream",
        "windows, 20 files, as a stream",
        "keyed, 20 files, as a stream",
        "keyed, 500 files",
    ]


def test_a_name_that_no_case_has_is_refused() -> None:
    done = bench("large", "--only", "windos")
    assert (done.code, done.err.splitlines()[0]) == (2, 'BenchError: no case has "windos" in its name')


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    assert "GB are free" in check_space(tmp_path, 1_000, 3)
    with pytest.raises(BenchError, match=r"need about [\d.]+ GB of disk"):
        check_space(tmp_path, 10**15, 1)


def test_a_driver_that_grows_too_much_and_a_wrong_total_are_problems() -> None:
    assert find_problems(REPORT, None) == []
    grown = Report(2.0, 150_000_000, 0, 0, 1, 1, {})
    assert find_problems(grown, "rows: 1 instead of 2") == [
        "WRONG: rows: 1 instead of 2",
        "the driver grew by more than 100 MB",
    ]


def test_a_line_has_the_speed_the_memory_and_the_micro_batches() -> None:
    line = format_measurement(Measurement(Case("windows", 20), 1_000_000, REPORT))
    for part in (
        "500,000 rows/s",
        "driver +5 MB on 90 MB",
        "micro-batches 4 of 20 rounds",
        "not told",
        "exact",
    ):
        assert part in line
    failed = Measurement(Case("windows", 20), 1, None, ["failed: OutOfMemoryError"])
    assert "failed: OutOfMemoryError" in format_measurement(failed)


def batch_done(number: int, **parts: int) -> BatchDone:
    return BatchDone(0, number, {}, {}, 1, parts)


def test_rounds_that_share_the_times_of_a_job_share_a_micro_batch() -> None:
    shared = [batch_done(0, job=5, write=1), batch_done(1, job=5, write=2), batch_done(2, job=6, write=1)]
    assert count_micro_batches(shared) == 2
    assert count_micro_batches([batch_done(0), batch_done(1)]) == 2, "an engine that measures nothing"
    assert count_micro_batches([]) == 0


def test_what_the_driver_received_is_the_most_that_an_event_tells() -> None:
    batches = [BatchDone(0, n, {}, {}, 1, received=100 * n) for n in (1, 3, 2)]
    assert find_received(batches) == {"bytes": 300}
    assert find_received([batch_done(0)]) == {}


def test_memory_that_was_freed_before_the_end_counts() -> None:
    watch = MemoryWatch()
    block = np.ones(8_000_000)
    del block
    assert watch.growth() > 30_000_000


def test_a_process_that_fails_is_reported_with_its_error() -> None:
    _, problem = run_child(["bench.large.child", '{"program": "windows"}'], 60)
    assert problem is not None
    assert problem.startswith("failed: TypeError: ")


def test_a_process_that_tells_nothing_is_reported_with_its_last_line() -> None:
    _, problem = run_child(["bench.nowhere"], 60)
    assert problem is not None
    assert problem.endswith("No module named bench.nowhere")
