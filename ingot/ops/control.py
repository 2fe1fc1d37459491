"""Control flow as nodes that hold sub-graphs: `if` and `loop`.

if(cond, *captures){then_branch, else_branch, symbols}
    Both branches take all captures as inputs. Where the branches' output types differ in a size (or
    the size is bound inside a branch), the node's output has a dynamic dimension. `symbols` lists
    its symbols: one for each distinct (then size, else size) pair, in the order of outputs and
    their axes (`differing_sizes` gives the pairs). Each is bound to an output's size at run time.

loop(trips?, cond?, *carried, *captures){body, carried: int, growing, count, symbols}
    As in ONNX. Body inputs: (iteration i64, cond bool, *carried, *captures); body outputs: (cond,
    *carried, *scans). The body runs while cond holds and fewer than `trips` iterations are done;
    an absent operand never stops it. Node outputs: (*carried, *scans), a scan stacked on a new axis
    0. The size of that axis is `count` (an expression) if the trip count is known when compiling,
    else the last symbol in `symbols`. Carried values keep their element types and ranks. Their
    sizes may change if the body's input has a symbol of the body there, listed in `growing`: each
    iteration binds it to the size that it is given. The first `symbols` are the sizes after the
    last iteration, one for each of `growing`.

require(x, flag){expected, reason}
    x, if the flag is as expected; otherwise the run fails with the reason. An importer that
    resolved a branch when compiling guards that assumption with it.

lower/ turns `if` and `loop` into program statements; they have no loop nests of their own. Called
through the operator table.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Node, Value, make_attrs
from ingot.graph.opdef import Attrs, Kind, OpDef, RunGraph, Sample, register, type_error
from ingot.graph.store import ConstantStore
from ingot.graph.types import Dim, Symbol, TensorType, Type, tensor
from ingot.graph.verify import bound_symbols, sizes_agree, types_agree
from ingot.loops.build import Build
from ingot.loops.ir import Buffer
from ingot.ops.common import floats, run_failed, tensor_type, tensor_types

SizePair = tuple[Dim, Dim]


def local_symbols(graph: Graph) -> set[str]:
    """Symbols bound inside a sub-graph, which are undefined outside it."""
    return {name for node in graph.nodes for name in bound_symbols(node)}


def _is_local(size: Dim, local: set[str]) -> bool:
    return bool(arith.free_vars(size) & local)


def differing_sizes(then: Graph, other: Graph) -> list[SizePair]:
    """The distinct pairs of sizes in which two branches' outputs differ, in order."""
    local_then, local_other = local_symbols(then), local_symbols(other)
    pairs: list[SizePair] = []
    for a, b in zip(then.outputs, other.outputs):
        for pair in zip(a.tensor.shape, b.tensor.shape):
            known = not _is_local(pair[0], local_then) and not _is_local(pair[1], local_other)
            if not (known and sizes_agree(*pair, {})) and pair not in pairs:
                pairs.append(pair)
    return pairs


def _check_inputs(op: str, graph: Graph, given: Sequence[Type | None], what: str) -> None:
    wanted = [v.type for v in graph.inputs]
    if len(wanted) != len(given):
        raise type_error(op, f"{what} expects {len(wanted)} inputs, got {len(given)}")
    for value, type in zip(graph.inputs, given):
        if type is None or not types_agree(value.type, type, {}):
            raise type_error(op, f"{what} expects {value.name!r} of type {value.type}, got {type}")


@register
class If(OpDef):
    name = "if"
    takes_strings = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        cond = tensor_type(self.name, inputs[0], "the condition")
        if not cond.dtype.is_bool or cond.rank != 0:
            raise type_error(self.name, f"the condition is {cond}, not a bool scalar")
        then, other = attrs["then_branch"], attrs["else_branch"]
        _check_inputs(self.name, then, inputs[1:], "then_branch")
        _check_inputs(self.name, other, inputs[1:], "else_branch")
        if len(then.outputs) != len(other.outputs):
            raise type_error(self.name, "the branches have different numbers of outputs")
        for a, b in zip(then.outputs, other.outputs):
            if a.dtype is not b.dtype or a.tensor.rank != b.tensor.rank:
                raise type_error(self.name, f"the branches return {a.type} and {b.type}")
        pairs, symbols = differing_sizes(then, other), attrs.get("symbols", ())
        if len(pairs) != len(symbols):
            raise type_error(self.name, f"{len(pairs)} sizes differ, {len(symbols)} have a symbol")
        names = dict(zip(pairs, symbols))
        return [self.merged(a.tensor, b.tensor, names) for a, b in zip(then.outputs, other.outputs)]

    def resolved_symbols(self, attrs: Attrs, sizes: Mapping[str, arith.IntLike]) -> dict[str, Dim]:
        """Symbols made redundant by `sizes`: the branches agree, or two pairs become equal."""
        then, other = attrs["then_branch"], attrs["else_branch"]
        local = local_symbols(then) | local_symbols(other)
        known: dict[str, Dim] = {}
        names: dict[SizePair, str] = {}
        for pair, name in zip(differing_sizes(then, other), attrs.get("symbols", ())):
            a, b = (arith.substitute(size, sizes) for size in pair)
            if not _is_local(a, local) and not _is_local(b, local) and sizes_agree(a, b, {}):
                known[name] = a
            elif (a, b) in names:
                known[name] = arith.Var(names[a, b])
            else:
                names[a, b] = name
        return known

    def merged(self, a: TensorType, b: TensorType, names: dict[SizePair, str]) -> TensorType:
        shape = [
            arith.Var(names[pair]) if pair in names else pair[0] for pair in zip(a.shape, b.shape)
        ]
        return TensorType(a.dtype, tuple(shape))

    def evaluate(
        self, inputs: Sequence[np.ndarray | None], attrs: Attrs, run: RunGraph
    ) -> list[np.ndarray]:
        cond, *captures = inputs
        assert cond is not None
        branch = attrs["then_branch" if bool(cond) else "else_branch"]
        return run(branch, captures)  # type: ignore[arg-type]

    def samples(self) -> list[Sample]:
        """Branches whose sizes agree, so that the suite can infer the types from arrays."""
        attrs = {"then_branch": _unary("exp"), "else_branch": _unary("neg")}
        x = floats(3)
        return [Sample((np.array(flag), x), attrs) for flag in (True, False)]


def _unary(op: str) -> Graph:
    g = GraphBuilder(op, ConstantStore())
    return g.finish([g.add(op, [g.input("x", tensor(dtypes.f32, 3))])])


def growing_sizes(body: Graph, inputs: Sequence[Type | None], attrs: Attrs) -> dict[str, SizePair]:
    """The symbols in `growing`: their sizes before the loop, and after an iteration. A bad-type
    error unless all carried values that share a symbol agree on both."""
    carried, found = attrs["carried"], dict[str, SizePair]()
    rows = zip(body.inputs[2 : 2 + carried], inputs[2 : 2 + carried], body.outputs[1:])
    for formal, given, after in rows:
        ranks = {formal.type.rank, after.type.rank, -1 if given is None else given.rank}
        if given is None or len(ranks) > 1:
            continue  # the comparison of types raises the error
        for dim, pair in zip(formal.type.shape, zip(given.shape, after.type.shape)):
            if not is_growing(dim, attrs.get("growing", ())):
                continue
            known = found.setdefault(dim.name, pair)  # type: ignore[attr-defined]
            if not all(map(_sizes_agree, known, pair)):
                what = f"carried values have sizes {known} and {pair} for one symbol, {dim}"
                raise type_error("loop", what)
    if found.keys() != set(attrs.get("growing", ())):
        raise type_error("loop", "a symbol in `growing` is no size of a carried value")
    return found


def is_growing(size: Dim, growing: Container[str]) -> bool:
    return isinstance(size, arith.Var) and size.name in growing


def _sizes_agree(a: Dim, b: Dim) -> bool:
    return sizes_agree(a, b, {})


@register
class Loop(OpDef):
    name = "loop"
    takes_strings = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        body, carried = attrs["body"], attrs["carried"]
        for operand, dtype, what in zip(inputs, (dtypes.i64, dtypes.bool_), ("trips", "condition")):
            if operand is not None and operand != TensorType(dtype, ()):
                raise type_error(self.name, f"the {what} operand is {operand}, not {dtype}[]")
        head = [TensorType(dtypes.i64, ()), TensorType(dtypes.bool_, ())]
        growing = growing_sizes(body, inputs, attrs)
        entered = [self.on_entry(v, type, growing) for v, type in zip(body.inputs[2:], inputs[2:])]
        _check_inputs(self.name, body, [*head, *entered, *inputs[2 + len(entered) :]], "the body")
        if len(body.outputs) < 1 + carried or body.outputs[0].type != head[1]:
            raise type_error(self.name, "the body must return a condition and its carried values")
        state, scans = body.outputs[1 : 1 + carried], body.outputs[1 + carried :]
        for before, after in zip(body.inputs[2:], state):
            returned = self.on_entry(before, after.type, growing)
            if returned is None or not types_agree(before.type, returned, {}):
                raise type_error(
                    self.name,
                    f"carried value {before.name!r} has type {before.type} on entry and "
                    f"{after.type} on exit",
                    "a carried value must keep its type, except sizes that are listed in `growing`",
                )
        names = self.final_sizes(attrs, bool(scans))
        finals = [self.final(v.tensor, names) for v in body.inputs[2 : 2 + carried]]
        size = self.scan_size(attrs) if scans else None
        return finals + [self.stacked(body, v, size, growing) for v in scans]

    def on_entry(
        self, formal: Value, given: Type | None, growing: Mapping[str, SizePair]
    ) -> Type | None:
        """The type of a value that enters an iteration, as the body calls its sizes."""
        if given is None or given.rank != formal.type.rank:
            return given
        pairs = zip(formal.type.shape, given.shape)
        shape = tuple(f if is_growing(f, growing) else size for f, size in pairs)
        return TensorType(given.dtype, shape)

    def final_sizes(self, attrs: Attrs, has_scans: bool) -> dict[str, Dim]:
        """The size after the last iteration, for each of `growing`."""
        growing, symbols = attrs.get("growing", ()), attrs.get("symbols", ())
        wanted = len(growing) + (has_scans and attrs.get("count") is None)
        if len(symbols) != wanted:
            what = f"{wanted} sizes are known only after the loop, {len(symbols)} have a symbol"
            raise type_error(self.name, what)
        return {name: arith.Var(symbol) for name, symbol in zip(growing, symbols)}

    def final(self, formal: TensorType, names: Mapping[str, Dim]) -> TensorType:
        return TensorType(formal.dtype, tuple(arith.substitute(d, names) for d in formal.shape))

    def scan_size(self, attrs: Attrs) -> Dim:
        count = attrs.get("count")
        return arith.Var(attrs["symbols"][-1]) if count is None else arith.wrap(count)

    def stacked(
        self, body: Graph, value: Value, size: Dim | None, growing: Mapping[str, SizePair]
    ) -> TensorType:
        assert size is not None
        local = local_symbols(body) | growing.keys()
        if any(_is_local(d, local) for d in value.tensor.shape):
            raise type_error(
                self.name, f"scan output {value.name!r} has another size in every iteration"
            )
        return TensorType(value.dtype, (size, *value.tensor.shape))

    def evaluate(
        self, inputs: Sequence[np.ndarray | None], attrs: Attrs, run: RunGraph
    ) -> list[np.ndarray]:
        body, carried = attrs["body"], attrs["carried"]
        trips, cond, *rest = inputs
        state, captures = list(rest[:carried]), list(rest[carried:])
        scans: list[list[np.ndarray]] = [[] for _ in body.outputs[1 + carried :]]
        go_on, done = cond is None or bool(cond), 0
        while go_on and (trips is None or done < int(trips)):
            head = [np.array(done, np.int64), np.array(go_on)]
            flag, *values = run(body, [*head, *state, *captures])  # type: ignore[list-item]
            state, go_on, done = list(values[:carried]), bool(flag), done + 1
            for rows, row in zip(scans, values[carried:]):
                rows.append(np.asarray(row))
        types = [v.tensor for v in body.outputs[1 + carried :]]
        return [np.asarray(s) for s in state] + [
            np.stack(rows) if rows else _empty(type, run) for rows, type in zip(scans, types)
        ]

    def samples(self) -> list[Sample]:
        x, total = floats(4), np.zeros(4, np.float32)
        attrs = {"body": _running_sum(), "carried": 1, "count": 3}
        grown = {"body": _doubled(), "carried": 1, "growing": ("s",), "symbols": ("n0",)}
        return [
            Sample((np.array(3, np.int64), None, total, x), attrs),
            Sample((np.array(3, np.int64), np.array(True), total, x), attrs),
            Sample(
                (np.array(0, np.int64), np.array(True), total, x),
                {"body": _running_sum(), "carried": 1, "count": 0},
            ),
            *(Sample((np.array(n), None, x), grown) for n in (0, 2)),
        ]


@register
class Require(OpDef):
    name = "require"
    takes_strings = True
    kind = Kind.ELEMENTWISE

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, flag = tensor_types(self.name, inputs, 2)
        if not flag.dtype.is_bool or flag.rank:
            raise type_error(self.name, f"the flag is {flag}, not a bool scalar")
        return [x]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, flag = (np.asarray(v) for v in inputs)
        if bool(flag) != attrs["expected"]:
            raise run_failed(attrs["reason"])
        return [x.copy()]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, flag = inputs
        assert x is not None and flag is not None
        holds = flag[()]
        b.check((), lambda: ~holds if attrs["expected"] else holds, attrs["reason"])
        return [b.compute("require", x.shape, lambda *point: x[point])]

    def samples(self) -> list[Sample]:
        x, yes, no = floats(2, 3), np.array(True), np.array(False)
        want: dict[str, Any] = {"expected": True, "reason": "it must be so"}
        deny: dict[str, Any] = {"expected": False, "reason": "it must not be so"}
        return [
            Sample((x, yes), want),
            Sample((floats(dtype=dtypes.f16), no), deny),
            Sample((x, no), want, fails="it must be so"),
            Sample((x, yes), deny, fails="it must not be so"),
        ]


def _empty(type: TensorType, run: RunGraph) -> np.ndarray:
    """The scan output of zero iterations. The interpreter evaluates its symbolic sizes."""
    out = Value("sizes", tensor(dtypes.i64, type.rank))
    attrs = make_attrs({"values": type.shape, "shape": (type.rank,)})
    graph = Graph("sizes", (), (out,), (Node("index_tensor", (), (out,), attrs),))
    return np.zeros((0, *run(graph, [])[0].tolist()), type.dtype.numpy)


def _running_sum() -> Graph:
    """A sample body: total += x, each total scanned."""
    g = GraphBuilder("running_sum", ConstantStore())
    g.input("i", tensor(dtypes.i64))
    go_on = g.input("go_on", tensor(dtypes.bool_))
    total, x = g.input("total", tensor(dtypes.f32, 4)), g.input("x", tensor(dtypes.f32, 4))
    total = g.add("add", [total, x])
    return g.finish([go_on, total, total])


def _doubled() -> Graph:
    """A sample body: twice as many elements in each iteration."""
    g = GraphBuilder("doubled", ConstantStore())
    g.input("i", tensor(dtypes.i64))
    go_on = g.input("go_on", tensor(dtypes.bool_))
    g.symbols["s"] = Symbol("s", source="node")
    x = g.input("x", TensorType(dtypes.f32, (arith.Var("s"),)))
    return g.finish([go_on, g.add("concat", [x, g.add("neg", [x])], axis=0)])
