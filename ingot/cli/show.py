"""`ingot show model.onnx --stage lower`: the IR after a stage, or one kernel of it.

`ingot show --stages --target T` needs no model: it prints the pipeline of a target.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ingot import api
from ingot.cli.options import (
    OUTPUT_OPTION,
    Shapes,
    check_stage,
    command,
    complete_form,
    complete_stage,
)
from ingot.cli.output import print_json, print_table
from ingot.shapes import named_sizes
from ingot.support import lazy, options, progress
from ingot.support.dump import Dump
from ingot.support.errors import IngotError

LOOPS = "loops"  # the form of a kernel that every back end has


@command("show", needs_model=False)
@click.option(
    "--stage",
    "stage_name",
    metavar="STAGE",
    shell_complete=complete_stage,
    help="A stage of the target's pipeline; default: the last one with a text form.",
)
@click.option("--stages", "list_stages", is_flag=True, help="List the target's stages instead.")
@click.option("--kernel", metavar="NAME", help="Print only this kernel.")
@click.option(
    "--as",
    "form",
    default=LOOPS,
    show_default=True,
    metavar="FORM",
    shell_complete=complete_form,
    help="Output format of a kernel: loops, or what the back end emits (cpu: llvm, asm; c: c), "
    "which needs a late stage.",
)
@OUTPUT_OPTION
def show_command(
    model: Path | None, target: str, shapes: Shapes, outputs: tuple[str, ...],
    state: dict[str, str], capacity: int | None,
    threads: int | None, jobs: int | None, stage_name: str | None, list_stages: bool,
    kernel: str | None, form: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Print the IR of MODEL after a compiler stage, or one of its kernels."""
    if list_stages:
        _print_stages(target, as_json)
        return
    if model is None:
        raise IngotError("bad-option", "no model is given", hint="ingot show MODEL, or --stages")
    if kernel is None and form != LOOPS:
        raise IngotError("bad-option", f"--as {form} needs a kernel", hint="add --kernel NAME")
    pipeline = lazy.load("pipeline")
    record = Dump(options.current().dump_dir)
    with progress.shown(delay_s=0):
        sizes = named_sizes(model, shapes)
        session = api.make_session(
            target, sizes, state, jobs, record, capacity=capacity, outputs=outputs
        )
        check_stage(session, "--stage", stage_name)
        last = stage_name or pipeline.last_program_stage(session.stages)
        made = pipeline.run_stages(model, session, stop_after=last)
    text = pipeline.show(made) if kernel is None else _one_kernel(made, kernel, form, session)
    if as_json:
        print_json({"stage": last, "kernel": kernel, "form": form, "text": text})
    else:
        click.echo(text, nl=False)


def _print_stages(target: str, as_json: bool) -> None:
    session = api.make_session(target)
    common = len(lazy.load("pipeline").COMMON)
    owners = ["ingot" if i < common else session.backend.name for i, _ in enumerate(session.stages)]
    rows = [(s.name, s.takes, s.gives, who, s.what) for s, who in zip(session.stages, owners)]
    head = ("stage", "from", "to", "owner", "what it does")
    if as_json:
        print_json({"target": target, "stages": [dict(zip(head, row)) for row in rows]})
    else:
        print_table(head, rows)


def _one_kernel(made: Any, name: str, form: str, session: Any) -> str:
    last = lazy.load("pipeline").last_program_stage(session.stages)
    if not hasattr(made, "kernel_map"):
        hint = f"kernels exist from stage lower to stage {last}"
        raise IngotError("bad-option", "there are no kernels after this stage", hint=hint)
    if name not in made.kernel_map:
        hint = "there are " + ", ".join(made.kernel_map)
        raise IngotError("bad-option", f"no kernel is called {name!r}", hint=hint)
    kernel = made.kernel_map[name]
    if form == LOOPS:
        return lazy.load("loops.script").show(kernel)
    if form not in session.backend.forms:
        hint = "one of " + ", ".join((LOOPS, *session.backend.forms))
        what = f"the back end {session.backend.name!r} prints no {form!r}"
        raise IngotError("bad-option", f"--as {form}: {what}", hint=hint)
    if not made.is_planned:
        raise IngotError("bad-option", f"--as {form} needs a legal kernel", hint=f"--stage {last}")
    return session.backend.source(kernel, form, session.target)
