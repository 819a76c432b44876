"""What else could find the pairs: a loop that only counts, NumPy row by row, and Polars batch by batch.

The counting loop is the bound for any scan: compiled by Numba, all rows in arrays, nothing emitted, no times.
Polars has joins on inequalities (`join_where`); each batch of new rows is joined with the window of the other
side, as a program that keeps its windows as frames would do.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from bench.workload import BenchError
from bench.workloads.join.streams import SECOND, WIDTH, Ints, Side, Streams, encode_pairs


@cache
def compile_count() -> Any:
    """Return the loop that counts, compiled."""
    numba = import_module("numba")

    def count_hits(first: Any, second: Any, firsts: Any, seconds: Any) -> int:
        n_hits = 0
        for start in range(0, len(first), 1024):  # what stays in the first cache
            x, y = first[start : start + 1024], second[start : start + 1024]
            for probe in range(len(firsts)):
                a, b = firsts[probe], seconds[probe]
                for i in range(len(x)):
                    n_hits += (abs(x[i] - a) < WIDTH) & (abs(y[i] - b) < WIDTH)
        return n_hits

    return numba.njit("int64(int32[::1], int32[::1], int32[::1], int32[::1])", nogil=True)(count_hits)


class Columns(NamedTuple):
    """The columns of a full window, and those of the probes, of each side."""

    windows: tuple[tuple[Any, Any], ...]
    probes: tuple[tuple[Any, Any], ...]


def build_columns(streams: Streams) -> Columns:
    """Return what the counting loop reads: numbers that fit into 32 bits."""
    compile_count()
    sides = (streams.left, streams.right)
    parts = [(slice(0, side.cuts[0]), slice(side.cuts[1], None)) for side in sides]
    windows, probes = (
        tuple(
            (side.first[part[which]].astype(np.int32), side.second[part[which]].astype(np.int32))
            for side, part in zip(sides, parts, strict=True)
        )
        for which in (0, 1)
    )
    return Columns(windows, probes)


def count_in_loop(columns: Columns) -> int:
    """Count the hits of the probes of each side in the full window of the other."""
    count = compile_count()
    left, right = columns.windows
    new_left, new_right = columns.probes
    return int(count(*right, *new_left) + count(*left, *new_right))


def count_in_order(streams: Streams) -> int:
    """Return the same count by the order of one attribute, as the oracle of the loop."""
    total = 0
    for own, other in ((streams.left, streams.right), (streams.right, streams.left)):
        order = np.argsort(other.first[: other.cuts[0]], kind="stable")
        ranked, seconds = other.first[order], other.second[order]
        for at in range(own.cuts[1], len(own.times)):
            low, high = np.searchsorted(ranked, [own.first[at] - WIDTH + 1, own.first[at] + WIDTH])
            total += int((np.abs(seconds[low:high] - own.second[at]) < WIDTH).sum())
    return total


def join_by_numpy(streams: Streams) -> Any:
    """Compare each new row with the other window by whole-array operations; return the pairs."""
    left, right = streams.left, streams.right
    window = streams.shape.window_s * SECOND
    pairs: list[Ints] = []
    for own, other, is_left in ((left, right, True), (right, left, False)):
        # A right row meets left rows up to its time, a left row right rows before its time: each pair once.
        past = "left" if is_left else "right"
        for at in range(own.cuts[1], len(own.times)):
            begin = int(np.searchsorted(other.times, own.times[at] - window))
            end = int(np.searchsorted(other.times, own.times[at], side=past))  # type: ignore[call-overload]
            near = np.abs(other.first[begin:end] - own.first[at]) < WIDTH
            near &= np.abs(other.second[begin:end] - own.second[at]) < WIDTH
            hits = np.flatnonzero(near) + begin
            one = np.full(len(hits), at)
            pairs.append(encode_pairs(one, hits) if is_left else encode_pairs(hits, one))
    return lambda: np.sort(np.concatenate(pairs))


def _import_polars() -> Any:
    try:
        return import_module("polars")
    except ImportError as error:
        raise BenchError(
            "Polars is a peer of this workload and is not installed", hint="run: make setup"
        ) from error


class Frames(NamedTuple):
    """Both streams as frames, and the streams."""

    left: Any
    right: Any
    streams: Streams


def build_frames(streams: Streams) -> Frames:
    """Build a frame of each stream."""
    polars = _import_polars()

    def frame(side: Side, names: tuple[str, str, str, str]) -> Any:
        ids = np.arange(len(side.times))
        columns = (side.times, side.first, side.second, ids)
        return polars.DataFrame(dict(zip(names, columns, strict=True)))

    left, right = streams.left, streams.right
    return Frames(frame(left, ("ts", "x", "y", "id")), frame(right, ("ts_right", "a", "b", "other")), streams)


def join_by_polars(frames: Frames) -> Any:
    """Join each batch of new rows with the window of the other side by inequalities."""
    left, right, streams = frames
    window = streams.shape.window_s * SECOND
    results = []
    for batches, end in streams.rounds("probe", streams.shape.n_batches):
        at = {port: (int(batch.rows.column(3)[0].as_py()), batch.num_rows) for port, batch in batches.items()}
        new_left, new_right = left.slice(*at["left"]), right.slice(*at["right"])
        begin = end - window - SECOND
        first_left = int(np.searchsorted(streams.left.times, begin))
        first_right = int(np.searchsorted(streams.right.times, begin))
        old_left = left.slice(first_left, at["left"][0] - first_left)
        all_right = right.slice(first_right, sum(at["right"]) - first_right)
        results += [_join_where(old_left, new_right, window), _join_where(new_left, all_right, window)]
    polars = _import_polars()
    return lambda: _read_frame(polars.concat(results))


def _join_where(left: Any, right: Any, window: int) -> Any:
    """Join by inequalities of columns; if they are computed in place, Polars tries all pairs."""
    col = _import_polars().col
    bounds = right.with_columns(
        a_low=col("a") - WIDTH, a_high=col("a") + WIDTH, b_low=col("b") - WIDTH, b_high=col("b") + WIDTH
    )
    near = left.join_where(
        bounds,
        col("x") > col("a_low"),
        col("x") < col("a_high"),
        col("y") > col("b_low"),
        col("y") < col("b_high"),
    )
    return near.filter((col("ts") - col("ts_right")).abs() <= window).select("id", "other")


def _read_frame(frame: Any) -> Ints:
    return np.sort(encode_pairs(frame["id"].to_numpy(), frame["other"].to_numpy()))
