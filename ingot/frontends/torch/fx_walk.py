"""One FX graph → one Ingot graph. In: nodes with the metadata of tracing, a builder. Out: Graph.
Called by walker.

`Walker` is independent of operators: it binds a call's arguments to the operator's schema, calls
the converter (registry.TABLE) and compares the types with those that tracing found. Sizes computed
in the graph (SymInts) are expressions, no values. It implements registry.Importer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import torch

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.expr import Expr, Var
from ingot.dtypes import DType
from ingot.frontends.common.limits import check_count, check_size
from ingot.frontends.common.shape_values import ShapeValues, Unknown
from ingot.frontends.common.unsupported import UnsupportedOperators
from ingot.frontends.torch import hooks
from ingot.frontends.torch.model import FxModel, Output, Placeholder
from ingot.frontends.torch.origins import where_of
from ingot.frontends.torch.registry import (
    TABLE,
    Scalar,
    SubGraph,
    TorchNode,
    call,
    converter_of,
    is_complex_call,
)
from ingot.frontends.torch.sizes import SizeTable
from ingot.frontends.torch.tensors import to_array
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.opdef import SizeMismatch
from ingot.graph.types import TensorType, same_size, tensor
from ingot.ops.random import KEY
from ingot.support.abi import RANDOM_KEY
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

FxNode = torch.fx.Node

# checks of sizes that tracing writes into the graph: the runtime checks sizes of its own accord
ASSERTIONS = frozenset({
    "aten._assert_scalar.default", "aten._assert_async.msg", "aten._assert_tensor_metadata.default",
    "aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default",
    "aten._assert_async.default", "aten.sym_size.int", "aten.sym_numel.default",
    "aten.sym_stride.int", "aten.sym_storage_offset.default",
})  # fmt: skip


REFUSED = object()  # a value that is no tensor of Ingot's


class Walker:
    """Builds one graph; a child walker builds each sub-graph."""

    def __init__(
        self, g: GraphBuilder, sizes: SizeTable, outer: Walker | None, kernels: Mapping[str, Any]
    ):
        self.g, self.sizes, self.outer, self.kernels = g, sizes, outer, kernels
        self.env: dict[FxNode, Any] = {}
        self.captures: list[Value] = []
        self._serials: Iterator[int] = outer._serials if outer is not None else count()
        self.known_values = ShapeValues(g, next(self._serials), self._symbol_of)
        self._bound: dict[Unknown, Var] = {}
        self._key: Value | None = None
        self._refused: dict[str, IngotError] | None = None  # by node, while they are collected
        self._module: torch.fx.GraphModule

    # --- walking ----------------------------------------------------------------------------------

    def walk_model(self, model: FxModel) -> Graph:
        self._walk_nodes(model)
        self.g.origin = ""
        outputs = {
            about: self._output(about, self._argument(result))
            for about, result in zip(model.outputs, model.results)
            if about.kind != "none"
        }
        pairs = [(about.updates, out.name) for about, out in outputs.items() if about.updates]
        return self.g.finish(list(outputs.values()), pairs)

    def refused(self, model: FxModel) -> dict[str, IngotError]:
        """The nodes that have no converter or whose converter refuses them, each with the reason;
        and those that need what only PyTorch can hold."""
        self._refused = {}
        self._walk_nodes(model)
        return self._refused

    def _walk_nodes(self, model: FxModel) -> None:
        self._module = model.module
        nodes = list(model.module.graph.nodes)
        check_count(len(nodes), model.name)
        given = dict(zip((n for n in nodes if n.op == "placeholder"), model.placeholders))
        for node in nodes:
            if node.op == "output":
                continue
            start = len(self.g.nodes)
            try:
                is_given = node in given
                made = self._placeholder(node, given[node]) if is_given else self._visit(node)
            except IngotError as error:
                if self._refused is None:
                    raise
                del self.g.nodes[start:]
                made = self._stand_in(node, error)
            self.env[node] = made

    def _stand_in(self, node: FxNode, error: IngotError) -> Any:
        """For the result of a node that is refused: inputs of the types that tracing found."""
        assert self._refused is not None
        self._refused[node.name] = error
        value = node.meta.get("val")
        try:
            types = self._types(node, node.name)
        except IngotError:
            return REFUSED
        made = [None if t is None else self.g.input(node.name, t) for t in types]
        if isinstance(value, torch.SymInt):
            return self._size_input(node, value)
        return made if isinstance(value, tuple | list) else made[0]

    def _placeholder(self, node: FxNode, about: Placeholder) -> Any:
        value, where = node.meta.get("val"), f"input {node.name!r}"
        if about.kind == "constant":
            assert about.tensor is not None
            return about.tensor  # a constant at its first use
        if about.kind == "fixed":
            return value
        if isinstance(value, torch.SymInt):
            return self._size_input(node, value)
        if isinstance(value, torch.SymFloat):
            return self.g.input(node.name, tensor(dtypes.f64))
        if not isinstance(value, torch.Tensor):
            return value
        type = self.sizes.type_of(value, where)
        check_size(type, where)
        if about.order is None:
            return self.g.input(node.name, type)
        stored = TensorType(type.dtype, tuple(type.shape[axis] for axis in about.order))
        given = self.g.input(node.name, stored)
        back = tuple(about.order.index(axis) for axis in range(type.rank))
        return self.g.add("transpose", [given], perm=back)

    def _size_input(self, node: FxNode, value: torch.SymInt) -> Expr:
        """A number that the caller gives: a size of another input, or a symbol of its own."""
        try:
            return self.sizes.expr(value)
        except IngotError:
            given = self.g.input(node.name, tensor(dtypes.i64, 1))
            symbol = self.g.symbol(node.name, *self.sizes.range_of(str(value.node.expr)))
            self.g.add("bind", [given], symbols=(symbol,))
            self.sizes.known[str(value.node.expr)] = Var(symbol)
            return Var(symbol)

    def _visit(self, node: FxNode) -> Any:
        if node.op == "get_attr":
            return _attribute(self._module, str(node.target))
        if is_size(node):
            return self._size(node, node.meta.get("val"))
        if getattr(node.target, "__name__", "") == "getitem":
            source, index = node.args
            return self._argument(source)[index]
        return None if str(node.target) in ASSERTIONS else self._convert(node)

    def _size(self, node: FxNode, value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return self.sizes.number(value, where_of(node))
        if isinstance(value, int | float | bool | torch.SymBool):
            return value  # an assertion alone reads a SymBool
        what = f"a {type(value).__name__} computed from sizes is not supported"
        raise IngotError("unsupported-op", what, where=where_of(node))

    def _convert(self, fx: FxNode) -> Any:
        where, target = where_of(fx), str(fx.target)
        self.g.origin = where
        start = len(self.g.nodes)
        try:
            node = TorchNode(target, fx.name, where, self._types(fx, where), fx)
            args, kwargs = self._bind_arguments(fx)
            converter = hooks.find(self.kernels, target) or converter_of(fx)
            if converter is None:
                raise self._no_converter(node)
            results = call(converter, self, node, args, kwargs)
        except IngotError as error:
            if error.where:
                raise
            raise IngotError(
                error.code, error.what, where=where, why=error.why, hint=error.hint
            ) from error
        except MemoryError as error:
            what = "a table that this operator needs does not fit into memory"
            raise IngotError("limit", what, where=where, why=str(error)) from error
        return self._record(node, results, start)

    def _no_converter(self, node: TorchNode) -> IngotError:
        if node.target in TABLE:
            return self.unsupported(node, "it has complex operands or results")
        return IngotError("unsupported-op", f"Ingot has no operator {node.target}")

    def _types(self, fx: FxNode, where: str) -> tuple[TensorType | None, ...]:
        value = fx.meta.get("val")
        values = value if isinstance(value, tuple | list) else (value,)
        is_tensor = [isinstance(v, torch.Tensor) for v in values]
        return tuple(
            self.sizes.type_of(v, where) if yes and not self.sizes.has_unknown(v) else None
            for v, yes in zip(values, is_tensor)
        )

    # --- arguments --------------------------------------------------------------------------------

    def _bind_arguments(self, fx: FxNode) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as the operator's schema lists them, with its defaults."""
        schema = getattr(fx.target, "_schema", None)
        if schema is None:  # a higher-order operator
            return [self._argument(a) for a in fx.args], {
                k: self._argument(v) for k, v in fx.kwargs.items()
            }
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for position, formal in enumerate(schema.arguments):
            if position < len(fx.args):
                found = fx.args[position]
            else:
                found = fx.kwargs.get(formal.name, formal.default_value)
            value = self._argument(found)
            if formal.kwarg_only:
                kwargs[formal.name] = value
            else:
                args.append(value)
        return args, kwargs

    @segmented
    def _argument(self, found: Any) -> Any:
        """What an argument stands for: values for nodes, also within lists."""
        if isinstance(found, tuple | list):
            return [self._argument(a) for a in found]
        if isinstance(found, FxNode):
            value = self.env[found]
            if value is REFUSED:
                raise IngotError("unsupported-op", f"its operand {found.name!r} is PyTorch's own")
            if isinstance(value, torch.Tensor):
                value = self.env[found] = self._constant(value, found)
            return self._current(value)
        if isinstance(found, torch.SymInt):
            return self.sizes.number(found)
        return found

    @segmented
    def _current(self, value: Any) -> Any:
        if isinstance(value, Value):
            return self.g.current(value)
        return [self._current(v) for v in value] if isinstance(value, list | tuple) else value

    def _constant(self, found: torch.Tensor, node: FxNode) -> Value:
        name = node.name
        saved, self.g.origin = self.g.origin, f"tensor {name!r}"
        start = len(self.g.nodes)
        array = to_array(found, f"tensor {name!r}")
        value = self.g.constant(array, name)
        if node.op == "placeholder" and found.is_floating_point():
            self.g.store.lend(self.g.nodes[-1].attr("value"), array, name)
        self.known_values.observe(start)
        self.g.origin = saved
        return value

    # --- results ----------------------------------------------------------------------------------

    def _record(self, node: TorchNode, results: Any, start: int) -> Any:
        """Name the results, check their types, and propagate small known values."""
        if isinstance(results, Expr | int | float):
            self.sizes.learn(node.fx.meta.get("val"), arith.wrap(results))  # type: ignore[arg-type]
            return results
        single = isinstance(results, Value) or results is None
        found = [results] if single else list(results)
        for index, (value, wanted) in enumerate(zip(found, node.outputs)):
            if value is not None and wanted is not None:
                found[index] = self._checked(node, value, wanted)
        for made in self.g.nodes[start:]:
            for value in made.outputs:
                check_size(value.type, node.where)
        refined = self.known_values.observe(start)
        found = [v if v is None else refined.get(v.name, v) for v in found]
        self._learn(node, found)
        return found[0] if single else found

    def _learn(self, node: TorchNode, found: Sequence[Value | None]) -> None:
        """Sizes that the node has bound have other names in tracing."""
        value = node.fx.meta.get("val")
        values = value if isinstance(value, tuple | list) else (value,)
        for traced, made in zip(values, found):
            if isinstance(traced, torch.Tensor) and made is not None:
                for size, own in zip(traced.shape, made.shape):
                    self.sizes.learn(size, own)

    def _checked(self, node: TorchNode, value: Value, wanted: TensorType) -> Value:
        """The value, whose type must be the one that tracing found; sizes may differ in form."""
        value = self.g.current(value)
        if value.dtype is not wanted.dtype or value.tensor.rank != wanted.rank:
            what = f"its converter gives {value.type}, tracing found {wanted}"
            raise IngotError("bad-graph", what, where=node.where)
        for a, b in zip(value.shape, wanted.shape):
            a, b = self.g.simplified(a), self.g.simplified(b)
            if not same_size(a, b):
                try:
                    self.g.unify(SizeMismatch(a, b))
                except SizeMismatch as error:
                    what = f"its converter gives {value.type}, tracing found {wanted}"
                    raise IngotError("bad-graph", what, where=node.where) from error
        return self.g.current(value)

    def _output(self, about: Output, found: Value | Scalar) -> Value:
        """A graph output under its own name: a distinct value that a node produces."""
        self.g.origin = f"output {about.name!r}"
        value = found if isinstance(found, Value) else self.scalar(found, _number_type(found))
        if about.order is not None:
            value = self.g.add("transpose", [value], perm=about.order)
        copy = Value(self.g.fresh(about.name), value.type)
        self.g.nodes.append(Node("identity", (value,), (copy,), (), self.g.origin))
        return copy

    # --- the interface for converters (registry.Importer) -----------------------------------------

    def scalar(self, value: Scalar, dtype: DType) -> Value:
        if isinstance(value, Expr):
            known = arith.as_int(value)
            if known is None:
                value = self.g.add("index_tensor", [], values=(value,), shape=())
            else:
                value = known
        if isinstance(value, Value):
            same = value.dtype is dtype
            return value if same else self.g.add("cast", [value], to=dtype, mode="wrap")
        with np.errstate(all="ignore"):
            return self.g.constant(np.array(value).astype(dtype.numpy))

    def known(self, value: Value) -> np.ndarray | None:
        return self.known_values.numbers(value)

    def size_of(self, value: Value) -> Expr:
        exprs = self.known_values.lifted(value)
        if exprs is None or exprs.size != 1:
            return self._bind(value, 0)
        return self.g.simplified(
            arith.substitute(exprs.reshape(-1).tolist()[0], {}, self._symbol_of)
        )

    @segmented
    def _symbol_of(self, unknown: Unknown) -> Expr:
        """The symbol of a data-dependent element, bound in the graph that computes the element."""
        if unknown.owner != self.known_values.owner:
            assert self.outer is not None, f"{unknown} belongs to no enclosing graph"
            expr = self.outer._symbol_of(unknown)
            for name in sorted(arith.free_vars(expr)):
                self.g.symbols.setdefault(name, self.outer.g.symbols[name])
            return expr
        if unknown not in self._bound:
            value = self.known_values.holders[unknown.value]
            self._bound[unknown] = self._bind(value, unknown.index)
        return self._bound[unknown]

    def _bind(self, value: Value, index: int) -> Var:
        g = self.g
        if value.dtype is not dtypes.i64:
            value = g.add("cast", [value], to=dtypes.i64, mode="wrap")
        if value.tensor.static_shape != (1,):
            value = g.add("reshape", [value], shape=(value.tensor.numel,))
            start = (arith.Const(index),)
            value = g.add("slice", [value], starts=start, sizes=(arith.Const(1),), steps=(1,))
        symbol = g.symbol("d")
        g.add("bind", [value], symbols=(symbol,))
        return Var(symbol)

    def subgraph(
        self, node: TorchNode, module: torch.fx.GraphModule, inputs: Sequence[Value]
    ) -> SubGraph:
        raise self.unsupported(node, "sub-graphs are not supported yet")

    def random_key(self) -> Value:
        if self._key is None:
            self._key = self.g.input(RANDOM_KEY, KEY)
        return self._key

    def random_stream(self) -> int:
        return next(self._serials)

    def unsupported(self, node: TorchNode, why: str, hint: str = "") -> IngotError:
        what = f"this variant of {node.target} is not supported"
        return IngotError("unsupported-op", what, where=node.where, why=why, hint=hint)


# --- helpers ------------------------------------------------------------------------------------


def _number_type(number: Scalar) -> DType:
    """The element type of a result that is a number."""
    if isinstance(number, bool):
        return dtypes.bool_
    return dtypes.f64 if isinstance(number, float) else dtypes.i64


def is_size(node: FxNode) -> bool:
    """A number computed from sizes: tracing knows it as an expression."""
    value = node.meta.get("val")
    is_number = isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float)
    return is_number and str(node.target) not in TABLE


def check_devices(module: torch.fx.GraphModule) -> None:
    """An error for the first tensor that is not in the memory of the CPU."""
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            user = next(iter(node.users), node) if node.op == "placeholder" else node
            what = f"a tensor is on the device {value.device}"
            hint = "Ingot runs models on the CPU: move the module and its inputs there"
            raise IngotError("bad-model", what, where=where_of(user), hint=hint)


def check_operators(module: torch.fx.GraphModule, kernels: Mapping[str, Any]) -> None:
    """An error with all operators that have no converter."""
    missing = [node for node in module.graph.nodes if is_missing(node, kernels)]
    if missing:
        nodes: dict[str, list[str]] = {}
        for node in missing:
            nodes.setdefault(_wanted(node), []).append(node.name)
        names = ", ".join(sorted(nodes))
        where = "\n         ".join(where_of(node) for node in missing)
        what = f"the model uses operators that Ingot does not have: {names}"
        hint = "fallback=True runs them in PyTorch"
        raise UnsupportedOperators(nodes, what, where=where, hint=hint)


def _wanted(node: FxNode) -> str:
    return f"{node.target}{' of complex tensors' if is_complex_call(node) else ''}"


def is_missing(node: FxNode, kernels: Mapping[str, Any]) -> bool:
    target = str(node.target)
    if node.op != "call_function" or target in ASSERTIONS or hooks.find(kernels, target):
        return False
    if converter_of(node) is not None:
        return False
    return getattr(node.target, "__name__", "") != "getitem" and not is_size(node)


def _attribute(module: torch.fx.GraphModule, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part)
    return found
