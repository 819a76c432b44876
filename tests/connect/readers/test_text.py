"""Lines of text."""

from __future__ import annotations

import gzip
from pathlib import Path

from penstock.connect.protocol import BadRow
from penstock.connect.readers.text import text
from tests.support.reader_contents import bad_of, rows_of, seq_of


def test_each_line_is_a_row_and_blank_ones_are_too(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes("\ufeffone\r\n\ntwo\u2028three\nlast".encode())
    assert [row["line"] for row in rows_of(text(tmp_path))] == ["one", "", "two\u2028three", "last"]


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "x.txt").touch()
    assert rows_of(text(tmp_path)) == []


def test_gzip_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "x.txt.gz").write_bytes(gzip.compress(b"a\nb\n"))
    assert [row["line"] for row in rows_of(text(tmp_path))] == ["a", "b"]


def test_a_line_that_is_not_utf8_is_a_bad_row(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_bytes(b"a\nb\xff\nc\n")
    reader = text(file)
    assert [row["line"] for row in rows_of(reader)] == ["a", "c"]
    assert seq_of(reader) == [0, 2]
    assert bad_of(reader) == [BadRow("b\\xff", "byte 2 of the line is not UTF-8", f"{file}:2")]
