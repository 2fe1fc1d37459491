"""The stage plan_contractions: what passes have decided reaches plans as data, and is applied."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx.helper import make_graph, make_model, make_node, make_tensor_value_info
from onnx.numpy_helper import from_array

import ingot
from ingot import api, dtypes, pipeline
from ingot.backends.plan_contractions import given_by, plan_contractions
from ingot.cost.plan import Blocking, ContractionPlan, Packing
from ingot.graph.ir import Graph, Node, Value, make_attrs
from ingot.graph.layouts import panels
from ingot.graph.types import tensor
from ingot.loops import ir as loops
from ingot.ops.fused import fused_node, parse_plans
from ingot.schedule.rules import apply_rules
from ingot.schedule.table import CPU_RULES
from ingot.target import parse
from tests.ops.test_winograd import model_of
from tests.refusal import is_told

AVX2 = parse("x86-64-v3")


def gemm(width: int) -> Graph:
    """A GEMM whose weights are in panels of that width."""
    x, y = Value("x", tensor(dtypes.f32, 48, 40)), Value("y", tensor(dtypes.f32, 48, 96))
    w = Value("w", replace(tensor(dtypes.f32, 40, 96), layout=panels((0,), 1, width)))
    node = fused_node([Node("matmul", (x, w), (y,))], (y,), Node("matmul", (x, w), (y,)))
    return Graph("g", (x, w), (y,), (node,))


def plans(graph: Graph) -> list[ContractionPlan]:
    texts = (n.attr("plans", ()) for n in graph.nodes)
    return [plan for text in texts for _, plan in parse_plans(text)]


@pytest.mark.parametrize("width", [8, 16, 24])
def test_the_panel_width_is_that_of_the_layout(width: int):
    (plan,) = plans(plan_contractions(gemm(width), AVX2, CPU_RULES))
    assert plan.packing == Packing("given", width)
    assert plan.tile is not None and plan.tile.columns == width


def convolution(group: int) -> object:
    weights = np.ones((64, 32 // group, 1, 1), np.float32)
    node = make_node("Conv", ["x", "w"], ["y"], group=group)
    ends = [make_tensor_value_info("x", 1, (1, 32, 9, 9)), make_tensor_value_info("y", 1, None)]
    return make_model(make_graph([node], "g", ends[:1], ends[1:], [from_array(weights, "w")]))


@pytest.mark.parametrize("group", [1, 2, 4])
def test_every_packed_weight_has_its_width_in_a_plan(group: int):
    session = api.make_session("x86-64-v3")
    graph = pipeline.run_stages(convolution(group), session, stop_after="plan_contractions")
    widths = [w for n in graph.nodes if n.op == "fused" for _, w in given_by(n.attr("body")).panels]
    assert len(widths) == 1
    assert [plan.packing for plan in plans(graph)] == [Packing("given", w) for w in widths]


# --- Winograd -------------------------------------------------------------------------------------


def with_tile_block(graph: Graph, block: tuple[int, int] | None) -> Graph:
    """The graph with another block of tiles on its Winograd convolution."""

    def changed(node: Node) -> Node:
        if node.op == "fused":
            body = node.attr("body")
            body = replace(body, nodes=tuple(map(changed, body.nodes)))
            return replace(node, attrs=make_attrs({**node.attr_map, "body": body}))
        if node.op != "winograd_conv":
            return node
        return replace(node, attrs=make_attrs({**node.attr_map, "tile_block": block}))

    return replace(graph, nodes=tuple(map(changed, graph.nodes)))


def test_blocks_of_winograd_tiles_are_those_of_the_attribute():
    session = api.make_session("x86-64-v3")
    graph = pipeline.run_stages(model_of(64, 64, 56, 56), session, stop_after="alias_buffers")
    (first,) = plans(plan_contractions(graph, AVX2, CPU_RULES))
    assert first.algorithm == "winograd_f2" and first.blocking != Blocking("tiles", (2, 28))
    (other,) = plans(plan_contractions(with_tile_block(graph, (2, 28)), AVX2, CPU_RULES))
    assert (other.algorithm, other.blocking) == ("winograd_f2", Blocking("tiles", (2, 28)))
    (apart,) = plans(plan_contractions(with_tile_block(graph, None), AVX2, CPU_RULES))
    assert apart.algorithm == "gemm"


@pytest.mark.parametrize("batch", ["batch", 40])
def test_a_pointwise_convolution_to_one_channel_is_a_dot_product(batch: int | str):
    """Lanes along the batch would be strided loads, and all but one idle where the batch is 1."""
    graph = make_graph(
        [make_node("Conv", ["x", "w"], ["y"])], "conv",
        [make_tensor_value_info("x", 1, [batch, 128, 1])],
        [make_tensor_value_info("y", 1, [batch, 1, 1])],
        [from_array(np.ones((1, 128, 1), np.float32), "w")],
    )  # fmt: skip
    model = make_model(graph, ir_version=9)
    session = api.make_session("x86-64-v3", jobs=1)
    (plan,) = plans(pipeline.run_stages(model, session, stop_after="plan_contractions"))
    assert plan.algorithm == "dot"
    x = np.random.default_rng(0).standard_normal((40, 128, 1)).astype(np.float32)
    got = ingot.compile(model)(x)[0]
    np.testing.assert_allclose(got, x.sum(1, keepdims=True), rtol=1e-4, atol=1e-4)


def test_stages_that_cannot_be_fused_are_a_remark():
    """A plan with blocks of tiles that the grid is not made of gives way to the GEMM alone."""
    session = api.make_session("x86-64-v3")
    program = pipeline.run_stages(model_of(64, 64, 56, 56), session, stop_after="dedupe_kernels")
    (kernel,) = (k for _, k in program.kernels if k.family == "winograd")
    ((block, plan),) = kernel.plans
    wrong = replace(plan, blocking=Blocking("tiles", (3, 5)))
    edited = loops.replace(kernel, plans=((block, wrong),))
    made = apply_rules(edited, AVX2, kernel.family, CPU_RULES).finished()
    assert [p.algorithm for _, p in made.plans] == ["gemm"]
    assert any(r.block == block and is_told(block, r.why) for r in made.remarks)
