"""torch.export → FxModel. In: an ExportedProgram or a .pt2 file. Out: the program, decomposed into
operators that have converters, what its placeholders are, and how it is called. Called by walker
and by ingot/torch.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import cache
from os import PathLike, fspath
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind

from ingot.frontends.torch.converters import FAMILIES
from ingot.frontends.torch.inference_form import inference_form
from ingot.frontends.torch.library_ops import bodies
from ingot.frontends.torch.model import FxModel, Output, Placeholder, memory_order, results_of
from ingot.frontends.torch.pytrees import torch_text, tree_of
from ingot.frontends.torch.registry import converter_of, has_converter
from ingot.runtime.module_signature import Held, Leaf, ModuleSignature, Order, Result
from ingot.support.errors import IngotError

assert FAMILIES  # importing them fills the table

CONSTANTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
PLAIN = (bool, int, float, str, type(None))  # values that a plan file keeps
Nodes = Mapping[str, torch.fx.Node]


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
        hint = "write it with torch.export.save, or export ONNX with torch.onnx.export"
        raise IngotError("bad-model", what, where=str(path), why=why, hint=hint) from error


def decomposed(program: torch.export.ExportedProgram) -> tuple[Any, torch.fx.GraphModule]:
    """The program, and its graph in operators that have converters. If the functional form has no
    others it is taken: torch takes seconds to decompose a program."""
    module = inference_form(program.graph_module)
    if all(_is_known(node) for node in module.graph.nodes):
        return program, module
    with torch.no_grad():
        program = program.run_decompositions(dict(decompositions()))
    return program, program.graph_module


def _is_known(node: torch.fx.Node) -> bool:
    if node.op != "call_function":
        return True
    is_part = getattr(node.target, "__name__", "") == "getitem"
    return is_part or converter_of(node) is not None


@cache
def decompositions() -> Mapping[Any, Any]:
    """PyTorch's decompositions of every operator that has no converter."""
    table = torch.export.default_decompositions().materialize()  # type: ignore[attr-defined]
    for op, fn in torch._decomp.decomposition_table.items():
        if isinstance(op, torch._ops.OpOverload):
            table.setdefault(op, fn)
    return {op: fn for op, fn in table.items() if not has_converter(str(op))} | bodies()


def of_program(
    program: torch.export.ExportedProgram,
    names: Mapping[str, str] | None = None,
    name: str = "module",
) -> FxModel:
    """`names`: names of the program's symbols, which its author gave."""
    program, graph_module = decomposed(program)
    signature = program.graph_signature
    nodes = {n.name: n for n in graph_module.graph.nodes}
    tensors = {**program.state_dict, **program.constants}
    updates, held = _updates(signature), _held(signature)
    return FxModel(
        graph_module,
        tuple(_placeholder(spec, nodes, tensors, held) for spec in signature.input_specs),
        _outputs(graph_module, signature, updates),
        program.range_constraints,
        names or {},
        name,
        call_signature(program),
    )


def _updates(signature: Any) -> dict[str, str]:
    """Placeholders that a run updates → the node that has their new value."""
    by_target = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target}
    found = {}
    for spec in signature.output_specs:
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            found[by_target.get(spec.target, spec.target)] = spec.arg.name
    return found


def _held(signature: Any) -> set[str]:
    """Placeholders of the module's own tensors that a run updates or returns as they are."""
    results = {spec.arg.name for spec in signature.output_specs}
    names = {spec.arg.name for spec in signature.input_specs if spec.kind in CONSTANTS}
    return names & (results | _updates(signature).keys())


def _placeholder(
    spec: InputSpec, nodes: Nodes, tensors: Mapping[str, Any], held: Container[str]
) -> Placeholder:
    name = spec.arg.name
    if isinstance(spec.arg, ConstantArgument):
        return Placeholder(name, "fixed")
    if spec.kind is InputKind.USER_INPUT:
        return Placeholder(name, "input", order=_order(nodes, name))
    if spec.kind not in CONSTANTS:
        what = f"the exported program has an input of kind {spec.kind.name}"
        raise IngotError("unsupported-op", what, where=f"input {name!r}")
    kind = "state" if name in held else "constant"
    order = _order(nodes, name) if kind == "state" else None
    return Placeholder(name, kind, str(spec.target), tensors[str(spec.target)], order)


def _order(nodes: Nodes, name: str) -> Order | None:
    """The memory order of a placeholder."""
    value = nodes[name].meta.get("val")
    return memory_order(value) if isinstance(value, torch.Tensor) else None


def _outputs(
    module: torch.fx.GraphModule, signature: Any, updates: Mapping[str, str]
) -> tuple[Output, ...]:
    made: list[Output] = []
    nodes = {n.name: n for n in module.graph.nodes}
    by_value = {new: old for old, new in updates.items()}
    for spec, result in zip(signature.output_specs, results_of(module)):
        old = by_value.get(spec.arg.name)
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            made.append(Output("update", f"{old}.new", str(old), _order(nodes, str(old))))
        elif not isinstance(result, torch.fx.Node) or result.op == "placeholder" or old:
            made.append(Output("none"))
        else:
            order = _order(nodes, result.name)
            made.append(Output("value", f"output{len(made)}", order=order))
    return tuple(made)


# --- how it is called ---------------------------------------------------------------------------


def call_signature(program: torch.export.ExportedProgram) -> ModuleSignature:
    signature, spec = program.graph_signature, program.call_spec
    updates = _updates(signature)
    nodes = {n.name: n for n in program.graph.nodes}
    given = [s for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    index = {s.arg.name: i for i, s in enumerate(given)}
    outputs = _outputs(program.graph_module, signature, updates)
    by_value = {new: old for old, new in updates.items()}
    pairs = zip(signature.output_specs, outputs)
    results = tuple(
        _result(s.arg, output, index, by_value, nodes)
        for s, output in pairs
        if s.kind is OutputKind.USER_OUTPUT
    )
    names = _held(signature)
    held = tuple(
        Held(s.arg.name, str(s.target), _order(nodes, s.arg.name))
        for s in signature.input_specs
        if s.arg.name in names
    )
    assert spec.in_spec is not None and spec.out_spec is not None
    return ModuleSignature(
        _parameters(program),
        tree_of(spec.in_spec),
        tuple(_leaf(s, nodes, updates) for s in given),
        tree_of(spec.out_spec),
        results,
        held,
        (torch_text(spec.in_spec), torch_text(spec.out_spec)),
    )


def _parameters(program: torch.export.ExportedProgram) -> tuple[str, ...]:
    """The names of the positional arguments, if the program has kept them."""
    entry = program.module_call_graph[0].signature
    names = None if entry is None else entry.forward_arg_names
    return tuple(names or ())


def _leaf(spec: InputSpec, nodes: Nodes, updates: Mapping[str, str]) -> Leaf:
    name = spec.arg.name
    if isinstance(spec.arg, ConstantArgument):
        value = spec.arg.value
        return Leaf("fixed", value=value) if isinstance(value, PLAIN) else Leaf("any")
    value = nodes[name].meta.get("val")
    if isinstance(value, torch.Tensor):
        parts = value.is_complex()
        return Leaf("tensor", name, None, memory_order(value), name in updates, parts)
    return Leaf("number", name)


def _result(
    arg: Any, output: Output, index: Mapping[str, int], by_value: Mapping[str, str], nodes: Nodes
) -> Result:
    if isinstance(arg, ConstantArgument):
        return Result("fixed", value=arg.value if isinstance(arg.value, PLAIN) else None)
    name = by_value.get(arg.name, arg.name)
    if name in index:
        return Result("leaf", leaf=index[name])
    if nodes[name].op == "placeholder":
        return Result("state", port=name, is_complex=nodes[name].meta["val"].is_complex())
    value = nodes[name].meta.get("val")
    if not isinstance(value, torch.Tensor):
        return Result("number", output.name)
    return Result("tensor", output.name, order=output.order, is_complex=value.is_complex())
