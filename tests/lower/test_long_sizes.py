"""Kernels for long sizes: a mirrored border needs no division where the input is long enough."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot import api, pipeline
from ingot.arith import expr as arith
from ingot.loops import script_print
from ingot.program import interp, ir
from ingot.program.tables import walk
from ingot.program.text import parse, show


def padded(mode: str, pads: list[int], *dims: int | str) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)], "pad",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(dims))],
        [numpy_helper.from_array(np.array(pads), "pads")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def split(model: onnx.ModelProto, stage: str = "split_variants", **shapes):
    session = api.make_session("x86-64-v3", shapes, jobs=1)
    return pipeline.run_stages(model, session, stop_after=stage), session.store


def choices(program: ir.Program) -> list[ir.IfSize]:
    return [s for s in walk(program.body) if isinstance(s, ir.IfSize)]


def divisions(program: ir.Program, kernel: str) -> int:
    """Remainders by the period of the mirror image in a kernel's text."""
    return script_print.show(program.kernel_map[kernel]).count(" % max(")


def test_the_kernel_for_long_inputs_has_no_remainder():
    program, _ = split(padded("reflect", [0, 3, 0, 9], "batch", "n"))
    (choice,) = choices(program)
    # n + 8, the last index, is below 2 * n - 2 from n = 11 on; the kernel's size is n + 12
    assert (arith.show(choice.size), choice.most) == ("n + 12", 10 + 12)
    assert choice.orelse.kernel == "pad_long" and parse(show(program)) == program


def test_a_border_at_the_end_is_mirrored_without_a_remainder():
    program, _ = split(padded("reflect", [0, 0, 0, 64], "batch", "n"), "legalize")
    (choice,) = choices(program)
    assert (arith.show(choice.size), choice.most) == ("n + 64", 65 + 64)
    assert divisions(program, "pad") > 0 and divisions(program, "pad_long") == 0


def test_sizes_that_are_long_or_static_and_other_modes_have_one_kernel():
    model = padded("reflect", [0, 0, 0, 64], "batch", "n")
    for program, _ in (
        split(model, n=(66, 4096)), split(model, n=100), split(model, n=(8, 65)),
        split(padded("wrap", [0, 2, 0, 3], "batch", "n")),
        split(padded("edge", [0, 2, 0, 3], "batch", "n")),
        split(padded("constant", [0, 2, 0, 3], "batch", "n")),
    ):  # fmt: skip
        assert not choices(program)


@pytest.mark.parametrize("n", [2, 3, 9, 10, 11, 12, 13, 40, 200])
def test_short_and_long_inputs_agree_with_numpy(n: int):
    before, after = (0, 3, 2), (1, 9, 5)
    model = padded("reflect", [*before, *after], "batch", "n", "m")
    exe = ingot.compile(model, threads=2)
    for shape in ((2, n, 7), (1, 12, n), (3, n, n)):
        x = np.random.default_rng(n).standard_normal(shape).astype(np.float32)
        want = x
        for axis, (low, high) in enumerate(zip(before, after)):
            sides = [(low, high) if k == axis else (0, 0) for k in range(3)]
            mode = "reflect" if x.shape[axis] > 1 else "edge"
            want = np.pad(want, sides, mode=mode)
        np.testing.assert_array_equal(exe(x)[0], want)
        program, store = split(model)
        np.testing.assert_array_equal(interp.run(program, store, {"x": x})[0], want)
