"""Sizes that a model relates by hints only, names and broadcasts, and empty ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ingot
from ingot.frontends.onnx.walker import import_model
from ingot.graph.store import ConstantStore
from tests.frontends.walker_models import simple
from tests.models.parts import info, node
from tests.refusal import refused


def ones(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def sum_of(first: str | int, second: str | int) -> onnx.ModelProto:
    inputs = [info("a", [first]), info("b", [second])]
    return simple(node("Add", "a b", "y"), inputs=inputs, outputs=[info("y", [None])])


@pytest.fixture(scope="module")
def added() -> ingot.Executable:
    return ingot.compile(sum_of("n", "m"))


@pytest.mark.parametrize(("n", "m"), [(5, 5), (1, 5), (5, 1), (1, 1), (7, 1), (0, 0), (0, 1)])
def test_two_dynamic_sizes_broadcast_as_numpy_does(added, n: int, m: int) -> None:
    a, b = ones(n), 10 + ones(m)
    (y,) = added(a, b)
    assert y.shape == (a + b).shape
    np.testing.assert_array_equal(y, a + b)


def test_two_dynamic_sizes_that_do_not_broadcast(added) -> None:
    with refused("bad-input", "n = 5", "m = 4", where="'Add_y'"):
        added(ones(5), ones(4))


def test_equal_sizes_pay_nothing(added) -> None:
    """The first version has one symbol for both."""
    assert [str(p.shape[0]) for p in added.inputs] == ["n", "n"]
    assert len(added._versions._made) <= 3, "versions are by relation, not by size"


def test_two_dimensions_of_one_name_may_differ() -> None:
    """A name is a hint: what the nodes require decides."""
    inputs = [info("a", ["n", 2]), info("b", ["n", 2])]
    proto = simple(
        node("Concat", "a b", "y", axis=0), inputs=inputs, outputs=[info("y", [None, 2])]
    )
    exe = ingot.compile(proto)
    for n, m in ((3, 3), (3, 5), (2, 6), (4, 4), (1, 2)):
        want = np.concatenate([ones(n, 2), ones(m, 2)])
        np.testing.assert_array_equal(exe(ones(n, 2), ones(m, 2))[0], want)
    assert len(exe._versions._made) == 1
    two = import_model(proto, ConstantStore(), example={"a": (3, 2), "b": (5, 2)})
    assert [str(v.type) for v in two.inputs] == ["f32[n, 2]", "f32[n_1, 2]"]


def test_one_name_that_the_nodes_need() -> None:
    exe = ingot.compile(sum_of("n", "n"))
    np.testing.assert_array_equal(exe(ones(1), ones(4))[0], ones(4))
    with refused("bad-input", 3, 4, where="'Add_y'"):
        exe(ones(3), ones(4))


def test_a_dynamic_size_that_meets_a_number_may_be_1() -> None:
    proto = simple(
        node("Add", "a w", "y"), inputs=[info("a", ["n"])], outputs=[info("y", [None])], w=ones(6)
    )
    exe = ingot.compile(proto)
    np.testing.assert_array_equal(exe(ones(6))[0], 2 * ones(6))
    np.testing.assert_array_equal(exe(ones(1) + 3)[0], 3 + ones(6))
    with refused("bad-input", 4, 6, where="'Add_y'", hint=False):
        exe(ones(4))


def test_a_static_size_has_one_version() -> None:
    exe = ingot.compile(sum_of(3, 3))
    with refused("bad-input", "'a'", hint=False):
        exe(ones(1), ones(3))
    assert not exe._versions._made


def test_a_sum_over_no_rows() -> None:
    """Outputs that are not empty where an input is: a version is compiled for size 0."""
    nodes = [node("ReduceSum", "x axes", "y", keepdims=0), node("ReduceMax", "x", "top", axes=[0])]
    proto = simple(
        *nodes,
        inputs=[info("x", ["n", 3])],
        outputs=[info("y", [3]), info("top", [1, 3])],
        axes=[0],
    )
    exe = ingot.compile(proto)
    for n in (2, 0, 4, 0):
        y, top = exe(ones(n, 3))
        np.testing.assert_array_equal(y, ones(n, 3).sum(0))
        assert top.shape == (1, 3) and (np.isneginf(top).all() if n == 0 else True)


def test_shapes_of_empty_outputs_that_hold_from_1_on() -> None:
    """x[:1] has 1 row and x[1:] n - 1, but of no rows both have none."""
    ends = {"zero": [0], "one": [1], "many": [9]}
    parts = [node("Slice", "x zero one zero", "head"), node("Slice", "x one many zero", "tail")]
    for part in parts:
        name = part.output[0]
        proto = simple(
            part, inputs=[info("x", ["n", "m"])], outputs=[info(name, [None, "m"])], **ends
        )
        exe = ingot.compile(proto)
        for n, m in ((3, 0), (0, 0), (0, 2), (2, 3)):
            rows = min(n, 1) if name == "head" else max(n - 1, 0)
            assert exe(ones(n, m))[0].shape == (rows, m)


def test_a_slice_that_is_empty_at_every_size() -> None:
    bounds = {"starts": [5, -2], "ends": [3, 9], "axes": [1, 2], "steps": [3, 1]}
    proto = simple(
        node("Slice", "x starts ends axes steps", "y"),
        inputs=[info("x", ["m", "n", 4])],
        outputs=[info("y", [None, None, 2])],
        **bounds,
    )
    exe = ingot.compile(proto)
    for n in (2, 9, 0):
        assert exe(ones(3, n, 4))[0].shape == (3, 0, 2)


def test_a_slice_of_one_row_broadcasts() -> None:
    """x[2:3] has one row if there are 3, and then broadcasts; of 1 row it has none."""
    nodes = [node("Slice", "x two three zero", "row"), node("Add", "row x", "y")]
    proto = simple(
        *nodes, inputs=[info("x", ["n", 2])], outputs=[info("y", [None, 2])],
        zero=[0], two=[2], three=[3],
    )  # fmt: skip
    exe = ingot.compile(proto)
    for n in (5, 3, 1, 7):
        x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
        np.testing.assert_array_equal(exe(x)[0], x[2:3] + x)
    with refused("bad-input", 0, 2, where="'Add_y'"):
        exe(ones(2, 2))


def test_the_largest_of_nothing_names_the_node() -> None:
    proto = simple(
        node("ArgMax", "x", "y", axis=0),
        inputs=[info("x", ["n", 3])],
        outputs=[info("y", [1, 3], onnx.TensorProto.INT64)],
    )
    with refused("run-failed", "empty", where="'ArgMax_y'", hint=False):
        ingot.compile(proto)(ones(0, 3))


def test_a_loaded_plan_has_one_version(tmp_path, added) -> None:
    added.save(tmp_path / "m.plan")
    plan = ingot.load(tmp_path / "m.plan")
    np.testing.assert_array_equal(plan(ones(4), ones(4))[0], 2 * ones(4))
    assert plan(ones(0), ones(0))[0].shape == (0,)
    with refused("bad-input", 1, 5, "'n'"):
        plan(ones(1), ones(5))


def test_a_dynamic_channel_count_that_the_parameters_fix() -> None:
    """Exporters leave the channel axis dynamic; scale and bias of one element make it 1."""
    weights = {"scale": np.float32([2]), "bias": np.float32([0.5])}
    proto = simple(
        node("InstanceNormalization", "x scale bias", "y"), inputs=[info("x", ["n", "c", "t"])],
        outputs=[info("y", ["n", "c", "t"])], **weights,
    )  # fmt: skip
    exe = ingot.compile(proto)
    x = ones(2, 1, 7)
    want = 2 * (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + 1e-5) + 0.5
    np.testing.assert_allclose(exe(x)[0], want, rtol=1e-5, atol=1e-5)
    with refused("bad-input", "c = 3"):
        exe(ones(2, 3, 7))
