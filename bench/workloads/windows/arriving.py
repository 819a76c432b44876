"""SPRINGALD's figures 16, 19, 20 and 21: rows out of order, latency, count windows, windows of a minute."""

from __future__ import annotations

from dataclasses import replace

from bench.chart import Chart
from bench.workloads.windows.experiment import (
    Experiment,
    Place,
    Tried,
    against_peers,
    lines_of,
    tried,
)
from bench.workloads.windows.shape import Shape
from bench.workloads.windows.watched import HELD, PENDING, PER_BATCH, SLOWEST, WAITED
from bench.workloads.windows.ways import BUCKETS, OURS, PANDAS, POLARS, READING, WATCHED

DELAYS = {"in order": 0, "1 ms": 1_000, "10 ms": 10_000, "100 ms": 100_000, "1 s": 1_000_000}
SLIDES = {"10 ms": 10_000, "1 ms": 1_000, "100 us": 100}
SECOND = 1_000_000


def delays(
    n_rows: int, which: tuple[str, ...] = tuple(DELAYS), slides: tuple[str, ...] = tuple(SLIDES)
) -> Experiment:
    """Figure 16: rows that are late by so much on average, over 250,000 rows a second."""
    of_slides = {
        name: {
            delay: Place(
                DELAYS[delay],
                Shape(
                    n_rows,
                    every=SLIDES[name],
                    per_slice=SLIDES[name] // 4,
                    mean_delay=DELAYS[delay],
                    steady=True,
                ),
            )
            for delay in which
        }
        for name in slides
    }
    ours, seen = (
        [
            tried("delay", way, places, name=f"penstock, {name}", variant=name, style=at)
            for at, (name, places) in enumerate(of_slides.items())
        ]
        for way in (OURS, WATCHED)
    )
    others = [
        tried("delay", way, of_slides["10 ms"], variant="10 ms") for way in (READING, BUCKETS, PANDAS, POLARS)
    ]
    told = (
        "Sum over windows of 1 s every 10 ms, 1 ms and 100 us, no key, 250,000 rows a second, so 2,500, "
        "250 and 25 "
        "rows per slice. Delays are uniform from 0 to twice their mean; the watermark waits for the longest."
    )
    charts = (
        _delayed(
            "Rows out of order",
            f"SPRINGALD, figure 16 (left). {told} Peers have 10 ms.",
            [*ours, *others],
            "rows/s",
        ),
        _delayed(
            "Slices that wait for late rows",
            "SPRINGALD, figure 16 (right). Slices with rows whose end the watermark has not passed, "
            f"after a batch, on average. {told}",
            seen,
            PENDING,
        ),
        _delayed(
            "Memory that late rows cost",
            f"What the stage holds after a batch, at most: pending slices and those of open windows. {told}",
            seen,
            HELD,
        ),
    )
    return Experiment("delay", (*ours, *seen, *others), charts)


def _delayed(title: str, caption: str, shown: list[Tried], up: str) -> Chart:
    return Chart(title, caption, "mean delay", lines_of(shown), up=up, spacing="even")


def latency(n_rows: int) -> Experiment:
    """Figure 19: how long a batch takes and a row waits, by size of batch and skew of keys."""
    base = Shape(n_rows, n_keys=1_000, steady=True)
    found = []
    for at, (name, skew) in enumerate((("uniform", 0.0), ("Zipf 0.9", 0.9))):
        places = {
            f"{batch:,}": Place(batch, replace(base, skew=skew, batch=batch, n_rows=min(n_rows, 256 * batch)))
            for batch in (1 << power for power in (10, 12, 14, 16, 18, 20))
        }
        found.append(tried("latency", WATCHED, places, name=name, variant=name, style=at))
    told = (
        "Sum over windows of 1 s every 10 ms, 1,000 keys, a million rows a second; at most 256 batches "
        "a run, and "
        "only four of the largest."
    )
    shown = (
        (
            "Latency: the work of a batch",
            PER_BATCH,
            "From a batch's arrival until its windows have left, median.",
        ),
        ("Latency: the work of a slow batch", SLOWEST, "The same, the 99th of 100 batches."),
        (
            "Latency: from arrival to result",
            WAITED,
            "The median work of a batch, measured, and half the time that it takes to fill at the "
            "stream's own pace, computed.",
        ),
    )
    charts = tuple(
        Chart(title, f"SPRINGALD, figure 19. {what} {told}", "rows per batch", lines_of(found), up=up)
        for title, up, what in shown
    )
    return Experiment("latency", tuple(found), charts)


def counts(n_rows: int) -> Experiment:
    """Figure 20: the mean of 1,024 rows every 2 to 1,024 rows; a smaller slide has more results."""
    places = {
        f"{every:,}": Place(every, Shape(n_rows, 1_024, every, every, function="mean", counted=True))
        for every in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)
    }
    found = against_peers("count", places)
    caption = (
        "SPRINGALD, figure 20 (left). The mean of 1,024 rows, no key, rows in order; a smaller slide "
        "has more results "
        "(see the table)."
    )
    return Experiment(
        "count", found, (Chart("Count windows of 1,024 rows", caption, "slide in rows", lines_of(found)),)
    )


def minutes(n_rows: int) -> Experiment:
    """Figure 21: windows of 60 s, rows 1 s late on average, over 160 s."""
    slides = (100_000, 250_000, 500_000, SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, 60 * SECOND)
    places = {
        f"{every / SECOND:g} s": Place(
            every, Shape(n_rows, 60 * SECOND, every, n_rows * every // (160 * SECOND), mean_delay=SECOND)
        )
        for every in slides
    }
    found = against_peers("minute", places)
    caption = (
        "SPRINGALD, figure 21 (left), as Scotty's benchmark has it. Sum over windows of 60 s, no key, "
        "rows 1 s late "
        f"on average, {n_rows:,} rows over 160 s; results rise as the slide falls (see the table)."
    )
    return Experiment("minute", found, (Chart("Windows of 60 seconds", caption, "slide", lines_of(found)),))
