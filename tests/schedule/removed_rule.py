"""A copy of the package without one schedule rule: its files and its rows in tables.

    python tests/schedule/removed_rule.py OUT    compiles the model below with the package that is
                                                 found first, and writes what it made to OUT

Called by test_removed_rules.py, in processes whose PYTHONPATH begins with the copy.
"""

from __future__ import annotations

import ast
import hashlib
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
TABLES = ("schedule/table.py", "backends/cpu.py")


@dataclass(frozen=True)
class Removal:
    """The files of a rule and its decision, the words of its rows, the algorithms of its plans."""

    files: tuple[str, ...]
    words: tuple[str, ...]
    algorithms: frozenset[str]


REMOVALS = {
    "winograd": Removal(
        (
            "schedule/rules/winograd.py",
            "schedule/decide/winograd.py",
            "cost/winograd.py",
            "passes/use_winograd.py",
        ),
        ("winograd",),
        frozenset({"winograd_f2"}),
    ),
    "small_m_gemm": Removal(
        ("schedule/rules/small_m_gemm.py", "cost/small_m_gemm.py"),
        ("small_m_gemm", "split_k", "column_sum"),
        frozenset({"small_m_gemm", "split_k", "column_sum"}),
    ),
    "attention": Removal(
        ("schedule/rules/attention.py", "schedule/decide/attention.py", "cost/attention.py"),
        ("attention",),
        frozenset({"attention"}),
    ),
}


def copy_without(name: str, folder: Path) -> Path:
    """`folder` with a copy of the package that lacks the rule."""
    skip = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(ROOT / "ingot", folder / "ingot", ignore=skip)
    removal = REMOVALS[name]
    for file in removal.files:
        (folder / "ingot" / file).unlink()
    for table in TABLES:
        path = folder / "ingot" / table
        path.write_text(without_rows(path.read_text(), removal.words))
    return folder


def without_rows(source: str, words: tuple[str, ...]) -> str:
    """The module without the imports and the rows (of tuples and dicts) that have one of the
    words."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        for first, last in _rows(node):
            text = "".join(lines[first - 1 : last])
            if any(word in text for word in words):
                lines[first - 1 : last] = [""] * (last - first + 1)
    return "".join(lines)


def _rows(node: ast.AST) -> list[tuple[int, int]]:
    match node:
        case ast.Import() | ast.ImportFrom():
            return [(node.lineno, node.end_lineno or node.lineno)]
        case ast.Dict(keys=keys, values=values):
            pairs = [(k, v) for k, v in zip(keys, values) if k is not None]
            return [(k.lineno, v.end_lineno or v.lineno) for k, v in pairs]
        case ast.Tuple(elts=elts) if node.end_lineno != node.lineno:
            return [(e.lineno, e.end_lineno or e.lineno) for e in elts]
    return []


# --- in the process of the copy -------------------------------------------------------------------


def model():
    """A convolution, a pointwise one, a GEMV and an attention, side by side."""
    from onnx import helper
    from onnx.numpy_helper import from_array

    rng = np.random.default_rng(0)
    arrays = {
        "w3": rng.normal(size=(64, 64, 3, 3)) / 24,
        "w1": rng.normal(size=(32, 64, 1, 1)) / 8,
    }
    nodes = [
        helper.make_node("Conv", ["image", "w3"], ["c3"], "three_by_three", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c3"], ["r3"], "after_three_by_three"),
        helper.make_node("Conv", ["image", "w1"], ["c1"], "one_by_one"),
        helper.make_node("MatMul", ["row", "matrix"], ["gemv"], "gemv"),
        helper.make_node("MatMul", ["q", "k"], ["scores"], "scores"),
        helper.make_node("Softmax", ["scores"], ["weights"], "weights"),
        helper.make_node("MatMul", ["weights", "v"], ["context"], "context"),
        helper.make_node("Softmax", ["matrix"], ["soft"], "soft"),
    ]
    inputs = {name: helper.make_tensor_value_info(name, 1, x.shape) for name, x in feeds().items()}
    outputs = [helper.make_tensor_value_info(name, 1, None)
               for name in ("r3", "c1", "gemv", "context", "soft")]  # fmt: skip
    weights = [from_array(x.astype(np.float32), name) for name, x in arrays.items()]
    return helper.make_model(
        helper.make_graph(nodes, "several", list(inputs.values()), outputs, weights)
    )


def feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = {"image": (1, 64, 56, 56), "row": (1, 256), "matrix": (256, 384),
              "q": (2, 64, 32), "k": (2, 32, 64), "v": (2, 64, 32)}  # fmt: skip
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def main(out: Path) -> None:
    """Write a row for each launch, and the outputs of a run."""
    import ingot
    from ingot import api, pipeline
    from ingot.codegen import llvm
    from ingot.program import ir
    from ingot.program.tables import tables

    session = api.make_session("x86-64-v3")
    program = pipeline.run_stages(model(), session, stop_after="barriers")
    rows = []
    for launch in tables(program).launches:
        assert isinstance(launch, ir.Launch)
        kernel = program.kernel_map[launch.kernel]
        text = hashlib.sha256(llvm.kernel_text(kernel).encode()).hexdigest()
        rows.append([launch.origin, kernel.family, text, *(p.algorithm for _, p in kernel.plans)])
    made = ingot.compile(model())(**feeds())
    arrays = {f"y{i}": x for i, x in enumerate(made)}
    lines = "\n".join("\t".join(row) for row in rows)
    np.savez(
        out, rows=np.array(lines), package=np.array(str(Path(ingot.__file__).parent)), **arrays
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
