"""Joins by comparing every row with every other: the twin of `stages/join`, in plain Python."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
Bound = dict[str, Any]


def points_in_boxes(
    points: list[list[int]], boxes: list[tuple[list[int], list[int]]]
) -> list[tuple[int, int]]:
    """(box, point) for every point, a list of codes, that is inside a box on all codes."""
    return [
        (number, place)
        for number, (lows, highs) in enumerate(boxes)
        for place, codes in enumerate(points)
        if all(low <= code <= high for code, low, high in zip(codes, lows, highs, strict=True))
    ]


def is_equal(x: Any, y: Any) -> bool:
    """Null equals nothing, NaN equals NaN."""
    if x is None or y is None:
        return False
    return bool(x == y) or (x != x and y != y)


def is_close(x: Any, y: Any, width: float, *, strict: bool) -> bool:
    """|x - y| < or <= width; null and NaN are close to nothing."""
    if x is None or y is None:
        return False
    apart = abs(x - y)
    return bool(apart < width) if strict else bool(apart <= width)


def holds(left: Row, right: Row, terms: list[tuple[Any, ...]]) -> bool:
    """Whether all terms hold: ("equal", x, y), ("band", x, y, width, strict) or ("call", function)."""
    for kind, *term in terms:
        if kind == "equal" and not is_equal(left[term[0]], right[term[1]]):
            return False
        if kind == "band" and not is_close(left[term[0]], right[term[1]], term[2], strict=term[3]):
            return False
        if kind == "call" and not term[0](left, right):
            return False
    return True


def window_starts(time: int, size: int, every: int) -> list[int]:
    """The starts of the windows that hold a time."""
    return [
        start
        for start in range((time - size) // every * every, time + 1, every)
        if start <= time < start + size
    ]


def meetings(left: Row, right: Row, bound: Bound) -> list[int | None]:
    """The windows in which rows meet; [None] where they meet without windows."""
    if "window" in bound:
        there = set(windows_of(right, bound))
        return [start for start in windows_of(left, bound) if start in there]
    older_left, older_right = bound["within"]
    return [None] if -older_right <= right["t"] - left["t"] <= older_left else []


def join_all(
    lefts: list[Row], rights: list[Row], terms: list[tuple[Any, ...]], bound: Bound, how: str
) -> list[tuple[int | None, int | None, int | None]]:
    """What leaves of rows none of which is late: (left, right, window), by their places; None for nothing.

    Rows have their time in "t".
    """
    pairs = [
        (place, other, window)
        for place, left in enumerate(lefts)
        for other, right in enumerate(rights)
        for window in meetings(left, right, bound)
        if holds(left, right, terms)
    ]
    with_left = {(left, window) for left, _, window in pairs}
    with_right = {(right, window) for _, right, window in pairs}
    left_alone = [
        (p, None, w) for p, row in enumerate(lefts) for w in windows_of(row, bound) if (p, w) not in with_left
    ]
    right_alone = [
        (None, p, w)
        for p, row in enumerate(rights)
        for w in windows_of(row, bound)
        if (p, w) not in with_right
    ]
    if how == "semi":
        return [(left, None, window) for left, window in with_left]
    if how == "anti":
        return list(left_alone)
    result: list[tuple[int | None, int | None, int | None]] = list(pairs)
    result += left_alone if how in ("left", "full") else []
    return result + (right_alone if how in ("right", "full") else [])


def windows_of(row: Row, bound: Bound) -> list[int | None]:
    """The windows of a row, those of "open" if it came after some had closed; [None] without windows."""
    if "window" not in bound:
        return [None]
    return list(row["open"] if "open" in row else window_starts(row["t"], *bound["window"]))


def join_last_rows(
    lefts: list[Row], rights: list[Row], terms: list[tuple[Any, ...]], counts: tuple[int, int], how: str
) -> list[tuple[int | None, int | None, int | None]]:
    """The same for joins with the last rows; rows of one time stand in their order in the lists."""
    order = sorted(
        [(row["t"], 0, place) for place, row in enumerate(lefts)]
        + [(row["t"], 1, place) for place, row in enumerate(rights)]
    )
    before: tuple[list[int], list[int]] = ([], [])
    result: list[tuple[int | None, int | None, int | None]] = []
    for _, side, place in order:
        count = counts[1 - side]
        partners = before[1 - side][-count:] if count else []
        if side == 0:
            met = [(place, other, None) for other in partners if holds(lefts[place], rights[other], terms)]
        else:
            met = [(other, place, None) for other in partners if holds(lefts[other], rights[place], terms)]
        before[side].append(place)
        if how in ("semi", "anti"):
            if side == 0 and bool(met) == (how == "semi"):
                result.append((place, None, None))
        elif met:
            result += met
        elif how == ("left", "right")[side]:
            result.append((place, None, None) if side == 0 else (None, place, None))
    return result
