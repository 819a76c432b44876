"""The cases, series by series: names and shapes only; `experiments.py` puts them together.

A series varies one thing and keeps the rest, rows per (slice, key) and result rows among it, or says what
else varies. Figures are SPRINGALD's.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.bench.workloads.windows.functions import NINE
from penstock.bench.workloads.windows.shape import Shape

Series = dict[str, Shape]

SLIDES = {"100 ms": 100_000, "10 ms": 10_000, "1 ms": 1_000, "100 us": 100, "10 us": 10}
DELAYS = {"in order": 0, "1 ms": 1_000, "10 ms": 10_000, "100 ms": 100_000, "1 s": 1_000_000}
SECOND = 1_000_000


def plain(n_rows: int) -> Shape:
    """One key, sum, windows of 1 s every 10 ms over a million rows a second."""
    return Shape(n_rows)


def slides(n_rows: int, which: Iterable[str] = SLIDES) -> Series:
    """Figure 12, centre: 1,000 rows per slice whatever the slide; a row is in 10 to 100,000 windows."""
    return {
        f"slide {name}": Shape(n_rows, every=SLIDES[name], per_slice=1_000, steady=True) for name in which
    }


def keys(n_rows: int, which: Iterable[tuple[int, float]]) -> Series:
    """Figure 14: (keys, skew); 100 rows per slice and key on average."""
    return {
        keys_named(n_keys, skew): Shape(n_rows, n_keys=n_keys, skew=skew, per_slice=100 * n_keys, steady=True)
        for n_keys, skew in which
    }


def keys_named(n_keys: int, skew: float = 0.0) -> str:
    """The case of so many keys."""
    return f"{n_keys:,} {'key' if n_keys == 1 else 'keys'}, {f'Zipf {skew}' if skew else 'uniform'}"


def many_keys(n_rows: int) -> Series:
    """Far more keys than the paper's 500: tumbling windows of 1 s with a quarter of the rows each."""
    return {
        f"tumbling, {n_keys:,} keys": Shape(n_rows, every=SECOND, per_slice=n_rows // 4, n_keys=n_keys)
        for n_keys in (1_000, 10_000, 100_000, 1_000_000)
    }


def delays(n_rows: int, which: Iterable[str] = DELAYS) -> Series:
    """Figure 16: rows that are late by so much on average, over 250,000 rows a second."""
    return {
        delays_named(name): Shape(n_rows, per_slice=2_500, mean_delay=DELAYS[name], steady=True)
        for name in which
    }


def delays_named(name: str) -> str:
    """The case of so much delay."""
    return name if name == "in order" else f"delay of {name} on average"


def functions(n_rows: int) -> Series:
    """Figure 15: the nine functions."""
    return {f"function {name}": Shape(n_rows, function=name) for name in NINE}


def batches(n_rows: int) -> Series:
    """Figures 12, left, and 19: the size of a batch, which is also how many windows a watermark lets go.

    Small batches get fewer rows. The time per batch is the share of latency that is work; the rest is the
    time until a batch is full.
    """
    found = {}
    for batch in (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20):
        fewer = min(n_rows, 512 * batch)
        found[f"batches of {batch:,}, no key"] = Shape(fewer, per_slice=1_000, batch=batch)
        for skew in (0.0, 0.9):
            named = f"batches of {batch:,}, {keys_named(1_000, skew)}"
            found[named] = Shape(fewer, n_keys=1_000, skew=skew, batch=batch)
    return found


def counts(n_rows: int) -> Series:
    """Figure 20: the mean of 1,024 rows every 2 to 1,024 rows; a smaller slide has more results."""
    return {
        f"1,024 rows every {every:,}": Shape(n_rows, 1_024, every, every, function="mean", counted=True)
        for every in (2, 8, 32, 128, 512, 1_024)
    }


def minutes(n_rows: int) -> Series:
    """Figure 21: windows of 60 s, rows 1 s late on average, over 160 s."""
    return {
        f"60 s every {every / SECOND:g} s": Shape(
            n_rows, 60 * SECOND, every, n_rows * every // (160 * SECOND), mean_delay=SECOND
        )
        for every in (100_000, SECOND, 10 * SECOND, 60 * SECOND)
    }


def campaigns(n_rows: int) -> Series:
    """The window of the Yahoo benchmark as the paper has it: counts of 1,000 keys, 1 s every 10 ms."""
    return {"1,000 campaigns, count": Shape(n_rows, n_keys=1_000, function="count")}
