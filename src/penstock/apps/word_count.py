"""WordCount: how often each word has come so far, or in every ten seconds.

Lines are split at single blanks, as in the benchmark suites, so that two blanks have an empty word between
them. In the form of rows every word leaves with its count so far; in the form of columns, which is a window,
the counts of every ten seconds leave. WindFlow, 5.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps
from penstock import col
from penstock.apps.application import (
    LINE_US,
    Application,
    Options,
    Rows,
    Tables,
    draw_keys,
    draw_times,
    duration,
    in_order,
    let_arrive,
    open_source,
)

N_WORDS = 8_000
SKEW = 1.05
WORDS_PER_LINE = 11.3
"""As in the lines of the suite's novel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordOptions(Options):
    """Options of WordCount.

    every_us  the length of windows, in the form of columns
    """

    every_us: int = 10_000_000


def generate(options: WordOptions) -> Tables:
    """Make lines of made-up words, few of which are frequent."""
    chance = np.random.default_rng(options.seed)
    n_words = options.keys or N_WORDS
    letters = chance.choice(np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", np.uint8), (n_words, 14))
    lengths = chance.poisson(5.0, n_words) + 1
    texts = letters.view("S14").ravel()
    words = [text.decode()[:length] for text, length in zip(texts, lengths.clip(1, 14), strict=True)]
    starts = np.concatenate([[0], np.cumsum(chance.poisson(WORDS_PER_LINE - 1, options.rows) + 1)])
    drawn = pa.array(words).take(pa.array(draw_keys(chance, int(starts[-1]), n_words, SKEW)))
    lines = pc.binary_join(pa.ListArray.from_arrays(pa.array(starts, pa.int32()), drawn), " ")
    rows = pa.table({"time": draw_times(chance, options.rows, options.rate), "line": lines})
    return {"lines": let_arrive(rows, chance, options)}


def load(file: Path) -> Tables:
    """Read a text file; its lines come a millisecond apart."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return {"lines": pa.table({"time": np.arange(len(lines)) * LINE_US, "line": lines})}


def build(readers: Mapping[str, Any], writer: Any, options: WordOptions) -> ps.PipeGraph:
    """Build the graph: a splitter by an expression, and a counter by word."""
    graph, lines = open_source("word-count", readers["lines"], options)
    words = lines.flat_map(
        word=col("line").str.strip().str.split(" "), parallelism=options.parallelism, name="splitter"
    ).key_by("word")
    if options.form == "columns":
        window = words.window(ps.tumbling(duration(options.every_us)), name="counter")
        counts = window.aggregate(n=ps.count())
    else:
        counts = words.accumulate(count, 0, schema={"n": int}, name="counter")
    counts.sink(writer, name="sink")
    return graph


def count(row: ps.Row, n: int) -> int:
    """Return the number of times that a word has come."""
    return n + 1


def recount(tables: Tables, options: WordOptions) -> Rows:
    """Count words."""
    counts: Counter[Any] = Counter()
    running = []
    for row in in_order(tables["lines"]):
        start = row["time"] // options.every_us * options.every_us
        for word in row["line"].strip().split(" "):
            key = (word, start) if options.form == "columns" else word
            counts[key] += 1
            running.append({"word": word, "n": counts[key]})
    if options.form == "rows":
        return running
    return [
        {"word": word, "window_start": start, "window_end": start + options.every_us, "n": n}
        for (word, start), n in counts.items()
    ]


WORD_COUNT = Application(
    name="word-count",
    label="WC",
    paper="WindFlow",
    summary="how often each word has come, so far or in every ten seconds",
    reads="time, line; or a text file",
    forms=("rows", "columns"),
    options=WordOptions,
    generate=generate,
    build=build,
    recount=recount,
    load=load,
)
