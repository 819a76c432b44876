"""Where the rows of csv text begin and end.

A quoted field may hold delimiters and ends of lines; a quote counts only at the start of a field. A quote
that is never closed breaks its own line only, so that one slip cannot swallow the rest of a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from penstock.frozen import dataclass

_LONGEST_ROW = 1 << 26
"""A quote still open after this many bytes is taken for a slip."""


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row: its bytes, the line it begins on, and whether a quote in it is never closed."""

    text: bytes
    line: int
    broken: bool


def each_row(text: bytes, delimiter: str, first_line: int = 1) -> Iterator[RawRow]:
    """The rows of the text, blank lines included."""
    line = first_line
    for match in _row(delimiter).finditer(text):
        raw = match[0]
        if raw:
            yield RawRow(raw, line, match["broken"] is not None)
            line += raw.count(b"\n")


def last_row_end(text: bytes, delimiter: str) -> int:
    """Where the last whole row of unfinished text ends: an open quote may be closed by what follows."""
    if b'"' not in text:
        return text.rfind(b"\n") + 1
    whole = _whole_rows(delimiter).match(text)
    end = whole.end() if whole else 0
    if len(text) - end < _LONGEST_ROW:
        return end
    return text.find(b"\n", end) + 1  # the line with the slip is a row of its own


def n_rows_if_tidy(text: bytes) -> int:
    """How many lines end outside quotes, if quotes come in pairs; a guess, to be compared with a count."""
    if b'"' not in text:
        return text.count(b"\n")
    codes = np.frombuffer(text, np.uint8)
    inside = np.logical_xor.accumulate(codes == ord('"'))
    return int(np.count_nonzero((codes == ord("\n")) & ~inside))


@lru_cache
def _row(delimiter: str) -> re.Pattern[bytes]:
    fields, field = _fields(delimiter)
    broken = rb'(?P<broken>"[^\r\n]*+)'  # takes the rest of its line, so only the last field can be it
    return re.compile(fields + rb"(?:" + field + rb"|" + broken + rb")(?:\r\n|\n|\r|\Z)")


@lru_cache
def _whole_rows(delimiter: str) -> re.Pattern[bytes]:
    """All rows that are finished, in one match: a loop in Python would cost more than the parsing."""
    fields, field = _fields(delimiter)
    return re.compile(rb"(?:" + fields + field + rb"(?:\r\n|\n|\r(?!\Z)))*+")


def _fields(delimiter: str) -> tuple[bytes, bytes]:
    """Patterns of any number of fields that a delimiter ends, and of one field."""
    mark = re.escape(delimiter.encode())
    plain = rb"[^" + mark + rb"\r\n]*+"
    field = rb'(?:"[^"]*+(?:""[^"]*+)*+"' + plain + rb'|(?!")' + plain + rb")"
    return rb"(?:" + field + mark + rb")*+", field
