"""`exe.inputs` and `exe.outputs` as callers use them: shapes and types that numpy takes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as P

import ingot
from tests.models.parts import info, model, node
from tests.small import small_model

X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


def test_static_ports_make_arrays():
    exe = ingot.compile(small_model(), shapes={"batch": 5}, jobs=1)
    (x,) = exe.inputs
    assert (x.name, x.shape, x.dtype, x.kind) == ("x", (5, 4), np.float32, "tensor")
    out = [np.zeros(port.shape, port.dtype) for port in exe.outputs]
    exe(np.zeros(x.shape, x.dtype) + X, out=out)
    assert [a.tobytes() for a in out] == [a.tobytes() for a in exe(X)]
    assert str(x) == "x: f32[5, 4]"


def test_dynamic_sizes_are_names():
    exe = ingot.compile(small_model(), jobs=1)
    assert [port.shape for port in (*exe.inputs, *exe.outputs)] == [
        ("batch", 4), ("batch", 3), ("batch",),
    ]  # fmt: skip
    assert all(type(size) is int for port in exe.inputs for size in port.shape[1:])


def test_types_that_numpy_lacks():
    proto = model(
        "types",
        [node("Neg", "x", "y"), node("Identity", "s", "t")],
        [info("x", [2], P.BFLOAT16), info("s", [2], P.STRING)],
        [info("y", [2], P.BFLOAT16), info("t", [2], P.STRING)],
    )
    exe = ingot.compile(proto, jobs=1)
    x, s = exe.inputs
    assert x.dtype == ml_dtypes.bfloat16 and s.dtype == object
    words = np.empty(s.shape, s.dtype)
    words[:] = "a", "b"
    y, t = exe(np.ones(x.shape, x.dtype), words)
    assert y.tolist() == [-1, -1] and t.tolist() == ["a", "b"]


def test_the_signature_of_onnx_runtime():
    """A program written for a session runs with an executable."""

    def program(session) -> list[np.ndarray]:
        feed = {session.get_inputs()[0].name: X}
        names = [output.name for output in session.get_outputs()]
        whole = session.run(None, feed, None)
        swapped = session.run(output_names=names[::-1], input_feed=feed, run_options=None)
        return [*whole, *swapped]

    peer = onnxruntime.InferenceSession(small_model().SerializeToString())
    got = program(ingot.compile(small_model(), jobs=1))
    for a, b in zip(got, program(peer), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_options_of_a_run_are_taken_from_onnx_runtime():
    exe = ingot.compile(small_model(), jobs=1)
    (z,) = exe.run(["z"], {"x": X}, onnxruntime.RunOptions())
    assert z.tobytes() == exe(X)[1].tobytes()
    with pytest.raises(TypeError):
        exe.run(None, {"x": X}, None, [None, None])  # out= is by name only
