"""The work of a model, counted in its graph: FLOPs of its contractions, bytes of their weights.

In: a model and its sizes. Out: useful FLOPs (2·M·N·K of every GEMM and convolution, unpadded) and
the bytes of constant operands that they read; those in a loop count once per iteration. Every
composite operator is decomposed first, so that its contractions count too. Used by facts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ingot import api
from ingot.arith import expr as arith
from ingot.graph.ir import ConstRef, Graph, Node, Value
from ingot.graph.opdef import Kind, defn
from ingot.passes.decompose import decompose
from ingot.passes.fold_constants import fold_constants
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.support import lazy


@dataclass(frozen=True)
class Work:
    """The work of one call; None if a size is data-dependent."""

    useful_flops: int | None
    weights_bytes: int | None


def work_of(model: Path | bytes, sizes: Mapping[str, int]) -> Work:
    session = api.make_session(shapes=dict(sizes))
    graph = lazy.load("pipeline").run_stages(model, session, stop_after="inline_branches")
    graph = fold_constants(decompose(graph, session.store, frozenset()), session.store)
    graph = remove_dead_code(graph, session.store)
    try:
        flops, weights = _count(graph, {})
    except DynamicSizeError:
        return Work(None, None)
    return Work(flops, weights)


class DynamicSizeError(Exception):
    """A size is not known before the run."""


def _count(graph: Graph, given: Mapping[str, int]) -> tuple[int, int]:
    """FLOPs and weight bytes; `given`: bytes of inputs that are constants of the outer graph."""
    constants, flops, weights = dict(given), 0, 0
    for node in graph.nodes:
        ref = node.attr("value")
        if node.op == "constant" and isinstance(ref, ConstRef):
            constants[node.outputs[0].name] = _bytes(node)
        elif node.op == "loop":
            body, first = node.attr("body"), 2 + node.attr("carried")  # loop-carried values first
            inner = _count(body, _captured(body.inputs[first:], node.inputs[first:], constants))
            trips = _trips(node) if any(inner) else 0
            flops, weights = flops + trips * inner[0], weights + trips * inner[1]
        elif node.op == "if":
            branches = (node.attr(name) for name in ("then_branch", "else_branch"))
            taken = max(
                _count(b, _captured(b.inputs, node.inputs[1:], constants)) for b in branches
            )
            flops, weights = flops + taken[0], weights + taken[1]
        elif defn(node).kind_of(node) is Kind.CONTRACTION:
            flops += FLOPS[node.op](node)
            weights += sum(constants.get(v.name, 0) for v in node.inputs if v is not None)
    return flops, weights


def _trips(node: Node) -> int:
    count = node.attr("count")
    if count is None:
        raise DynamicSizeError("the length of a loop")
    return _number(arith.wrap(count))


def _captured(
    own: Sequence[Value], given: Sequence[Value | None], constants: Mapping[str, int]
) -> dict[str, int]:
    """The inputs of a sub-graph that are constants of the outer graph."""
    return {v.name: constants[g.name] for v, g in zip(own, given) if g and g.name in constants}


def _bytes(node: Node) -> int:
    value = node.outputs[0]
    return _product(value.shape) * value.dtype.storage_bytes


def _product(dims: Collection[arith.Expr]) -> int:
    total = 1
    for dim in dims:
        total *= _number(dim)
    return total


def _number(size: arith.Expr) -> int:
    number = arith.as_int(size)
    if number is None:
        raise DynamicSizeError(str(size))
    return number


# --- contractions ---------------------------------------------------------------------------------


def _matmul(node: Node) -> int:
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    return 2 * _product(y.shape) * _number(x.shape[-1])


def _conv(node: Node) -> int:
    weights = node.inputs[1]
    assert weights is not None
    return 2 * _product(node.outputs[0].shape) * _product(weights.shape[1:])


def _conv_transpose(node: Node) -> int:
    """Each input element is multiplied by all weights of its channel."""
    x, weights = node.inputs[:2]
    assert x is not None and weights is not None
    return 2 * _product(x.shape) * _product(weights.shape[1:])


FLOPS: dict[str, Callable[[Node], int]] = {
    "matmul": _matmul,
    "matmul_integer": _matmul,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
}
