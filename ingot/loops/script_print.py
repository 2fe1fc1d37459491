"""Loop IR → Python source. In: a kernel, statement or expression. Out: text that `script_parse`
parses into an equal kernel. Called by dumps, error messages, `canonical.digest` and tests.

A call such as `max(a, b)` is always an operator, and a name that is not called is a variable, so a
buffer may be named `max`. A number is untyped where its type is that of the other operands (or of
the buffer it is stored to) and `f32(1.0)` elsewhere. `docs/loops.md` shows each form.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.loops import ir, visit
from ingot.loops.ir import AxisKind, Expr, LoopKind, Stmt
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

# Operator symbols with Python's precedence, lowest first; comparisons are lower than all.
INFIX: dict[str, tuple[str, int]] = {
    "or": ("|", 1), "xor": ("^", 2), "and": ("&", 3), "shl": ("<<", 4), "shr": (">>", 4),
    "add": ("+", 5), "sub": ("-", 5),
    "mul": ("*", 6), "div": ("/", 6), "floordiv": ("//", 6), "mod": ("%", 6),
}  # fmt: skip
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
UNARY = {"neg": "-", "not": "~"}
AUGMENTED = (
    "add",
    "sub",
    "mul",
    "div",
)  # printed as `+=` … where a store updates its element
LOOPS = {
    LoopKind.SERIAL: "serial",
    LoopKind.PARALLEL: "parallel",
    LoopKind.VECTOR: "vectorized",
    LoopKind.UNROLL: "unrolled",
    LoopKind.BOUND: "bound",
}
AXES = {kind: kind.value for kind in AxisKind}

_COMPARE_LEVEL, _UNARY_LEVEL = 0, 7
_PLAIN_NAN = struct.pack("<d", math.nan)
_ONE = arith.Const(1)


def show(n: ir.Kernel | Stmt | Expr | arith.Expr) -> str:
    """Python source for a kernel, a statement or an expression."""
    match n:
        case ir.Kernel():
            printer = _Printer()
            printer.kernel(n)
            return "\n".join(printer.lines) + "\n"
        case Stmt():
            printer = _Printer()
            printer.suite(n)
            return "\n".join(printer.lines)
        case Expr():
            return value(n)
        case arith.Expr():
            return index(n)
    raise TypeError(f"not part of the loop IR: {n!r}")


# --- expressions --------------------------------------------------------------------------------


@segmented
def value(e: Expr, expect: DType | None = None, outer: int = 0) -> str:
    """`e` as source; `expect` is the type of an untyped number here, `outer` the precedence."""
    match e:
        case ir.Lit():
            return literal(e, expect)
        case ir.Index(expr=arith.Var(name=name)):
            return name
        case ir.Index(expr=inner):
            return f"index({index(inner)})"
        case ir.Ref(name=name):
            return name
        case ir.Unary(op=op, a=a) if op in UNARY:
            # a literal under a sign is typed: `-1.0` is a literal, `-f32(1.0)` the operator
            inside = None if isinstance(a, ir.Lit) else expect
            return _wrap(UNARY[op] + value(a, inside, _UNARY_LEVEL), _UNARY_LEVEL, outer)
        case ir.Unary(op=op, a=a):
            return _call(op, value(a, None if op == "isnan" else expect))
        case ir.Binary(op=op, a=a, b=b) if op in INFIX:
            symbol, level = INFIX[op]
            left, right = _operands((a, b), expect, (level, level + 1))
            return _wrap(f"{left} {symbol} {right}", level, outer)
        case ir.Binary(op=op, a=a, b=b):
            return _call(op, *_operands((a, b), expect))
        case ir.Compare(op=op, a=a, b=b):
            left, right = _operands((a, b), None, (1, 1))
            return _wrap(f"{left} {COMPARE.get(op, op)} {right}", _COMPARE_LEVEL, outer)
        case ir.Math(fn=fn, args=args):
            return _call(fn, *_operands(args, expect))
        case ir.Select(cond=cond, a=a, b=b):
            return _call("select", value(cond), *_operands((a, b), expect))
        case ir.Cast(a=a, type=dtype, mode=mode):
            more = [] if mode == "saturate" else [_text(mode)]
            return _call("cast", value(a), dtype.name, *more)
        case ir.Bitcast(a=a, type=dtype):
            return _call("bitcast", value(a), dtype.name)
        case ir.Fma(a=a, b=b, c=c):
            return _call("fma", *_operands((a, b, c), expect))
        case ir.Load():
            return _load(e)
        case ir.Ramp(base=base, stride=stride, width=width):
            return _call("ramp", index(base), index(stride), str(width))
        case ir.Broadcast(a=a, width=width):
            return _call("broadcast", value(a, expect), str(width))
        case ir.Lanes(items=items):
            return _call("lanes", *_operands(items, expect))
        case ir.Shuffle(a=a, b=b, picks=picks):
            return _call("shuffle", *_operands((a, b), expect), _tuple(map(str, picks)))
        case ir.LaneReduce(op=op, a=a):
            return _call("lane_reduce", _text(op), value(a, expect))
        case _:
            assert_never(e)  # type: ignore[arg-type]


def literal(e: ir.Lit, expect: DType | None) -> str:
    """A constant: untyped where its type is expected, else `f32(1.0)`."""
    if e.type.is_bool and e.value in (0, 1):
        return str(bool(e.value))
    text = _float(float(e.value)) if e.type.is_float else str(int(e.value))
    return text if e.type is expect else f"{e.type.name}({text})"


def reference(operands: Iterable[Expr], expect: DType | None) -> DType | None:
    """The type of untyped numbers among `operands`: that of the first non-literal operand."""
    return next((e.dtype for e in operands if not isinstance(e, ir.Lit)), expect)


@segmented
def index(i: arith.Expr) -> str:
    """An index expression; a load or Let is printed as it is, any other value as `value(…)`."""
    return arith.show(i, _opaque)


def _opaque(payload: Any) -> str:
    match payload:
        case ir.Load(width=1, mask=None, stride=stride) if stride == _ONE and _is_i64(payload):
            return value(payload)
        case ir.Ref(width=1) if _is_i64(payload):
            return value(payload)
        case ir.Cast(a=(ir.Load(width=1, mask=None) | ir.Ref(width=1)) as inner, mode="saturate"):
            plain = not isinstance(inner, ir.Load) or inner.stride == _ONE
            if plain and _is_i64(payload) and not _is_i64(inner):
                return value(inner)
    return _call("value", value(payload) if isinstance(payload, Expr) else repr(payload))


def _is_i64(e: Expr) -> bool:
    return e.dtype.name == "i64"


def _operands(
    items: Sequence[Expr], expect: DType | None, levels: Sequence[int] | None = None
) -> list[str]:
    kind = reference(items, expect)
    inside = levels or [0] * len(items)
    return [value(e, kind if isinstance(e, ir.Lit) else expect, n) for e, n in zip(items, inside)]


def _load(e: ir.Load) -> str:
    element = _subscript(e.buffer, e.indices)
    more = [] if e.stride == _ONE else [f"stride={index(e.stride)}"]
    more += [] if e.mask is None else [f"mask={value(e.mask)}"]
    more += [] if e.other is None else [f"other={value(e.other, e.buffer.dtype)}"]
    if e.width == 1 and not more:
        return element
    return _call("load", element, *([] if e.width == 1 else [str(e.width)]), *more)


def _subscript(buffer: ir.Buffer, indices: Sequence[arith.Expr]) -> str:
    return f"{buffer.name}[{', '.join(map(index, indices)) or '()'}]"


def _box(box: ir.Slice) -> str:
    """`A[i:i + 4, 0:8]`: each range is start : start + extent."""
    ranges = [_range(offset, extent) for offset, extent in zip(box.offsets, box.extents)]
    return f"{box.buffer.name}[{', '.join(ranges) or '()'}]"


def _range(offset: arith.Expr, extent: arith.Expr) -> str:
    start, count = arith.as_int(offset), arith.as_int(extent)
    if start == 0:
        return f"0:{index(extent)}"
    if start is not None and count is not None:
        return f"{start}:{start + count}"
    return f"{index(offset)}:{index(arith.Add(offset, extent))}"


def _float(number: float) -> str:
    if math.isnan(number):
        bits = struct.pack("<d", number)
        return "nan" if bits == _PLAIN_NAN else f"nan(0x{bits[::-1].hex()})"
    return repr(number)


def _call(name: str, *args: str) -> str:
    return f"{name}({', '.join(args)})"


def _tuple(items: Iterable[str]) -> str:
    texts = list(items)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _wrap(text: str, level: int, outer: int) -> str:
    return f"({text})" if level < outer else text


def _text(string: str) -> str:
    plain = string.isprintable() and not set(string) & set('"\\')
    return f'"{string}"' if plain else repr(string)


def _annotation(item: object) -> str:
    """An annotation's value."""
    match item:
        case None | bool() | int():
            return repr(item)
        case float():
            return _float(item)
        case str():
            return _text(item)
        case tuple():
            return _tuple(map(_annotation, item))
        case DType():
            return item.name
        case arith.Expr():
            return _call("index", index(item))
    raise IngotError(
        "bad-text",
        f"an annotation holds {item!r}, which has no text form",
        hint="use numbers, strings, None, tuples of them, element types or index expressions",
    )


def _annotations(annotations: ir.Annotations) -> list[str]:
    if not annotations:
        return []
    items = ", ".join(f"{_text(name)}: {_annotation(item)}" for name, item in annotations)
    return [f"annotations={{{items}}}"]


# --- statements ---------------------------------------------------------------------------------


class _Printer:
    """Collects lines. `loops` maps each loop variable in scope to its stop, if it starts at 0."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[str] = []
        self.depth = depth
        self.loops: dict[str, arith.Expr] = {}
        self.instructions: list[tuple[ir.Instruction, str]] = []

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def kernel(self, k: ir.Kernel) -> None:
        named = ir.is_name(k.name)
        options = [] if named else [f"name={_text(k.name)}"]
        options += [f"origin={_text(k.origin)}"] if k.origin else []
        options += [f"family={_text(k.family)}"] if k.family else []
        if k.plans:
            plans = ", ".join(f"{_text(block)}: {_text(str(plan))}" for block, plan in k.plans)
            options.append(f"plans={{{plans}}}")
        if k.remarks:
            rows = (f"({', '.join(map(_text, (r.block, r.about, r.why)))})" for r in k.remarks)
            options.append(f"remarks=[{', '.join(rows)}]")
        if len(", ".join(options)) <= 80:
            self.line("@ingot.kernel" + (f"({', '.join(options)})" if options else ""))
        else:
            self.line("@ingot.kernel(")
            for option in options:
                self.line(f"    {option},")
            self.line(")")
        self.function(k.name if named else "kernel", k)

    def function(self, name: str, k: ir.Kernel) -> None:
        params = [f"{size.name}: {_size(size)}" for size in k.sizes]
        params += [f"{buffer.name}: {_param(buffer)}" for buffer in k.params]
        text = f"def {name}({', '.join(params)}):"
        if len(text) + 4 * self.depth <= 100:
            self.line(text)
        else:
            self.line(f"def {name}(")
            for param in params:
                self.line(f"    {param},")
            self.line("):")
        self.depth += 1
        for instruction in _instructions(k.body):
            self.instruction(instruction)
        self.suite(k.body)
        self.depth -= 1

    def instruction(self, i: ir.Instruction) -> None:
        taken = {name for _, name in self.instructions}
        base = i.name if ir.is_name(i.name) else "instruction"
        name = base
        while name in taken:
            name += "_"
        self.instructions.append((i, name))
        options = [] if name == i.name else [f"name={_text(i.name)}"]
        options += [f"emit={_text(i.emit)}"] if i.emit else []
        self.line("@instruction" + (f"({', '.join(options)})" if options else ""))
        inner = _Printer(self.depth)
        inner.function(name, i.meaning)
        self.lines += inner.lines

    def indented(self, head: str, body: Stmt) -> None:
        self.line(head)
        self.depth += 1
        self.suite(body)
        self.depth -= 1

    def suite(self, s: Stmt) -> None:
        """A statement as an indented block; a trailing Let or Alloc is printed flat."""
        while True:
            items = s.stmts if isinstance(s, ir.Seq) and len(s.stmts) != 1 else (s,)
            if not items:
                self.line("pass")
                return
            for item in items[:-1]:
                self.stmt(item)
            last = items[-1]
            match last:
                case ir.Let():
                    self.line(f"{last.name} = {value(last.value)}")
                case ir.Alloc():
                    self.line(f"{last.buffer.name} = {_alloc(last.buffer)}")
                case _:
                    self.stmt(last)
                    return
            s = last.body

    @segmented
    def stmt(self, s: Stmt) -> None:
        match s:
            case ir.For():
                self.loop(s)
            case ir.While(cond=cond, body=body):
                self.indented(f"while {value(cond)}:", body)
            case ir.If():
                self.branch(s)
            case ir.Let(name=name, value=bound, body=body):
                self.indented(f"with let({value(bound)}) as {name}:", body)
            case ir.Alloc(buffer=buffer, body=body):
                self.indented(f"with {_alloc(buffer)} as {buffer.name}:", body)
            case ir.Store():
                self.line(_store(s))
            case ir.Block():
                self.block(s)
            case ir.Seq(stmts=()):
                self.line("pass")
            case ir.Seq(stmts=stmts):  # nested or of one statement: keep the structure
                self.line("with seq():")
                self.depth += 1
                for item in stmts:
                    self.stmt(item)
                self.depth -= 1
            case ir.Call(instruction=instruction, args=args):
                names = [name for known, name in self.instructions if known == instruction]
                name = names[0] if names else instruction.name
                self.line(_call("call", name, *map(_box, args)))
            case ir.Sync(scope=scope):
                self.line(_call("sync", _text(scope)))
            case ir.CopyAsync(dst=dst, src=src, token=token):
                self.line(_call("copy_async", _box(dst), _box(src), _text(token)))
            case ir.Wait(token=token):
                self.line(_call("wait", _text(token)))
            case ir.Prefetch(box=box, writes=writes):
                self.line(_call("prefetch_write" if writes else "prefetch", _box(box)))
            case ir.Fail(reason=reason, values=values):
                self.line(_call("fail", _text(reason), *map(value, values)))
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def branch(self, s: ir.If) -> None:
        self.indented(f"if {value(s.cond)}:", s.then)
        while isinstance(s.orelse, ir.If):
            s = s.orelse
            self.indented(f"elif {value(s.cond)}:", s.then)
        if s.orelse is not None:
            self.indented("else:", s.orelse)

    def loop(self, s: ir.For) -> None:
        chain = _grid(s)
        if len(chain) > 1:
            names = ", ".join(f.var for f in chain)
            head = f"for {names} in grid({', '.join(index(f.stop) for f in chain)}):"
        else:
            head = f"for {s.var} in {_loop_range(s)}:"
        before = self.loops
        self.loops = before | {f.var: f.stop for f in chain if arith.is_const(f.start, 0)}
        self.indented(head, chain[-1].body)
        self.loops = before

    def block(self, s: ir.Block) -> None:
        options = [_text(s.name), *self.axes(s.axes), *_annotations(s.annotations)]
        names = _tuple(axis.var for axis in s.axes)
        self.line(f"with block({', '.join(options)}){f' as {names}' if s.axes else ''}:")
        self.depth += 1
        if s.where is not None:
            self.line(_call("where", value(s.where)))
        if s.init is not None:
            self.indented("with init():", s.init)
        self.suite(s.body)
        self.depth -= 1

    def axes(self, axes: Sequence[ir.Axis]) -> list[str]:
        """`spatial=(i, j), reduce=(k,)`; `axes=(spatial(i), …)` where kinds alternate."""
        runs: list[tuple[AxisKind, list[ir.Axis]]] = []
        for axis in axes:
            if not runs or runs[-1][0] is not axis.kind:
                runs.append((axis.kind, []))
            runs[-1][1].append(axis)
        if len({kind for kind, _ in runs}) == len(runs):
            return [
                f"{AXES[kind]}={_tuple(self.axis('axis', a, False) for a in group)}"
                for kind, group in runs
            ]
        return [f"axes={_tuple(self.axis(AXES[a.kind], a, True) for a in axes)}"]

    def axis(self, word: str, axis: ir.Axis, always: bool) -> str:
        """The binding alone if the axis has the extent of the loop it is bound to."""
        implied = self.loops.get(axis.binding.name) if isinstance(axis.binding, arith.Var) else None
        if implied == axis.extent:
            return _call(word, index(axis.binding)) if always else index(axis.binding)
        return _call(word, index(axis.binding), index(axis.extent))


def _instructions(body: Stmt) -> list[ir.Instruction]:
    calls = [s.instruction for s in visit.walk_stmts(body) if isinstance(s, ir.Call)]
    return list(dict.fromkeys(calls))


def _grid(s: ir.For) -> list[ir.For]:
    """The loops that one `grid` can express: serial, from 0, with independent bounds."""
    chain, outer = [s], {s.var}
    while _is_plain(chain[0]) and isinstance(body := chain[-1].body, ir.For):
        if not _is_plain(body) or visit.index_vars(body.stop) & outer or body.var in outer:
            break
        chain.append(body)
        outer.add(body.var)
    return chain


def _is_plain(s: ir.For) -> bool:
    plain = s.kind is LoopKind.SERIAL and not s.tag and not s.annotations
    return plain and arith.is_const(s.start, 0)


def _loop_range(s: ir.For) -> str:
    start = [] if arith.is_const(s.start, 0) else [index(s.start)]
    tag = [_text(s.tag)] if s.kind is LoopKind.BOUND else []
    more = [f"tag={_text(s.tag)}"] if s.tag and s.kind is not LoopKind.BOUND else []
    return _call(LOOPS[s.kind], *tag, *start, index(s.stop), *more, *_annotations(s.annotations))


def _store(s: ir.Store) -> str:
    element = _subscript(s.buffer, s.indices)
    more = [] if s.stride == _ONE else [f"stride={index(s.stride)}"]
    more += [] if s.mask is None else [f"mask={value(s.mask)}"]
    if more:
        return _call("store", element, value(s.value, s.buffer.dtype), *more)
    match s.value:
        case ir.Binary(op=op, a=ir.Load() as old, b=b) if op in AUGMENTED:
            if old == ir.Load(s.buffer, s.indices):
                return f"{element} {INFIX[op][0]}= {value(b, s.buffer.dtype)}"
    return f"{element} = {value(s.value, s.buffer.dtype)}"


def _type(buffer: ir.Buffer) -> str:
    return f"{buffer.dtype.name}[{', '.join(map(index, buffer.shape)) or '()'}]"


def _alloc(buffer: ir.Buffer) -> str:
    more = [] if buffer.scope == ir.GLOBAL else [_text(buffer.scope)]
    return _call("alloc", _type(buffer), *more)


def _param(buffer: ir.Buffer) -> str:
    if buffer.scope == ir.GLOBAL:
        return _type(buffer)
    return _call("buffer", _type(buffer), _text(buffer.scope))


def _size(size: ir.Size) -> str:
    if size == ir.Size(size.name):
        return "size"
    high = [] if size.high is None else [str(size.high)]
    divisor = [] if size.divisor == 1 else [f"divisor={size.divisor}"]
    return _call("size", str(size.low), *high, *divisor)
