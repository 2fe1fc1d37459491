"""The walker: names, functions, sub-graphs, dynamic dimensions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto as P
from onnx import helper

import ingot
from ingot.arith import expr as arith
from ingot.frontends.common.solver import single_range
from ingot.frontends.onnx.walker import import_model
from ingot.graph.interp import run
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol
from tests.frontends.walker_models import X, Y, imported, refused_model, simple
from tests.models.parts import graph, info, node
from tests.refusal import refused


def test_nodes_in_any_order() -> None:
    proto = simple(node("Neg", "b", "y"), node("Relu", "a", "b"), node("Neg", "x", "a"))
    result, store = imported(proto)
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    assert np.array_equal(run(result, store, [x])[0], -np.maximum(-x, 0))


def test_names_of_inputs_and_outputs() -> None:
    """Outputs that are inputs, constants or each other's copies still have their names."""
    nodes = [node("Relu", "x", "y"), node("Identity", "x", "same"), node("Identity", "y", "again")]
    outputs = [info(n, [2, 3]) for n in ("y", "same", "again", "w", "y", "x")]
    proto = simple(*nodes, outputs=outputs, w=np.ones((2, 3), np.float32))
    result, store = imported(proto)
    assert [v.name for v in result.inputs] == ["x"]
    assert [v.name for v in result.outputs][:4] == ["y", "same", "again", "w"]
    assert len({v.name for v in result.outputs}) == 6
    x = np.float32([[1, -2, 3], [-4, 5, -6]])
    y = np.maximum(x, 0)
    for got, want in zip(run(result, store, [x]), (y, x, y, np.ones((2, 3)), y, x)):
        assert np.array_equal(got, want)


def test_initializers_listed_as_inputs_are_constants() -> None:
    proto = simple(node("Add", "x w", "y"), inputs=(X, info("w", [3])), w=np.ones(3, np.float32))
    result, _ = imported(proto)
    assert [v.name for v in result.inputs] == ["x"]


def test_origins() -> None:
    unnamed = helper.make_node("Neg", ["a"], ["y"])
    result, _ = imported(simple(node("Relu", "x", "a"), unnamed))
    assert [n.origin for n in result.nodes] == ["node 'Relu_a' (Relu)", "node 'Neg#1' (Neg)"]


def test_dynamic_dimensions_are_symbols() -> None:
    """Names become identifiers, distinct from the names of values; equal names are one symbol."""
    inputs = [info("a", ["batch size", "n"]), info("n", ["batch size", None])]
    outputs = [info("y", [None, None])]
    nodes = [node("Concat", "a n", "y", axis=1)]
    result, store = imported(simple(*nodes, inputs=inputs, outputs=outputs))
    assert [s.name for s in result.symbols] == ["batch_size", "n_1", "n_d1"]
    assert all(s.source == "input" and s.low == 1 for s in result.symbols)
    assert result.outputs[0].tensor.shape == (
        arith.Var("batch_size"), arith.Var("n_1") + arith.Var("n_d1"),
    )  # fmt: skip
    arrays = [np.ones((4, 2), np.float32), np.ones((4, 3), np.float32)]
    assert run(result, store, arrays)[0].shape == (4, 5)


def test_mismatched_dimensions_are_unified() -> None:
    """Dynamic dimensions with different names, where the model is valid only if they are equal."""
    inputs = [info("a", [None, 4]), info("b", ["rows", None])]
    nodes = [node("Slice", "table zero rows1", "part"), node("Add", "a b", "sum")]
    nodes = [node("Shape", "a", "s"), node("Slice", "s zero one", "rows1"), *nodes]
    nodes += [node("Add", "sum part", "y")]
    table = np.arange(40, dtype=np.float32).reshape(10, 4)
    proto = simple(*nodes, inputs=inputs, table=table, zero=[0], one=[1])
    result, store = imported(proto)
    assert [(s.name, s.low, s.high) for s in result.symbols] == [("a_d0", 1, 10)]
    assert result.inputs[1].tensor == result.inputs[0].tensor
    x = np.ones((3, 4), np.float32)
    assert np.array_equal(run(result, store, [x, x])[0], table[:3] + 2)
    with refused("bad-input", "'a_d0'", 3, 2, "'a'", "'b'", hint=False):
        run(result, store, [x, x[:2]])


def test_a_dimension_that_is_an_expression_of_others() -> None:
    """A mask over the past and the new, as decoders have; its own name for its size is a label."""
    inputs = [info("mask", [1, "total"]), info("past", [1, "p"]), info("new", [1, "q"])]
    nodes = [node("Concat", "past new", "all", axis=1), node("Add", "all mask", "y")]
    proto = simple(*nodes, inputs=inputs, outputs=[info("y", [1, None])])
    result, store = imported(proto)
    assert [str(value.type) for value in result.inputs] == [
        "f32[1, p + q]",
        "f32[1, p]",
        "f32[1, q]",
    ]
    arrays = [np.full((1, n), n, np.float32) for n in (5, 3, 2)]
    want = np.array([[8, 8, 8, 7, 7]], np.float32)
    assert np.array_equal(run(result, store, arrays)[0], want)
    exe = ingot.compile(proto)
    assert np.array_equal(exe(*arrays)[0], want)
    with refused("bad-input", "axis 1", 4, 5, "p + q", where="(Add)", hint=False):
        exe(arrays[0][:, :4], *arrays[1:])
    fixed = import_model(proto, ConstantStore(), {"total": 5, "q": 2})
    assert [str(value.type) for value in fixed.inputs] == ["f32[1, 5]", "f32[1, 3]", "f32[1, 2]"]


def test_a_size_made_of_one_that_must_be_a_multiple() -> None:
    """A constraint inferred later also applies to earlier uses of the dimension."""
    window = {"kernel_shape": [2], "strides": [2], "ceil_mode": 1}
    nodes = [
        node("Concat", "x x", "double", axis=2), node("Add", "double z", "both"),
        node("MaxPool", "x", "half", **window), node("Resize", "half _ scales", "back"),
        node("Add", "x back", "sum"), node("Concat", "sum both", "y", axis=2),
    ]  # fmt: skip
    inputs = [info("z", [1, 1, "m"]), info("x", [1, 1, "n"])]
    scales = np.array([1, 1, 2], np.float32)
    proto = simple(*nodes, inputs=inputs, outputs=[info("y", [1, 1, None])], scales=scales)
    result, store = imported(proto)
    assert [str(v.type) for v in result.inputs] == [
        "f32[1, 1, n_by_2 * 4]",
        "f32[1, 1, n_by_2 * 2]",
    ]
    x, z = np.array([[[1, 5]]], np.float32), np.zeros((1, 1, 4), np.float32)
    assert np.array_equal(run(result, store, [z, x])[0], [[[6, 10, 1, 5, 1, 5]]])
    fixed = import_model(proto, ConstantStore(), {"n_by_2": 3})  # as the graph shows it
    assert [str(v.type) for v in fixed.inputs] == ["f32[1, 1, 12]", "f32[1, 1, 6]"]
    with refused("bad-option", "'n'", 2, where="'x'", hint=False):
        import_model(proto, ConstantStore(), {"n_by_2": 9, "n": (2, 7)})


def test_a_dimension_is_constrained_to_valid_sizes() -> None:
    """Pooling must leave one row, or the Concat has nothing to do."""
    inputs = [info("x", [1, 1, "n", 2]), info("row", [1, 1, 1, 2])]
    nodes = [
        node("MaxPool", "x", "pooled", kernel_shape=[4, 1], strides=[4, 1]),
        node("Concat", "pooled row", "y", axis=0),
    ]
    proto = simple(*nodes, inputs=inputs, outputs=[info("y", [2, 1, 1, 2])])
    result, store = imported(proto)
    assert [(s.name, s.low, s.high) for s in result.symbols] == [("n", 4, 7)]
    row = np.ones((1, 1, 1, 2), np.float32)
    assert run(result, store, [np.ones((1, 1, 7, 2), np.float32), row])[0].shape == (2, 1, 1, 2)
    some = import_model(proto, ConstantStore(), {"n": (6, None)})
    assert [(s.low, s.high) for s in some.symbols] == [(6, 7)]
    with refused("bad-type", 2, 1, where="'Concat_y'", hint=False):
        import_model(proto, ConstantStore(), {"n": 8})


@pytest.mark.parametrize("squeezes_first", [True, False])
def test_branches_of_different_ranks(squeezes_first: bool) -> None:
    """PyTorch's squeeze: the branch that what follows can take is taken, and required."""
    squeezed = graph("one", [node("Squeeze", "x one", "flat")], [], [info("flat", [None])])
    kept = graph("many", [node("Identity", "x", "same")], [], [info("same", [None, None])])
    names = ("then_branch", "else_branch")
    branches = dict(zip(names if squeezes_first else names[::-1], (squeezed, kept)))
    nodes = [
        node("Shape", "x", "sizes"), node("Gather", "sizes one", "n"),
        node("Equal", "n one", "is_one"), node("Not", "is_one", "is_more"),
        node("If", "is_one" if squeezes_first else "is_more", "picked", **branches),
        node("Concat", "picked tail", "y", axis=0),
    ]  # fmt: skip
    tail = np.ones(2, np.float32)
    inputs, outputs = [info("x", ["m", "k"])], [info("y", [None])]
    result, store = imported(simple(*nodes, inputs=inputs, outputs=outputs, one=[1], tail=tail))
    got = run(result, store, [np.full((3, 1), 5, np.float32)])[0]
    assert np.array_equal(got, [5, 5, 5, 1, 1])
    taken = "else" if squeezes_first else "then"
    with refused("run-failed", taken, "f32[m, k]", where="'If_picked'", hint=False):
        run(result, store, [np.ones((3, 2), np.float32)])


def test_a_branch_for_other_sizes() -> None:
    """It cannot run at the sizes at hand; the model runs as long as the other is taken."""
    fits = graph("fits", [node("MatMul", "x w3", "a")], [], [info("a", [2, 4])])
    wide = graph("wide", [node("MatMul", "x w5", "b")], [], [info("b", [2, 4])])
    nodes = [
        node("Cast", "rate", "flag", to=P.BOOL),
        node("If", "flag", "y", then_branch=wide, else_branch=fits),
    ]
    inputs = (X, info("rate", [], P.INT64))
    weights = {f"w{n}": np.ones((n, 4), np.float32) for n in (3, 5)}
    result, store = imported(simple(*nodes, inputs=inputs, outputs=[info("y", [2, 4])], **weights))
    x = np.ones((2, 3), np.float32)
    assert np.array_equal(run(result, store, [x, np.array(0)])[0], np.full((2, 4), 3))
    with refused("run-failed", "then", where="'If_y'", hint=False):
        run(result, store, [x, np.array(1)])


def test_branches_of_which_neither_fits() -> None:
    """The first error is reported."""
    one = graph("one", [node("Unsqueeze", "x axes", "high")], [], [info("high", [None] * 4)])
    other = graph("two", [node("Identity", "x", "same")], [], [info("same", [None, None])])
    nodes = [
        node("ReduceMax", "x", "top", keepdims=0), node("Cast", "top", "flag", to=P.BOOL),
        node("If", "flag", "picked", then_branch=one, else_branch=other),
        node("Concat", "picked tail", "y", axis=0),
    ]  # fmt: skip
    proto = simple(*nodes, axes=[0, 1], tail=np.ones(2, np.float32))
    refused_model(proto, "f32[1, 1, 2, 3]", "f32[2]", where="'Concat_y'", code="bad-type")


def test_a_non_contiguous_condition_is_no_range() -> None:
    """n % 2 is 1 for every second n: nothing is assumed."""
    odd = lambda n: n % 2 == 1  # noqa: E731
    assert single_range(odd, Symbol("n", 1, 9)) is None
    assert single_range(lambda n: n > 3, Symbol("n", 1)) == (4, None)
    assert single_range(lambda n: n < 0, Symbol("n", 1)) is None


def test_a_size_that_must_be_a_multiple() -> None:
    """Halved twice and doubled twice it meets itself only if 4 divides it."""
    window = {"kernel_shape": [2], "strides": [2], "ceil_mode": 1}
    scales = np.array([1, 1, 4], np.float32)
    nodes = [
        node("MaxPool", "x", "half", **window), node("MaxPool", "half", "quarter", **window),
        node("Resize", "quarter _ scales", "back"), node("Add", "x back", "y"),
    ]  # fmt: skip
    proto = simple(
        *nodes, inputs=[info("x", [1, 1, "n"])], outputs=[info("y", [1, 1, "n"])], scales=scales
    )
    result, store = imported(proto)
    assert str(result.inputs[0].type) == "f32[1, 1, n_by_4 * 4]"
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 12)
    want = x + np.repeat([3, 7, 11], 4)
    assert np.array_equal(run(result, store, [x])[0], want)
    exe = ingot.compile(proto)
    assert np.array_equal(exe(x)[0], want)
    with refused("bad-input", "axis 2", 10, 12, where="'Add_y'", hint=False):
        exe(x[:, :, :10])
    some = import_model(proto, ConstantStore(), {"n": (5, 17)})
    assert [(s.low, s.high) for s in some.symbols] == [(2, 4)]


def test_a_distant_bound_is_inferred() -> None:
    """A slice up to a very large number, as TensorFlow writes "to the end"."""
    inputs, outputs = [info("x", ["n", 3])], [info("y", [None, 3])]
    nodes = [node("Slice", "x zero far", "part"), node("Add", "x part", "y")]
    proto = simple(*nodes, inputs=inputs, outputs=outputs, zero=[0], far=[10**9])
    (symbol,) = imported(proto)[0].symbols
    assert (symbol.low, symbol.high) == (1, 10**9)


def test_nameless_sizes() -> None:
    """A question mark twice is two sizes, and -1 is a dynamic dimension."""
    result, _ = imported(simple(node("Relu", "x", "y"), inputs=(info("x", ["?", "?", -1]),)))
    assert [s.name for s in result.symbols] == ["x_d0", "x_d1", "x_d2"]


def test_sizes_given_by_the_caller() -> None:
    proto = simple(node("Relu", "x", "y"), inputs=(info("x", ["my batch", "n", 3]),))
    store = ConstantStore()
    result = import_model(proto, store, {"my batch": 2, "n": (1, 9)})
    assert [(s.name, s.low, s.high) for s in result.symbols] == [("n", 1, 9)]
    assert result.inputs[0].tensor.shape[0] == 2
    assert import_model(proto, store, {"my_batch": 2}).inputs[0].tensor.shape[0] == 2
    with refused("bad-option", "'m'", hint=("my batch", "my_batch", "n")):
        import_model(proto, store, {"m": 3})
    for wrong, facts in (((5, 2), (5, 2)), (-1, (-1,))):
        with refused("bad-option", "'n'", *facts, hint=False):
            import_model(proto, store, {"n": wrong})
    clash = simple(node("Add", "x x2", "y"), inputs=(info("x", ["n"]), info("x2", [5])))
    with refused("bad-option", "'n'", 5, hint=False):
        import_model(clash, store, {"n": (6, 9)})


def test_keywords_are_no_symbols() -> None:
    inputs = (info("x", ["for", "3d", "max"]),)
    result, _ = imported(simple(node("Relu", "x", "y"), inputs=inputs))
    assert [s.name for s in result.symbols] == ["for_", "d3d", "max_"]


def test_functions_are_inlined() -> None:
    """Attributes by reference and by default, nested calls, absent operands, names kept apart."""
    leak = helper.make_node("LeakyRelu", ["a"], ["t"], name="leak")
    leak.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    inner = helper.make_function(
        "local", "Inner", ["a"], ["t"], [leak], [helper.make_opsetid("", 17)],
        attribute_protos=[helper.make_attribute("slope", 0.5)],
    )  # fmt: skip
    call = helper.make_node("Inner", ["p"], ["t"], domain="local", name="call")
    call.attribute.add(name="slope", ref_attr_name="steep", type=onnx.AttributeProto.FLOAT)
    clip = helper.make_node("Clip", ["t", "low"], ["q"], name="clip")
    outer = helper.make_function(
        "local", "Outer", ["p", "low"], ["q"], [clip, call],
        [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)], ["steep"],
    )  # fmt: skip
    nodes = [
        helper.make_node("Outer", ["x"], ["t"], domain="local", name="one", steep=0.25),
        helper.make_node("Outer", ["t", "zero"], ["y"], domain="local", name="two"),
    ]
    proto = simple(*nodes, outputs=[Y, info("t", [2, 3])], zero=np.float32(-0.1))
    proto.functions.extend([inner, outer])
    proto.opset_import.append(helper.make_opsetid("local", 1))
    result, store = imported(proto)
    assert any("one/call/leak" in n.origin for n in result.nodes)
    x = np.float32([[1, -2, 3], [-4, 5, -6]])
    t = np.where(x < 0, x * 0.25, x)
    y, t_got = run(result, store, [x])
    assert np.allclose(t_got, t)
    assert np.allclose(y, np.maximum(np.where(t < 0, t * 0.5, t), -0.1))


def test_standard_functions_replace_missing_converters() -> None:
    """An operator without a converter is expanded by the function body of its schema."""
    from ingot.frontends.onnx import registry

    assert registry.lookup("", "HannWindow", 17) is None, "pick another operator for this test"
    proto = simple(node("HannWindow", "size", "y"), inputs=(), outputs=[info("y", [8])], size=8)
    result, store = imported(proto)
    expected = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(8) / 8)
    assert np.allclose(run(result, store, [])[0], expected, atol=1e-6)


def test_shapes_through_arithmetic() -> None:
    """Flattening by computed sizes gives a type in the input's symbols; nothing is left to run."""
    nodes = [
        node("Shape", "x", "s"),
        node("Slice", "s i0 i2", "head"),
        node("ReduceProd", "head", "count", keepdims=1),
        node("Concat", "count rest", "target", axis=0),
        node("Reshape", "x target", "y"),
    ]
    inputs = (info("x", ["b", "t", 6]),)
    proto = simple(*nodes, inputs=inputs, i0=[0], i2=[2], rest=[2, -1])
    result, _ = imported(proto)
    b, t = arith.Var("b"), arith.Var("t")
    assert result.outputs[0].tensor.shape == (b * t, 2, 3)


def test_data_dependent_sizes_are_bound_once() -> None:
    """A size read from data is one symbol however often it is used, so shapes agree."""
    nodes = [
        node("ReduceMax", "lens", "most", keepdims=0),
        node("Range", "zero most one", "steps"),
        node("Unsqueeze", "most axes", "most1"),
        node("Expand", "two most1", "twos"),
        node("Mul", "steps twos", "y"),
    ]
    inputs = (info("lens", [3], P.INT64),)
    outputs = (info("y", [None], P.INT64),)
    proto = simple(*nodes, inputs=inputs, outputs=outputs, zero=0, one=1, two=2, axes=[0])
    result, store = imported(proto)
    assert [n.op for n in result.nodes].count("bind") == 1
    assert run(result, store, [np.array([2, 5, 1])])[0].tolist() == [0, 2, 4, 6, 8]
    assert run(result, store, [np.array([0, 0, 0])])[0].tolist() == []


def test_a_model_may_be_bytes_or_a_file(tmp_path) -> None:
    proto = simple(node("Add", "x w", "y"), w=np.ones(3, np.float32))
    path, data = tmp_path / "model.onnx", proto.SerializeToString()
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    graphs = [import_model(m, ConstantStore()) for m in (data, path, str(path))]
    assert graphs[0] == graphs[1] == graphs[2]


def test_dimensions_may_be_empty() -> None:
    """An empty batch runs and gives empty outputs; sums over it are 0, and their axes are kept."""
    nodes = [
        node("MatMul", "x w", "h"), node("Relu", "h", "y"), node("Softmax", "y", "p"),
        node("ReduceSum", "y axes", "total", keepdims=0), node("Concat", "y y", "both", axis=0),
    ]  # fmt: skip
    inputs = (info("x", ["n", 3]),)
    outputs = [info(o, [None, 4]) for o in ("y", "p", "both")] + [info("total", [4])]
    proto = simple(*nodes, inputs=inputs, outputs=outputs, w=np.ones((3, 4), np.float32), axes=[0])
    exe = ingot.compile(proto)
    for size in (0, 2, 0):
        y, p, both, total = exe(np.ones((size, 3), np.float32))
        assert y.shape == p.shape == (size, 4) and both.shape == (2 * size, 4)
        assert total.tolist() == [3.0 * size] * 4


def test_squeeze_without_axes_keeps_dynamic_ones() -> None:
    proto = simple(
        node("Squeeze", "x", "y"), inputs=(info("x", ["n", 1, 3]),), outputs=[info("y", [None, 3])]
    )
    result, _ = imported(proto)
    assert str(result.outputs[0].type) == "f32[n, 3]"
    exe = ingot.compile(proto)
    for n in (0, 2, 5):
        assert exe(np.ones((n, 1, 3), np.float32))[0].shape == (n, 3)
    with refused("run-failed", "Squeeze", where="'Squeeze_y'", hint=False):
        exe(np.ones((1, 1, 3), np.float32))
