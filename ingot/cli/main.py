"""The commands. Each is a thin wrapper of the Python door; errors become one message and code 1.

ingot compile model.onnx --shape batch=1        what was compiled, and how long each stage took
ingot run model.onnx --input x=x.npy            run it; inputs not given are random
ingot show model.onnx --stage lower             the IR after a stage
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from ingot import api, pipeline
from ingot.cli.feeds import read_feeds
from ingot.runtime.executable import Executable
from ingot.support.dump import Dump
from ingot.support.errors import IngotError

console = Console(highlight=False)


def _told(command: Callable) -> Callable:
    """Ingot's errors are for people: no traceback, exit code 1."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except IngotError as error:
            click.echo(str(error), err=True)
            sys.exit(1)

    return run


def _model_options(command: Callable) -> Callable:
    for option in (
        click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
        click.option("--target", default="cpu", show_default=True, help="this machine, or a CPU."),
        click.option("--shape", "shapes", multiple=True, metavar="NAME=N|LOW:HIGH",
                     help="A symbolic size, or its range."),
        click.option("--state", "state", multiple=True, metavar="INPUT=OUTPUT",
                     help="An input updated in place."),
        click.option("--threads", type=int, help="Threads of a call; default: every core."),
        click.option("--jobs", type=int, help="Processes for code generation."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.group()
@click.version_option(package_name="ingot")
def main() -> None:
    """Ingot: a trained model in, one native function out."""


@main.command("compile")
@_model_options
@click.option("--dump", type=click.Path(path_type=Path), help="Folder for the IR after each stage.")
@click.option("--stop-after", metavar="STAGE", help="Print the IR after this stage and stop.")
@click.option("--start-from", metavar="STAGE", help="MODEL is the text of that stage's input.")
@_told
def compile_command(
    model: Path, target: str, shapes: tuple[str, ...], state: tuple[str, ...],
    threads: int | None, jobs: int | None, dump: Path | None, stop_after: str | None,
    start_from: str | None,
) -> None:  # fmt: skip
    """Compile MODEL and say what was made."""
    record = Dump(dump or "")
    session = api.make_session(target, _shapes(shapes), _pairs(state), jobs, record)
    start = time.perf_counter()
    value, first = _start(model, start_from, session)
    made = pipeline.run_stages(value, session, first, stop_after or pipeline.NAMES[-1])
    if dump is not None:
        session.store.save(dump / "constants.npz")
    if stop_after is not None and stop_after != pipeline.NAMES[-1]:
        click.echo(pipeline.show(made), nl=False)
        return
    exe = Executable(made, threads)
    console.print(f"{exe!r}", markup=False)
    console.print(_times(record))
    console.print(exe.report(), markup=False)
    console.print(f"compiled in {time.perf_counter() - start:.2f} s")


def _start(model: Path, stage: str | None, session: pipeline.Session) -> tuple[Any, str]:
    """What to begin with: a model, or the dumped text of an IR with its constants beside it."""
    if stage is None:
        return model, pipeline.NAMES[0]
    constants = model.parent / "constants.npz"
    if constants.exists():
        session.store.load(constants)
    return pipeline.parse(model.read_text(encoding="utf-8"), pipeline.takes(stage)), stage


@main.command("run")
@_model_options
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="An input.")
@click.option("--feeds", type=click.Path(exists=True, path_type=Path), help="Inputs in a .npz.")
@click.option("--seed", default=0, show_default=True, help="For inputs that are not given.")
@click.option("--save", type=click.Path(path_type=Path), help="Write the outputs to a .npz.")
@_told
def run_command(
    model: Path, target: str, shapes: tuple[str, ...], state: tuple[str, ...],
    threads: int | None, jobs: int | None, inputs: tuple[str, ...], feeds: Path | None,
    seed: int, save: Path | None,
) -> None:  # fmt: skip
    """Compile MODEL, run it once, and show its outputs."""
    exe = api.compile(
        model, target, threads, shapes=_shapes(shapes), state=_pairs(state), jobs=jobs
    )
    given = read_feeds(exe, _pairs(inputs), feeds, _shapes(shapes), seed)
    outputs = exe.run(None, given)
    table = Table("output", "type", "min", "mean", "max")
    for port, array in zip(exe.outputs, outputs):
        table.add_row(port.name, f"{port.dtype}{list(array.shape)}", *_figures(array))
    console.print(table)
    if save is not None:
        np.savez(save, **{p.name: a for p, a in zip(exe.outputs, outputs)})  # type: ignore[arg-type]


@main.command("show")
@_model_options
@click.option("--stage", default="barriers", show_default=True, help=", ".join(pipeline.NAMES))
@_told
def show_command(
    model: Path, target: str, shapes: tuple[str, ...], state: tuple[str, ...],
    threads: int | None, jobs: int | None, stage: str,
) -> None:  # fmt: skip
    """Print the IR of MODEL after a stage."""
    session = api.make_session(target, _shapes(shapes), _pairs(state), jobs)
    click.echo(pipeline.show(pipeline.run_stages(model, session, stop_after=stage)), nl=False)


def _times(record: Dump) -> Table:
    table = Table("stage", "ms")
    table.columns[1].justify = "right"
    for stage, time_s in record.times_s.items():
        table.add_row(stage, f"{time_s * 1e3:.1f}")
    return table


def _figures(array: np.ndarray) -> list[str]:
    if not array.size or array.dtype.kind == "b":
        return ["", "", ""]
    wide = array.astype(np.float64)
    return [f"{f(wide):.6g}" for f in (np.min, np.mean, np.max)]


def _pairs(items: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for item in items:
        name, found, value = item.partition("=")
        if not found:
            raise IngotError("bad-option", f"{item!r} is not NAME=VALUE")
        pairs[name] = value
    return pairs


def _shapes(items: tuple[str, ...]) -> dict[str, int | tuple[int, int]]:
    shapes: dict[str, int | tuple[int, int]] = {}
    for name, text in _pairs(items).items():
        low, found, high = text.partition(":")
        try:
            shapes[name] = (int(low), int(high)) if found else int(low)
        except ValueError:
            raise IngotError(
                "bad-option", f"--shape {name}={text}", hint="give N or LOW:HIGH"
            ) from None
    return shapes


if __name__ == "__main__":
    main()
