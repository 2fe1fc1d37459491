"""recognize: each formula in the forms that exporters write, and those that only look like it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import ingot.ops  # noqa: F401  the operator table
from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.passes.merge_common import merge_common
from ingot.passes.recognize import PATTERNS, recognize
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.passes.simplify_algebra import simplify_algebra
from ingot.target import CPU_KEEPS
from tests.graph.graphs import agree

SHAPE = (3, 4, 10)
Formula = Callable[["Spell", Value], Value]


class Spell:
    """Primitive operators by their names: s.mul(x, 0.5)."""

    def __init__(self, g: GraphBuilder):
        self.g = g
        self.dtype = g.inputs[0].dtype

    def __getattr__(self, op: str) -> Callable[..., Value]:
        def add(*operands: Value | float | np.ndarray, **attrs: object) -> Value:
            values = [v if isinstance(v, Value) else self.number(v) for v in operands]
            return self.g.add(op, values, **attrs)

        return add

    def number(self, value: float | np.ndarray) -> Value:
        return self.g.constant(np.asarray(value).astype(self.dtype.numpy))


def spelled(formula: Formula, dtype: dtypes.DType = dtypes.f32) -> tuple[Graph, ConstantStore]:
    store = ConstantStore()
    g = GraphBuilder("formula", store)
    x = g.input("x", tensor(dtype, *SHAPE))
    return g.finish([formula(Spell(g), x)]), store


def after(graph: Graph, store: ConstantStore, keeps=CPU_KEEPS) -> Graph:
    """The graph after the pipeline's stages."""
    graph = merge_common(simplify_algebra(graph, store), store)
    return remove_dead_code(recognize(graph, store, keeps), store)


def ops(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes if n.op != "constant"]


SCALE, BIAS = np.linspace(0.5, 2, 10), np.linspace(-1, 1, 10)
LAST: dict[str, object] = {"axes": (2,), "keepdims": True}


def centred(s, x, axes=(2,)):
    return s.sub(x, s.reduce_mean(x, axes=axes, keepdims=True))


def root(s, y, epsilon=1e-5, axes=(2,), square=None):
    squares = s.mul(y, y) if square is None else square
    return s.sqrt(s.add(s.reduce_mean(squares, axes=axes, keepdims=True), epsilon))


def layer_norm(s, x, axes=(2,)):
    return s.div(centred(s, x, axes), root(s, centred(s, x, axes), axes=axes))


def cubed(s, x):
    return s.add(x, s.mul(s.mul(s.mul(x, x), x), 0.044715))


def tanh_gelu(s, x):
    bend = s.tanh(s.mul(cubed(s, x), math.sqrt(2 / math.pi)))
    return s.mul(s.mul(x, 0.5), s.add(bend, 1.0))


def erf_of(s, x):
    return s.add(s.erf(s.div(x, math.sqrt(2))), 1.0)


def softmax(s, x, axis=2):
    power = s.exp(s.sub(x, s.reduce_max(x, axes=(axis,), keepdims=True)))
    return s.div(power, s.reduce_sum(power, axes=(axis,), keepdims=True))


HOLDS: dict[str, tuple[str, Formula]] = {
    "gelu, torch": ("gelu", lambda s, x: s.mul(s.mul(x, erf_of(s, x)), 0.5)),
    "gelu, half first": ("gelu", lambda s, x: s.mul(s.mul(x, 0.5), erf_of(s, x))),
    "gelu, half inside": ("gelu", lambda s, x: s.mul(x, s.mul(0.5, erf_of(s, x)))),
    "gelu, by two": ("gelu", lambda s, x: s.div(s.mul(erf_of(s, x), x), 2.0)),
    "gelu, root as factor": (
        "gelu",
        lambda s, x: s.mul(s.mul(x, 0.5), s.add(1.0, s.erf(s.mul(x, math.sqrt(0.5))))),
    ),
    "gelu by tanh": ("gelu", tanh_gelu),
    "gelu by tanh, a power": (
        "gelu",
        lambda s, x: s.mul(
            s.mul(0.5, x),
            s.add(
                1.0,
                s.tanh(s.mul(math.sqrt(2 / math.pi), s.add(x, s.mul(0.044715, s.pow(x, 3.0))))),
            ),
        ),
    ),
    "silu": ("silu", lambda s, x: s.mul(x, s.sigmoid(x))),
    "silu, gate first": ("silu", lambda s, x: s.mul(s.sigmoid(x), x)),
    "hard_swish": (
        "hard_swish",
        lambda s, x: s.div(s.mul(x, s.clip(s.add(x, 3.0), 0.0, 6.0)), 6.0),
    ),
    "hard_swish, sixth first": (
        "hard_swish",
        lambda s, x: s.mul(x, s.mul(s.clip(s.add(3.0, x), 0.0, 6.0), 1 / 6)),
    ),
    "hard_swish by hard_sigmoid": (
        "hard_swish",
        lambda s, x: s.mul(x, s.hard_sigmoid(x, alpha=1 / 6, beta=0.5)),
    ),
    "softmax": ("softmax", softmax),
    "softmax, middle axis": ("softmax", lambda s, x: softmax(s, x, 1)),
    "layer_norm": ("layer_norm", layer_norm),
    "layer_norm, power": (
        "layer_norm",
        lambda s, x: s.div(
            centred(s, x), s.pow(s.add(s.reduce_mean(s.pow(centred(s, x), 2.0), **LAST), 1e-5), 0.5)
        ),
    ),
    "layer_norm, scaled": ("layer_norm", lambda s, x: s.mul(layer_norm(s, x), SCALE)),
    "layer_norm, all": ("layer_norm", lambda s, x: s.add(s.mul(SCALE, layer_norm(s, x)), BIAS)),
    "layer_norm, two axes": ("layer_norm", lambda s, x: layer_norm(s, x, (1, 2))),
    "layer_norm by inverse": (
        "layer_norm",
        lambda s, x: s.mul(centred(s, x), s.reciprocal(root(s, centred(s, x)))),
    ),
    "rms_norm": ("rms_norm", lambda s, x: s.div(x, root(s, x))),
    "rms_norm by inverse": ("rms_norm", lambda s, x: s.mul(x, s.div(1.0, root(s, x)))),
    "rms_norm, scaled": ("rms_norm", lambda s, x: s.mul(SCALE, s.div(x, root(s, x)))),
}

FAILS: dict[str, Formula] = {
    "gelu, other half": lambda s, x: s.mul(s.mul(x, erf_of(s, x)), 0.25),
    "gelu, other root": lambda s, x: s.mul(s.mul(x, 0.5), s.add(s.erf(s.mul(x, 0.7)), 1.0)),
    "gelu of another value": lambda s, x: s.mul(s.mul(s.neg(x), 0.5), erf_of(s, x)),
    "gelu, one too many": lambda s, x: s.mul(s.mul(s.mul(x, x), 0.5), erf_of(s, x)),
    "silu of another value": lambda s, x: s.mul(x, s.sigmoid(s.neg(x))),
    "hard_swish, other slope": lambda s, x: s.mul(x, s.hard_sigmoid(x, alpha=0.2, beta=0.5)),
    "hard_swish, other limit": lambda s, x: s.div(s.mul(x, s.clip(s.add(x, 3.0), 0.0, 5.0)), 6.0),
    "hard_swish without a sixth": lambda s, x: s.mul(x, s.clip(s.add(x, 3.0), 0.0, 6.0)),
    "softmax without its maximum": lambda s, x: s.div(
        s.exp(x), s.reduce_sum(s.exp(x), axes=(2,), keepdims=True)
    ),
    "softmax, maximum along another axis": lambda s, x: s.div(
        s.exp(s.sub(x, s.reduce_max(x, axes=(1,), keepdims=True))),
        s.reduce_sum(
            s.exp(s.sub(x, s.reduce_max(x, axes=(1,), keepdims=True))), axes=(2,), keepdims=True
        ),
    ),
    "norm along a middle axis": lambda s, x: layer_norm(s, x, (1,)),
    "variance of another value": lambda s, x: s.div(
        centred(s, x), root(s, x, square=s.mul(s.exp(x), s.exp(x)))
    ),
}


@pytest.mark.parametrize("name", HOLDS)
def test_a_formula_becomes_what_it_means(name):
    op, formula = HOLDS[name]
    graph, store = spelled(formula)
    found = after(graph, store)
    assert ops(found) == [op]
    agree(graph, found, store, 1e-5)


@pytest.mark.parametrize("name", FAILS)
def test_what_only_looks_like_it_stays(name):
    graph, store = spelled(FAILS[name])
    found = after(graph, store)
    assert not {p.makes for p in PATTERNS} & set(ops(found)), ops(found)
    agree(graph, found, store, 1e-5)


def test_every_pattern_has_a_case():
    assert {op for op, _ in HOLDS.values()} == {p.makes for p in PATTERNS}


def test_narrow_types_round_between_primitive_operators():
    graph, store = spelled(layer_norm, dtypes.f16)
    assert "layer_norm" not in ops(after(graph, store))


def test_a_target_that_does_not_keep_it():
    graph, store = spelled(HOLDS["silu"][1])
    assert ops(after(graph, store, frozenset())) == ["sigmoid", "mul"]


def test_a_norm_that_is_read_twice_keeps_its_scale_apart():
    def formula(s, x):
        norm = layer_norm(s, x)
        return s.sub(s.mul(norm, SCALE), norm)

    graph, store = spelled(formula)
    found = after(graph, store)
    assert ops(found) == ["layer_norm", "mul", "sub"]
    agree(graph, found, store, 1e-5)


def test_long_products_are_not_taken_apart_again_and_again():
    def formula(s, x):
        for _ in range(60):
            x = s.mul(x, x)
        return x

    graph, store = spelled(formula)
    assert ops(after(graph, store)) == ["mul"] * 60


def test_the_product_that_x_is_stays_whole():
    def formula(s, x):
        y = s.mul(x, s.exp(x))
        return s.mul(s.mul(y, 0.5), erf_of(s, y))

    graph, store = spelled(formula)
    found = after(graph, store)
    assert ops(found) == ["exp", "mul", "gelu"]
    agree(graph, found, store, 1e-5)
