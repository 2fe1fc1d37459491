"""Operators of torch.library: by kernels=, as a kernel, and by the user's own converter."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import ingot
import ingot.torch
from ingot.script import *


@ingot.kernel
def scale_shift(n: size, m: size, X: f32[n, m], S: f32[m], Y: f32[n, m]):
    for i, j in grid(n, m):
        with block("Y", spatial=(i, j)) as (vi, vj):
            Y[vi, vj] = X[vi, vj] * S[vj] + 1.0


@ingot.kernel
def both(n: size, X: f32[n], A: f32[n], B: f32[2 * n]):
    for i in grid(n):
        with block("A", spatial=(i,)) as (vi,):
            A[vi] = X[vi] + 1.0
    for i in grid(2 * n):
        with block("B", spatial=(i,)) as (vi,):
            B[vi] = X[vi // 2] * 2.0


@torch.library.custom_op("ingot_tests::scale_shift", mutates_args=())
def scale_shift_op(x: torch.Tensor, s: torch.Tensor, note: str) -> torch.Tensor:
    return x * s + 1


@scale_shift_op.register_fake
def _(x, s, note):
    return torch.empty_like(x)


X, S = torch.randn(3, 4), torch.randn(4)


def f(x, s):
    return torch.relu(scale_shift_op(x + 1, s, "fast"))


def test_a_kernel_by_the_hook():
    seen = []

    chosen = lambda attrs: seen.append(attrs) or scale_shift  # noqa: E731
    for kernel in (scale_shift, chosen):
        exe = ingot.compile(f, (X, S), kernels={"ingot_tests::scale_shift": kernel})
        assert_close(exe(X, S), f(X, S))
    assert seen[0] == {"note": "fast"}
    options = {"kernels": {"ingot_tests::scale_shift": scale_shift}}
    assert_close(torch.compile(f, backend="ingot", options=options)(X, S), f(X, S))
    with pytest.raises(ingot.IngotError, match="did you mean 'ingot_tests.scale_shift.default'"):
        ingot.compile(f, (X, S), kernels={"ingot_tests::scaleshift": scale_shift}, fallback=True)


def test_a_kernel_as_an_operator():
    scaled = ingot.torch.operator("ingot_tests::scaled", scale_shift)
    pair = ingot.torch.operator("ingot_tests::both", both)

    def g(x, s):
        a, b = pair(scaled(x, s).sum(1))
        return a, b - 1

    y = X * S + 1
    wanted = (y.sum(1) + 1, y.sum(1).repeat_interleave(2) * 2 - 1)
    assert_close(g(X, S), wanted)
    assert_close(torch.compile(g, backend="ingot", fullgraph=True)(X, S), wanted)
    rows = {0: torch.export.Dim("rows", min=2)}
    exe = ingot.compile(g, (X, S), dynamic_shapes=(rows, None))
    assert_close(exe(X, S), wanted)
    torch.library.opcheck(scaled, (X, S), test_utils=("test_schema", "test_faketensor"))


@torch.library.custom_op("ingot_tests::tripled", mutates_args=())
def tripled(x: torch.Tensor, k: float = 1.0) -> torch.Tensor:
    return x * 3 + k


@tripled.register_fake
def _(x, k=1.0):
    return torch.empty_like(x)


@ingot.torch.converter("ingot_tests::tripled")
def _(ctx, node, x, k):
    return ctx.g.add("add", [ctx.g.add("mul", [x, ctx.scalar(3, x.dtype)]), ctx.scalar(k, x.dtype)])


def test_a_converter():
    g = lambda x: torch.relu(tripled(x)) + tripled(x, 2.5)  # noqa: E731
    assert_close(ingot.compile(g, (X,))(X), g(X))
    assert_close(torch.compile(g, backend="ingot")(X), g(X))
