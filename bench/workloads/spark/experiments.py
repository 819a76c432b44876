"""The whole workload on Spark: experiments by group, and the claims about each.

Cases of a group are measured together, so ratios are taken within groups. Ways that make a copy of a row per
window get fewer rows the more windows a row is in, or a round would take hours.
"""

from __future__ import annotations

from bench.workload import Case, Cell, Chart, Claim, Line, Point, Size, Way, Workload
from bench.workloads.spark import etl, frames, ours, peers
from bench.workloads.spark.ours import BYTES, PER_BATCH
from bench.workloads.spark.rows import Rows, Shape, check_answer, compute_answer

OURS, WINDOWS, PANES, SUMS = "penstock", "Spark's window()", "groupBy(pane, key)", "groupBy(key)"
LIVE, LIVE_PANES = "penstock, a batch at a time", "groupBy(pane, key), a batch at a time"
HELPER, OWN_STREAM, PANE_STREAM, SUM_STREAM = (
    "window_aggregate",
    "Spark's window(), as a stream",
    "groupBy(pane, key), as a stream",
    "groupBy(key), as a stream",
)
FOLD, IDENTITY = "penstock, a fold", "identity mapInArrow"
ETL, SPARK_ETL = "penstock, expressions", "Spark's DataFrame"
FUNCTION, MAP_IN_ARROW = "penstock, a batch function", "mapInArrow"
FOLLOW, FILE_STREAM = "penstock, a folder followed", "Spark's file stream"
SECOND = 1_000_000
STREAM = "a streaming DataFrame, 10 s / 100 ms, 100 keys, batches of 2 M rows"
PLAIN, SMALL, TUMBLING, FOLDED = (
    "10 s / 100 ms, 100 keys",
    "batches of 5,000 rows",
    "tumbling 1 s, 100 keys",
    "a fold of three numbers, 100 keys",
)
EXPRESSIONS, BATCHES, BACKLOG = "etl: expressions", "etl: a Python batch function", "etl: many small files"
OVERLAPS = {1: 10 * SECOND, 10: SECOND, 100: SECOND // 10, 1_000: SECOND // 100}

Shapes = dict[str, tuple[str, Shape]]
"""Case -> its group and shape."""


def workload(size: Size) -> Workload:
    """Build the workload; quick has a half or a quarter of the rows of most cases, and fewer rounds."""
    quick = size == "quick"
    shapes = _plain_shapes(2_000_000 if quick else 4_000_000)
    shapes |= _other_shapes(500_000 if quick else 2_000_000) | _overlap_shapes(
        250_000 if quick else 1_000_000
    )
    shapes |= _grid_shapes(100_000 if quick else 400_000) | _etl_shapes(quick)
    shapes |= _stream_shapes(4 if quick else 6)
    ways = _ways(shapes)
    return Workload(
        name="spark",
        about="windows and ETL on Structured Streaming, files to files, against Spark written by hand",
        cases=tuple(_case(name, group, shape) for name, (group, shape) in shapes.items()),
        ways=ways,
        oracle=compute_answer,
        check=check_answer,
        claims=_claims(shapes),
        collector=True,
        charts=_charts(shapes),
        rounds=3 if quick else 5,
    )


def _plain_shapes(batch: int) -> Shapes:
    size, every = 10 * SECOND, SECOND // 10
    return {
        PLAIN: ("windows", Shape(2, batch, n_keys=100, size=size, every=every)),
        SMALL: ("small", Shape(10, 5_000, n_keys=100, size=size, every=every, rate=2_000)),
    }


def _stream_shapes(n_files: int) -> Shapes:
    """Return batches of one size: what a batch costs besides its rows is part of the figures."""
    return {
        STREAM: ("stream-helper", Shape(n_files, 2_000_000, n_keys=100, size=10 * SECOND, every=SECOND // 10))
    }


def _other_shapes(batch: int) -> Shapes:
    return {
        TUMBLING: ("tumbling", Shape(2, batch, n_keys=100, size=SECOND, every=SECOND)),
        FOLDED: ("fold", Shape(2, batch, n_keys=100, size=SECOND, every=SECOND)),
    }


def _etl_shapes(quick: bool) -> Shapes:
    """Return the cases without windows: eight large files, or very many small ones."""
    large, n_small = 500_000 if quick else 1_000_000, 400 if quick else 2_000
    plain = {"n_keys": 100, "size": SECOND, "every": SECOND}
    return {
        EXPRESSIONS: ("etl", Shape(8, large, **plain)),
        BATCHES: ("etl", Shape(8, large, **plain)),
        BACKLOG: ("etl", Shape(n_small, 500, **plain)),
    }


def _overlap_shapes(batch: int) -> Shapes:
    """Return 1 to 1,000 windows a row, with 100 keys, 1,000 rows a slice, 10 per slice and key."""
    return {
        _overlap_name(n): (
            "overlap",
            Shape(2, batch, n_keys=100, size=10 * SECOND, every=every, rate=1_000 * SECOND // every),
        )
        for n, every in OVERLAPS.items()
    }


def _overlap_name(n: int) -> str:
    return f"{n:,} windows a row"


def _grid_shapes(batch: int) -> Shapes:
    """Return keys times windows a row, for the claim that Spark's own windows are nowhere faster.

    All rows are within 25 seconds, so that about half of the windows close.
    """
    shapes: Shapes = {}
    for keys in (1, 1_000, 1_000_000):
        for n, every in OVERLAPS.items():
            rows = max(batch // n, 500)
            shape = Shape(2, rows, n_keys=keys, size=10 * SECOND, every=every, rate=2 * rows // 25)
            shapes[_grid_name(keys, n)] = (f"grid, {n:,}", shape)
    return shapes


def _grid_name(keys: int, n: int) -> str:
    return f"grid: {keys:,} keys, {n:,} windows a row"


def _ways(shapes: Shapes) -> tuple[Way, ...]:
    def of(*groups: str) -> tuple[str, ...]:
        return tuple(name for name, (group, _) in shapes.items() if group in groups)

    grid = tuple(name for name, (group, _) in shapes.items() if group.startswith("grid"))
    ways = (
        Way(OURS, ours.run, only=(*of("windows", "tumbling", "overlap"), *grid), notes=ours.run_notes),
        Way(WINDOWS, peers.run_windows, only=(*of("windows", "tumbling"), *grid), notes=ours.run_notes),
        Way(PANES, peers.run_panes, oracle=peers.count_panes, only=of("windows")),
        Way(SUMS, peers.run_sums, oracle=peers.count_keys, only=of("windows")),
        Way(LIVE, ours.run_live, only=of("small"), notes=ours.run_notes),
        Way(
            LIVE_PANES,
            peers.run_live_panes,
            oracle=peers.count_panes,
            only=of("small"),
            notes=peers.batch_notes,
        ),
        *(
            Way(name, run, oracle=oracle, only=of("stream-helper"), notes=frames.batch_notes)
            for name, run, oracle in (
                (HELPER, frames.run_window_aggregate, frames.count_all_windows),
                (OWN_STREAM, frames.run_own_windows, frames.count_first_windows),
                (PANE_STREAM, frames.run_panes, frames.count_panes),
                (SUM_STREAM, frames.run_group_by, frames.count_updates),
            )
        ),
        Way(FOLD, ours.run_fold, oracle=ours.count_rows, only=of("fold")),
        Way(IDENTITY, peers.run_identity, oracle=ours.count_rows, only=of("fold")),
        Way(ETL, etl.run_expressions, oracle=etl.compute_etl, only=(EXPRESSIONS,)),
        Way(SPARK_ETL, etl.run_spark_expressions, oracle=etl.compute_etl, only=(EXPRESSIONS,)),
        Way(FUNCTION, etl.run_batch_function, oracle=etl.compute_scores, only=(BATCHES,)),
        Way(MAP_IN_ARROW, etl.run_map_in_arrow, oracle=etl.compute_scores, only=(BATCHES,)),
        Way(FOLLOW, etl.run_backlog, oracle=etl.compute_etl, only=(BACKLOG,)),
        Way(FILE_STREAM, etl.run_file_stream, oracle=etl.compute_etl, only=(BACKLOG,)),
    )
    return tuple(way for way in ways if way.only)


def _case(name: str, group: str, shape: Shape) -> Case:
    def make(seed: int) -> Rows:
        peers.open_spark()  # outside the clock
        return Rows.write(shape, seed)

    return Case(name, make=make, units={"rows": shape.n_rows}, group=group)


def _claims(shapes: Shapes) -> tuple[Claim, ...]:
    claims = [
        _speed_claim("at least 40 times Spark's own windows", PLAIN, OURS, WINDOWS, 40),
        _speed_claim("at least 0.8 of a group-by of panes", PLAIN, OURS, PANES, 0.8),
        _speed_claim("at least 0.35 of a group-by of keys", PLAIN, OURS, SUMS, 0.35),
        Claim(
            "checkpoints take no more bytes a batch than Spark's own windows",
            Cell(PLAIN, OURS),
            1,
            Cell(PLAIN, WINDOWS),
            note=BYTES,
        ),
        Claim(
            "a batch of 5,000 rows takes at most 1.3 times one of a plain stateful group-by",
            Cell(SMALL, LIVE),
            1.3,
            Cell(SMALL, LIVE_PANES),
            note=PER_BATCH,
        ),
        _stream_claim("window_aggregate: at least 40 times Spark's own windows", OWN_STREAM, 40),
        _stream_claim("window_aggregate: at least 0.35 of a group-by of keys", SUM_STREAM, 0.35),
        _speed_claim("tumbling windows: at least 1.2 times Spark's own", TUMBLING, OURS, WINDOWS, 1.2),
        _speed_claim("a fold: at least 0.7 of an identity mapInArrow", FOLDED, FOLD, IDENTITY, 0.7),
        _speed_claim("expressions: at least 0.9 of Spark's DataFrame", EXPRESSIONS, ETL, SPARK_ETL, 0.9),
        _speed_claim("a batch function: at least 0.9 of mapInArrow", BATCHES, FUNCTION, MAP_IN_ARROW, 0.9),
        _speed_claim("many small files: at least 0.8 of a file stream", BACKLOG, FOLLOW, FILE_STREAM, 0.8),
        Claim(
            "1,000 windows a row for 1, equal rows per slice and key, cost at most 1.5x",
            Cell(_overlap_name(1_000), OURS),
            1.5,
            Cell(_overlap_name(1), OURS),
        ),
        *(
            _speed_claim(f"{name}: not slower than Spark's own windows", name, OURS, WINDOWS, 1)
            for name, (group, _) in shapes.items()
            if group.startswith("grid")
        ),
    ]
    return tuple(claim for claim in claims if claim.cell.case in shapes)


def _speed_claim(says: str, case: str, way: str, than: str, times: float) -> Claim:
    return Claim(says, Cell(case, way), 1 / times, Cell(case, than), speed="rows")


def _stream_claim(says: str, than: str, times: float) -> Claim:
    return Claim(says, Cell(STREAM, HELPER), 1 / times, Cell(STREAM, than), note=frames.PER_MILLION)


def _charts(shapes: Shapes) -> tuple[Chart, ...]:
    caption = (
        "Sum and count, out of order, parquet files to parquet files, one file a batch, the windows that the "
        "last watermark closes. The two group-bys have no windows."
    )
    bars = tuple(Line(way, (Point(0, way, Cell(PLAIN, way)),)) for way in (OURS, WINDOWS, PANES, SUMS))
    charts = [Chart("Windows of 10 s every 100 ms on Spark", caption, "way", bars, form="bars")]
    if _overlap_name(1) in shapes:
        points = tuple(Point(n, f"{n:,}", Cell(_overlap_name(n), OURS)) for n in OVERLAPS)
        overlap_caption = (
            "Windows of 10 s, 100 keys, 10 rows per slice and key whatever the slide: equally many results."
        )
        charts.append(
            Chart("1 to 1,000 windows a row", overlap_caption, "windows a row", (Line(OURS, points),))
        )
    return tuple(charts)
