"""The reader of csv files.

Rows with the wrong number of columns or a value that does not parse are bad rows, with their text and
`file:line`; all others are read. Only the values named in `nulls=`, unquoted, become null: a quoted empty
string is an empty string. In a file with one column a blank line is a null; in others it is no row.
"""

from __future__ import annotations

import csv as stdlib_csv
import io
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.batching import RowRange
from penstock.connect.readers.csv_rows import CsvLayout, end_of_last_row, infer_types, parse_rows, split_rows
from penstock.connect.readers.files import FileReader, Paths, build_file_reader
from penstock.connect.readers.text import Chunk, number_rows, read_chunks
from penstock.errors import ConnectorError, SchemaError, nearest_first
from penstock.expr.types import parse_schema, parse_type
from penstock.frozen import dataclass

_HEADER_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Values separated by commas or another delimiter."""

    delimiter: str
    header: bool
    nulls: tuple[str, ...]
    types: Mapping[str, pa.DataType]

    name: ClassVar[str] = "csv"
    keeps_raw: ClassVar[bool] = True

    def read_schema(self, file: Path) -> pa.Schema | None:
        """Infer types from the file's first 8 MiB, except those of `types=`; None without a row."""
        layout, chunks = self._open(file)
        first = next(chunks, None)
        if first is None or not first.text.strip():
            return None
        for name in self.types:
            if name not in layout.names:
                raise ConnectorError(
                    f'types= names "{name}", which is not a column of "{file}"',
                    hint="one of " + ", ".join(nearest_first(name, layout.names)),
                )
        inferred = infer_types(first.text, layout)
        return pa.schema([(column.name, self.types.get(column.name, column.type)) for column in inferred])

    def find_mismatch(self, file: Path, schema: pa.Schema, declared: bool) -> str | None:
        """Compare the header's names with the schema's, in any order."""
        if not self.header:
            return None
        names = self._open(file, size=_HEADER_BYTES)[0].names
        missing = [name for name in schema.names if name not in names]
        if missing:
            return f'it has no column "{missing[0]}"; its columns are {", ".join(names)}'
        extra = [name for name in names if name not in schema.names]
        return f'it has one more column, "{extra[0]}"' if extra and not declared else None

    def read(self, file: Path, schema: pa.Schema, declared: bool, start: int) -> Iterator[RowRange]:
        """Yield the rows of each chunk."""
        layout, chunks = self._open(file, schema)
        return number_rows(chunks, partial(parse_rows, place=str(file), layout=layout, schema=schema), start)

    def _open(
        self, file: Path, schema: pa.Schema | None = None, size: int | None = None
    ) -> tuple[CsvLayout, Iterator[Chunk]]:
        """Return the file's layout, and its text after the header, in chunks of `size`."""
        chunks = read_chunks(file, partial(end_of_last_row, delimiter=self.delimiter), size)
        if not self.header:
            assert schema is not None, "csv() asks for a schema when there is no header"
            return CsvLayout(tuple(schema.names), self.delimiter, self.nulls), chunks
        first = next(chunks, Chunk(b"", 1))
        for row in split_rows(first.text, self.delimiter, first.line):
            if row.text.strip():
                layout = CsvLayout(_parse_header(file, row.text, self.delimiter), self.delimiter, self.nulls)
                end = first.text.index(row.text) + len(row.text)
                rest = Chunk(first.text[end:], row.line + row.text.count(b"\n"))
                return layout, chain([rest] if rest.text else [], chunks)
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
) -> FileReader:
    """Read csv files: a file, a folder, a glob, or a list of these; `.gz` is unpacked.

    Types come from `schema=` (only its columns are read), or from the values of the first file, with `types=`
    for those that should be read otherwise. One file is one batch, unless `files=` says how many are, or
    `batch=` how many rows.

    With `follow=True` a folder is watched: files that appear later are read too, each whole and once.
    """
    check_delimiter(delimiter)
    null_texts = check_nulls(nulls)
    if schema is None and not header:
        raise ConnectorError(
            "a csv without a header has no column names", hint='say them: schema={"price": float}'
        )
    if schema is not None and types is not None:
        raise ConnectorError("schema= and types= both say the types", hint="give one of them")
    exact = {name: parse_type(declared) for name, declared in (types or {}).items()}
    check_column_types(exact)
    columns = None if schema is None else parse_schema(schema)
    if columns is not None:
        check_column_types(dict(zip(columns.names, columns.types, strict=True)))
    file_format = CsvFormat(delimiter, header, null_texts, exact)
    return build_file_reader(file_format, path, columns, batch, files, follow=follow)


def check_delimiter(delimiter: object) -> str:
    """Return the delimiter of a user: one byte that is no quote or end of line."""
    if not isinstance(delimiter, str) or len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise ConnectorError(
            f"delimiter={delimiter!r} cannot part columns", hint='one character: delimiter=";"'
        )
    return delimiter


def check_nulls(nulls: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of a user that stand for null."""
    if isinstance(nulls, str):
        raise ConnectorError(f"nulls={nulls!r} is not a list of texts", hint=f"write nulls=[{nulls!r}]")
    return tuple(nulls)


def check_column_types(types: Mapping[str, pa.DataType]) -> None:
    """Refuse types that csv cannot hold."""
    for name, type_ in types.items():
        if kind.is_nested(type_) or kind.is_binary(type_):
            raise SchemaError(
                f'csv has no way to write column "{name}" of type {type_}',
                hint="read it as string, or use jsonl",
            )


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
