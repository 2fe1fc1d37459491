"""Einsum → transpose, reshape, matmul, mul and reduce_sum.

In: an equation and its operands. Out: the result. Called by matmul.py. Operands are contracted
pairwise from the left; a label that no later operand and no output uses is summed as early as
possible. An ellipsis stands for labels of its own, aligned at the right, whose sizes broadcast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.frontends.common.elements import reshape
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.registry import Importer, OnnxNode
from ingot.graph.ir import Value

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Term:
    """A value with a distinct label for each axis."""

    value: Value
    labels: Labels

    def size(self, label: str) -> arith.Expr:
        return self.value.shape[self.labels.index(label)]


def convert(ctx: Importer, node: OnnxNode, equation: str, operands: Sequence[Value]) -> Value:
    inputs, output = parse(node, equation, [v.tensor.rank for v in operands])
    terms = [diagonal(ctx, node, v, labels) for v, labels in zip(operands, inputs)]
    result = terms[0]
    for index, term in enumerate(terms[1:], start=1):
        later = {label for t in terms[index + 1 :] for label in t.labels} | set(output)
        result = contract(ctx, result, term, later)
    result = summed(ctx, result, set(output))
    if set(result.labels) != set(output):
        raise bad_model(node, f"an output label of {equation!r} is missing in all operands")
    return arranged(ctx, result, output).value


def parse(node: OnnxNode, equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of each operand and of the result; those of an ellipsis are "0", "1", … from the
    right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise bad_model(
            node, f"{equation!r} has {len(texts)} terms, the node {len(ranks)} operands"
        )
    inputs = [expand(node, text, rank) for text, rank in zip(texts, ranks)]
    hidden = sorted({x for labels in inputs for x in labels if x.isdigit()}, key=int, reverse=True)
    if arrow:
        head, dots, tail = right.partition("...")
        return inputs, (*head, *(hidden if dots else ()), *tail)
    counts = Counter(label for text in texts for label in text.replace("...", ""))
    return inputs, (*hidden, *sorted(label for label, n in counts.items() if n == 1))


def expand(node: OnnxNode, text: str, rank: int) -> Labels:
    head, dots, tail = text.partition("...")
    missing = rank - len(head) - len(tail)
    letters = head + tail
    if missing < 0 or (missing and not dots) or (letters and not letters.isalpha()):
        raise bad_model(node, f"term {text!r} does not fit an operand of rank {rank}")
    return (*head, *(str(i) for i in reversed(range(missing))), *tail)


def diagonal(ctx: Importer, node: OnnxNode, x: Value, labels: Labels) -> Term:
    """The term of an operand; a repeated label selects the diagonal of its axes."""
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is None:
        return Term(x, labels)
    first, second = [i for i, label in enumerate(labels) if label == twice][:2]
    size = arith.as_int(x.shape[first])
    if size is None or x.shape[second] != size:
        raise ctx.unsupported(node, f"the diagonal of sizes {x.shape[first]}, {x.shape[second]}")
    rest = [i for i in range(len(labels)) if i not in (first, second)]
    moved = ctx.g.add("transpose", [x], perm=(*rest, first, second))
    outer = moved.shape[:-2]
    flat = reshape(ctx, moved, (*outer, size * size))
    zeros, ones = (0,) * len(outer), (1,) * len(outer)
    diagonals = ctx.g.add(
        "slice", [flat], starts=(*zeros, 0), sizes=(*outer, size), steps=(*ones, size + 1)
    )
    return diagonal(ctx, node, diagonals, (*(labels[i] for i in rest), twice))


def summed(ctx: Importer, term: Term, needed: set[str]) -> Term:
    axes = [i for i, label in enumerate(term.labels) if label not in needed]
    if not axes:
        return term
    value = ctx.g.add("reduce_sum", [term.value], axes=axes, keepdims=False)
    return Term(value, tuple(label for label in term.labels if label in needed))


def arranged(ctx: Importer, term: Term, order: Labels) -> Term:
    if term.labels == order:
        return term
    perm = tuple(term.labels.index(label) for label in order)
    return Term(ctx.g.add("transpose", [term.value], perm=perm), order)


def contract(ctx: Importer, a: Term, b: Term, later: set[str]) -> Term:
    """The contraction of two terms: common labels that are not used later are summed."""
    a, b = summed(ctx, a, later | set(b.labels)), summed(ctx, b, later | set(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    batch = tuple(label for label in shared if label in later)
    inner = tuple(label for label in shared if label not in later)
    own_a = tuple(label for label in a.labels if label not in shared)
    own_b = tuple(label for label in b.labels if label not in shared)
    if not inner or any(a.size(x) != b.size(x) for x in inner):
        return summed(ctx, multiplied(ctx, a, b, batch + inner, own_a, own_b), later)
    left, right = arranged(ctx, a, batch + own_a + inner), arranged(ctx, b, batch + inner + own_b)
    left_value = grouped(ctx, left, (own_a, inner), len(batch))
    right_value = grouped(ctx, right, (inner, own_b), len(batch))
    result = ctx.g.add("matmul", [left_value, right_value])
    sizes = [left.size(x) for x in own_a] + [right.size(x) for x in own_b]
    value = reshape(ctx, result, (*result.shape[: len(batch)], *sizes))
    return Term(value, batch + own_a + own_b)


def grouped(ctx: Importer, term: Term, groups: tuple[Labels, Labels], batch: int) -> Value:
    """The batch axes, then one axis for each group of labels."""
    sizes = [arith.product([term.size(x) for x in group]) for group in groups]
    return reshape(ctx, term.value, (*term.value.shape[:batch], *sizes))


def multiplied(
    ctx: Importer, a: Term, b: Term, shared: Labels, own_a: Labels, own_b: Labels
) -> Term:
    """A broadcast multiplication: outer product over own labels, element-wise over common ones."""
    left, right = arranged(ctx, a, shared + own_a), arranged(ctx, b, shared + own_b)
    left_value = reshape(ctx, left.value, (*left.value.shape, *(1,) * len(own_b)))
    common = right.value.shape[: len(shared)]
    rest = right.value.shape[len(shared) :]
    right_value = reshape(ctx, right.value, (*common, *(1,) * len(own_a), *rest))
    return Term(ctx.g.add("mul", [left_value, right_value]), shared + own_a + own_b)
