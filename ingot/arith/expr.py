"""The grammar of integer expressions; evaluation, substitution, printing.

    e ::= Const(n) | Var(name) | Add(a, b) | Sub(a, b) | Mul(a, b) | FloorDiv(a, b) | Mod(a, b)
        | Min(a, b) | Max(a, b) | Opaque(payload)

Values are mathematical integers (64-bit at run time; bounds prove that they fit). `//` and `%`
floor. `Opaque` is a leaf of unknown value: the loop IR uses it for loaded values, so that the index
of a gather is an ordinary index expression. Nodes are frozen, slotted and cache their hash.

Operators fold constants and identities as they build; `simplify` does the rest. The sizes of a long
model are deep trees, so every walk here has an explicit stack; `fold` is the general one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeVar, Union

T = TypeVar("T")
SHALLOW = 24  # levels of a tree that a hot walk visits by recursion; heuristic
IntLike = Union[int, "Expr"]


class Expr:
    """Base of the integer grammar; compare with `==` (structural; a Const also equals its int)."""

    __slots__ = ("_hash", "_names", "_opaques")
    _fields: tuple[str, ...] = ()
    _hash: int
    _names: frozenset[str]
    _opaques: tuple[Opaque, ...]

    def _key(self) -> tuple:
        return tuple(getattr(self, field) for field in self._fields)

    def __hash__(self) -> int:
        return self._hash

    def _seal(self, *fields: Hashable) -> None:
        object.__setattr__(self, "_hash", hash((type(self).__name__, *fields)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and self._key() == other._key()  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("integer expressions are frozen")

    def __reduce__(self):
        raise TypeError("integer expressions are not pickled: the text form is what is stored")

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

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
        return _is_equal(self, other)  # type: ignore[arg-type]

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


def assumed(value: Expr, sizes: Mapping[str, int]) -> int | None:
    """The value where variables have the values that are assumed for them; None if one has none."""
    return as_int(substitute(value, sizes)) if free_vars(value) <= sizes.keys() else None


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


def fold(expr: Expr, on_leaf: Callable[[Expr], T], on_binary: Callable[[Binary, T, T], T]) -> T:
    """Post-order on an explicit stack: the results of the operands, then of the operation."""
    if not isinstance(expr, Binary):
        return on_leaf(expr)
    done: list[T] = []
    todo: list[Expr | None] = [expr]
    waiting: list[Binary] = []  # operations whose operands are not done; None in `todo` ends one
    while todo:
        e = todo.pop()
        if e is None:
            b = done.pop()
            done[-1] = on_binary(waiting.pop(), done[-1], b)
        elif isinstance(e, Binary):
            waiting.append(e)
            todo += (None, e.b, e.a)
        else:
            done.append(on_leaf(e))
    return done[0]


def evaluate(
    expr: IntLike, env: Mapping[str, int], opaque: Callable[[Any], int] | None = None
) -> int:
    """The value of `expr`; KeyError names an unbound variable."""

    def leaf(e: Expr) -> int:
        match e:
            case Const(value=value):
                return value
            case Var(name=name):
                return env[name]
            case Opaque(payload=payload):
                if opaque is None:
                    raise KeyError(f"opaque value {payload}")
                return int(opaque(payload))
        raise TypeError(f"not an integer expression: {e!r}")

    if isinstance(expr, int):
        return expr
    return fold(expr, leaf, lambda e, a, b: FOLD[type(e)](a, b))


def substitute(
    expr: Expr, env: Mapping[str, IntLike], opaque: Callable[[Any], IntLike] | None = None
) -> Expr:
    """`expr` with variables replaced; `opaque` maps payloads to new leaves."""
    return _substitute(expr, env, opaque, SHALLOW)


def _substitute(
    e: Expr, env: Mapping[str, IntLike], opaque: Callable[[Any], IntLike] | None, levels: int
) -> Expr:
    """On the hot path: recursive for the upper levels of a tree, `fold` for what is below."""
    if isinstance(e, Binary):
        if not levels:
            return fold(e, lambda leaf: _substitute(leaf, env, opaque, 0), _rebuilt)
        a = _substitute(e.a, env, opaque, levels - 1)
        b = _substitute(e.b, env, opaque, levels - 1)
        return e if a is e.a and b is e.b else BUILD[type(e)](a, b)
    if isinstance(e, Var):
        return wrap(env[e.name]) if e.name in env else e
    if isinstance(e, Opaque) and opaque is not None:
        return wrap(opaque(e.payload))
    return e


def _rebuilt(e: Binary, a: Expr, b: Expr) -> Expr:
    return e if a is e.a and b is e.b else BUILD[type(e)](a, b)


def _is_equal(one: Expr, other: Expr) -> bool:
    """Structural equality of two nodes of one type."""
    todo = [(one, other)]
    while todo:
        x, y = todo.pop()
        if x is y:
            continue
        if type(x) is not type(y) or x._hash != y._hash:
            return False
        if isinstance(x, Binary):
            todo += ((x.b, y.b), (x.a, y.a))  # type: ignore[attr-defined]
        elif x != y:
            return False
    return True


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


def opaques(expr: IntLike) -> tuple[Opaque, ...]:
    """The opaque leaves, in pre-order; cached in each node."""
    if isinstance(expr, int | Const | Var):
        return ()
    try:
        return expr._opaques
    except AttributeError:
        found = tuple(e for e in walk(expr) if isinstance(e, Opaque))
        object.__setattr__(expr, "_opaques", found)
        return found


_PRECEDENCE = {Add: 1, Sub: 1, Mul: 2, FloorDiv: 2, Mod: 2}
_ATOM = 3  # precedence of names, numbers and calls


def show(
    expr: IntLike,
    opaque: Callable[[Any], str] = repr,
    outer: int = 0,
    name_text: Callable[[str], str] = str,
) -> str:
    """Python source for `expr`, in parentheses if it binds less than `outer`."""

    def leaf(e: Expr) -> tuple[str, int]:
        match e:
            case Const(value=value):
                return str(value), _ATOM if value >= 0 else 0
            case Var(name=name):
                return name_text(name), _ATOM
            case Opaque(payload=payload):
                return opaque(payload), _ATOM
        raise TypeError(f"not an integer expression: {e!r}")

    if isinstance(expr, int):
        return str(expr)
    return _enclosed(fold(expr, leaf, _show_binary), outer)


def _show_binary(e: Binary, a: tuple[str, int], b: tuple[str, int]) -> tuple[str, int]:
    if isinstance(e, Min | Max):
        # max(max(x, y), z) is max(x, y, z): Python reads no more than 200 nested parentheses
        first = a[0][4:-1] if type(e.a) is type(e) else a[0]
        return f"{e.symbol}({first}, {b[0]})", _ATOM
    level = _PRECEDENCE[type(e)]
    return f"{_enclosed(a, level)} {e.symbol} {_enclosed(b, level + 1)}", level


def _enclosed(text: tuple[str, int], outer: int) -> str:
    return f"({text[0]})" if text[1] < outer else text[0]


def solve_var(expr: Expr, value: int) -> tuple[str, int] | None:
    """Solve `v` or `v * 32` = value: the variable's name and value, rounded down. None for other
    expressions."""
    match expr:
        case Var(name=name):
            return name, value
        case Mul(a=Var(name=name), b=Const(value=step)) if step > 0:
            return name, value // step
    return None
