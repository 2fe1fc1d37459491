"""`ingot run model.onnx --input x=x.npy`: run it once. Inputs that are not given are random.

In: a model and perhaps files. Out: each output in a few figures, or whole in a .npz; with --expect,
an exit code that says whether they are as they should be.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

from ingot.cli.compare import TOLERANCE, misfit, worst_distance
from ingot.cli.feeds import Wanted, make_feeds, read_bundle
from ingot.cli.model import open_model
from ingot.cli.options import DISAGREE, NewFile, Shapes, command, feed_options, some_file
from ingot.cli.output import describe_outputs, print_json, print_outputs


@command("run")
@feed_options
@click.option("--save", type=NewFile(), help="Write the outputs to a .npz.")
@click.option(
    "--expect",
    type=some_file(exists=True),
    help="Outputs by name in a .npz, as they should be; exit code 3 if they are not.",
)
@click.option(
    "--tolerance",
    default=TOLERANCE,
    show_default=True,
    help="Largest max|a-b|/max|b| for --expect.",
)
def run_command(
    model: Path, target: str, shapes: Shapes, state: dict[str, str], threads: int | None,
    jobs: int | None, inputs: dict[str, str], feeds: Path | None, ranges: dict, seed: int,
    save: Path | None, expect: Path | None, tolerance: float, as_json: bool,
) -> None:  # fmt: skip
    """Run MODEL once and show its outputs. Inputs that are not given are random. MODEL may also be
    what `ingot compile --save` wrote."""
    exe, sizes = open_model(model, target, threads, shapes, state, jobs)
    wanted = Wanted(inputs, feeds, ranges, seed)
    outputs = exe.run(None, make_feeds(exe.inputs, exe.package.symbols, sizes, wanted))
    answers = {port.name: array for port, array in zip(exe.outputs, outputs)}
    if save is not None:
        np.savez(save, **answers)  # type: ignore[arg-type]
    said: dict[str, Any] = {"outputs": describe_outputs(zip(exe.outputs, outputs))}
    if expect is not None:
        expected = read_bundle(expect, "--expect")
        worst, name = worst_distance(answers, expected)
        said["agrees"], said["distance"], said["farthest"] = worst <= tolerance, worst, name
        said["misfit"] = misfit(answers, expected)
    print_json(said) if as_json else _tell(said)
    if not said.get("agrees", True):
        sys.exit(DISAGREE)


def _tell(said: dict[str, Any]) -> None:
    print_outputs(said["outputs"])
    if said.get("misfit"):
        click.echo(f"NOT as expected: {said['misfit']}")
    elif "agrees" in said:
        verb = "as expected" if said["agrees"] else f"NOT as expected: {said['farthest']!r} differs"
        click.echo(f"{verb}, max|a-b|/max|b| = {said['distance']:.1e}")
