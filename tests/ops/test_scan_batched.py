"""Scan of opset 8, with a batch axis, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from tests.ops.every_way import EveryWay
from tests.refusal import refused

TEXT = """<ir_version: 7, opset_import: ["" : 8]>
m (float[b, 2] start, float[b, t, 2] x, float[b, t, 2] z) =>
    (float[b, 2] end, float[b, t, 2] rows) {
  end, rows = Scan <num_scan_inputs = 2, directions = [0, 1],
      body = g (float[2] h, float[2] v, float[2] w) => (float[2] h2, float[2] row) {
    s = Add (h, v)  h2 = Mul (s, w)  row = Exp (h2)
  }> (LENS, start, x, z)
}"""


def test_each_row_of_the_batch_is_scanned():
    both = EveryWay(parser.parse_model(TEXT.replace("LENS", "")))
    rng = np.random.default_rng(8)
    for batch, steps in ((1, 3), (3, 5)):
        start, x, z = (
            rng.uniform(-1, 1, shape).astype(np.float32)
            for shape in ((batch, 2), (batch, steps, 2), (batch, steps, 2))
        )
        both.check(start=start, x=x, z=z)


@pytest.mark.parametrize("count", [0, 4])
def test_a_wrong_number_of_scanned_inputs(count):
    text = TEXT.replace("LENS", "").replace("num_scan_inputs = 2", f"num_scan_inputs = {count}")
    with refused("bad-model", "num_scan_inputs", where="Scan", hint=False):
        EveryWay(parser.parse_model(text))
