"""The parser: text → Graph. In: text from `text.show` or a person. Out: an unverified Graph.
Called through `graph.text.parse`. The grammar, with `*` for repetition:

    graph  ::= "graph" word "(" (value ":" type)* ")"
               "{" symbol* node* state* [growth] bundle* view* "return" value* "}"
    symbol ::= "symbol" name ":" low ".." [high] ["step" int] ["from" word]
    node   ::= (value ":" type)* "=" ( "@" digest | op "(" (value | "_")* ")" ["{" attrs "}"] )
    type   ::= dtype "[" size* "]" ["{" layout; device; quant "}"] | seq "<" type ">" | opt …
    state  ::= "state" value "->" value
    growth ::= "grow" "[" (value "[" int "]")* "]" "to" name "by" size
    bundle ::= "bundle" value "[" string* "]" "=" "[" value* "]"
    view   ::= "view" value "=" value "[" int* "]"
    size   ::= integers, symbols, + - * // %, min, max, parentheses
    attr   ::= none | true | false | int | float | "string" | dtype | @digest:dtype[dims] | graph
             | size | "[" attr* "]"

Sizes are parsed without simplification, so that an expression prints back unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.ir import Bundle, ConstRef, Graph, Growth, Node, Value, View, make_attrs
from ingot.graph.reader import Reader, bad_text, tokens
from ingot.graph.types import Layout, Quant, Symbol, TensorType, Type
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

_SUMS = {"+": arith.Add, "-": arith.Sub}
_PRODUCTS = {"*": arith.Mul, "//": arith.FloorDiv, "%": arith.Mod}
_EXTREMES = {"min": arith.Min, "max": arith.Max}
_NAMED: dict[str, Any] = {"none": None, "true": True, "false": False}
_FLOATS = {"inf": math.inf, "nan": math.nan}


def parse(text: str) -> Graph:
    """Parse a graph; a bad-text error names the line of a syntax error."""
    reader = Reader(list(tokens(text)))
    graph = _graph(reader)
    reader.expect_end()
    return graph


# --- graphs and nodes ---------------------------------------------------------------------------


def _graph(r: Reader) -> Graph:
    r.expect("graph")
    name = _word(r)
    r.expect("(")
    inputs = r.many(_typed, ")")
    r.expect("{")
    scope = {v.name: v for v in inputs}
    symbols = []
    while r.accept("symbol"):
        symbols.append(_symbol(r))
    nodes = []
    while r.now.text in ("%", "=") or (r.now.kind in ("word", "string") and not _is_tail(r)):
        nodes.append(_node(r, scope))
    state = []
    while r.accept("state"):
        first = _name(r)
        r.expect("->")
        state.append((first, _name(r)))
    growth = _growth(r) if r.accept("grow") else None
    bundles = []
    while r.accept("bundle"):
        bundles.append(_bundle(r))
    views = []
    while r.accept("view"):
        views.append(_view(r))
    r.expect("return")
    outputs = r.many(lambda r: _known(r, scope), "}")
    given = (inputs, outputs, nodes, symbols, state, views)
    return Graph(name, *map(tuple, given), growth, tuple(bundles))  # type: ignore[arg-type, call-arg]


def _bundle(r: Reader) -> Bundle:
    name = _name(r)
    r.expect("[")
    kinds = tuple(r.many(_word, "]"))
    r.expect("=")
    r.expect("[")
    return Bundle(name, kinds, tuple(r.many(_name, "]")))


def _growth(r: Reader) -> Growth:
    r.expect("[")
    axes = tuple(r.many(_state_axis, "]"))
    r.expect("to")
    rows = _symbol_name(r)
    r.expect("by")
    return Growth(rows, _size(r), axes)


def _state_axis(r: Reader) -> tuple[str, int]:
    name = _name(r)
    r.expect("[")
    axis = _integer(r)
    r.expect("]")
    return name, axis


def _view(r: Reader) -> View:
    value = _name(r)
    r.expect("=")
    base = _name(r)
    r.expect("[")
    return View(value, base, tuple(r.many(_integer, "]")))


def _is_tail(r: Reader) -> bool:
    tails = ("state", "grow", "bundle", "view", "return")
    return r.now.text in tails and r.tokens[r.at + 1].text != "("


def _symbol(r: Reader) -> Symbol:
    name = _symbol_name(r)
    r.expect(":")
    low = _integer(r)
    r.expect("..")
    high = _integer(r) if r.now.kind == "int" or r.now.text == "-" else None
    divisor = _integer(r) if r.accept("step") else 1
    source = _word(r) if r.accept("from") else "input"
    likely = _integer(r) if r.accept("likely") else None
    return Symbol(name, low, high, divisor, source, r.origin(), likely)


def _node(r: Reader, scope: dict[str, Value]) -> Node:
    outputs = [] if r.now.kind in ("word", "string") else r.many(_typed, "=")
    for value in outputs:
        if value.name in scope:
            raise r.error(f"%{value.name} is defined twice")
    if r.now.kind == "digest" and len(outputs) == 1:
        node = _constant(r, outputs[0])
    else:
        op = _word(r)
        r.expect("(")
        inputs = r.many(lambda r: None if r.accept("_") else _known(r, scope), ")")
        attrs = dict(r.many(_attr_item, "}")) if r.accept("{") else {}
        node = Node(op, tuple(inputs), tuple(outputs), make_attrs(attrs), r.origin())
    scope.update({v.name: v for v in outputs})
    return node


def _constant(r: Reader, value: Value) -> Node:
    shape = value.type.static_shape
    if shape is None:
        raise r.error("a constant's shape must be static")
    ref = ConstRef(r.kind("digest")[1:], value.type.dtype.name, shape)
    return Node("constant", (), (value,), make_attrs({"value": ref}), r.origin())


def _typed(r: Reader) -> Value:
    name = _name(r)
    r.expect(":")
    return Value(name, _type(r))


def _known(r: Reader, scope: dict[str, Value]) -> Value:
    line = r.now.line
    name = _name(r)
    if name not in scope:
        raise bad_text(line, f"%{name} is not defined above")
    return scope[name]


def _name(r: Reader) -> str:
    r.expect("%")
    return _word(r)


def _word(r: Reader) -> str:
    return r.unquote(r.kind("word", "string"))


def _attr_item(r: Reader) -> tuple[str, Any]:
    name = _word(r)
    r.expect("=")
    return name, _attr(r)


# --- attributes ---------------------------------------------------------------------------------


def _attr(r: Reader) -> Any:
    token = r.now
    match token.kind:
        case "string":
            return r.unquote(r.take().text)
        case "float":
            return float(r.take().text)
        case "digest":
            return _const_ref(r)
        case "word" if token.text in _NAMED:
            return _NAMED[r.take().text]
        case "word" if token.text in _FLOATS:
            return _FLOATS[r.take().text]
        case "word" if token.text in dtypes.TABLE:
            return dtypes.of(r.take().text)
        case "word" if token.text == "graph":
            return _graph(r)
    if r.accept("["):
        return tuple(r.many(_attr, "]"))
    if token.text == "-" and r.tokens[r.at + 1].kind in ("float", "word"):
        r.take()
        return -_float(r)
    value = _size(r)
    return value.value if isinstance(value, arith.Const) else value


def _float(r: Reader) -> float:
    text = r.kind("float", "word")
    if text in _FLOATS:
        return _FLOATS[text]
    return float(text) if text[0].isdigit() else _raise(r.error("expected a number"))


def _raise(error: IngotError) -> Any:
    raise error


def _const_ref(r: Reader) -> ConstRef:
    digest = r.kind("digest")[1:]
    r.expect(":")
    type = _type(r)
    shape = type.static_shape
    if shape is None:
        raise r.error("a constant's shape must be static")
    return ConstRef(digest, type.dtype.name, shape)


# --- types and sizes ----------------------------------------------------------------------------


def _type(r: Reader) -> Type:
    word = r.now.text
    if word not in dtypes.TABLE:
        raise r.error("expected a type")
    r.take()
    r.expect("[")
    shape = tuple(r.many(_size, "]"))
    extras = _extras(r) if r.accept("{") else {}
    return TensorType(dtypes.of(word), shape, **extras)


def _extras(r: Reader) -> dict[str, Any]:
    makers: dict[str, Callable[[Any], Any]] = {
        "layout": Layout,
        "device": str,
        "quant": lambda parts: Quant(*parts[:4]),
    }
    found: dict[str, Any] = {}
    while not r.accept("}"):
        if found:
            r.expect(";")
        key = r.kind("word")
        if key not in makers:
            raise r.error(f"{key!r} is not a type property: layout, device or quant")
        r.expect("=")
        value = _attr(r)
        if not isinstance(value, str if key == "device" else tuple):
            raise r.error(f"{key}={value!r} has the wrong kind of value")
        found[key] = makers[key](value)
    return found


def _symbol_name(r: Reader) -> str:
    return r.unquote(r.kind("word", "quoted"))


def _integer(r: Reader) -> int:
    sign = -1 if r.accept("-") else 1
    return sign * int(r.kind("int"))


@segmented
def _size(r: Reader) -> arith.Expr:
    left = _product(r)
    while r.now.text in _SUMS:
        left = _SUMS[r.take().text](left, _product(r))
    return left


def _product(r: Reader) -> arith.Expr:
    left = _atom(r)
    while r.now.text in _PRODUCTS:
        left = _PRODUCTS[r.take().text](left, _atom(r))
    return left


def _atom(r: Reader) -> arith.Expr:
    token = r.now
    if token.kind == "int" or token.text == "-":
        return arith.Const(_integer(r))
    if r.accept("("):
        inner = _size(r)
        r.expect(")")
        return inner
    if token.kind == "word" and token.text in _EXTREMES:
        r.take()
        r.expect("(")
        items = r.many(_size, ")")
        if len(items) < 2:
            raise r.error("min and max take two sizes or more")
        return reduce(_EXTREMES[token.text], items)
    return arith.Var(_symbol_name(r))
