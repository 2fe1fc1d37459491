"""`ingot`: the table of commands. In: the command line. Out: an exit code.

A command's file is loaded when the command is asked for, so that `ingot --help` and a shell's
completion wait for nothing. Errors of the command line and Ctrl-C are told here, those of a
command's own work in options.py. Exit codes are in options.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from ingot.cli.options import interrupted, print_error
from ingot.support import lazy
from ingot.support.errors import IngotError

COMMANDS: dict[str, str] = {
    "compile": "Compile a model and say what was made.",
    "run": "Run a model once: inputs from files, or random.",
    "bench": "Time a model in Ingot and in every other runtime installed here.",
    "profile": "Say where the time of a run goes, kernel by kernel.",
    "show": "Print a model after a stage of the compiler, or one of its kernels.",
    "cache": "Say what the caches hold, and why a model is not in them; empty them.",
    "doctor": "Say what this machine can do, and why not.",
}


class Commands(click.Group):
    """Commands by name; their one-line helps are in the table, so that listing them loads none."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """As click's, but with --json what stops a command is an object on stdout too."""
        words = list(sys.argv[1:] if args is None else args)
        if not extra.pop("standalone_mode", True):
            return super().main(words, standalone_mode=False, **extra)
        try:
            sys.exit(super().main(words, standalone_mode=False, **extra))
        except click.Abort:
            interrupted("--json" in words)
        except click.ClickException as error:
            if "--json" in words:
                print_error(_as_ours(error), error.exit_code)
            error.show()
            sys.exit(error.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # click would print an empty line first
            raise click.Abort from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return lazy.load(f"cli.{cmd_name}") if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _as_ours(error: click.ClickException) -> IngotError:
    context = getattr(error, "ctx", None)
    hint = f"{context.command_path} --help" if context else ""
    return IngotError("bad-option", error.format_message(), hint=hint)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ingot")
def main() -> None:
    """Ingot: a trained model in, one native function out.

    Every command takes --json. Exit codes: 0 done; 1 the model, its inputs or its run are at fault;
    2 the command line is; 3 answers disagree; 130 interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # names may be in any script


if __name__ == "__main__":
    main()
