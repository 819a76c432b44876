"""Where rows go: `ps.write.parquet("out/")`, `ps.write.memory()`.

Every function returns a writer for `pipe.sink`; see `penstock.connect.protocol` for what a writer is.
"""

# ruff: noqa: PLC0414 (by this form type checkers know that a name is passed on)

from typing import TYPE_CHECKING

from penstock.lazy import defer

if TYPE_CHECKING:
    from penstock.connect.writers.callback import callback as callback
    from penstock.connect.writers.console import console as console
    from penstock.connect.writers.csv import csv as csv
    from penstock.connect.writers.jsonl import jsonl as jsonl
    from penstock.connect.writers.memory import memory as memory
    from penstock.connect.writers.parquet import parquet as parquet
    from penstock.connect.writers.tcp import tcp as tcp

    __all__: list[str]
else:
    defer(
        __name__,
        {
            "penstock.connect.writers.callback": "callback",
            "penstock.connect.writers.console": "console",
            "penstock.connect.writers.csv": "csv",
            "penstock.connect.writers.jsonl": "jsonl",
            "penstock.connect.writers.memory": "memory",
            "penstock.connect.writers.parquet": "parquet",
            "penstock.connect.writers.tcp": "tcp",
        },
    )
