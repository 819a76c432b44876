"""Windows on Spark: Penstock's plan, Spark's own, and what a person would write without windows."""

from __future__ import annotations

from penstock.bench.cell import Cell
from penstock.bench.chart import Chart, Line, Point
from penstock.bench.workload import Case, Claim, Size, Way, Workload
from penstock.bench.workloads.spark import ours, peers
from penstock.bench.workloads.spark.rows import Rows, Shape, right, wrong

OURS, WINDOWS, PANES, SUMS = "penstock", "Spark's window()", "groupBy(pane, key)", "groupBy(key)"
SECOND = 1_000_000


def workload(size: Size) -> Workload:
    """Quick leaves out the sweeps."""
    n = 1_000_000 if size == "quick" else 4_000_000
    plain = Shape(n_files=4, batch=n // 4, n_keys=100, size=10 * SECOND, every=SECOND // 10)
    shapes = {"10 s / 100 ms, 100 keys": plain}
    small = Shape(8, 5_000, n_keys=100, size=10 * SECOND, every=SECOND // 10, rate=2_000)
    shapes["batches of 5,000 rows"] = small
    if size == "full":
        for every in (10 * SECOND, SECOND, SECOND // 10, SECOND // 100):
            shapes[f"1 s of rows, {10 * SECOND // every:,} windows a row"] = Shape(
                n_files=4, batch=500_000, n_keys=100, size=10 * SECOND, every=every
            )
    (first, *_), sweep = shapes, [name for name in shapes if name.startswith("1 s of rows")]
    ways = (
        Way(OURS, ours.run),
        Way(WINDOWS, peers.windows, only=(first, *(name for name in sweep if "1,000" not in name))),
        Way(PANES, peers.panes, oracle=peers.n_panes, only=(first, "batches of 5,000 rows")),
        Way(SUMS, peers.sums, oracle=peers.n_keys, only=(first,)),
    )
    return Workload(
        name="spark",
        about="sliding windows on Structured Streaming, files to files, against Spark written by hand",
        cases=tuple(_case(name, shape) for name, shape in shapes.items()),
        ways=ways,
        oracle=right,
        wrong=wrong,
        claims=_claims(first),
        collector=True,
        charts=(_chart(first),),
        rounds=5,
    )


def _case(name: str, shape: Shape) -> Case:
    return Case(name, make=lambda seed: Rows.written(shape, seed), units={"rows": shape.n_rows})


def _claims(first: str) -> tuple[Claim, ...]:
    mine = Cell(first, OURS)
    return (
        Claim("at least 40 times Spark's own windows", mine, 1 / 40, Cell(first, WINDOWS), speed="rows"),
        Claim("at least 0.8 of a group-by of panes", mine, 1 / 0.8, Cell(first, PANES), speed="rows"),
        Claim("at least 0.35 of a group-by of keys", mine, 1 / 0.35, Cell(first, SUMS), speed="rows"),
        Claim(
            "small batches take at most 1.3 times those of a plain stateful group-by",
            Cell("batches of 5,000 rows", OURS),
            1.3,
            Cell("batches of 5,000 rows", PANES),
        ),
    )


def _chart(first: str) -> Chart:
    bars = [Line(way, (Point(0, way, Cell(first, way)),)) for way in (OURS, WINDOWS, PANES, SUMS)]
    caption = (
        "Sum and count, out of order, parquet files to parquet files, one file a batch, the windows that the "
        "last watermark lets go. The two group-bys have no windows."
    )
    return Chart("Windows of 10 s every 100 ms on Spark", caption, "way", tuple(bars), form="bars")
