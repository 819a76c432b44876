"""Csv files: clean ones, and those with bad rows."""

from __future__ import annotations

import gzip
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock.read as read
from penstock.connect.protocol import BadRow
from penstock.connect.readers import chunks
from penstock.connect.readers.input_format import FilePart
from penstock.errors import ConnectorError, SchemaError
from tests.support.reader_contents import bad_of, cuts_of, rows_of, seq_of

AB = {"a": int, "b": str}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.csv"


def test_types_are_taken_from_the_values(file: Path) -> None:
    file.write_text("i,f,s,b,t,d,clock,none\n1,1.5,x,true,2026-01-31T12:00:00,2026-01-31,12:30:00,\n")
    assert read.csv(file).schema == pa.schema(
        [
            ("i", pa.int64()),
            ("f", pa.float64()),
            ("s", pa.string()),
            ("b", pa.bool_()),
            ("t", pa.timestamp("us")),
            ("d", pa.date32()),
            ("clock", pa.string()),
            ("none", pa.string()),
        ]
    )


def test_types_may_be_said_for_some_columns(file: Path) -> None:
    file.write_text("zip,price\n01234,1.50\n")
    reader = read.csv(file, types={"zip": str, "price": "decimal(5, 2)"})
    assert rows_of(reader) == [{"zip": "01234", "price": Decimal("1.50")}]


def test_a_schema_picks_columns_by_name(file: Path) -> None:
    file.write_text("b,junk,a\nx,oops,1\n")
    assert rows_of(read.csv(file, schema=AB)) == [{"a": 1, "b": "x"}]


def test_without_a_header_the_schema_names_the_columns(file: Path) -> None:
    file.write_text("1,x\n2,y\n")
    assert rows_of(read.csv(file, schema=AB, header=False)) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def test_an_unquoted_empty_field_is_null_and_a_quoted_one_is_empty(file: Path) -> None:
    file.write_text('a,b\n1,\n,""\n')
    assert rows_of(read.csv(file, schema=AB)) == [{"a": 1, "b": None}, {"a": None, "b": ""}]


def test_only_the_named_nulls_are_null(file: Path) -> None:
    file.write_text("a,b\n1,NA\n-,null\n")
    assert rows_of(read.csv(file, schema=AB, nulls=["-"])) == [{"a": 1, "b": "NA"}, {"a": None, "b": "null"}]


def test_nan_is_nan_and_not_null(file: Path) -> None:
    file.write_text("f\nnan\n\n")
    first, second = rows_of(read.csv(file, schema={"f": float}))
    assert first["f"] != first["f"]
    assert second["f"] is None


def test_quotes_delimiters_ends_of_lines_marks_and_gzip_are_understood(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbfa;b\r\n1;"x;""y""\r\nz"\r\n2;5" pipe\r\n'
    (tmp_path / "x.csv").write_bytes(text)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(text))
    expected = [{"a": 1, "b": 'x;"y"\r\nz'}, {"a": 2, "b": '5" pipe'}]
    for name in ("x.csv", "x.csv.gz"):
        assert rows_of(read.csv(tmp_path / name, delimiter=";")) == expected


def test_bad_rows_stand_aside_with_text_and_line_and_the_others_are_read(file: Path) -> None:
    file.write_bytes(b'a,b\n1,x\nq,y\n3\n\n4,"z\nz"\n5,\xff\n6,u,v\n7,ok\n8,"open\n')
    reader = read.csv(file, schema=AB)
    assert rows_of(reader) == [{"a": 1, "b": "x"}, {"a": 4, "b": "z\nz"}, {"a": 7, "b": "ok"}]
    assert seq_of(reader) == [0, 3, 6]
    assert bad_of(reader) == [
        BadRow("q,y", "column \"a\": invalid value 'q' for type int64", f"{file}:3"),
        BadRow("3", "expected 2 columns, got 1", f"{file}:4"),
        BadRow("5,\\xff", "byte 3 of the row is not UTF-8", f"{file}:8"),
        BadRow("6,u,v", "expected 2 columns, got 3", f"{file}:9"),
        BadRow('8,"open', "a quote in it is never closed", f"{file}:11"),
    ]


def test_an_unclosed_quote_does_not_swallow_the_rows_after_it(file: Path) -> None:
    file.write_text('a,b\n1,"open\n2,x\n3,y\n')
    reader = read.csv(file, schema=AB)
    assert rows_of(reader) == [{"a": 2, "b": "x"}, {"a": 3, "b": "y"}]
    assert [bad.place for bad in bad_of(reader)] == [f"{file}:2"]


def test_bytes_that_are_no_text_and_of_the_wrong_width_are_a_bad_row(file: Path) -> None:
    file.write_bytes(b"a,b\n\xff\n1,x\n")
    reader = read.csv(file, schema=AB)
    assert rows_of(reader) == [{"a": 1, "b": "x"}]
    assert [bad.raw for bad in bad_of(reader)] == ["\\xff"]


def test_bad_rows_do_not_hide_the_types_of_the_others(file: Path) -> None:
    file.write_text("a,b\n1,2\n3\n4,5\n")
    reader = read.csv(file)
    assert reader.schema.types == [pa.int64(), pa.int64()]
    assert rows_of(reader) == [{"a": 1, "b": 2}, {"a": 4, "b": 5}]


def test_times_are_read_with_and_without_zone_and_with_nanoseconds(file: Path) -> None:
    lines = ["2026-01-31T12:00:00", "2026-01-31T13:00:00+01:00", "1969-12-31 23:59:59.999999999", "soon"]
    file.write_text("\n".join(["t", *lines, ""]))
    reader = read.csv(file, schema={"t": "timestamp"})
    noon = datetime(2026, 1, 31, 12)
    assert [row["t"] for row in rows_of(reader)] == [noon, noon, datetime(1969, 12, 31, 23, 59, 59, 999_999)]
    assert [bad.error for bad in bad_of(reader)] == [
        "column \"t\": 'soon' is not an ISO 8601 time such as 2026-01-31T12:00:00Z"
    ]


def test_bad_rows_count_in_a_cut_by_rows(file: Path) -> None:
    file.write_text("a,b\n1,x\nq,x\n3,x\n")
    assert cuts_of(read.csv(file, schema=AB, batch=2)) == [[{"a": 1, "b": "x"}], [{"a": 3, "b": "x"}]]


def test_a_header_alone_holds_no_rows(file: Path) -> None:
    file.write_text("a,b\n\n")
    assert rows_of(read.csv(file, schema=AB)) == []
    with pytest.raises(ConnectorError, match="holds no rows to take a schema from"):
        read.csv(file)


FIELDS = st.text(alphabet='ab"\n\r,; é😀', max_size=6)


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=12), st.integers(1, 40))
def test_chunks_of_any_size_give_the_rows_that_were_quoted(
    file: Path, rows: list[tuple[str, str]], size: int
) -> None:
    lines = [",".join(f'"{text.replace(chr(34), chr(34) * 2)}"' for text in row) for row in rows]
    file.write_bytes(("a,b\n" + "".join(line + "\n" for line in lines)).encode())
    original = chunks.CHUNK_BYTES
    chunks.CHUNK_BYTES = size
    try:
        output = rows_of(read.csv(file, schema={"a": str, "b": str}))
    finally:
        chunks.CHUNK_BYTES = original
    assert [(row["a"], row["b"]) for row in output] == rows


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["1,x", "q,x", "2", "3,y,z", '4,"a\nb"', "5,"]), max_size=30))
def test_every_row_is_either_read_or_bad_and_keeps_its_number(file: Path, lines: list[str]) -> None:
    file.write_text("a,b\n" + "".join(line + "\n" for line in lines))
    good = {"1,x": (1, "x"), '4,"a\nb"': (4, "a\nb"), "5,": (5, None)}
    reader = read.csv(file, schema=AB)
    assert [(row["a"], row["b"]) for row in rows_of(reader)] == [good[line] for line in lines if line in good]
    assert seq_of(reader) == [i for i, line in enumerate(lines) if line in good]
    assert [bad.raw for bad in bad_of(reader)] == [line for line in lines if line not in good]


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (b"", "has no header line"),
        (b"a,a\n", 'names a column "a" twice'),
        (b"a,\n", 'names a column ""'),
        (b"\xff,b\n1,2\n", "is not UTF-8"),
        (b"\xff\xfea\x00", "is UTF-16"),
    ],
)
def test_a_header_that_names_no_columns_is_refused(file: Path, text: bytes, fact: str) -> None:
    file.write_bytes(text)
    with pytest.raises(ConnectorError) as caught:
        read.csv(file)
    assert str(file) in caught.value.fact
    assert fact in caught.value.fact
    assert caught.value.hint


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"delimiter": ""}, "delimiter='' cannot part columns"),
        ({"delimiter": '"'}, "delimiter='\"' cannot part columns"),
        ({"header": False}, "a csv without a header has no column names"),
        ({"schema": AB, "types": {"a": int}}, "schema= and types= both say the types"),
        ({"types": {"c": int}}, 'types= names "c", which is not a column'),
        ({"schema": {"a": bytes}}, 'csv has no way to write column "a" of type binary'),
        ({"types": {"a": list[int]}}, 'csv has no way to write column "a" of type list'),
    ],
)
def test_options_that_make_no_sense_are_refused(file: Path, options: dict[str, Any], fact: str) -> None:
    file.write_text("a,b\n1,x\n")
    with pytest.raises((ConnectorError, SchemaError)) as caught:
        read.csv(file, **options)
    assert fact in caught.value.fact
    assert caught.value.hint


def test_headers_that_differ_are_refused_naming_both_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,x\n")
    (tmp_path / "b.csv").write_text("a,c\n1,x\n")
    with pytest.raises(ConnectorError, match=r"b\.csv.* does not fit .*a\.csv") as caught:
        read.csv([tmp_path / "a.csv", tmp_path / "b.csv"]).check_files()
    assert caught.value.detail == 'it has no column "b"; its columns are a, c'


def test_a_broken_gzip_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.csv.gz"
    file.write_bytes(gzip.compress(b"a\n" + b"1\n" * 1000)[:-12])
    with pytest.raises(ConnectorError, match=f'"{file}" cannot be read'):
        read.csv(file)


def test_dates_are_read(file: Path) -> None:
    file.write_text("d\n1600-02-29\n")
    assert rows_of(read.csv(file, schema={"d": date})) == [{"d": date(1600, 2, 29)}]


@pytest.mark.slow
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([b"1", b"q", b'"', b",", b"\n", b"\r\n", b"\r", b"\xff", b" "]), max_size=25))
def test_no_text_however_odd_stops_the_reader_or_loses_a_number(file: Path, parts: list[bytes]) -> None:
    file.write_bytes(b"a,b\n" + b"".join(parts))
    (batch,) = read.csv(file, schema=AB).batches()
    assert batch.seq is not None
    numbers = batch.seq.to_pylist()
    assert len(numbers) == batch.rows.num_rows
    assert all(0 <= number < batch.rows.num_rows + len(batch.bad) for number in numbers)
    assert numbers == sorted(set(numbers))


def test_bytes_that_are_no_text_do_not_keep_the_types_of_a_file_from_being_found(file: Path) -> None:
    file.write_bytes(b"a,b\n1,2\n\xff\n3,x\xfe,4\n5,6\n")
    reader = read.csv(file)
    (batch,) = reader.batches()
    assert batch.rows.to_pylist() == [{"a": 1, "b": 2}, {"a": 5, "b": 6}]
    assert [bad.raw for bad in batch.bad] == [r"\xff", r"3,x\xfe,4"]


def test_nulls_are_a_list_and_a_delimiter_is_a_character(file: Path) -> None:
    file.write_text("a\nNA\n")
    wrong: Any = 3
    with pytest.raises(ConnectorError, match="nulls='NA' is not a list") as caught:
        read.csv(file, nulls="NA")
    assert caught.value.hint == "write nulls=['NA']"
    with pytest.raises(ConnectorError, match="delimiter=3 cannot part columns"):
        read.csv(file, delimiter=wrong)


@pytest.mark.parametrize(
    ("type_", "outside"), [("decimal(5, 2)", "1000"), ("timestamp", "0000-12-31"), ("int64", "1e3")]
)
def test_a_value_that_no_row_can_hold_is_bad_with_and_without_bad_neighbours(
    file: Path, type_: str, outside: str
) -> None:
    for neighbours in ("", "q\n"):
        file.write_text(f"a\n{outside}\n{neighbours}")
        reader = read.csv(file, schema={"a": type_})
        assert rows_of(reader) == []
        assert bad_of(reader)[0].raw == outside


def test_bytes_that_are_no_text_make_a_bad_row_even_in_a_column_that_is_not_read(file: Path) -> None:
    for neighbours in (b"", b"q,x\n"):
        file.write_bytes(b"a,b\n1,\xff\n2,x\n" + neighbours)
        reader = read.csv(file, schema={"a": int})
        assert rows_of(reader) == [{"a": 2}]
        assert bad_of(reader)[0] == BadRow("1,\\xff", "byte 3 of the row is not UTF-8", f"{file}:2")


def test_only_the_first_byte_order_mark_of_a_file_is_none_of_its_text(file: Path) -> None:
    mark = "\ufeff"
    file.write_text(f"{mark}b\n{mark}x\n{mark}y\n", "utf-8")
    assert rows_of(read.csv(file, schema={"b": str})) == [{"b": f"{mark}x"}, {"b": f"{mark}y"}]


def test_a_bad_row_between_two_kinds_of_line_ends_stands_alone(file: Path) -> None:
    file.write_bytes(b"b\n\r\xff\n\n")
    reader = read.csv(file, schema={"b": str})
    assert rows_of(reader) == [{"b": None}, {"b": None}]
    assert seq_of(reader) == [0, 2]


def test_rows_that_end_in_carriage_returns_are_read_in_chunks(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 100)
    file.write_bytes(b"a,b\r" + b"1,x\r" * 1000)
    reader = read.csv(file, schema=AB)
    sizes = [len(rows.numbers) for rows in reader.read_part(FilePart(str(file), 0, sys.maxsize), 0)]
    assert sum(sizes) == 1000
    assert max(sizes) <= 26
