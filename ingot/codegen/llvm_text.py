"""Writing LLVM IR text: fresh names, basic blocks, and idioms that every printer needs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from ingot.dtypes import DType

# bf16, float8 and sub-byte values are integers to LLVM: legalize has expanded their arithmetic
_SCALARS = {"f16": "half", "f32": "float", "f64": "double"}


def scalar_type(dtype: DType) -> str:
    """The LLVM type of a value in a register; bool is i1 there and i8 in memory."""
    if dtype.is_bool:
        return "i1"
    return _SCALARS.get(dtype.name, f"i{max(8, dtype.bits)}")


def memory_type(dtype: DType) -> str:
    return "i8" if dtype.is_bool else scalar_type(dtype)


def vector(type: str, lanes: int) -> str:
    return type if lanes == 1 else f"<{lanes} x {type}>"


def value_type(dtype: DType, lanes: int = 1) -> str:
    return vector(scalar_type(dtype), lanes)


def intrinsic_suffix(dtype: DType, lanes: int) -> str:
    base = f"f{dtype.bits}" if dtype.name in _SCALARS else scalar_type(dtype)
    return base if lanes == 1 else f"v{lanes}{base}"


def literal(value: int | float | bool, dtype: DType) -> str:
    """A scalar constant, floats exact by their bits."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.name in ("f32", "f64"):
        rounded = dtype.numpy.type(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(rounded)))[0]:016X}"
    if dtype.name == "f16":
        return f"0xH{dtype.numpy.type(value).view('uint16'):04X}"
    if dtype.is_float:
        bits = dtype.numpy.type(value).view(f"uint{max(8, dtype.bits)}")
        return str(int(bits))
    return str(int(value))


def splat(type: str, constant: str, lanes: int) -> str:
    """A constant operand of any width."""
    if lanes == 1:
        return constant
    return "<" + ", ".join(f"{type} {constant}" for _ in range(lanes)) + ">"


class Function:
    """The body of one LLVM function under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._areas: dict[int, list[str]] = {}  # position in `lines` → lines to put there
        self.entry: list[str] = []  # allocas: LLVM promotes only those in the entry block
        self.declares: dict[str, None] = {}  # an ordered set
        self.block = "entry"
        self._count = 0

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def label(self, base: str) -> str:
        self._count += 1
        return f"{base}{self._count}"

    def op(self, text: str) -> str:
        """Append an instruction with a result; returns the result's name."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def area(self) -> list[str]:
        """A place for instructions here, which are appended to later (`into`)."""
        self.lines.append("")
        found: list[str] = []
        self._areas[len(self.lines) - 1] = found
        return found

    @contextmanager
    def into(self, area: list[str]) -> Iterator[None]:
        """Append to an area, not to the end."""
        saved, self.lines = self.lines, area
        yield
        self.lines = saved

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch_if(self, cond: str, then: str, otherwise: str) -> None:
        self.do(f"br i1 {cond}, label %{then}, label %{otherwise}")

    def call(self, result: str, name: str, args: list[tuple[str, str]], flags: str = "") -> str:
        """Call an intrinsic, declaring it on first use; `flags` are fast-math flags."""
        types = ", ".join(type for type, _ in args)
        self.declares[f"declare {result} @{name}({types})"] = None
        operands = ", ".join(f"{type} {value}" for type, value in args)
        text = f"call {flags + ' ' if flags else ''}{result} @{name}({operands})"
        if result == "void":
            self.do(text)
            return ""
        return self.op(text)

    def alloca(self, type: str, count: int, align: int) -> str:
        name = self.fresh()
        self.entry.append(f"  {name} = alloca [{count} x {type}], align {align}")
        return name

    def broadcast(self, type: str, value: str, lanes: int) -> str:
        if lanes == 1:
            return value
        wide = vector(type, lanes)
        one = self.op(f"insertelement {wide} poison, {type} {value}, i32 0")
        return self.op(
            f"shufflevector {wide} {one}, {wide} poison, <{lanes} x i32> zeroinitializer"
        )

    def text(self, head: str) -> str:
        lines = (self._areas.get(i, [line]) for i, line in enumerate(self.lines))
        body = "\n".join(["entry:", *self.entry, *(x for part in lines for x in part)])
        return f"{head} {{\n{body}\n}}\n"
