"""Parser of expressions, indices and literals of the text form. In: Python `ast` nodes. Out: values
and indices of the loop IR.

The base class of `script_parse`'s statement parser. An untyped number takes the type of the other
operands (`script_print_values.reference`). With `folds`, as for a user's script, the parser folds
arithmetic on constants.
"""

from __future__ import annotations

import ast
import operator
import struct
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NoReturn

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.loops import ir, script_print_values
from ingot.loops.ir import Expr
from ingot.loops.script_helpers import Scoped
from ingot.loops.script_scope import MISSING, Variable, dtype_of, number_of
from ingot.support.stack import segmented

_INFIX: dict[type[ast.operator], str] = {
    ast.BitOr: "or", ast.BitXor: "xor", ast.BitAnd: "and", ast.LShift: "shl", ast.RShift: "shr",
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
_INDEX: dict[type[ast.operator], type[arith.Binary]] = {
    ast.Add: arith.Add, ast.Sub: arith.Sub, ast.Mult: arith.Mul, ast.FloorDiv: arith.FloorDiv,
    ast.Mod: arith.Mod,
}  # fmt: skip
_FOLD: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}  # fmt: skip
_CALLED_UNARY = tuple(op for op in ir.UNARY if op not in script_print_values.UNARY)
_CALLED_BINARY = tuple(op for op in ir.BINARY if op not in script_print_values.INFIX)


class Values(Scoped):
    """Parses expressions in a scope of names."""

    # --- values ---

    @segmented
    def value(self, node: ast.expr, expect: DType | None = None) -> Expr:
        if (alias := self.alias(node)) is not None:
            with self.within(alias.env):
                return self.value(alias.node, expect)
        number = self.number(node)
        if number is not None:
            return self.literal(node, number, expect)
        match node:
            case ast.Constant(value=bool() as flag):
                return ir.Lit(flag, dtypes.bool_)
            case ast.Name(id=name):
                return self.named(node, name)
            case ast.Attribute() if isinstance(self.python(node), bool):
                return ir.Lit(self.python(node), dtypes.bool_)
            case ast.UnaryOp(op=ast.USub(), operand=a):
                return ir.Unary("neg", self.value(a, expect))
            case ast.UnaryOp(op=ast.Invert(), operand=a):
                return ir.Unary("not", self.value(a, expect))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _INFIX:
                return ir.Binary(_INFIX[type(op)], *self.operands((left, right), expect))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                if type(op) in _COMPARE:
                    return ir.Compare(_COMPARE[type(op)], *self.operands((left, right), None))
            case ast.Subscript():
                return ir.Load(*self.subscript(node))
            case ast.Call():
                return self.called(node, expect)
            case ast.BoolOp():
                self.fail(node, "write & and | instead of `and` and `or`")
            case ast.IfExp():
                self.fail(node, "write a conditional expression as select(condition, a, b)")
            case ast.BinOp(op=ast.Pow()):
                self.fail(node, "write a power as pow(x, y)")
        self.fail(node, "not a value of the loop IR")

    def operands(self, nodes: Sequence[ast.expr], expect: DType | None) -> list[Expr]:
        """Operands of one type: untyped numbers take that of the first non-literal operand."""
        found = [None if self.is_number(n) else self.value(n, expect) for n in nodes]
        kind = script_print_values.reference((e for e in found if e is not None), expect)
        return [self.value(n, kind) if e is None else e for n, e in zip(nodes, found)]

    def called(self, node: ast.Call, expect: DType | None) -> Expr:
        if (helper := self.helper(node)) is not None:
            with self.inlined(node, helper) as result:
                return self.value(result, expect)
        kind = dtype_of(self.python(node.func))
        if kind is not None:
            return self.typed(node, kind)
        word = self.head(node)
        if word in dtypes.LOOP_TYPES:
            return self.typed(node, dtypes.of(word))
        if word in _CALLED_UNARY:
            (a,), _ = self.call(node, word, (1, 1))
            return ir.Unary(word, self.value(a, None if word == "isnan" else expect))
        if word in _CALLED_BINARY:
            args, _ = self.call(node, word, (2, 2))
            return ir.Binary(word, *self.operands(args, expect))
        if word in ir.MATH:
            args, _ = self.call(node, word, (ir.MATH[word],) * 2)
            return ir.Math(word, tuple(self.operands(args, expect)))
        return self.form(node, word, expect)

    def form(self, node: ast.Call, word: str, expect: DType | None) -> Expr:
        match word:
            case "index":
                args, _ = self.call(node, word, (1, 1))
                return ir.Index(self.index(args[0]))
            case "select":
                args, _ = self.call(node, word, (3, 3))
                return ir.Select(self.value(args[0]), *self.operands(args[1:], expect))
            case "cast":
                args, _ = self.call(node, word, (2, 3))
                mode = self.string(args[2]) if len(args) == 3 else "saturate"
                return ir.Cast(self.value(args[0]), self.dtype(args[1]), mode)
            case "bitcast":
                args, _ = self.call(node, word, (2, 2))
                return ir.Bitcast(self.value(args[0]), self.dtype(args[1]))
            case "fma":
                args, _ = self.call(node, word, (3, 3))
                return ir.Fma(*self.operands(args, expect))
            case "load":
                return self.load(node)
            case "ramp":
                args, _ = self.call(node, word, (3, 3))
                return ir.Ramp(self.index(args[0]), self.index(args[1]), self.integer(args[2]))
            case "broadcast":
                args, _ = self.call(node, word, (2, 2))
                return ir.Broadcast(self.value(args[0], expect), self.integer(args[1]))
            case "lanes":
                args, _ = self.call(node, word, (1, None))
                return ir.Lanes(tuple(self.operands(args, expect)))
            case "shuffle":
                args, _ = self.call(node, word, (3, 3))
                picks = tuple(self.integer(p) for p in self.elements(args[2]))
                a, b = self.operands(args[:2], expect)
                return ir.Shuffle(a, b, picks)
            case "lane_reduce":
                args, _ = self.call(node, word, (2, 2))
                return ir.LaneReduce(self.string(args[0]), self.value(args[1], expect))
        self.fail(node, f"there is no function {word}")

    def load(self, node: ast.Call) -> Expr:
        args, options = self.call(node, "load", (1, 2), ("stride", "mask", "other"))
        buffer, indices = self.subscript(args[0])
        width = self.integer(args[1]) if len(args) == 2 else 1
        stride = self.index(options["stride"]) if "stride" in options else arith.Const(1)
        mask = self.value(options["mask"]) if "mask" in options else None
        other = self.value(options["other"], buffer.dtype) if "other" in options else None
        return ir.Load(buffer, indices, width, stride, mask, other)

    def named(self, node: ast.expr, name: str) -> Expr:
        match self.names.get(name):
            case ir.Ref() as ref:
                return ref
            case Variable(name=inner):
                return ir.Index(arith.Var(inner))
            case ir.Buffer():
                self.fail(node, f"{name} is a buffer: index it, as in {name}[i]")
        if isinstance(flag := self.python(node), bool):
            return ir.Lit(flag, dtypes.bool_)
        self.unbound(node, name)

    def unbound(self, node: ast.expr, name: str) -> NoReturn:
        found = self.python(node)
        if found is MISSING:
            self.fail(node, f"{name} is not bound here")
        self.fail(
            node,
            f"{name} is a {type(found).__name__}",
            hint="a kernel may use Python numbers, element types and helper functions",
        )

    # --- literals ---

    def is_number(self, node: ast.expr) -> bool:
        return self.number(node) is not None

    @segmented
    def number(self, node: ast.expr) -> int | float | None:
        """An untyped number with its sign, including nan and inf; None if `node` is not one."""
        if (alias := self.alias(node)) is not None:
            with self.within(alias.env):
                return self.number(alias.node)
        match node:
            case ast.Constant(value=bool()):
                return None
            case ast.Constant(value=(int() | float()) as found):
                return found
            case ast.Name(id=("nan" | "inf") as name) if name not in self.names:
                return float(name)
            case ast.Call(func=ast.Name(id="nan"), args=[ast.Constant(value=int() as bits)]):
                return struct.unpack("<d", bits.to_bytes(8, "little"))[0]
            case ast.Name() | ast.Attribute():
                return number_of(self.python(node))
            case ast.Subscript(value=base, slice=at):
                return self.item(self.python(base), at)
            case ast.BinOp(op=op) if self.folds and type(op) in _FOLD:
                return self.folded(node)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                below = self.number(inner) if not isinstance(inner, ast.UnaryOp) else None
                return None if below is None else -below
        return None

    def item(self, holder: Any, index: ast.expr) -> int | float | None:
        """An element of a Python tuple or list."""
        at = self.number(index) if isinstance(holder, tuple | list) else None
        if not isinstance(at, int):
            return None
        if not -len(holder) <= at < len(holder):
            self.fail(index, f"there is no item {at} among {len(holder)}")
        return number_of(holder[at])

    def folded(self, node: ast.BinOp) -> int | float | None:
        """Constant folding with Python's arithmetic. The first operand of a long sum is looked at
        first: it is rarely a number, and then nothing else is."""
        first: ast.expr = node
        while isinstance(first, ast.BinOp):
            first = first.left
        if self.number(first) is None:
            return None
        right = self.number(node.right)
        left = self.number(node.left) if right is not None else None
        if left is None:
            return None
        try:
            result = _FOLD[type(node.op)](left, right)
        except (ArithmeticError, ValueError) as error:
            self.fail(node, f"{ast.unparse(node)} has no value: {error}")
        return number_of(result)

    def literal(self, node: ast.expr, number: int | float, kind: DType | None) -> ir.Lit:
        if kind is None:
            self.fail(node, f"the type of {ast.unparse(node)} is unknown here: write f32(…)")
        if kind.is_float:
            return ir.Lit(float(number), kind)
        if isinstance(number, float):
            self.fail(node, f"{ast.unparse(node)} is not a number of type {kind.name}")
        return ir.Lit(number, kind)

    def typed(self, node: ast.Call, kind: DType) -> Expr:
        """`f32(1.0)` is a literal; `f32(x)` a conversion."""
        args, _ = self.call(node, self.head(node), (1, 1))
        number = self.number(args[0])
        if number is not None:
            return self.literal(args[0], number, kind)
        return ir.Cast(self.value(args[0]), kind)

    # --- indices ---

    @segmented
    def index(self, node: ast.expr) -> arith.Expr:
        if (alias := self.alias(node)) is not None:
            with self.within(alias.env):
                return self.index(alias.node)
        number = self.number(node) if self.folds else None
        if number is not None:
            if isinstance(number, float):
                self.fail(node, f"{number} is not an index")
            return arith.Const(number)
        match node:
            case ast.Constant(value=int() as number) if not isinstance(number, bool):
                return arith.Const(number)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
                return arith.Const(-number)
            case ast.UnaryOp(op=ast.USub(), operand=a):
                return self.combine(arith.Sub, arith.Const(0), self.index(a))
            case ast.Name(id=name):
                return self.index_name(node, name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _INDEX:
                return self.combine(_INDEX[type(op)], self.index(left), self.index(right))
            case ast.Call() if (helper := self.helper(node)) is not None:
                with self.inlined(node, helper) as result:
                    return self.index(result)
            case ast.Call() if self.head(node) in ("min", "max"):
                args, _ = self.call(node, self.head(node), (2, None))
                make = arith.Min if self.head(node) == "min" else arith.Max
                return reduce(partial(self.combine, make), [self.index(a) for a in args])
            case ast.Call() if self.head(node) == "value":
                args, _ = self.call(node, "value", (1, 1))
                return arith.Opaque(self.value(args[0]))
            case ast.Subscript():
                return ir.index_of(self.value(node))
        self.fail(node, "not an index: write a value inside an index as value(…)")

    def combine(self, make: type[arith.Binary], a: arith.Expr, b: arith.Expr) -> arith.Expr:
        """The operation as written; folded for a user's script."""
        return arith.BUILD[make](a, b) if self.folds else make(a, b)

    def index_name(self, node: ast.expr, name: str) -> arith.Expr:
        match self.names.get(name):
            case ir.Ref() as ref:
                return ir.index_of(ref)
            case Variable(name=inner):
                return arith.Var(inner)
            case ir.Buffer():
                self.fail(node, f"{name} is a buffer: index it, as in {name}[i]")
        number = number_of(self.python(node))
        if isinstance(number, int):
            return arith.Const(number)
        self.unbound(node, name)

    def subscript(self, node: ast.expr) -> tuple[ir.Buffer, tuple[arith.Expr, ...]]:
        """`A[i, j]`: the buffer and the indices."""
        if not isinstance(node, ast.Subscript):
            self.fail(node, "expected an element of a buffer, such as A[i, j]")
        return self.buffer_of(node), tuple(self.index(i) for i in self.items(node))

    def box(self, node: ast.expr) -> ir.Slice:
        """`A[i:i + 4, 0:8]`."""
        if not isinstance(node, ast.Subscript):
            self.fail(node, "expected a box of a buffer, such as A[i:i + 4, 0:8]")
        ranges = [self.span(r) for r in self.items(node)]
        return ir.Slice(
            self.buffer_of(node), tuple(start for start, _ in ranges), tuple(n for _, n in ranges)
        )

    def span(self, node: ast.expr) -> tuple[arith.Expr, arith.Expr]:
        if not isinstance(node, ast.Slice) or not node.upper or node.step:
            self.fail(node, "each range of a box is written start:stop")
        start = self.index(node.lower) if node.lower else arith.Const(0)
        stop = self.index(node.upper)
        if arith.is_const(start, 0):
            return start, stop
        if isinstance(stop, arith.Add) and stop.a == start:
            return start, stop.b
        return start, stop - start

    def buffer_of(self, node: ast.Subscript) -> ir.Buffer:
        return self.buffer_named(node.value)

    def buffer_named(self, node: ast.expr) -> ir.Buffer:
        if (alias := self.alias(node)) is not None:
            with self.within(alias.env):
                return self.buffer_named(alias.node)
        found = self.names.get(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(found, ir.Buffer):
            self.fail(node, f"{ast.unparse(node)} is not a buffer here")
        return found

    # --- calls and literals ---

    def head(self, node: ast.Call) -> str:
        match node.func:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name
        self.fail(node, "not a call of the loop IR")

    def call(
        self,
        node: ast.Call,
        word: str,
        count: tuple[int, int | None],
        options: Sequence[str] = (),
    ) -> tuple[list[ast.expr], dict[str, ast.expr]]:
        """The arguments of `word(…)`, their number and keywords checked."""
        low, high = count
        if self.head(node) != word:
            self.fail(node, f"expected {word}(…)")
        if len(node.args) < low or (high is not None and len(node.args) > high):
            wanted = str(low) if low == high else f"{low} to {high or 'any number'}"
            self.fail(node, f"{word}(…) takes {wanted} arguments, not {len(node.args)}")
        found: dict[str, ast.expr] = {}
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg not in options:
                self.fail(keyword.value, f"{word}(…) has no option {keyword.arg}")
            found[keyword.arg] = keyword.value
        return list(node.args), found

    def items(self, node: ast.Subscript) -> list[ast.expr]:
        inside = node.slice
        return list(inside.elts) if isinstance(inside, ast.Tuple) else [inside]

    def elements(self, node: ast.expr) -> list[ast.expr]:
        return list(node.elts) if isinstance(node, ast.Tuple) else [node]

    def name(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            self.fail(node, "expected a name")
        return node.id

    def dtype(self, node: ast.expr) -> DType:
        if (alias := self.alias(node)) is not None:
            with self.within(alias.env):
                return self.dtype(alias.node)
        kind = dtype_of(self.python(node))
        if kind is not None:
            return kind
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        if name not in dtypes.LOOP_TYPES:
            self.fail(node, f"{ast.unparse(node)} is not an element type")
        return dtypes.of(name)

    def string(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=str() as text):
                return text
        self.fail(node, "expected a string")

    def integer(self, node: ast.expr) -> int:
        number = self.number(node)
        if not isinstance(number, int):
            self.fail(node, "expected an integer")
        return number

    def annotation_value(self, node: ast.expr) -> object:
        """An annotation's value."""
        number = self.number(node)
        if number is not None:
            return number
        match node:
            case ast.Constant(value=(str() | bool() | None) as found):
                return found
            case ast.Tuple(elts=elts):
                return tuple(self.annotation_value(e) for e in elts)
            case ast.Call() if self.head(node) == "index":
                return self.index(self.call(node, "index", (1, 1))[0][0])
            case ast.Name(id=name) if name in dtypes.LOOP_TYPES:
                return dtypes.of(name)
        self.fail(node, "not an annotation's value")
