"""The `penstock` command: puts the commands together and turns errors into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli import applications, checkpoint, demo, doctor, programs, screen
from penstock.cli.screen import Code, code_of, epilog
from penstock.errors import PenstockError


class Commands(TyperGroup):
    """The commands, with one place where whatever they raise becomes text and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            returned = super().invoke(ctx)
            sys.stdout.flush()  # so that a closed pipe is found here and not at the very end
            return returned
        except KeyboardInterrupt:
            screen.note("interrupted")
            raise typer.Exit(Code.INTERRUPTED) from None
        except BrokenPipeError:
            screen.drop_output()
            raise typer.Exit(Code.PIPE_CLOSED) from None
        except SystemExit as ended:
            if ended.code == Code.TERMINATED:
                screen.note("terminated")
            raise
        except PenstockError as error:
            screen.show_error(error)
            raise typer.Exit(self.exit_code(error)) from error

    def exit_code(self, error: PenstockError) -> int:
        """Return the exit code of an error that no command caught."""
        return code_of(error)


app = typer.Typer(
    name="penstock",
    cls=Commands,
    help="Stream processing in Python: run and explain Penstock programs.\n\n"
    "\b\nExamples:\n"
    "  penstock demo                     see it work\n"
    "  penstock apps                     list the papers' applications\n"
    "  penstock run word-count           run one of them\n"
    "  penstock run views.py             run the graph in a file\n"
    "  penstock explain views.py         print its schema, blocks and plan",
    epilog=epilog(),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS: dict[Callable[..., None], str] = {
    demo.demo: demo.ABOUT,
    programs.run: programs.ABOUT_RUN,
    programs.explain: programs.ABOUT_EXPLAIN,
    applications.apps: applications.ABOUT,
    doctor.doctor: doctor.ABOUT,
}
for command, about in _COMMANDS.items():
    app.command(help=about, epilog=epilog())(command)
_checkpoint = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command, about in (
    (checkpoint.show, checkpoint.ABOUT_SHOW),
    (checkpoint.verify, checkpoint.ABOUT_VERIFY),
    (checkpoint.diff, checkpoint.ABOUT_DIFF),
    (checkpoint.skip, checkpoint.ABOUT_SKIP),
):
    _checkpoint.command(help=about, epilog=epilog())(command)
app.add_typer(_checkpoint, name="checkpoint", help=checkpoint.ABOUT, epilog=epilog())


def _version(wanted: bool) -> None:
    if wanted:
        screen.say(f"penstock {metadata.version('penstock')}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the `penstock` script."""
    try:
        app(prog_name="penstock")
    except KeyboardInterrupt:  # pressed before a command had begun
        sys.exit(Code.INTERRUPTED)
