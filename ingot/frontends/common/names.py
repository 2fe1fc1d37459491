"""Names of a model → names of symbols. In: any text. Out: identifiers, each used once."""

from __future__ import annotations

import keyword
import re

# reserved words of the loop IR's text form, where symbols are identifiers
_RESERVED = {"min", "max", "grid", "block", "init", "alloc", "range", "true", "false", "inf", "nan"}


def identifier(text: str) -> str:
    """`text` as a Python identifier that is not reserved."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text).strip("_") or "dim"
    name = f"d{name}" if name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) or name.lower() in _RESERVED else name


def claim(base: str, taken: set[str]) -> str:
    """`base` as an identifier that is not taken; it is taken now."""
    base = identifier(base)
    name, count = base, 1
    while name in taken:
        name, count = f"{base}_{count}", count + 1
    taken.add(name)
    return name
