"""The constants of a C file: arrays in the file, or places in a block that the caller gives.

In: `Constant`s and the block that holds them. Out: the part of the file that defines c0, c1, …
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import numpy as np

from ingot import dtypes
from ingot.codegen.c_text import literal, memory_type
from ingot.dtypes import DType

MAX_EMBEDDED_BYTES = 4 << 20  # of weights in the file itself: some 15 MB of text; heuristic
PER_LINE = 8  # elements in a line of an array


@dataclass(frozen=True)
class Constant:
    """A constant's C name, element type, and place in the block of all constants."""

    name: str
    dtype: str
    offset: int
    count: int


def to_json(constants: list[Constant]) -> str:
    return json.dumps([asdict(c) for c in constants])


def from_json(data: str) -> list[Constant]:
    return [Constant(**row) for row in json.loads(data)]


def external(constants: list[Constant]) -> str:
    """The constants as places in `call->weights`."""
    lines = []
    for c in constants:
        type = memory_type(dtypes.of(c.dtype))
        place = f"(const void *)((const unsigned char *)call->weights + {c.offset})"
        lines.append(f"#define {c.name} ((const {type} *){place})")
    return "\n".join([*lines, "", ""])


def embedded(constants: list[Constant], block: np.ndarray) -> str:
    """The constants as arrays of their own types."""
    return "\n".join([*(_array(c, block) for c in constants), "", ""])


def _array(c: Constant, block: np.ndarray) -> str:
    dtype = dtypes.of(c.dtype)
    raw = block[c.offset : c.offset + c.count * dtype.storage_bytes]
    type, count = memory_type(dtype), max(1, c.count)
    if dtype.name in ("f32", "f64"):
        values = raw.view(dtype.numpy)
        if not np.isfinite(values).all():
            return _bits(c, raw, dtype)
        return f"static const {type} {c.name}[{count}] = {_items(values, dtype)};"
    stored = dtypes.from_numpy(np.dtype(type.removesuffix("_t")))
    return f"static const {type} {c.name}[{count}] = {_items(raw.view(stored.numpy), stored)};"


def _bits(c: Constant, raw: np.ndarray, dtype: DType) -> str:
    """NaN and infinity have no literal in C99 without math.h: the array is given by its bits."""
    word = dtypes.of(f"u{dtype.bits}")
    fields = f"{memory_type(word)} bits[{c.count}]; {memory_type(dtype)} values[{c.count}];"
    data = _items(raw.view(word.numpy), word)
    union = f"static const union {{ {fields} }} {c.name}_bits = {{ {data} }};"
    return f"{union}\n#define {c.name} ({c.name}_bits.values)"


def _items(values: np.ndarray, dtype: DType) -> str:
    items = [literal(v, dtype) for v in values] or ["0"]
    rows = (", ".join(items[i : i + PER_LINE]) for i in range(0, len(items), PER_LINE))
    return "{\n    " + ",\n    ".join(rows) + "\n}"
