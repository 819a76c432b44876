"""Durations as people write them: "10 s", "100 ms", "5 min", a timedelta, or a bare count of units."""

from __future__ import annotations

import re
from datetime import timedelta

from penstock.errors import TimeError

Duration = str | timedelta | int

MICROS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_NAMES = {
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}
_FORM = re.compile(r"\s*(\d+)(?:\.(\d+))?\s*([A-Za-zµ]+)\s*")


def micros(duration: Duration, *, unit: int | None = None, subject: str = "duration") -> int:
    """Return a duration in microseconds.

    `unit` is the length of one step of an int64 time column in microseconds: only there is a bare int a
    duration. Fractions are kept exactly or refused, never rounded.

    >>> micros("1.5 s")
    1500000
    """
    if isinstance(duration, timedelta):
        return (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds
    if isinstance(duration, bool) or not isinstance(duration, (int, str)):
        raise TimeError(f"{subject} {duration!r} is not a duration", hint=_HINT)
    if isinstance(duration, int):
        if unit is None:
            raise TimeError(
                f"{subject} {duration} has no unit",
                detail="a bare number is a duration only where the time column is int64",
                hint=f'write "{duration} s", "{duration} ms" or a timedelta',
            )
        return duration * unit
    return _parse(duration, subject)


def _parse(text: str, subject: str) -> int:
    form = _FORM.fullmatch(text)
    name = _NAMES.get(form[3]) if form else None
    if form is None or name is None:
        raise TimeError(f"{subject} {text!r} is not a duration", hint=_HINT)
    scale = MICROS[name]
    fraction = form[2] or ""
    tenths: int = 10 ** len(fraction)
    part, rest = divmod(int(fraction or 0) * scale, tenths)
    if rest:
        raise TimeError(f"{subject} {text!r} is not a whole number of microseconds", hint=_HINT)
    return int(form[1]) * scale + part


def spell(us: int) -> str:
    """Return a duration in the largest unit that keeps it whole, for explain() and errors.

    >>> spell(90_000_000)
    '90 s'
    """
    for name in ("d", "h", "min", "s", "ms"):
        if us and us % MICROS[name] == 0:
            return f"{us // MICROS[name]} {name}"
    return f"{us} us"


_HINT = 'durations look like "10 s", "100 ms", "5 min", "1.5 h" or timedelta(seconds=10)'
