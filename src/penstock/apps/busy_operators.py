"""The four topologies of C-Stream as graphs of busy operators: chain, data parallel, tree, reverse tree.

A busy operator keeps a core busy for a while for every row, and passes a share of the rows. The work is a
hash over a buffer, which releases the GIL, so that threads can work in parallel; its speed is measured once
per process. No step is fused, so that every operator is a task of its own, as in the paper. Rows are
numbered, and their number decides the branch. The reverse tree has a source per leaf. C-Stream, 6.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.apps.application import Application, Options, Rows, Tables

_BUFFER = bytes(1 << 20)
PRIME = 1_009


@cache
def bytes_per_us() -> float:
    """Return the number of bytes a core hashes in a microsecond: the best of several tries."""
    took = []
    for _ in range(5):
        started = time.perf_counter_ns()
        _hash(1 << 22)
        took.append(time.perf_counter_ns() - started)
    return (1 << 22) * 1_000 / min(took)


def _hash(n_bytes: int) -> None:
    remaining = n_bytes
    while remaining > 0:
        hashlib.blake2b(memoryview(_BUFFER)[:remaining])
        remaining -= len(_BUFFER)


@dataclass(frozen=True, slots=True)
class Busy:
    """The predicate of a filter over batches: `cost_us` for each row, and a share of the rows passes.

    Which rows pass follows from their numbers, and from `place`, so that operators in a row do not
    all pass the same ones.
    """

    cost_us: float
    selectivity: float = 1.0
    place: int = 0

    def __call__(self, rows: pa.RecordBatch) -> Any:
        """Work for the cost of the rows and return which of them pass."""
        _hash(int(self.cost_us * bytes_per_us() * rows.num_rows))
        return pa.array(self.passes(rows.column("id").to_numpy()))

    def passes(self, numbers: Any) -> Any:
        """Return whether rows pass, by their numbers: an array for an array."""
        # Multiples modulo a prime give another order of the rows for every place.
        return numbers * (101 + 37 * self.place) % PRIME < self.selectivity * PRIME


BATCH = 128
"""One of twelve branches, or of thirty-two leaves, gets a few of these rows. With fewer, the Python code per
batch, which holds the GIL, would take longer than the work.
"""


def read_numbers(n_rows: int, first: int = 0) -> Any:
    """Return a reader of rows with numbers, a batch at a time."""
    return ps.read.table(pa.table({"id": np.arange(first, first + n_rows)}), batch=BATCH)


Readers = Mapping[str, Any]


def build_chain(
    n_rows: int, busy: Busy, n: int = 12, *, readers: Readers | None = None, writer: Any = None
) -> ps.PipeGraph:
    """Build busy operators one after the other."""
    graph = ps.PipeGraph("chain", chaining=False)
    pipe = graph.source((readers or {"source": read_numbers(n_rows)})["source"], name="source")
    for i in range(n):
        pipe = pipe.filter(ps.batch(replace(busy, place=i)), name=f"busy-{i}")
    pipe.sink(writer or ps.write.memory(), name="sink")
    return graph


def build_data_parallel(
    n_rows: int, busy: Busy, n: int = 12, *, readers: Readers | None = None, writer: Any = None
) -> ps.PipeGraph:
    """Build busy operators side by side, each for its share of the rows."""
    graph = ps.PipeGraph("data parallel", chaining=False)
    source = graph.source((readers or {"source": read_numbers(n_rows)})["source"], name="source")
    branches = source.split(ps.col("id") % n, n, name="split")
    pipes = [branch.filter(ps.batch(busy), name=f"busy-{i}") for i, branch in enumerate(branches)]
    merged = pipes[0].merge(*pipes[1:]).filter(ps.col("id") >= 0, name="merge")
    merged.sink(writer or ps.write.memory(), name="sink")
    return graph


def build_tree(
    n_rows: int, busy: Busy, depth: int = 6, *, readers: Readers | None = None, writer: Any = None
) -> ps.PipeGraph:
    """Build a tree of busy operators: every row goes to one of two children.

    writer  takes the rows of all leaves; without it each leaf has a sink of its own
    """
    graph = ps.PipeGraph("tree", chaining=False)
    source = graph.source((readers or {"source": read_numbers(n_rows)})["source"], name="source")
    level = [source.filter(ps.batch(busy), name="busy-0-0")]
    for down in range(1, depth):
        bit = (ps.col("id") // 2**down) % 2
        halves = [
            half
            for i, pipe in enumerate(level)
            for half in pipe.split(left=bit == 0, right=bit == 1, name=f"split-{down}-{i}")
        ]
        level = [half.filter(ps.batch(busy), name=f"busy-{down}-{i}") for i, half in enumerate(halves)]
    if writer is not None:
        level[0].merge(*level[1:]).sink(writer, name="sink")
        return graph
    for i, pipe in enumerate(level):
        pipe.sink(ps.write.memory(), name=f"sink-{i}")
    return graph


def build_reverse_tree(
    n_rows: int, busy: Busy, depth: int = 6, *, readers: Readers | None = None, writer: Any = None
) -> ps.PipeGraph:
    """Build a tree of busy operators from its leaves to its root: each reads two others."""
    graph = ps.PipeGraph("reverse tree", chaining=False)
    leaves = 2 ** (depth - 1)
    share = n_rows // leaves
    readers = readers or {f"source-{i}": read_numbers(share, i * share) for i in range(leaves)}
    level = [graph.source(reader, name=name) for name, reader in readers.items()]
    for up in reversed(range(depth)):
        level = [pipe.filter(ps.batch(busy), name=f"busy-{up}-{i}") for i, pipe in enumerate(level)]
        if up:
            level = [one.merge(other) for one, other in zip(level[::2], level[1::2], strict=True)]
    level[0].sink(writer or ps.write.memory(), name="sink")
    return graph


SHAPES: dict[str, Callable[..., ps.PipeGraph]] = {
    "chain": build_chain,
    "data parallel": build_data_parallel,
    "tree": build_tree,
    "reverse tree": build_reverse_tree,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyOptions(Options):
    """Options of the topologies.

    cost_us      how long an operator works on a row
    selectivity  the share of the rows that an operator passes
    size         operators of the chain, or side by side; levels of a tree; 0 for those of the paper
    """

    rows: int = 2_000
    batch: int = BATCH
    cost_us: float = 100.0
    selectivity: float = 1.0
    size: int = 0

    def size_of(self, shape: str) -> int:
        """Return the size of a topology."""
        return self.size or (6 if shape.endswith("tree") else 12)


def generate(shape: str, options: BusyOptions) -> Tables:
    """Make numbered rows, for the reverse tree an equal share for each leaf."""
    n = 2 ** (options.size_of(shape) - 1) if shape == "reverse tree" else 1
    share = options.rows // n
    names = [f"source-{i}" for i in range(n)] if n > 1 else ["source"]
    return {name: pa.table({"id": np.arange(i * share, (i + 1) * share)}) for i, name in enumerate(names)}


def build(shape: str, readers: Readers, writer: Any, options: BusyOptions) -> ps.PipeGraph:
    """Build a topology over readers."""
    busy = Busy(options.cost_us, options.selectivity)
    return SHAPES[shape](options.rows, busy, options.size_of(shape), readers=readers, writer=writer)


def recount(shape: str, tables: Tables, options: BusyOptions) -> Rows:
    """Return the rows that every operator on their way passes."""
    busy = Busy(options.cost_us, options.selectivity)
    on_the_way = (
        [replace(busy, place=i) for i in range(options.size_of(shape))] if shape == "chain" else [busy]
    )
    numbers = [i for rows in tables.values() for i in rows.column("id").to_pylist()]
    return [{"id": i} for i in numbers if all(operator.passes(i) for operator in on_the_way)]


BUSY_OPERATORS = tuple(
    Application(
        name=f"busy-{shape.replace(' ', '-')}",
        label=shape,
        paper="C-Stream",
        summary=summary,
        reads="id",
        options=BusyOptions,
        generate=partial(generate, shape),
        build=partial(build, shape),
        recount=partial(recount, shape),
        time=None,
    )
    for shape, summary in {
        "chain": "twelve busy operators, one after the other",
        "data parallel": "twelve busy operators, side by side",
        "tree": "63 busy operators, each with two readers",
        "reverse tree": "63 busy operators, each of which reads two",
    }.items()
)
