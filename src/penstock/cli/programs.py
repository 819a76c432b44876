"""`penstock run` and `penstock explain`: the graph in a user's file, or an application, run or described.

The file runs as the module `__penstock__`, so that its `if __name__ == "__main__":` part does not run.
It stays in `sys.modules` afterwards: annotations of its classes are looked up there. A mistake in it is
shown with the user's own frames of the traceback and none of ours.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

import penstock as ps
from penstock.cli import screen
from penstock.cli.applications import SHOWN, Program, find_application, load_program, parse_settings
from penstock.cli.screen import MEANING, Code, accounts_table, ending_with
from penstock.errors import GraphError, PenstockError, Where, nearest_first
from penstock.events import Event, RunStarted

RUN_NAME = "__penstock__"

ABOUT_RUN = (
    "Run an application, or the graph in FILE, to the end of its sources.\n\n"
    'The file is run, except for what stands below: if __name__ == "__main__". '
    "Afterwards every step's rows are accounted for. Ctrl-C or SIGTERM stops the run cleanly, a second one "
    "at once.\n\n"
    "\b\nExamples:\n"
    "  penstock run views.py --engine reference\n"
    "  penstock run views.py --graph totals --checkpoint state/\n"
    "  penstock run views.py --json | jq .rows_out\n"
    "  penstock run yahoo --rows 5000000 --parallelism 2\n"
    "  penstock run word-count --file book.txt --form columns\n"
    "  penstock run spike-detection --rate 10000 --seconds 10 --set threshold=0.03"
)
ABOUT_EXPLAIN = (
    "Say what an application, or the graph in FILE, is and does.\n\n"
    "Prints its steps with their schemas, its building blocks, and an engine's choices. "
    'The file is run, except for what stands below: if __name__ == "__main__".\n\n'
    "\b\nExamples:\n"
    "  penstock explain views.py\n"
    "  penstock explain views.py --graph totals --engine reference\n"
    "  penstock explain linear-road\n"
    "  penstock explain views.py --json"
)

Target = Annotated[
    str,
    typer.Argument(
        help="An application (penstock apps), or a Python file that builds a graph.", metavar="APP|FILE.py"
    ),
]
GraphName = Annotated[str | None, typer.Option(help="Which graph, by variable or by name.", metavar="NAME")]
Form = Annotated[str | None, typer.Option(help="Application: which of its graphs.", metavar="NAME")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Application: an option of its own.", metavar="NAME=VALUE")
]


def run(
    target: Target,
    *,
    engine: Annotated[
        str | None,
        typer.Option(
            help="What runs it: spark, local or reference; else a file's own, or local for an application.",
            metavar="NAME",
        ),
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
    drain: Annotated[
        bool | None,
        typer.Option(
            "--drain/--no-drain", help="Close all windows at the end, or keep them [keep, with --checkpoint]."
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Run for so long: a file is stopped, an application repeats its rows.", min=0, metavar="N"
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Application: rows to generate.", min=1, metavar="N")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Application: rows per second.", min=0.001, metavar="N")
    ] = None,
    keys: Annotated[int | None, typer.Option(help="Application: number of keys.", min=1, metavar="N")] = None,
    disorder: Annotated[
        float | None, typer.Option(help="Application: seconds that rows may be behind.", min=0, metavar="S")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Application: what the rows depend on.", metavar="N")
    ] = None,
    parallelism: Annotated[
        int | None, typer.Option(help="Application: replicas of operators.", min=1, metavar="N")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Application: rows that are read at a time.", min=1, metavar="N")
    ] = None,
    chaining: Annotated[
        bool | None, typer.Option("--chaining/--no-chaining", help="Application: fuse operators, or do not.")
    ] = None,
    form: Form = None,
    file: Annotated[
        Path | None, typer.Option(help="Application: a real file instead of made-up rows.", metavar="PATH")
    ] = None,
    set_: Settings = None,
    check: Annotated[
        bool, typer.Option("--check", help="Application: compare the answer with a recount in plain Python.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the accounts as JSON for scripts.")] = False,
) -> None:
    """Run an application or a graph."""
    facts: dict[str, Any] = {"graph": None, "engine": engine, "outcome": "refused"}
    handles: list[ps.Run] = []
    chosen_by_user: dict[str, Any] = {
        "rows": rows,
        "rate": rate,
        "keys": keys,
        "seed": seed,
        "parallelism": parallelism,
    }
    chosen_by_user |= {"batch": batch, "chaining": chaining, "form": form}
    chosen_by_user |= {"disorder_us": None if disorder is None else int(disorder * 1_000_000)}
    settings = {name: value for name, value in chosen_by_user.items() if value is not None}
    program: Program | None = None
    try:
        with screen.programs_own_text(aside=json):
            with ending_with(Code.WRONG):
                application = find_application(target)
                if application is None:
                    refuse_settings(
                        settings | ({"set": set_} if set_ else {}) | ({"file": file} if file else {})
                    )
                    chosen = load_graph(Path(target), graph)
                else:
                    settings |= parse_settings(application, set_ or [])
                    pace: Any = {"file": file, "rate": rate, "seconds": seconds, "checks": check}
                    program = load_program(application, settings, **pace)
                    chosen, engine = program.graph, engine or "local"
                facts["graph"], sinks = chosen.name, [step.name for step in chosen.plan().sinks]
            on = engine or chosen.engine
            name = facts["engine"] = on if isinstance(on, str) else on.name
            # Why from the start of the run: before it, Spark starts Java for some seconds.
            starts = [time.perf_counter()]
            stops = seconds if application is None else None
            how: dict[str, Any] = {"master": master, "checkpoint": checkpoint, "until": until}
            how["on_start"] = lambda: starts.append(time.perf_counter())
            how |= {} if drain is None else {"drain": drain}
            if json and name == "local":
                how["options"] = ps.LocalOptions(measure=True)
            done = run_to_the_end(chosen, on, handles, seconds=stops, **how)
            took = time.perf_counter() - starts[-1]
    except BaseException as problem:
        if json:
            screen.say_json(facts | describe_end(problem, handles))
        raise
    n_rows = sum(done.accounts[step.name].rows_in for step in chosen.plan().sources)
    agrees = program.check() if program is not None and check else None
    if json:
        facts |= {
            "outcome": done.outcome,
            "batches": done.batches,
            "seconds": round(took, 6),
            "rows_per_second": round(n_rows / took),
            "rows_out": {sink: done.accounts[sink].rows_in for sink in sinks},
            "accounts": {step: accounts.to_dict() for step, accounts in done.accounts.items()},
            "waiting": dict(done.waiting),
        }
        facts |= {} if agrees is None else {"agrees": agrees}
        screen.say_json(facts | ({} if done.measurements is None else done.measurements.to_dict()))
    else:
        if program is not None:
            show_answer(program, n_rows, took)
        batches = f"{done.batches:,} batch{'' if done.batches == 1 else 'es'}"
        screen.say(f'graph "{chosen.name}" on engine {name}: {done.outcome} after {batches}')
        screen.out().print(accounts_table(done.accounts))
        for step, n in done.waiting.items():
            screen.say(f'\n{n:,} of step "{step}" wait for the next run; --drain closes them')
        if agrees is not None:
            screen.say(f"\na recount in plain Python {'agrees' if agrees else 'gives another answer'}")
    if agrees is False:
        raise typer.Exit(Code.FAILED)


def show_answer(program: Program, n_rows: int, took: float) -> None:
    """Print the last rows that left an application, and how fast it was."""
    answer = program.answer
    if answer.n_rows:
        screen.out().print(answer.table())
    n_shown = min(answer.n_rows, SHOWN)
    screen.say(
        f"\n{answer.n_rows:,} rows left{f', the last {n_shown} above' if answer.n_rows > n_shown else ''}"
    )
    screen.say(f"{n_rows:,} rows in {took:.2f} s: {n_rows / took:,.0f} rows/s\n")


def refuse_settings(settings: Mapping[str, Any]) -> None:
    """Raise a GraphError if options of applications are given beside a file."""
    if settings:
        name = next(iter(settings)).removesuffix("_us")
        raise GraphError(
            f"--{name} is for applications, and a file decides that itself", hint=f"leave --{name} out"
        )


def describe_end(problem: BaseException, handles: list[ps.Run]) -> dict[str, Any]:
    """Return, for JSON, how a run ended that has no result: by an error or by a signal, and what it did."""
    end: dict[str, Any] = {}
    failure = None
    if handles:
        status = handles[0].status()
        failure = status.error
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
    elif isinstance(cause, KeyboardInterrupt | SystemExit) and cause is failure:
        # Why: a signal raises these where the run is waited for, and a function of the user's inside it.
        error = {"type": type(cause).__name__, "fact": f"the program raised {cause!r}"}
    elif isinstance(cause, KeyboardInterrupt | SystemExit):
        number = Code.TERMINATED if isinstance(cause, SystemExit) else Code.INTERRUPTED
        error = {"type": type(cause).__name__, "fact": MEANING[number]}
    else:
        error = {"type": type(cause).__name__, "fact": str(cause)}
    return {**end, "error": error}


def run_to_the_end(
    graph: ps.PipeGraph,
    engine: Any,
    handles: list[ps.Run],
    *,
    seconds: float | None = None,
    on_start: Callable[[], None] = lambda: None,
    **settings: Any,
) -> Any:
    """Run a graph with a line on the terminal; what cannot start ends with code 2, what fails with code 1.

    handles   takes the handle of the run once it has started
    seconds   how long to run; then what was read is written and all windows are closed
    on_start  is called when everything is there and the run begins
    """
    # On Spark the engine shows a line of its own.
    with screen.progress_line(graph.name, shows=engine != "spark") as listen, ps.handle_signals() as wait:

        def hear(event: Event) -> None:
            if isinstance(event, RunStarted):
                on_start()
            listen(event)

        with ending_with(Code.WRONG):
            started = graph.start(engine, events=hear, **settings)
        handles.append(started)
        with ending_with(Code.FAILED), stop_after(started, seconds):
            return wait(started)


@contextmanager
def stop_after(run: ps.Run, seconds: float | None) -> Iterator[None]:
    """Stop a run after some seconds, unless it is over before."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, lambda: run.stop(drain=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def explain(
    target: Target,
    *,
    graph: GraphName = None,
    engine: Annotated[
        str | None, typer.Option(help="Show this engine's choices as well.", metavar="NAME")
    ] = None,
    form: Form = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Print what a graph is."""
    with ending_with(Code.WRONG):
        with screen.programs_own_text(aside=json):
            application = find_application(target)
            if application is None:
                refuse_settings({} if form is None else {"form": form})
                chosen = load_graph(Path(target), graph)
            else:
                settings = {"rows": 100} | ({} if form is None else {"form": form})
                chosen = application.graph(application.make_options(**settings))
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
