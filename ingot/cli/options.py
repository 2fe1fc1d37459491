"""What the commands share: options about the model, NAME=VALUE pairs, and errors for people.

Exit codes: 0 done; 1 the model, its inputs or its run are at fault; 2 the command line is.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from ingot import pipeline
from ingot.support.errors import IngotError

USAGE_CODES = ("bad-option", "bad-target")
Shapes = dict[str, int | tuple[int, int]]


def told(command: Callable) -> Callable:
    """Errors are for people: a message on stderr and an exit code, no traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except IngotError as error:
            click.echo(str(error), err=True)
            sys.exit(2 if error.code in USAGE_CODES else 1)
        except BrokenPipeError:
            raise  # click knows what to do when the reader has gone
        except OSError as error:
            click.echo(f"[bad-option] {error}", err=True)
            sys.exit(2)

    return run


def model_options(command: Callable) -> Callable:
    for option in (
        click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
        click.option("--target", default="cpu", show_default=True,
                     help="This machine, or a named CPU such as x86-64-v3."),
        click.option("--shape", "shapes", multiple=True, metavar="NAME=N|LOW:HIGH",
                     callback=_shapes, help="A symbolic size, or its range."),
        click.option("--state", multiple=True, metavar="INPUT=OUTPUT", callback=pairs,
                     help="An input updated in place."),
        click.option("--threads", type=click.IntRange(min=1),
                     help="Threads of a call; default: every core."),
        click.option("--jobs", type=click.IntRange(min=1), help="Processes for code generation."),
    ):  # fmt: skip
        command = option(command)
    return command


def pairs(context: click.Context, option: click.Parameter, items: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE, each name once."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not (name and equals and value):
            raise click.BadParameter(f"{item!r} is not {option.metavar}", context, option)
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice", context, option)
        found[name] = value
    return found


def _shapes(context: click.Context, option: click.Parameter, items: Iterable[str]) -> Shapes:
    shapes: Shapes = {}
    for name, text in pairs(context, option, items).items():
        low, colon, high = text.partition(":")
        try:
            shapes[name] = (int(low), int(high)) if colon else int(low)
        except ValueError:
            what = f"{name}={text!r} is no size: give {name}=8 or a range {name}=1:512"
            raise click.BadParameter(what, context, option) from None
    return shapes


def stage(context: click.Context, option: click.Parameter, name: str | None) -> str | None:
    """A stage of the table; an unknown one is an error that lists them."""
    if name is not None:
        try:
            pipeline.takes(name)
        except IngotError as error:
            raise click.BadParameter(f"{error.what}; {error.hint}", context, option) from None
    return name
