"""Where rows come from: `ps.read.parquet("events/")`, `ps.read.rows([…])`.

Every function returns a reader for `graph.source`; see `penstock.connect.protocol` for what a reader is.
"""

from penstock.connect.readers.csv import csv
from penstock.connect.readers.generator import generator
from penstock.connect.readers.iterable import iterable
from penstock.connect.readers.jsonl import jsonl
from penstock.connect.readers.parquet import parquet
from penstock.connect.readers.rows import batches, rows
from penstock.connect.readers.spark import spark
from penstock.connect.readers.table import table
from penstock.connect.readers.tcp import tcp
from penstock.connect.readers.text import text

__all__ = [
    "batches",
    "csv",
    "generator",
    "iterable",
    "jsonl",
    "parquet",
    "rows",
    "spark",
    "table",
    "tcp",
    "text",
]
