"""SPRINGALD's figures 16, 19, 20 and 21: rows out of order, latency, count windows, windows of a minute."""

from __future__ import annotations

from dataclasses import replace

from bench.workload import Chart
from bench.workloads.windows.experiment import (
    BUCKETS,
    OURS,
    PANDAS,
    POLARS,
    READING,
    TRACED,
    Experiment,
    Place,
    Trial,
    lines_of,
    try_way,
    try_with_peers,
)
from bench.workloads.windows.shape import Shape
from bench.workloads.windows.stage import ARRIVAL_TO_RESULT, HELD, PENDING, PER_BATCH, SLOWEST

DELAYS = {"in order": 0, "1 ms": 1_000, "10 ms": 10_000, "100 ms": 100_000, "1 s": 1_000_000}
SLIDES = {"10 ms": 10_000, "1 ms": 1_000, "100 us": 100}
SECOND = 1_000_000


def sweep_delays(
    n_rows: int, which: tuple[str, ...] = tuple(DELAYS), slides: tuple[str, ...] = tuple(SLIDES)
) -> Experiment:
    """Vary the mean delay of rows, at 250,000 rows a second (figure 16)."""
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
    ours, traced = (
        [
            try_way("delay", way, places, name=f"penstock, {name}", variant=name, style=at)
            for at, (name, places) in enumerate(of_slides.items())
        ]
        for way in (OURS, TRACED)
    )
    peers = [
        try_way("delay", way, of_slides["10 ms"], variant="10 ms")
        for way in (READING, BUCKETS, PANDAS, POLARS)
    ]
    setup = (
        "Sum over windows of 1 s every 10 ms, 1 ms and 100 us, no key, 250,000 rows a second, so 2,500, "
        "250 and 25 "
        "rows per slice. Delays are uniform from 0 to twice their mean; the watermark waits for the longest."
    )
    charts = (
        _delay_chart(
            "Rows out of order",
            f"SPRINGALD, figure 16 (left). {setup} Peers have 10 ms.",
            [*ours, *peers],
            "rows/s",
        ),
        _delay_chart(
            "Slices that wait for late rows",
            "SPRINGALD, figure 16 (right). Slices with rows whose end the watermark has not passed, "
            f"after a batch, on average. {setup}",
            traced,
            PENDING,
        ),
        _delay_chart(
            "Memory that late rows cost",
            f"What the stage holds after a batch, at most: pending slices and those of open windows. {setup}",
            traced,
            HELD,
        ),
    )
    return Experiment("delay", (*ours, *traced, *peers), charts)


def _delay_chart(title: str, caption: str, trials: list[Trial], up: str) -> Chart:
    return Chart(title, caption, "mean delay", lines_of(trials), up=up, spacing="even")


def sweep_latency(n_rows: int) -> Experiment:
    """Vary the batch size and the skew of keys, and measure latency (figure 19)."""
    base = Shape(n_rows, n_keys=1_000, steady=True)
    trials = []
    for at, (name, skew) in enumerate((("uniform", 0.0), ("Zipf 0.9", 0.9))):
        places = {
            f"{batch:,}": Place(batch, replace(base, skew=skew, batch=batch, n_rows=min(n_rows, 256 * batch)))
            for batch in (1 << power for power in (10, 12, 14, 16, 18, 20))
        }
        trials.append(try_way("latency", TRACED, places, name=name, variant=name, style=at))
    setup = (
        "Sum over windows of 1 s every 10 ms, 1,000 keys, a million rows a second; at most 256 batches "
        "a run, and "
        "only four of the largest."
    )
    measures = (
        (
            "Latency: the work of a batch",
            PER_BATCH,
            "From a batch's arrival until its windows are emitted, median.",
        ),
        ("Latency: the work of a slow batch", SLOWEST, "The same, the 99th of 100 batches."),
        (
            "Latency: from arrival to result",
            ARRIVAL_TO_RESULT,
            "The median work of a batch, measured, and half the time that it takes to fill at the "
            "stream's own pace, computed.",
        ),
    )
    charts = tuple(
        Chart(title, f"SPRINGALD, figure 19. {meaning} {setup}", "rows per batch", lines_of(trials), up=up)
        for title, up, meaning in measures
    )
    return Experiment("latency", tuple(trials), charts)


def sweep_count_slides(n_rows: int) -> Experiment:
    """Vary the slide of the mean of 1,024 rows; a smaller slide has more results (figure 20)."""
    places = {
        f"{every:,}": Place(every, Shape(n_rows, 1_024, every, every, function="mean", counted=True))
        for every in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)
    }
    trials = try_with_peers("count", places)
    caption = (
        "SPRINGALD, figure 20 (left). The mean of 1,024 rows, no key, rows in order; a smaller slide "
        "has more results "
        "(see the table)."
    )
    return Experiment(
        "count", trials, (Chart("Count windows of 1,024 rows", caption, "slide in rows", lines_of(trials)),)
    )


def sweep_minute_slides(n_rows: int) -> Experiment:
    """Vary the slide of windows of 60 s, rows 1 s late on average, over 160 s (figure 21)."""
    slides = (100_000, 250_000, 500_000, SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, 60 * SECOND)
    places = {
        f"{every / SECOND:g} s": Place(
            every, Shape(n_rows, 60 * SECOND, every, n_rows * every // (160 * SECOND), mean_delay=SECOND)
        )
        for every in slides
    }
    trials = try_with_peers("minute", places)
    caption = (
        "SPRINGALD, figure 21 (left), as Scotty's benchmark has it. Sum over windows of 60 s, no key, "
        "rows 1 s late "
        f"on average, {n_rows:,} rows over 160 s; results rise as the slide falls (see the table)."
    )
    return Experiment("minute", trials, (Chart("Windows of 60 seconds", caption, "slide", lines_of(trials)),))
