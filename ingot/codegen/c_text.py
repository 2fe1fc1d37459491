"""Writing C99 text: types, literals, names, string literals, indented lines. Used by all c_*.py.

bool is `bool` in a variable and `uint8_t` in memory; float16, bfloat16, float8 and sub-byte values
are integers, since legalize has expanded their arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ingot.dtypes import DType
from ingot.support.errors import IngotError

_FLOATS = {"f32": "float", "f64": "double"}
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# words that a variable cannot have as its name: C99's own, the headers' and a kernel's parameters
RESERVED = frozenset({
    "auto", "bool", "break", "call", "case", "char", "const", "continue", "default", "do", "double",
    "else", "enum", "error", "extern", "false", "float", "for", "goto", "if", "inline", "int",
    "long", "main", "register", "restrict", "return", "scratch", "short", "signed", "sizeof",
    "static", "struct", "switch", "true", "typedef", "union", "unsigned", "void", "volatile",
    "while",
})  # fmt: skip
MAX_STRING = 1000  # characters of a string literal; a C99 compiler need not take more than 4095


def value_type(dtype: DType) -> str:
    """The type of a variable."""
    return "bool" if dtype.is_bool else memory_type(dtype)


def memory_type(dtype: DType) -> str:
    """The type of an element in memory."""
    if dtype.name in _FLOATS:
        return _FLOATS[dtype.name]
    sign = "" if dtype.is_int and dtype.is_signed else "u"
    return f"{sign}int{width(dtype)}_t"


def width(dtype: DType) -> int:
    """Bits of the integer that holds a value."""
    return max(8, dtype.bits)


def wrapping_type(dtype: DType) -> str:
    """The unsigned type to compute in: its arithmetic wraps and is not promoted to int."""
    return "uint64_t" if dtype.bits == 64 else "uint32_t"


def literal(value: int | float | bool, dtype: DType) -> str:
    """A constant; a float that is NaN or infinite has none."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.name in _FLOATS:
        return float_literal(value, dtype)
    if dtype.is_float:
        return str(float_bits(value, dtype))
    return int_literal(int(value), dtype)


def float_literal(value: int | float, dtype: DType) -> str:
    """The shortest decimal that rounds to the value."""
    text = str(dtype.numpy.type(value))
    text = text if any(c in text for c in ".en") else text + ".0"
    text += "f" if dtype.bits == 32 else ""
    return f"({text})" if text.startswith("-") else text


def float_bits(value: int | float, dtype: DType) -> int:
    return int(dtype.numpy.type(value).view(f"uint{width(dtype)}"))


def int_literal(value: int, dtype: DType) -> str:
    if not dtype.is_signed:
        return f"UINT64_C({value})" if dtype.bits == 64 else f"{value}u"
    if dtype.bits == 64 or value == -(1 << 31):
        return index_literal(value) if value == -(1 << 63) else f"INT64_C({value})"
    return f"({value})" if value < 0 else str(value)


def index_literal(value: int) -> str:
    """A 64-bit index: small ones are plain, since the other operand has 64 bits."""
    if value == -(1 << 63):
        return "INT64_MIN"
    if abs(value) < 1 << 31:
        return f"({value})" if value < 0 else str(value)
    return f"INT64_C({value})"


def bare(text: str) -> str:
    """Without the parentheses around the whole expression."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text


def string(text: str) -> str:
    """A string literal; bytes beyond ASCII and trigraphs are octal escapes."""
    raw = text[:MAX_STRING].encode()
    plain = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in raw)
    return '"' + "".join(plain) + '"'


def comment(text: str) -> str:
    """Text that is safe in a comment."""
    safe = text.replace("*/", "* /").replace("/*", "/ *")
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in safe)


class Names:
    """IR names → C identifiers, distinct where the names are."""

    def __init__(self, taken: Iterator[str] | tuple[str, ...] = ()):
        self._names: dict[str, str] = {}
        self._taken = {*RESERVED, *taken}

    def __getitem__(self, name: str) -> str:
        found = self._names.get(name)
        if found is None:
            found = self._names[name] = self._fresh(name)
            self._taken.add(found)
        return found

    def _fresh(self, name: str) -> str:
        base = name if _is_plain(name) else "v_" + re.sub(r"[^A-Za-z0-9_]", "_", name)
        base = base[:40]  # a C99 compiler need only tell names apart by their first 63 characters
        found, count = base, 1
        while found in self._taken:
            found, count = f"{base}_{count}_", count + 1
        return found


def _is_plain(name: str) -> bool:
    """Whether a name can stay: not a helper, constant or kernel, nor like a macro or type of C."""
    if not _PLAIN_NAME.fullmatch(name) or re.fullmatch(r"ingot_\w*|\w+_t|[ck]\d+", name):
        return False
    return len(name) == 1 or not name.isupper()


class Lines:
    """Indented lines under construction."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[str] = []
        self.depth = depth

    def add(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str = "", tail: str = "}") -> Iterator[None]:
        self.add(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.add(tail)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def unprintable(what: str, where: str = "") -> IngotError:
    hint = "legalize for a target with one lane, or choose another back end"
    return IngotError("codegen-failed", f"the C printer has no {what}", where=where, hint=hint)
