"""Networks that ONNX Runtime's tools quantised, against ONNX Runtime without optimisations.

Each layer, given the same 8-bit values, is within one step of the reference, and equal but for what
is at a tie. Of deep networks one cannot ask the same for the outputs: a flipped tie changes every
later layer (benchmarks/quantised/exactness.py). These are shallow.
"""

from __future__ import annotations

import onnx
import pytest
from onnx import numpy_helper

from benchmarks.quantised import exactness
from benchmarks.quantised.exactness import Agreement, check_layers, check_whole
from tests.models.quantised_nets import NETS, quantised
from tests.models.test_targets import runs_here

VNNI = "x86-64-v4+avx512vnni"
QUICK = {("transformer", "u8s8", VNNI), ("depthwise", "s8s8", "x86-64-v3")}
ALL = [
    (name, method, target)
    for name in NETS
    for method in ("u8s8", "s8s8")
    for target in (VNNI, "x86-64-v3", "x86-64-v2")
]
WAYS = [way if way in QUICK else pytest.param(*way, marks=pytest.mark.long) for way in ALL]
WHOLE = ["residual", *(pytest.param(n, marks=pytest.mark.long) for n in NETS if n != "residual")]
INPUTS = 3


def assert_agrees(found: list[Agreement]) -> None:
    """No element is two steps off, and one in ten thousand, or a single one, is one step off."""
    elements = sum(a.elements for a in found)
    assert elements
    for each in found:
        assert each.largest < 1.01, each
    flipped = sum(round((1 - a.equal) * a.elements) for a in found)
    assert flipped <= max(1, 1e-4 * elements), found


@pytest.mark.parametrize(("name", "method", "target"), WAYS)
def test_layers(name: str, method: str, target: str) -> None:
    if not runs_here(target):
        pytest.skip(f"no {target} here")
    proto, feeds = quantised(name, method)
    assert_agrees(check_layers(proto, [feeds(k) for k in range(INPUTS)], target, ())["ingot"])


@pytest.mark.parametrize("name", WHOLE)
def test_whole_networks(name: str) -> None:
    proto, feeds = quantised(name)
    found = check_whole(proto, [feeds(k) for k in range(INPUTS)], levels=())["ingot"]
    assert_agrees(found)
    assert all(a.top_1 == 1 for a in found), found


def test_the_check_sees_a_wrong_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer of what Ingot compiles has another scale."""
    real = exactness.ingot.compile

    def compile_another(model: onnx.ModelProto, **options):
        (scale,) = (t for t in model.graph.initializer if t.name == "x_scale")
        scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * 1.01, scale.name))
        return real(model, **options)

    proto, feeds = quantised("squeezed")
    monkeypatch.setattr(exactness.ingot, "compile", compile_another)
    found = check_layers(proto, [feeds(0)], levels=())["ingot"]
    with pytest.raises(AssertionError):
        assert_agrees(found)
