"""Layouts: shapes, indices and packed arrays agree with one another."""

import numpy as np
import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.layouts import channels_last, pack, panels, physical_index, physical_shape
from ingot.graph.types import Layout, TensorType, tensor

CASES = {
    "last": (channels_last(4), (2, 3, 4, 5)),
    "columns": (panels((0,), 1, 4), (3, 10)),
    "filters": (panels((2, 3, 1), 0, 8), (9, 2, 3, 3)),
    "two": (Layout(((0, 0), (1, 0), (0, 2), (1, 4))), (5, 7)),
    "none": (channels_last(3), (2, 0, 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_an_element_is_at_its_physical_index(name):
    layout, shape = CASES[name]
    array = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    packed = pack(layout, array)
    type = TensorType(dtypes.f32, tuple(map(arith.Const, shape)), layout)
    assert [arith.as_int(d) for d in physical_shape(type)] == list(packed.shape)
    for point in np.ndindex(*shape):
        place = [arith.as_int(i) for i in physical_index(layout, [*map(arith.Const, point)])]
        assert packed[tuple(place)] == array[point]
    assert packed.sum() == array.sum(), "padding is zero"


def test_dynamic_sizes_round_up():
    type = tensor(dtypes.f32, arith.Var("n"), 6)
    packed_type = TensorType(type.dtype, type.shape, panels((1,), 0, 4))
    sizes = [arith.evaluate(d, {"n": 9}) for d in physical_shape(packed_type)]
    assert sizes == [3, 6, 4]
