"""A graph that TorchDynamo captured → FxModel. In: Dynamo's graph module and inputs. Out: FxModel
of ATen operators, through AOTAutograd, which functionalises and restores aliases and mutations
around the compiled function. Called by ingot/torch/backend.py.

AOTAutograd gives the inputs that a run updates as `copy_` nodes at the end of the graph: they
become outputs that are written to the caller's memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._functorch.aot_autograd import aot_module_simplified
from torch.export import exported_program as export_internals
from torch.export._trace import _ignore_backend_decomps
from torch.utils._python_dispatch import _disable_current_modes

from ingot.frontends.torch.converters import FAMILIES
from ingot.frontends.torch.library_ops import bodies
from ingot.frontends.torch.model import FxModel, Output, Placeholder, memory_order, results_of
from ingot.frontends.torch.registry import has_converter
from ingot.frontends.torch.views import lift_views

assert FAMILIES  # importing them fills the table

Compile = Callable[[FxModel], Callable[[list[Any]], Sequence[Any]]]


def traced(
    module: torch.fx.GraphModule, inputs: Sequence[Any], compile: Compile
) -> Callable[..., Any]:
    """The function that AOTAutograd makes of a graph: it calls what `compile` gives for the graph
    of ATen operators, with a list of arguments that it may empty."""

    def compiled(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        with _disable_current_modes():  # tracing's: what is compiled are real tensors
            restored = lift_views(gm)
            run = restored(compile(_fx_model(gm, inputs, _given(module))))
        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    with torch.no_grad(), whole_operators():
        return aot_module_simplified(
            module,
            inputs,
            fw_compiler=compiled,
            inference_compiler=compiled,
            decompositions=_decompositions(),
            keep_inference_input_mutations=True,
        )


# --- decompositions -------------------------------------------------------------------------------


@cache
def _decompositions() -> dict[Any, Any]:
    """PyTorch's decompositions of operators that have no converter."""
    return {
        op: fn
        for op, fn in decomposition_table.items()
        if isinstance(op, torch._ops.OpOverload) and not has_converter(str(op))
    } | bodies()


@contextmanager
def whole_operators() -> Iterator[None]:
    """Composite operators with a converter stay whole in what is traced."""
    with _ignore_backend_decomps(), export_internals._override_composite_implicit_decomp(_kept()):
        yield


@cache
def _kept() -> dict[Any, Any]:
    found = export_internals._collect_all_valid_cia_ops()
    keep = export_internals._special_op_to_preserve_cia
    return {op: keep for op in found if has_converter(str(op))}


# --- the model ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """An input of Dynamo's graph: its name for the user, and whether it is a parameter or buffer of
    the user's modules."""

    label: str
    is_weight: bool


def _given(module: torch.fx.GraphModule) -> list[Given]:
    found = []
    for node in module.graph.find_nodes(op="placeholder"):
        marks = node.meta.get("tensor_dict") or {}
        source = getattr(node.meta.get("grapharg"), "source", None)
        is_marked = "_dynamo_static_input_type" in marks
        is_parameter = isinstance(node.meta.get("example_value"), torch.nn.Parameter)
        is_weight = is_marked or is_parameter or _is_of_module(source)
        found.append(Given(_label(source, node.name), is_weight))
    return found


def _label(source: Any, name: str) -> str:
    """`x` for an argument, `self.fc.weight` for a parameter."""
    text = getattr(source, "name", name)
    text = str(text() if callable(text) else text)
    match = re.match(r"L\['(\w+)'\]", text)
    return text if match is None else match[1] + text[match.end() :]


def _is_of_module(source: Any) -> bool:
    while source is not None:
        if "UnspecializedNNModule" in type(source).__name__:
            return True
        if "UnspecializedParamBuffer" in type(source).__name__:
            return True
        source = getattr(source, "base", None)
    return False


def _fx_model(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], about: Sequence[Given]
) -> FxModel:
    updates = _lift_updates(graph)
    placeholders = []
    for node in graph.graph.find_nodes(op="placeholder"):
        index = getattr(node.meta.get("desc"), "idx", None)
        is_known = isinstance(index, int) and index < min(len(inputs), len(about))
        own = about[index] if is_known else Given(node.name, False)  # type: ignore[index]
        weight = inputs[index] if own.is_weight else None  # type: ignore[index]
        placeholders.append(_placeholder(node, own.label, weight, node.name in updates))
    outputs = []
    for position, result in enumerate(results_of(graph)):
        if position < len(updates):
            outputs.append(_update(graph, updates[position]))
        else:
            outputs.append(_output(result, f"output{position - len(updates)}"))
    return FxModel(graph, tuple(placeholders), tuple(outputs), _ranges(graph), name="graph")


def _placeholder(
    node: torch.fx.Node, label: str, weight: torch.Tensor | None, is_updated: bool
) -> Placeholder:
    value = node.meta.get("val")
    if isinstance(weight, torch.Tensor) and not is_updated:
        return Placeholder(node.name, "constant", label, weight)
    if not isinstance(value, torch.Tensor):
        return Placeholder(node.name, "input" if node.users else "fixed", label)
    if not node.users and not _has_symbols(value):
        return Placeholder(node.name, "fixed", label)
    return Placeholder(node.name, "input", label, order=memory_order(value))


def _has_symbols(value: torch.Tensor) -> bool:
    return any(isinstance(size, torch.SymInt) for size in value.shape)


def _lift_updates(graph: torch.fx.GraphModule) -> list[str]:
    """Replace copies to placeholders by leading results; the placeholders, in order."""
    copies = []
    for node in list(graph.graph.nodes):
        if str(node.target) == "aten.copy_.default" and node.args[0].op == "placeholder":
            copies.append((node.args[0].name, node.args[1]))
            node.replace_all_uses_with(node.args[1])
            graph.graph.erase_node(node)
    (output,) = graph.graph.find_nodes(op="output")
    output.args = ((*(new for _, new in copies), *output.args[0]),)
    return [name for name, _ in copies]


def _update(graph: torch.fx.GraphModule, name: str) -> Output:
    (node,) = (n for n in graph.graph.find_nodes(op="placeholder") if n.name == name)
    return Output("update", f"{name}.new", name, memory_order(node.meta["val"]))


def _output(result: Any, name: str) -> Output:
    if not isinstance(result, torch.fx.Node) or result.op == "placeholder":
        return Output("none")
    value = result.meta.get("val")
    is_tensor = isinstance(value, torch.Tensor)
    return Output("value", name, order=memory_order(value) if is_tensor else None)  # type: ignore


def _ranges(graph: torch.fx.GraphModule) -> dict[Any, Any]:
    """The ranges of the symbols, from the environment in which tracing has put them."""
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        sizes = [value] if isinstance(value, torch.SymInt) else getattr(value, "shape", ())
        for size in sizes:
            if isinstance(size, torch.SymInt):
                return dict(size.node.shape_env.var_to_range)
    return {}
