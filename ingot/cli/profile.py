"""`ingot profile model.onnx`: where the time of a run goes, kernel by kernel.

In: a model and perhaps files. Out: a row a launch, with the time its slowest thread took.
"""

from __future__ import annotations

from pathlib import Path

import click

from ingot.cli.feeds import Wanted, make_feeds
from ingot.cli.model import open_model
from ingot.cli.options import Shapes, command, feed_options
from ingot.cli.output import print_json, print_table
from ingot.runtime.profile import HEAD

KEYS = ("kernel", "origin", "time_us", "wait_us", "flops", "bytes", "lanes", "gflops", "gbytes")


@command("profile")
@feed_options
@click.option("--runs", type=click.IntRange(min=1), default=20, show_default=True,
              help="Runs to take the mean of.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=1), help="Only so many launches, slowest first.")
def profile_command(
    model: Path, target: str, shapes: Shapes, state: dict[str, str], threads: int | None,
    jobs: int | None, inputs: dict[str, str], feeds: Path | None, ranges: dict, seed: int,
    runs: int, top: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Compile MODEL with cycle counters, run it, and say where the time went."""
    exe, sizes = open_model(model, target, threads, shapes, state, jobs, profile=True)
    wanted = Wanted(inputs, feeds, ranges, seed)
    found = exe.profile(make_feeds(exe.inputs, exe.package.symbols, sizes, wanted), runs)
    rows = found.rows
    if top is not None:
        rows = tuple(sorted(rows, key=lambda row: -row.time_us)[:top])
    if as_json:
        launches = [{key: getattr(row, key) for key in KEYS} for row in rows]
        print_json({"launches": launches, "run_us": found.run_us, "threads": found.threads,
                    "runs": found.runs})  # fmt: skip
        return
    print_table(HEAD, [row.cells(found.run_us) for row in rows])
    click.echo(f"\n{found.summary}")
