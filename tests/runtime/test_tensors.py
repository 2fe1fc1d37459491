"""Torch tensors in, tensors out, for models that are no torch modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto as P

import ingot
from tests.models.parts import info, model, node
from tests.refusal import refused
from tests.small import answers, small_model

X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


@pytest.fixture(scope="module")
def exe() -> ingot.Executable:
    return ingot.compile(small_model(), jobs=1)


@pytest.fixture(scope="module")
def half() -> ingot.Executable:
    """y = x + s in bf16, in the place of s."""
    ports = [info("x", ["n"], P.BFLOAT16), info("s", ["n"], P.BFLOAT16)]
    proto = model("half", [node("Add", "x s", "y")], ports, [info("y", ["n"], P.BFLOAT16)])
    return ingot.compile(proto, state={"s": "y"}, jobs=1)


def test_tensors_out(exe: ingot.Executable):
    x = torch.from_numpy(X)
    calls = (lambda: exe(x), lambda: exe(x=x), lambda: exe.run(None, {"x": x}))
    for call in calls * 3:
        y, z = call()
        assert type(y) is torch.Tensor and type(z) is torch.Tensor
        np.testing.assert_allclose(y.numpy(), answers(X)[0], rtol=1e-6)
    (z,) = exe.run(["z"], {"x": x.requires_grad_()})
    assert type(z) is torch.Tensor and not z.requires_grad
    assert all(type(a) is np.ndarray for a in exe(X)), "arrays in, arrays out"


def test_strided_tensors(exe: ingot.Executable):
    x = torch.from_numpy(X.T.copy()).T
    np.testing.assert_allclose(exe(x)[0].numpy(), answers(X)[0], rtol=1e-6)


def test_bf16_without_a_copy(half: ingot.Executable):
    """The state is updated in place: in the memory of the caller's tensor."""
    x, s = torch.arange(9).bfloat16(), torch.ones(9).bfloat16()
    (y,) = half(x, s)
    assert y is s and s.dtype == torch.bfloat16
    assert s.tolist() == (torch.arange(9) + 1).tolist()


def test_results_in_the_callers_tensors(exe: ingot.Executable):
    y, z = torch.empty(5, 3), torch.empty(5)
    made = exe(torch.from_numpy(X), out=[y, z])
    assert [a.data_ptr() for a in made] == [y.data_ptr(), z.data_ptr()]
    np.testing.assert_allclose(y.numpy(), answers(X)[0], rtol=1e-6)


def test_sequences_of_tensors():
    pair = model(
        "pair", [node("ConcatFromSequence", "xs", "y", axis=0)],
        [info("xs", [None, 2])], [info("y", [None, 2])],
    )  # fmt: skip
    from onnx import helper

    kind = helper.make_tensor_type_proto(P.FLOAT, ["n", 2])
    pair.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(kind))
    (y,) = ingot.compile(pair, jobs=1)([torch.ones(1, 2), torch.zeros(2, 2)])
    assert type(y) is torch.Tensor and y.tolist() == [[1, 1], [0, 0], [0, 0]]


def test_what_is_no_dense_tensor_of_the_cpu(exe: ingot.Executable):
    for bad, fact in (
        (torch.ones(5, 4, device="meta"), "meta"),
        (torch.ones(5, 4).to_sparse(), "torch.sparse_coo"),
    ):
        with refused("bad-input", "'x'", fact, hint=True):
            exe(bad)
    with refused("bad-input", "'x'", "bfloat16", "float32", hint="torch.float32"):
        exe(torch.ones(5, 4).bfloat16())


def test_torch_is_not_imported(tmp_path: Path):
    path = tmp_path / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    code = (
        f"import sys, numpy as np, ingot; exe = ingot.compile({str(path)!r}, jobs=1);"
        "exe(np.ones((5, 4), 'f4')); exe([[1.0] * 4] * 5); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
