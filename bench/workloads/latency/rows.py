"""The rows of each application, the results they must give, and which row caused which result.

Applications do not carry stamps. But every result tells which row it comes from: a transaction, a time, the
count of a word. So its latency is the moment at which the sink has it less that at which this row was due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.apps import APPLICATIONS
from penstock.apps.fraud_detection import STATES, load_model

RATE = 10_000
Result = Mapping[str, Any]


class Subject(NamedTuple):
    """An application: its form, what in a result names its row, and how lines tell its rows to Flink.

    name_row     what names a row of the input
    name_result  what of a result is the same
    write_line   the fields of a row that Flink needs
    settings     what its query needs besides rows
    options      of the application: so that enough results come in seconds
    """

    label: str
    name: str
    form: str
    name_row: Callable[[dict[str, Any]], Hashable]
    name_result: Callable[[Result], Hashable]
    write_line: Callable[[dict[str, Any]], str] | None = None
    settings: Callable[[Any], dict[str, Any]] = lambda options: {}
    options: Mapping[str, Any] = {}


SUBJECTS = (
    Subject(
        "FD",
        "fraud-detection",
        "rows",
        lambda row: row["transaction"],
        lambda row: row["transaction"],
        lambda row: f"{row['entity']},{row['transaction']},{STATES.index(row['state'])}",
        lambda options: {"misses": (1 - load_model(options.model)).tolist(), "threshold": options.threshold},
        {"keys": 500},
    ),
    Subject(
        "SD",
        "spike-detection",
        "rows",
        lambda row: (row["device"], row["time"]),
        lambda row: (row["device"], row["time"]),
        lambda row: f"{row['device']},{row['value']!r}",
        lambda options: {"threshold": options.threshold},
        {"threshold": 0.025},
    ),
    Subject(
        "WC",
        "word-count",
        "rows",
        lambda row: row["line"],
        lambda row: (row["word"], row["n"]),
        lambda row: row["line"],
    ),
    Subject(
        "LR",
        "linear-road",
        "benchmark",
        lambda row: (row["vid"], row["time"]),
        lambda row: (row["vid"], row["time"]),
        lambda row: f"{row['type']},{row['vid']}",
    ),
    Subject("VS", "voip-stream", "rows", lambda row: row["call"], lambda row: row["call"]),
)


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Rows to be sent one by one, and what must come of them.

    numbers  the number of the row behind each result, by what names it
    """

    subject: Subject
    options: Any
    schema: pa.Schema
    rows: list[dict[str, Any]]
    numbers: Mapping[Hashable, int]
    n_results: int

    def expected_answer(self) -> int:
        """Return the number of results."""
        return self.n_results


def build_stream(subject: Subject, n_rows: int, seed: int) -> Stream:
    """Generate rows and recount their results."""
    application = APPLICATIONS[subject.name]
    options = application.make_options(
        rows=n_rows, seed=seed, rate=float(RATE), form=subject.form, **subject.options
    )
    tables = application.generate(options)
    (table,) = tables.values()
    rows: list[dict[str, Any]] = table.to_pylist()
    results = application.recount(tables, options)
    numbers = number_words(rows) if subject.label == "WC" else number_rows(subject, rows)
    assert all(subject.name_result(result) in numbers for result in results), "every result has its row"
    return Stream(subject, options, table.schema, rows, numbers, len(results))


def number_rows(subject: Subject, rows: list[dict[str, Any]]) -> dict[Hashable, int]:
    """Return the number of each row by its name; of rows of one name, that of the last."""
    return {subject.name_row(row): number for number, row in enumerate(rows)}


def number_words(rows: list[dict[str, Any]]) -> dict[Hashable, int]:
    """Return the number of the line in which each word comes for the n-th time."""
    counts: Counter[str] = Counter()
    numbers: dict[Hashable, int] = {}
    for number, row in enumerate(rows):
        for word in row["line"].strip().split(" "):
            counts[word] += 1
            numbers[word, counts[word]] = number
    return numbers
