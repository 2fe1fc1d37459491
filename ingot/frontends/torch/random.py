"""Converters of random numbers: uniform, normal, Bernoulli, permutations, dropout.

In: sizes, a type. Out: `random_bits` (ops/random.py) and arithmetic, by frontends/common/draws.py.
Called by the importer. The numbers are not torch's, but come from a key that its seed decides.
"""

from __future__ import annotations

from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.draws import Draws
from ingot.frontends.common.elements import reshape
from ingot.frontends.torch.common import cast, filled
from ingot.frontends.torch.registry import Importer, Scalar, TorchNode, aten
from ingot.frontends.torch.terms import Term, where
from ingot.graph.ir import Value


def draws_of(ctx: Importer, dtype: DType) -> Draws:
    return Draws(ctx, ctx.random_key(), ctx.random_stream(), dtype)


def uniform_term(ctx: Importer, node: TorchNode) -> Term:
    dtype = node.output.dtype
    return Term(ctx, draws_of(ctx, dtype).uniform(node.output.shape))


def result(ctx: Importer, node: TorchNode, x: Term) -> Value:
    return cast(ctx, x.value, node.output.dtype)


@aten("aten.rand.default", "aten.rand_like.default")
def rand(ctx: Importer, node: TorchNode, *args: Any, **options: Any) -> Value:
    return result(ctx, node, uniform_term(ctx, node))


@aten("aten.randn.default", "aten.randn_like.default")
def randn(ctx: Importer, node: TorchNode, *args: Any, **options: Any) -> Value:
    draws = draws_of(ctx, node.output.dtype)
    return cast(ctx, draws.normal(node.output.shape), node.output.dtype)


@aten("aten.uniform.default")
def uniform(
    ctx: Importer, node: TorchNode, x: Value, low: float = 0, high: float = 1, **options: Any
) -> Value:
    return result(ctx, node, uniform_term(ctx, node) * (high - low) + low)


@aten("aten.normal_functional.default", "aten.normal.float_float")
def normal(ctx: Importer, node: TorchNode, *args: Any, **options: Any) -> Value:
    mean, deviation = (float(v) for v in args if isinstance(v, int | float))
    return result(ctx, node, Term(ctx, randn_wide(ctx, node)) * deviation + mean)


def randn_wide(ctx: Importer, node: TorchNode) -> Value:
    return draws_of(ctx, node.output.dtype).normal(node.output.shape)


@aten("aten.randint.default", "aten.randint.low", "aten.randint_like.default",
      "aten.randint_like.low_dtype")  # fmt: skip
def randint(ctx: Importer, node: TorchNode, *args: Any, **options: Any) -> Value:
    """low + ⌊(high - low) · u⌋"""
    bounds = [a for a in args if isinstance(a, int | arith.Expr)]
    low, high = (0, bounds[0]) if len(bounds) == 1 else bounds
    u = Term(ctx, draws_of(ctx, dtypes.f64).uniform(node.output.shape))
    width = ctx.scalar(arith.wrap(high) - low, dtypes.f64)
    whole = (u * Term(ctx, width)).op("floor").to(dtypes.i64)
    return result(ctx, node, whole + low)


@aten("aten.bernoulli.default")
def bernoulli(ctx: Importer, node: TorchNode, x: Value, **options: Any) -> Value:
    draws = draws_of(ctx, x.dtype)
    hit = Term(ctx, draws.uniform(x.shape)) < Term(ctx, cast(ctx, x, draws.wide))
    return result(ctx, node, hit)


@aten("aten.bernoulli.p")
def bernoulli_of(
    ctx: Importer, node: TorchNode, x: Value, p: Scalar = 0.5, **options: Any
) -> Value:
    return result(ctx, node, uniform_term(ctx, node) < p)


@aten("aten.randperm.default")
def randperm(ctx: Importer, node: TorchNode, n: arith.IntLike, **options: Any) -> Value:
    """The order of random keys."""
    (size,) = node.output.shape
    bits = draws_of(ctx, dtypes.f64).uniform((size,))
    order = ctx.g.add("argsort_rows", [reshape(ctx, bits, (size, 1))])
    return cast(ctx, order, node.output.dtype)


@aten("aten.native_dropout.default")
def native_dropout(
    ctx: Importer, node: TorchNode, x: Value, p: float, train: bool | None
) -> tuple[Value, Value]:
    if train is False or p == 0:
        return x, filled(ctx, True, dtypes.bool_, x.shape)
    return dropped(ctx, x, p)


def dropped(ctx: Importer, x: Value, p: float) -> tuple[Value, Value]:
    """Elements are zero with probability p, and the others scaled; and which are left."""
    draws = draws_of(ctx, x.dtype)
    kept = Term(ctx, draws.uniform(x.shape)) >= p
    wide = Term(ctx, cast(ctx, x, draws.wide))
    scaled = wide * (1 / (1 - p)) if p < 1 else wide * 0
    return cast(ctx, where(kept, scaled, 0.0).value, x.dtype), kept.value


@aten("aten.multinomial.default")
def multinomial(
    ctx: Importer, node: TorchNode, x: Value, count: int, replacement: bool = False, **options: Any
) -> Value:
    """With replacement: the number of classes whose cumulative share is at most u. Without: the
    classes of the largest log(share) - log(-log u) (Gumbel)."""
    g, wide = ctx.g, cast(ctx, x, dtypes.f64)
    rank = x.tensor.rank
    draws, classes = draws_of(ctx, dtypes.f64), x.shape[-1]
    if not replacement and count != 1:
        noise = Term(ctx, draws.uniform(x.shape)) + 2.0**-54
        score = Term(ctx, wide).op("log") - (-noise.op("log")).op("log")
        return g.add_all("topk", [score.value], axis=rank - 1, k=arith.wrap(count), largest=True)[1]
    total = g.add("reduce_sum", [wide], axes=(rank - 1,), keepdims=True)
    sums = g.add("cumsum", [g.add("div", [wide, total])], axis=rank - 1, exclusive=False,
                 reverse=False)  # fmt: skip
    row = Term(ctx, reshape(ctx, sums, (*x.shape[:-1], 1, classes)))
    u = draws.uniform((*x.shape[:-1], count))
    passed = (row <= Term(ctx, reshape(ctx, u, (*u.shape, 1)))).to(dtypes.i64)
    found = g.add("reduce_sum", [passed.value], axes=(rank,), keepdims=False)
    return Term(ctx, found).op("min", Term(ctx, ctx.scalar(classes - 1, dtypes.i64))).value
