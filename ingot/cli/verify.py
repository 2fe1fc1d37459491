"""`ingot verify model.onnx`: which node and which stage make the outputs wrong.

In: a model, optionally input files. Out: the first wrong value with its error, the stage, the
kernel, and a folder that shows the fault alone; exit code 3 if something is wrong. The search is in
ingot/inspect/verify.py.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingot.cli.feeds import FeedSpec, make_feeds
from ingot.cli.options import OUTPUTS_DIFFER, Shapes, command, feed_options
from ingot.cli.output import print_json, steps
from ingot.inspect import AGAINST
from ingot.shapes import ports, read_graph, with_sizes
from ingot.support import lazy
from ingot.support.errors import IngotError

if TYPE_CHECKING:
    from ingot.inspect.verify import Report


@command("verify")
@feed_options
@click.option(
    "--against",
    type=click.Choice(AGAINST),
    default=AGAINST[0],
    show_default=True,
    help="Compiled code is compared with Ingot's interpreter; with another runtime, what import "
    "made of each node is compared with it first.",
)
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the reproducer; default: MODEL-reproducer, in the current folder.",
)
def verify_command(
    model: Path, target: str, shapes: Shapes, state: dict[str, str], capacity: int | None,
    threads: int | None, jobs: int | None, inputs: dict[str, str], feeds: Path | None,
    ranges: dict, seed: int, against: str, save: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare the outputs of MODEL, compiled, with exact ones; if they differ, find the first wrong
    node and the stage of the compiler that makes it wrong, and save a minimal reproducer. Inputs
    that are not given are random."""
    if state or capacity:
        hint = "give the state as an ordinary input: --feeds FILE"
        raise IngotError("bad-option", "verify runs a model once, without a state", hint=hint)
    arrays = _feeds(model, shapes, FeedSpec(inputs, feeds, ranges, seed))
    folder = save or Path(f"{model.stem}-reproducer")
    with steps(None, model.name) as step:
        report = lazy.load("ingot.verify")(
            model, arrays, target, threads, shapes=shapes, jobs=jobs,
            against=against, save=folder, step=step,
        )  # fmt: skip
    print_json(_as_data(report)) if as_json else click.echo(str(report))
    if not report.is_right:
        sys.exit(OUTPUTS_DIFFER)


def _feeds(model: Path, shapes: Shapes, spec: FeedSpec) -> dict[str, Any]:
    graph = read_graph(model, shapes)
    dynamic_dims = [symbol for symbol in graph.symbols if symbol.source == "input"]
    own = ports(graph)
    return make_feeds(own, dynamic_dims, with_sizes(own, shapes), spec)


def _as_data(report: Report) -> dict[str, Any]:
    return {**asdict(report), "is_right": report.is_right}
