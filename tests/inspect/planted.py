"""Bugs of different kinds, most of them of the compiler, each planted by replacing one function.

`BUGS` has for each what it replaces, a model and inputs that it spoils, and the stage and node that
`verify` must name. A bug lives in a process of its own, because compiled kernels are kept there:

    python -m tests.inspect.planted BUG FOLDER       verify the model; the report as JSON
    python -m tests.inspect.planted BUG repro.py     run a script, such as a reproducer
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ingot import dtypes
from ingot.codegen import llvm_values
from ingot.frontends.onnx import registry
from ingot.inspect.verify import verify
from ingot.legalize.math import exponential
from ingot.loops import build
from ingot.lower import lower
from ingot.ops import reduce
from ingot.passes import merge_common, simplify_algebra
from ingot.plan import barriers, lifetimes

split = import_module("ingot.schedule.primitives.split")  # its package has a function of this name
Feeds = dict[str, np.ndarray]
Model = tuple[bytes, Feeds]


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def model(nodes: list[tuple], feeds: Feeds, outputs: list[str], **constants: np.ndarray) -> Model:
    """Nodes are (operator, operands, result, attributes), and have the names of their results."""
    made = [
        helper.make_node(op, operands.split(), [out], name=out, **dict(*attrs))
        for op, operands, out, *attrs in nodes
    ]
    kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.uint8): TensorProto.UINT8}
    inputs = [
        helper.make_tensor_value_info(n, kinds[a.dtype], list(a.shape)) for n, a in feeds.items()
    ]
    graph = helper.make_graph(
        made,
        "planted",
        inputs,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(proto).SerializeToString(), feeds


@dataclass(frozen=True)
class Bug:
    owner: Any
    name: str
    wrong: Callable[[Callable], Any]  # the function as it is → the one that replaces it
    make: Callable[[], Model]
    stage: str
    node: str
    against: str = "interpreter"

    def plant(self) -> None:
        setattr(self.owner, self.name, self.wrong(getattr(self.owner, self.name)))


# --- the bugs -------------------------------------------------------------------------------------


def looks_at_the_first_element(right):
    """x * c → x where c begins with 1."""

    def is_all(edit, value, number):
        array = edit.constant(value)
        return array is not None and array.reshape(-1)[0] == number

    return is_all


def free_too_early(right):
    """A buffer may lie where an operand of the same launch lies."""
    return lambda self, other: self.first < other.last and other.first < self.last


def one_lane_less(right):
    """The mask of a tail leaves out its last element."""
    return lambda self, count, width: right(self, count - 1, width)


def no_barrier(right):
    return lambda wait, s: s


def another_coefficient(right):
    """A polynomial of exp with a wrong digit."""
    return (right[0], right[1] * 1.01, *right[2:])


def attributes_do_not_matter(right):
    """Two nodes with the same operands may be merged."""
    return lambda node: right(node)[:4] if node.inputs else right(node)


def swapped_in_panels(right):
    """Panels of packed weights hold their columns in the opposite order."""

    def pack_into(layout, array, out):
        right(layout, array, out)
        out[...] = out[..., ::-1].copy()

    return pack_into


def whole_tiles_only(right):
    """The tiles of a split end before the remainder."""

    def counts(loop, factors, analyzer):
        found, _ = right(loop, factors, analyzer)
        known = np.prod([f for f in factors if f is not None])
        return tuple(
            analyzer.simplify(loop.extent // int(known)) if f is None else c
            for f, c in zip(factors, found)
        ), True

    return counts


def zero_for_all(right):
    """The identity of max is 0, as if nothing were negative."""
    return lambda op, dtype: build.ir.Lit(0.0, dtype) if op == "max" else right(op, dtype)


def bytes_have_a_sign(right):
    def cast(self, a, source, target, *rest):
        return right(self, a, dtypes.i8 if source is dtypes.u8 else source, target, *rest)

    return cast


def forgets_alpha(right):
    """An attribute of the file is not read."""
    return lambda self, name, default=None: (
        default if name == "alpha" else right(self, name, default)
    )


def scaled() -> Model:
    nodes = [
        ("Relu", "x", "before"), ("Mul", "before factor", "scale"), ("Tanh", "scale", "after"),
        ("ReduceSum", "after", "total"),
    ]  # fmt: skip
    return model(nodes, {"x": floats(3, 6)}, ["total"], factor=np.arange(1, 7, dtype=np.float32))


def products(size: int = 64) -> Model:
    nodes = [
        ("MatMul", "x w", "first"), ("MatMul", "first w", "second"),
        ("MatMul", "second w", "third"), ("Add", "first third", "sum"),
        ("MatMul", "sum w", "last"),
    ]  # fmt: skip
    w = floats(size, size) / np.float32(size**0.5)
    return model(nodes, {"x": floats(2, size)}, ["last"], w=w)


def two_products() -> Model:
    nodes = [("MatMul", "x w", "first"), ("MatMul", "first w", "second")]
    return model(nodes, {"x": floats(8, 64)}, ["second"], w=floats(64, 64))


def odd_columns() -> Model:
    nodes = [
        ("Abs", "x", "positive"), ("Sqrt", "positive", "root"), ("MatMul", "root w", "odd"),
        ("ReduceSum", "odd", "total"),
    ]  # fmt: skip
    return model(nodes, {"x": floats(4, 16)}, ["total"], w=floats(16, 21))


def exponentials() -> Model:
    nodes = [
        ("Abs", "x", "positive"), ("Neg", "positive", "minus"), ("Exp", "minus", "decay"),
        ("ReduceSum", "decay", "total"),
    ]  # fmt: skip
    return model(nodes, {"x": floats(4, 16)}, ["total"])


def two_slopes() -> Model:
    nodes = [
        ("Tanh", "x", "before"), ("LeakyRelu", "before", "gentle", {"alpha": 0.1}),
        ("LeakyRelu", "before", "steep", {"alpha": 0.7}), ("Sub", "gentle steep", "difference"),
    ]  # fmt: skip
    return model(nodes, {"x": floats(4, 16)}, ["difference"])


def maxima() -> Model:
    nodes = [
        ("Abs", "x", "positive"), ("Neg", "positive", "minus"),
        ("ReduceMax", "minus", "largest", {"axes": [1]}), ("Exp", "largest", "after"),
    ]  # fmt: skip
    return model(nodes, {"x": floats(4, 16) + 5}, ["after"])


def from_bytes() -> Model:
    nodes = [
        ("Cast", "x", "numbers", {"to": TensorProto.FLOAT}), ("Mul", "numbers scale", "scaled"),
        ("ReduceSum", "scaled", "total", {"keepdims": 0}),
    ]  # fmt: skip
    image = np.arange(96, 160, dtype=np.uint8).reshape(4, 16)
    return model(nodes, {"x": image}, ["total"], scale=np.float32(1 / 255))


BUGS: dict[str, Bug] = {
    "rule": Bug(
        simplify_algebra, "_is_all", looks_at_the_first_element, scaled,
        "simplify_algebra", "scale",
    ),
    "legality": Bug(
        merge_common, "_key", attributes_do_not_matter, two_slopes, "merge_common", "steep"
    ),
    "import": Bug(
        registry.OnnxNode, "attr", forgets_alpha, two_slopes, "import", "gentle", "onnxruntime"
    ),
    "arena": Bug(
        lifetimes.Lifetime, "overlaps", free_too_early, products, "plan_memory", "sum"
    ),
    "tail": Bug(
        llvm_values.ValuePrinter, "_first_lanes", one_lane_less, odd_columns, "codegen", "odd"
    ),
    "barrier": Bug(barriers, "_after", no_barrier, two_products, "barriers", "second"),
    "constant": Bug(
        exponential, "_WIDE_EXP", another_coefficient, exponentials, "legalize", "decay"
    ),
    "layout": Bug(lower, "pack_into", swapped_in_panels, products, "lower", "first"),
    "tile": Bug(split, "_counts", whole_tiles_only, odd_columns, "schedule", "odd"),
    "identity": Bug(reduce, "identity", zero_for_all, maxima, "lower", "largest"),
    "cast": Bug(
        llvm_values.ValuePrinter, "_cast", bytes_have_a_sign, from_bytes, "codegen", "numbers"
    ),
}  # fmt: skip


def main(name: str, path: str) -> None:
    BUGS[name].plant()
    if path.endswith(".py"):
        runpy.run_path(path, run_name="__main__")
    model, feeds = BUGS[name].make()
    report = verify(model, feeds, threads=2, jobs=1, against=BUGS[name].against, save=path)
    print(json.dumps({**asdict(report), "is_right": report.is_right}, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
