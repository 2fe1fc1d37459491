"""Common to all commands: options about the model, NAME=VALUE pairs, error messages.

In: a command's function. Out: a click command whose errors are messages and exit codes.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

import click

from ingot import backends
from ingot.cli.output import print_json
from ingot.support import lazy, options
from ingot.support.errors import IngotError
from ingot.support.names import Shape

FAILED = 1  # error in the model, its inputs or its run
USAGE = 2  # usage error: unknown option, missing file, invalid value
OUTPUTS_DIFFER = 3  # outputs differ from the expected or reference ones
INTERRUPTED = 130  # the shell's convention: 128 + SIGINT

UNITS = {"": 1, **{unit: 1000**power for power, unit in enumerate("kmgt", 1)},
         **{f"{unit}i": 1024**power for power, unit in enumerate("kmgt", 1)}}  # fmt: skip
USAGE_CODES = ("bad-option", "bad-target")
Size = int | tuple[int, int]  # a value, or a range
Shapes = dict[str, Any]  # dynamic dimension → Size, input → Shape


def command(
    name: str, has_model: bool = True, needs_model: bool = True
) -> Callable[[Callable], click.Command]:
    """A command with --json and, if `has_model`, a model argument; it reports errors."""

    def wrap(function: Callable) -> click.Command:
        function = with_options(function) if has_model else function
        model = click.argument("model", type=some_file(exists=True), required=needs_model)
        options = [*((model, *MODEL_OPTIONS) if has_model else ()), JSON_OPTION]
        wrapped = report_errors(function)
        for option in reversed(options):
            wrapped = option(wrapped)
        return click.command(name)(wrapped)

    return wrap


def with_options(function: Callable) -> Callable:
    """Run a command under the options of --off and --option, named as in Python."""

    @functools.wraps(function)
    def run(*args: Any, off: str, given: dict[str, str], **kwargs: Any) -> None:
        values = options.from_text({**({"off": off} if off else {}), **given})
        with options.override(**values):
            function(*args, **kwargs)

    return run


def report_errors(function: Callable) -> Callable:
    """Turn errors into a message on stderr and an exit code, without a traceback. With --json the
    error is also an object on stdout."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except IngotError as error:
            stop(error, kwargs.get("as_json", False))
        except BrokenPipeError:
            raise  # click handles a closed pipe
        except OSError as error:
            stop(_from_os_error(error), kwargs.get("as_json", False))

    return run


def _from_os_error(error: OSError) -> IngotError:
    if error.filename is None:
        return IngotError("bad-option", str(error))
    what = f"{error.filename} cannot be used"
    hint = "check that the folder exists, is readable and writeable, and has space"
    return IngotError("bad-option", what, why=error.strerror or str(error), hint=hint)


def stop(error: IngotError, as_json: bool) -> NoReturn:
    code = USAGE if error.code in USAGE_CODES else FAILED
    if as_json:
        print_error(error, code)
    click.echo(str(error), err=True)
    sys.exit(code)


def interrupted(as_json: bool) -> NoReturn:
    if as_json:
        fields = {"code": "interrupted", "what": "interrupted", "where": "", "why": "", "hint": ""}
        print_json({"error": fields, "exit_code": INTERRUPTED})
    click.echo("interrupted", err=True)
    sys.exit(INTERRUPTED)


def print_error(error: IngotError, exit_code: int) -> None:
    fields = {key: getattr(error, key) for key in ("code", "what", "where", "why", "hint")}
    print_json({"error": fields, "exit_code": exit_code})


def pairs(context: click.Context, option: click.Parameter, items: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE options; each name may occur once."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not (name and equals and value):
            raise click.BadParameter(f"{item!r} is not {option.metavar}", context, option)
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice", context, option)
        found[name] = value
    return found


def shapes(context: click.Context, option: click.Parameter, items: Iterable[str]) -> Shapes:
    """A dynamic dimension batch=8, its range batch=1:512, or an input's shape image=1x3x224x224."""
    return {
        name: _size(name, text, context, option)
        for name, text in pairs(context, option, items).items()
    }


def _size(name: str, text: str, context: click.Context, option: click.Parameter) -> Any:
    low, colon, high = text.partition(":")
    try:
        if "x" in text:
            return Shape(map(int, text.split("x")))
        return (int(low), int(high)) if colon else int(low)
    except ValueError:
        what = (
            f"{name}={text!r} is not a size: give {name}=8, a range {name}=1:512, "
            "or an input's shape INPUT=1x128"
        )
        raise click.BadParameter(what, context, option) from None


def ranges(
    context: click.Context, option: click.Parameter, items: Iterable[str]
) -> dict[str, tuple[float, float]]:
    """NAME=LOW:HIGH: the range of random values."""
    found = {}
    for name, text in pairs(context, option, items).items():
        low, _, high = text.partition(":")
        try:
            found[name] = (float(low), float(high))
        except ValueError:
            what = f"{name}={text!r} is not a range: give {name}=0:1000"
            raise click.BadParameter(what, context, option) from None
        if not found[name][0] < found[name][1]:
            raise click.BadParameter(f"{name}={text!r} is an empty range", context, option)
    return found


def size_bytes(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """A memory size: bytes, or with a unit: 500MB, 2GB, 2GiB."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(|[kMGT]i?)B?", text, re.IGNORECASE)
    number = int(float(found[1]) * UNITS[found[2].lower()]) if found else 0
    if number < 1:
        what = f"{text!r} is not a memory size: give 500MB, 2GB, 2GiB or bytes"
        raise click.BadParameter(what, context, option)
    return number


def check_stage(session: Any, option: str, name: str | None) -> None:
    """An unknown stage is an error that names the option and lists the target's stages."""
    if name is not None:
        try:
            lazy.load("pipeline").position(session.stages, name)
        except IngotError as error:
            raise IngotError(error.code, error.what, where=option, hint=error.hint) from None


def complete_form(context: click.Context, option: click.Parameter, prefix: str) -> list[str]:
    """The forms of a kernel that the target's back end prints."""
    forms = ("loops", *backends.find(context.params.get("target") or "cpu").forms)
    return [form for form in forms if form.startswith(prefix)]


def complete_stage(context: click.Context, option: click.Parameter, prefix: str) -> list[str]:
    """The stages of the target on the command line so far."""
    target = context.params.get("target") or "cpu"
    names = [stage.name for stage in lazy.load("pipeline").open_session(target).stages]
    return [name for name in names if name.startswith(prefix)]


def some_file(**options: Any) -> click.Path:
    return click.Path(dir_okay=False, path_type=Path, **options)


class NewFile(click.Path):
    """A file to be written; fails before any work is done if its folder does not exist."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(str(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"there is no folder {str(path.parent)!r}", param, ctx)
        return path


JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")

MODEL_OPTIONS = (
    click.option("--target", default="cpu", show_default=True,
                 help="cpu (this machine), a CPU name such as x86-64-v3, or a back end's target."),
    click.option("--shape", "--size", "shapes", multiple=True, callback=shapes,
                 metavar="NAME=N|LOW:HIGH|AxB",
                 help="Specialise a dynamic dimension (N), constrain it (LOW:HIGH), or give the "
                 "shape of an input (AxB)."),
    click.option("--state", multiple=True, metavar="INPUT=OUTPUT", callback=pairs,
                 help="Update INPUT in place with OUTPUT, e.g. a KV cache."),
    click.option("--capacity", type=click.IntRange(min=1), metavar="ROWS",
                 help="Rows of states that grow: OUTPUT is INPUT with rows appended."),
    click.option("--threads", type=click.IntRange(min=1),
                 help="Threads per call; default: all cores."),
    click.option("--off", default="", metavar="NAMES",
                 help="Optimisations to switch off: attention,winograd (docs/pipeline.md)."),
    click.option("--option", "given", multiple=True, metavar="NAME=VALUE", callback=pairs,
                 help="Another compiler option: verify=off (docs/pipeline.md)."),
    click.option("--jobs", type=click.IntRange(min=1), help="Parallel code generation processes."),
)  # fmt: skip

OUTPUT_OPTION = click.option(
    "--output", "outputs", multiple=True, metavar="NAME",
    help="A value or node of the model that is an output instead of the model's own; repeatable.",
)  # fmt: skip

FEED_OPTIONS = (
    click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", callback=pairs,
                 help="Read an input from a .npy file."),
    click.option("--feeds", type=some_file(exists=True), help="Read inputs by name from a .npz."),
    click.option("--range", "ranges", multiple=True, metavar="NAME=LOW:HIGH", callback=ranges,
                 help="Range of a random input's values; HIGH is excluded."),
    click.option("--seed", default=0, show_default=True, help="Seed of random inputs."),
)  # fmt: skip


def feed_options(function: Callable) -> Callable:
    for option in reversed(FEED_OPTIONS):
        function = option(function)
    return function
