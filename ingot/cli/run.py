"""`ingot run model.onnx --input x=x.npy`: run it once. Inputs that are not given are random.

In: a model, optionally input files. Out: minimum, mean and maximum of each output, or all of them
in a .npz; with --expect, exit code 3 if the outputs differ from the expected ones.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

from ingot.cli.compare import TOLERANCE, mismatch, worst_distance
from ingot.cli.feeds import FeedSpec, read_bundle
from ingot.cli.model import make_call, open_model
from ingot.cli.options import (
    OUTPUT_OPTION,
    OUTPUTS_DIFFER,
    NewFile,
    Shapes,
    command,
    feed_options,
    some_file,
)
from ingot.cli.output import describe_outputs, print_json, print_outputs


@command("run")
@feed_options
@OUTPUT_OPTION
@click.option("--save", type=NewFile(), help="Write the outputs to a .npz.")
@click.option(
    "--expect",
    type=some_file(exists=True),
    help="Compare with the expected outputs in a .npz, by name; exit code 3 if they differ.",
)
@click.option(
    "--tolerance",
    default=TOLERANCE,
    show_default=True,
    help="Largest max|a-b|/max|b| for --expect.",
)
def run_command(
    model: Path, target: str, shapes: Shapes, state: dict[str, str], capacity: int | None,
    threads: int | None, jobs: int | None, inputs: dict[str, str], feeds: Path | None,
    ranges: dict, seed: int, outputs: tuple[str, ...],
    save: Path | None, expect: Path | None, tolerance: float, as_json: bool,
) -> None:  # fmt: skip
    """Run MODEL once and print statistics of its outputs. Inputs that are not given are random.
    MODEL may also be a plan file, written by `ingot compile --save`."""
    exe, sizes = open_model(model, target, threads, shapes, state, capacity, jobs, outputs=outputs)
    spec = FeedSpec(inputs, feeds, ranges, seed)
    given, kept = make_call(exe, sizes, spec)
    arrays = [_as_array(value) for value in exe.run(None, given, state=kept)]
    results = {port.name: array for port, array in zip(exe.outputs, arrays)}
    if save is not None:
        saved = {n: a.astype(str) if a.dtype == object else a for n, a in results.items()}
        np.savez(save, **saved)  # type: ignore[arg-type]
    result: dict[str, Any] = {
        "outputs": describe_outputs(zip((info.port for info in exe.outputs), arrays))
    }
    if expect is not None:
        expected = read_bundle(expect, "--expect")
        worst, name = worst_distance(results, expected)
        result |= {"agrees": worst <= tolerance, "distance": worst, "worst_output": name}
        result["mismatch"] = mismatch(results, expected)
    print_json(result) if as_json else _print(result)
    if not result.get("agrees", True):
        sys.exit(OUTPUTS_DIFFER)


def _as_array(value: Any) -> np.ndarray:
    """An output; of a list of dicts the matrix of their values."""
    rows = [list(row.values()) for row in value] if isinstance(value, list) else value
    return np.asarray(rows)


def _print(result: dict[str, Any]) -> None:
    print_outputs(result["outputs"])
    if result.get("mismatch"):
        click.echo(f"NOT as expected: {result['mismatch']}")
    elif "agrees" in result:
        differs = f"NOT as expected: {result['worst_output']!r} differs"
        verdict = "as expected" if result["agrees"] else differs
        click.echo(f"{verdict}, max|a-b|/max|b| = {result['distance']:.1e}")
