"""JSON lines."""

from __future__ import annotations

import gzip
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
import penstock.read as read
from penstock.connect.protocol import BadRow
from penstock.errors import ConnectorError
from tests.support.reader_contents import bad_of, cuts_of, rows_of, seq_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.jsonl"


def test_the_schema_is_taken_from_all_values_and_strings_stay_strings(file: Path) -> None:
    file.write_text('{"a": 1, "t": "2026-01-31T12:00:00Z"}\n{"a": 1.5, "in": {"x": [true]}}\n')
    assert read.jsonl(file).schema == pa.schema(
        [
            ("a", pa.float64()),
            ("t", pa.string()),
            ("in", pa.struct([("x", pa.list_(pa.bool_()))])),
        ]
    )


def test_every_type_has_its_form(file: Path) -> None:
    schema = {
        "t": "timestamp",
        "z": "timestamp[us, UTC]",
        "d": date,
        "b": bytes,
        "m": "decimal(20, 18)",
        "f": "float32",
        "l": list[float],
        "s": {"x": int},
    }
    file.write_text(
        '{"t": "2026-01-31T13:00:00+01:00", "z": "2026-01-31T12:00:00.123456789", "d": "2026-01-31",'
        ' "b": "AAE=", "m": 0.123456789012345678, "f": 1, "l": [1, null, "-Infinity"],'
        ' "s": {"x": 1, "y": 2}}\n'
    )
    assert rows_of(read.jsonl(file, schema=schema)) == [
        {
            "t": datetime(2026, 1, 31, 12),
            "z": datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC),
            "d": date(2026, 1, 31),
            "b": b"\x00\x01",
            "m": Decimal("0.123456789012345678"),
            "f": 1.0,
            "l": [1.0, None, -math.inf],
            "s": {"x": 1},
        }
    ]


def test_floats_may_be_nan_bare_or_as_a_string(file: Path) -> None:
    file.write_text('{"f": NaN}\n{"f": "NaN"}\n')
    assert all(math.isnan(row["f"]) for row in rows_of(read.jsonl(file, schema={"f": float})))


def test_decimals_may_be_strings_or_whole_numbers(file: Path) -> None:
    file.write_text('{"m": "1.50"}\n{"m": 2}\n')
    rows = rows_of(read.jsonl(file, schema={"m": "decimal(5, 2)"}))
    assert [row["m"] for row in rows] == [Decimal("1.50"), Decimal("2.00")]


def test_a_missing_field_is_null_and_a_field_outside_a_declared_schema_is_ignored(file: Path) -> None:
    file.write_text('{"a": 1, "more": 2}\n{"more": 3}\n')
    assert rows_of(read.jsonl(file, schema={"a": int})) == [{"a": 1}, {"a": None}]


def test_bad_rows_stand_aside_with_text_and_line_and_the_others_are_read(file: Path) -> None:
    lines = [
        b'{"a": 1}',
        b"null",
        b"",
        b'{"a": 1.0}',
        b'{"a": true}',
        b'{"a": 2',
        b'{"a": "\xff"}',
        b'{"a": 99999999999999999999}',
        b"[1]",
        b'{"a": 3}',
    ]
    file.write_bytes(b"\n".join(lines))
    reader = read.jsonl(file, schema={"a": int})
    assert rows_of(reader) == [{"a": 1}, {"a": 3}]
    assert seq_of(reader) == [0, 8]
    bad = bad_of(reader)
    assert [item.place for item in bad] == [f"{file}:{line}" for line in (2, 4, 5, 6, 7, 8, 9)]
    assert bad[0] == BadRow("null", "it is null, not a JSON object", f"{file}:2")
    assert bad[1] == BadRow('{"a": 1.0}', 'column "a": float 1.0 does not fit the type int64', f"{file}:4")
    assert bad[3].error.startswith("malformed JSON: ")
    assert bad[4] == BadRow('{"a": "\\xff"}', "byte 8 of the line is not UTF-8", f"{file}:7")


@pytest.mark.parametrize(
    ("type_", "value", "error"),
    [
        ("timestamp", '"soon"', "is not an ISO 8601 time"),
        ("timestamp", "5", "is not a datetime"),
        ("date", '"soon"', "is not an ISO 8601 date"),
        ("binary", '"?"', "is not base64"),
        ("float64", '"1.5"', "is a string, not a number"),
        ("decimal(5, 2)", '"x"', "is not a decimal number"),
        ("decimal(5, 2)", "1.555", "does not fit decimal"),
        ("string", '"\\ud800"', "surrogate"),
        ("string", "5", "does not fit the type string"),
    ],
)
def test_a_value_that_does_not_fit_says_why(file: Path, type_: str, value: str, error: str) -> None:
    file.write_text(f'{{"c": {value}}}\n')
    (bad,) = bad_of(read.jsonl(file, schema={"c": type_}))
    assert bad.error.startswith('column "c": ')
    assert error in bad.error


def test_a_field_that_the_first_file_does_not_have_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "b.jsonl").write_text('{"b": 1, "a": 2}\n')
    reader = read.jsonl([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    assert cuts_of(reader) == [[{"a": 1}], [{"a": 2}]]


def test_what_was_written_with_nan_and_infinities_is_read_back_without_a_schema(tmp_path: Path) -> None:
    rows = [{"f": math.nan, "l": [1.0, -math.inf], "s": {"x": math.inf}, "t": "NaN"}]
    rows += [{"f": 1.5, "l": [math.nan], "s": {"x": 2.0}, "t": "text"}]
    graph = ps.PipeGraph("odd floats")
    graph.source(read.rows(rows)).sink(ps.write.jsonl(tmp_path / "out"))
    graph.run("reference")
    reader = read.jsonl(f"{tmp_path}/out/*.jsonl")
    assert [str(field.type) for field in reader.schema][::3] == ["double", "string"]
    assert repr(rows_of(reader)) == repr(rows)


def test_a_column_of_nothing_but_nan_is_a_column_of_floats(file: Path) -> None:
    file.write_text('{"a": "NaN"}\n{"a": null}\n{"a": NaN}\n')
    assert str(read.jsonl(file).schema.field("a").type) == "double"


def test_gzip_marks_and_a_last_line_without_end_are_understood(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}'))
    assert rows_of(read.jsonl(tmp_path)) == [{"a": 1}, {"a": 2}]


def test_a_column_without_a_type_names_the_file(file: Path) -> None:
    file.write_text('{"a": null}\n')
    with pytest.raises(ConnectorError, match=f'"{file}": column "a" holds only nulls'):
        read.jsonl(file)


def test_files_without_a_row_have_no_schema(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "b.jsonl").write_text("null\n")
    with pytest.raises(ConnectorError, match="holds no rows to take a schema from"):
        read.jsonl(tmp_path)
