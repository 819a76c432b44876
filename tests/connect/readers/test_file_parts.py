"""Files that are read in parts: wherever they are cut, the parts hold the rows of the whole file."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock.read as read
from penstock.connect.batching import RowRange
from penstock.connect.protocol import BadRow
from penstock.connect.readers import chunks
from penstock.connect.readers.files import FileReader
from penstock.connect.readers.input_format import FilePart
from penstock.errors import ConnectorError
from tests.support.reader_contents import raise_failures

MARK = b"\xef\xbb\xbf"
AB = {"a": int, "b": str}
START = 1000
"""The number of the file's first row among those of the source."""


class NumberedRow(NamedTuple):
    number: int
    row: dict[str, Any] | BadRow


def number_all(ranges: Iterable[RowRange]) -> list[NumberedRow]:
    """Return the rows of a read, good and bad, which must be in the order of their numbers."""
    rows: list[NumberedRow] = []
    for part in ranges:
        good = map(NumberedRow, part.numbers.tolist(), part.rows.to_pylist())
        rows += sorted([*good, *(NumberedRow(*pair) for pair in part.bad)], key=lambda pair: pair.number)
    assert [pair.number for pair in rows] == sorted({pair.number for pair in rows})
    return rows


def read_whole(reader: FileReader, file: Path) -> list[dict[str, Any] | BadRow]:
    whole = FilePart(str(file), 0, sys.maxsize)
    rows = number_all(reader.format.read_part(whole, reader.schema, reader.schema_file is None, START))
    assert [pair.number for pair in rows] == list(range(START, START + len(rows)))
    return [pair.row for pair in rows]


def read_parts(reader: FileReader, parts: Sequence[FilePart]) -> list[dict[str, Any] | BadRow]:
    rows = []
    for part in parts:
        of_part = number_all(reader.read_part(part, START))
        raise_failures(pair.row for pair in of_part if isinstance(pair.row, BadRow))
        assert all(START + part.first <= pair.number < START + part.last for pair in of_part)
        rows += of_part
    return [pair.row for pair in rows]


def cut_at(file: Path, size: int, cuts: Iterable[int]) -> list[FilePart]:
    places = sorted(cut % (size + 1) for cut in cuts)
    return [FilePart(str(file), first, last) for first, last in pairwise([0, *places, size])]


def assert_parts_are_whole(reader: FileReader, file: Path, cuts: Iterable[int]) -> None:
    size = reader.format.size(file)
    whole = read_whole(reader, file)
    assert len(whole) <= size
    assert read_parts(reader, cut_at(file, size, cuts)) == whole


def assert_every_cut_is_right(reader: FileReader, file: Path) -> None:
    size = reader.format.size(file)
    for cut in range(size + 1):
        assert_parts_are_whole(reader, file, [cut])
    assert_parts_are_whole(reader, file, range(size))


@contextmanager
def blocks_of(n_bytes: int) -> Iterator[None]:
    """Read files in small blocks, so that small files have many."""
    names = ("CHUNK_BYTES", "_SEARCH_BYTES")
    originals = {name: getattr(chunks, name) for name in names}
    try:
        for name in names:
            setattr(chunks, name, n_bytes)
        yield
    finally:
        for name, original in originals.items():
            setattr(chunks, name, original)


def csv_ab(file: Path, **options: Any) -> FileReader:
    return read.csv(file, **{"schema": AB} | options)


def jsonl_a(file: Path) -> FileReader:
    return read.jsonl(file, schema={"a": int})


csv_text = partial(read.csv, schema={"b": str}, header=False)

TEXTS = [
    b"one\ntwo\n",
    b"\n\n\n",
    b"\r\n \r\nx",
    MARK + b"one\n" + MARK + b"\xff\nlast",
    b"",
    MARK,
    b"a" * 40,
]
OBJECTS = [
    b'{"a": 1}\n\n{"a": "x"}\r\n  \nnull\n{"a": 2}',
    MARK + b'{"a": 1}\n{"a": \xff}\n{"a": 3, "b": 4}\n',
    b"\n \n",
]
CSVS = [
    b"a,b\n1,x\nq,y\n\n3\r\n4,z",
    MARK + b"a,b\r1,x\r\r\n\n\r2,y\r",
    b"\n \na,b\n" + MARK + b"1,x\n5,\xff\n6,u,v\n",
    b"a,b",
    b"a,b\n\n",
    b'"a","b"\n1,x\nq,y\n',
]


@pytest.mark.parametrize("n_bytes", [1, 5, 1 << 16])
@pytest.mark.parametrize(
    ("build", "text"),
    [
        *((read.text, text) for text in TEXTS),
        *((jsonl_a, text) for text in OBJECTS),
        *((csv_ab, text) for text in CSVS),
        (partial(csv_ab, header=False), b"1,x\nq\r\r\n2,y"),
        (partial(csv_ab, delimiter="\t", nulls=("NA",)), b"a\tb\nNA\tNA\n1\t\n"),
        (partial(csv_ab, schema={"b": str}), b"a,b\n1,x\n1,x,y\n"),
        (csv_text, MARK + b"\n\nx\r\n\ny\r\rz\n\n" + MARK + b"\n"),
    ],
)
def test_a_text_file_may_be_cut_between_any_two_bytes(
    tmp_path: Path, build: Any, text: bytes, n_bytes: int
) -> None:
    file = tmp_path / "x"
    file.write_bytes(text)
    with blocks_of(n_bytes):
        assert_every_cut_is_right(build(file), file)


LINES = st.sampled_from(
    [
        b"",
        b" ",
        b"1,x",
        b"2,",
        b"q,y",
        b"3",
        b"4,u,v",
        b"5,\xff",
        b"6,\xed\xa0\x80",
        "6,é😀".encode(),
        MARK + b"7,w",
        b"8," + b"z" * 40,
    ]
)
JSON_LINES = st.sampled_from(
    [
        *(b"", b"\t ", b"null", b'{"a": 1}', b'{"a": "x"}', b'{"a": 2, "b": 3}', b'{"a": 1.5}', b'{"a":'),
        *(b"\xff", '{"a": 4, "é": "😀"}'.encode(), MARK + b'{"a": 5}', b'{"a": ' + b" " * 40 + b"6}"),
    ]
)
LINE_ENDS = st.sampled_from([b"\n", b"\n", b"\r\n"])
ANY_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
CUTS = st.lists(st.integers(0, 1 << 20), max_size=6)
BLOCKS = st.sampled_from([1, 2, 7, 64, 1 << 16])


def texts_of(lines: st.SearchStrategy[bytes], ends: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return texts with and without a byte order mark and an end of line after the last line."""
    whole = st.lists(st.tuples(lines, ends).map(b"".join), max_size=12).map(b"".join)
    return st.tuples(st.sampled_from([b"", MARK]), whole, st.one_of(st.just(b""), lines)).map(b"".join)


any_text = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@any_text
@given(texts_of(st.one_of(LINES, st.binary(max_size=5)), LINE_ENDS), CUTS, BLOCKS, st.booleans())
def test_the_parts_of_any_text_are_its_lines(
    tmp_path: Path, text: bytes, cuts: list[int], n_bytes: int, packed: bool
) -> None:
    file = tmp_path / ("x.gz" if packed else "x")
    file.write_bytes(gzip.compress(text) if packed else text)
    reader = read.text(file)
    if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        with pytest.raises(ConnectorError, match="is UTF-16"):
            read_parts(reader, cut_at(file, reader.format.size(file), cuts))
        return
    with blocks_of(n_bytes):
        assert_parts_are_whole(reader, file, [cut % (len(text) + 2) for cut in cuts])
    lines = text.removeprefix(MARK).split(b"\n")
    rows = read_parts(reader, reader.format.parts(file, 10))
    assert len(rows) == len(lines) - (not lines[-1])
    for number, row in enumerate(rows, 1):
        assert not isinstance(row, BadRow) or row.place == f"{file}:{number}"


@pytest.mark.slow
@any_text
@given(texts_of(JSON_LINES, LINE_ENDS), CUTS, BLOCKS, st.sampled_from([{"a": int}, {"a": float}, None]))
def test_the_parts_of_json_lines_are_the_whole(
    tmp_path: Path, text: bytes, cuts: list[int], n_bytes: int, schema: Any
) -> None:
    (tmp_path / "first.jsonl").write_bytes(b'{"a": 1}')
    file = tmp_path / "x.jsonl"
    file.write_bytes(text)
    reader = read.jsonl([tmp_path / "first.jsonl", file], schema=schema)
    with blocks_of(n_bytes):
        assert_parts_are_whole(reader, file, cuts)


@pytest.mark.slow
@any_text
@given(
    texts_of(LINES, ANY_ENDS),
    CUTS,
    BLOCKS,
    st.sampled_from([None, b"b,a\n", b'\n  \r\n"b","a"\r\n', b"b\n"]),
    st.sampled_from([AB, {"b": str}, {"a": "decimal(3, 2)", "b": "timestamp"}]),
)
def test_the_parts_of_a_csv_file_without_quotes_are_the_whole(
    tmp_path: Path, text: bytes, cuts: list[int], n_bytes: int, header: bytes | None, schema: Any
) -> None:
    schema = {"b": str} if header == b"b\n" else schema
    file = tmp_path / "x.csv"
    mark = MARK if text.startswith(MARK) and header else b""
    file.write_bytes(mark + (header or b"") + text.removeprefix(mark))
    with blocks_of(n_bytes):
        assert_parts_are_whole(read.csv(file, schema=schema, header=header is not None), file, cuts)


@pytest.mark.slow
@any_text
@given(
    texts_of(st.one_of(LINES, st.sampled_from([b'1,"x', b'y"', b'"', b'2,"z"'])), ANY_ENDS),
    st.integers(1, 99),
)
def test_a_csv_file_is_cut_if_a_scan_finds_no_quotes(tmp_path: Path, text: bytes, most: int) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b'"a",b\n' + text)
    reader = csv_ab(file)
    if reader.format.needs_scan(file, most):
        plain = not any(map(reader.format.scan, reader.format.parts(file, most, plain=True)))
        assert plain == (b'"' not in text)
        parts = reader.format.parts(file, most, plain=plain)
        assert (len(parts) == 1) == (not plain)
    else:
        parts = reader.format.parts(file, most)
        assert len(parts) == 1
    assert read_parts(reader, parts) == read_whole(reader, file)


@pytest.mark.slow
@any_text
@given(
    st.lists(st.integers(0, 5), max_size=6),
    CUTS,
    st.integers(1, 400),
    st.sampled_from([None, {"a": "float64"}, {"b": str, "a": int}]),
)
def test_the_parts_of_a_parquet_file_are_the_whole(
    tmp_path: Path, groups: list[int], cuts: list[int], most: int, schema: Any
) -> None:
    file = save_groups(tmp_path / "x.parquet", groups)
    reader = read.parquet(file, schema=schema)
    assert reader.format.size(file) == sum(groups)
    assert_parts_are_whole(reader, file, cuts)
    parts = reader.format.parts(file, most)
    assert read_parts(reader, parts) == read_whole(reader, file)
    assert len(parts) == 1 or all(part.first < part.last for part in parts)
    starts = {sum(groups[:n]) for n in range(len(groups) + 1)}
    assert all(part.first in starts and part.last in starts for part in parts)


def save_groups(file: Path, sizes: Sequence[int]) -> Path:
    """Write a file whose row groups have that many rows."""
    schema = pa.schema({"a": pa.int64(), "b": pa.string()})
    with pq.ParquetWriter(file, schema) as writer:
        for first, n_rows in zip([sum(sizes[:n]) for n in range(len(sizes))], sizes, strict=True):
            rows = range(first, first + n_rows)
            writer.write_table(pa.table({"a": list(rows), "b": list(map(str, rows))}, schema))
    return file


def test_numbers_of_parquet_rows_are_those_of_the_file(tmp_path: Path) -> None:
    file = save_groups(tmp_path / "x.parquet", [3, 4, 2])
    reader = read.parquet(file)
    rows = number_all(reader.read_part(FilePart(str(file), 2, 8), START))
    assert [(pair.number, pair.row) for pair in rows] == [
        (START + n, {"a": n, "b": str(n)}) for n in range(2, 8)
    ]


def test_a_parquet_file_is_cut_between_row_groups_by_their_bytes(tmp_path: Path) -> None:
    file = save_groups(tmp_path / "x.parquet", [10, 10, 10, 10])
    n_bytes = pq.read_metadata(file).row_group(3).total_byte_size
    file_format = read.parquet(file).format
    assert [(part.first, part.last) for part in file_format.parts(file, 2 * n_bytes + 9)] == [
        (0, 20),
        (20, 40),
    ]
    assert [(part.first, part.last) for part in file_format.parts(file, 1)] == [
        (first, first + 10) for first in range(0, 40, 10)
    ]
    assert file_format.parts(file, 1 << 40) == [FilePart(str(file), 0, 40)]
    assert not file_format.needs_scan(file, 1)
    assert not file_format.scan(FilePart(str(file), 0, 40))


def test_a_file_without_rows_is_one_part_without_rows(tmp_path: Path) -> None:
    save_groups(tmp_path / "x.parquet", [])
    for name in ("x.txt", "x.jsonl", "x.csv"):
        (tmp_path / name).write_bytes(b"")
    readers = [
        read.parquet(tmp_path / "x.parquet"),
        read.text(tmp_path / "x.txt"),
        jsonl_a(tmp_path / "x.jsonl"),
        csv_ab(tmp_path / "x.csv", header=False),
    ]
    for reader in readers:
        file = Path(str(reader.paths))
        assert reader.format.parts(file, 10) == [FilePart(str(file), 0, 0)]
        assert read_parts(reader, reader.format.parts(file, 10)) == []


def test_parts_of_text_are_equal_ranges_of_bytes(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"x" * 25)
    for reader in (read.text(file), jsonl_a(file)):
        parts = reader.format.parts(file, 10)
        assert parts == [FilePart(str(file), 0, 8), FilePart(str(file), 8, 16), FilePart(str(file), 16, 25)]
        assert reader.format.parts(file, 25) == [FilePart(str(file), 0, 25)]
        assert not reader.format.needs_scan(file, 10)
        assert not reader.format.scan(parts[0])


def test_a_csv_file_is_cut_only_if_it_is_known_to_hold_no_quotes(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b"a,b\n1,x\n")
    file_format = csv_ab(file).format
    assert file_format.parts(file, 4) == [FilePart(str(file), 0, 8)]
    assert file_format.parts(file, 4, plain=True) == [FilePart(str(file), 0, 4), FilePart(str(file), 4, 8)]
    assert file_format.needs_scan(file, 7)
    assert not file_format.needs_scan(file, 8)


def test_a_scan_finds_quotes_in_its_own_range_and_not_in_the_header(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b'"a",b\n1,x\n2,"y"\n')
    file_format = csv_ab(file).format
    for n_bytes in (1, 4, 64):
        with blocks_of(n_bytes):
            assert not file_format.scan(FilePart(str(file), 0, 12))
            assert file_format.scan(FilePart(str(file), 0, 13))
            assert file_format.scan(FilePart(str(file), 13, 15))
            assert not file_format.scan(FilePart(str(file), 15, 16))
    assert csv_ab(file, header=False).format.scan(FilePart(str(file), 0, 1))


def test_packed_text_is_one_part_that_bounds_its_row_numbers(tmp_path: Path) -> None:
    file = tmp_path / "x.gz"
    file.write_bytes(gzip.compress(b"\n" * 2_000_000))
    for reader in (read.text(file), csv_text(file)):
        (part,) = reader.format.parts(file, 10, plain=True)
        assert not reader.format.needs_scan(file, 10)
        assert (part.first, part.last) == (0, reader.format.size(file))
        assert part.last == file.stat().st_size * 1100
        n_rows = sum(len(rows.numbers) for rows in reader.read_part(part, START))
        assert n_rows == 2_000_000 < part.last


def test_bad_rows_of_a_later_part_know_their_line(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b"\na,b\n" + b"1,x\n\n" * 5000 + b"q,y\n2,z\n")
    size = file.stat().st_size
    reader = csv_ab(file)
    for first in (3, size // 2, size - 8):
        with blocks_of(1000):
            bad = [
                row
                for row in read_parts(reader, [FilePart(str(file), first, size)])
                if isinstance(row, BadRow)
            ]
        assert [row.place for row in bad] == [f"{file}:10003"]


def test_lines_before_a_part_are_counted_once_and_only_for_bad_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []

    def count_lines(file: Path, end: int) -> int:
        counts.append(end)
        return 7

    monkeypatch.setattr(chunks, "_count_lines", count_lines)
    file = tmp_path / "x.csv"
    file.write_bytes(b"t\n2026-01-31T12:00:00\n2026-01-31T12:00:00Z\n" + b"soon\n" * 3)
    reader = read.csv(file, schema={"t": "timestamp"})
    with blocks_of(8):
        assert len(read_parts(reader, [FilePart(str(file), 20, 30)])) == 1
        assert counts == []
        bad = read_parts(reader, [FilePart(str(file), 40, 58)])
    assert counts == [43]
    assert [row.place for row in bad if isinstance(row, BadRow)] == [f"{file}:{line}" for line in (8, 9, 10)]


def test_a_line_longer_than_parts_and_blocks_belongs_to_the_part_where_it_begins(tmp_path: Path) -> None:
    file = tmp_path / "x"
    long = b"y" * 300_000
    file.write_bytes(b"x\n" + long + b"\nz\n")
    reader = read.text(file)
    parts = reader.format.parts(file, 1000)
    rows = [read_parts(reader, [part]) for part in (parts[0], parts[1], parts[150], parts[-1])]
    assert rows == [[{"line": "x"}, {"line": long.decode()}], [], [], [{"line": "z"}]]


def test_a_part_is_read_in_bounded_chunks(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b"a,b\n" + b"1,x\n" * 1000)
    for reader in (csv_ab(file), read.text(file)):
        with blocks_of(64):
            ranges = list(reader.read_part(FilePart(str(file), 1000, 3000), START))
        assert sum(len(part.numbers) for part in ranges) == 500
        assert max(len(part.numbers) for part in ranges) <= 17


def test_a_part_must_fit_the_schema_of_its_reader(tmp_path: Path) -> None:
    for name, text in {"a.csv": b"a,b\n1,x\n", "b.csv": b"a,c\n1,x\n"}.items():
        (tmp_path / name).write_bytes(text)
    reader = read.csv(tmp_path / "a.csv")
    with pytest.raises(ConnectorError, match=r"b\.csv.* does not fit .*a\.csv"):
        read_parts(reader, [FilePart(str(tmp_path / "b.csv"), 4, 8)])


def test_a_part_of_a_csv_file_with_quotes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b'a,b\n1,x\n2,"y\n3,z"\n')
    reader = csv_ab(file)
    for part in (FilePart(str(file), 0, 12), FilePart(str(file), 12, 19)):
        with pytest.raises(ConnectorError) as caught:
            read_parts(reader, [part])
        assert caught.value.fact == f'"{file}" changed while it was read: it holds quotes'
        assert caught.value.hint
    assert len(read_parts(reader, [FilePart(str(file), 0, 8)])) == 1


def test_no_part_of_a_file_in_utf_16_is_read(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes("one\ntwo\n".encode("utf-16"))
    for part in (FilePart(str(file), 0, 6), FilePart(str(file), 6, 18)):
        with pytest.raises(ConnectorError, match="is UTF-16"):
            read_parts(read.text(file), [part])


def test_a_file_that_vanished_or_is_damaged_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"PAR1 and then rubbish")
    parquet = read.parquet(save_groups(tmp_path / "whole", [1])).format
    for ask in (parquet.size, lambda file: parquet.parts(file, 10)):
        with pytest.raises(ConnectorError, match=f'"{file}" cannot be read'):
            ask(file)
    reader, table = read.text(file), csv_text(file)
    file.unlink()
    part = FilePart(str(file), 2, 8)
    for use in (
        lambda: reader.format.size(file),
        lambda: reader.format.parts(file, 10),
        lambda: read_parts(reader, [part]),
        lambda: table.format.needs_scan(file, 10),
        lambda: table.format.scan(part),
    ):
        with pytest.raises(ConnectorError, match=f'"{file}" cannot be read: No such file'):
            use()
