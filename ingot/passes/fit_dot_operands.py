"""Gives contractions of 8-bit integers operands that a dot-product instruction takes.

    matmul(x: i8, w: i8)   x86, u8 · i8    →  matmul(x ^ 0x80, w) - 128 · Σ w of each column
    matmul(x: u8, w: u8)   x86, u8 · i8    →  matmul(x, w - 128) + 128 · Σ x of each row
    conv(x, w)             i16 · i16 only  →  conv(cast(x, i16), w as i16)
    conv(x, w), C = 3      groups of 4     →  conv(pad(x), pad(w)), C = 4

All of it is exact: sums of i32 wrap. w is a constant, so that its sums are constants too, and the
cheapest instruction of the target decides (cost/dot_products.py). The sign of x changes where it is
made (passes/flip_signs.py): a quantisation to i8 becomes one to u8 with another zero point. K is
padded with zeros to a multiple of the instruction's group. Without an instruction for the types,
the contraction stays as it is. In: a Graph. Out: a Graph. A stage of the CPU back end before
choose_layouts.
"""

from __future__ import annotations

import numpy as np

from ingot import dtypes
from ingot.cost.dot_products import DotRow, dot_product
from ingot.dtypes import DType
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.store import ConstantStore
from ingot.ops.conv import window
from ingot.passes.dot_operands import columns_fill
from ingot.passes.edit import Editor, map_subgraphs
from ingot.passes.fit_windows import Windows
from ingot.passes.flip_signs import FLIPPED, Signs, flip_array, wanted_flips
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.target import Target

OPS = ("conv", "matmul")
ROW_SUMS = 4  # cost of sums of x's rows, relative to changing its sign; heuristic


def fit_dot_operands(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    """Fit the operands of every contraction that has a constant 8-bit operand."""
    edit = Editor(graph, store)
    todo = _plans(graph, edit, target)
    if not todo and not any(any(True for _ in n.subgraphs) for n in graph.nodes):
        return graph
    flips = [n.inputs[0] for n in graph.nodes for row in todo.get(_key(n), ()) if _flips(n, row)]
    signs = Signs(edit, wanted_flips(graph, [v for v in flips if v is not None], store))
    fit = _Fit(edit, signs)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: fit_dot_operands(g, store, target))
        edit.g.origin = node.origin
        row = next(iter(todo.get(_key(original), ())), None)
        if row is not None:
            edit.replace(node, [fit.fitted(node, row)])
        elif not signs.rewrote(node):
            edit.keep(node)
    return remove_dead_code(edit.finish(), store)


def _key(node: Node) -> str:
    return node.outputs[0].name if node.outputs else ""


def _flips(node: Node, row: DotRow) -> bool:
    x = node.inputs[0]
    return x is not None and row.a != x.dtype.name and row.a in FLIPPED


def _plans(graph: Graph, edit: Editor, target: Target) -> dict[str, tuple[DotRow]]:
    """The instruction of each contraction that has one."""
    constants = {n.outputs[0].name: n.attr("value") for n in graph.nodes if n.op == "constant"}
    found = {}
    for node in graph.nodes:
        if node.op in OPS and node.attr("group", 1) == 1 and not node.attr("clip_rows", False):
            x, w = node.inputs[:2]
            if x is not None and w is not None and w.name in constants:
                row = _instruction(node, edit.store.get(constants[w.name]), target)
                if row is not None:
                    found[_key(node)] = (row,)
    return found


def _instruction(node: Node, w: np.ndarray, target: Target) -> DotRow | None:
    """The instruction for which the operands take the least change."""
    x = node.inputs[0]
    assert x is not None
    if x.dtype.name not in FLIPPED or w.dtype not in (np.int8, np.uint8):
        return None
    if node.op == "matmul" and (w.ndim != 2 or x.tensor.rank < 2):
        return None
    options: list[tuple[int, DotRow]] = []
    for xt in (dtypes.u8, dtypes.i8):
        for wt in (dtypes.i8, dtypes.u8):
            row = dot_product(target, xt, wt)
            if row is not None:
                change = (xt is not x.dtype) + (0 if fits(w, wt) else ROW_SUMS)
                options.append((change, row))
    wide = dot_product(target, dtypes.i16, dtypes.i16)
    if not options and wide is not None:
        options.append((0, wide))
    best = min(options, key=lambda o: o[0], default=None)
    columns = w.shape[1] if node.op == "matmul" else w.shape[0]
    return best[1] if best is not None and columns_fill(columns, best[1]) else None


def fits(w: np.ndarray, dtype: DType) -> bool:
    info = np.iinfo(dtype.numpy)
    return not w.size or (int(w.min()) >= info.min and int(w.max()) <= info.max)


class _Fit:
    """Contractions over fitted operands; a value is changed once for all its readers."""

    def __init__(self, edit: Editor, signs: Signs):
        self.edit, self.g, self.signs = edit, edit.g, signs
        self._wide: dict[str, Value] = {}
        self.windows = Windows(edit.g)
        self._row_sums: dict[str, Value] = {}

    def fitted(self, node: Node, row: DotRow) -> Value:
        x, weights = node.inputs[0], self.edit.constant(node.inputs[1])
        assert x is not None and weights is not None
        w_type = dtypes.of(row.b)
        fill = node.inputs[3] if len(node.inputs) > 3 else None
        correction = np.zeros(1, np.int64)
        rows: Value | None = None
        if not fits(weights, w_type):
            shift = 128 if weights.dtype == np.uint8 else -128
            weights, rows = weights.astype(np.int64) - shift, self._sums(node, x, shift)
        weights = weights.astype(w_type.numpy)
        if x.dtype.name != row.a and row.a in FLIPPED:
            sums = weights.astype(np.int64).sum(axis=_k_axes(node, weights))
            correction = sums * (-128 if x.dtype is dtypes.i8 else 128)
            fill = self._flipped_fill(node, x, fill)
            x = self.signs.flipped(x)
        elif row.a not in FLIPPED:
            x, fill = self._as_wide(x, row), None if fill is None else self._as_wide(fill, row)
        made = self._contraction(node, x, weights, fill, correction, row)
        if rows is not None:
            made = self.g.add("add", [made, rows])
        return made

    def _contraction(
        self, node: Node, x: Value, w: np.ndarray, fill: Value | None, correction: np.ndarray,
        row: DotRow,
    ) -> Value:  # fmt: skip
        wrapped = correction.astype(np.uint32).astype(np.int32) if correction.any() else None
        if node.op == "matmul":
            extra = -w.shape[0] % row.group
            w = np.pad(w, [(0, extra), (0, 0)])
            none = [0] * x.tensor.rank
            x = self.windows.pad(x, none, [*none[1:], extra], None)
            made = self.g.add("matmul", [x, self.g.constant(w)])
            return made if wrapped is None else self.g.add("add", [made, self.g.constant(wrapped)])
        bias, late = self._bias(node, wrapped)
        rank = w.ndim
        fitted = self.windows.fitted(node, x, w, fill, row.group)
        operands = [fitted.x, self.g.constant(fitted.weights), bias, fitted.fill]
        made = self.g.add("conv", operands, **fitted.attrs)
        if late is not None:
            late = late.reshape(-1, *(1,) * (rank - 2))
            made = self.g.add("add", [made, self.g.constant(late)])
        return made

    def _bias(
        self, node: Node, correction: np.ndarray | None
    ) -> tuple[Value | None, np.ndarray | None]:
        """The bias with the correction in it; what it cannot take up, where it is no constant."""
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if correction is None:
            return bias, None
        given = np.zeros(1, np.int32) if bias is None else self.edit.constant(bias)
        if given is None:
            return bias, correction
        with np.errstate(over="ignore"):
            return self.g.constant(given + correction), None

    def _as_wide(self, value: Value, row: DotRow) -> Value:
        if value.name not in self._wide:
            self._wide[value.name] = self.g.add("cast", [value], to=dtypes.of(row.a))
        return self._wide[value.name]

    def _flipped_fill(self, node: Node, x: Value, fill: Value | None) -> Value | None:
        """The value of the padding after a change of x's sign; zero is no default any more."""
        if node.op != "conv":
            return None
        slide = window("conv", node.attr_map, x.tensor.rank - 2)
        if not slide.padded:
            return None
        if fill is None:
            return self.g.constant(flip_array(np.zeros((), x.dtype.numpy)))
        return self.signs.flipped(fill)

    def _sums(self, node: Node, x: Value, factor: int) -> Value:
        """`factor` times the sum of the elements that an output is made of."""
        if node.op == "matmul":
            wide = self.g.add("cast", [x], to=dtypes.i32)
            total = self.g.add("reduce_sum", [wide], axes=(x.tensor.rank - 1,), keepdims=True)
        else:
            ones = np.ones((1, *map(int, node.inputs[1].tensor.static_shape[1:])), x.dtype.numpy)  # type: ignore[union-attr,index]
            fill = node.inputs[3] if len(node.inputs) > 3 else None
            total = self.g.add("conv", [x, self.g.constant(ones), None, fill], **node.attr_map)
        return self.g.add("mul", [total, self.g.constant(np.int32(factor))])


def _k_axes(node: Node, w: np.ndarray) -> tuple[int, ...]:
    return (0,) if node.op == "matmul" else tuple(range(1, w.ndim))
