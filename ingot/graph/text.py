"""The graph printer and the text format, similar to a jaxpr. In: a Graph. Out: text. The dumps,
the verifier's round-trip hook and `--start-from` use it.

    graph mlp(%x: f32[batch, 64]) {
      symbol batch: 1..512
      %w: f32[64, 8] = @8c0e31d5
      %y: f32[batch, 8] = matmul(%x, %w)  # fc1
      %z: f32[batch, 8] = clip(%y, _, %hi)
      state %x -> %z
      grow [%x[1]] to rows by 1
      view %y = %z[0, 8]
      return %z
    }

`show` is here, `parse` in parse.py (`parse(show(g)) == g`). A constant prints as its digest, never
as data. Names that are not identifiers are quoted; `_` is an absent operand; a comment at the end
of a node's line is its origin.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.ir import Bundle, ConstRef, Graph, Growth, Node, Value
from ingot.graph.parse import parse
from ingot.graph.types import Symbol, Type, show_dim, tensor
from ingot.support.errors import IngotError

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z", re.ASCII)
INDENT = "  "


def show(graph: Graph) -> str:
    """The text of a graph; it parses back to an equal one."""
    return "\n".join(_graph(graph, "")) + "\n"


def show_node(node: Node) -> str:
    """The text of one node, as in its graph's text."""
    return "\n".join(_node(node, ""))


def show_type(type: Type) -> str:
    return str(type)


def show_attr(value: Any, indent: str = "") -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value)
        case arith.Expr():
            return show_dim(value)
        case DType():
            return value.name
        case ConstRef():
            return f"@{value.digest}:{value.dtype}[{', '.join(map(str, value.shape))}]"
        case Graph():
            return "\n".join(_graph(value, indent))
        case tuple():
            return f"[{', '.join(show_attr(v, indent) for v in value)}]"
    raise IngotError(
        "bad-graph",
        f"{value!r} is not an attribute",
        hint="graph/ir.py lists the kinds of attributes",
    )


def _graph(graph: Graph, indent: str) -> list[str]:
    inner = indent + INDENT
    inputs = ", ".join(_typed(v) for v in graph.inputs)
    lines = [f"graph {_word(graph.name)}({inputs}) {{"]
    lines += [inner + _symbol(s) for s in graph.symbols]
    lines += [line for n in graph.nodes for line in _node(n, inner)]
    lines += [f"{inner}state {_name(a)} -> {_name(b)}" for a, b in graph.state]
    lines += [] if graph.growth is None else [inner + _growth(graph.growth)]
    lines += [inner + _bundle(b) for b in graph.bundles]
    lines += [
        f"{inner}view {_name(v.value)} = {_name(v.base)}{list(v.offsets)}" for v in graph.views
    ]
    outputs = ", ".join(_name(v.name) for v in graph.outputs)
    return [*lines, f"{inner}return {outputs}".rstrip(), indent + "}"]


def _bundle(bundle: Bundle) -> str:
    values = ", ".join(map(_name, bundle.values))
    return f"bundle {_name(bundle.name)} {show_attr(bundle.kinds, '')} = [{values}]"


def _growth(growth: Growth) -> str:
    states = ", ".join(f"{_name(name)}[{axis}]" for name, axis in growth.axes)
    return f"grow [{states}] to {show_dim(arith.Var(growth.rows))} by {show_dim(growth.added)}"


def _symbol(symbol: Symbol) -> str:
    high = "" if symbol.high is None else symbol.high
    step = f" step {symbol.divisor}" if symbol.divisor != 1 else ""
    source = f" from {_word(symbol.source)}" if symbol.source != "input" else ""
    likely = "" if symbol.likely is None else f" likely {symbol.likely}"
    name = show_dim(arith.Var(symbol.name))
    return f"symbol {name}: {symbol.low}..{high}{step}{source}{likely}" + _comment(symbol.origin)


def _node(node: Node, indent: str) -> list[str]:
    outputs = ", ".join(_typed(v) for v in node.outputs)
    head = f"{indent}{outputs} = " if outputs else indent
    if _is_plain_constant(node):
        return [f"{head}@{node.attr('value').digest}" + _comment(node.origin)]
    operands = ", ".join("_" if v is None else _name(v.name) for v in node.inputs)
    attrs = ", ".join(f"{_word(k)}={show_attr(v, indent)}" for k, v in node.attrs)
    text = f"{head}{_word(node.op)}({operands})" + (f" {{{attrs}}}" if attrs else "")
    return (text + _comment(node.origin)).split("\n")


def _is_plain_constant(node: Node) -> bool:
    """Whether the reference can be read back from the declared type and the digest."""
    if node.op != "constant" or node.inputs or len(node.outputs) != 1 or len(node.attrs) != 1:
        return False
    ref = node.attr("value")
    if not isinstance(ref, ConstRef) or not _PLAIN.match("x" + ref.digest):
        return False
    return node.outputs[0].type == tensor(dtypes.of(ref.dtype), *ref.shape)


def _typed(value: Value) -> str:
    return f"{_name(value.name)}: {value.type}"


def _name(name: str) -> str:
    return "%" + _word(name)


def _word(name: str) -> str:
    return name if _PLAIN.match(name) else json.dumps(name)


def _comment(origin: str) -> str:
    if not origin:
        return ""
    plain = origin.isprintable() and not origin.startswith('"') and origin == origin.strip()
    return f"  # {origin if plain else json.dumps(origin)}"


__all__ = ["parse", "show", "show_attr", "show_node", "show_type"]
