"""Text → Graph. In: what `text.show` writes, or a person does. Out: an equal Graph, unverified.
Called through `graph.text.parse`. The grammar, with `*` for repetition:

    graph  ::= "graph" word "(" (value ":" type)* ")" "{" symbol* node* state* "return" value* "}"
    symbol ::= "symbol" name ":" low ".." [high] ["step" int] ["from" word]
    node   ::= (value ":" type)* "=" ( "@" digest | op "(" (value | "_")* ")" ["{" attrs "}"] )
    type   ::= dtype "[" size* "]" ["{" layout; device; quant "}"] | seq "<" type ">" | opt …
    size   ::= integers, symbols, + - * // %, min, max, parentheses
    attr   ::= none | true | false | int | float | "string" | dtype | @digest:dtype[dims] | graph
             | size | "[" attr* "]"

Sizes are built as written, not simplified, so that the text of an expression is the expression.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.ir import ConstRef, Graph, Node, Value, make_attrs
from ingot.graph.types import Layout, OptionalType, Quant, SequenceType, Symbol, TensorType, Type
from ingot.support.errors import IngotError

T = TypeVar("T")

_TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<comment>\#[^\n]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*") | (?P<quoted>`(?:[^`\\\n]|\\.)*`)
    | (?P<digest>@\w+)
    | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+) | (?P<int>\d+)
    | (?P<word>[A-Za-z_][\w.]*)
    | (?P<mark>->|\.\.|//|[%(){}\[\]<>:;,=+*-])""",
    re.VERBOSE | re.ASCII,
)
_SUMS = {"+": arith.Add, "-": arith.Sub}
_PRODUCTS = {"*": arith.Mul, "//": arith.FloorDiv, "%": arith.Mod}
_EXTREMES = {"min": arith.Min, "max": arith.Max}
_NAMED: dict[str, Any] = {"none": None, "true": True, "false": False}
_FLOATS = {"inf": math.inf, "nan": math.nan}


@dataclass
class _Token:
    kind: str
    text: str
    line: int


def parse(text: str) -> Graph:
    """The graph a text stands for; a bad-text error names the line that is not understood."""
    reader = _Reader(list(_tokens(text)))
    graph = _graph(reader)
    reader.expect_end()
    return graph


def _tokens(text: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _error(line, f"{text[at]!r} is not understood")
        kind = match.lastgroup or ""
        if kind != "space":
            yield _Token(kind, match.group(), line)
        line += match.group().count("\n")
        at = match.end()
    yield _Token("end", "", line)


def _error(line: int, what: str) -> IngotError:
    return IngotError("bad-text", what, where=f"line {line}")


@dataclass
class _Reader:
    tokens: list[_Token]
    at: int = 0
    last_line: int = 0
    skipped: dict[int, str] = field(default_factory=dict)  # line → its comment

    @property
    def now(self) -> _Token:
        while self.tokens[self.at].kind == "comment":
            self.skipped[self.tokens[self.at].line] = self.tokens[self.at].text
            self.at += 1
        return self.tokens[self.at]

    def take(self) -> _Token:
        token = self.now
        self.last_line = token.line
        self.at += token.kind != "end"
        return token

    def accept(self, text: str) -> bool:
        """Take the next token if it is this mark or word."""
        found = self.now.text == text and self.now.kind in ("mark", "word")
        if found:
            self.take()
        return found

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text!r}")

    def kind(self, *kinds: str) -> str:
        if self.now.kind not in kinds:
            raise self.error(f"expected a {' or '.join(kinds)}")
        return self.take().text

    def expect_end(self) -> None:
        if self.now.kind != "end":
            raise self.error("expected nothing after the graph")

    def error(self, what: str) -> IngotError:
        found = self.now.text or "the end"
        return _error(self.now.line, f"{what}, found {found!r}")

    def many(self, one: Callable[[_Reader], T], close: str) -> list[T]:
        """one, one, … up to `close`, which is taken."""
        items: list[T] = []
        while not self.accept(close):
            if items:
                self.expect(",")
            items.append(one(self))
        return items

    def origin(self) -> str:
        """The comment on the line of the token just taken, once."""
        _ = self.now  # a comment right after the token is now skipped and noted
        text = self.skipped.pop(self.last_line, "").removeprefix("#").strip()
        return json.loads(text) if text.startswith('"') else text


# --- graphs and nodes ---------------------------------------------------------------------------


def _graph(r: _Reader) -> Graph:
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
    r.expect("return")
    outputs = r.many(lambda r: _known(r, scope), "}")
    return Graph(name, tuple(inputs), tuple(outputs), tuple(nodes), tuple(symbols), tuple(state))


def _is_tail(r: _Reader) -> bool:
    return r.now.text in ("state", "return") and r.tokens[r.at + 1].text != "("


def _symbol(r: _Reader) -> Symbol:
    name = _symbol_name(r)
    r.expect(":")
    low = _integer(r)
    r.expect("..")
    high = _integer(r) if r.now.kind == "int" or r.now.text == "-" else None
    divisor = _integer(r) if r.accept("step") else 1
    source = _word(r) if r.accept("from") else "input"
    return Symbol(name, low, high, divisor, source, r.origin())


def _node(r: _Reader, scope: dict[str, Value]) -> Node:
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


def _constant(r: _Reader, value: Value) -> Node:
    type = value.type
    shape = type.static_shape if isinstance(type, TensorType) else None
    if not isinstance(type, TensorType) or shape is None:
        raise r.error("a constant's type is a tensor of known shape")
    ref = ConstRef(r.kind("digest")[1:], type.dtype.name, shape)
    return Node("constant", (), (value,), make_attrs({"value": ref}), r.origin())


def _typed(r: _Reader) -> Value:
    name = _name(r)
    r.expect(":")
    return Value(name, _type(r))


def _known(r: _Reader, scope: dict[str, Value]) -> Value:
    line = r.now.line
    name = _name(r)
    if name not in scope:
        raise _error(line, f"%{name} is not defined above")
    return scope[name]


def _name(r: _Reader) -> str:
    r.expect("%")
    return _word(r)


def _word(r: _Reader) -> str:
    text = r.kind("word", "string")
    return json.loads(text) if text.startswith('"') else text


def _attr_item(r: _Reader) -> tuple[str, Any]:
    name = _word(r)
    r.expect("=")
    return name, _attr(r)


# --- attributes ---------------------------------------------------------------------------------


def _attr(r: _Reader) -> Any:
    token = r.now
    match token.kind:
        case "string":
            return json.loads(r.take().text)
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


def _float(r: _Reader) -> float:
    text = r.kind("float", "word")
    if text in _FLOATS:
        return _FLOATS[text]
    return float(text) if text[0].isdigit() else _raise(r.error("expected a number"))


def _raise(error: IngotError) -> Any:
    raise error


def _const_ref(r: _Reader) -> ConstRef:
    digest = r.kind("digest")[1:]
    r.expect(":")
    type = _type(r)
    shape = type.static_shape if isinstance(type, TensorType) else None
    if not isinstance(type, TensorType) or shape is None:
        raise r.error("a constant's shape is made of numbers")
    return ConstRef(digest, type.dtype.name, shape)


# --- types and sizes ----------------------------------------------------------------------------


def _type(r: _Reader) -> Type:
    word = r.now.text
    if word in ("seq", "opt"):
        return _container(r)
    if word not in dtypes.TABLE:
        raise r.error("expected a type")
    r.take()
    r.expect("[")
    shape = tuple(r.many(_size, "]"))
    extras = _extras(r) if r.accept("{") else {}
    return TensorType(dtypes.of(word), shape, **extras)


def _container(r: _Reader) -> Type:
    word = r.take().text
    r.expect("<")
    element = _type(r)
    r.expect(">")
    if word == "seq" and isinstance(element, TensorType):
        return SequenceType(element)
    if word == "opt" and not isinstance(element, OptionalType):
        return OptionalType(element)
    raise r.error(f"{word} of {element} is not a type")


def _extras(r: _Reader) -> dict[str, Any]:
    makers: dict[str, Callable[[Any], Any]] = {
        "layout": Layout,
        "device": str,
        "quant": lambda parts: Quant(*parts),
    }
    found: dict[str, Any] = {}
    while not r.accept("}"):
        if found:
            r.expect(";")
        key = r.kind("word")
        if key not in makers:
            raise r.error(f"{key!r} is not a property of a type")
        r.expect("=")
        found[key] = makers[key](_attr(r))
    return found


def _symbol_name(r: _Reader) -> str:
    text = r.kind("word", "quoted")
    return json.loads(f'"{text[1:-1]}"') if text.startswith("`") else text


def _integer(r: _Reader) -> int:
    sign = -1 if r.accept("-") else 1
    return sign * int(r.kind("int"))


def _size(r: _Reader) -> arith.Expr:
    left = _product(r)
    while r.now.text in _SUMS:
        left = _SUMS[r.take().text](left, _product(r))
    return left


def _product(r: _Reader) -> arith.Expr:
    left = _atom(r)
    while r.now.text in _PRODUCTS:
        left = _PRODUCTS[r.take().text](left, _atom(r))
    return left


def _atom(r: _Reader) -> arith.Expr:
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
        a, b = _pair(r)
        return _EXTREMES[token.text](a, b)
    return arith.Var(_symbol_name(r))


def _pair(r: _Reader) -> tuple[arith.Expr, arith.Expr]:
    items = r.many(_size, ")")
    if len(items) != 2:
        raise r.error("min and max take two sizes")
    return items[0], items[1]
