"""The reader of csv files.

Rows with the wrong number of columns or a value that does not parse are bad rows, with their text and
`file:line`; all others are read. Only the values named in `nulls=`, unquoted, become null: a quoted empty
string is an empty string. In a file with one column a blank line is a null; in others it is no row.

A quoted value may span lines, so where a row begins in the middle of a file with quotes is known only to who
has read all before it: such a file is one part. In a file whose rows hold no quotes, every end of a line is
the end of a row (a line feed, a carriage return, or both), so it can be cut anywhere. Quotes in the header do
no harm.
"""

from __future__ import annotations

import csv as stdlib_csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.connect.batching import RowRange
from penstock.connect.read_claims import DEFAULT_WAIT
from penstock.connect.readers.chunks import Chunk, ParseRows, TextBasedFormat, holds_byte, number_rows
from penstock.connect.readers.csv_rows import CsvLayout, end_of_last_row, infer_types, parse_rows, split_rows
from penstock.connect.readers.files import FileReader, build_file_reader
from penstock.connect.readers.input_format import FilePart
from penstock.connect.readers.paths import Paths
from penstock.errors import ConnectorError, SchemaError, nearest_first
from penstock.expr.types import parse_schema, parse_type
from penstock.frozen import dataclass
from penstock.timing.units import Duration

_HEADER_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class CsvFormat(TextBasedFormat):
    """Values separated by commas or another delimiter."""

    delimiter: str
    header: bool
    nulls: tuple[str, ...]
    types: Mapping[str, pa.DataType]

    name: ClassVar[str] = "csv"
    has_quotes: ClassVar[bool] = True
    # A carriage return at the end of a text may be half of an end.
    row_end: ClassVar[re.Pattern[bytes]] = re.compile(rb"\n|\r\n|\r(?=[^\n])")

    def read_schema(self, file: Path) -> pa.Schema | None:
        """Infer types from the file's first 8 MiB, except those of `types=`; None without a row."""
        names, begin = self._read_header(file)
        first = next(self.read_chunks(file, begin), None)
        if first is None or not first.text.strip():
            return None
        for name in self.types:
            if name not in names:
                raise ConnectorError(
                    f'types= names "{name}", which is not a column of "{file}"',
                    hint="one of " + ", ".join(nearest_first(name, names)),
                )
        inferred = infer_types(first.text, CsvLayout(names, self.delimiter, self.nulls))
        return pa.schema([(column.name, self.types.get(column.name, column.type)) for column in inferred])

    def find_mismatch(
        self, file: Path, schema: pa.Schema, declared: bool, optional: Collection[str] = ()
    ) -> str | None:
        """Compare the header's names with the schema's, in any order."""
        if not self.header:
            return None
        names, _ = self._read_header(file)
        missing = [name for name in schema.names if name not in names and name not in optional]
        return f'it has no column "{missing[0]}"; its columns are {", ".join(names)}' if missing else None

    def scan(self, part: FilePart) -> bool:
        """Look for a quote in a range of bytes; the header may have some."""
        file = Path(part.path)
        begin = self._read_header(file)[1] if self.header else 0
        return holds_byte(file, max(part.first, begin), part.last, b'"')

    def end_of_whole_rows(self, file: Path, first: int, last: int) -> int:
        """Return where the last whole row ends; with quotes, that is known only from the first row on."""
        if not holds_byte(file, first, last, b'"'):
            return TextBasedFormat.end_of_whole_rows(self, file, first, last)
        end = first
        for chunk in self.read_chunks(file, first, begin=first, end=last):
            end = chunk.first + self.end_of_rows(chunk.text)
        return end

    def read_part(self, part: FilePart, schema: pa.Schema, declared: bool, start: int) -> Iterator[RowRange]:
        """Yield the rows that begin in a range of bytes; raise if they hold quotes and it is not the file."""
        file = Path(part.path)
        names, begin = self._read_header(file) if self.header else (tuple(schema.names), 0)
        first = max(part.first, begin)
        chunks = self.read_chunks(file, first, part.last, begin=max(part.begin, begin), end=part.end)
        if part.first > part.begin or part.last < min(part.end, self.size(file)):
            chunks = _refuse_quotes(file, chunks)
        parse = self.build_parser(part.path, schema, declared, names)
        return number_rows(chunks, parse, start + part.first)

    def build_parser(
        self, place: str, schema: pa.Schema, declared: bool, names: tuple[str, ...] = ()
    ) -> ParseRows:
        """Return what parses rows with the columns that a header names; without one, those of the schema."""
        layout = CsvLayout(names or tuple(schema.names), self.delimiter, self.nulls)
        return partial(parse_rows, place=place, layout=layout, schema=schema)

    def end_of_rows(self, text: bytes) -> int:
        """Return where the last row ends that no quote keeps open."""
        return end_of_last_row(text, self.delimiter)

    def _read_header(self, file: Path) -> tuple[tuple[str, ...], int]:
        """Return the names of the columns, and the byte after the header."""
        assert self.header, "csv() asks for a schema when there is no header"
        head = next(self.read_chunks(file, size=_HEADER_BYTES), Chunk(b"", 1))
        end = head.first
        for row in split_rows(head.text, self.delimiter):
            end += len(row.text)
            if row.text.strip():
                return _parse_header(file, row.text, self.delimiter), end
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
    wait: Duration = DEFAULT_WAIT,
    quiet: Duration | None = None,
) -> FileReader:
    """Read csv files: a file, a folder, a glob, or a list of these; `.gz` is unpacked.

    Types come from `schema=` (only its columns are read), or from the values of the first file, with `types=`
    for those that should be read otherwise. One file is one batch, unless `files=` says how many are, or
    `batch=` how many rows.

    With `follow=True` files that appear later are read too, and lines that are put behind others, also when a
    log is rotated; what is new is looked for every `wait`. A last line without its end waits for that, for
    ever, until nobody has written to the file for as long as `quiet=` says, or until `stop(drain=True)`.
    """
    if schema is None and not header:
        raise ConnectorError(
            "a csv without a header has no column names", hint='say them: schema={"price": float}'
        )
    if schema is not None and types is not None:
        raise ConnectorError("schema= and types= both say the types", hint="give one of them")
    exact = {name: parse_type(declared) for name, declared in (types or {}).items()}
    columns = None if schema is None else parse_schema(schema)
    file_format = build_csv_format(delimiter, header, nulls, exact if columns is None else columns)
    return build_file_reader(file_format, path, schema, batch, files, follow=follow, wait=wait, quiet=quiet)


def build_csv_format(
    delimiter: object, header: bool, nulls: Sequence[str], types: pa.Schema | Mapping[str, pa.DataType]
) -> CsvFormat:
    """Return the format; raise ConnectorError or SchemaError where an option of a user makes no sense.

    types  those of all columns, or those that are not to be taken from the values
    """
    if not isinstance(delimiter, str) or len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise ConnectorError(
            f"delimiter={delimiter!r} cannot part columns", hint='one character: delimiter=";"'
        )
    if isinstance(nulls, str):
        raise ConnectorError(f"nulls={nulls!r} is not a list of texts", hint=f"write nulls=[{nulls!r}]")
    by_name = types if isinstance(types, Mapping) else dict(zip(types.names, types.types, strict=True))
    for name, type_ in by_name.items():
        if kind.is_nested(type_) or kind.is_binary(type_):
            raise SchemaError(
                f'csv has no way to write column "{name}" of type {type_}',
                hint="read it as string, or use jsonl",
            )
    return CsvFormat(delimiter, header, tuple(nulls), by_name)


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


def _refuse_quotes(file: Path, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    for chunk in chunks:
        if b'"' in chunk.text:
            raise ConnectorError(
                f'"{file}" changed while it was read: it holds quotes',
                detail="a file with quotes is read from its beginning, because a quoted value may span lines",
                hint="put new rows into new files, and run again",
            )
        yield chunk
