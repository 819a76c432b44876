"""`penstock run` and `penstock explain`: the graph in a user's file, run or described.

The file runs as the module `__penstock__`, so that its `if __name__ == "__main__":` part does not run.
It stays in `sys.modules` afterwards: annotations of its classes are looked up there. A mistake in it is
shown with the user's own frames of the traceback and none of ours.
"""

from __future__ import annotations

import itertools
import sys
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

import penstock as ps
from penstock.cli import screen
from penstock.cli.screen import MEANING, Code, accounts_table, ending_with
from penstock.errors import GraphError, PenstockError, Where, nearest_first

RUN_NAME = "__penstock__"

ABOUT_RUN = (
    "Run the graph in FILE to the end of its sources.\n\n"
    'The file is run, except for what stands below: if __name__ == "__main__". '
    "Afterwards every step's rows are accounted for. Ctrl-C or SIGTERM stops the run cleanly, a second one "
    "at once.\n\n"
    "\b\nExamples:\n"
    "  penstock run views.py --engine reference\n"
    "  penstock run views.py --graph totals --checkpoint state/\n"
    "  penstock run views.py --json | jq .rows_out"
)
ABOUT_EXPLAIN = (
    "Say what the graph in FILE is and does.\n\n"
    "Prints its steps with their schemas, its building blocks, and an engine's choices. "
    'The file is run, except for what stands below: if __name__ == "__main__".\n\n'
    "\b\nExamples:\n"
    "  penstock explain views.py\n"
    "  penstock explain views.py --graph totals --engine reference\n"
    "  penstock explain views.py --json"
)

File = Annotated[Path, typer.Argument(help="A Python file that builds a graph.", metavar="FILE.py")]
GraphName = Annotated[str | None, typer.Option(help="Which graph, by variable or by name.", metavar="NAME")]


def run(
    file: File,
    *,
    engine: Annotated[
        str | None,
        typer.Option(help="What runs it: spark, local or reference; else the graph's own.", metavar="NAME"),
    ] = None,
    graph: GraphName = None,
    master: Annotated[
        str | None, typer.Option(help="A Spark master, such as spark://host:7077.", metavar="URL")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="A folder that makes the run survive a crash.", metavar="DIR")
    ] = None,
    until: Annotated[
        int | None, typer.Option(help="Stop after this number of rounds of batches.", min=0, metavar="N")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the accounts as JSON for scripts.")] = False,
) -> None:
    """Run a graph."""
    facts: dict[str, Any] = {"graph": None, "engine": engine, "outcome": "refused"}
    handles: list[ps.Run] = []
    try:
        with screen.programs_own_text(aside=json):
            with ending_with(Code.WRONG):
                chosen = load_graph(file, graph)
                facts["graph"], sinks = chosen.name, [step.name for step in chosen.plan().sinks]
            on = engine or chosen.engine
            name = facts["engine"] = on if isinstance(on, str) else on.name
            done = run_to_the_end(chosen, on, handles, master=master, checkpoint=checkpoint, until=until)
    except BaseException as problem:
        if json:
            screen.say_json(facts | describe_end(problem, handles))
        raise
    if json:
        facts |= {
            "outcome": done.outcome,
            "batches": done.batches,
            "rows_out": {sink: done.accounts[sink].rows_in for sink in sinks},
            "accounts": {step: accounts.to_dict() for step, accounts in done.accounts.items()},
        }
        screen.say_json(facts | ({} if done.measurements is None else done.measurements.to_dict()))
    else:
        batches = f"{done.batches:,} batch{'' if done.batches == 1 else 'es'}"
        screen.say(f'graph "{chosen.name}" on engine {name}: {done.outcome} after {batches}')
        screen.out().print(accounts_table(done.accounts))


def describe_end(problem: BaseException, handles: list[ps.Run]) -> dict[str, Any]:
    """Return, for JSON, how a run ended that has no result: by an error or by a signal, and what it did."""
    end: dict[str, Any] = {}
    if handles:
        status = handles[0].status()
        end = {
            "outcome": "failed" if status.state == "failed" else "stopped",
            "rows_out": dict(status.rows_out),
            "accounts": {step: accounts.to_dict() for step, accounts in handles[0].metrics().items()},
        }
    cause = problem.__cause__ or problem
    if isinstance(cause, PenstockError):
        error = {"type": type(cause).__name__, "fact": cause.fact, "step": cause.step}
        error |= {
            "where": None if cause.where is None else str(cause.where),
            "detail": cause.detail,
            "hint": cause.hint,
        }
    elif isinstance(cause, KeyboardInterrupt | SystemExit):
        number = Code.TERMINATED if isinstance(cause, SystemExit) else Code.INTERRUPTED
        error = {"type": type(cause).__name__, "fact": MEANING[number]}
    else:
        error = {"type": type(cause).__name__, "fact": str(cause)}
    return {**end, "error": error}


def run_to_the_end(graph: ps.PipeGraph, engine: Any, handles: list[ps.Run], **settings: Any) -> Any:
    """Run a graph with a bar on the terminal; what cannot start ends with code 2, what fails with code 1.

    handles  takes the handle of the run once it has started
    """
    with screen.progress() as move, ps.handle_signals() as wait:

        def listen(event: Any) -> None:
            if isinstance(event, ps.events.BatchDone):
                move(event.batch + 1, None, f"{graph.name}: batches")

        with ending_with(Code.WRONG):
            started = graph.start(engine, events=listen, **settings)
        handles.append(started)
        with ending_with(Code.FAILED):
            return wait(started)


def explain(
    file: File,
    *,
    graph: GraphName = None,
    engine: Annotated[
        str | None, typer.Option(help="Show this engine's choices as well.", metavar="NAME")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Print what a graph is."""
    with ending_with(Code.WRONG):
        with screen.programs_own_text(aside=json):
            chosen = load_graph(file, graph)
        if json:
            sys.stdout.write(chosen.explain(engine, format="json"))
        else:
            screen.say(chosen.explain(engine))


def load_graph(file: Path, wanted: str | None = None) -> ps.PipeGraph:
    """Return the graph at the top level of a file; of several, the one whose variable or name is `wanted`."""
    graphs: dict[str, ps.PipeGraph] = {}  # by the first variable that holds each
    for variable, value in vars(execute(file)).items():
        if isinstance(value, ps.PipeGraph) and not any(value is other for other in graphs.values()):
            graphs[variable] = value
    if not graphs:
        raise GraphError(
            f'"{file}" has no graph at its top level',
            detail="a graph made inside a function is not found",
            hint='write: graph = ps.PipeGraph("name")',
        )
    labels = {variable: f'{variable} ("{graph.name}")' for variable, graph in graphs.items()}
    if wanted is None:
        if len(graphs) == 1:
            return next(iter(graphs.values()))
        raise GraphError(
            f'"{file}" has {len(graphs)} graphs: {", ".join(labels.values())}',
            hint=f"choose one, such as --graph {next(iter(graphs))}",
        )
    matching = [graph for variable, graph in graphs.items() if wanted in (variable, graph.name)]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(labels[variable] for variable in nearest_first(wanted, graphs))
    count = "no graph" if not matching else f"{len(matching)} graphs"
    raise GraphError(f'"{file}" has {count} named "{wanted}"', detail=f"graphs: {listed}")


def execute(file: Path) -> ModuleType:
    """Run a file from top to bottom and return its module."""
    if not file.exists():
        nearby = nearest_first(file.name, (other.name for other in file.parent.glob("*.py")))
        raise GraphError(
            f'there is no file "{file}"',
            detail=f"Python files there: {', '.join(nearby[:5])}" if nearby else None,
            hint=f"did you mean {file.parent / nearby[0]}?" if nearby else "name a file that builds a graph",
        )
    if file.is_dir() or file.suffix != ".py":
        raise GraphError(f'"{file}" is not a Python file', hint="name a file that ends in .py")
    module = ModuleType(RUN_NAME)
    module.__file__ = str(file)
    sys.modules[RUN_NAME] = module
    sys.path.insert(0, str(file.resolve().parent))  # as `python FILE.py` does
    try:
        loader = SourceFileLoader(RUN_NAME, str(file))
        code = loader.source_to_code(file.read_bytes(), str(file))
        exec(code, module.__dict__)  # noqa: S102 (running the user's own file is what was asked for)
    except PenstockError as error:
        # An error that does not know its place is that of the last line of the user's on the way to it.
        lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == str(file)]
        error.at(None, Where(str(file), lines[-1] or 0) if lines else None)
        raise
    except SystemExit as stopped:
        raise GraphError(
            f'"{file}" ended itself (exit code {stopped.code}) before its graph could be used',
            hint='put what calls sys.exit() below: if __name__ == "__main__":',
        ) from None
    except Exception as error:
        # From the first frame in the user's file on; a syntax error needs no frame.
        trace = traceback.TracebackException.from_exception(error)
        ours = itertools.takewhile(lambda frame: frame.filename != str(file), trace.stack)
        trace.stack = traceback.StackSummary.from_list(trace.stack[len(list(ours)) :])
        screen.note("".join(trace.format()).rstrip("\n"))
        raise typer.Exit(Code.WRONG) from error
    return module
