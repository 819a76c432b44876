"""Make text fit: how wide it will be in a font we cannot measure, and what to leave out.

Widths are those of DejaVu Sans, the widest of the usual system fonts, so text that fits here fits
everywhere. Anything a user can name may come in: control characters are shown as a box.
"""

from __future__ import annotations

import unicodedata

_NARROW = frozenset("ijlI.,:;'|!()[]{}/\\ `-")
_MIDDLE = frozenset('frt"*')
_WIDE = frozenset("mwMW@%—…→×+=<>#&~_")


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """The width of a line of text in a sans-serif font of that size."""
    return sum(map(_em, text)) * size * (1.1 if bold else 1.0)


def _em(letter: str) -> float:
    if letter in _NARROW:
        return 0.4
    if letter in _MIDDLE:
        return 0.46
    if letter in _WIDE:
        return 0.98 if letter in "mwMW@%—…" else 0.84
    if letter > "\u024f":  # beyond Latin: ideographs and signs may be a full square
        return 0.0 if unicodedata.combining(letter) else 1.1
    return 0.72 if letter.isupper() else 0.63


def cut(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """The text, or as much of its beginning as fits with "…" after it."""
    if width_of(text, size, bold=bold) <= width:
        return text
    room = width - width_of("…", size, bold=bold)
    kept = 0
    for letter in text:
        room -= width_of(letter, size, bold=bold)
        if room < 0:
            break
        kept += 1
    return text[:kept].rstrip() + "…"


def wrapped(text: str, width: float, size: float, *, lines: int) -> list[str]:
    """The text in at most so many lines, broken at spaces; the last one is cut if need be."""
    found: list[str] = []
    rest = text.strip()
    while rest and len(found) < lines - 1 and width_of(rest, size) > width:
        line = _first_line(rest, width, size)
        if not line:
            break
        found.append(line)
        rest = rest[len(line) :].strip()
    return [*found, cut(rest, width, size)] if rest else found


def _first_line(text: str, width: float, size: float) -> str:
    """As many whole words as fit; nothing when the first word alone is too long."""
    end, used = 0, 0.0
    for place, letter in enumerate(text):
        if letter == " ":
            end = place
        used += width_of(letter, size)
        if used > width:
            break
    return text[:end]


def printable(text: str) -> str:
    """One line without control characters, which XML forbids and no reader can see."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(letter: str) -> str:
    if letter in "\n\r\t":
        return " "
    bad = unicodedata.category(letter) in ("Cc", "Cs", "Cn") or letter in "\u2028\u2029"
    return "\ufffd" if bad else letter
