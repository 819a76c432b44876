"""Rows printed."""

from __future__ import annotations

import io
import subprocess
import sys

import pyarrow as pa
import pytest

import penstock.write as write
from penstock.connect.protocol import Delivery, Writer
from penstock.errors import ConnectorError


def print_batches(batches: list[pa.RecordBatch], limit: int | None) -> str:
    stream = io.StringIO()
    out = write.console(limit=limit, stream=stream).open(batches[0].schema, "views")
    for number, rows in enumerate(batches):
        out.write(number, rows)
        out.commit(number)
    out.close()
    return stream.getvalue()


def test_rows_are_aligned_with_numbers_to_the_right() -> None:
    rows = pa.record_batch({"name": ["a", None], "price": [1.5, 10.25]})
    assert print_batches([rows], None) == "name  price\na       1.5\nnull  10.25\n"


def test_rows_beyond_the_limit_are_counted() -> None:
    rows = pa.record_batch({"n": [1, 2]})
    assert print_batches([rows, rows, rows], 3) == "n\n1\n2\nn\n1\nviews: 3 more rows\n"


def test_wide_and_combining_characters_are_aligned_as_a_terminal_shows_them() -> None:
    rows = pa.record_batch({"a": ["日本", "e\u0301"], "b": ["x", "y"]})
    assert print_batches([rows], None) == "a     b\n日本  x\ne\u0301     y\n"


def test_data_cannot_command_the_terminal_and_long_values_are_cut() -> None:
    rows = pa.record_batch({"a": ["\x1b[2Jx\ny", "z" * 50]})
    assert print_batches([rows], None) == "a\n\\x1b[2Jx\\ny\n" + "z" * 39 + "…\n"


def test_standard_output_is_where_rows_go(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.record_batch({"n": [1]})
    out = write.console().open(rows.schema, "views")
    out.write(0, rows)
    out.commit(0)
    out.close()
    assert capsys.readouterr().out == "n\n1\n"


PROGRAM = """
import sys
import penstock as ps

graph = ps.PipeGraph("loud", engine=sys.argv[1])
graph.source(ps.read.rows([{"a": n} for n in range(1000)], batch=10)).sink(ps.write.console())
sys.stdin.readline()  # until nobody reads any more
try:
    graph.run()
except BrokenPipeError as error:
    assert isinstance(error, ps.ConnectorError)
    sys.stderr.write(f"{error}")
"""


@pytest.mark.parametrize("runs_on", ["reference", "local"])
def test_a_console_that_nobody_reads_any_more_is_a_broken_pipe(runs_on: str) -> None:
    words = [sys.executable, "-c", PROGRAM, runs_on]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()  # as `head` does when it has enough
        process.stdout = None
        _, err = process.communicate("\n", timeout=60)
    assert err.startswith("nobody reads the console any more: what it prints into was closed\n")
    assert 'step "sink"' in err
    assert "catch BrokenPipeError around the run" in err


def test_console_says_what_it_is() -> None:
    console = write.console(limit=5)
    assert isinstance(console, Writer)
    assert (console.delivery, console.accepts_updates) == (Delivery.AT_LEAST_ONCE, True)
    assert (console.describe(), write.console(limit=None).describe()) == ("console (first 5 rows)", "console")


def test_a_limit_of_no_rows_is_refused() -> None:
    with pytest.raises(ConnectorError, match="limit=0"):
        write.console(limit=0)


def test_what_the_stream_cannot_encode_is_shown_as_escapes() -> None:
    bytes_written = io.BytesIO()
    rows = pa.record_batch({"name": ["Zoë", "日"]})
    out = write.console(stream=io.TextIOWrapper(bytes_written, encoding="ascii")).open(rows.schema, "views")
    out.write(0, rows)
    out.commit(0)
    assert bytes_written.getvalue() == rb"name" b"\n" rb"Zo\xeb" b"\n" rb"\u65e5" b"\n"
