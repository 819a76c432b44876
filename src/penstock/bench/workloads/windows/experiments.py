"""The experiments: which ways are tried on which cases, and what is claimed.

Quick has the cases of the claims; full has all of SPRINGALD's experiments that one CPU thread can have (its
figure 13, threads, belongs to the engines). A full measurement holds about 6 GB of rows.
"""

from __future__ import annotations

from functools import partial

from penstock.bench.workload import Case, Cell, Claim, Size, Way, Workload
from penstock.bench.workloads.windows import ours, parts, peers, series
from penstock.bench.workloads.windows.answer import right, wrong
from penstock.bench.workloads.windows.series import Series, delays_named, keys_named
from penstock.bench.workloads.windows.shape import Shape, flow

OURS, READING, BUCKETS, PANDAS, POLARS = "penstock", "reading", "bucket per window", "pandas", "Polars"
PLAIN, COPIES, FOLD = "1 key, sum, 1 s / 10 ms", "100 windows per row", "fold of three numbers"
FEWER = 1 << 20
"""Rows of the case for buckets per window, which make a hundred copies of each."""


def workload(size: Size) -> Workload:
    """Windows at the speed of memory, and what they cost when they slide, scatter or multiply."""
    n_rows = 1 << 22 if size == "quick" else 1 << 23
    shapes = _quick(n_rows) if size == "quick" else _full(n_rows)
    return Workload(
        name="windows",
        about="sliding windows over out-of-order rows, against reading them, copying them, pandas and Polars",
        cases=tuple(_case(name, shape) for name, shape in shapes.items()),
        ways=tuple(_ways(size, shapes)),
        oracle=right,
        wrong=wrong,
        claims=tuple(_claims(shapes)),
    )


def _quick(n_rows: int) -> Series:
    return {
        PLAIN: series.plain(n_rows),
        COPIES: series.plain(FEWER),
        FOLD: Shape(n_rows, function="fold", steady=True),
        **series.slides(n_rows, ("100 ms", "10 us")),
        **series.keys(n_rows, ((1, 0.0), (500, 0.0), (500, 0.9))),
        **series.delays(n_rows, ("in order", "1 s")),
    }


def _full(n_rows: int) -> Series:
    some = tuple(
        (n_keys, skew) for n_keys in (1, 10, 100, 500) for skew in (0.0, 0.9) if n_keys > 1 or not skew
    )
    return {
        PLAIN: series.plain(2 * n_rows),
        COPIES: series.plain(FEWER),
        FOLD: Shape(n_rows, function="fold", steady=True),
        **series.slides(n_rows),
        **series.keys(n_rows, some),
        **series.delays(n_rows),
        **series.functions(n_rows),
        **series.batches(n_rows),
        **series.many_keys(n_rows),
        **series.counts(n_rows // 2),
        **series.minutes(n_rows),
        **series.campaigns(n_rows),
    }


def _case(name: str, shape: Shape) -> Case:
    units = {"rows": shape.n_rows}
    if name.startswith("batches"):
        units["batches"] = -(-shape.n_rows // shape.batch)
    if shape.steady and not shape.mean_delay:
        # The last slice is not over when the rows end, and its window stays.
        units["results"] = (shape.n_slices - 1) * max(shape.n_keys, 1)
    return Case(name, make=partial(flow, shape), units=units)


def _ways(size: Size, shapes: Series) -> list[Way]:
    keyed = keys_named(500)
    slides = tuple(name for name in shapes if name.startswith("slide "))
    split = (PLAIN,) if size == "quick" else (PLAIN, keyed)
    found = [
        Way(OURS, ours.through_stage, setup=ours.fed_stage),
        Way(READING, peers.read_columns, oracle=peers.sums_of_columns, only=(PLAIN, keyed)),
        Way(BUCKETS, peers.bucket_per_window, only=(COPIES,)),
        Way(PANDAS, peers.by_pandas, setup=peers.pandas_frame, only=(PLAIN,)),
        Way(POLARS, peers.by_polars, setup=peers.polars_frame, only=(PLAIN,)),
        Way("part: slots", parts.to_slots, oracle=parts.n_rows_and_keys, only=split),
        Way("part: values", parts.to_values, parts.lifting_of, parts.n_rows_of, split),
        Way("part: rows into counts", parts.to_cells, parts.counting, parts.n_rows_of, split),
        Way("part: rows into sums", parts.to_cells, parts.summing, parts.n_rows_of, split),
        Way("part: leaving", parts.leaving, parts.full_store, parts.n_leaving, split),
    ]
    return found if size == "quick" else [*found, *_forced(slides)]


def _forced(slides: tuple[str, ...]) -> list[Way]:
    """Figures 12, right, and 17: the store alone, by its own choice, without a tree, with n_w windows."""
    # With n_w of 1 every window is a pass of its own, which takes long: two slides show it.
    few = tuple(name for name in slides if name in ("slide 10 ms", "slide 10 us"))
    return [
        Way("store, own choice", ours.through_store, setup=ours.fed_store, only=slides),
        Way("store, no tree", ours.through_store, partial(ours.fed_store, way="sweep"), only=slides),
        *(
            Way(
                f"store, tree, n_w {most:,}",
                ours.through_store,
                setup=partial(ours.fed_store, way="tree", most=most),
                only=few,
            )
            for most in (1, 10, 100, 1_000)
        ),
    ]


def _claims(shapes: Series) -> list[Claim]:
    plain, fold = Cell(PLAIN, OURS), Cell(FOLD, OURS)
    uniform, skewed = (Cell(keys_named(500, skew), OURS) for skew in (0.0, 0.9))
    at_least = "{}: at least {} million rows/s"
    return [
        Claim(f"{PLAIN}: at least 0.25 of the rate of reading", plain, 4, over=Cell(PLAIN, READING)),
        Claim(at_least.format(PLAIN, 150), plain, shapes[PLAIN].n_rows / 150e6),
        _ratio("a slide of 10 us for 100 ms costs at most 1.5x", "slide 10 us", 1.5, "slide 100 ms"),
        _ratio("500 keys for 1 cost at most 1.5x", keys_named(500), 1.5, keys_named(1)),
        _ratio("1 s of mean delay costs at most 1.1x", delays_named("1 s"), 1.1, "in order"),
        Claim("Zipf instead of uniform keys costs at most 1.05x", skewed, 1.05, over=uniform),
        Claim(at_least.format(FOLD, 60), fold, shapes[FOLD].n_rows / 60e6),
        Claim("a bucket per window is beaten 50x", Cell(COPIES, OURS), 1 / 50, over=Cell(COPIES, BUCKETS)),
        Claim("pandas is beaten", plain, 1, over=Cell(PLAIN, PANDAS)),
        Claim("Polars is beaten", plain, 1, over=Cell(PLAIN, POLARS)),
    ]


def _ratio(says: str, case: str, at_most: float, over: str) -> Claim:
    return Claim(says, Cell(case, OURS), at_most, over=Cell(over, OURS))
