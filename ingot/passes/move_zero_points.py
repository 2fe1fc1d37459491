"""Moves zero points from the operands of integer contractions to their sums.

    conv(cast(x) - zx, w: i32, b)     →  conv(x, w as i8, b - zx·Σw, fill=zx)
    matmul_integer(x, w, zx, zw)      →  matmul(x, (w - zw) as i8) - zx·Σ(w - zw)

for an 8-bit x and constant weights whose centred values have a range of 8 bits in each output
channel. That is what front ends make of ConvInteger, QLinearConv, MatMulInteger, QGemm and the
others; zx may be computed at run time. Exact: i32 sums wrap alike. In: a Graph whose constants are
folded. Out: a Graph. Called by the pipeline; INGOT_OFF=integers switches it off.
"""

from __future__ import annotations

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, map_subgraphs
from ingot.passes.integer_sums import Weights, integer_conv, integer_matmul, of_integers
from ingot.passes.quantised import EIGHT_BITS, is_one_element
from ingot.support import options


def move_zero_points(graph: Graph, store: ConstantStore) -> Graph:
    """Apply the rules above, in all sub-graphs too."""
    if not options.current().has("integers"):
        return graph
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: move_zero_points(g, store))
        edit.g.origin = node.origin
        rule = {"conv": _conv, "matmul_integer": _matmul}.get(node.op)
        total = None if rule is None else rule(edit, node)
        if total is None:
            edit.keep(node)
        else:
            edit.replace(node, [total])
    return edit.finish()


def _conv(edit: Editor, conv: Node) -> Value | None:
    x, w, bias = (*conv.inputs, None)[:3]
    if x is None or w is None or x.dtype is not dtypes.i32 or len(conv.inputs) > 3:
        return None
    found, integers = _centred(edit, x), _integers(edit, w)
    if found is None or integers is None:
        return None
    weights = of_integers(integers, 0, conv.attr("group", 1) > 1)
    if weights is None:
        return None
    start = edit.constant(bias)
    total = integer_conv(edit, conv, *found, weights, start)
    if bias is None or start is not None:
        return total
    column = edit.g.add("reshape", [bias], shape=(bias.shape[0], *(1,) * (x.tensor.rank - 2)))
    return edit.g.add("add", [total, column])


def _centred(edit: Editor, value: Value) -> tuple[Value, Value | None] | None:
    """x and its zero point, where the value is cast(x) or cast(x) - cast(zero)."""
    producer = edit.producer(value)
    if producer is None or producer.op == "cast":
        x = _narrow(edit, value)
        return None if x is None else (x, None)
    if producer.op != "sub":
        return None
    x = _narrow(edit, producer.inputs[0])
    zero = None if x is None else _zero_point(edit, producer.inputs[1], x)
    return None if x is None or zero is None else (x, zero)


def _narrow(edit: Editor, value: Value | None) -> Value | None:
    """The 8-bit integers that a value casts to i32."""
    cast = edit.producer(value)
    if cast is None or cast.op != "cast" or cast.inputs[0] is None:
        return None
    return cast.inputs[0] if cast.inputs[0].dtype in EIGHT_BITS else None


def _zero_point(edit: Editor, value: Value | None, x: Value) -> Value | None:
    """One zero point in the type of x."""
    array = edit.constant(value)
    if array is not None:
        fits = array.size == 1 and x.dtype.lowest <= array.reshape(-1)[0] <= x.dtype.highest
        return edit.g.constant(array.reshape(()).astype(x.dtype.numpy)) if fits else None
    zero = _narrow(edit, value)
    if zero is None or zero.dtype is not x.dtype:
        return None
    return zero if is_one_element(zero.tensor) else None


def _integers(edit: Editor, w: Value) -> np.ndarray | None:
    """Constant integers, maybe cast from 8 bits."""
    array = edit.constant(w)
    return array if array is not None else edit.constant(_narrow(edit, w))


def _matmul(edit: Editor, node: Node) -> Value | None:
    a, b, a_zero, b_zero = (*node.inputs, None, None)[:4]
    if a is None or b is None or a.dtype not in EIGHT_BITS or a.tensor.rank == 0:
        return None
    weights = _matmul_weights(edit, b, b_zero)
    if weights is None or not (a_zero is None or is_one_element(a_zero.tensor)):
        return None
    return integer_matmul(edit, a, a_zero, weights)


def _matmul_weights(edit: Editor, b: Value, zero: Value | None) -> Weights | None:
    array, offset = edit.constant(b), edit.constant(zero)
    if array is None or (zero is not None and offset is None) or array.ndim < 2:
        return None
    if b.dtype not in EIGHT_BITS or any(arith.as_int(d) is None for d in b.shape):
        return None
    if offset is None or not np.any(offset):
        if b.dtype is dtypes.i8:
            return of_integers(array, array.ndim - 1, False, b)
        return of_integers(array.astype(np.int32), array.ndim - 1, False)
    centred = array.astype(np.int32) - offset.astype(np.int32)
    return of_integers(centred, array.ndim - 1, False) if centred.shape == array.shape else None
