"""The C module of a package ↔ named bytes. In: filled by backends/c.py. Out: read by loaded.py, and
by backends/c.py when it writes a C file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ingot.runtime.package import Module, Package

DEVICE, KIND = "c", "c99"


@dataclass(frozen=True)
class CModule:
    """A C file in parts: `constants` stands between head and body, and reads the weights from
    `call->weights`. Numbers are those of `call->buffers` (codegen/c_head.py)."""

    head: str
    constants: str
    body: str
    constant_table: str  # codegen/c_weights.py: to print the weights into the file instead
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    block_count: int

    @property
    def text(self) -> str:
        return self.head + self.constants + self.body

    def pack(self) -> Module:
        facts = {name: getattr(self, name) for name in ("inputs", "outputs", "block_count")}
        texts = {name: getattr(self, name) for name in _TEXTS}
        rows = {"facts": json.dumps(facts), **texts}
        return Module(DEVICE, KIND, tuple((name, text.encode()) for name, text in rows.items()))


_TEXTS = ("head", "constants", "body", "constant_table")


def read(package: Package) -> CModule:
    (module,) = (module for module in package.modules if module.device == DEVICE)
    blobs = {name: data.decode() for name, data in module.blobs}
    facts = json.loads(blobs.pop("facts"))
    return CModule(
        **blobs,
        inputs=tuple(facts["inputs"]),
        outputs=tuple(facts["outputs"]),
        block_count=facts["block_count"],
    )
