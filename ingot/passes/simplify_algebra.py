"""Algebraic simplification (peephole rewrites): the named rules of `RULES`. Called by the pipeline.

A rule gets a node whose operands are already simplified. It returns a value that replaces the
node's output, a node that computes the output another way, or None. Rules hold for NaN and inf: no
x*0 → 0 and no x-x → 0 on floats. A value replaces another only if their types are equal, so that
broadcasts and casts are kept. The one exception: x + 0 → x does not keep the sign of a zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot.arith import expr as arith
from ingot.dtypes import DType, Family
from ingot.graph.ir import Graph, Node, Value, make_attrs
from ingot.graph.store import ConstantStore
from ingot.graph.types import same_size
from ingot.passes.edit import Editor, map_subgraphs, same_type
from ingot.passes.trim_taps import trim_taps

Rewrite = Value | Node | None


@dataclass(frozen=True)
class AlgebraRule:
    name: str
    ops: tuple[str, ...]
    apply: Callable[[Editor, Node], Rewrite]


def simplify_algebra(graph: Graph, store: ConstantStore) -> Graph:
    """Apply the rules of `RULES` until none applies."""
    while True:
        simpler = _sweep(graph, store)
        if simpler == graph:
            return graph
        graph = simpler


def _sweep(graph: Graph, store: ConstantStore) -> Graph:
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: simplify_algebra(g, store))
        edit.g.origin = node.origin
        rewrite = _first_rewrite(edit, node)
        if isinstance(rewrite, Value):
            edit.replace(node, [rewrite])
        else:
            edit.keep(rewrite or node)
    return edit.finish()


def _first_rewrite(edit: Editor, node: Node) -> Rewrite:
    for rule in _BY_OP.get(node.op, ()):
        rewrite = rule.apply(edit, node)
        if isinstance(rewrite, Value) and not same_type(rewrite.type, node.outputs[0].type):
            continue
        if rewrite is not None:
            return rewrite
    return None


# --- queries of rules ---------------------------------------------------------------------------


def _is_all(edit: Editor, value: Value | None, number: float) -> bool:
    """Whether a value is a constant with this number in every element."""
    array = edit.constant(value)
    return array is not None and bool(np.all(array == np.asarray(number).astype(array.dtype)))


def _single(edit: Editor, value: Value | None) -> float | None:
    """The number in every element of a constant, if they are all equal."""
    array = edit.constant(value)
    if array is None or array.size == 0:
        return None
    first = array.reshape(-1)[0]
    return float(first) if bool(np.all(array == first)) else None


def _operand(edit: Editor, node: Node, op: str) -> Node | None:
    """The producer of the node's first operand, if it is this operator."""
    producer = edit.producer(node.inputs[0])
    return producer if producer is not None and producer.op == op else None


def _make(node: Node, op: str, *inputs: Value | None, **attrs: Any) -> Node:
    """Another node with the same outputs."""
    return Node(op, inputs, node.outputs, make_attrs(attrs), node.origin)


def _is_positive(edit: Editor, value: Value | None, depth: int = 8) -> bool:
    """Whether no element is negative (an element may be NaN)."""
    producer = edit.producer(value)
    if producer is None or depth == 0:
        return False
    constant = edit.constant(value)
    if constant is not None:
        return not np.any(constant < np.asarray(0).astype(constant.dtype))
    if producer.op in ("abs", "relu", "exp", "sigmoid", "softmax", "sqrt", "reduce_sum_square"):
        return True
    if producer.op == "mul" and producer.inputs[0] == producer.inputs[1]:
        return True
    if producer.op in ("add", "mul", "div", "reduce_mean", "reduce_sum", "reshape", "identity"):
        return all(_is_positive(edit, v, depth - 1) for v in producer.inputs)
    return False


# bits of the mantissa with the implicit one: integers below 2**bits are exact
_MANTISSA_BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
_WIDER = {("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("f32", "f64")}


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether `wide` represents every value of `narrow` exactly."""
    if narrow.is_bool:
        return wide.is_int or wide.is_float
    if narrow.is_float:
        return (narrow.name, wide.name) in _WIDER
    value_bits = narrow.bits - narrow.is_signed
    if wide.is_float:
        return value_bits <= _MANTISSA_BITS.get(wide.name, 0) and wide.name != "f16"
    if narrow.is_signed and wide.family is not Family.INT:
        return False
    return value_bits <= wide.bits - wide.is_signed


# --- rules --------------------------------------------------------------------------------------


def _first(edit: Editor, node: Node) -> Rewrite:
    return node.inputs[0]


def _neutral_right(number: float) -> Callable[[Editor, Node], Rewrite]:
    """op(x, number) → x"""
    return lambda edit, node: node.inputs[0] if _is_all(edit, node.inputs[1], number) else None


def _neutral_left(number: float) -> Callable[[Editor, Node], Rewrite]:
    """op(number, x) → x"""
    return lambda edit, node: node.inputs[1] if _is_all(edit, node.inputs[0], number) else None


def _all_attrs(number: int, *names: str) -> Callable[[Editor, Node], Rewrite]:
    """op(x) → x if every entry of the named attributes is `number`."""

    def apply(edit: Editor, node: Node) -> Rewrite:
        entries = [v for name in names for v in node.attr(name)]
        return node.inputs[0] if all(arith.is_const(v, number) for v in entries) else None

    return apply


def _same_operands(edit: Editor, node: Node) -> Rewrite:
    return node.inputs[-1] if node.inputs[-1] == node.inputs[-2] else None


def _involution(edit: Editor, node: Node) -> Rewrite:
    """f(f(x)) → x"""
    inner = _operand(edit, node, node.op)
    return inner.inputs[0] if inner else None


def _idempotent(edit: Editor, node: Node) -> Rewrite:
    """f(f(x)) → f(x)"""
    return node.inputs[0] if _operand(edit, node, node.op) else None


def _cast_back(edit: Editor, node: Node) -> Rewrite:
    inner = _operand(edit, node, "cast")
    x = inner.inputs[0] if inner else None
    if inner is None or x is None or not _holds(inner.outputs[0].dtype, x.dtype):
        return None
    return x


def _transpose_twice(edit: Editor, node: Node) -> Rewrite:
    inner = _operand(edit, node, "transpose")
    if inner is None:
        return None
    perm = tuple(inner.attr("perm")[axis] for axis in node.attr("perm"))
    return _make(node, "transpose", inner.inputs[0], perm=perm)


def _transpose_identity(edit: Editor, node: Node) -> Rewrite:
    perm = node.attr("perm")
    return node.inputs[0] if list(perm) == list(range(len(perm))) else None


def _reshape_twice(edit: Editor, node: Node) -> Rewrite:
    inner = _operand(edit, node, "reshape")
    return _make(node, "reshape", inner.inputs[0], shape=node.attr("shape")) if inner else None


def _transpose_merged(edit: Editor, node: Node) -> Rewrite:
    """reshape(transpose(reshape(x))), where the reshapes merge and split the leading axes, is one
    transpose of x."""
    moved = _operand(edit, node, "transpose")
    merged = _operand(edit, moved, "reshape") if moved else None
    if moved is None or merged is None or merged.inputs[0] is None or moved.attr("perm")[0] != 0:
        return None
    x, inside, perm = merged.inputs[0].tensor, merged.outputs[0].tensor, moved.attr("perm")
    lead = x.rank - inside.rank + 1
    wanted = (*x.shape[:lead], *moved.outputs[0].shape[1:])
    out = node.outputs[0].tensor
    pairs = [*zip(x.shape[lead:], inside.shape[1:]), *zip(out.shape, wanted)]
    if lead < 1 or out.rank != x.rank or not all(same_size(a, b) for a, b in pairs):
        return None
    whole = (*range(lead), *(axis + lead - 1 for axis in perm[1:]))
    return _make(node, "transpose", merged.inputs[0], perm=whole)


def _slice_identity(edit: Editor, node: Node) -> Rewrite:
    starts, steps = node.attr("starts"), node.attr("steps")
    at_start = all(arith.is_const(v, 0) for v in starts)
    return node.inputs[0] if at_start and all(arith.is_const(v, 1) for v in steps) else None


def _reshape_of_slice(edit: Editor, node: Node) -> Rewrite:
    """reshape(slice(x)) → slice(reshape(x)) if it splits the sliced axis: the slice is a view."""
    cut = _operand(edit, node, "slice")
    if (
        cut is None
        or cut.inputs[0] is None
        or not all(arith.is_const(v, 1) for v in cut.attr("steps"))
    ):
        return None
    x, before, after = cut.inputs[0].tensor, cut.outputs[0].tensor, node.outputs[0].tensor
    axes = [n for n in range(x.rank) if not same_size(x.shape[n], before.shape[n])]
    if len(axes) != 1:
        return None
    axis, more = axes[0], after.rank - before.rank
    others = (*before.shape[:axis], *before.shape[axis + 1 :])
    kept = (*after.shape[:axis], *after.shape[axis + more + 1 :])
    if more < 1 or not all(map(same_size, others, kept)):
        return None
    pieces = after.shape[axis : axis + more + 1]
    inner = arith.as_int(arith.product(list(pieces[1:])))
    start, whole = (arith.as_int(arith.wrap(v)) for v in (cut.attr("starts")[axis], x.shape[axis]))
    if not inner or start is None or whole is None or start % inner or whole % inner:
        return None
    shape = (*x.shape[:axis], whole // inner, *pieces[1:], *x.shape[axis + 1 :])
    starts = (*(0,) * axis, start // inner, *(0,) * (len(shape) - axis - 1))
    split = edit.g.add("reshape", [cut.inputs[0]], shape=shape)
    return _make(node, "slice", split, starts=starts, sizes=after.shape, steps=(1,) * len(shape))


def _concat_one(edit: Editor, node: Node) -> Rewrite:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _where_constant(edit: Editor, node: Node) -> Rewrite:
    cond = edit.constant(node.inputs[0])
    if cond is None or cond.size == 0 or not (cond.all() or not cond.any()):
        return None
    return node.inputs[1] if cond.all() else node.inputs[2]


def _clip_unbounded(edit: Editor, node: Node) -> Rewrite:
    return node.inputs[0] if not any(node.inputs[1:]) else None


def _power(edit: Editor, node: Node) -> Rewrite:
    """x ** n for exponents with a cheaper equivalent: strength reduction."""
    x, exponent = node.inputs[0], _single(edit, node.inputs[1])
    if x is None or not same_type(x.type, node.outputs[0].type):
        return None
    if exponent == 1:
        return x
    if exponent == 2:
        return _make(node, "mul", x, x)
    if exponent == 3:
        return _make(node, "mul", edit.g.add("mul", [x, x]), x)
    if exponent == -1 and x.dtype.is_float:
        return _make(node, "reciprocal", x)
    if exponent == 0.5 and x.dtype.is_float and _is_positive(edit, x):
        return _make(node, "sqrt", x)  # they differ for -inf
    return None


def _div_power_of_two(edit: Editor, node: Node) -> Rewrite:
    x, divisor = node.inputs[0], edit.constant(node.inputs[1])
    if divisor is None or x is None or not x.dtype.is_float:
        return None
    exact = divisor.astype(np.float64)
    with np.errstate(all="ignore"):
        inverse = (1 / exact).astype(divisor.dtype)
        is_power = np.abs(np.frexp(exact)[0]) == 0.5
        is_exact = inverse.astype(np.float64) * exact == 1
    if not np.all(is_power & is_exact):
        return None
    return _make(node, "mul", x, edit.g.constant(inverse))


RULES: tuple[AlgebraRule, ...] = (
    AlgebraRule("identity", ("identity",), _first),
    AlgebraRule("cast_to_same", ("cast",), _first),
    AlgebraRule("cast_and_back", ("cast",), _cast_back),
    AlgebraRule("add_zero", ("add", "sub", "or", "xor", "shl", "shr"), _neutral_right(0)),
    AlgebraRule("zero_add", ("add", "or", "xor"), _neutral_left(0)),
    AlgebraRule("mul_one", ("mul", "div", "pow"), _neutral_right(1)),
    AlgebraRule("one_mul", ("mul",), _neutral_left(1)),
    AlgebraRule("min_or_max_with_itself", ("min", "max", "and", "or"), _same_operands),
    AlgebraRule(
        "and_true", ("and",), lambda e, n: _neutral_right(1)(e, n) if _is_bool(n) else None
    ),
    AlgebraRule("true_and", ("and",), lambda e, n: _neutral_left(1)(e, n) if _is_bool(n) else None),
    AlgebraRule("involution", ("neg", "not", "bitwise_not"), _involution),
    AlgebraRule("idempotent", ("abs", "relu", "floor", "ceil", "round"), _idempotent),
    AlgebraRule("transpose_twice", ("transpose",), _transpose_twice),
    AlgebraRule("transpose_identity", ("transpose",), _transpose_identity),
    AlgebraRule("reshape_twice", ("reshape",), _reshape_twice),
    AlgebraRule("transpose_merged", ("reshape",), _transpose_merged),
    AlgebraRule("reshape_of_slice", ("reshape",), _reshape_of_slice),
    AlgebraRule("reshape_or_expand_identity", ("reshape", "expand"), _first),
    AlgebraRule("tile_identity", ("tile",), _all_attrs(1, "repeats")),
    AlgebraRule("pad_identity", ("pad",), _all_attrs(0, "before", "after")),
    AlgebraRule("slice_identity", ("slice",), _slice_identity),
    AlgebraRule("concat_of_one", ("concat",), _concat_one),
    AlgebraRule("where_constant", ("where",), _where_constant),
    AlgebraRule("where_same", ("where",), _same_operands),
    AlgebraRule("clip_unbounded", ("clip",), _clip_unbounded),
    AlgebraRule("small_power", ("pow",), _power),
    AlgebraRule("div_by_power_of_two", ("div",), _div_power_of_two),
    AlgebraRule("taps_in_padding", ("conv",), trim_taps),
)

_BY_OP: dict[str, list[AlgebraRule]] = {}
for _rule in RULES:
    for _op in _rule.ops:
        _BY_OP.setdefault(_op, []).append(_rule)


def _is_bool(node: Node) -> bool:
    return node.outputs[0].type.dtype.is_bool
