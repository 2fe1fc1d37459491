"""The table of converters: names that torch or transformers has, and all of
core ATen."""

from __future__ import annotations

import itertools

import pytest
import torch
import transformers.integrations.moe  # noqa: F401 registers its operators

from ingot.frontends.torch.common import common_dtype
from ingot.frontends.torch.fx_walk import ASSERTIONS
from ingot.frontends.torch.program import decompositions
from ingot.frontends.torch.registry import COMPLEX, TABLE
from ingot.frontends.torch.types import DTYPES
from ingot.graph.ir import Value
from ingot.graph.types import tensor


def operator(name: str) -> torch._ops.OpOverload:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


@pytest.mark.parametrize("table", [TABLE, COMPLEX], ids=["real", "complex"])
def test_every_converter_is_of_an_operator_of_torch(table):
    for name in table:
        assert operator(name) is not None


def test_every_core_operator_has_a_converter_or_a_decomposition():
    every = (n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::"))
    packets = {n.removeprefix("aten::").partition(".")[0] for n in every}
    ops = [
        getattr(p, o) for p in (getattr(torch.ops.aten, n) for n in packets) for o in p.overloads()
    ]
    core = [op for op in ops if torch.Tag.core in op.tags and not op._schema.is_mutable]
    assert len(core) > 150
    known = {*TABLE, *COMPLEX, *ASSERTIONS, *map(str, decompositions())}
    assert not [str(op) for op in core if str(op) not in known]


KINDS = [k for k in DTYPES if not str(k).startswith(("torch.float8", "torch.uint16",
                                                    "torch.uint32", "torch.uint64"))]  # fmt: skip


def test_operands_of_two_types_are_computed_in_the_type_that_torch_computes_in():
    numbers = [True, 2, 0.5]
    for a, b in itertools.product(KINDS, KINDS):
        for ranks in ((1, 1), (1, 0), (0, 1), (0, 0)):
            x, y = (torch.ones((1,) * rank, dtype=k) for rank, k in zip(ranks, (a, b)))
            values = [
                Value("x", tensor(DTYPES[v.dtype], *v.shape)) for v in (x, y)
            ]  # fmt: skip
            assert common_dtype(*values) is DTYPES[torch.result_type(x, y)], (a, b, ranks)
    for a, number in itertools.product(KINDS, numbers):
        x = torch.ones(1, dtype=a)
        value = Value("x", tensor(DTYPES[a], 1))
        assert common_dtype(value, number) is DTYPES[torch.result_type(x, number)], (a, number)
