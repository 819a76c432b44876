"""SPRINGALD's figures 12, 15, 17 and 18, and the plain case: slide, batch, n_w, tree, functions, parts."""

from __future__ import annotations

from dataclasses import replace

from bench.workload import Cell, Chart, Line, Point
from bench.workloads.windows.experiment import (
    BUCKETS,
    CHOICE,
    N_W,
    NO_TREE,
    OURS,
    PANDAS,
    PARTS,
    POLARS,
    READING,
    TREE,
    Experiment,
    Place,
    Trial,
    lines_of,
    tree_way_name,
    try_way,
    try_with_peers,
)
from bench.workloads.windows.shape import FUNCTIONS, Shape

SLIDES = {"100 ms": 100_000, "10 ms": 10_000, "1 ms": 1_000, "100 us": 100, "10 us": 10}
PLAIN, COPIES, FOLD = "1 key, sum, 1 s / 10 ms", "100 windows per row", "fold of three numbers"
SECOND = 1_000_000
LARGE = 1 << 20
"""Rows of a batch where only the rate of rows matters; the batch sweep shows smaller ones."""


def build_plain(n_rows: int) -> Experiment:
    """Compare all ways on one key, a sum, and windows of 1 s every 10 ms."""
    few = Shape(min(n_rows, 1 << 22))
    whole = Shape(n_rows, batch=LARGE)
    trials = [
        *(_try_alone(way, PLAIN, whole) for way in (OURS, READING, PANDAS, POLARS)),
        *(_try_alone(way, COPIES, few) for way in (OURS, BUCKETS)),
        _try_alone(OURS, FOLD, Shape(n_rows // 2, function="fold", steady=True), name="fold, penstock"),
    ]
    caption = (
        f"Sum over windows of 1 s every 10 ms, one key, {n_rows:,} rows in memory, in "
        f"batches of {LARGE:,}; the bucket per window has "
        f"{few.n_rows:,} rows, the fold (least, greatest, how many) {n_rows // 2:,}."
    )
    drawn = (*trials[:4], *trials[5:])
    chart = Chart("One key, sum, 1 s every 10 ms", caption, "way", lines_of(drawn), form="bars")
    return Experiment("plain", tuple(trials), (chart,))


def break_down(n_rows: int, *, n_keys: int) -> Experiment:
    """Measure each part of the stage alone (figure 18)."""
    keyed = f"{n_keys:,} keys" if n_keys else "no key"
    case = f"parts, {keyed}"
    shape = Shape(n_rows, n_keys=n_keys, per_slice=100 * n_keys or 10_000)
    trials = [
        _try_alone(way, case, shape, name=way.removeprefix("part: ")) for way in (OURS, READING, *PARTS)
    ]
    caption = (
        "SPRINGALD, figure 18. Each part of the stage alone on the same batches; what a part needs from "
        "those "
        "before it is made outside the clock. The whole also judges rows and makes result columns; "
        f"{n_rows:,} rows, 1 s every 10 ms."
    )
    chart = Chart(f"Where the time goes, {keyed}", caption, "part", lines_of(trials), up="s", form="bars")
    return Experiment(case, tuple(trials), (chart,))


def _try_alone(way: str, case: str, shape: Shape, *, name: str = "") -> Trial:
    """Return the trial of one way on one case, as a bar of its own."""
    label = name or way
    return Trial(way, {case: shape}, Line(label, (Point(0, label, Cell(case, way)),)))


def sweep_slides(n_rows: int, which: tuple[str, ...] = tuple(SLIDES)) -> Experiment:
    """Vary the slide at 1,000 rows per slice; a row is in 10 to 100,000 windows (figure 12, centre)."""
    places = {
        name: Place(SLIDES[name], Shape(n_rows, every=SLIDES[name], per_slice=1_000, steady=True))
        for name in which
    }
    trials = try_with_peers("slide", places)
    caption = (
        "SPRINGALD, figure 12 (centre). Sum over windows of 1 s, no key, 1,000 rows per slice and one "
        "result per "
        "slice whatever the slide; a row is in 10 windows (100 ms) to 100,000 (10 us)."
    )
    return Experiment(
        "slide", trials, (Chart("Windows that slide ever faster", caption, "slide", lines_of(trials)),)
    )


def sweep_batches(n_rows: int) -> Experiment:
    """Vary the batch size, for three window lengths sliding every 100 us (figure 12, left)."""
    sizes = {"10 ms": 10_000, "100 ms": 100_000, "1 s": SECOND}
    base = Shape(n_rows, every=100, per_slice=1_000, steady=True)
    steps = [1 << power for power in (10, 12, 14, 16, 18, 20)]
    trials = [
        try_way(
            "batch",
            OURS,
            {
                f"{batch:,}": Place(
                    batch, replace(base, size=size, batch=batch, n_rows=min(n_rows, 256 * batch))
                )
                for batch in steps
            },
            name=f"penstock, {name}",
            variant=name,
            style=at,
        )
        for at, (name, size) in enumerate(sizes.items())
    ]
    read = try_way("batch", READING, {"read at once": Place(0, replace(base, batch=steps[-1]))})
    (point,) = read.line.points
    ends = tuple(replace(point, at=batch, label=f"{batch:,}") for batch in (steps[0], steps[-1]))
    trials.append(replace(read, line=replace(read.line, points=ends)))
    caption = (
        "SPRINGALD, figure 12 (left). Sum over windows of 10 ms, 100 ms and 1 s every 100 us, no key, a "
        "watermark "
        "after each batch. At most 256 batches a run, so small ones have fewer rows in all."
    )
    return Experiment(
        "batch", tuple(trials), (Chart("The size of a batch", caption, "rows per batch", lines_of(trials)),)
    )


def sweep_windows_per_pass(n_rows: int) -> Experiment:
    """Vary n_w, the number of windows of one pass over the tree (figure 12, right)."""
    trials: list[Trial] = []
    drawn = []
    for at, name in enumerate(("10 us", "100 us", "1 ms", "10 ms")):
        points = []
        for n_w in N_W:
            # Few windows at a time make many passes: those get fewer rows, and about as many passes.
            shape = Shape(min(n_rows, n_w << 13), every=SLIDES[name], per_slice=100, steady=True)
            one = try_way(
                "n_w", tree_way_name(n_w), {f"{name} slide, {shape.n_rows:,} rows": Place(n_w, shape)}
            )
            points.append(Point(n_w, f"{n_w:,}", one.line.points[0].cell))
            trials.append(one)
        drawn.append(Line(f"{name} slide", tuple(points), at))
    caption = (
        "SPRINGALD, figure 12 (right). Sum over windows of 1 s, no key, 100 rows per slice, the slices alone "
        "and always by the tree; at most n_w windows close in one pass over it. A small n_w has fewer rows "
        "(see the table). The stage itself sets no such bound."
    )
    chart = Chart("Windows per pass over the tree (n_w)", caption, "n_w", tuple(drawn))
    return Experiment("n_w", tuple(trials), (chart,))


def compare_with_tree(n_rows: int) -> Experiment:
    """Compare the store with and without the tree, by slide and by keys (figure 17)."""
    by_slide = {
        name: Place(every, Shape(n_rows, every=every, per_slice=1_000, steady=True))
        for name, every in SLIDES.items()
    }
    by_keys = {
        f"{n:,}": Place(n, Shape(n_rows, n_keys=n, per_slice=100 * n, steady=True)) for n in (1, 10, 100, 500)
    }
    ways = ((CHOICE, 0), (NO_TREE, 1), (TREE, 2))
    slid, keyed = (
        tuple(try_way("tree", way, places, variant=variant, style=style) for way, style in ways)
        for variant, places in (("slide", by_slide), ("keys", by_keys))
    )
    setup = (
        "The slices alone, without keys to slots and result columns: by their own choice of algorithm, "
        "never with "
        "a tree (every window swept anew), always with one."
    )
    return Experiment(
        "tree",
        (*slid, *keyed),
        (
            Chart(
                "Tree against none, by slide",
                f"After SPRINGALD, figure 17 (left); one key, 1,000 rows per slice. {setup}",
                "slide",
                lines_of(slid),
            ),
            Chart(
                "Tree against none, by keys",
                f"After SPRINGALD, figure 17 (right); 1 s every 10 ms, 100 rows per slice and key. {setup}",
                "keys",
                lines_of(keyed),
            ),
        ),
    )


def sweep_functions(n_rows: int) -> Experiment:
    """Vary the function: the nine of the paper, and a fold (figure 15)."""
    trials = tuple(
        _try_alone(OURS, f"function: {name}", Shape(n_rows, function=name), name=name) for name in FUNCTIONS
    )
    caption = f"SPRINGALD, figure 15, and a user's fold. One key, 1 s every 10 ms, {n_rows:,} rows."
    return Experiment(
        "function", trials, (Chart("The function", caption, "function", lines_of(trials), form="bars"),)
    )
