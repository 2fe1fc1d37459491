"""A folder that shows one wrong stage, and needs nothing but Ingot: `python repro.py`.

    before.txt      the IR before the stage        constants.npz   its constants
    arrays.npz      inputs and exact outputs       repro.py        runs the stage, compares

In: what stages.py found. `replay` is what repro.py calls: it runs the stage on the text, interprets
the result or runs the code, and returns exit code 1 if that is still wrong, else 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ingot import pipeline
from ingot.dtypes import DType
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.inspect.case import Case, Failure, Outcome, Setting, stages
from ingot.inspect.difference import Difference, Expected
from ingot.inspect.imported import check_import
from ingot.inspect.stages import Finding, judge
from ingot.program import ir as program_ir
from ingot.support.options import Options, changed, differing, using

BEFORE, CONSTANTS, ARRAYS, SCRIPT = "before.txt", "constants.npz", "arrays.npz", "repro.py"
MODEL = "model.onnx"
_SCRIPT = '''"""{about}

    python repro.py        exit code 1: it is still wrong, 0: it is right

before.txt is the {kind} before the stage {stage}, constants.npz has its constants, arrays.npz the
inputs and the exact outputs.
"""

from pathlib import Path

from ingot.inspect.reproducer import replay

FOLDER, OPTIONS = Path(__file__).parent, {options!r}
raise SystemExit(replay(FOLDER, {stage!r}, {until!r}, {target!r}, {threads}, OPTIONS))
'''


def save_reproducer(folder: Path, finding: Finding, setting: Setting, about: str) -> Path:
    """Write the folder; returns its script."""
    folder.mkdir(parents=True, exist_ok=True)
    before, store = finding.before, finding.store.copy()
    store.drops_unused = True
    store.retain(pipeline.constants_of(before))
    (folder / BEFORE).write_text(pipeline.show(before), encoding="utf-8")
    store.save(folder / CONSTANTS)
    np.savez(folder / ARRAYS, **_arrays(finding.expected))  # type: ignore[arg-type]
    script = folder / SCRIPT
    kind = "graph" if isinstance(before, Graph) else "program"
    options = differing(setting.options)
    text = _SCRIPT.format(
        about=_quoted(about), kind=kind, options=options,
        stage=finding.stage, until=finding.until, target=setting.target, threads=setting.threads,
    )  # fmt: skip
    script.write_text(text, encoding="utf-8")
    return script


def _arrays(expected: Expected) -> dict[str, np.ndarray]:
    """By role and position; names are in the text."""
    made = {f"feed {i}": a for i, a in enumerate(expected.feeds.values())}
    for role, arrays in (
        ("exact", expected.exact), ("own", expected.own), ("moved", expected.moved()),
    ):  # fmt: skip
        made |= {f"{role} {i}": a for i, a in enumerate(arrays)}
    stored = {key: _storable(array) for key, array in made.items()}
    return {**stored, "reads_floats": np.array(expected.reads_floats)}


def _storable(array: np.ndarray) -> np.ndarray:
    """Extension types as wider ones, strings without objects: nothing is pickled."""
    if array.dtype.kind == "O":
        return array.astype(str)
    return array.astype(np.float64) if array.dtype.kind == "V" else array


def _restored(array: np.ndarray, dtype: DType) -> np.ndarray:
    return array.astype(object) if dtype.is_string else array.astype(dtype.numpy)


def replay(
    folder: Path, stage: str, until: str, target: str, threads: int | None,
    options: Mapping[str, Any],
) -> int:  # fmt: skip
    """Run the stages from one to another on the saved IR, and compare: an exit code."""
    chosen = changed(**options)
    with using(chosen):  # the runtime reads some when it loads code
        outcome = rerun(folder, stage, until, target, threads, chosen)
    for difference in outcome.differences:
        verdict = "WRONG" if difference.is_wrong else "right"
        print(f"{difference.name}: {verdict}: {difference}")
    if outcome.failure is not None:
        print(f"{outcome.failure.stage}: {outcome.failure}")
    return int(outcome.is_wrong)


def rerun(
    folder: Path, stage: str, until: str, target: str, threads: int | None, options: Options
) -> Outcome:
    store = ConstantStore()
    store.load(folder / CONSTANTS)
    session = Setting(options, target, threads).session(store)
    kind = session.stages[pipeline.position(session.stages, stage)].takes
    before = pipeline.parse((folder / BEFORE).read_text(encoding="utf-8"), kind)
    expected = _expected(folder, before)
    done = stages(before, session, stage)
    name, after, error = next(row for row in done if row[0] == until or row[2] is not None)
    if error is not None:
        return Outcome(failure=Failure(name, error))
    return judge(expected, until, after, session.store, threads)


def _expected(folder: Path, value: Graph | program_ir.Program) -> Expected:
    if isinstance(value, Graph):
        inputs = {v.name: v.dtype for v in value.inputs}
        outputs = [(v.name, v.dtype) for v in value.outputs]
    else:
        buffers = value.buffer_map
        inputs = {name: buffers[name].dtype for name in value.inputs}
        outputs = [
            (label, buffers[name].dtype) for label, name in zip(value.output_names, value.outputs)
        ]
    with np.load(folder / ARRAYS, allow_pickle=False) as data:
        saved = dict(data)
    feeds = {n: _restored(saved[f"feed {i}"], d) for i, (n, d) in enumerate(inputs.items())}
    own = [_restored(saved[f"own {i}"], dtype) for i, (_, dtype) in enumerate(outputs)]
    exact, moved = (
        [saved[f"{role} {i}"] for i in range(len(outputs))] for role in ("exact", "moved")
    )
    names = tuple(name for name, _ in outputs)
    return Expected(feeds, names, exact, own, lambda: moved, bool(saved["reads_floats"]))


# --- of an import ---------------------------------------------------------------------------------

_IMPORT_SCRIPT = '''"""{about}

    python repro.py        exit code 1: it still does, 0: it does not

model.onnx has the node, arrays.npz its operands and what ONNX Runtime makes of them.
"""

from pathlib import Path

from ingot.inspect.reproducer import replay_import

raise SystemExit(replay_import(Path(__file__).parent, {name!r}))
'''


def save_import(
    folder: Path, model: Any, name: str, known: Mapping[str, np.ndarray], about: str
) -> Path:
    """Write a model of one node and its values; returns the script."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL).write_bytes(model.SerializeToString())
    feeds = {f"feed {i}": known[v.name] for i, v in enumerate(model.graph.input)}
    arrays = {key: _storable(array) for key, array in {**feeds, "result": known[name]}.items()}
    np.savez(folder / ARRAYS, **arrays)  # type: ignore[arg-type]
    script = folder / SCRIPT
    script.write_text(_IMPORT_SCRIPT.format(about=_quoted(about), name=name), encoding="utf-8")
    return script


def replay_import(folder: Path, name: str) -> int:
    """Import the model of one node, and compare its value: an exit code."""
    found = import_difference(folder, name)
    if found is not None:
        print(f"{name}: WRONG: {found}")
    return int(found is not None)


def import_difference(folder: Path, name: str) -> Difference | None:
    """How the value differs from the other runtime's, if it does."""
    session = pipeline.open_session("cpu")
    graph = pipeline.run_stages(folder / MODEL, session, stop_after="import")
    with np.load(folder / ARRAYS, allow_pickle=False) as data:
        saved = dict(data)
    feeds = {v.name: _restored(saved[f"feed {i}"], v.dtype) for i, v in enumerate(graph.inputs)}
    return check_import(Case(graph, session.store, feeds), {name: saved["result"]}).value


def _quoted(text: str) -> str:
    """For a docstring."""
    return text.replace("\\", "\\\\").replace('"""', "'''")
