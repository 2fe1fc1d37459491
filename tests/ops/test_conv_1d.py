"""1-D convolutions over signals of dynamic length and batch, against ONNX Runtime: lengths shorter
than a tile, prime ones, around multiples of a tile; and the kernels that they compile to."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot import api, pipeline
from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.program import ir as program_ir

RNG = np.random.default_rng(11)
LENGTHS = (1, 2, 7, 8, 15, 31, 61, 127, 331)
# channels in and out, taps, stride, padding before and after, groups
CASES = [
    (1, 1, 28, 2, (13, 15), 1),  # one output channel: a dot product for each output
    (1, 1, 41, 3, (20, 20), 1),
    (1, 2, 23, 3, (10, 13), 1),  # two phases of a resampler
    (1, 3, 15, 1, (7, 7), 1),
    (2, 2, 7, 1, (3, 3), 1),
    (4, 1, 25, 1, (12, 12), 1),  # vectors along the signal
    (3, 5, 4, 2, (2, 1), 1),
    (1, 8, 10, 5, (4, 5), 1),
    (16, 24, 3, 1, (1, 1), 1),
    (8, 8, 3, 1, (1, 1), 8),
]


def model(cin: int, cout: int, taps: int, stride: int, pads: tuple[int, int], groups: int) -> bytes:
    def weights(name: str, *shape: int):
        return numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32), name)

    attrs = {"strides": [stride], "pads": list(pads), "group": groups}
    conv = helper.make_node("Conv", ["x", "w", "bias"], ["y"], **attrs)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", cin, "n"))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = [weights("w", cout, cin // groups, taps), weights("bias", cout)]
    graph = helper.make_graph([conv], "signal", [x], [y], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return made.SerializeToString()


@pytest.mark.parametrize("case", CASES)
def test_any_length_and_batch(case):
    text = model(*case)
    exe, peer = ingot.compile(text, threads=2), onnxruntime.InferenceSession(text)
    taps, pads = case[2], case[4]
    for length in (n for n in LENGTHS if n + sum(pads) >= taps):
        for batch in (1, 2, 5):
            x = RNG.standard_normal((batch, case[0], length)).astype(np.float32)
            (want,), (got,) = peer.run(None, {"x": x}), exe(x)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=f"{length=}")


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_borders_of_a_dynamic_signal(mode):
    pads = numpy_helper.from_array(np.array([0, 3, 0, 2]), "pads")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", "n"))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)
    graph = helper.make_graph([node], "border", [x], [y], [pads])
    text = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    exe = ingot.compile(text)
    peer = onnxruntime.InferenceSession(text.SerializeToString())
    for shape in ((1, 4), (2, 5), (3, 17), (1, 64)):
        signals = RNG.standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(exe(signals)[0], peer.run(None, {"x": signals})[0])


def launches(text: bytes) -> list[tuple[program_ir.Launch, ir.Kernel]]:
    """The launches of the last program, with their kernels."""
    session = api.make_session("x86-64-v3")
    last = pipeline.last_program_stage(session.stages)
    program = pipeline.run_stages(text, session, stop_after=last)
    found = [s for s in _walk(program.body) if isinstance(s, program_ir.Launch)]
    return [(s, program.kernel_map[s.kernel]) for s in found]


def _walk(s: program_ir.Stmt) -> list[program_ir.Stmt]:
    inside = s.stmts if isinstance(s, program_ir.Seq) else ()
    return [s, *(x for each in inside for x in _walk(each))]


@pytest.mark.parametrize("case", CASES)
def test_every_launch_over_the_signal_is_split_along_it(case):
    """With a batch of 1, which is likely, threads must divide the signal."""
    for launch, kernel in launches(model(*case)):
        stored = max(visit.stores(kernel.body), key=lambda s: len(arith.free_vars(s.indices[0])))
        is_long = "n" in arith.free_vars(arith.product(list(stored.buffer.shape)))
        assert not is_long or "n" in arith.free_vars(launch.extent), kernel.name


def test_one_output_channel_has_vectors_along_the_signal():
    """Its batch, which is likely 1, makes no rows; the epilogue is vectorised too."""
    *_, (_, conv), _ = launches(model(4, 1, 25, 1, (12, 12), 1))
    assert dict(conv.plans)["conv"].rows is None
    widths = [s.value.lanes for s in visit.stores(conv.body) if s.buffer.name.endswith("out")]
    assert widths and min(widths) > 1


def test_channels_of_a_dynamic_signal_are_made_contiguous_first():
    """In tiles, in registers; a copy into the padded buffer would read with the signal's stride."""
    (first, _), *_ = launches(model(32, 32, 3, 1, (1, 1), 32))
    assert first.kernel.startswith("relayout")
