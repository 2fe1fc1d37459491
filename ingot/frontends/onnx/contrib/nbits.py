"""Converters of com.microsoft's operators on weights of 2, 4 or 8 bits: MatMulNBits, MatMulBnb4,
GatherBlockQuantized.

In: ONNX nodes; weights packed into bytes, the low bits first, with a scale and maybe a zero point
for each block. Out: nodes that unpack and dequantise them, which constant folding computes if the
weights are constants, and the matmul or gather. Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, indices, reshape, scalar, tidy
from ingot.frontends.onnx.common import axis_of, bad_model
from ingot.frontends.onnx.contrib.checks import MICROSOFT, count_attr, int_attr
from ingot.frontends.onnx.contrib.rotary import last
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.interp import run_node
from ingot.graph.ir import Value
from ingot.ops.packed_codes import WORD, unpack_rows

# bitsandbytes' two sets of sixteen numbers, by quant_type: FP4, then the NF4 quantiles
_FP4 = (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
CODES = (
    (*_FP4, *(-v for v in _FP4)),
    (
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
        -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ),
)  # fmt: skip


def bits_of(node: OnnxNode) -> int:
    bits = int_attr(node, "bits", 4)
    if bits not in (2, 4, 8):
        raise bad_model(node, f"attribute 'bits' is {bits}, not 2, 4 or 8")
    return bits


def unpacked(ctx: Importer, x: Value, bits: int, is_high_first: bool = False) -> Value:
    """Bytes as their numbers of `bits` bits: the last axis grows 8 / bits times."""
    if bits == 8:
        return x
    count, g = 8 // bits, ctx.g
    parts = []
    for n in range(count):
        shift = bits * (count - 1 - n if is_high_first else n)
        moved = g.add("shr", [x, scalar(ctx, shift, dtypes.u8)]) if shift else x
        low = g.add("and", [moved, scalar(ctx, (1 << bits) - 1, dtypes.u8)])
        parts.append(reshape(ctx, low, (*x.shape, 1)))
    whole = g.add("concat", parts, axis=x.tensor.rank)
    return reshape(ctx, whole, (*x.shape[:-1], x.shape[-1] * count))


# --- MatMulNBits --------------------------------------------------------------------------------


@onnx_op("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """a · dequantised(B)ᵀ + bias; B is (N, blocks, bytes of a block)."""
    if int_attr(node, "weight_prepacked", 0):
        raise ctx.unsupported(node, "weights packed for a GPU's kernel")
    a, bias = ctx.value(node, 0), ctx.optional(node, 5)
    y = packed_product(ctx, node, a)
    if y is None:
        start = len(ctx.g.nodes)
        weights = folded(ctx, cast(ctx, nbits_weights(ctx, node), a.dtype), start)
        y = ctx.g.add("matmul", [a, weights])
    return [y if bias is None else ctx.g.add("add", [y, bias])]


def packed_product(ctx: Importer, node: OnnxNode, a: Value) -> Value | None:
    """The product with the weights as they are, if they are constants whose blocks of columns have
    a scale each: they stay packed until they are multiplied."""
    depth, columns = count_attr(node, "K"), count_attr(node, "N")
    block, bits = count_attr(node, "block_size"), bits_of(node)
    weights, scale, zero = (ctx.value(node, 1), ctx.value(node, 2), ctx.optional(node, 3))
    given = [v for v in (weights, scale, zero) if v is not None]
    arrays = [constant_array(ctx, v) for v in given]
    blocks = -(-depth // block)
    if ctx.optional(node, 4) is not None or block * bits % WORD or any(v is None for v in arrays):
        return None
    if arith.as_int(a.shape[-1]) != depth:
        return None
    packed, factor, *zeros = (np.asarray(v) for v in arrays)
    shape, per_column = (columns, blocks), -(-blocks * bits // 8)
    if zero is not None and zero.dtype.is_float:
        per_column = blocks
    sizes = (packed.size, factor.size, *(z.size for z in zeros))
    wanted = [columns * blocks * block * bits // 8, columns * blocks, columns * per_column]
    if packed.dtype != np.uint8 or list(sizes) != wanted[: len(sizes)]:
        return None  # the general form says what is wrong
    operands = [packed.reshape(columns, -1), factor.reshape(shape).astype(np.float32)]
    for array in zeros:
        is_packed = zero is not None and zero.dtype.is_int
        own = array.reshape(columns, -1)
        operands.append(unpack_rows(own, bits)[:, :blocks] if is_packed else own.astype(np.float32))
    rows = reshape(ctx, cast(ctx, a, dtypes.f32), (arith.product(list(a.shape[:-1])), depth))
    values = [ctx.g.constant(np.ascontiguousarray(v)) for v in operands]
    # level 4 asks for i8; ONNX Runtime, too, computes in f32 where zero points are floats
    is_integer = int_attr(node, "accuracy_level", 0) == 4 and (zero is None or zero.dtype.is_int)
    y = ctx.g.add(
        "matmul_packed", [rows, *values], columns=columns, bits=bits, block=block,
        activations="i8" if is_integer else "f32",
    )  # fmt: skip
    return cast(ctx, reshape(ctx, y, (*a.shape[:-1], columns)), a.dtype)


def constant_array(ctx: Importer, value: Value) -> np.ndarray | None:
    """The array of a constant; None for any other value."""
    nodes = ctx.g.nodes
    made = next((n for n in reversed(nodes) if value in n.outputs and n.op == "constant"), None)
    return None if made is None else ctx.g.store.get(made.attr("value"))


def folded(ctx: Importer, value: Value, start: int) -> Value:
    """`value` as a constant, if all nodes from `start` on, which make it, read constants only. The
    budget of constant folding does not apply: it would leave a large model to dequantise its
    weights in every run. The result is at most sixteen times as large as the file's bytes."""
    g = ctx.g
    constants = {n.outputs[0].name: n.attr("value") for n in g.nodes if n.op == "constant"}
    made: dict[str, np.ndarray] = {}
    for node in g.nodes[start:]:
        if node.op == "constant":
            continue
        inputs = [v for v in node.inputs if v is not None]
        if any(v.name not in made and v.name not in constants for v in inputs):
            return value
        arrays = [
            made[v.name] if v.name in made else g.store.get(constants[v.name]) for v in inputs
        ]
        (made[node.outputs[0].name],) = run_node(node, g.store, arrays, {})
    g.nodes[start:] = [n for n in g.nodes[start:] if n.op == "constant"]
    return g.constant(made[value.name])


def nbits_weights(ctx: Importer, node: OnnxNode) -> Value:
    """B dequantised, (K, N): each block of a column has its scale and zero point."""
    depth, columns = count_attr(node, "K"), count_attr(node, "N")
    block, bits = count_attr(node, "block_size"), bits_of(node)
    blocks = -(-depth // block)
    packed = reshape(ctx, ctx.value(node, 1), (columns, blocks, block * bits // 8))
    scale = reshape(ctx, ctx.value(node, 2), (columns, blocks))
    params = [scale, zero_points(ctx, node, columns, blocks, bits)]
    whole, groups = unpacked(ctx, packed, bits), ctx.optional(node, 4)
    if groups is None:
        scale, zero = (reshape(ctx, v, (columns, blocks, 1)) for v in params)
        real = reshape(ctx, dequantised(ctx, whole, scale, zero), (columns, blocks * block))
        real = last(ctx, real, arith.Const(0), depth)
    else:  # row k belongs to block g_idx[k]
        flat = last(ctx, reshape(ctx, whole, (columns, blocks * block)), arith.Const(0), depth)
        at = indices(ctx, groups)
        real = dequantised(ctx, flat, *(ctx.g.add("gather", [v, at], axis=1) for v in params))
    return ctx.g.add("transpose", [real], perm=(1, 0))


def dequantised(ctx: Importer, x: Value, scale: Value, zero: Value) -> Value:
    """(x - zero) · scale in f32"""
    wide = [cast(ctx, v, dtypes.f32) for v in (x, zero, scale)]
    return ctx.g.add("mul", [ctx.g.add("sub", wide[:2]), wide[2]])


def zero_points(ctx: Importer, node: OnnxNode, columns: int, blocks: int, bits: int) -> Value:
    """One for each column and block: given as numbers of a's type, or packed as B is; else the
    middle of the range."""
    zero = ctx.optional(node, 3)
    if zero is None:
        middle = scalar(ctx, 1 << (bits - 1), dtypes.u8)
        return ctx.g.add("fill", [middle], shape=(columns, blocks))
    if zero.dtype.is_float:
        return reshape(ctx, zero, (columns, blocks))
    row_bytes = -(-blocks * bits // 8)
    rows = unpacked(ctx, reshape(ctx, zero, (columns, row_bytes)), bits)
    return last(ctx, rows, arith.Const(0), blocks)


@onnx_op("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """B is (N, K) in row-major order, two numbers in a byte, the high bits first; each is an index
    into sixteen values, scaled by the largest one of its block."""
    a, depth, columns = ctx.value(node, 0), count_attr(node, "K"), count_attr(node, "N")
    block, kind = count_attr(node, "block_size"), int_attr(node, "quant_type")
    if kind not in (0, 1):
        raise bad_model(node, f"attribute 'quant_type' is {kind}, not 0 or 1")
    count = depth * columns
    blocks = -(-count // block)
    packed = reshape(ctx, ctx.value(node, 1), (-(-count // 2),))
    codes = last(ctx, unpacked(ctx, packed, 4, is_high_first=True), arith.Const(0), count)
    table = ctx.g.constant(np.array(CODES[kind], np.float32))
    values = ctx.g.add("gather", [table, cast(ctx, codes, dtypes.i32)], axis=0)
    largest = cast(ctx, reshape(ctx, ctx.value(node, 2), (blocks, 1)), dtypes.f32)
    if count % block == 0:
        weights = ctx.g.add("mul", [reshape(ctx, values, (blocks, block)), largest])
    else:  # the last block is shorter
        wide = ctx.g.add("expand", [largest], shape=(blocks, block))
        scale = last(ctx, reshape(ctx, wide, (blocks * block,)), arith.Const(0), count)
        weights = ctx.g.add("mul", [values, scale])
    weights = reshape(ctx, weights, (columns, depth))
    if int_attr(node, "transB", 1):
        weights = ctx.g.add("transpose", [weights], perm=(1, 0))
    return [ctx.g.add("matmul", [a, cast(ctx, weights, a.dtype)])]


# --- GatherBlockQuantized -----------------------------------------------------------------------


@onnx_op("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantised(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Rows are gathered first and dequantised then. An index out of range gives zeros."""
    data, scale, zero = ctx.value(node, 0), ctx.value(node, 2), ctx.optional(node, 3)
    rank, at = data.tensor.rank, indices(ctx, ctx.value(node, 1))
    axis = axis_of(node, int_attr(node, "gather_axis", 0), rank)
    quantised = axis_of(node, int_attr(node, "quantize_axis", 1), rank)
    bits = bits_of(node) if data.dtype is dtypes.u8 else 8
    block = int_attr(node, "block_size", 128)
    safe, is_inside = clamped(ctx, at, data.shape[axis])
    rows = unpacked(ctx, ctx.g.add("gather", [data, safe], axis=axis), bits)
    rows = cast(ctx, rows, dtypes.f32 if rows.dtype.is_float else dtypes.i32)
    own = safe
    if axis == quantised and block:
        own = ctx.g.add("div", [safe, scalar(ctx, block, safe.dtype)])
    factor = gathered(ctx, scale, own, axis, data.shape[axis], axis == quantised)
    if zero is None:
        middle = 1 << (bits - 1) if data.dtype is dtypes.u8 else 0
        offset = scalar(ctx, middle, rows.dtype)
    else:
        found = unpacked(ctx, ctx.g.add("gather", [zero, own], axis=axis), bits)
        offset = trimmed(ctx, cast(ctx, found, rows.dtype), factor.shape[-1])
    where = quantised if quantised < axis else quantised + at.tensor.rank - 1
    if axis != quantised:
        factor, offset = (spread(ctx, v, where, rows, block) for v in (factor, offset))
    real = cast(ctx, ctx.g.add("sub", [rows, offset]), dtypes.f32)
    real = ctx.g.add("mul", [real, cast(ctx, factor, dtypes.f32)])
    mask = reshape(ctx, is_inside, (*[1] * axis, *at.shape, *[1] * (rank - 1 - axis)))
    real = ctx.g.add("where", [mask, real, scalar(ctx, 0, dtypes.f32)])
    return [cast(ctx, real, scale.dtype)]


def clamped(ctx: Importer, at: Value, size: arith.Expr) -> tuple[Value, Value]:
    """Indices in 0 … size - 1, negative ones counted from the end; and which were in range."""
    g = ctx.g
    extent = cast(ctx, g.add("index_tensor", [], values=(size,), shape=()), at.dtype)
    zero = scalar(ctx, 0, at.dtype)
    front = g.add("where", [g.add("lt", [at, zero]), g.add("add", [at, extent]), at])
    inside = g.add("and", [g.add("ge", [front, zero]), g.add("lt", [front, extent])])
    return g.add("where", [inside, front, zero]), inside


def gathered(
    ctx: Importer, x: Value, at: Value, axis: int, size: arith.Expr, is_blocked: bool
) -> Value:
    """Rows of the scales; those of a table with one row are for all indices."""
    if not is_blocked and arith.is_const(x.shape[axis], 1) and not arith.is_const(size, 1):
        at = ctx.g.add("mul", [at, scalar(ctx, 0, at.dtype)])
    return ctx.g.add("gather", [x, at], axis=axis)


def trimmed(ctx: Importer, x: Value, size: arith.Expr) -> Value:
    """Without the numbers that fill the last byte."""
    return last(ctx, x, arith.Const(0), size)


def spread(ctx: Importer, x: Value, axis: int, like: Value, block: int) -> Value:
    """Each value repeated for the elements of its block along `axis`; block 0 is the whole axis."""
    if x.tensor.rank == 0:
        return x
    blocks, size = x.shape[axis], like.shape[axis]
    block_size = arith.wrap(block) if block else size
    head, tail = x.shape[:axis], x.shape[axis + 1 :]
    wide = reshape(ctx, x, (*head, blocks, 1, *tail))
    wide = ctx.g.add("expand", [wide], shape=(*head, blocks, block_size, *tail))
    whole = reshape(ctx, wide, (*head, tidy(ctx, blocks * block_size), *tail))
    rank = whole.tensor.rank
    sizes = (*whole.shape[:axis], size, *whole.shape[axis + 1 :])
    return ctx.g.add("slice", [whole], starts=(0,) * rank, sizes=sizes, steps=(1,) * rank)
