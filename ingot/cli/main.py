"""The commands. Each is a thin wrapper of the Python door.

ingot compile model.onnx --shape batch=1        what was compiled, and how long each stage took
ingot run model.onnx --input x=x.npy            run it; inputs not given are random
ingot show model.onnx --stage lower             the IR after a stage, or one kernel of it
"""

from __future__ import annotations

import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import click
import numpy as np

from ingot import api, pipeline
from ingot.cli.feeds import read_feeds
from ingot.cli.options import Shapes, model_options, pairs, stage, told
from ingot.cli.output import print_memory, print_outputs, print_times
from ingot.graph.ir import Graph
from ingot.loops.script_print import show as show_kernel
from ingot.program.ir import Program
from ingot.runtime.executable import Executable
from ingot.runtime.report import table
from ingot.support import knobs, lazy
from ingot.support.dump import Dump
from ingot.support.errors import IngotError

LAST = pipeline.NAMES[-1]
PLANNED = pipeline.NAMES[-2]  # the last stage that has text


@click.group()
@click.version_option(package_name="ingot")
def main() -> None:
    """Ingot: a trained model in, one native function out."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # names may be in any script


@main.command("compile")
@model_options
@click.option(
    "--dump",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the IR after each stage; default: INGOT_DUMP_DIR.",
)
@click.option(
    "--stop-after", metavar="STAGE", callback=stage, help="Print the IR after this stage and stop."
)
@click.option(
    "--start-from",
    metavar="STAGE",
    callback=stage,
    help="MODEL is the dumped text of the IR this stage takes.",
)
@told
def compile_command(
    model: Path, target: str, shapes: Shapes, state: dict[str, str], threads: int | None,
    jobs: int | None, dump: Path | None, stop_after: str | None, start_from: str | None,
) -> None:  # fmt: skip
    """Compile MODEL and say what was made."""
    record = Dump(dump or knobs.current().dump_dir)
    session = api.make_session(target, shapes, state, jobs, record)
    start = time.perf_counter()
    value = _read(model, start_from, session)
    made = pipeline.run_stages(value, session, start_from or pipeline.NAMES[0], stop_after or LAST)
    if isinstance(made, Graph | Program):
        click.echo(pipeline.show(made), nl=False)
        return
    obstacle = session.backend.why_not_here(session.target)
    if obstacle:
        click.echo(f"package {made.name}, not for this machine: {obstacle}\n")
    else:
        exe = Executable(made, threads)
        click.echo(f"{exe!r}\n")
        print_memory(exe)
        click.echo()
    print_times(record)
    click.echo(f"\n{table(made.report)}\n\ncompiled in {time.perf_counter() - start:.2f} s")


def _read(model: Path, start_from: str | None, session: pipeline.Session) -> Any:
    """What to begin with: a model, or the dumped text of an IR with its constants beside it."""
    kind = "model" if start_from is None else pipeline.takes(start_from)
    if kind == "model":
        return model
    constants = model.parent / pipeline.CONSTANTS_FILE
    try:
        if constants.exists():
            session.store.load(constants)
        return pipeline.parse(model.read_text(encoding="utf-8"), kind)
    except (UnicodeDecodeError, ValueError, zipfile.BadZipFile) as error:
        what = f"{model} is no dump of a {kind}"
        raise IngotError("bad-text", what, where=start_from or "", why=str(error)) from error


@main.command("run")
@model_options
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=FILE.npy", callback=pairs, help="An input."
)
@click.option(
    "--feeds",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Inputs by name in a .npz.",
)
@click.option("--seed", default=0, show_default=True, help="For inputs that are not given.")
@click.option(
    "--save", type=click.Path(dir_okay=False, path_type=Path), help="Write the outputs to a .npz."
)
@told
def run_command(
    model: Path, target: str, shapes: Shapes, state: dict[str, str], threads: int | None,
    jobs: int | None, inputs: dict[str, str], feeds: Path | None, seed: int, save: Path | None,
) -> None:  # fmt: skip
    """Compile MODEL, run it once, and show its outputs. Inputs that are not given are random."""
    exe = api.compile(model, target, threads, shapes=shapes, state=state, jobs=jobs)
    outputs = exe.run(None, read_feeds(exe, inputs, feeds, shapes, seed))
    print_outputs(exe, outputs)
    if save is not None:
        np.savez(save, **{p.name: a for p, a in zip(exe.outputs, outputs)})  # type: ignore[arg-type]


@main.command("show")
@model_options
@click.option(
    "--stage",
    "stage_name",
    default=PLANNED,
    show_default=True,
    metavar="STAGE",
    callback=stage,
    help="One of " + ", ".join(pipeline.NAMES[:-1]) + ".",
)
@click.option("--kernel", metavar="NAME", help="Only this kernel.")
@click.option(
    "--as",
    "form",
    type=click.Choice(["loops", "llvm", "asm"]),
    default="loops",
    show_default=True,
    help="The form of a kernel; the last two need a legal one.",
)
@told
def show_command(
    model: Path, target: str, shapes: Shapes, state: dict[str, str], threads: int | None,
    jobs: int | None, stage_name: str, kernel: str | None, form: str,
) -> None:  # fmt: skip
    """Print the IR of MODEL after a stage, or one of its kernels."""
    if kernel is None and form != "loops":
        raise IngotError("bad-option", f"--as {form} is for one kernel", hint="add --kernel NAME")
    session = api.make_session(target, shapes, state, jobs)
    made = pipeline.run_stages(model, session, stop_after=stage_name)
    text = pipeline.show(made) if kernel is None else _one_kernel(made, kernel, form, session)
    click.echo(text, nl=False)


def _one_kernel(made: Any, name: str, form: str, session: pipeline.Session) -> str:
    if not isinstance(made, Program):
        hint = f"kernels exist from stage lower to stage {PLANNED}"
        raise IngotError("bad-option", "there are no kernels after this stage", hint=hint)
    if name not in made.kernel_map:
        hint = "there are " + ", ".join(made.kernel_map)
        raise IngotError("bad-option", f"no kernel is called {name!r}", hint=hint)
    kernel = made.kernel_map[name]
    if form == "loops":
        return show_kernel(kernel)
    if not made.is_planned:
        raise IngotError(
            "bad-option", f"--as {form} needs a legal kernel", hint=f"--stage {PLANNED}"
        )
    printer = lazy.load("codegen.llvm")
    if form == "llvm":
        return printer.kernel_text(kernel)
    return printer.kernel_assembly(kernel, session.target)


if __name__ == "__main__":
    main()
