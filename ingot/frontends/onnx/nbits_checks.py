"""What the operands of MatMulNBits must be: weights of few bits, packed into bytes by blocks.

In: a node. Out: nothing, or an error that names the node and says which sizes its attributes need.
Called by quant_checks.py. B may be flat, as may the scales: some exporters write them so.
"""

from __future__ import annotations

import math

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.onnx.registry import Importer, OnnxNode
from ingot.graph.ir import Value
from ingot.support.errors import IngotError

BITS = (2, 4, 8)


def check_nbits(ctx: Importer, node: OnnxNode) -> None:
    depth, columns, block = (_count(node, name) for name in ("K", "N", "block_size"))
    bits = node.attr("bits", 4)
    if bits not in BITS:
        raise _bad(node, f"attribute 'bits' is {bits!r}", "weights have 2, 4 or 8 bits", "bits=4")
    if block * bits % 8:
        why = f"a block of {block} weights of {bits} bits is no whole number of bytes"
        raise _bad(node, f"attribute 'block_size' is {block}", why, "block_size=32")
    blocks = -(-depth // block)
    a, b, scale, zero = (ctx.optional(node, i) for i in range(4))
    sizes = f"K={depth}, N={columns}, block_size={block}, bits={bits}"
    if b is not None:
        if b.dtype is not dtypes.u8:
            why = f"it is {b.type}: weights are packed into u8"
            raise _bad(
                node, f"the weights {b.name!r} have the wrong type", why, "reinterpret as u8"
            )
        _need(node, "the weights", b, (columns, blocks, block * bits // 8), sizes)
    if scale is not None:
        _need(node, "the scales", scale, (columns, blocks), sizes)
    if zero is not None:
        _check_zero(node, zero, (columns, blocks), bits, sizes)
    if a is not None and a.tensor.rank and arith.as_int(a.shape[-1]) not in (None, depth):
        why = f"K is {depth}, the last axis of {a.name!r} has {a.shape[-1]}"
        raise _bad(node, f"the operand {a.name!r}, {a.type}, does not fit K", why, "change K")


def _check_zero(node: OnnxNode, zero: Value, shape: tuple[int, int], bits: int, sizes: str) -> None:
    """Packed as the weights are, or numbers of the type of A."""
    columns, blocks = shape
    if zero.dtype.is_float:
        _need(node, "the zero points", zero, shape, sizes)
    elif zero.dtype is dtypes.u8:
        _need(node, "the zero points", zero, (columns, -(-blocks * bits // 8)), sizes)
    else:
        why = f"they are {zero.type}: packed into u8, or floats"
        raise _bad(node, f"the zero points {zero.name!r} have the wrong type", why, "pack into u8")


def _need(node: OnnxNode, what: str, value: Value, shape: tuple[int, ...], sizes: str) -> None:
    count = arith.as_int(value.tensor.numel)
    if count is not None and count != math.prod(shape):
        wanted = f"{value.dtype}{list(shape)}"
        why = f"{sizes} need {wanted}, {math.prod(shape)} elements; there are {count}"
        raise _bad(
            node, f"{what} {value.name!r} are {value.type}", why, f"{wanted}, or other sizes"
        )


def _count(node: OnnxNode, name: str) -> int:
    value = node.attr(name)
    if not isinstance(value, int) or value < 1:
        found = "is missing" if value is None else f"is {value!r}"
        raise _bad(node, f"attribute {name!r} {found}", "it is at least 1", f"give {name}")
    return value


def _bad(node: OnnxNode, what: str, why: str, hint: str) -> IngotError:
    return IngotError("bad-model", what, where=node.where, why=why, hint=hint)
