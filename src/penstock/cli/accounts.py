"""What became of every row, as a table: one line per step, and only the columns that say something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

ALWAYS = ("rows_in", "rows_out")
SOMETIMES = ("late", "filtered", "no_window", "unfinished", "unmatched", "unrouted", "errors")


def accounts_table(accounts: Mapping[str, Any]) -> Table:
    """The accounts of a run, by step."""
    used = [what for what in SOMETIMES if any(getattr(one, what) for one in accounts.values())]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("step")
    for what in (*ALWAYS, *used):
        table.add_column(what.replace("_", " "), justify="right")
    for step, one in accounts.items():
        table.add_row(Text(step), *(f"{getattr(one, what):,}" for what in (*ALWAYS, *used)))
    return table
