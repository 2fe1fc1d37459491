"""`ingot compile model.onnx --shape batch=1`: compile, and report kernels and stage times.

In: a model, or the dumped text of an IR. Out: the IR after a stage, or a report of the executable.
It always compiles, even when the model is cached, so that there are times to report. The result is
cached afterwards, unless a limit was reached.
"""

from __future__ import annotations

import time
import zipfile
from pathlib import Path
from typing import Any

import click

from ingot import api, backends, cache
from ingot.cli.options import (
    OUTPUT_OPTION,
    NewFile,
    Shapes,
    check_stage,
    command,
    complete_stage,
    size_bytes,
)
from ingot.cli.output import ports, print_json, print_table, print_times
from ingot.runtime import plan_file, report
from ingot.runtime.executable import Executable
from ingot.runtime.package import Package
from ingot.shapes import named_sizes
from ingot.support import lazy, options, progress
from ingot.support.dump import Dump
from ingot.support.errors import IngotError
from ingot.support.limits import Limits


@command("compile")
@click.option(
    "--dump",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the IR after each stage; default: INGOT_DUMP_DIR.",
)
@click.option(
    "--stop-after",
    metavar="STAGE",
    shell_complete=complete_stage,
    help="Print the IR after this stage and stop.",
)
@click.option(
    "--start-from",
    metavar="STAGE",
    shell_complete=complete_stage,
    help="Start at this stage; MODEL is a dump of its input IR.",
)
@click.option(
    "--save",
    type=NewFile(),
    help="Write a plan file, for ingot run and ingot.load; FILE.c with --target c: C code.",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="After this time, use simpler schedules and a lower LLVM level.",
)
@click.option(
    "--memory-limit",
    "memory_limit_bytes",
    metavar="SIZE",
    callback=size_bytes,
    help="The same, when compiling uses this much memory: 500MB, 2GB, 2GiB.",
)
@OUTPUT_OPTION
def compile_command(
    model: Path, target: str, shapes: Shapes, outputs: tuple[str, ...], state: dict[str, str],
    capacity: int | None,
    threads: int | None, jobs: int | None, dump: Path | None, stop_after: str | None,
    start_from: str | None, save: Path | None, time_limit_s: float | None,
    memory_limit_bytes: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Compile MODEL and print a report of its kernels."""
    start = time.perf_counter()
    limits = Limits(time_limit_s, memory_limit_bytes)
    pipeline = lazy.load("pipeline")
    record = Dump(dump or options.current().dump_dir)
    with progress.shown(delay_s=0):
        sizes = shapes if start_from else named_sizes(model, shapes)
        session = api.make_session(
            target, sizes, state, jobs, record, capacity=capacity, outputs=outputs
        )
        session.limits = limits
        check_stage(session, "--start-from", start_from)
        check_stage(session, "--stop-after", stop_after)
        made = pipeline.run_stages(
            _read(model, start_from, session), session, start_from, stop_after
        )
    seconds = time.perf_counter() - start
    asked = api.key_options(target, sizes, state, capacity=capacity, outputs=outputs)
    request = None if start_from else cache.request(model, asked)
    if request is not None and isinstance(made, Package) and not limits.notes:
        made = cache.keep(request, made, session.store.files)
    if not isinstance(made, Package):
        text = pipeline.show(made)
        print_json({"stage": stop_after, "text": text}) if as_json else click.echo(text, nl=False)
        return
    if save is not None:
        _save(made, save, session.backend)
    obstacle = session.backend.why_not_here(session.target)
    exe = None if obstacle else Executable(made, threads)
    if as_json:
        print_json(_as_data(made, exe, obstacle, record, seconds))
    else:
        _print(made, exe, obstacle, record, seconds)


def _save(made: Package, path: Path, backend: Any) -> None:
    """As a plan file, or in a format of the back end's own where the name ends in its suffix."""
    export = _exports(backend).get(path.suffix)
    if export is not None:
        export(made, path)
        return
    for other in backends.installed():
        if path.suffix in _exports(other.loaded):
            what = f"a package of the back end {backend.name} is no {path.suffix} file"
            hint = f"--target {other.plugin.name}, or another suffix for a plan file"
            raise IngotError("bad-option", what, where=str(path), hint=hint)
    plan_file.save(str(path), made)


def _exports(backend: Any) -> Any:
    return getattr(backend, "exports", {})  # few back ends have any


def _read(model: Path, start_from: str | None, session: Any) -> Any:
    """The pipeline's input: a model, or the dumped text of an IR and its constants file."""
    pipeline = lazy.load("pipeline")
    at = 0 if start_from is None else pipeline.position(session.stages, start_from)
    kind = session.stages[at].takes
    if kind == "model":
        return model
    constants = model.parent / pipeline.CONSTANTS_FILE
    try:
        if constants.exists():
            session.store.load(constants)
        return pipeline.parse(model.read_text(encoding="utf-8"), kind)
    except (UnicodeDecodeError, ValueError, zipfile.BadZipFile) as error:
        what = f"{model} is not a dump of a {kind}"
        why = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
        hint = "ingot compile MODEL --dump FOLDER writes the dumps that --start-from reads"
        raise IngotError("bad-text", what, where=start_from or "", why=why, hint=hint) from error


def _print(
    made: Package, exe: Executable | None, obstacle: str, record: Dump, seconds: float
) -> None:
    if exe is None:
        click.echo(f"package {made.name}, not for this machine: {obstacle}\n")
    else:
        click.echo(f"{exe!r}\n")
        print_table(("memory", "bytes"), [(name, str(n)) for name, n in exe.memory.items()])
        click.echo()
    print_times(record)
    click.echo()
    for note in made.notes:
        click.echo(note)
    threads = exe.threads if exe is not None else 1
    print_table(report.HEAD, report.lines(made.report, made.machine_model, threads))
    for line in (*report.in_float(made.report), *report.refused_steps(made.report)):
        click.echo(line)
    click.echo(f"\ncompiled in {seconds:.2f} s")


def _as_data(
    made: Package, exe: Executable | None, obstacle: str, record: Dump, seconds: float
) -> dict[str, Any]:
    names = ("kernel", "family", "parallel_extent", "lanes", "tile", "flops", "arg_bytes",
             "why_serial", "why_scalar", "why_float", "plan", "remarks", "layouts",
             "origin")  # fmt: skip
    threads = exe.threads if exe is not None else 1
    model = made.machine_model
    return {
        "name": made.name,
        "runs_here": exe is not None,
        "why_not": obstacle,
        "inputs": ports(made.inputs if exe is None else (x.port for x in exe.inputs)),
        "outputs": ports(made.outputs if exe is None else (x.port for x in exe.outputs)),
        "memory_bytes": exe.memory if exe is not None else None,
        "notes": list(made.notes),
        "stages_s": record.times_s,
        "kernels": [
            {
                **{name: getattr(row, name) for name in names},
                "predicted_us": row.predicted_us(model, threads, {}) if model else None,
            }
            for row in made.report
        ],
        "seconds": seconds,
    }
