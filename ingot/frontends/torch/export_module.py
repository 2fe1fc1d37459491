"""A module and example inputs → FxModel, by torch.export. Called, by name, by api.py.

What torch.export refuses (control flow that depends on data, a size that the module fixes) becomes
an IngotError that names the user's line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from ingot.frontends.torch import program
from ingot.frontends.torch.failures import export_error
from ingot.frontends.torch.model import FxModel
from ingot.support.errors import IngotError


def fx_model(
    model: Any,
    example_inputs: Any = None,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> FxModel:
    """An ExportedProgram, or a module (or function) with example inputs."""
    if isinstance(model, FxModel):
        return model
    if isinstance(model, torch.export.ExportedProgram):
        if any(x is not None for x in (example_inputs, example_kwargs, dynamic_shapes)):
            what = "example inputs and dynamic_shapes belong to a module, not to its export"
            raise IngotError("bad-option", what, hint="give them to torch.export.export")
        return program.of_program(model)
    args, kwargs = _examples(example_inputs, example_kwargs)
    module = model if isinstance(model, torch.nn.Module) else _Function(model)
    _check_parameters(module)
    try:
        with torch.inference_mode(_is_inference(module)), torch.no_grad():
            exported = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    except IngotError:
        raise
    except Exception as error:  # torch.export raises many kinds, also those of the user's code
        raise export_error(error, module) from error
    names = _names(exported, dynamic_shapes)
    made = program.of_program(exported, names, type(model).__name__)
    return replace(made, owner=module)


class _Function(torch.nn.Module):
    """torch.export takes modules only."""

    def __init__(self, function: Any):
        super().__init__()
        self.forward = function  # torch.export reads its signature


def _examples(
    given: Any, named: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`given`: a tuple of arguments, or one tensor; `named`: those by name."""
    if given is None and named is None:
        what = "a module is compiled from example inputs"
        hint = "ingot.compile(module, (x,)), or torch.compile(module, backend='ingot')"
        raise IngotError("bad-option", what, hint=hint)
    args = given if isinstance(given, tuple | list) else () if given is None else (given,)
    return tuple(args), dict(named or {})


def _is_inference(module: torch.nn.Module) -> bool:
    """Were its tensors made under inference_mode? Then they can be traced only there."""
    return any(t.is_inference() for t in (*module.parameters(), *module.buffers()))


def _check_parameters(module: torch.nn.Module) -> None:
    """An error for parameters that are not in the memory of the CPU."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.device.type != "cpu":
            what = f"parameter {name!r} is on the device {tensor.device}"
            hint = "Ingot runs models on the CPU: module.cpu()"
            raise IngotError("bad-model", what, where=type(module).__name__, hint=hint)


def _names(exported: torch.export.ExportedProgram, dynamic_shapes: Any) -> dict[str, str]:
    """The names that the caller gave to dynamic dimensions, by torch's symbols: those of Dim."""
    values = {
        n.name: n.meta.get("val") for n in exported.graph.find_nodes(op="placeholder")
    }  # fmt: skip
    given = [values[name] for name in exported.graph_signature.user_inputs if name in values]
    found: dict[str, str] = {}
    for value, dims in zip(given, _per_leaf(dynamic_shapes)):
        if not isinstance(value, torch.Tensor) or dims is None:
            continue
        rows = dims.items() if isinstance(dims, Mapping) else enumerate(dims)
        for axis, dim in rows:
            name, size = getattr(dim, "__name__", ""), value.shape[axis]
            if name and isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                found.setdefault(str(size.node.expr), name)
    return found


def _per_leaf(dynamic_shapes: Any) -> list[Any]:
    """The dimensions of each tensor, in the order of the arguments."""
    out: list[Any] = []
    todo = [dynamic_shapes]
    while todo:
        found = todo.pop()
        if found is None or _are_dims(found):
            out.append(found)
        else:
            todo += reversed(list(found.values() if isinstance(found, Mapping) else found))
    return out


def _are_dims(found: Any) -> bool:
    """{axis: Dim}, or a tuple of a Dim, number or None for each axis."""
    if isinstance(found, Mapping):
        return all(isinstance(key, int) for key in found)
    if not isinstance(found, tuple | list):
        return True
    return not any(isinstance(item, Mapping | tuple | list) for item in found) and any(
        item is not None for item in found
    )
