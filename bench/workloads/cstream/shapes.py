"""The four topologies of C-Stream as graphs: chain, data parallel, tree, reverse tree.

No step is fused, so that every operator is a node of its own, as in the paper. Rows have a number, and go to
a branch by it. The reverse tree has a source per leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench.workloads.cstream.busy import Busy

BATCH = 128
"""A branch of twelve, or a leaf of thirty-two, gets a few of these rows: fewer, and what a batch costs in
Python, which threads cannot share, is more than the work on it.
"""


def numbers(n_rows: int, first: int = 0) -> Any:
    """Return a reader of rows with numbers, a batch at a time."""
    return ps.read.table(pa.table({"id": np.arange(first, first + n_rows)}), batch=BATCH)


def chain(n_rows: int, busy: Busy, n: int = 12) -> ps.PipeGraph:
    """Busy operators one after the other."""
    graph = ps.PipeGraph("chain", chaining=False)
    pipe = graph.source(numbers(n_rows), name="source")
    for i in range(n):
        pipe = pipe.filter(ps.batch(replace(busy, place=i)), name=f"busy-{i}")
    pipe.sink(ps.write.memory(), name="sink")
    return graph


def data_parallel(n_rows: int, busy: Busy, n: int = 12) -> ps.PipeGraph:
    """Busy operators side by side, each for its share of the rows."""
    graph = ps.PipeGraph("data parallel", chaining=False)
    branches = graph.source(numbers(n_rows), name="source").split(ps.col("id") % n, n, name="split")
    pipes = [branch.filter(ps.batch(busy), name=f"busy-{i}") for i, branch in enumerate(branches)]
    pipes[0].merge(*pipes[1:]).filter(ps.col("id") >= 0, name="merge").sink(ps.write.memory(), name="sink")
    return graph


def tree(n_rows: int, busy: Busy, depth: int = 6) -> ps.PipeGraph:
    """Return a tree of busy operators: every row goes to one of two children."""
    graph = ps.PipeGraph("tree", chaining=False)
    level = [graph.source(numbers(n_rows), name="source").filter(ps.batch(busy), name="busy-0-0")]
    for down in range(1, depth):
        bit = (ps.col("id") // 2**down) % 2
        halves = [
            half
            for i, pipe in enumerate(level)
            for half in pipe.split(left=bit == 0, right=bit == 1, name=f"split-{down}-{i}")
        ]
        level = [half.filter(ps.batch(busy), name=f"busy-{down}-{i}") for i, half in enumerate(halves)]
    for i, pipe in enumerate(level):
        pipe.sink(ps.write.memory(), name=f"sink-{i}")
    return graph


def reverse_tree(n_rows: int, busy: Busy, depth: int = 6) -> ps.PipeGraph:
    """Return a tree of busy operators from its leaves to its root: each reads two others."""
    graph = ps.PipeGraph("reverse tree", chaining=False)
    leaves = 2 ** (depth - 1)
    share = n_rows // leaves
    level = [graph.source(numbers(share, i * share), name=f"source-{i}") for i in range(leaves)]
    for up in reversed(range(depth)):
        level = [pipe.filter(ps.batch(busy), name=f"busy-{up}-{i}") for i, pipe in enumerate(level)]
        if up:
            level = [one.merge(other) for one, other in zip(level[::2], level[1::2], strict=True)]
    level[0].sink(ps.write.memory(), name="sink")
    return graph


SHAPES: dict[str, Callable[[int, Busy], ps.PipeGraph]] = {
    "chain": chain,
    "data parallel": data_parallel,
    "tree": tree,
    "reverse tree": reverse_tree,
}
