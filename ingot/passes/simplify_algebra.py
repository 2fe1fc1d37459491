"""Graph → Graph by algebra: named rules, each a row of `RULES`. Called by the pipeline.

A rule gets a node whose operands are already simplified, and answers with a value that stands for
it, with a node that makes its output another way, or with None. Rules hold for every
number: no x*0 → 0 and no x-x → 0 on floats, and a value stands for another only if their types are
equal, so broadcasting and casts are never lost. The sign of a zero is not kept by x + 0 → x.
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
from ingot.graph.types import TensorType
from ingot.passes.edit import Editor, map_subgraphs, same_size, same_type

Answer = Value | Node | None


@dataclass(frozen=True)
class Rule:
    name: str
    ops: tuple[str, ...]
    apply: Callable[[Editor, Node], Answer]


def simplify_algebra(graph: Graph, store: ConstantStore) -> Graph:
    """Apply every rule of `RULES` wherever it holds, until none does."""
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
        answer = _first_answer(edit, node)
        if isinstance(answer, Value):
            edit.replace(node, [answer])
        else:
            edit.keep(answer or node)
    return edit.finish()


def _first_answer(edit: Editor, node: Node) -> Answer:
    for rule in _BY_OP.get(node.op, ()):
        answer = rule.apply(edit, node)
        if isinstance(answer, Value) and not same_type(answer.type, node.outputs[0].type):
            continue
        if answer is not None:
            return answer
    return None


# --- what rules ask -----------------------------------------------------------------------------


def _is_all(edit: Editor, value: Value | None, number: float) -> bool:
    """Whether a value is a constant with this number everywhere."""
    array = edit.constant(value)
    return array is not None and bool(np.all(array == np.asarray(number).astype(array.dtype)))


def _single(edit: Editor, value: Value | None) -> float | None:
    """The number a constant has everywhere, if there is one."""
    array = edit.constant(value)
    if array is None or array.size == 0:
        return None
    first = array.reshape(-1)[0]
    return float(first) if bool(np.all(array == first)) else None


def _operand(edit: Editor, node: Node, op: str) -> Node | None:
    """What makes the node's first operand, if it is this operator."""
    maker = edit.maker(node.inputs[0])
    return maker if maker is not None and maker.op == op else None


def _make(node: Node, op: str, *inputs: Value | None, **attrs: Any) -> Node:
    """Another node for the same outputs."""
    return Node(op, inputs, node.outputs, make_attrs(attrs), node.origin)


def _is_positive(edit: Editor, value: Value | None, depth: int = 8) -> bool:
    """Whether no element is below zero (NaN may be)."""
    maker = edit.maker(value)
    if maker is None or depth == 0:
        return False
    constant = edit.constant(value)
    if constant is not None:
        return not np.any(constant < np.asarray(0).astype(constant.dtype))
    if maker.op in ("abs", "relu", "exp", "sigmoid", "softmax", "sqrt", "reduce_sum_square"):
        return True
    if maker.op == "mul" and maker.inputs[0] == maker.inputs[1]:
        return True
    if maker.op in ("add", "mul", "div", "reduce_mean", "reduce_sum", "reshape", "identity"):
        return all(_is_positive(edit, v, depth - 1) for v in maker.inputs)
    return False


_MANTISSA_BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
_WIDER = {("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("f32", "f64")}


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` survives in `wide`."""
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


def _first(edit: Editor, node: Node) -> Answer:
    return node.inputs[0]


def _neutral_right(number: float) -> Callable[[Editor, Node], Answer]:
    """op(x, number) → x"""
    return lambda edit, node: node.inputs[0] if _is_all(edit, node.inputs[1], number) else None


def _neutral_left(number: float) -> Callable[[Editor, Node], Answer]:
    """op(number, x) → x"""
    return lambda edit, node: node.inputs[1] if _is_all(edit, node.inputs[0], number) else None


def _all_attrs(number: int, *names: str) -> Callable[[Editor, Node], Answer]:
    """A move with `number` for each axis in the named attributes leaves x where it is."""

    def apply(edit: Editor, node: Node) -> Answer:
        entries = [v for name in names for v in node.attr(name)]
        return node.inputs[0] if all(arith.is_const(v, number) for v in entries) else None

    return apply


def _same_operands(edit: Editor, node: Node) -> Answer:
    return node.inputs[-1] if node.inputs[-1] == node.inputs[-2] else None


def _undone(edit: Editor, node: Node) -> Answer:
    """f(f(x)) → x"""
    inner = _operand(edit, node, node.op)
    return inner.inputs[0] if inner else None


def _repeated(edit: Editor, node: Node) -> Answer:
    """f(f(x)) → f(x)"""
    return node.inputs[0] if _operand(edit, node, node.op) else None


def _cast_back(edit: Editor, node: Node) -> Answer:
    inner = _operand(edit, node, "cast")
    x = inner.inputs[0] if inner else None
    if inner is None or x is None or not _holds(inner.outputs[0].dtype, x.dtype):
        return None
    return x


def _transpose_twice(edit: Editor, node: Node) -> Answer:
    inner = _operand(edit, node, "transpose")
    if inner is None:
        return None
    perm = tuple(inner.attr("perm")[axis] for axis in node.attr("perm"))
    return _make(node, "transpose", inner.inputs[0], perm=perm)


def _transpose_nothing(edit: Editor, node: Node) -> Answer:
    perm = node.attr("perm")
    return node.inputs[0] if list(perm) == list(range(len(perm))) else None


def _reshape_twice(edit: Editor, node: Node) -> Answer:
    inner = _operand(edit, node, "reshape")
    return _make(node, "reshape", inner.inputs[0], shape=node.attr("shape")) if inner else None


def _transpose_merged(edit: Editor, node: Node) -> Answer:
    """Leading axes made one, others transposed, and the leading ones again: a transpose of all."""
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


def _slice_all(edit: Editor, node: Node) -> Answer:
    starts, steps = node.attr("starts"), node.attr("steps")
    at_start = all(arith.is_const(v, 0) for v in starts)
    return node.inputs[0] if at_start and all(arith.is_const(v, 1) for v in steps) else None


def _reshape_of_slice(edit: Editor, node: Node) -> Answer:
    """A stretch of an axis, split: a stretch of the split axis, which can be read where it lies."""
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
    beside = (*before.shape[:axis], *before.shape[axis + 1 :])
    kept = (*after.shape[:axis], *after.shape[axis + more + 1 :])
    if more < 1 or not all(map(same_size, beside, kept)):
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


def _concat_one(edit: Editor, node: Node) -> Answer:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _where_known(edit: Editor, node: Node) -> Answer:
    cond = edit.constant(node.inputs[0])
    if cond is None or cond.size == 0 or not (cond.all() or not cond.any()):
        return None
    return node.inputs[1] if cond.all() else node.inputs[2]


def _clip_nothing(edit: Editor, node: Node) -> Answer:
    return node.inputs[0] if not any(node.inputs[1:]) else None


def _power(edit: Editor, node: Node) -> Answer:
    """x ** n for the exponents that have a cheaper spelling of the same number."""
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
        return _make(node, "sqrt", x)  # of -inf the two differ
    return None


def _div_power_of_two(edit: Editor, node: Node) -> Answer:
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


RULES: tuple[Rule, ...] = (
    Rule("identity", ("identity",), _first),
    Rule("cast_to_same", ("cast",), _first),
    Rule("cast_and_back", ("cast",), _cast_back),
    Rule("add_zero", ("add", "sub", "or", "xor", "shl", "shr"), _neutral_right(0)),
    Rule("zero_add", ("add", "or", "xor"), _neutral_left(0)),
    Rule("mul_one", ("mul", "div", "pow"), _neutral_right(1)),
    Rule("one_mul", ("mul",), _neutral_left(1)),
    Rule("min_or_max_with_itself", ("min", "max", "and", "or"), _same_operands),
    Rule("and_true", ("and",), lambda e, n: _neutral_right(1)(e, n) if _is_bool(n) else None),
    Rule("true_and", ("and",), lambda e, n: _neutral_left(1)(e, n) if _is_bool(n) else None),
    Rule("undone", ("neg", "not", "bitwise_not"), _undone),
    Rule("repeated", ("abs", "relu", "floor", "ceil", "round"), _repeated),
    Rule("transpose_twice", ("transpose",), _transpose_twice),
    Rule("transpose_nothing", ("transpose",), _transpose_nothing),
    Rule("reshape_twice", ("reshape",), _reshape_twice),
    Rule("transpose_merged", ("reshape",), _transpose_merged),
    Rule("reshape_of_slice", ("reshape",), _reshape_of_slice),
    Rule("reshape_or_expand_nothing", ("reshape", "expand"), _first),
    Rule("tile_nothing", ("tile",), _all_attrs(1, "repeats")),
    Rule("pad_nothing", ("pad",), _all_attrs(0, "before", "after")),
    Rule("slice_everything", ("slice",), _slice_all),
    Rule("concat_of_one", ("concat",), _concat_one),
    Rule("where_known", ("where",), _where_known),
    Rule("where_same", ("where",), _same_operands),
    Rule("clip_nothing", ("clip",), _clip_nothing),
    Rule("small_power", ("pow",), _power),
    Rule("div_by_power_of_two", ("div",), _div_power_of_two),
)

_BY_OP: dict[str, list[Rule]] = {}
for _rule in RULES:
    for _op in _rule.ops:
        _BY_OP.setdefault(_op, []).append(_rule)


def _is_bool(node: Node) -> bool:
    type = node.outputs[0].type
    return isinstance(type, TensorType) and type.dtype.is_bool
