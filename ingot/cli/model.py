"""Open a model to run: from the cache, compiled, or from a plan file.

In: a file and options. Out: an Executable, and values of its dynamic dimensions for random inputs.
Called by run.py and profile.py.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from ingot import api, cache
from ingot.cli.options import Shapes
from ingot.cli.output import compile_record
from ingot.cli.sizes import named_sizes, with_sizes, without_shapes
from ingot.runtime import plan_file
from ingot.runtime.executable import Executable
from ingot.runtime.sizes import refuse_unknown
from ingot.support import options
from ingot.support.errors import IngotError


def open_model(
    model: Path, target: str, threads: int | None, shapes: Shapes, state: dict[str, str],
    jobs: int | None, profile: bool = False,
) -> tuple[Executable, Shapes]:  # fmt: skip
    """Like ingot.compile, or ingot.load for a plan file; with a progress bar on a terminal."""
    if plan_file.is_plan(str(model)):
        if state or profile or target != "cpu":
            what = f"{model} is a plan: --target, --state and ingot profile need the model itself"
            why = "a plan is compiled already"
            hint = "give the model it was compiled from"
            raise IngotError("bad-option", what, why=why, hint=hint)
        exe = api.load(model, threads)
        refuse_unknown(exe.package, without_shapes(shapes))
        return exe, with_sizes(exe.inputs, shapes)  # for random inputs
    sizes = named_sizes(model, shapes)
    make = partial(api.compile, model, target, threads, shapes=sizes, state=state, jobs=jobs,
                   profile=profile)  # fmt: skip
    key = api.key_options(target, sizes, state, profile)
    if not sys.stderr.isatty() or cache.why(model, key).is_found:
        return make(), sizes
    with compile_record(options.current().dump_dir) as record:
        return make(dump=record), sizes
