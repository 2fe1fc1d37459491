"""infer_likely_sizes: a recurrent layer says which dimension is the batch and which is time."""

from __future__ import annotations

import pytest
from onnx import parser

from ingot.frontends.onnx.walker import import_model
from ingot.graph.store import ConstantStore
from ingot.graph.text import parse, show
from ingot.passes.infer_likely_sizes import infer_likely_sizes


def likely(layout: int, shape: str) -> dict[str, int | None]:
    text = f"""
    <ir_version: 10, opset_import: ["" : 17]>
    m (float[{shape}, 4] x, float[1, 3, 4] w, float[1, 3, 3] r) => (y) {{
      y = RNN <hidden_size = 3, layout = {layout}> (x, w, r)
    }}"""
    graph = infer_likely_sizes(import_model(parser.parse_model(text), ConstantStore()))
    assert parse(show(graph)) == graph
    return {s.name: s.likely for s in graph.symbols}


@pytest.mark.parametrize("layout, shape", [(0, "steps, batch"), (1, "batch, steps")])
def test_the_batch_is_probably_1_and_the_steps_are_not(layout: int, shape: str):
    assert likely(layout, shape) == {"steps": None, "batch": 1}


def test_a_dimension_that_is_both_is_long():
    assert likely(0, "n, n") == {"n": None}
