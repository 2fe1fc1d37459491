"""`ingot profile model.onnx`: time, FLOP/s and roofline of each kernel launch.

In: a model, optionally input files. Out: a row per launch, with the time of its slowest thread, and
with --trace a file of what each thread did when.
"""

from __future__ import annotations

from pathlib import Path

import click

from ingot.cli.feeds import FeedSpec
from ingot.cli.model import make_call, open_model
from ingot.cli.options import OUTPUT_OPTION, NewFile, Shapes, command, feed_options
from ingot.cli.output import print_json, print_table
from ingot.runtime.profile import HEAD

KEYS = ("kernel", "origin", "time_us", "wait_us", "flops", "bytes", "lanes", "gflops", "gbytes")

TRACED = 5  # runs in a trace


@command("profile")
@feed_options
@OUTPUT_OPTION
@click.option("--runs", type=click.IntRange(min=1), default=20, show_default=True,
              help="Number of runs; times are means over them.")  # fmt: skip
@click.option("--trace", type=NewFile(), help="Write when each thread ran what, in up to "
              f"{TRACED} more runs: a file for ui.perfetto.dev or chrome://tracing.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=1), help="Show only the N slowest launches.")
def profile_command(
    model: Path, target: str, shapes: Shapes, state: dict[str, str], capacity: int | None,
    threads: int | None, jobs: int | None, inputs: dict[str, str], feeds: Path | None,
    ranges: dict, seed: int, outputs: tuple[str, ...],
    runs: int, trace: Path | None, top: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Compile MODEL with cycle counters, run it, and print the time of each kernel launch."""
    exe, sizes = open_model(
        model, target, threads, shapes, state, capacity, jobs, profile=True, outputs=outputs
    )
    spec = FeedSpec(inputs, feeds, ranges, seed)
    given, kept = make_call(exe, sizes, spec)
    found = exe.profile(given, runs, kept)
    if trace is not None:
        exe.trace(given, min(runs, TRACED), kept).save(trace)
    rows = found.rows
    if top is not None:
        rows = tuple(sorted(rows, key=lambda row: -row.time_us)[:top])
    if as_json:
        launches = [{key: getattr(row, key) for key in KEYS} for row in rows]
        print_json({"launches": launches, "run_us": found.run_us, "threads": found.threads,
                    "runs": found.runs, "trace": trace})  # fmt: skip
        return
    print_table(HEAD, [row.cells(found.run_us) for row in rows])
    click.echo(f"\n{found.summary}")
    if trace is not None:
        click.echo(f"trace of {min(runs, TRACED)} runs: {trace}, for ui.perfetto.dev")
