"""What an application is: a graph, a generator of its rows, and a recount that knows the right answer.

Applications are those of the papers, written as a user would write them: only public names of Penstock are
used. The command line, the conformance suite and the benchmarks iterate over `penstock.apps.APPLICATIONS`.
Rows are generated in the order in which they arrive. None is further behind than `disorder`, which is also
the delay of the sources: so no row is late, and the answer does not depend on how rows are cut into batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv

import penstock as ps

Tables = Mapping[str, pa.Table]
"""Source -> its rows, in the order in which they arrive."""
Rows = list[dict[str, Any]]
LINE_US = 1_000
"""The time between two lines of a file that has no times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What every application can be asked for; each adds parameters of its own.

    rows         rows to generate, over all sources
    seed         what they depend on
    rate         rows per second of event time
    disorder_us  how far behind the latest row another may arrive, in microseconds
    keys         number of keys; 0 for the application's own
    batch        rows that a source reads at a time
    parallelism  replicas of the operators
    chaining     whether operators may be fused
    form         which of its graphs: "rows" has the operators of the paper, "columns" computes by columns
                 what the other does row by row
    """

    rows: int = 10_000
    seed: int = 1
    rate: float = 10_000.0
    disorder_us: int = 0
    keys: int = 0
    batch: int = 1 << 16
    parallelism: int = 1
    chaining: bool = True
    form: str = "rows"

    @property
    def delay(self) -> str:
        """Return the delay of sources whose rows come as far behind as the options say."""
        return duration(self.disorder_us)


def duration(us: int) -> str:
    """Return a number of microseconds as a duration, in seconds where they are whole.

    >>> duration(10_000_000), duration(250)
    ('10 s', '250 us')
    """
    return f"{us} us" if us % 1_000_000 else f"{us // 1_000_000} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """An application of one of the papers.

    name      what the command line calls it
    label     its short name in the paper
    paper     where it comes from
    summary   what it does, in a line
    reads     what it reads: the columns of its rows, and the file that it can read instead
    forms     the forms of its graph, the usual one first
    options   the class of its options
    time      the time column of its rows; None if they have none
    unit_us   what that column counts, in microseconds
    generate  make rows
    build     build the graph from readers and a writer; the answer leaves by the sink
    recount   compute the answer again, in plain Python
    load      read a real file
    """

    name: str
    label: str
    paper: str
    summary: str
    reads: str
    generate: Callable[[Any], Tables]
    build: Callable[[Mapping[str, Any], Any, Any], ps.PipeGraph]
    recount: Callable[[Tables, Any], Rows]
    options: type[Options] = Options
    forms: tuple[str, ...] = ("rows",)
    time: str | None = "time"
    unit_us: int = 1
    load: Callable[[Path], Tables] | None = None

    def make_options(self, **settings: Any) -> Any:
        """Return its options; raise a GraphError that lists them if there is no such option or form."""
        known = {field.name: field for field in fields(self.options)}
        for name in settings:
            if name not in known:
                raise ps.GraphError(
                    f"{self.name} has no option {name!r}", detail=f"its options are {', '.join(known)}"
                )
        options = self.options(**{"form": self.forms[0], **settings})
        if options.form not in self.forms:
            raise ps.GraphError(
                f"{self.name} has no form {options.form!r}", detail=f"its forms are {', '.join(self.forms)}"
            )
        return options

    def graph(self, options: Any = None, *, tables: Tables | None = None, writer: Any = None) -> ps.PipeGraph:
        """Return the graph over tables, generated if none are given; the answer goes to a writer."""
        options = self.make_options() if options is None else options
        tables = self.generate(options) if tables is None else tables
        readers = {name: ps.read.table(rows, batch=options.batch) for name, rows in tables.items()}
        return self.build(readers, ps.write.memory() if writer is None else writer, options)

    def replay(self, tables: Tables, options: Any, *, rate: float | None, seconds: float | None) -> Any:
        """Return readers that yield the rows again and again, at a rate, for some seconds.

        rate     rows per second of the clock over all sources, and times begin now; None for all at once
        seconds  how long; None for once through the rows
        """
        readers = {}
        for name, rows in tables.items():
            share = None if rate is None else rate / len(tables)
            source = Replay(rows, self.time, self.unit_us, options.batch, share, seconds)
            readers[name] = ps.read.generator(source, schema=rows.schema)
        return readers


@dataclass(frozen=True, slots=True)
class Replay:
    """Yields the batches of a table, as often as there is time for, each time with later times.

    rows     the table
    time     its time column, if it has one
    unit_us  what that column counts: at a rate, times begin with that of the clock
    batch    rows of a batch, at most
    rate     rows per second; None for as fast as they are taken
    seconds  how long; None for once
    """

    rows: pa.Table
    time: str | None
    unit_us: int
    batch: int
    rate: float | None
    seconds: float | None

    def __call__(self) -> Iterator[pa.RecordBatch]:
        """Yield batches: at a rate, the rows that are due, about a hundred times a second."""
        started, n_rows, span, shift = time.monotonic(), 0, 0, 0
        if self.time is not None and self.rows.num_rows:
            times = self.rows.column(self.time).to_numpy()
            span = int(times.max() - times.min()) + 1
            now = time.time_ns() // 1_000 // self.unit_us
            shift = 0 if self.rate is None else now - int(times.min())
        while self.rows.num_rows:
            rows, start = shift_times(self.rows, self.time, shift), 0
            while start < rows.num_rows:
                if self.seconds is not None and time.monotonic() - started > self.seconds:
                    return
                size = self.batch
                if self.rate is not None:
                    time.sleep(max(0.0, started + n_rows / self.rate - time.monotonic()))
                    is_due = int((time.monotonic() - started) * self.rate) - n_rows
                    size = min(self.batch, max(1, int(self.rate / 100), is_due))
                (batch,) = rows.slice(start, size).combine_chunks().to_batches()
                yield batch
                start, n_rows = start + batch.num_rows, n_rows + batch.num_rows
            shift += span
            if self.seconds is None:
                return


def open_source(
    name: str, reader: Any, options: Options, *, unit: Literal["s", "us"] = "us"
) -> tuple[ps.PipeGraph, ps.MultiPipe]:
    """Return a new graph and its only source: rows with a time of their own, behind by the disorder at most.

    unit  what the time column counts
    """
    graph = ps.PipeGraph(name, chaining=options.chaining)
    rows = graph.source(reader, time="time", time_unit=unit, delay=options.delay, name="source")
    return graph, rows


def shift_times(rows: pa.Table, name: str | None, by: int) -> pa.Table:
    """Return a table whose times are later by so much."""
    if name is None or not by:
        return rows
    times = pa.array(rows.column(name).to_numpy() + by)
    return rows.set_column(rows.schema.get_field_index(name), name, times)


def draw_times(chance: np.random.Generator, n: int, rate: float) -> np.ndarray[Any, Any]:
    """Return n rising times in microseconds, as they come when nobody waits for anybody (Poisson)."""
    return np.cumsum(chance.exponential(1e6 / rate, n)).astype(np.int64)


def let_arrive(rows: pa.Table, chance: np.random.Generator, options: Options, unit_us: int = 1) -> pa.Table:
    """Return rows in the order in which they arrive: each is held up by up to `disorder_us`.

    unit_us  what the time column counts
    """
    if not options.disorder_us:
        return rows
    held_up = chance.integers(0, options.disorder_us // unit_us + 1, rows.num_rows)
    return rows.take(np.argsort(rows.column("time").to_numpy() + held_up, kind="stable"))


def draw_keys(chance: np.random.Generator, n: int, n_keys: int, skew: float) -> np.ndarray[Any, Any]:
    """Return n numbers below `n_keys`, where number i is drawn as often as 1 / (i + 1) ** skew (Zipf)."""
    weights = 1.0 / np.arange(1, n_keys + 1) ** skew
    return np.searchsorted(np.cumsum(weights) / weights.sum(), chance.random(n)).clip(0, n_keys - 1)


def read_csv(
    file: Path,
    names: Sequence[str] = (),
    *,
    time: str | None = None,
    types: Mapping[str, pa.DataType] | None = None,
) -> pa.Table:
    """Read a CSV file as rows that arrive: in order of time, which is the first column.

    names  of its columns; by default they are in its first line
    time   the column with the time: dates become microseconds, numbers stay as they are. None for a file
           that has none, whose lines then come a millisecond apart
    types  of columns that shall not be guessed from the first lines
    """
    rows = pyarrow.csv.read_csv(
        file,
        pyarrow.csv.ReadOptions(column_names=list(names) or None),
        convert_options=pyarrow.csv.ConvertOptions(column_types=types),
    )
    if time is None:
        return rows.add_column(0, "time", pa.array(np.arange(rows.num_rows) * LINE_US))
    times = rows.column(time)
    if not pa.types.is_integer(times.type):
        times = times.cast(pa.timestamp("us")).cast(pa.int64())
    rows = rows.drop_columns(time).add_column(0, "time", times)
    return rows.sort_by("time")  # stable; a change of the clock repeats an hour of some files


def in_order(rows: pa.Table) -> Rows:
    """Return the rows in order of time, rows of one time as they arrived: what steps with state see."""
    ordered: Rows = rows.take(np.argsort(rows.column("time").to_numpy(), kind="stable")).to_pylist()
    return ordered
