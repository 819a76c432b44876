"""Building, checking and explaining graphs: does the cost grow with the number of operators, and no faster?

Two shapes. A straight graph is one long pipe whose every tenth operator is keyed, so that its term
nests; a braided one splits in two and merges again, over and over. The garbage collector stays on, as
it does for users.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import penstock as ps
from bench.workload import Case, Cell, Claim, Size, Way, Workload

ROWS = [{"key": 1, "value": 1}]
SMALL, LARGE = 1_000, 10_000

Shape = tuple[str, Callable[[int], ps.PipeGraph]]


def build_straight(n: int) -> ps.PipeGraph:
    """Build one pipe of n operators, source and sink included."""
    graph = ps.PipeGraph("straight")
    pipe = graph.source(ps.read.rows(ROWS), name="op-0")
    for at in range(1, n - 1):
        if at % 10 == 0:
            pipe = pipe.key_by("key").map(count_up, state=list, schema=pipe.schema, name=f"op-{at}")
        elif at % 2:
            pipe = pipe.with_columns(value=ps.col("value") + 1, name=f"op-{at}")
        else:
            pipe = pipe.filter(ps.col("value") > 0, name=f"op-{at}")
    pipe.sink(ps.write.memory(), name=f"op-{n - 1}")
    return graph


def build_braided(n: int) -> ps.PipeGraph:
    """Build n operators as diamonds: a split, a map on each branch, and a map after the merge."""
    graph = ps.PipeGraph("braided")
    pipe = graph.source(ps.read.rows(ROWS), name="op-0")
    at = 1
    while at + 4 < n:
        one, other = pipe.split(odd=ps.col("value") % 2 == 1, even=ps.col("value") % 2 == 0, name=f"op-{at}")
        left = one.with_columns(value=ps.col("value") + 1, name=f"op-{at + 1}")
        right = other.with_columns(value=ps.col("value") - 1, name=f"op-{at + 2}")
        pipe = left.merge(right).with_columns(value=ps.col("value") * 3, name=f"op-{at + 3}")
        at += 4
    for rest in range(at, n - 1):
        pipe = pipe.filter(ps.col("value") > 0, name=f"op-{rest}")
    pipe.sink(ps.write.memory(), name=f"op-{n - 1}")
    return graph


def count_up(row: ps.Row, state: list[object]) -> dict[str, object]:
    """Count the rows of a key; only its place in the graph matters here."""
    state.append(row.value)
    return {"key": row.key, "value": len(state)}


def count_operators(holder: object) -> int:
    """Return the number of operators that a graph, a plan or an explanation holds."""
    if isinstance(holder, str):
        return len(set(re.findall(r"\bop-\d+\b", holder)))
    steps = holder.steps.values() if isinstance(holder, ps.PipeGraph) else getattr(holder, "steps", ())
    return sum(step.name.startswith("op-") for step in steps)


def check_operators(expected: int, answer: object) -> str | None:
    """Return an error unless every operator that was written is in the answer."""
    n_found = count_operators(answer)
    return None if n_found == expected else f"{expected} operators went in, {n_found} came out"


def workload(size: Size) -> Workload:
    """Build the workload; both sizes measure the same graphs, quick leaves out the separate phases."""
    shapes: tuple[Shape, ...] = (("straight", build_straight), ("braided", build_braided))
    whole = Way("all three", lambda build: build().explain())
    parts = (
        Way("build", lambda build: build()),
        Way("check", lambda graph: graph.plan(), setup=lambda build: build()),
        Way("explain", lambda graph: graph.explain(), setup=lambda build: build()),
    )
    return Workload(
        name="graphs",
        about="build, check and explain graphs of 1,000 and 10,000 operators",
        cases=tuple(_case(shape, build, n) for shape, build in shapes for n in (SMALL, LARGE)),
        ways=(whole,) if size == "quick" else (whole, *parts),
        oracle=lambda build: build.args[0],
        check=check_operators,
        claims=tuple(claim for shape, _ in shapes for claim in _claims(shape)),
        collector=True,
    )


def _case(shape: str, build: Callable[[int], ps.PipeGraph], n: int) -> Case:
    # The seed has nothing to choose here: a graph holds no data.
    return Case(f"{shape}, {n:,} operators", make=lambda seed: partial(build, n), units={"operators": n})


def _claims(shape: str) -> tuple[Claim, Claim]:
    small, large = (Cell(f"{shape}, {n:,} operators", "all three") for n in (SMALL, LARGE))
    return (
        Claim(
            f"{shape}: 1,000 operators are built, checked and explained in under 2 seconds", small, at_most=2
        ),
        Claim(f"{shape}: ten times the operators cost at most twelve times the time", large, 12, over=small),
    )
