"""Where rows go: `ps.write.parquet("out/")`, `ps.write.memory()`.

Every function returns a writer for `pipe.sink`; see `penstock.connect.protocol` for what a writer is.
"""

from penstock.connect.writers.callback import callback
from penstock.connect.writers.console import console
from penstock.connect.writers.csv import csv
from penstock.connect.writers.jsonl import jsonl
from penstock.connect.writers.memory import memory
from penstock.connect.writers.parquet import parquet
from penstock.connect.writers.tcp import tcp

__all__ = ["callback", "console", "csv", "jsonl", "memory", "parquet", "tcp"]
