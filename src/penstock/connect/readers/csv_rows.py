"""Where the rows of csv text begin and end.

A quoted field may hold delimiters and ends of lines; a quote counts only at the start of a field. A quote
that is never closed breaks its own line only, so that one slip cannot swallow the rest of a file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_LONGEST_ROW = 1 << 26
"""A quote still open after this many bytes is taken for a slip."""


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row: its bytes, the line it begins on, and whether a quote in it is never closed."""

    text: bytes
    line: int
    broken: bool


def split_rows(text: bytes, delimiter: str, first_line: int = 1) -> list[RawRow]:
    """The rows of the text, blank lines included."""
    rows = []
    line = first_line
    for match in _pattern(delimiter).finditer(text):
        raw = match[0]
        if raw:
            rows.append(RawRow(raw, line, match["broken"] is not None))
            line += raw.count(b"\n")
    return rows


def last_row_end(text: bytes, delimiter: str) -> int:
    """Where the last whole row of unfinished text ends: an open quote may be closed by what follows."""
    if b'"' not in text:
        return text.rfind(b"\n") + 1
    end = 0
    for match in _pattern(delimiter).finditer(text):
        unfinished = not match[0].endswith(b"\n") and match.end() == len(text)
        still_open = match["broken"] is not None and len(text) - match.start() < _LONGEST_ROW
        if unfinished or still_open:
            break
        end = match.end()
    return end


@lru_cache
def _pattern(delimiter: str) -> re.Pattern[bytes]:
    mark = re.escape(delimiter.encode())
    plain = rb"[^" + mark + rb"\r\n]*+"
    field = rb'(?:"[^"]*+(?:""[^"]*+)*+"' + plain + rb'|(?!")' + plain + rb")"
    broken = rb'(?P<broken>"[^\r\n]*+)'  # takes the rest of its line, so only the last field can be it
    return re.compile(rb"(?:" + field + mark + rb")*+(?:" + field + rb"|" + broken + rb")(?:\r\n|\n|\r|\Z)")
