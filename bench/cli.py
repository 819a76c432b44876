"""The command line of the benchmarks: measure a workload, or compare two results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import bench as benches
from bench.faults import command as faults
from bench.faults import input_changes as inputs
from bench.large import command as large
from bench.report import command as results
from bench.report.summary import command_of, file_of, save_summary, summarise
from penstock.cli import screen
from penstock.cli.main import Commands
from penstock.cli.screen import MEANING, Code
from penstock.errors import PenstockError

NOT_HELD = 3
"""The exit code of a claim that did not hold."""

ABOUT = (
    "Measure a workload, or compare two results.\n\n"
    "Every answer is checked, so a wrong one is never timed. Ratios come first, absolute figures second.\n\n"
    "\b\nExamples:\n"
    "  python -m bench                              list the workloads\n"
    "  python -m bench graphs --quick               measure one, in short\n"
    "  python -m bench graphs --json a.json --html a.html\n"
    "  python -m bench compare a.json b.json        faster, slower or within noise?\n"
    "  python -m bench results                      write docs/results.md from the results that are kept\n"
    "  python -m bench faults --quick               kill processes of a Spark cluster, compare every row\n"
    "  python -m bench mutations --quick            damage what runs leave on the disk, and run them on\n"
    "  python -m bench inputs                       change input files between runs, compare every row\n"
    "  python -m bench large --quick                large inputs on Spark with a small driver"
)

ABOUT_RUN = (
    "Measure a workload; the word `run` may be left out.\n\n"
    "\b\nExamples:\n"
    "  python -m bench graphs --quick\n"
    "  python -m bench graphs --rounds 30 --json a.json --html a.html\n"
    "  python -m bench graphs --quick --json - | jq .verdicts\n"
    "  python -m bench spark --group overlap"
)
ABOUT_COMPARE = (
    "Say for each case and way whether B is faster or slower than A, or within noise.\n\n"
    "A difference counts when it exceeds --noise and the inter-quartile ranges do not overlap. Results of "
    "different workloads, sizes or seeds are refused; different machines are warned about.\n\n"
    "\b\nExamples:\n"
    "  python -m bench compare before.json after.json\n"
    "  python -m bench compare main.json branch.json --fail-on slower"
)


class NameOrCompare(Commands):
    """Command group in which `bench NAME` stands for `bench run NAME`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the hidden command in front, unless a command or help was asked for."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def exit_code(self, error: PenstockError) -> int:
        """Return the exit code: a wrong answer is a failed run, any other bench error a wrong call."""
        wrong_call = isinstance(error, benches.BenchError) and not isinstance(error, benches.WayFailed)
        return Code.WRONG if wrong_call else super().exit_code(error)


def epilog() -> str:
    """Return the table of exit codes that stands under every `--help`."""
    meaning = {code.value: text for code, text in MEANING.items()}
    meaning[NOT_HELD] = "a claim did not hold, or --fail-on matched"
    rows = "\n".join(f"  {code:<5}{meaning[code]}" for code in sorted(meaning))
    return f"\b\nExit codes:\n{rows}"


app = typer.Typer(
    name="bench",
    cls=NameOrCompare,
    help=ABOUT,
    epilog=epilog(),
    subcommand_metavar="NAME | compare A.json B.json",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def show_workloads(ctx: typer.Context) -> None:
    """List the workloads when none is named."""
    if ctx.invoked_subcommand is None:
        rows = [[name, benches.load_workload(name, "quick").about] for name in benches.list_workloads()]
        screen.say(benches.align_columns([["workload", "what is measured"], *rows]))


@app.command("run", help=ABOUT_RUN, epilog=epilog())
def run_workload(
    name: Annotated[str, typer.Argument(help="The workload; `python -m bench` lists them.", metavar="NAME")],
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Less data, fewer rounds.")] = False,
    json: Annotated[
        Path | None, typer.Option(help="Write every sample here; - for standard output.", metavar="FILE")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots here.", metavar="FILE")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Timed rounds [5 with --quick, else 15].", min=1, metavar="N")
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the data.", metavar="N")] = 1,
    group: Annotated[
        list[str] | None, typer.Option(help="Only the cases of this group; may be repeated.", metavar="NAME")
    ] = None,
    awake: Annotated[
        bool, typer.Option("--awake", help="Keep the cores from sleeping; a virtual one may wake up late.")
    ] = False,
    save: Annotated[
        bool, typer.Option("--save", help="Keep a summary in bench/results, for docs/results.md.")
    ] = False,
) -> None:
    """Measure a workload."""
    for path in (json, html):
        _require_folder(path)
    size: benches.Size = "quick" if quick else "full"
    workload = benches.load_workload(name, size)
    if group:
        workload = workload.select_groups(group)
    with screen.progress() as move:
        result = benches.measure(
            workload,
            size=size,
            rounds=rounds,
            seed=seed,
            awake=awake,
            on_progress=lambda at: move(at.done, at.total, f"{at.cell.case}: {at.cell.way}"),
        )
    _show(result, json, html)
    if save:
        path = file_of(name, group or ())
        save_summary(summarise(result, command_of(name, size, group or (), rounds, awake=awake)), path)
        screen.note(f"kept {path.parent.name}/{path.name}")
    if not all(verdict.held for verdict in result.verdicts):
        raise typer.Exit(NOT_HELD)


@app.command("compare", help=ABOUT_COMPARE, epilog=epilog())
def compare_results(
    before: Annotated[Path, typer.Argument(help="The first result, from --json.", metavar="A.json")],
    after: Annotated[Path, typer.Argument(help="The second result.", metavar="B.json")],
    *,
    noise: Annotated[
        float, typer.Option(help="Medians closer than this many percent are noise.", min=0, metavar="PERCENT")
    ] = benches.FLOOR * 100,
    fail_on: Annotated[
        Literal["nothing", "slower"], typer.Option(help="End with code 3 if anything became slower.")
    ] = "nothing",
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Compare two results."""
    comparison = benches.compare(benches.load_result(before), benches.load_result(after), floor=noise / 100)
    if json:
        screen.say_json(_to_json(comparison))
    else:
        screen.say(benches.format_comparison(comparison))
    if fail_on == "slower" and comparison.slower:
        raise typer.Exit(NOT_HELD)


app.command("results", help=results.ABOUT, epilog=epilog())(results.write_results)
app.command("faults", help=faults.ABOUT, epilog=epilog())(faults.run_faults)
app.command("disks", help=faults.ABOUT_DISKS, epilog=epilog())(faults.run_disks)
app.command("mutations", help=faults.ABOUT_MUTATIONS, epilog=epilog())(faults.run_mutations)
app.command("inputs", help=inputs.ABOUT, epilog=epilog())(inputs.run_inputs)
app.command("large", help=large.ABOUT, epilog=epilog())(large.run_large)


def _require_folder(path: Path | None) -> None:
    """Raise before the measurement, not after it, if its result could not be written."""
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(f'the folder "{path.parent}" does not exist')
    if path is not None and path.is_dir():
        raise typer.BadParameter(f'"{path}" is a folder; name a file')


def _show(result: benches.Result, json: Path | None, html: Path | None) -> None:
    if json == Path("-"):
        sys.stdout.write(benches.to_json(result))
    else:
        screen.say(benches.format_result(result))
    for path, text in ((json, benches.to_json(result)), (html, benches.build_page(result))):
        if path is not None and path != Path("-"):
            path.write_text(text, encoding="utf-8")
            screen.note(f"wrote {path}")


def _to_json(comparison: benches.Comparison) -> dict[str, object]:
    return {
        "workload": comparison.workload,
        "changes": [
            {"case": change.cell.case, "way": change.cell.way, "ratio": change.ratio, "is": change.judgement}
            for change in comparison.changes
        ],
        "only_before": [list(cell) for cell in comparison.only_before],
        "only_after": [list(cell) for cell in comparison.only_after],
        "warnings": list(comparison.warnings),
    }
