"""Expressions, indices, literals and annotations → Python source. In: values of the loop IR. Out:
text that `script_values` parses back. Called by script_print.py, which prints statements.

A number is untyped where its type is that of the other operands (or of the buffer it is stored to)
and `f32(1.0)` elsewhere.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.loops import ir
from ingot.loops.ir import Expr
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

_COMPARE_LEVEL, _UNARY_LEVEL = 0, 7
_PLAIN_NAN = struct.pack("<d", math.nan)
ONE = arith.Const(1)  # stride of a load or store of adjacent elements


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
            return call_text(op, value(a, None if op == "isnan" else expect))
        case ir.Binary(op=op, a=a, b=b) if op in INFIX:
            symbol, level = INFIX[op]
            left, right = _operands((a, b), expect, (level, level + 1))
            return _wrap(f"{left} {symbol} {right}", level, outer)
        case ir.Binary(op=op, a=a, b=b):
            return call_text(op, *_operands((a, b), expect))
        case ir.Compare(op=op, a=a, b=b):
            left, right = _operands((a, b), None, (1, 1))
            return _wrap(f"{left} {COMPARE.get(op, op)} {right}", _COMPARE_LEVEL, outer)
        case ir.Math(fn=fn, args=args):
            return call_text(fn, *_operands(args, expect))
        case ir.Select(cond=cond, a=a, b=b):
            return call_text("select", value(cond), *_operands((a, b), expect))
        case ir.Cast(a=a, type=dtype, mode=mode):
            more = [] if mode == "saturate" else [quoted(mode)]
            return call_text("cast", value(a), dtype.name, *more)
        case ir.Bitcast(a=a, type=dtype):
            return call_text("bitcast", value(a), dtype.name)
        case ir.Fma(a=a, b=b, c=c):
            return call_text("fma", *_operands((a, b, c), expect))
        case ir.Load():
            return _load(e)
        case ir.Ramp(base=base, stride=stride, width=width):
            return call_text("ramp", index(base), index(stride), str(width))
        case ir.Broadcast(a=a, width=width):
            return call_text("broadcast", value(a, expect), str(width))
        case ir.Lanes(items=items):
            return call_text("lanes", *_operands(items, expect))
        case ir.Shuffle(a=a, b=b, picks=picks):
            return call_text("shuffle", *_operands((a, b), expect), tuple_text(map(str, picks)))
        case ir.LaneReduce(op=op, a=a):
            return call_text("lane_reduce", quoted(op), value(a, expect))
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
        case ir.Load(width=1, mask=None, stride=stride) if stride == ONE and _is_i64(payload):
            return value(payload)
        case ir.Ref(width=1) if _is_i64(payload):
            return value(payload)
        case ir.Cast(a=(ir.Load(width=1, mask=None) | ir.Ref(width=1)) as inner, mode="saturate"):
            plain = not isinstance(inner, ir.Load) or inner.stride == ONE
            if plain and _is_i64(payload) and not _is_i64(inner):
                return value(inner)
    return call_text("value", value(payload) if isinstance(payload, Expr) else repr(payload))


def _is_i64(e: Expr) -> bool:
    return e.dtype.name == "i64"


def _operands(
    items: Sequence[Expr], expect: DType | None, levels: Sequence[int] | None = None
) -> list[str]:
    kind = reference(items, expect)
    inside = levels or [0] * len(items)
    return [value(e, kind if isinstance(e, ir.Lit) else expect, n) for e, n in zip(items, inside)]


def _load(e: ir.Load) -> str:
    element = subscript_text(e.buffer, e.indices)
    more = [] if e.stride == ONE else [f"stride={index(e.stride)}"]
    more += [] if e.mask is None else [f"mask={value(e.mask)}"]
    more += [] if e.other is None else [f"other={value(e.other, e.buffer.dtype)}"]
    if e.width == 1 and not more:
        return element
    return call_text("load", element, *([] if e.width == 1 else [str(e.width)]), *more)


def subscript_text(buffer: ir.Buffer, indices: Sequence[arith.Expr]) -> str:
    return f"{buffer.name}[{', '.join(map(index, indices)) or '()'}]"


def box_text(box: ir.Slice) -> str:
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


def call_text(name: str, *args: str) -> str:
    return f"{name}({', '.join(args)})"


def tuple_text(items: Iterable[str]) -> str:
    texts = list(items)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _wrap(text: str, level: int, outer: int) -> str:
    return f"({text})" if level < outer else text


def quoted(string: str) -> str:
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
            return quoted(item)
        case tuple():
            return tuple_text(map(_annotation, item))
        case DType():
            return item.name
        case arith.Expr():
            return call_text("index", index(item))
    raise IngotError(
        "bad-text",
        f"an annotation holds {item!r}, which has no text form",
        hint="use numbers, strings, None, tuples of them, element types or index expressions",
    )


def annotation_texts(annotations: ir.Annotations) -> list[str]:
    if not annotations:
        return []
    items = ", ".join(f"{quoted(name)}: {_annotation(item)}" for name, item in annotations)
    return [f"annotations={{{items}}}"]
