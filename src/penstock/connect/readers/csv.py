"""Read csv files: columns at once where the text is clean, row by row where it is not.

Rows with the wrong number of columns or a value that does not parse are bad rows, with their text and
`file:line`; all others are read. Nothing becomes null but the values named in `nulls=`, unquoted: a quoted
empty string is an empty string. In a file with one column, a blank line is a null; else it is nothing.
"""

from __future__ import annotations

import csv as stdlib_csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.batches import RowRange
from penstock.connect.protocol import BadRow
from penstock.connect.readers.csv_parse import Layout, end_of_last_row, infer_types, parse_chunk, split_rows
from penstock.connect.readers.directory_watcher import DirectoryWatcher, build_reader
from penstock.connect.readers.files import FileReader, Paths
from penstock.connect.readers.text import Chunk, read_chunks, show_bytes
from penstock.errors import ConnectorError, SchemaError, nearest_first
from penstock.expr.schema import parse_schema, parse_type
from penstock.frozen import dataclass

_HEADER_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Comma-separated values, and those separated otherwise."""

    delimiter: str = ","
    header: bool = True
    nulls: tuple[str, ...] = ("",)
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    name: str = "csv"
    keeps_raw: bool = True

    def schema_of(self, file: Path) -> pa.Schema | None:
        """From the header and the values of the file's first 8 MiB, `types=` first; None without a row."""
        layout, first = self._begun(file)
        rest = next(first, None)
        if rest is None or not rest.text.strip():
            return None
        for name in self.types:
            if name not in layout.names:
                raise ConnectorError(
                    f'types= names "{name}", which is not a column of "{file}"',
                    hint="one of " + ", ".join(nearest_first(name, layout.names)),
                )
        found = infer_types(rest.text, layout)
        return pa.schema([(each.name, self.types.get(each.name, each.type)) for each in found])

    def misfit(self, file: Path, schema: pa.Schema, declared: bool) -> str | None:
        """Columns are found by their names in the header, in any order."""
        if not self.header:
            return None
        names = self._begun(file, size=_HEADER_BYTES)[0].names
        missing = [name for name in schema.names if name not in names]
        if missing:
            return f'it has no column "{missing[0]}"; its columns are {", ".join(names)}'
        extra = [name for name in names if name not in schema.names]
        return f'it has one more column, "{extra[0]}"' if extra and not declared else None

    def pieces(self, file: Path, schema: pa.Schema, declared: bool) -> Iterator[RowRange]:
        """One piece per chunk."""
        layout, rest = self._begun(file, schema)
        start = 0
        for chunk in rest:
            piece = parse_rows(chunk, str(file), start, layout, schema)
            yield piece
            start = piece.end

    def _begun(
        self, file: Path, schema: pa.Schema | None = None, size: int | None = None
    ) -> tuple[Layout, Iterator[Chunk]]:
        """The file's layout, and its text after the header, in chunks of `size`."""
        text = read_chunks(file, partial(end_of_last_row, delimiter=self.delimiter), size)
        if not self.header:
            assert schema is not None, "csv() asks for a schema when there is no header"
            return Layout(tuple(schema.names), self.delimiter, self.nulls), text
        first = next(text, Chunk(b"", 1))
        for row in split_rows(first.text, self.delimiter, first.line):
            if row.text.strip():
                names = _parse_header(file, row.text, self.delimiter)
                end = first.text.index(row.text) + len(row.text)
                after = Chunk(first.text[end:], row.line + row.text.count(b"\n"))
                layout = Layout(names, self.delimiter, self.nulls)
                return layout, _after_header(after, text)
        raise ConnectorError(
            f'"{file}" has no header line', hint="say header=False and schema=, or leave the file out"
        )


def csv(
    path: Paths,
    *,
    schema: object = None,
    types: Mapping[str, object] | None = None,
    delimiter: str = ",",
    header: bool = True,
    nulls: Sequence[str] = ("",),
    batch: int | None = None,
    files: int | None = None,
    follow: bool = False,
) -> FileReader | DirectoryWatcher:
    """Read csv files: a file, a folder, a glob, or a list of these; `.gz` is unpacked.

    Types come from `schema=` (only its columns are read), or from the values of the first file, with `types=`
    for those that should be read otherwise. One file is one batch, unless `files=` says how many are, or
    `batch=` how many rows.

    With `follow=True` a folder is watched: files that appear later are read too, each whole and once.
    """
    check_delimiter(delimiter)
    unquoted = check_nulls(nulls)
    if schema is None and not header:
        raise ConnectorError(
            "a csv without a header has no column names", hint='say them: schema={"price": float}'
        )
    if schema is not None and types is not None:
        raise ConnectorError("schema= and types= both say the types", hint="give one of them")
    exact = {name: parse_type(given) for name, given in (types or {}).items()}
    check_column_types(exact)
    columns = None if schema is None else parse_schema(schema)
    if columns is not None:
        check_column_types(dict(zip(columns.names, columns.types, strict=True)))
    made = CsvFormat(delimiter, header, unquoted, exact)
    return build_reader(made, path, columns, batch, files, follow=follow)


def check_delimiter(delimiter: object) -> str:
    """A delimiter as a user gave it."""
    if not isinstance(delimiter, str) or len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise ConnectorError(
            f"delimiter={delimiter!r} cannot part columns", hint='one character: delimiter=";"'
        )
    return delimiter


def check_nulls(nulls: Sequence[str]) -> tuple[str, ...]:
    """What stands for null, as a user gave it."""
    if isinstance(nulls, str):
        raise ConnectorError(f"nulls={nulls!r} is not a list of texts", hint=f"write nulls=[{nulls!r}]")
    return tuple(nulls)


def check_column_types(types: Mapping[str, pa.DataType]) -> None:
    """Refuse types that csv has no way to write."""
    for name, type_ in types.items():
        if kind.is_nested(type_) or kind.is_binary(type_):
            raise SchemaError(
                f'csv has no way to write column "{name}" of type {type_}',
                hint="read it as string, or use jsonl",
            )


def parse_rows(chunk: Chunk, place: str, start: int, layout: Layout, schema: pa.Schema) -> RowRange:
    """The rows of a chunk, from row number `start` on; `place` is where its lines are from."""
    parsed = parse_chunk(chunk, layout, schema)
    bad = tuple(
        (start + at, BadRow(show_bytes(row.text), reason, f"{place}:{row.line}"))
        for at, row, reason in parsed.bad
    )
    numbers = np.array(parsed.positions, np.int64) + start
    return RowRange(parsed.rows, numbers, bad, start, start + parsed.n_rows)


def _parse_header(file: Path, row: bytes, delimiter: str) -> tuple[str, ...]:
    try:
        names = next(stdlib_csv.reader(io.StringIO(row.decode(), newline=""), delimiter=delimiter))
    except UnicodeDecodeError as problem:
        raise ConnectorError(
            f'the header of "{file}" is not UTF-8', hint="save the file as UTF-8"
        ) from problem
    for name in names:
        if not name or names.count(name) > 1:
            raise ConnectorError(
                f'the header of "{file}" names a column "{name}"' + (" twice" if name else ""),
                hint="name each column, each by another name, or say header=False and schema=",
            )
    return tuple(names)


def _after_header(first: Chunk, rest: Iterator[Chunk]) -> Iterator[Chunk]:
    if first.text:
        yield first
    yield from rest
