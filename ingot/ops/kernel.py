"""`kernel`: a user's kernel (@ingot.kernel) as a custom operator.

    g.add("kernel", [x, w], source=str(my_kernel))

Operands are the parameters that the kernel reads, results those it writes, each in the kernel's
order; a parameter updated in place is both, and its operand is copied first. Sizes are inferred
from the operands' shapes. Elements that a kernel does not write are zero. The loops run as written:
no default schedule rule applies to this family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type
from ingot.loops import interp, ir, rename, script_parse, visit
from ingot.loops.build import Build
from ingot.loops.coverage import covers
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.loops.signature import (
    Signature,
    describe_range,
    is_allowed,
    reference_of,
    signature,
    solve_sizes,
)
from ingot.loops.verify import verify
from ingot.ops.common import dims, floats, require_same_dim, run_failed, tensor_type

Sizes = Mapping[str, arith.Expr]


@register
class KernelOp(OpDef):
    """`source` is the kernel's text; `filled` names outputs known to be completely written."""

    name = "kernel"
    kind = Kind.OPAQUE
    family = "kernel"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        kernel = kernel_of(attrs)
        _, sizes = _fit(kernel, inputs)
        return [
            TensorType(p.dtype, dims([arith.substitute(d, sizes) for d in p.shape]))
            for p in signature(kernel).outputs
        ]

    def may_fold(self, attrs: Attrs) -> bool:
        return reference_of(kernel_of(attrs)) is not None  # the loop interpreter may take hours

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        kernel = kernel_of(attrs)
        roles = signature(kernel)
        given = [x for x in inputs if x is not None]
        own = reference_of(kernel)
        if own is not None:
            made = own(*given)
            return [np.asarray(x) for x in (made if isinstance(made, list | tuple) else [made])]
        arrays = {p.name: np.array(x, order="C") for p, x in zip(roles.inputs, given)}
        shapes = {name: [arith.Const(n) for n in x.shape] for name, x in arrays.items()}
        sizes = solve_sizes(kernel, shapes)
        numbers = {name: arith.evaluate(e, {}) for name, e in sizes.items()}
        for size in kernel.sizes:
            if not is_allowed(size, numbers[size.name]):
                raise run_failed(_demand(kernel, size))
        for p in roles.new_outputs:
            shape = tuple(arith.evaluate(d, numbers) for d in p.shape)
            arrays[p.name] = np.zeros(shape, p.dtype.numpy)
        interp.run(kernel, [arrays[p.name] for p in kernel.params], numbers)
        return [arrays[p.name] for p in roles.outputs]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        kernel = kernel_of(attrs)
        roles = signature(kernel)
        operands = [x for x in inputs if x is not None]
        shapes = {p.name: x.shape for p, x in zip(roles.inputs, operands)}
        sizes = solve_sizes(kernel, shapes)
        _check_sizes(b, kernel, sizes)
        buffers = {p.name: x for p, x in zip(roles.inputs, operands)}
        for p, type in zip(roles.outputs, outputs):
            is_filled = _is_filled(kernel, p, attrs)
            buffers[p.name] = _output_buffer(b, p, type, buffers.get(p.name), is_filled)
        b.emit(_inlined(kernel, buffers, sizes, b))
        return [buffers[p.name] for p in roles.outputs]

    def samples(self) -> list[Sample]:
        return [
            Sample((floats(3, 5, key=1), floats(5, key=2)), {"source": _SCALE}),
            Sample((floats(2, 7, key=3),), {"source": _BLUR}),
            Sample((floats(6, key=4), floats(6, key=5)), {"source": _UPDATE}),
            Sample((floats(8, key=6),), {"source": _TWO, "filled": ("P", "Q")}),
        ]


@lru_cache(maxsize=256)
def _parsed(source: str) -> ir.Kernel:
    kernel = script_parse.parse(source)
    verify(kernel)
    return kernel


def kernel_of(attrs: Attrs) -> ir.Kernel:
    return _parsed(attrs["source"])


def _fit(kernel: ir.Kernel, inputs: Sequence[Type | None]) -> tuple[Signature, Sizes]:
    """The roles of the parameters and the inferred sizes; a type error if operands do not fit."""
    roles, op = signature(kernel), f"kernel {kernel.name}"
    if len(inputs) != len(roles.inputs):
        names = ", ".join(p.name for p in roles.inputs) or "none"
        raise type_error(op, f"expects {len(roles.inputs)} operands ({names}), got {len(inputs)}")
    types = {p.name: tensor_type(op, t, f"operand {p.name}") for p, t in zip(roles.inputs, inputs)}
    for p in roles.inputs:
        _same_kind(op, p, types[p.name])
    sizes = solve_sizes(kernel, {name: t.shape for name, t in types.items()})
    for size in kernel.sizes:
        _size_fits(op, size, sizes)
    for p in roles.inputs:
        for axis, (dim, found) in enumerate(zip(p.shape, types[p.name].shape)):
            wanted = arith.substitute(dim, sizes)
            require_same_dim(op, wanted, found, f"axis {axis} of {p.name} is {dim}")
    return roles, sizes


def _same_kind(op: str, p: Buffer, type: TensorType) -> None:
    if type.dtype is not p.dtype or type.rank != p.rank:
        wanted = f"{p.dtype}[{', '.join(map(str, p.shape))}]"
        raise type_error(op, f"operand {p.name} is {type}, the kernel's parameter {wanted}")


def _size_fits(op: str, size: ir.Size, sizes: Sizes) -> None:
    if size.name not in sizes:
        raise type_error(op, f"size {size.name} cannot be inferred from the operands' shapes")
    number = arith.as_int(sizes[size.name])
    if number is not None and not is_allowed(size, number):
        raise type_error(op, f"size {size.name} is {number}; it must be {describe_range(size)}")


def _check_sizes(b: Build, kernel: ir.Kernel, sizes: Sizes) -> None:
    """Append run-time checks of the constraints on sizes, except those that provably hold."""
    for size in kernel.sizes:
        found = sizes[size.name]
        number = arith.as_int(found)
        is_any = size == ir.Size(size.name) and isinstance(found, arith.Var)  # no size is negative
        if is_any or (number is not None and is_allowed(size, number)):
            continue
        value = ir.Index(found)
        bad = _any_of(
            [ir.Compare("lt", value, _i64(size.low))]
            + ([ir.Compare("gt", value, _i64(size.high))] if size.high is not None else [])
            + ([_is_not_multiple(value, size.divisor)] if size.divisor != 1 else [])
        )
        b.emit(ir.If(bad, ir.Fail(_demand(kernel, size), (value,))))


def _demand(kernel: ir.Kernel, size: ir.Size) -> str:
    return f"kernel {kernel.name}: {size.name} must be {describe_range(size)}"


def _is_not_multiple(value: Expr, divisor: int) -> Expr:
    return ir.Compare("ne", ir.Binary("mod", value, _i64(divisor)), _i64(0))


def _i64(number: int) -> Expr:
    return ir.Lit(number, dtypes.i64)


def _any_of(terms: list[Expr]) -> Expr:
    result = terms[0]
    for term in terms[1:]:
        result = result | term
    return result


def _is_filled(kernel: ir.Kernel, p: Buffer, attrs: Attrs) -> bool:
    return p.name in attrs.get("filled", ()) or covers(kernel, p.name)


def _output_buffer(
    b: Build, p: Buffer, type: TensorType, old: Buffer | None, is_filled: bool
) -> Buffer:
    """The buffer of a result, initialised as the kernel expects: a copy, zeros, or nothing."""
    if old is not None:
        return b.compute(p.name, type.shape, lambda *point: old[point])
    if is_filled:
        return b.buffer(p.name, type.dtype, type.shape)
    return b.compute(p.name, type.shape, lambda *point: _zero(type.dtype))


def _zero(dtype: DType) -> Expr:
    return ir.Lit(0.0 if dtype.is_float else 0, dtype)


def _inlined(kernel: ir.Kernel, buffers: Mapping[str, Buffer], sizes: Sizes, b: Build) -> Stmt:
    """The kernel's body with buffers and sizes substituted and local names made fresh."""
    own = {p.name for p in kernel.params} | {s.name for s in kernel.sizes}

    def fresh(base: str) -> str:
        return next(name for _ in count() if (name := b.fresh(base)) not in own)

    body = rename.copy_of(kernel.body, fresh)
    allocs = {s.buffer.name: s.buffer for s in visit.walk_stmts(body) if isinstance(s, ir.Alloc)}
    local = {name: _resized(buffer, sizes) for name, buffer in allocs.items()}
    return visit.substitute(visit.replace_buffers(body, {**local, **buffers}), dict(sizes))


def _resized(buffer: Buffer, sizes: Sizes) -> Buffer:
    return ir.replace(buffer, shape=tuple(arith.substitute(d, sizes) for d in buffer.shape))


_SCALE = """
def scale(n: size, m: size, X: f32[n, m], W: f32[m], Y: f32[n, m]):
    for i, j in grid(n, m):
        with block("Y", spatial=(i, j)) as (vi, vj):
            Y[vi, vj] = X[vi, vj] * W[vj]
"""
_BLUR = """
def blur(n: size, X: f32[2, n + 2], Y: f32[2, n + 1]):
    for i, j in grid(2, n):
        with block("Y", spatial=(i, j)) as (vi, vj):
            Y[vi, vj] = X[vi, vj] + X[vi, vj + 1] + X[vi, vj + 2]
"""
_UPDATE = """
def update(n: size, X: f32[n], S: f32[n], Y: f32[n]):
    for i in serial(n):
        S[i] += X[i]
        Y[i] = S[i] * 2.0
"""
_TWO = """
def two(X: f32[8], P: f32[8], Q: i64[8]):
    T = alloc(f32[8])
    for i in serial(8):
        T[i] = X[i] * X[i]
    for j in serial(8):
        P[j] = T[j] + 1.0
        Q[j] = j
"""
