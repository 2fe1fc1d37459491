"""`ingot`: the table of commands. In: the command line. Out: an exit code.

A command's file is loaded on demand, so that `ingot --help` and shell completion are fast. Usage
errors and Ctrl-C are handled here, a command's own errors in options.py, which has the exit codes.
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
    "compile": "Compile a model and print a report of its kernels.",
    "check": "Check a model without compiling it: operators, sizes, memory, what is missing.",
    "run": "Run a model once, on inputs from files or random inputs.",
    "bench": "Benchmark a model in Ingot versus every other installed runtime.",
    "verify": "Compare a model's outputs with exact ones; find the node and stage at fault.",
    "profile": "Profile a model: time, FLOP/s and roofline of each kernel.",
    "show": "Print the IR of a model after a compiler stage, or one of its kernels.",
    "cache": "Show or clear the caches, or explain a cache miss.",
    "doctor": "Check this machine: CPU features, cores, caches, packages.",
}


class Commands(click.Group):
    """Commands by name; the table has their one-line help, so that listing them loads none."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Like click's, but with --json errors are also an object on stdout."""
        words = list(sys.argv[1:] if args is None else args)
        if not extra.pop("standalone_mode", True):
            return super().main(words, standalone_mode=False, **extra)
        try:
            sys.exit(super().main(words, standalone_mode=False, **extra))
        except click.Abort:
            interrupted("--json" in words)
        except click.ClickException as error:
            if "--json" in words:
                print_error(_as_ingot_error(error), error.exit_code)
            error.show()
            sys.exit(error.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # click itself would print an empty line first
            raise click.Abort from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            return lazy.load(f"cli.{cmd_name}")
        except IngotError as error:  # not on Linux, or a package is missing
            raise click.ClickException(str(error)) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _as_ingot_error(error: click.ClickException) -> IngotError:
    context = getattr(error, "ctx", None)
    hint = f"{context.command_path} --help" if context else ""
    return IngotError("bad-option", error.format_message(), hint=hint)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ingot")
def main() -> None:
    """Ingot: a deep-learning compiler. It compiles a trained model to one native function.

    Every command takes --json. Exit codes: 0 success; 1 error in the model, its inputs or its run;
    2 usage error; 3 outputs differ; 130 interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # names may be non-ASCII


if __name__ == "__main__":
    main()
