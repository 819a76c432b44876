"""`penstock checkpoint`: what a checkpoint folder holds, whether it is whole, how to get it going again."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli import screen
from penstock.cli.programs import GraphName, load_graph
from penstock.cli.screen import Code, ending_with
from penstock.errors import CheckpointError

ABOUT = (
    "Look at a checkpoint folder, and get it going again.\n\n"
    "\b\nExamples:\n"
    "  penstock checkpoint show checkpoint/           what it holds\n"
    "  penstock checkpoint verify checkpoint/         whether it is whole\n"
    "  penstock checkpoint diff views.py checkpoint/  what a restart would do"
)
ABOUT_SHOW = (
    "Print what a checkpoint folder holds.\n\n"
    "The graph and its steps, how many rounds are done, watermarks, open windows, the size of state, the "
    "outputs of sinks and the input files that are done.\n\n"
    "\b\nExamples:\n"
    "  penstock checkpoint show checkpoint/\n"
    "  penstock checkpoint show checkpoint/ --json"
)
ABOUT_VERIFY = (
    "Check that a checkpoint folder, and the outputs of its run, are whole.\n\n"
    "Ends with code 1 if something is damaged, missing, older than the rest, or of another run, and says "
    "what to do so that nothing is lost.\n\n"
    "\b\nExamples:\n"
    "  penstock checkpoint verify checkpoint/"
)
ABOUT_DIFF = (
    "Say what a restart with a program would do.\n\n"
    "Compares the graph of a file with the one that a checkpoint is of. Ends with code 1 if the checkpoint "
    "would refuse it.\n\n"
    "\b\nExamples:\n"
    "  penstock checkpoint diff views.py checkpoint/\n"
    "  penstock checkpoint diff views.py checkpoint/ --renamed sums=totals"
)
ABOUT_SKIP = (
    "Leave out an input file that cannot be read.\n\n"
    "Runs that resume from the checkpoint read no more rows of it; rows that were read of it before stay.\n\n"
    "\b\nExamples:\n"
    "  penstock checkpoint skip checkpoint/ events/0007.parquet"
)
Folder = Annotated[Path, typer.Argument(help="The checkpoint folder.", metavar="FOLDER")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def show(folder: Folder, *, json: Json = False) -> None:
    """Print what a checkpoint holds."""
    with ending_with(Code.FAILED):
        contents = describe_checkpoint(folder)
    if json:
        screen.say_json(contents)
        return
    end = "drained" if contents["drained"] else "goes on"
    screen.say(f'graph "{contents["graph"]}": {contents["rounds"]:,} rounds are done; it {end}')
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("step", "kind", "rows in", "watermark", "waiting", "state", "files done", "output"):
        table.add_column(
            column, justify="right" if column in ("rows in", "waiting", "files done") else "left"
        )
    for name, step in contents["steps"].items():
        cells = (name, step["kind"], _number(step["rows_in"]), step["watermark"], _number(step["waiting"]))
        state = "" if not step["state_bytes"] else f"{step['state_bytes']:,} bytes"
        files = _number(len(step["files"]) if step["files"] is not None else None)
        table.add_row(*(Text(cell or "") for cell in (*cells, state, files, step["output"])))
    screen.out().print(table)
    for name, step in contents["steps"].items():
        if step["skipped"]:
            screen.say(f'\nfiles that source "{name}" leaves out: {len(step["skipped"]):,}')
    if any(step["waiting"] for step in contents["steps"].values()):
        screen.say("\nWhat waits stays for the next run; run(checkpoint=…, drain=True) closes it.")


def verify(folder: Folder, *, json: Json = False) -> None:
    """Check a checkpoint."""
    from penstock.engines.checkpoint.verify import verify_checkpoint

    findings = verify_checkpoint(folder)
    if json:
        screen.say_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            screen.say(f"{finding.file}\n  problem: {finding.problem}\n  remedy:  {finding.remedy}")
        screen.say(f"problems: {len(findings):,}" if findings else f"{folder} is whole")
    if findings:
        raise typer.Exit(Code.FAILED)


def diff(
    file: Annotated[Path, typer.Argument(help="A Python file that builds a graph.", metavar="FILE.py")],
    folder: Folder,
    *,
    graph: GraphName = None,
    renamed: Annotated[
        list[str] | None, typer.Option(help="A step that was renamed; may be repeated.", metavar="OLD=NEW")
    ] = None,
    json: Json = False,
) -> None:
    """Say what a restart with a program would do."""
    from penstock.engines.checkpoint.checkpoint import read_graph
    from penstock.engines.checkpoint.graph import (
        compare_graphs,
        describe_graph,
        refuse_incompatible,
        upgrade_graph,
    )

    names = dict(_split_name(text) for text in renamed or ())
    with ending_with(Code.WRONG):
        with screen.programs_own_text(aside=json):
            plan = load_graph(file, graph).plan()
        current = describe_graph(plan)
    with ending_with(Code.FAILED):
        saved = read_graph(folder)
        if saved is None:
            raise _no_checkpoint(folder)
    refusal = None
    try:
        refuse_incompatible(saved, current, names)
    except CheckpointError as problem:
        refusal = problem
    changes = compare_graphs(upgrade_graph(saved, current), current, names)
    if json:
        why = (
            None
            if refusal is None
            else {"fact": refusal.fact, "detail": refusal.detail, "hint": refusal.hint}
        )
        screen.say_json({"refused": why, "changes": [asdict(change) for change in changes]})
    else:
        for change in changes:
            subject = f"its {change.topic}" if change.topic is not None else "the step"
            verdict = "allowed" if change.allowed else "refused"
            screen.say(f'{verdict}  step "{change.step}", {subject}: {change.effect}')
            screen.say(f"  was: {change.was or 'not there'}\n  now: {change.now or 'not there'}")
        if refusal is None:
            screen.say(f"a restart goes on where {folder} is" + ("" if changes else ": nothing differs"))
        else:
            screen.show_error(refusal)
    if refusal is not None:
        raise typer.Exit(Code.FAILED)


def skip(
    folder: Folder,
    file: Annotated[Path, typer.Argument(help="The input file to leave out.", metavar="FILE")],
    *,
    source: Annotated[
        str | None, typer.Option(help="The source that reads it, if there are several.", metavar="NAME")
    ] = None,
    json: Json = False,
) -> None:
    """Leave out an input file."""
    from penstock.engines.checkpoint.checkpoint import read_graph, skip_file
    from penstock.engines.checkpoint.journal import list_journals

    with ending_with(Code.FAILED):
        if source is None:
            graph = read_graph(folder)
            sources = [] if graph is None else [*list_journals(folder, graph)]
            if len(sources) != 1:
                raise CheckpointError(
                    "the checkpoint has no source that reads files"
                    if not sources
                    else f"the checkpoint has {len(sources)} sources that read files: {', '.join(sources)}",
                    detail=str(folder),
                    hint="name a checkpoint folder" if not sources else f"say which: --source {sources[0]}",
                )
            (source,) = sources
        source, path, is_known = skip_file(folder, source, file)
    if json:
        screen.say_json({"source": source, "file": path, "seen": is_known})
    else:
        unseen = "" if is_known else "; no run has seen it so far"
        screen.say(f'source "{source}" leaves out {path} from now on{unseen}')


def describe_checkpoint(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint holds, as plain data for JSON."""
    from penstock.engines.checkpoint.checkpoint import read_graph
    from penstock.engines.checkpoint.input_files import read_input_files
    from penstock.engines.checkpoint.journal import list_journals
    from penstock.engines.checkpoint.manifest import read_newest
    from penstock.engines.checkpoint.state_files import count_waiting, state_size

    graph = read_graph(folder)
    if graph is None:
        raise _no_checkpoint(folder)
    newest, sources = read_newest(folder, graph), list_journals(folder, graph)
    waiting = count_waiting(newest.state)
    steps = {}
    for name, step in graph["steps"].items():
        nbytes, n_rows = state_size({name: newest.state.get(name, {})})
        files = read_input_files(folder, graph, newest, name)[1] if name in sources else None
        watermark = newest.source_watermarks.get(name, newest.step_watermarks.get(name))
        steps[name] = {
            **step,
            "rows_in": newest.accounts.get(name, {}).get("rows_in"),
            "rows_out": newest.accounts.get(name, {}).get("rows_out"),
            "watermark": _spell_time(watermark),
            "waiting": waiting.get(name, 0),
            "state_bytes": nbytes,
            "state_rows": n_rows,
            "files": None if files is None else files.done,
            "skipped": None if files is None else [paths[0] for paths in files.skipped],
            "output": graph.get("outputs", {}).get(name),
        }
    return {
        "graph": graph["graph"],
        "format": graph["format"],
        "run": graph["run"],
        "engine": graph.get("engine"),
        "rounds": newest.rounds,
        "drained": newest.drained,
        "steps": steps,
    }


def _spell_time(watermark: float | None) -> str | None:
    """Return a watermark for people; None before the first and at the end."""
    if watermark is None or abs(watermark) == float("inf"):
        return None
    try:
        return datetime.fromtimestamp(watermark / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    except (ValueError, OverflowError, OSError):
        return f"{int(watermark)} us"


def _no_checkpoint(folder: Path) -> CheckpointError:
    return CheckpointError(
        f'"{folder}" is no checkpoint',
        detail="it has no penstock.json",
        hint="name the folder of checkpoint=",
    )


def _number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _split_name(text: str) -> tuple[str, str]:
    old, between, new = text.partition("=")
    if not (old and between and new):
        raise typer.BadParameter(f'"{text}" is not OLD=NEW')
    return old, new
