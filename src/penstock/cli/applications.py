"""`penstock apps`, and applications as what `penstock run` and `penstock explain` are asked for by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

import penstock as ps
from penstock.cli import screen
from penstock.errors import GraphError, nearest_first

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.apps import Application

ABOUT = (
    "List the applications that come with Penstock.\n\n"
    "They are those of the papers. Each generates its own rows, so it runs at once.\n\n"
    "\b\nExamples:\n"
    "  penstock apps\n"
    "  penstock apps --json\n"
    "  penstock run word-count --rows 100000"
)
SHOWN = 10  # rows of the answer


def apps(
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """List the applications."""
    from penstock.apps import APPLICATIONS

    if json:
        screen.say_json([describe(application) for application in APPLICATIONS.values()])
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "paper", "what it does", "reads", "forms"):
        table.add_column(column)
    for one in APPLICATIONS.values():
        cells = (one.name, f"{one.paper} ({one.label})", one.summary, one.reads, ", ".join(one.forms))
        table.add_row(*map(Text, cells))
    screen.out().print(table)


def describe(application: Application) -> dict[str, Any]:
    """Return what there is to know of an application, for JSON."""
    names = ("name", "label", "paper", "summary", "reads", "forms")
    options = {option.name: option.default for option in fields(application.options)}
    return {name: getattr(application, name) for name in names} | {"options": options}


def find_application(target: str) -> Application | None:
    """Return the application of a name; None for what looks like a file."""
    if target.endswith(".py") or Path(target).is_file():
        return None
    from penstock.apps import APPLICATIONS  # loaded only where one is asked for

    known = APPLICATIONS.get(target)
    if known is None and not Path(target).exists():
        names = nearest_first(target, APPLICATIONS)
        raise GraphError(
            f'there is no application and no file "{target}"',
            detail=f"the applications are {', '.join(names)}",
            hint=f"did you mean {names[0]}? penstock apps says what they do",
        )
    return known


@dataclass(slots=True)
class Answer:
    """What leaves an application: the last rows of it, or all where they will be compared."""

    keeps_all: bool
    batches: list[pa.RecordBatch] = field(default_factory=list)
    n_rows: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows that leave."""
        self.n_rows += rows.num_rows
        if self.keeps_all:
            self.batches.append(rows)
        else:
            self.batches = [*self.batches, rows.slice(max(0, rows.num_rows - SHOWN))][-SHOWN:]

    def table(self) -> Table:
        """Return the last rows for the screen."""
        import pyarrow as pa

        last = pa.Table.from_batches(self.batches).slice(0)
        last = last.slice(max(0, last.num_rows - SHOWN))
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in last.schema:
            is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
            table.add_column(Text(column.name), justify="right" if is_number else "left")
        for row in last.to_pylist():
            table.add_row(*(Text(show(value)) for value in row.values()))
        return table


def show(value: object) -> str:
    """Return a value as text for a table."""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


@dataclass(slots=True)
class Program:
    """An application that is about to run: its graph, its rows, and what will have left it."""

    application: Application
    options: Any
    tables: Mapping[str, pa.Table]
    graph: ps.PipeGraph
    answer: Answer

    def check(self) -> bool:
        """Return whether what left is what a recount in plain Python says."""
        expected = self.application.recount(self.tables, self.options)
        rows = [row for batch in self.answer.batches for row in batch.to_pylist()]
        return same_rows(rows, expected)


def load_program(
    application: Application,
    settings: Mapping[str, Any],
    *,
    file: Path | None = None,
    rate: float | None = None,
    seconds: float | None = None,
    checks: bool = False,
) -> Program:
    """Return an application over the rows of a file, or over generated ones, at a rate, for some seconds."""
    refuse_contradictions(settings, file=file, rate=rate, seconds=seconds, checks=checks)
    options = application.make_options(**settings)
    tables = application.generate(options) if file is None else read_file(application, file)
    answer = Answer(checks)
    writer = ps.write.callback(answer.add)
    if rate is None and seconds is None:
        graph = application.graph(options, tables=tables, writer=writer)
    else:
        readers = application.replay(tables, options, rate=rate, seconds=seconds)
        graph = application.build(readers, writer, options)
    return Program(application, options, tables, graph, answer)


def refuse_contradictions(
    settings: Mapping[str, Any],
    *,
    file: Path | None,
    rate: float | None,
    seconds: float | None,
    checks: bool,
) -> None:
    """Raise a GraphError for options that cannot both be followed."""
    if checks and (rate is not None or seconds is not None):
        raise GraphError(
            f"--check and --{'rate' if seconds is None else 'seconds'} exclude each other",
            detail="a recount is of the rows once, with the times that they were made with",
            hint="leave one of them out",
        )
    for name in ("rows", "seed", "keys"):
        if file is not None and name in settings:
            raise GraphError(
                f"--{name} and --file exclude each other",
                detail=f"--{name} is about rows that are made up",
                hint="leave one of them out",
            )


def read_file(application: Application, file: Path) -> Mapping[str, pa.Table]:
    """Return the rows of a real file."""
    import pyarrow as pa

    if application.load is None:
        raise GraphError(f"{application.name} reads no file", hint="leave --file out: its rows are generated")
    try:
        return application.load(file)
    except (OSError, ValueError, KeyError, pa.ArrowException) as problem:
        raise GraphError(
            f'{application.name} cannot read "{file}"',
            detail=str(problem),
            hint=f"it reads {application.reads}",
        ) from problem


def parse_settings(application: Application, pairs: Sequence[str]) -> dict[str, Any]:
    """Return the application's own options from NAME=VALUE, in the types that they have."""
    defaults = {option.name: option.default for option in fields(application.options)}
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name not in defaults:
            raise GraphError(
                f"--set {pair} is no option of {application.name}",
                detail=f"its options are {', '.join(nearest_first(name, defaults))}",
                hint=f"write --set {nearest_first(name, defaults)[0]}=VALUE",
            )
        settings[name] = parse_value(pair, text, defaults[name])
    return settings


def parse_value(pair: str, text: str, default: object) -> object:
    """Return a text as a value of the type of an option's default."""
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise GraphError(f"--set {pair} is neither true nor false", hint="write true or false")
        return text == "true"
    kind = type(default)
    try:
        return kind(text)  # type: ignore[call-arg]
    except ValueError:
        raise GraphError(f"--set {pair} is no {kind.__name__}", hint=f"such as {default}") from None


def same_rows(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    """Return whether two lists have the same rows in any order; floats may differ in the last digits."""

    def place(row: dict[str, Any]) -> list[str]:
        return [
            f"{value:.6g}" if isinstance(value, float) else repr(value) for _, value in sorted(row.items())
        ]

    return sorted(map(place, rows)) == sorted(map(place, expected))
