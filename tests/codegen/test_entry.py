"""The entry of a program with dynamic sizes: formulas are computed once, and a long one runs."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot import api, pipeline
from ingot.codegen import llvm
from ingot.codegen.llvm_program import LONG_ENTRY
from ingot.program import ir
from ingot.program.tables import walk

WEIGHT = np.random.default_rng(3).standard_normal((16, 16)).astype(np.float32) / 4


def chain(layers: int) -> onnx.ModelProto:
    """Matrix products of `rows` and half of them, one kernel and two buffers for each layer."""
    nodes, value = [], "x"
    for n in range(layers):
        nodes += [
            helper.make_node("MatMul", [value, "w"], [f"m{n}"]),
            helper.make_node("Softmax", [f"m{n}"], [f"s{n}"]),
        ]
        value = f"s{n}"
    nodes.append(helper.make_node("MaxPool", [value], ["y"], kernel_shape=[3], strides=[2]))
    ports = [("x", [1, "rows", 16]), ("y", [1, None, None])]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ports]
    graph = helper.make_graph(
        nodes, "chain", values[:1], values[1:], [numpy_helper.from_array(WEIGHT, "w")]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def entry(layers: int) -> tuple[str, int]:
    session = api.make_session("x86-64-v3")
    last = pipeline.last_program_stage(session.stages)
    program = pipeline.run_stages(chain(layers), session, stop_after=last)
    text = llvm.entry_text(program, session.target)
    return text[: text.index("@next_chunk(ptr %sync")], len(program.kernels)


def test_a_size_is_computed_once_however_many_launches_need_it():
    few, many = (entry(n)[0].count("div i64") for n in (4, 40))
    assert few > 0
    assert many <= few


def test_an_entry_that_llvm_does_not_optimise_gives_the_same_values():
    layers = LONG_ENTRY + 8
    exe = ingot.compile(chain(layers), threads=2)
    x = np.random.default_rng(4).standard_normal((1, 37, 16)).astype(np.float32)
    value = x.astype(np.float64)
    for _ in range(layers):
        value = np.exp(value @ WEIGHT)
        value /= value.sum(-1, keepdims=True)
    (y,) = exe(x)
    expected = np.stack([value[..., i : i + 3].max(-1) for i in range(0, 14, 2)], -1)
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def steps(rows: int | str) -> onnx.ModelProto:
    """Short and long launches in turn: a softmax over 16 columns, and 1024 products of them."""
    nodes, value = [], "x"
    for n in range(3):
        nodes += [
            helper.make_node("Softmax", [value], [f"s{n}"]),
            helper.make_node("MatMul", [f"s{n}", "wide"], [f"m{n}"]),
            helper.make_node("MatMul", [f"m{n}", "back"], [f"b{n}"]),
        ]
        value = f"b{n}"
    seed = np.random.default_rng(5)
    weights = {"wide": seed.standard_normal((16, 1024)), "back": seed.standard_normal((1024, 16))}
    initial = [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()]
    ports = [("x", [rows, 16]), (value, [rows, 16])]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ports]
    graph = helper.make_graph(nodes, "steps", values[:1], values[1:], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def barriers(rows: int | str) -> tuple[int, int]:
    """Barriers of the program, and calls in the entry."""
    session = api.make_session("x86-64-v3", jobs=1)
    last = pipeline.last_program_stage(session.stages)
    program = pipeline.run_stages(steps(rows), session, stop_after=last)
    wanted = sum(isinstance(s, ir.Barrier) for s in walk(program.body))
    return wanted, llvm.entry_text(program, session.target).count("call i1 @barrier")


def test_a_barrier_that_sizes_make_needless_is_passed_on_demand():
    """A static program knows at each barrier which threads run; a dynamic one also asks before each
    launch that its sizes may split."""
    wanted, calls = barriers(64)
    assert calls == wanted
    wanted, calls = barriers("rows")
    assert calls > wanted


def test_no_bit_depends_on_which_launches_are_split():
    """At 1 row thread 0 runs alone, at some sizes only the long launches are split, then all."""
    exe, bits = ingot.compile(steps("rows")), {}
    for _ in range(40):
        for exe.threads in (1, 2, 3):
            for rows in (1, 5, 64, 1, 300):
                x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
                got = exe(x)[0].tobytes()
                assert bits.setdefault(rows, got) == got
