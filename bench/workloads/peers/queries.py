"""The queries and their data: SWA, YSB and YSB* of AIR (5.1) on the same events, and WordCount on a text.

Events follow from a running number, as in WindFlow's generator: a hundred campaigns of ten advertisements,
three types of event, a million rows per second of event time, in order. They are written once per case into a
folder, from which every peer loads them before the clock starts; ours holds them as columns in memory.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
import pyarrow as pa
from pyarrow import ipc

import penstock as ps
from penstock import col

N_CAMPAIGNS, ADS_EACH = 100, 10
N_ADS = N_CAMPAIGNS * ADS_EACH
ROUND = 100_000
"""The number of rows after which the running number restarts, as in WindFlow's generator."""
WINDOW = 10_000_000
BATCH = 1 << 18
VIEW, CLICK = 0, 1

Answer = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Input:
    """The input of a case: tables in memory, and the folder from which peers load the same rows."""

    tables: dict[str, pa.Table]
    folder: Path
    expected: Callable[[dict[str, pa.Table]], Answer]

    def expected_answer(self) -> Answer:
        """Return the right answer, counted by NumPy or plain Python."""
        return self.expected(self.tables)


def build_events(n: int, expected: Callable[[dict[str, pa.Table]], Answer]) -> Input:
    """Build n events of five integers, 40 bytes each, and the table of campaigns."""
    number, ads = np.arange(n) % ROUND, np.arange(N_ADS)
    events = pa.table(
        {
            "user": number,
            "ad": number % N_ADS,
            "ad_type": number % 5,
            "event_type": number % 3,
            "time": np.arange(n),
        }
    )
    tables = {"events": events, "campaigns": pa.table({"ad": ads, "campaign": ads // ADS_EACH})}
    folder = new_folder()
    for name, table in tables.items():
        with ipc.new_file(folder / f"{name}.arrow", table.schema) as file:
            file.write_table(table)
    return keep_folder(Input(tables, folder, expected))


def build_lines(n_words: int, seed: int) -> Input:
    """Build lines of eleven words on average, whose frequencies fall as in a book (Zipf)."""
    chance = np.random.default_rng(seed)
    words = np.array(_draw_words(8_000, seed), dtype=object)
    drawn = words[(chance.zipf(1.2, n_words) - 1) % len(words)]
    ends = np.cumsum(chance.poisson(10.3, n_words // 11) + 1)
    lines = [" ".join(part) for part in np.split(drawn, ends[ends < n_words]) if len(part)]
    folder = new_folder()
    (folder / "lines.txt").write_text("\n".join(lines) + "\n")
    return keep_folder(Input({"lines": pa.table({"line": lines})}, folder, count_words))


def count_words(tables: dict[str, pa.Table]) -> Answer:
    """Count every word in plain Python."""
    words: Counter[str] = Counter()
    for line in tables["lines"].column("line").to_pylist():
        words.update(line.split(" "))
    return sorted(words.items())


def count_rows(tables: dict[str, pa.Table]) -> Answer:
    """Count the rows of every ten seconds."""
    counts = np.bincount(tables["events"].column("time").to_numpy() // WINDOW)
    return [(window * WINDOW, int(n)) for window, n in enumerate(counts)]


def count_views(tables: dict[str, pa.Table]) -> Answer:
    """Count the views by campaign and ten seconds."""
    return sorted((*key, n) for key, n in _count_events(tables, VIEW).items())


def divide_clicks(tables: dict[str, pa.Table]) -> Answer:
    """Divide the clicks of every campaign and ten seconds by its views, where there are both."""
    views, clicks = _count_events(tables, VIEW), _count_events(tables, CLICK)
    return sorted((*key, clicks[key] / views[key]) for key in views.keys() & clicks.keys())


def _count_events(tables: dict[str, pa.Table], kind: int) -> dict[tuple[int, int], int]:
    ads, kinds, times = (tables["events"].column(name).to_numpy() for name in ("ad", "event_type", "time"))
    is_kind = kinds == kind
    counts = np.bincount(times[is_kind] // WINDOW * N_CAMPAIGNS + ads[is_kind] // ADS_EACH)
    return {
        (at % N_CAMPAIGNS, at // N_CAMPAIGNS * WINDOW): int(counts[at])
        for at in np.flatnonzero(counts).tolist()
    }


def run_swa(case_input: Input) -> Any:
    """Count all rows per ten seconds with Penstock."""
    counted = _read_events(case_input).window(ps.tumbling("10 s"), name="count").aggregate(n=ps.count())
    return counted.collect(engine="local").select(["window_start", "n"])


def run_ysb(case_input: Input) -> Any:
    """Count views per campaign and ten seconds with Penstock."""
    counted = _count_kind(_read_events(case_input), case_input, VIEW, "n")
    return counted.collect(engine="local").select(["campaign", "window_start", "n"])


def run_ysb_star(case_input: Input) -> Any:
    """Count views and clicks, join them by window and divide, with Penstock."""
    kinds = _read_events(case_input).split(view=col("event_type") == VIEW, click=col("event_type") == CLICK)
    views = _count_kind(kinds["view"], case_input, VIEW, "views")
    clicks = _count_kind(kinds["click"], case_input, CLICK, "clicks")
    joined = views.join(clicks, on="campaign", window=ps.tumbling("10 s"), suffix="_clicked", name="join")
    ratios = joined.with_columns(ratio=col("clicks") / col("views"))
    return ratios.collect(engine="local").select(["campaign", "window_start", "ratio"])


def run_word_count(case_input: Input) -> Any:
    """Count words with Penstock: lines are split by an expression, words are counted as columns."""
    graph = ps.PipeGraph("words")
    words = (
        graph.source(ps.read.table(case_input.tables["lines"], batch=1 << 15), time=ps.ingest_time())
        .flat_map(word=col("line").str.split(" "))
        .key_by("word")
    )
    counts = words.window(ps.tumbling("3650 days"), name="count").aggregate(n=ps.count())
    return counts.collect(engine="local").select(["word", "n"])


def _read_events(case_input: Input) -> ps.MultiPipe:
    reader = ps.read.table(case_input.tables["events"], batch=BATCH)
    return ps.PipeGraph("events").source(reader, time="time", time_unit="us", delay="0 s")


def _count_kind(rows: ps.MultiPipe, case_input: Input, kind: int, name: str) -> ps.MultiPipe:
    joined = rows.filter(col("event_type") == kind).join_table(case_input.tables["campaigns"], on="ad")
    windows = joined.key_by("campaign").window(ps.tumbling("10 s"), name=name)
    return windows.aggregate(**{name: ps.count()})


def _draw_words(n: int, seed: int) -> list[str]:
    """Draw n different words of two to ten letters."""
    chance = random.Random(seed)  # noqa: S311 (made-up words, nothing secret)
    words: dict[str, None] = {}
    while len(words) < n:
        words["".join(chance.choices("etaoinshrdlucmfwypvbgkjqxz", k=chance.randint(2, 10)))] = None
    return list(words)


def new_folder() -> Path:
    """Return an empty folder for the data of a case."""
    return Path(tempfile.mkdtemp(prefix="penstock-peers-"))


def keep_folder(case_input: Input) -> Input:
    """Remove the folder when the case is freed."""
    finalize(case_input, shutil.rmtree, case_input.folder, ignore_errors=True)
    return case_input
