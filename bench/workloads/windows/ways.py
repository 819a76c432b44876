"""All ways by name. Which of them is tried on which case is the experiments' choice."""

from __future__ import annotations

from functools import partial

from bench.workload import Way
from bench.workloads.windows import ours, parts, peers, threads, watched

OURS, WATCHED = "penstock", "penstock, watched"
READING, BUCKETS, PANDAS, POLARS = "reading", "bucket per window", "pandas", "Polars"
CHOICE, NO_TREE, TREE = "store, own choice", "store, no tree", "store, tree"
N_W = (1, 10, 100, 1_000)
STYLES = {OURS: 0, READING: 4, BUCKETS: 5, PANDAS: 6, POLARS: 7}
"""The looks of lines that come back in many charts."""
PARTS = (
    "part: slots",
    "part: values",
    "part: rows into counts",
    "part: rows into sums",
    "part: leaving",
)


def tree_of(n_w: int) -> str:
    """Return the way that always uses the tree, so many windows at a time."""
    return f"store, tree, n_w {n_w:,}"


def all_ways() -> list[Way]:
    """Return every way; the first is the one that the others are measured against."""
    return [
        Way(OURS, ours.through_stage, ours.fed_stage),
        Way(WATCHED, watched.through_stage_watched, ours.fed_stage, notes=watched.notes_of),
        Way(READING, peers.read_columns, oracle=peers.sums_of_columns),
        Way(BUCKETS, peers.bucket_per_window),
        Way(PANDAS, peers.by_pandas, peers.pandas_frame),
        Way(POLARS, peers.by_polars, peers.polars_frame),
        *_of_parts(),
        Way(CHOICE, ours.through_store, ours.fed_store),
        Way(NO_TREE, ours.through_store, partial(ours.fed_store, way="sweep")),
        Way(TREE, ours.through_store, partial(ours.fed_store, way="tree")),
        *(
            Way(tree_of(n_w), ours.through_store, partial(ours.fed_store, way="tree", most=n_w))
            for n_w in N_W
        ),
        *threads.ways(),
    ]


def _of_parts() -> list[Way]:
    slots, values, counts, sums, leaving = PARTS
    return [
        Way(slots, parts.to_slots, oracle=parts.n_rows_and_keys),
        Way(values, parts.to_values, parts.lifting_of, parts.n_rows_of),
        Way(counts, parts.to_cells, parts.counting, parts.n_rows_of),
        Way(sums, parts.to_cells, parts.summing, parts.n_rows_of),
        Way(leaving, parts.leaving, parts.full_store, parts.n_leaving),
    ]
