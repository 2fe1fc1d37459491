"""Custom operators. A kernel as an operator of torch.library; a converter for one that there is.

    operator("mylib::scale", kernel)       torch.ops.mylib.scale(x), eager and compiled
    @converter("mylib::odd")               how Ingot builds torch.ops.mylib.odd of its own operators
    def odd(ctx, node, x): return ctx.g.add("mul", [x, ctx.scalar(3, x.dtype)])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from ingot.arith import expr as arith
from ingot.frontends.torch import hooks, registry
from ingot.frontends.torch.types import TORCH_DTYPES
from ingot.kernels.function import KernelFunction, wrap
from ingot.loops import ir
from ingot.loops.signature import signature
from ingot.support.errors import IngotError

F = TypeVar("F", bound=Callable[..., Any])


def operator(name: str, kernel: Any) -> Any:
    """An operator of torch.library, "library::name", that runs a kernel: its inputs are the
    parameters that the kernel only reads, its results those that it writes."""
    function = wrap(kernel)
    inputs, outputs = _ports(function)
    text = _schema(inputs, outputs)
    made = torch.library.custom_op(name, _run(function, outputs), mutates_args=(), schema=text)
    made.register_fake(_fake(inputs, outputs))
    hooks.LIBRARY[hooks.full_name(name)] = lambda attrs: function.attrs
    return made


def converter(*names: str) -> Callable[[F], F]:
    """Register a converter for operators of torch.library (frontends/torch/registry.py says what it
    gets and gives). A model with such an operator is not cached."""
    targets = [hooks.full_name(name) for name in names]
    hooks.CONVERTERS.update(targets)
    return registry.aten(*targets)


def _ports(function: KernelFunction) -> tuple[list[ir.Buffer], list[ir.Buffer]]:
    found = signature(function.ir)
    both = [p.name for p in found.outputs if p in found.inputs]
    if both:
        what = f"kernel {function.name!r} updates {both[0]!r} in place"
        hint = "an operator's kernel reads its inputs and fills its outputs"
        raise IngotError("bad-option", what, hint=hint)
    return list(found.inputs), list(found.outputs)


def _schema(inputs: list[ir.Buffer], outputs: list[ir.Buffer]) -> str:
    given = ", ".join(f"Tensor {p.name}" for p in inputs)
    results = ", ".join("Tensor" for _ in outputs)
    return f"({given}) -> " + (results if len(outputs) == 1 else f"({results})")


def _run(function: KernelFunction, outputs: list[ir.Buffer]) -> Callable[..., Any]:
    def run(*tensors: torch.Tensor) -> Any:
        made = _fake(list(signature(function.ir).inputs), outputs)(*tensors)
        results = made if isinstance(made, tuple) else (made,)
        given, written = iter(tensors), iter(results)
        names = {p.name for p in outputs}
        order = [next(written) if p.name in names else next(given) for p in function.ir.params]
        function(*order)
        return made

    return run


def _fake(inputs: list[ir.Buffer], outputs: list[ir.Buffer]) -> Callable[..., Any]:
    """Tensors of the results' types, zero where the kernel does not write."""

    def fake(*tensors: torch.Tensor) -> Any:
        sizes: dict[str, Any] = {}
        for port, tensor in zip(inputs, tensors):
            for dim, size in zip(port.shape, tensor.shape):
                if isinstance(dim, arith.Var):
                    sizes.setdefault(dim.name, size)
        made = tuple(
            tensors[0].new_zeros(
                [arith.evaluate(dim, sizes) for dim in port.shape], dtype=TORCH_DTYPES[port.dtype]
            )
            for port in outputs
        )
        return made[0] if len(made) == 1 else made

    return fake
