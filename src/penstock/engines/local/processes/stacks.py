"""Where a thread is: its Python stack, trimmed to what the user wrote or called."""

from __future__ import annotations

import linecache
from collections.abc import Container, Sequence
from types import CodeType, FrameType

from penstock.caller import is_ours

LAST = 3
"""Frames to show where none is the user's."""


def user_stack(frame: FrameType | None, below: Container[CodeType]) -> list[str]:
    """The frames inside the innermost call of `below`, outermost first, without ours between them."""
    frames: list[FrameType] = []
    while frame is not None and frame.f_code not in below:
        frames.append(frame)
        frame = frame.f_back
    return trimmed(frames)


def trimmed(frames: Sequence[FrameType]) -> list[str]:
    """Frames, innermost first, as lines, outermost first: the user's, or our last ones if none is."""
    theirs = [each for each in frames if not is_ours(each.f_code.co_filename)]
    return [_line(each) for each in reversed(theirs or frames[:LAST])]


def _line(frame: FrameType) -> str:
    code = frame.f_code
    text = linecache.getline(code.co_filename, frame.f_lineno).strip()
    place = f"{code.co_filename}:{frame.f_lineno}, in {code.co_qualname}"
    return f"{place}: {text}" if text else place
