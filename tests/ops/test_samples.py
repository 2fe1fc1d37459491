"""The operator suite: every sample of every operator, run in every way there is, must agree.

A new way to run an operator (a back end) is a new row of `single.COLUMNS`.
"""

from __future__ import annotations

import numpy as np
import pytest

import ingot.ops  # noqa: F401  fills the table
from ingot import dtypes
from ingot.graph.opdef import TABLE, Kind, Sample
from ingot.graph.store import ConstantStore
from ingot.loops import ir, visit
from ingot.loops.verify import verify
from ingot.support.errors import IngotError
from tests.ops.single import (
    COLUMNS,
    applies,
    input_types,
    reference,
    single_op_graph,
    single_op_kernel,
)

CONTROL_FLOW = {"if", "loop", "scan"}
NO_SAMPLES = CONTROL_FLOW | {"constant"}  # a constant is only a reference into the store
NO_SAMPLES |= {name for name, op in TABLE.items() if op.is_host_step}  # test_string_ops.py
OPS = sorted(TABLE)
PAIRS = [(op, column) for op in OPS for column in COLUMNS if applies(column, TABLE[op])]


def assert_same(op: str, sample: Sample, got: list[np.ndarray], want: list[np.ndarray]) -> None:
    assert len(got) == len(want), op
    for have, expected in zip(got, want):
        assert have.dtype == expected.dtype, f"{op}: {have.dtype}, not {expected.dtype}"
        assert have.shape == expected.shape, f"{op}: {have.shape}, not {expected.shape}"
        if dtypes.from_numpy(expected.dtype).is_float:
            a, b = have.astype(np.float64), expected.astype(np.float64)
            np.testing.assert_allclose(a, b, sample.rtol, sample.atol, err_msg=f"{op} {sample}")
        else:
            np.testing.assert_array_equal(have, expected, err_msg=f"{op} {sample}")


@pytest.mark.parametrize("name", OPS)
def test_reference_fits_the_inferred_types(name: str) -> None:
    op = TABLE[name]
    for sample in op.samples():
        if sample.fails:
            with pytest.raises(IngotError, match=sample.fails) as caught:
                reference(op, sample)
            assert caught.value.code == "run-failed"
            continue
        types = op.infer(input_types(sample), sample.attrs)
        for type, array in zip(types, reference(op, sample), strict=True):
            assert array.dtype == type.dtype.numpy, sample
            assert type.static_shape in (None, array.shape), sample
            assert type.rank == array.ndim, sample


@pytest.mark.parametrize(("name", "column"), PAIRS)
def test_samples_agree(name: str, column: str) -> None:
    op, run = TABLE[name], COLUMNS[column]
    for sample in op.samples():
        if sample.fails:
            with pytest.raises(IngotError, match=sample.fails):
                run(op, sample)
        else:
            assert_same(name, sample, run(op, sample), reference(op, sample))


@pytest.mark.parametrize("name", [n for n in OPS if TABLE[n].has_compute])
def test_kernels_are_legal(name: str) -> None:
    for sample in TABLE[name].samples():
        verify(single_op_kernel(TABLE[name], sample))


@pytest.mark.parametrize("name", OPS)
def test_every_operator_is_complete(name: str) -> None:
    op = TABLE[name]
    assert name in NO_SAMPLES or len(op.samples()) >= 2
    assert name in NO_SAMPLES or op.has_compute or op.has_decompose


POINTWISE = (Kind.ELEMENTWISE, Kind.INJECTIVE)


@pytest.mark.parametrize("name", [n for n in OPS if TABLE[n].kind in POINTWISE])
def test_pointwise_kinds_have_one_stage(name: str) -> None:
    """Inlining relies on it: one block that stores once, all axes spatial; checks are separate."""
    op = TABLE[name]
    for sample in op.samples():
        (node,) = single_op_graph(op, sample, ConstantStore()).nodes
        if op.kind_of(node) not in POINTWISE:
            continue
        blocks = list(visit.blocks(single_op_kernel(op, sample).body))
        writers = [b for b in blocks if any(True for _ in visit.stores(b))]
        assert len(writers) == 1, name
        assert isinstance(writers[0].body, ir.Store) and writers[0].init is None
        assert all(axis.kind is ir.AxisKind.SPATIAL for axis in writers[0].axes)
