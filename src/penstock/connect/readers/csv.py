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

from penstock.connect.batches import Piece
from penstock.connect.protocol import BadRow
from penstock.connect.readers.csv_parse import Layout, each_row, inferred_types, last_row_end, parse_chunk
from penstock.connect.readers.files import FileReader, Paths
from penstock.connect.readers.following import FollowingReader, file_or_folder_reader
from penstock.connect.readers.text import Chunk, as_text, chunks
from penstock.errors import ConnectorError, SchemaError, nearest_first
from penstock.expr.declared import declared_schema, declared_type
from penstock.frozen import dataclass

_HEADER_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class Csv:
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
        found = inferred_types(rest.text, layout)
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

    def pieces(self, file: Path, schema: pa.Schema, declared: bool) -> Iterator[Piece]:
        """One piece per chunk."""
        layout, rest = self._begun(file, schema)
        start = 0
        for chunk in rest:
            piece = piece_of_chunk(chunk, str(file), start, layout, schema)
            yield piece
            start = piece.end

    def _begun(
        self, file: Path, schema: pa.Schema | None = None, size: int | None = None
    ) -> tuple[Layout, Iterator[Chunk]]:
        """The file's layout, and its text after the header, in chunks of `size`."""
        text = chunks(file, partial(last_row_end, delimiter=self.delimiter), size)
        if not self.header:
            assert schema is not None, "csv() asks for a schema when there is no header"
            return Layout(tuple(schema.names), self.delimiter, self.nulls), text
        first = next(text, Chunk(b"", 1))
        for row in each_row(first.text, self.delimiter, first.line):
            if row.text.strip():
                names = _names(file, row.text, self.delimiter)
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
) -> FileReader | FollowingReader:
    """Read csv files: a file, a folder, a glob, or a list of these; `.gz` is unpacked.

    Types come from `schema=` (only its columns are read), or from the values of the first file, with `types=`
    for those that should be read otherwise. One file is one batch, unless `files=` says how many are, or
    `batch=` how many rows.

    With `follow=True` a folder is watched: files that appear later are read too, each whole and once.
    """
    checked_delimiter(delimiter)
    unquoted = checked_nulls(nulls)
    if schema is None and not header:
        raise ConnectorError(
            "a csv without a header has no column names", hint='say them: schema={"price": float}'
        )
    if schema is not None and types is not None:
        raise ConnectorError("schema= and types= both say the types", hint="give one of them")
    exact = {name: declared_type(given) for name, given in (types or {}).items()}
    checked_columns(exact)
    columns = None if schema is None else declared_schema(schema)
    if columns is not None:
        checked_columns(dict(zip(columns.names, columns.types, strict=True)))
    made = Csv(delimiter, header, unquoted, exact)
    return file_or_folder_reader(made, path, columns, batch, files, follow=follow)


def checked_delimiter(delimiter: object) -> str:
    """A delimiter as a user gave it."""
    if not isinstance(delimiter, str) or len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise ConnectorError(
            f"delimiter={delimiter!r} cannot part columns", hint='one character: delimiter=";"'
        )
    return delimiter


def checked_nulls(nulls: Sequence[str]) -> tuple[str, ...]:
    """What stands for null, as a user gave it."""
    if isinstance(nulls, str):
        raise ConnectorError(f"nulls={nulls!r} is not a list of texts", hint=f"write nulls=[{nulls!r}]")
    return tuple(nulls)


def checked_columns(types: Mapping[str, pa.DataType]) -> None:
    """Refuse types that csv has no way to write."""
    for name, type_ in types.items():
        if kind.is_nested(type_) or kind.is_binary(type_):
            raise SchemaError(
                f'csv has no way to write column "{name}" of type {type_}',
                hint="read it as string, or use jsonl",
            )


def piece_of_chunk(chunk: Chunk, place: str, start: int, layout: Layout, schema: pa.Schema) -> Piece:
    """The rows of a chunk, from row number `start` on; `place` is where its lines are from."""
    parsed = parse_chunk(chunk, layout, schema)
    bad = tuple(
        (start + at, BadRow(as_text(row.text), reason, f"{place}:{row.line}"))
        for at, row, reason in parsed.bad
    )
    numbers = np.array(parsed.positions, np.int64) + start
    return Piece(parsed.rows, numbers, bad, start, start + parsed.n_rows)


def _names(file: Path, row: bytes, delimiter: str) -> tuple[str, ...]:
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
