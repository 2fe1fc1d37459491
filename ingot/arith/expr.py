"""The grammar of integer expressions; evaluation, substitution, printing.

    e ::= Const(n) | Var(name) | Add(a, b) | Sub(a, b) | Mul(a, b) | FloorDiv(a, b) | Mod(a, b)
        | Min(a, b) | Max(a, b) | Opaque(payload)

Values are mathematical integers (64-bit at run time; bounds prove that they fit). `//` and `%`
floor. `Opaque` is a leaf of unknown value: the loop IR uses it for loaded values, so that the index
of a gather is an ordinary index expression. Nodes are frozen, slotted and cache their hash.

Operators fold constants and identities as they build; `simplify` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Union

IntLike = Union[int, "Expr"]


class Expr:
    """Base of the integer grammar; compare with `==` (structural; a Const also equals its int)."""

    __slots__ = ("_hash", "_names")
    _fields: tuple[str, ...] = ()
    _hash: int
    _names: frozenset[str]

    def _key(self) -> tuple:
        return tuple(getattr(self, field) for field in self._fields)

    def __hash__(self) -> int:
        return self._hash

    def _seal(self, *fields: Hashable) -> None:
        object.__setattr__(self, "_hash", hash((type(self).__name__, *fields)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            type(self) is type(other)
            and self._hash == other._hash  # type: ignore[attr-defined]
            and self._key() == other._key()  # type: ignore[attr-defined]
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("integer expressions are frozen")

    def __reduce__(self):
        return (type(self), self._key())

    def __repr__(self) -> str:
        return show(self)

    def __add__(self, other: IntLike) -> Expr:
        return add(self, wrap(other))

    def __radd__(self, other: IntLike) -> Expr:
        return add(wrap(other), self)

    def __sub__(self, other: IntLike) -> Expr:
        return sub(self, wrap(other))

    def __rsub__(self, other: IntLike) -> Expr:
        return sub(wrap(other), self)

    def __neg__(self) -> Expr:
        return sub(Const(0), self)

    def __mul__(self, other: IntLike) -> Expr:
        return mul(self, wrap(other))

    def __rmul__(self, other: IntLike) -> Expr:
        return mul(wrap(other), self)

    def __floordiv__(self, other: IntLike) -> Expr:
        return floordiv(self, wrap(other))

    def __rfloordiv__(self, other: IntLike) -> Expr:
        return floordiv(wrap(other), self)

    def __mod__(self, other: IntLike) -> Expr:
        return mod(self, wrap(other))

    def __rmod__(self, other: IntLike) -> Expr:
        return mod(wrap(other), self)


class Const(Expr):
    __slots__ = ("value",)
    _fields = ("value",)
    value: int

    def __init__(self, value: int):
        object.__setattr__(self, "value", int(value))
        object.__setattr__(self, "_hash", hash(self.value))  # Const(3) == 3, so they hash alike

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Const):
            return self.value == other.value
        return isinstance(other, int) and self.value == other

    __hash__ = Expr.__hash__


class Var(Expr):
    """A name bound outside: a loop variable, a block axis, or a symbolic size."""

    __slots__ = ("name",)
    _fields = ("name",)
    name: str

    def __init__(self, name: str):
        object.__setattr__(self, "name", name)
        self._seal(name)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Var and self.name == other.name)

    __hash__ = Expr.__hash__


class Opaque(Expr):
    """An integer of unknown value; the owner of `payload` can evaluate it."""

    __slots__ = ("payload",)
    _fields = ("payload",)
    payload: Any

    def __init__(self, payload: Hashable):
        object.__setattr__(self, "payload", payload)
        self._seal(payload)


class Binary(Expr):
    __slots__ = ("a", "b")
    _fields = ("a", "b")
    symbol = "?"
    a: Expr
    b: Expr

    def __init__(self, a: Expr, b: Expr):
        object.__setattr__(self, "a", a)
        object.__setattr__(self, "b", b)
        self._seal(a, b)

    def __eq__(self, other: object) -> bool:
        # Expr.__eq__ specialised: comparisons dominate the time of simplify
        if self is other:
            return True
        if type(self) is not type(other) or self._hash != other._hash:  # type: ignore[attr-defined]
            return False
        return self.a == other.a and self.b == other.b  # type: ignore[attr-defined]

    __hash__ = Expr.__hash__


class Add(Binary):
    __slots__ = ()
    symbol = "+"


class Sub(Binary):
    __slots__ = ()
    symbol = "-"


class Mul(Binary):
    __slots__ = ()
    symbol = "*"


class FloorDiv(Binary):
    __slots__ = ()
    symbol = "//"


class Mod(Binary):
    __slots__ = ()
    symbol = "%"


class Min(Binary):
    __slots__ = ()
    symbol = "min"


class Max(Binary):
    __slots__ = ()
    symbol = "max"


BINARY: tuple[type[Binary], ...] = (Add, Sub, Mul, FloorDiv, Mod, Min, Max)


def wrap(value: IntLike) -> Expr:
    return value if isinstance(value, Expr) else Const(value)


def as_int(value: IntLike) -> int | None:
    """The value of a constant; None for other expressions."""
    if isinstance(value, Const):
        return value.value
    return None if isinstance(value, Expr) else int(value)


def is_const(value: IntLike, number: int) -> bool:
    return as_int(value) == number


# The builders are on the hot path of the compiler: plain isinstance tests, no match.


def add(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const):
        if isinstance(b, Const):
            return Const(a.value + b.value)
        if a.value == 0:
            return b
    elif isinstance(b, Const) and b.value == 0:
        return a
    return Add(a, b)


def sub(a: Expr, b: Expr) -> Expr:
    if isinstance(b, Const):
        if isinstance(a, Const):
            return Const(a.value - b.value)
        if b.value == 0:
            return a
    return Const(0) if a == b else Sub(a, b)


def mul(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const):
        if isinstance(b, Const):
            return Const(a.value * b.value)
        if a.value in (0, 1):
            return b if a.value else a
    elif isinstance(b, Const) and b.value in (0, 1):
        return a if b.value else b
    return Mul(a, b)


def floordiv(a: Expr, b: Expr) -> Expr:
    if isinstance(b, Const):
        if b.value == 0:
            raise ZeroDivisionError(f"{a} // 0")
        if isinstance(a, Const):
            return Const(a.value // b.value)
        if b.value == 1:
            return a
    return FloorDiv(a, b)


def mod(a: Expr, b: Expr) -> Expr:
    if isinstance(b, Const):
        if b.value == 0:
            raise ZeroDivisionError(f"{a} % 0")
        if isinstance(a, Const):
            return Const(a.value % b.value)
        if b.value == 1:
            return Const(0)
    return Mod(a, b)


def minimum(a: IntLike, b: IntLike) -> Expr:
    a, b = wrap(a), wrap(b)
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(min(a.value, b.value))
    return a if a == b else Min(a, b)


def maximum(a: IntLike, b: IntLike) -> Expr:
    a, b = wrap(a), wrap(b)
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(max(a.value, b.value))
    return a if a == b else Max(a, b)


def ceildiv(a: IntLike, b: IntLike) -> Expr:
    a, b = wrap(a), wrap(b)
    return floordiv(add(a, sub(b, Const(1))), b)


def product(values: tuple[IntLike, ...] | list[IntLike]) -> Expr:
    total: Expr = Const(1)
    for value in values:
        total = mul(total, wrap(value))
    return total


BUILD: dict[type[Expr], Callable[[Expr, Expr], Expr]] = {
    Add: add, Sub: sub, Mul: mul, FloorDiv: floordiv, Mod: mod, Min: minimum, Max: maximum,
}  # fmt: skip

FOLD: dict[type[Expr], Callable[[int, int], int]] = {
    Add: lambda x, y: x + y,
    Sub: lambda x, y: x - y,
    Mul: lambda x, y: x * y,
    FloorDiv: lambda x, y: x // y,
    Mod: lambda x, y: x % y,
    Min: min,
    Max: max,
}


def evaluate(
    expr: IntLike, env: Mapping[str, int], opaque: Callable[[Any], int] | None = None
) -> int:
    """The value of `expr`; KeyError names an unbound variable."""
    match expr:
        case int():
            return expr
        case Const(value=value):
            return value
        case Var(name=name):
            return env[name]
        case Opaque(payload=payload):
            if opaque is None:
                raise KeyError(f"opaque value {payload}")
            return int(opaque(payload))
        case Binary(a=a, b=b):
            return FOLD[type(expr)](evaluate(a, env, opaque), evaluate(b, env, opaque))
    raise TypeError(f"not an integer expression: {expr!r}")


def substitute(
    expr: Expr, env: Mapping[str, IntLike], opaque: Callable[[Any], IntLike] | None = None
) -> Expr:
    """`expr` with variables replaced; `opaque` maps payloads to new leaves."""
    match expr:
        case Const():
            return expr
        case Var(name=name):
            return wrap(env[name]) if name in env else expr
        case Opaque(payload=payload):
            return expr if opaque is None else wrap(opaque(payload))
        case Binary(a=a, b=b):
            new_a, new_b = substitute(a, env, opaque), substitute(b, env, opaque)
            return expr if new_a is a and new_b is b else BUILD[type(expr)](new_a, new_b)
    raise TypeError(f"not an integer expression: {expr!r}")


def walk(expr: Expr) -> Iterator[Expr]:
    """Every sub-expression, in pre-order."""
    todo = [expr]  # a stack: nested generators would cost the depth for each node
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, Binary):
            todo.append(node.b)
            todo.append(node.a)


_NO_NAMES: frozenset[str] = frozenset()


def free_vars(expr: IntLike) -> frozenset[str]:
    """The names of the free variables; cached in each node."""
    if isinstance(expr, int | Const):
        return _NO_NAMES
    try:
        return expr._names
    except AttributeError:
        names = frozenset(e.name for e in walk(expr) if isinstance(e, Var))
        object.__setattr__(expr, "_names", names)
        return names


_PRECEDENCE = {Add: 1, Sub: 1, Mul: 2, FloorDiv: 2, Mod: 2}


def show(expr: IntLike, opaque: Callable[[Any], str] = repr, outer: int = 0) -> str:
    """Python source for `expr`."""
    match expr:
        case int():
            return str(expr)
        case Const(value=value):
            return str(value) if value >= 0 or outer == 0 else f"({value})"
        case Var(name=name):
            return name
        case Opaque(payload=payload):
            return opaque(payload)
        case Min() | Max():
            return f"{expr.symbol}({show(expr.a, opaque)}, {show(expr.b, opaque)})"
        case Binary(a=a, b=b):
            level = _PRECEDENCE[type(expr)]
            text = f"{show(a, opaque, level)} {expr.symbol} {show(b, opaque, level + 1)}"
            return f"({text})" if level < outer else text
    raise TypeError(f"not an integer expression: {expr!r}")


def solve_var(expr: Expr, value: int) -> tuple[str, int] | None:
    """Solve `v` or `v * 32` = value: the variable's name and value, rounded down. None for other
    expressions."""
    match expr:
        case Var(name=name):
            return name, value
        case Mul(a=Var(name=name), b=Const(value=step)) if step > 0:
            return name, value // step
    return None
