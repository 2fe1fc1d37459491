"""Operators that Ingot lacks: one error with all of them, or PyTorch runs them."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import ingot
import ingot.torch
from ingot.frontends.torch.registry import TABLE


@torch.library.custom_op("ingot_tests::odd", mutates_args=())
def odd(x: torch.Tensor) -> torch.Tensor:
    return x * 3 + 1


@odd.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("ingot_tests::pair", mutates_args=())
def pair(x: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x + n, x.to(torch.complex64)


@pair.register_fake
def _(x, n):
    return torch.empty_like(x), x.new_empty(x.shape, dtype=torch.complex64)


@torch.library.custom_op("ingot_tests::real", mutates_args=())
def real(x: torch.Tensor) -> torch.Tensor:
    return x.real.clone()


@real.register_fake
def _(x):
    return x.new_empty(x.shape, dtype=torch.float32)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        y = odd(torch.relu(self.a(x)))
        z, c = pair(self.b(y), x.shape[0])
        return {"out": z + real(c) + x.shape[0], "x": x, "calls": self.calls + 0}


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


ROWS = {0: torch.export.Dim("rows", min=2, max=64)}


def test_one_error_lists_all_with_source_lines(net):
    with pytest.raises(ingot.IngotError) as found:
        ingot.compile(net, (torch.randn(3, 4),))
    error = found.value
    assert error.code == "unsupported-op"
    for name in ("odd", "pair", "real"):
        assert f"ingot_tests.{name}.default" in error.what
    assert error.where.count("test_fallback.py:") == 3
    assert "y = odd(torch.relu(self.a(x)))" in error.where and "Net" in error.where
    assert "fallback=True" in error.hint


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_module_with_fallback(net, dynamic):
    twin = Net().eval()
    twin.load_state_dict(net.state_dict())
    shapes = (ROWS,) if dynamic else None
    exe = ingot.compile(net, (torch.randn(3, 4),), dynamic_shapes=shapes, fallback=True)
    with torch.no_grad():
        for rows in (3, 7, 2) if dynamic else (3, 3):
            x = torch.randn(rows, 4)
            found, wanted = exe(x), twin(x)
            assert_close(found, wanted)
            assert found["x"] is x
        assert_close(net.calls, twin.calls)
    assert "odd" in str(exe.fallback) and "no operator ingot_tests.odd" in str(exe.fallback)
    assert "in PyTorch: odd" in exe.report()
    assert len(exe.executables) >= 2
    with pytest.raises(ingot.IngotError, match="cannot be saved"):
        exe.save("nowhere.plan")


def test_weights_of_a_module_with_fallback(net):
    x = torch.randn(3, 4)
    exe = ingot.compile(net, (x,), fallback=True)
    with torch.no_grad():
        exe(x), net.calls.zero_()
        net.a.weight.add_(1)
        found = exe(x)
        net.calls.zero_()
        assert_close(found, net(x))


def test_no_fallback_without_need():
    exe = ingot.compile(torch.nn.Linear(4, 4).eval(), (torch.randn(3, 4),), fallback=True)
    assert exe.fallback == {} and isinstance(exe, ingot.Executable)


def test_torch_compile_with_fallback(net):
    x = torch.randn(3, 4)
    with torch.no_grad():
        wanted = net(x)
        net.calls.zero_()
        fast = torch.compile(net, backend="ingot", options={"fallback": True})
        assert_close(fast(x), wanted)
        for rows in (5, 6):
            net.calls.zero_()
            x = torch.randn(rows, 4)
            found = fast(x)
            net.calls.zero_()
            assert_close(found, net(x))
    torch._dynamo.reset()
    with pytest.raises(ingot.IngotError, match="ingot_tests"):
        torch.compile(net, backend="ingot")(x)


def test_a_variant_that_a_converter_refuses(monkeypatch):
    """The reason of the converter is the reason of the fallback."""

    def refusing(ctx, node, *args, **kwargs):
        raise ctx.unsupported(node, "it is a test")

    monkeypatch.setitem(TABLE, "aten.cosh.default", refusing)
    f, x = (lambda x: torch.cosh(x + 1) * 2), torch.randn(3)
    exe = ingot.compile(f, (x,), fallback=True)
    assert_close(exe(x), f(x))
    assert "it is a test" in str(exe.fallback)
