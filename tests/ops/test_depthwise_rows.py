"""Depthwise convolutions of row-major maps, compiled, against ONNX Runtime: windows, strides,
dilations, pads and sizes of all kinds, on the targets that this machine can run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import ingot
from ingot import api, pipeline
from ingot.graph.ir import Node
from ingot.support.errors import IngotError


@dataclass(frozen=True)
class Case:
    """x is (batch, channels, *space); `prologue` and `epilogue` are operators around the Conv."""

    channels: int
    space: tuple[int, int]
    taps: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    batch: int = 1
    is_dynamic_batch: bool = False
    has_bias: bool = True
    prologue: str = ""
    epilogue: str = ""


SAME = {3: (1, 1, 1, 1), 5: (2, 2, 2, 2), 7: (3, 3, 3, 3)}
CASES = [
    Case(48, (38, 38), (5, 5), pads=SAME[5]),
    Case(48, (38, 38), (5, 5), pads=SAME[5], has_bias=False),  # no epilogue at all
    Case(40, (14, 14), (3, 3), pads=SAME[3], epilogue="HardSwish"),
    Case(64, (7, 7), (3, 3), pads=SAME[3], epilogue="Relu"),
    Case(32, (15, 15), (7, 7), pads=SAME[7]),
    Case(64, (5, 8), (4, 7), pads=(1, 3, 2, 3)),  # two maps in a tile
    Case(17, (19, 23), (3, 3), pads=SAME[3], prologue="Relu"),  # channels: no multiple of the lanes
    Case(33, (30, 45), (5, 3), strides=(2, 1), pads=(2, 1, 2, 1)),
    Case(24, (32, 32), (3, 3), strides=(2, 2), pads=SAME[3], epilogue="Relu"),
    Case(31, (29, 33), (5, 5), strides=(1, 2), pads=(2, 2, 1, 0)),
    Case(20, (33, 51), (3, 5), dilations=(2, 2), pads=(2, 4, 2, 4)),
    Case(20, (40, 21), (3, 3), dilations=(3, 1), strides=(2, 2), pads=(3, 1, 0, 0)),
    Case(32, (20, 12), (3, 3)),  # no padding: a copy of the input makes the room
    Case(16, (20, 40), (9, 1), pads=(4, 0, 4, 0)),  # a window of one column, and of one row
    Case(16, (20, 40), (1, 9), pads=(0, 4, 0, 4)),
    Case(16, (18, 50), (3, 4), pads=(1, 0, 1, 0)),  # rows are padded, columns are not
    Case(24, (9, 11), (3, 3), pads=SAME[3], batch=3),
    Case(24, (13, 40), (5, 5), pads=SAME[5], batch=2, is_dynamic_batch=True),
    Case(16, (112, 70), (3, 3), pads=SAME[3]),
]


def model_of(cases: list[Case]) -> tuple[bytes, dict[str, np.ndarray]]:
    """One model with a branch for each case, whose input and output are the model's own."""
    rng = np.random.default_rng(5)
    nodes, inputs, constants, outputs, feeds = [], [], [], [], {}
    for i, case in enumerate(cases):
        shape = (case.batch, case.channels, *case.space)
        batch = f"batch{i}" if case.is_dynamic_batch else case.batch
        inputs.append(helper.make_tensor_value_info(f"x{i}", 1, [batch, *shape[1:]]))
        feeds[f"x{i}"] = rng.standard_normal(shape, np.float32)
        sizes = {f"w{i}": (case.channels, 1, *case.taps), f"b{i}": (case.channels,)}
        for name, size in list(sizes.items())[: 1 + case.has_bias]:
            constants.append(numpy_helper.from_array(rng.standard_normal(size, np.float32), name))
        value = f"x{i}"
        if case.prologue:
            nodes.append(helper.make_node(case.prologue, [value], [f"p{i}"]))
            value = f"p{i}"
        operands = [value, f"w{i}", f"b{i}"][: 2 + case.has_bias]
        nodes.append(
            helper.make_node(
                "Conv", operands, [f"c{i}"], name=f"conv{i}", group=case.channels,
                strides=case.strides, dilations=case.dilations, pads=case.pads,
            )
        )  # fmt: skip
        value = f"c{i}"
        if case.epilogue:
            nodes.append(helper.make_node(case.epilogue, [value], [f"y{i}"]))
            value = f"y{i}"
        outputs.append(helper.make_empty_tensor_value_info(value))
    graph = helper.make_graph(nodes, "many", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model.SerializeToString(), feeds


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "cpu"])
def test_compiled_as_onnxruntime(target):
    model, feeds = model_of(CASES)
    try:
        exe = ingot.compile(model, target=target)
    except IngotError as e:
        assert e.code == "bad-target" and target != "cpu"  # this machine lacks its instructions
        return
    want = onnxruntime.InferenceSession(model).run(None, feeds)
    for case, a, b in zip(CASES, exe(**feeds), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4, err_msg=str(case))


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_every_case_stays_row_major_and_is_scheduled_so(target):
    """Without relayouts, by the plan for row-major maps, none of whose steps is refused."""
    model, _ = model_of(CASES)
    session = api.make_session(target)
    planned = pipeline.run_stages(model, session, stop_after="plan_contractions")
    assert [n.op for n in planned.nodes if n.op == "relayout" or anchor(n) == "relayout"] == []
    program = pipeline.run_stages(planned, session, start_from="lower", stop_after="schedule")
    found = {kernel.origin: kernel for _, kernel in program.kernels if kernel.plans}
    convs = [k for origin, k in found.items() if "conv" in origin]
    assert len(convs) == len(CASES)
    for kernel in convs:
        (plan,) = (plan for _, plan in kernel.plans)
        assert plan.algorithm == "depthwise_rows", (kernel.origin, str(plan))
        assert [r for r in kernel.remarks if r.about == "step"] == [], kernel.origin


def anchor(node: Node) -> str | None:
    return node.attr_map.get("anchor")


def test_a_map_keeps_its_values_to_itself():
    """NaN in one channel stays there, and lanes beyond the end of a row store nothing."""
    model, feeds = model_of([Case(20, (9, 13), (3, 3), pads=SAME[3])])
    feeds["x0"][:, 4] = np.nan
    (got,) = ingot.compile(model)(**feeds)
    assert np.isnan(got[:, 4]).all() and np.isfinite(np.delete(got, 4, axis=1)).all()
