"""What cannot be compiled or called: Ingot's errors, which name the module and the source line."""

from __future__ import annotations

import pytest
import torch

import ingot
import ingot.torch

X = torch.randn(3, 4)


def refused(call, *args, **kwargs) -> ingot.IngotError:
    with pytest.raises(ingot.IngotError) as found:
        call(*args, **kwargs)
    return found.value


class Inner(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x - 1


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Inner()

    def forward(self, x):
        return self.block(x * 2)


def test_control_flow_that_depends_on_data():
    error = refused(ingot.compile, Outer(), (X,))
    assert error.code == "unsupported-op" and "depends on" in error.what
    assert "block (Inner)" in error.where and "if x.sum() > 0:" in error.where
    assert "test_bad_input.py:" in error.where
    assert "torch.cond" in error.hint


def test_torch_compile_breaks_the_graph_there():
    model = Outer()
    for x in (X.abs(), -X.abs()):
        torch.testing.assert_close(torch.compile(model, backend="ingot")(x), model(x))


class Failing(torch.nn.Module):
    def forward(self, x):
        return x.view(5, 5)


def test_code_that_fails_on_the_examples():
    error = refused(ingot.compile, Failing(), (X,))
    assert "return x.view(5, 5)" in error.where and "Failing" in error.where
    assert "shape" in error.why


class Complex(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Quant()

    def forward(self, x):
        return self.block(x)


class Quant(torch.nn.Module):
    def forward(self, x):
        return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()


def test_an_element_type_that_is_not_supported():
    error = refused(ingot.compile, Complex(), (X,))
    assert "Quant" in error.where and "quantize_per_tensor(x, 0.1, 0, torch.qint8)" in error.where


@pytest.fixture(scope="module")
def exe():
    return ingot.compile(torch.nn.Linear(4, 4).eval(), (X,))


BAD = {
    "device": (torch.empty(3, 4, device="meta"), "device meta", "cpu"),
    "sparse": (X.to_sparse(), "sparse", "to_dense"),
    "quantised": (torch.quantize_per_tensor(X, 0.1, 0, torch.qint8), "quantised", "dequantize"),
    "type": (X.double(), "float64", "float32"),
    "complex": (X.to(torch.complex64), "complex64", ""),
    "shape": (torch.randn(3, 5), "shape", ""),
    "rank": (torch.randn(3), "shape", ""),
    "object": ("text", "str", "tensor"),
    "none": (None, "NoneType", "tensor"),
}


@pytest.mark.parametrize("name", BAD)
def test_arguments(exe, name):
    given, what, hint = BAD[name]
    error = refused(exe, given)
    assert error.code == "bad-input", error
    assert "input" in error.what and what in error.text() and hint in error.text()


def test_too_many_and_too_few_arguments(exe):
    for args in ((), (X, X)):
        error = refused(exe, *args)
        assert error.code == "bad-input" and "it takes input" in error.hint
    assert "wrong" in refused(exe, wrong=X).text()


def test_parameters_on_another_device():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, device="meta"))
    error = refused(ingot.compile, model, (X,))
    assert "'0.weight'" in error.what and "meta" in error.what


def test_torch_compile_of_another_device_or_sparse_tensors():
    fast = torch.compile(lambda x: x + 1, backend="ingot")
    error = refused(fast, torch.empty(3, device="meta"))
    assert "meta" in error.text() and "x + 1" in error.text()


def test_options():
    error = refused(ingot.compile, torch.nn.Linear(4, 4))
    assert "example inputs" in error.what
    error = refused(ingot.compile, "model.onnx", (X,))
    assert "torch.nn.Module" in error.hint
    program = torch.export.export(torch.nn.Linear(4, 4), (X,))
    assert "export" in refused(ingot.compile, program, (X,)).hint


def test_sizes_outside_their_range():
    rows = torch.export.Dim("rows", min=2, max=8)
    exe = ingot.compile(torch.nn.ReLU(), (X,), dynamic_shapes=({0: rows},))
    error = refused(exe, torch.randn(9, 4))
    assert "rows" in error.text() and "9" in error.text()
    wrong = ({0: torch.export.Dim("n", min=5, max=8)},)
    error = refused(ingot.compile, torch.nn.Linear(4, 4), (X,), dynamic_shapes=wrong)
    assert "torch.export" in error.what
