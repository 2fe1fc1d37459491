"""Attention as exporters write it: scores stay in scratch, and outputs are ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import ingot
from ingot import api, dtypes, pipeline
from ingot.arith import expr as arith
from ingot.legalize.split_kernels import split_kernel
from ingot.loops import ir as loops_ir
from ingot.loops import visit
from ingot.program import interp as program_interp
from ingot.program import ir
from ingot.schedule.default import schedule_kernel
from ingot.support import options
from ingot.target import parse
from tests.models.peers import assert_agree, onnxruntime_answers

Dims = Sequence[int | str]
NARROW = -1e4


@dataclass(frozen=True)
class Case:
    """softmax(q·kᵀ)·v with steps, each "Op a b -> c", before, between and after."""

    q: Dims
    k: Dims
    v: Dims
    steps: str
    others: Mapping[str, tuple[str, Dims]] = field(default_factory=dict)
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    dtype: type = np.float32
    is_fused: bool = True
    sizes: tuple[Mapping[str, int], ...] = ({},)
    tolerance: float = 1e-5

    @property
    def matrices(self) -> dict[str, Dims]:
        return {name: dims for name, dims in zip("qkv", (self.q, self.k, self.v)) if dims}


HALF = np.array(0.5, np.float32)
LOW = np.array(-1e9, np.float32)
ZERO = np.array(0, np.float32)
HEADS, KEYS = (2, 3, 40, 16), (2, 3, 16, 40)

PLAIN = "MatMul q k -> s; Softmax s -> p; MatMul p v -> y"
CASES = {
    "plain": Case(HEADS, KEYS, HEADS, PLAIN),
    "whole vectors": Case((1, 2, 48, 32), (1, 2, 32, 48), (1, 2, 48, 64), PLAIN),
    "rank 3": Case((5, 25, 8), (5, 8, 33), (5, 33, 24), PLAIN),
    "rank 2": Case((70, 8), (8, 21), (21, 9), PLAIN),
    "one head": Case((1, 1, 30, 16), (1, 1, 16, 40), (1, 1, 40, 16), PLAIN),
    "axes of one step": Case((3, 1, 1, 30, 8), (3, 1, 1, 8, 40), (3, 1, 1, 40, 8), PLAIN),
    "scales before": Case(
        HEADS, KEYS, HEADS,
        "Mul q h -> a; Mul k h -> b; MatMul a b -> s; Softmax s -> p; MatMul p v -> y",
        constants={"h": HALF},
    ),
    "scale after, mask added": Case(
        HEADS, KEYS, HEADS,
        "MatMul q k -> s; Mul s h -> t; Add t m -> u; Softmax u -> p; MatMul p v -> y",
        {"m": ("bias", (2, 1, 1, 40))}, {"h": HALF},
    ),
    "mask of each row": Case(
        HEADS, KEYS, HEADS,
        "MatMul q k -> s; Div s h -> t; Add t m -> u; Softmax u -> p; MatMul p v -> y",
        {"m": ("bias", (1, 1, 40, 40))}, {"h": HALF},
    ),
    "chosen by a mask": Case(
        HEADS, KEYS, HEADS,
        "MatMul q k -> s; Where m s low -> t; Softmax t -> p; MatMul p v -> y",
        {"m": ("bool", (2, 1, 40, 40))}, {"low": LOW},
    ),
    "causal": Case(
        HEADS, KEYS, HEADS,
        "MatMul q k -> s; Where m s low -> t; Softmax t -> p; MatMul p v -> y",
        constants={"low": np.array(-np.inf, np.float32),
                   "m": np.tril(np.ones((1, 1, 40, 40), bool))},
    ),
    "rows of nothing": Case(
        HEADS, KEYS, HEADS,
        "MatMul q k -> s; Add s m -> u; Softmax u -> p; IsNaN p -> n; Where n zero p -> r; "
        "MatMul r v -> y",
        {"m": ("nothing", (2, 1, 40, 1))}, {"zero": ZERO},
    ),
    "other keys": Case((1, 4, 60, 24), (1, 4, 24, 77), (1, 4, 77, 40), PLAIN),
    "awkward sizes": Case((1, 3, 37, 15), (1, 3, 15, 29), (1, 3, 29, 15), PLAIN),
    "one number a token": Case((1, 2, 30, 1), (1, 2, 1, 40), (1, 2, 40, 8), PLAIN),
    "fewer keys than a vector": Case((1, 2, 26, 5), (1, 2, 5, 3), (1, 2, 3, 6), PLAIN),
    "tokens outside": Case(
        (2, 40, 3, 16), (2, 40, 3, 16), (2, 40, 3, 16),
        "Transpose q 0213 -> a; Mul a h -> b; Transpose k 0231 -> c; MatMul b c -> s; "
        "Softmax s -> p; Transpose v 0213 -> w; MatMul p w -> o; Transpose o 0213 -> y",
        constants={"h": HALF},
    ),
    "residual after": Case(
        HEADS, KEYS, HEADS, PLAIN.replace("-> y", "-> o") + "; Add o q -> r; Relu r -> y"
    ),
    "grouped heads": Case(
        (2, 6, 40, 16), (2, 2, 1, 16, 40), (2, 2, 1, 40, 16),
        "Expand k ks -> ke; Reshape ke kr -> kk; Expand v vs -> ve; Reshape ve vr -> vv; "
        "MatMul q kk -> s; Softmax s -> p; MatMul p vv -> y",
        constants={"ks": np.array([2, 2, 3, 16, 40]), "kr": np.array([2, 6, 16, 40]),
                   "vs": np.array([2, 2, 3, 40, 16]), "vr": np.array([2, 6, 40, 16])},
    ),
    "one set of keys": Case((2, 6, 40, 16), (2, 1, 16, 40), (2, 1, 40, 16), PLAIN),
    "softmax in small operators": Case(
        HEADS, KEYS, HEADS,
        "MatMul q k -> s; ReduceMax s last -> top; Sub s top -> d; Exp d -> e; "
        "ReduceSum e last -> sum; Div e sum -> p; MatMul p v -> y",
        constants={"last": np.array([-1])},
    ),
    "f16": Case(HEADS, KEYS, HEADS, PLAIN, dtype=np.float16, tolerance=5e-3),
    "f16 with a mask": Case(
        HEADS, KEYS, HEADS, "MatMul q k -> s; Add s m -> u; Softmax u -> p; MatMul p v -> y",
        {"m": ("bias", (2, 1, 1, 40))}, dtype=np.float16, tolerance=5e-3,
    ),
    "f64": Case(HEADS, KEYS, HEADS, PLAIN, dtype=np.float64),
    "dynamic length": Case(
        (1, 2, "n", 16), (1, 2, 16, "n"), (1, 2, "n", 16),
        "MatMul q k -> s; Add s m -> u; Softmax u -> p; MatMul p v -> y",
        {"m": ("bias", (1, 1, 1, "n"))},
        sizes=({"n": 40}, {"n": 1}, {"n": 7}, {"n": 64}, {"n": 129}),
    ),
    "dynamic batch, rows and keys": Case(
        ("b", 3, "n", 12), ("b", 3, 12, "m"), ("b", 3, "m", 20), PLAIN,
        sizes=({"b": 2, "n": 9, "m": 31}, {"b": 1, "n": 33, "m": 8}),
    ),
    "constant matrices": Case(
        (2, 40, 16), (), (),
        "MatMul q w -> s; Softmax s -> p; MatMul p u -> y",
        constants={"w": np.cos(np.arange(16 * 21, dtype=np.float32)).reshape(16, 21),
                   "u": np.sin(np.arange(21 * 9, dtype=np.float32)).reshape(21, 9)},
    ),
    "one column": Case(HEADS, KEYS, (2, 3, 40, 1), PLAIN, is_fused=False),
    "one key": Case(HEADS, (2, 3, 16, 1), (2, 3, 1, 16), PLAIN, is_fused=False),
    "one row": Case((2, 3, 1, 16), KEYS, HEADS, PLAIN, is_fused=False),
    "seen scores": Case(
        HEADS, KEYS, HEADS, PLAIN + "; Identity s -> z", is_fused=False
    ),
    "softmax of columns": Case(
        HEADS, KEYS, HEADS, "MatMul q k -> s; Softmax/2 s -> p; MatMul p v -> y", is_fused=False
    ),
    "scores on the right": Case(
        HEADS, KEYS, (2, 3, 16, 40), "MatMul q k -> s; Softmax s -> p; MatMul v p -> y",
        is_fused=False,
    ),
}  # fmt: skip


def model(case: Case) -> onnx.ModelProto:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(case.dtype))
    shapes: dict[str, tuple[int, Dims]] = {n: (code, dims) for n, dims in case.matrices.items()}
    for name, (what, dims) in case.others.items():
        shapes[name] = (onnx.TensorProto.BOOL if what == "bool" else code, dims)
    nodes = [_node(step.split()) for step in case.steps.split("; ")]
    ends = [name for name in ("y", "z") if any(name in n.output for n in nodes)]
    constants = [
        numpy_helper.from_array(a.astype(case.dtype) if a.dtype.kind == "f" else a, name)
        for name, a in case.constants.items()
    ]
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info(name, *rest) for name, rest in shapes.items()],
        [helper.make_empty_tensor_value_info(name) for name in ends],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _node(words: list[str]) -> onnx.NodeProto:
    (op, _, axis), (*inputs, _, out) = words[0].partition("/"), words[1:]
    attrs: dict = {}
    if op == "Transpose":
        attrs["perm"] = [int(digit) for digit in inputs.pop()]
    elif op == "Softmax":
        attrs["axis"] = int(axis or -1)
    return helper.make_node(op, inputs, [out], **attrs)


def feeds(case: Case, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    kinds = {n: ("normal", dims) for n, dims in case.matrices.items()} | dict(case.others)
    found = {}
    for name, (what, dims) in kinds.items():
        draw = rng.standard_normal([sizes[d] if isinstance(d, str) else d for d in dims])
        match what:
            case "bool":
                found[name] = draw > -0.5
            case "bias":
                found[name] = np.where(draw > 0.5, NARROW, draw).astype(case.dtype)
            case "nothing":
                found[name] = np.where(draw > 0.5, -np.inf, 0).astype(case.dtype)
            case _:
                found[name] = draw.astype(case.dtype)
    return found


def lowered(case: Case, stage: str) -> ir.Program:
    return pipeline.run_stages(model(case), api.make_session(), stop_after=stage)


@pytest.mark.parametrize("name", CASES)
def test_attention_agrees_with_onnxruntime(name: str):
    case = CASES[name]
    with options.override(opt_level=1):  # LLVM takes half the time then
        exes = [ingot.compile(model(case), threads=threads) for threads in (1, 2)]
    for sizes in case.sizes:
        given = feeds(case, sizes)
        want = onnxruntime_answers(model(case), given)
        alone, shared = (exe.run(None, given) for exe in exes)
        for a, b, c in zip(alone, shared, want):
            assert np.array_equal(a, b, equal_nan=True), "the number of threads is seen"
            assert_agree(a, c, case.tolerance)


SIZES = {"b": 3, "n": 301, "m": 211}


def largest_buffer(program: ir.Program) -> int:
    temporaries = [b for b in program.buffers if b.storage is ir.Storage.TEMP]
    counts = [arith.evaluate(arith.product(list(b.shape)), SIZES) for b in temporaries]
    return max([0, *counts])


def scores(case: Case) -> int:
    """How many there are: elements of the first product."""
    graph = pipeline.run_stages(model(case), api.make_session(), stop_after="choose_layouts")
    product = next(n for n in graph.nodes if n.op == "matmul")
    return arith.evaluate(arith.product(list(product.outputs[0].shape)), SIZES)


@pytest.mark.parametrize("name", CASES)
def test_no_buffer_is_as_large_as_the_scores(name: str):
    case = CASES[name]
    program = lowered(case, "split_kernels")
    families = {kernel.family for _, kernel in program.kernels}
    assert ("attention" in families) == case.is_fused
    assert (largest_buffer(program) < scores(case)) == case.is_fused


def test_each_gemm_alone_is_the_alternative():
    (kernel,) = (k for _, k in lowered(CASES["plain"], "dedupe_kernels").kernels)
    found = [[x.algorithm for x in plan.choices][:2] for _, plan in kernel.plans]
    assert found == [["attention", "gemm"]] * 2


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v4", "aarch64"])
def test_panels_follow_the_target(target: str):
    (kernel,) = (k for _, k in lowered(CASES["dynamic length"], "dedupe_kernels").kernels)
    sch = schedule_kernel(kernel, parse(target), "attention")
    assert {plan.algorithm for plan in sch.plans.values()} == {"attention"}
    (panels,) = split_kernel(sch.kernel).temporaries
    width = arith.as_int(panels.shape[-1])
    assert width is not None and width % parse(target).lanes(dtypes.f32) == 0


@pytest.mark.parametrize("k_unroll", [1, 4])
def test_k_loops_of_both_gemms_are_unrolled(k_unroll: int):
    with options.override(k_unroll=k_unroll):
        (kernel,) = (k for _, k in lowered(CASES["whole vectors"], "dedupe_kernels").kernels)
        sch = schedule_kernel(kernel, parse("x86-64-v3"), "attention")
    loops = [s for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, loops_ir.For)]
    assert sum((loops_ir.K_UNROLL, 4) in x.annotations for x in loops) == (
        2 if k_unroll == 4 else 0
    )


def test_it_can_be_switched_off():
    with options.override(off={"attention"}):
        program = lowered(CASES["plain"], "split_kernels")
    assert "attention" not in {kernel.family for _, kernel in program.kernels}
    assert largest_buffer(program) >= scores(CASES["plain"])


def test_the_program_interpreter_agrees():
    case = CASES["awkward sizes"]
    given = feeds(case, {})
    session = api.make_session()
    program = pipeline.run_stages(model(case), session, stop_after="barriers")
    got = program_interp.run(program, session.store, given)
    assert_agree(got[0], onnxruntime_answers(model(case), given)[0], 1e-5)


def fused_qkv(tokens: int = 40, heads: int = 2, key: int = 16, value: int = 32) -> onnx.ModelProto:
    """Q, K and V as slices of one GEMM's output, as LeViT and GPT-2 have them."""
    width = heads * (2 * key + value)
    parts = [("q", 0, key), ("k", key, 2 * key), ("v", 2 * key, 2 * key + value)]
    constants = {
        "w": np.random.default_rng(0).standard_normal((24, width)).astype(np.float32) / 5,
        "shape": np.array([1, tokens, heads, 2 * key + value]),
        "axis": np.array([3]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["qkv"]),
        helper.make_node("Reshape", ["qkv", "shape"], ["split"]),
    ]
    for name, start, stop in parts:
        constants |= {f"{name}0": np.array([start]), f"{name}1": np.array([stop])}
        cut = ["split", f"{name}0", f"{name}1", "axis"]
        nodes.append(helper.make_node("Slice", cut, [f"{name}s"]))
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes.append(helper.make_node("Transpose", [f"{name}s"], [name], perm=perm))
    nodes += [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"]),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "fused_qkv",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, tokens, 24])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, heads, tokens, value])],
        [numpy_helper.from_array(a, name) for name, a in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_slices_of_one_buffer_are_packed(target: str):
    """Else K is gathered with the stride of a token: five times as long."""
    program = pipeline.run_stages(
        fused_qkv(), api.make_session(target, {}, jobs=1), stop_after="schedule"
    )
    (kernel,) = [k for _, k in program.kernels if k.family == "attention"]
    first, _ = [plan for _, plan in kernel.plans]
    assert first.algorithm == "attention" and first.packing is not None
    assert first.packing.by == "kernel"


def test_packed_slices_agree_with_onnxruntime():
    model = fused_qkv()
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 40, 24)).astype(np.float32)}
    exe = ingot.compile(model)
    for exe.threads in (1, 2):
        (got,), (want,) = exe.run(None, feeds), onnxruntime_answers(model, feeds)
        assert_agree(got, want, 1e-5)
