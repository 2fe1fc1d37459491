"""One set of rules for every target: features decide lanes, registers and tiles. What can run here
gives right outputs; the rest is interpreted and becomes objects for its own machine."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import ingot
from ingot import api, dtypes, pipeline
from ingot.cost import contraction as cost
from ingot.program import interp
from ingot.runtime.cpu.elf import ObjectFile, undefined_symbols
from ingot.runtime.cpu.module import read
from ingot.target import parse
from tests.models.build import HARD
from tests.models.parts import Case
from tests.models.peers import assert_all_agree, onnxruntime_answers
from tests.refusal import refused

ROOT = Path(__file__).parents[2]
F32 = onnx.TensorProto.FLOAT


def conv_net() -> Case:
    """A strided first layer, a 1×1, a depthwise, a residual sum, a pooled head."""
    random = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {}

    def conv(x: str, y: str, inputs: int, outputs: int, taps: int, **attrs) -> list:
        group = attrs.get("group", 1)
        weights[f"{y}_w"] = random.standard_normal((outputs, inputs // group, taps, taps)) * 0.2
        weights[f"{y}_b"] = random.standard_normal(outputs)
        pads = [taps // 2] * 4
        made = helper.make_node("Conv", [x, f"{y}_w", f"{y}_b"], [f"{y}_c"], pads=pads, **attrs)
        return [made, helper.make_node("Relu", [f"{y}_c"], [y])]

    weights["head"] = random.standard_normal((48, 10))
    nodes = [
        *conv("x", "a", 3, 48, 3, strides=[2, 2]),
        *conv("a", "b", 48, 48, 1),
        *conv("b", "c", 48, 48, 3, group=48),
        helper.make_node("Add", ["a", "c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("MatMul", ["f", "head"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "conv_net", [helper.make_tensor_value_info("x", F32, [1, 3, 33, 33])],
        [helper.make_tensor_value_info("y", F32, [1, 10])],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, {"x": random.standard_normal((1, 3, 33, 33)).astype(np.float32)}


MODELS = {"conv_net": conv_net, "transformer_block": HARD["transformer_block"]}
LANES = {"x86-64-v2": 4, "x86-64-v3": 8, "x86-64-v4": 16, "aarch64": 4}
REGISTERS = {"x86-64-v2": 16, "x86-64-v3": 16, "x86-64-v4": 32, "aarch64": 32}


def runs_here(target: str) -> bool:
    session = api.make_session(target)
    return not session.backend.why_not_here(session.target)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("name", MODELS)
def test_named_targets_are_right(name: str, target: str):
    """Executed where this machine can; elsewhere the planned program is interpreted, and an attempt
    to load it is an error."""
    model, feeds = MODELS[name]()
    want = onnxruntime_answers(model, feeds)
    if runs_here(target):
        assert_all_agree(ingot.compile(model, target=target, threads=2).run(None, feeds), want)
        return
    with refused("bad-target", f"'{target}'"):
        ingot.compile(model, target=target)
    session = api.make_session(target)
    planned = pipeline.run_stages(model, session, stop_after="barriers")
    assert_all_agree(interp.run(planned, session.store, feeds), want)


@pytest.mark.parametrize("target, machine", [("x86-64-v4", "x86_64"), ("aarch64", "aarch64")])
@pytest.mark.parametrize("name", MODELS)
def test_others_become_objects(name: str, target: str, machine: str):
    package = pipeline.run_stages(MODELS[name]()[0], api.make_session(target))
    module = read(package)
    objects = (*module.kernels, module.entry)
    assert len(objects) > 3
    for data in objects:
        assert ObjectFile(data).machine == machine and undefined_symbols(data) == []
    assert set(module.features) == set(parse(target).features)


@pytest.mark.parametrize("target", LANES)
def test_kernels_are_as_wide_as_the_features_allow(target: str):
    package = pipeline.run_stages(conv_net()[0], api.make_session(target))
    wide = {row.family: row.lanes for row in package.report if row.family in ("conv", "matmul")}
    assert wide["conv"] == LANES[target], wide
    assert max(row.lanes for row in package.report) == LANES[target]


@pytest.mark.parametrize("target", LANES)
def test_tiles_fill_the_registers(target: str):
    described = parse(target)
    lanes, registers = described.lanes(dtypes.f32), described.vector_registers
    assert (lanes, registers) == (LANES[target], REGISTERS[target])
    many = 5040  # rows and vectors: every tile divides them
    tile = cost.register_tile(many, many * lanes, lanes, registers)
    live = tile.rows * tile.vectors + tile.vectors + 1
    assert 0.75 * registers <= live <= registers and tile.columns == tile.vectors * lanes
    few = cost.register_tile(many, many * lanes, lanes, registers // 2)
    assert few.rows * few.vectors < tile.rows * tile.vectors


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 16, 17, 40])
@pytest.mark.parametrize("rows", [1, 3, None])
def test_no_vector_of_a_tile_is_beyond_the_results(rows: int | None, columns: int):
    tile = cost.register_tile(rows, columns, 8, 16)
    assert tile.columns < columns + 8


@pytest.mark.parametrize("columns", range(1, 65))
def test_panels_of_a_group_divide_it(columns: int):
    for lanes in (4, 8, 16):
        panel, vector = (
            cost.group_panel_width(None, columns, lanes, 16),
            cost.lanes_dividing(columns, lanes),
        )
        assert (panel is None) == (vector is None)
        if panel is not None and vector is not None:
            assert columns % panel == 0 and panel % vector == 0
            assert cost.lanes_dividing(panel, lanes) == vector  # the rule finds it from the panel


NAMES = r"\b(zen\d?|znver\d?|epyc|ryzen|threadripper|xeon|haswell|broadwell|skylake|icelake"
NAMES += r"|cascadelake|sapphirerapids|alderlake|cortex|neoverse|graviton|apple|intel|amd)\b"
ASKS_THE_NAME = r"\btarget\.((cpu|triple|architecture)\b|name\s*(==|!=|in\b))"


@pytest.mark.parametrize("pattern", [NAMES, ASKS_THE_NAME])
def test_no_rule_knows_a_cpu_by_name(pattern: str):
    folders = [
        ROOT / "ingot" / name for name in ("cost", "schedule", "passes", "lower", "legalize")
    ]
    files = [f for folder in folders for f in folder.rglob("*.py")]
    assert len(files) > 50
    for file in files:
        # comments may name a CPU as the source of a constant
        code = re.sub(r"#.*", "", file.read_text(encoding="utf-8"))
        found = re.search(pattern, code, re.IGNORECASE)
        assert found is None, f"{file}: {found}"
