"""Where rows come from: `ps.read.parquet("events/")`, `ps.read.rows([…])`.

Every function returns a reader for `graph.source`; see `penstock.connect.protocol` for what a reader is.
"""

# ruff: noqa: PLC0414 (by this form type checkers know that a name is passed on)

from typing import TYPE_CHECKING

from penstock.lazy import defer

if TYPE_CHECKING:
    from penstock.connect.readers.csv import csv as csv
    from penstock.connect.readers.generator import generator as generator
    from penstock.connect.readers.iterable import iterable as iterable
    from penstock.connect.readers.jsonl import jsonl as jsonl
    from penstock.connect.readers.parquet import parquet as parquet
    from penstock.connect.readers.rows import batches as batches
    from penstock.connect.readers.rows import rows as rows
    from penstock.connect.readers.rows import table as table
    from penstock.connect.readers.spark import spark as spark
    from penstock.connect.readers.tcp import tcp as tcp
    from penstock.connect.readers.text import text as text

    __all__: list[str]
else:
    defer(
        __name__,
        {
            "penstock.connect.readers.csv": "csv",
            "penstock.connect.readers.generator": "generator",
            "penstock.connect.readers.iterable": "iterable",
            "penstock.connect.readers.jsonl": "jsonl",
            "penstock.connect.readers.parquet": "parquet",
            "penstock.connect.readers.rows": "batches rows table",
            "penstock.connect.readers.spark": "spark",
            "penstock.connect.readers.tcp": "tcp",
            "penstock.connect.readers.text": "text",
        },
    )
