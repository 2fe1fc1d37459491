"""`ingot show model.onnx --stage lower`: the IR after a stage, or one kernel of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ingot import api
from ingot.cli.options import Shapes, command, complete_stage, stage
from ingot.cli.output import compile_record, print_json
from ingot.cli.sizes import named_sizes
from ingot.support import knobs, lazy
from ingot.support.errors import IngotError

LAST = "barriers"  # the last stage whose result has a text form


@command("show")
@click.option(
    "--stage",
    "stage_name",
    default=LAST,
    show_default=True,
    metavar="STAGE",
    callback=stage,
    shell_complete=complete_stage,
    help="A compiler stage (docs/pipeline.md); the error for an unknown name lists them.",
)
@click.option("--kernel", metavar="NAME", help="Print only this kernel.")
@click.option(
    "--as",
    "form",
    type=click.Choice(["loops", "llvm", "asm"]),
    default="loops",
    show_default=True,
    help="Output format of a kernel: loop IR, LLVM IR or assembly; the last two need a late stage.",
)
def show_command(
    model: Path, target: str, shapes: Shapes, state: dict[str, str], threads: int | None,
    jobs: int | None, stage_name: str, kernel: str | None, form: str, as_json: bool,
) -> None:  # fmt: skip
    """Print the IR of MODEL after a compiler stage, or one of its kernels."""
    if kernel is None and form != "loops":
        raise IngotError("bad-option", f"--as {form} needs a kernel", hint="add --kernel NAME")
    pipeline = lazy.load("pipeline")
    with compile_record(knobs.current().dump_dir) as record:
        session = api.make_session(target, named_sizes(model, shapes), state, jobs, record)
        made = pipeline.run_stages(model, session, stop_after=stage_name)
    text = pipeline.show(made) if kernel is None else _one_kernel(made, kernel, form, session)
    if as_json:
        print_json({"stage": stage_name, "kernel": kernel, "form": form, "text": text})
    else:
        click.echo(text, nl=False)


def _one_kernel(made: Any, name: str, form: str, session: Any) -> str:
    if not hasattr(made, "kernel_map"):
        hint = f"kernels exist from stage lower to stage {LAST}"
        raise IngotError("bad-option", "there are no kernels after this stage", hint=hint)
    if name not in made.kernel_map:
        hint = "the kernels are " + ", ".join(made.kernel_map)
        raise IngotError("bad-option", f"no kernel is called {name!r}", hint=hint)
    kernel = made.kernel_map[name]
    if form == "loops":
        return lazy.load("loops.script").show(kernel)
    if not made.is_planned:
        what = f"--as {form} needs a legalized kernel"
        raise IngotError("bad-option", what, hint=f"--stage {LAST}")
    printer = lazy.load("codegen.llvm")
    if form == "llvm":
        return printer.kernel_text(kernel)
    return printer.kernel_assembly(kernel, session.target)
