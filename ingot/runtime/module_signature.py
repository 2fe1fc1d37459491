"""How a PyTorch module is called: what its nested arguments and results are in the compiled graph.

In: made by frontends/torch of an exported program. Out: read by module_call.py; JSON text in a
package, so that a plan file keeps it. Nothing here needs torch.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ingot.runtime.trees import Tree

Order = tuple[int, ...]


@dataclass(frozen=True)
class Leaf:
    """One argument. kind "tensor": the input `port`; "number": likewise, an array of one, if the
    shapes of tensors do not give it; "fixed": `value`, which tracing assumed; "any": what cannot be
    compared. `order`: the axes of its memory, outermost first, None for C order; `state`: the call
    updates it. A complex tensor is an array of its parts, which are the last axis."""

    kind: str
    port: str = ""
    value: Any = None
    order: Order | None = None
    state: bool = False
    is_complex: bool = False


@dataclass(frozen=True)
class Result:
    """One result. kind "tensor" or "number": output `output`; "leaf": argument `leaf` itself;
    "state": the buffer of port `port`; "fixed": `value`."""

    kind: str
    output: str = ""
    leaf: int = 0
    port: str = ""
    value: Any = None
    order: Order | None = None
    is_complex: bool = False


@dataclass(frozen=True)
class Held:
    """A buffer of the module that calls update: its input, its name, its memory order."""

    port: str
    target: str
    order: Order | None = None


@dataclass(frozen=True)
class ModuleSignature:
    """`parameters`: names of the positional arguments; `arguments`: the tree of (args, kwargs)."""

    parameters: tuple[str, ...]
    arguments: Tree
    leaves: tuple[Leaf, ...]
    returned: Tree
    results: tuple[Result, ...]
    held: tuple[Held, ...] = ()
    torch_trees: tuple[str, str] = ("", "")  # torch's own text of both; empty if it has none

    def text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def of(text: str) -> ModuleSignature:
        rows = json.loads(text)
        return ModuleSignature(
            tuple(rows["parameters"]),
            rows["arguments"],
            tuple(Leaf(**_with_order(row)) for row in rows["leaves"]),
            rows["returned"],
            tuple(Result(**_with_order(row)) for row in rows["results"]),
            tuple(Held(**_with_order(row)) for row in rows["held"]),
            tuple(rows["torch_trees"]),
        )


def _with_order(row: dict[str, Any]) -> dict[str, Any]:
    order = row["order"]
    return {**row, "order": None if order is None else tuple(order)}
