"""Latency of applications: every result is traced back to its row, on both sides of the comparison."""

from __future__ import annotations

import socket
from collections import Counter

import pytest

from bench import load_workload
from bench.draw import box_of, draw_chart
from bench.result import Figures
from bench.workload import PERCENTILES, Cell
from bench.workloads.latency.programs import Exchange, note_percentiles, run_in_process
from bench.workloads.latency.rows import SUBJECTS, Subject, build_stream

subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.label)


@subjects
def test_every_application_gives_all_its_results_as_rows_come(subject: Subject) -> None:
    stream = build_stream(subject, 600, 1)
    outcome = run_in_process(stream)
    assert outcome.answer() == stream.expected_answer()
    notes = [outcome.notes[f"p{share} (s)"] for share in PERCENTILES]
    assert notes == sorted(notes)


@subjects
def test_a_row_of_the_input_is_behind_every_result(subject: Subject) -> None:
    stream = build_stream(subject, 2_000, 2)
    assert stream.n_results > 0
    assert set(stream.numbers.values()) <= set(range(len(stream.rows)))


def test_the_count_of_a_word_names_the_line_in_which_it_came() -> None:
    stream = build_stream(SUBJECTS[2], 50, 1)
    counts: Counter[str] = Counter()
    for number, row in enumerate(stream.rows):
        for word in row["line"].split(" "):
            counts[word] += 1
            assert stream.numbers[word, counts[word]] == number


def test_rows_are_sent_in_order_and_results_are_timed_against_their_rows() -> None:
    """What is sent comes straight back, so every row has a latency above zero."""
    stream = build_stream(SUBJECTS[3], 40, 1)
    n_rows = len(stream.rows)
    assert n_rows > 10
    exchange = Exchange(stream)
    exchange.start()
    with (
        socket.create_connection(("127.0.0.1", exchange.ports[0])) as rows,
        socket.create_connection(("127.0.0.1", exchange.ports[1])) as results,
    ):
        sent = b""
        while part := rows.recv(4_096):
            results.sendall(part)
            sent += part
    exchange.wait()
    assert [int(line.split(b",")[0]) for line in sent.splitlines()] == list(range(n_rows))
    assert len(exchange.delays) == n_rows
    assert min(exchange.delays) > 0


def test_the_first_tenth_of_the_results_is_not_counted() -> None:
    notes = note_percentiles([10**9] * 10 + [10**6] * 90)
    assert set(notes.values()) == {0.001}


def test_every_claim_is_about_the_99th_of_100_results() -> None:
    workload = load_workload("latency", "quick")
    assert [claim.cell.case for claim in workload.claims] == ["FD", "SD", "WC", "LR"]
    assert {claim.note for claim in workload.claims} == {"p99 (s)"}
    assert any("VS" in remark for remark in workload.remarks)


def test_a_box_is_drawn_for_every_application_and_way() -> None:
    workload = load_workload("latency", "quick")
    (chart,) = workload.charts
    notes = {f"p{share} (s)": (share / 1e3,) for share in PERCENTILES}
    figures = {point.cell: Figures(point.cell, {}, (), (1,), 1, notes) for point in chart.points}
    assert box_of(figures[Cell("FD", "penstock")]) == [share / 1e3 for share in PERCENTILES]
    drawing = draw_chart(chart, figures)
    assert "FD, penstock" in drawing
    assert "WC, Flink SQL" in drawing
    assert "VS, Flink SQL" not in drawing
    nothing = Figures(Cell("FD", "penstock"), {}, (), (1,), 1)
    assert box_of(nothing) is None
    assert draw_chart(chart, {nothing.cell: nothing}) == ""
