"""A driver in a process of its own: it runs AIR's programs on a cluster, one order after the other.

    run_orders()

One order per line on standard input, as JSON; for each, one JSON object per line on standard output, with
`failed` if there was an error. The orders of a process share one Spark, so they have the same settings.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.apps import APPLICATIONS


@dataclass(frozen=True, slots=True)
class Order:
    """What is to run: an application over files, where, and who reads them.

    pipelined  whether workers read the files, so that rows go from the source to the next operator within a
               process; otherwise the driver reads them, and they go there through a socket
    """

    application: str
    settings: Mapping[str, Any]
    input: str
    output: str
    pipelined: bool
    master: str
    partitions: int
    conf: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the order as a line of JSON."""
        return json.dumps(asdict(self)) + "\n"


def run_order(order: Order) -> None:
    """Run the application to its end."""
    application = APPLICATIONS[order.application]
    graph = application.build(
        {"events": make_reader(order)},
        ps.write.parquet(order.output),
        application.make_options(**order.settings),
    )
    options = ps.SparkOptions(conf=order.conf, partitions=order.partitions)
    graph.run("spark", master=order.master, options=options)


def make_reader(order: Order) -> Any:
    """Return a reader of the files, in workers or in the driver; a file is a batch in both."""
    if order.pipelined:
        return ps.read.parquet(order.input)
    files = sorted(Path(order.input).iterdir())
    return ps.read.generator(partial(read_files, files), schema=pq.read_schema(files[0]))


def read_files(files: list[Path]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each file as a batch."""
    for file in files:
        yield pq.read_table(file).combine_chunks().to_batches()[0]


def run_orders() -> None:
    """Run the orders of standard input until its end."""
    for line in sys.stdin:
        try:
            run_order(Order(**json.loads(line)))
            report = {}
        except Exception as failure:
            report = {"failed": f"{type(failure).__name__}: {failure}"}
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()
