"""The walker: what it refuses, and how it says so."""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
import pytest
from onnx import TensorProto as P
from onnx import helper, numpy_helper

from ingot.frontends.onnx.walker import import_model
from ingot.graph.store import ConstantStore
from ingot.support.errors import IngotError
from tests.frontends.walker_models import X, refused, simple
from tests.models import build
from tests.models.parts import graph, info, node


def test_all_missing_operators_at_once() -> None:
    inner = graph("inner", [node("Gone", "x", "z")], [], [info("z", [2, 3])])
    other = graph("other", [node("Relu", "x", "z2")], [], [info("z2", [2, 3])])
    nodes = [node("Vanished", "x", f"v{i}", domain="my.domain") for i in range(7)]
    nodes += [node("If", "flag", "a", then_branch=inner, else_branch=other)]
    nodes += [node("Call", "a", "y", domain="local")]
    proto = simple(*nodes, flag=True)
    lost = [node("Lost", "p", "q", domain="my.domain")]
    proto.functions.append(helper.make_function("local", "Call", ["p"], ["q"], lost, []))
    proto.opset_import.append(helper.make_opsetid("my.domain", 3))
    text = str(refused(proto, "unsupported-op"))
    assert "3 operators" in text and "ai.onnx.Gone (opset 17), 1 node: 'Gone_z'" in text
    assert "my.domain.Vanished (opset 3), 7 nodes: 'Vanished_v0'" in text and "2 more" in text
    assert "Lost" in text and "'Call/Lost_q'" in text
    keys = '"Gone": kernel, "my.domain:Lost": kernel, "my.domain:Vanished": kernel'
    assert f"kernels={{{keys}}}) takes those written with @ingot.kernel" in text


def test_cycle() -> None:
    proto = simple(node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y"))
    error = refused(proto)
    assert "Add_a" in error.text() and "Relu_b" in error.text() and "Relu_y" not in error.text()


def test_dangling_name() -> None:
    error = refused(simple(node("Add", "x nowhere", "y")))
    assert "'nowhere'" in error.what and "Add_y" in error.where


def test_a_name_made_twice() -> None:
    error = refused(simple(node("Relu", "x", "y"), node("Neg", "x", "y")))
    assert "'y' is made twice" in error.what and "Neg_y" in error.where and "Relu_y" in error.why
    assert "x" in refused(simple(node("Relu", "c", "x"), node("Relu", "x", "y"), c=1.0)).what
    twice = simple(node("Relu", "x", "y"), inputs=(X, X))
    assert "'x'" in refused(twice).what


def test_an_output_nobody_makes() -> None:
    assert "'y'" in refused(simple(node("Relu", "x", "z"))).what


def test_bad_attributes() -> None:
    wrong = refused(simple(node("Softmax", "x", "y", axis=1.5)))
    assert "'axis' is of type float, not int" in wrong.what and "Softmax_y" in wrong.where
    assert "'to' is missing" in refused(simple(node("Cast", "x", "y"))).what
    liar = node("Softmax", "x", "y", axis=1)
    liar.attribute[0].f = 2.0
    assert "axis" in refused(simple(liar)).what
    twice = node("Softmax", "x", "y", axis=1)
    twice.attribute.append(twice.attribute[0])
    assert "twice" in refused(simple(twice)).what
    text = node("Gelu", "x", "y", approximate="x")
    text.attribute[0].s = b"\xff\xfe"
    proto = simple(text)
    proto.opset_import[0].version = 20
    assert "UTF-8" in refused(proto).what
    damaged = node("Constant", "", "c", value=numpy_helper.from_array(np.ones(3)))
    damaged.attribute[0].t.raw_data = b"123"
    error = refused(simple(damaged, node("Relu", "x", "y")))
    assert "'value'" in error.what and "Constant_c" in error.where


def test_numbers_and_shapes_that_mean_nothing() -> None:
    image, out = info("x", [1, 2, 3, 3]), info("y", [1, 2, 3, 3])
    lrn = simple(node("LRN", "x", "y", size=0), inputs=(image,), outputs=(out,))
    assert "'size' is 0" in refused(lrn).what
    condition = np.array(True)
    kept = simple(node("Compress", "x c", "y"), outputs=(info("y", [6]),), c=condition)
    assert "not a list of bools" in refused(kept).what


def test_operand_counts() -> None:
    assert "operands" in refused(simple(node("Add", "x", "y"))).what
    assert "operand 0 is missing" in refused(simple(node("Relu", "_", "y"))).what
    assert "outputs" in refused(simple(node("Relu", "x", "y z"))).what


def test_sizes_are_not_negative() -> None:
    error = refused(simple(node("Relu", "x", "y"), inputs=(info("x", [2, -3]),)))
    assert "axis 1" in error.what and "'x'" in error.where


def test_inputs_that_are_no_tensors() -> None:
    text = simple(node("Relu", "x", "y"), inputs=(info("x", [2], P.STRING),))
    assert "string" in refused(text, "unsupported-op").what
    many = helper.make_tensor_sequence_value_info("x", P.FLOAT, [2])
    assert (
        "sequence" in refused(simple(node("Relu", "x", "y"), inputs=(many,)), "unsupported-op").what
    )
    shapeless = helper.make_tensor_value_info("x", P.FLOAT, None)
    assert "dimensions" in refused(simple(node("Relu", "x", "y"), inputs=(shapeless,))).what


def test_nesting_is_bounded() -> None:
    proto = simple(node("Relu", "x", "y"))
    inner = proto.graph
    for _ in range(80):
        step = inner.node.add(op_type="If", input=["x"])
        inner = step.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    error = refused(proto)
    assert "deep" in error.what and "If#0" in error.where


def test_a_function_that_calls_itself() -> None:
    proto = simple(node("F", "x", "y", domain="local"))
    body = [node("F", "p", "q", domain="local")]
    proto.functions.append(helper.make_function("local", "F", ["p"], ["q"], body, []))
    error = refused(proto)
    assert "calls itself" in error.what and error.where == "node 'F/F_q' (F)"


def test_functions_that_unfold_without_end() -> None:
    """Twenty functions, each of ten calls of the next."""
    proto = simple(node("L0", "x", "y", domain="local"))
    for level in range(20):
        op, domain = (f"L{level + 1}", "local") if level < 19 else ("Relu", "")
        body = [node(op, f"v{i}", f"v{i + 1}", domain=domain) for i in range(10)]
        versions = [helper.make_opsetid("", 17)]
        made = helper.make_function("local", f"L{level}", ["v0"], ["v10"], body, versions)
        proto.functions.append(made)
    error = refused(proto, "limit")
    assert "200000 nodes" in error.what and "(L" in error.where


@pytest.mark.parametrize("sizes", [[1 << 40, 1 << 20], [1 << 47], [0, 1 << 62], [1 << 62] * 3])
def test_sizes_that_nothing_can_hold(sizes: list[int]) -> None:
    inputs = (info("x", sizes),)
    error = refused(simple(node("Relu", "x", "y"), inputs=inputs), "limit")
    assert "TB" in error.what and error.where == "input 'x'"
    filled = simple(node("ConstantOfShape", "shape", "y"), shape=np.array(sizes))
    error = refused(filled, "limit")
    assert "TB" in error.what and "ConstantOfShape_y" in error.where


def test_counts_that_lie() -> None:
    """They are checked before anything of that length is made."""
    split = node("Split", "x", "y z", axis=1, num_outputs=1 << 53)
    proto = simple(split)
    proto.opset_import[0].version = 18
    error = refused(proto)
    assert "num_outputs is 9007199254740992" in error.what and "Split_y" in error.where
    body = graph("b", [node("Identity", "r", "z")], [info("r", [3])], [info("z", [3])])
    for count in (1 << 53, 0, -1):
        error = refused(simple(node("Scan", "x", "y", body=body, num_scan_inputs=count)))
        assert "num_scan_inputs" in error.what and "Scan_y" in error.where


def test_sizes_that_come_out_negative() -> None:
    depth, values = np.array(-3), np.array([0, 1], np.float32)
    proto = simple(node("OneHot", "i depth values", "y"), i=[0, 1], depth=depth, values=values)
    error = refused(proto)
    assert "negative" in error.what and "OneHot_y" in error.where


def test_tensors_of_very_many_axes() -> None:
    axes = simple(node("Unsqueeze", "x axes", "y"), axes=np.arange(40))
    error = refused(axes, "limit")
    assert "42 axes" in error.what and "Unsqueeze_y" in error.where
    assert "33 axes" in refused(simple(node("Relu", "w", "y"), w=np.ones([1] * 33)), "limit").what


@pytest.mark.parametrize("seed", range(6))
def test_damaged_bytes_give_errors_of_ours(seed: int) -> None:
    """Flipped, lost and added bytes: the model is refused in our words, or still makes sense."""
    random = Random(seed)
    cases = [build.HARD[n]()[0] for n in ("loop", "dynamic_sequence", "kv_cache_scatter", "lstm")]
    for proto in cases * 20:
        data = bytearray(proto.SerializeToString())
        for _ in range(random.choice((1, 1, 2, 5))):
            place = random.randrange(len(data))
            end = place + random.choice((0, 1, 1, 3))
            data[place:end] = random.randbytes(random.choice((0, 1, 1, 2)))
        try:
            import_model(bytes(data), ConstantStore())
        except IngotError as error:
            assert error.code in ("bad-model", "unsupported-op", "bad-type", "limit"), error


def test_names_are_text() -> None:
    data = simple(node("Relu", "x", "y")).SerializeToString()
    with pytest.raises(IngotError, match="not UTF-8"):
        import_model(data.replace(b"Relu_y", b"Relu\xff\xfe"), ConstantStore())
