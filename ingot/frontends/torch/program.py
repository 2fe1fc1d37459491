"""torch.export → FxModel. In: an ExportedProgram or a .pt2 file. Out: the program, decomposed into
operators that have converters, and what its placeholders are. Called by walker and by ingot/torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind

from ingot.frontends.torch.converters import FAMILIES
from ingot.frontends.torch.model import FxModel, Placeholder
from ingot.frontends.torch.registry import TABLE
from ingot.support.errors import IngotError

assert FAMILIES  # importing them fills the table

KINDS = {
    InputKind.PARAMETER: "constant", InputKind.BUFFER: "constant",
    InputKind.CONSTANT_TENSOR: "constant", InputKind.USER_INPUT: "input",
}  # fmt: skip


def read(path: str | PathLike) -> torch.export.ExportedProgram:
    """A .pt2 file, as torch.export.save writes it."""
    try:
        return torch.export.load(fspath(path))
    except OSError as error:
        what = f"the file cannot be read: {error.strerror or error}"
        raise IngotError("bad-model", what, where=str(path)) from error
    except Exception as error:  # torch raises whatever its unpickler and its zip reader do
        why = f"{type(error).__name__}: {error}"
        what = "torch.export.load does not read this file"
        raise IngotError("bad-model", what, where=str(path), why=why) from error


def decompositions() -> dict[Any, Any]:
    """PyTorch's decompositions of every operator that has no converter."""
    table = torch.export.default_decompositions()
    extra = torch._decomp.decomposition_table
    for op, fn in extra.items():
        if isinstance(op, torch._ops.OpOverload) and op not in table:
            table[op] = fn
    for op in list(table):
        if str(op) in TABLE:
            table.pop(op)
    return table  # type: ignore[return-value]


def of_program(
    program: torch.export.ExportedProgram, names: Mapping[str, str] | None = None
) -> FxModel:
    program = program.run_decompositions(decompositions())
    signature = program.graph_signature
    tensors = {**program.state_dict, **program.constants}
    outputs = signature.output_specs
    is_update = {OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION}
    updated = [spec.target for spec in outputs if spec.kind in is_update]
    by_target = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target}
    updates = tuple(by_target.get(target, target) for target in updated)
    placeholders = tuple(_placeholder(s, tensors, updates) for s in signature.input_specs)
    return FxModel(
        program.graph_module, placeholders, updates, program.range_constraints, names or {}
    )


def _placeholder(spec: Any, tensors: Mapping[str, Any], updates: tuple[str, ...]) -> Placeholder:
    name = spec.arg.name
    if type(spec.arg).__name__ == "ConstantArgument":
        return Placeholder(name, "fixed")
    kind = KINDS.get(spec.kind)
    if kind is None:
        what = f"the exported program has an input of kind {spec.kind.name}"
        raise IngotError("unsupported-op", what, where=f"input {name!r}")
    if kind == "input":
        return Placeholder(name, kind)
    kind = "state" if name in updates else kind
    return Placeholder(name, kind, spec.target, tensors[spec.target])
