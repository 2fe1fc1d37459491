"""split_batch: which layers a loop over micro-batches covers, and that its results are equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
import ingot.ops
from ingot import dtypes
from ingot.arith import expr as arith
from ingot.cost.batch import Layer, Split, best_split
from ingot.graph.builder import GraphBuilder
from ingot.graph.interp import run as interpret
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.graph.verify import verify
from ingot.passes import split_batch as module
from ingot.passes.split_batch import split_batch
from ingot.support import options
from ingot.target import Target, parse

RNG = np.random.default_rng(0)
SMALL = replace(parse("x86-64-v3"), caches=(1 << 12, 1 << 13, 1 << 15))  # one image fits


@pytest.fixture(autouse=True)
def cheap_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs pay for a loop as large ones do: the model's smallest gain is 0."""
    monkeypatch.setattr("ingot.cost.batch.MIN_SAVED_NS", 0.0)
    monkeypatch.setattr("ingot.cost.batch.LAUNCH_NS", 0.0)


class Network:
    """A network being built: a 3 x 16 x 16 image per row, convolutions of 8 channels."""

    def __init__(self, batch: int | str = 8):
        self.store = ConstantStore()
        self.g = GraphBuilder("network", self.store)
        if isinstance(batch, str):
            self.g.symbol(batch, source="input")
        size = arith.Var(batch) if isinstance(batch, str) else batch
        self.x = self.g.input("x", tensor(dtypes.f32, size, 3, 16, 16))

    def numbers(self, *shape: int) -> Value:
        return self.g.constant(RNG.standard_normal(shape).astype(np.float32))

    def conv(self, x: Value, outputs: int = 8, stride: int = 1) -> Value:
        channels = arith.as_int(x.shape[1]) or 0
        weights = self.numbers(outputs, channels, 3, 3)
        attrs = {"pads": (1, 1, 1, 1), "strides": (stride, stride)}
        return self.g.add("conv", [x, weights, self.numbers(outputs)], **attrs)

    def add(self, op: str, *operands: Value, **attrs) -> Value:
        return self.g.add(op, operands, **attrs)

    def classified(self, x: Value) -> Value:
        """A product with a large matrix: weights that a loop would read again."""
        pooled = self.add("max_pool", x, kernel=(4, 4), strides=(4, 4))
        count = arith.as_int(arith.product(list(pooled.shape[1:]))) or 0
        flat = self.add("reshape", pooled, shape=(x.shape[0], count))
        return self.add("matmul", flat, self.numbers(count, 20_000))

    def finish(self, *outputs: Value) -> Graph:
        return self.g.finish(list(outputs))


def plain(batch: int | str = 8) -> tuple[Graph, ConstantStore]:
    n = Network(batch)
    x = n.add("relu", n.conv(n.add("relu", n.conv(n.x)), stride=2))
    return n.finish(n.classified(x)), n.store


def residual(batch: int | str = 8) -> tuple[Graph, ConstantStore]:
    n = Network(batch)
    x = n.conv(n.x)
    y = n.add("add", n.conv(n.add("relu", x)), x)
    both = n.add("concat", y, x, axis=1)
    return n.finish(n.classified(both), y), n.store


def with_mixed_rows(batch: int | str = 8) -> tuple[Graph, ConstantStore]:
    """The mean over the batch is subtracted after two convolutions; a third has no such input."""
    n = Network(batch)
    x = n.conv(n.conv(n.x), stride=4)
    mean = n.add("reduce_mean", x, axes=(0,), keepdims=True)
    y = n.conv(n.add("sub", x, mean))
    return n.finish(n.classified(y), n.conv(n.conv(n.x), stride=4)), n.store


NETWORKS = [plain, residual, with_mixed_rows]


def split(graph: Graph, store: ConstantStore, target: Target = SMALL) -> Graph:
    made = split_batch(graph, store, target)
    verify(made)
    return made


def loop_of(graph: Graph) -> Node:
    (found,) = (n for n in graph.nodes if n.op == "loop")
    return found


def operators(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes if n.op != "constant"]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("batch", [6, 8, "batch"])
def test_results_are_equal(network, batch):
    graph, store = network(batch)
    made = split(graph, store)
    assert "loop" in operators(made)
    assert [(v.name, v.type) for v in made.outputs] == [(v.name, v.type) for v in graph.outputs]
    for rows in (0, 1, 5) if batch == "batch" else (batch,):
        x = RNG.standard_normal((rows, 3, 16, 16)).astype(np.float32)
        for got, want in zip(interpret(made, store, [x]), interpret(graph, store, [x])):
            # sums of a hundred terms that cancel: the error is that of the largest
            np.testing.assert_allclose(
                got, want, rtol=1e-4, atol=1e-6 * np.abs(want).max(initial=0)
            )


@pytest.mark.parametrize("name", ["i", "go_on"])
def test_a_value_may_have_the_name_of_an_input_of_the_body(name, monkeypatch):
    """Sizes are all equal: no check of types would find that the axes are in another order."""
    monkeypatch.setattr(module, "best_split", lambda layers, *_: Split(len(layers), 2))
    n = Network()
    x = n.add("pad", n.x, before=(0,) * 4, after=(0, 13, 0, 0), mode="constant")
    weights = n.numbers(16, 16, 3, 3)
    y = n.g.add("conv", [x, weights], name, pads=(1, 1, 1, 1), strides=(1, 1))
    graph = n.finish(n.add("reduce_mean", y, axes=(0,), keepdims=True))
    made = split(graph, n.store)
    assert "loop" in operators(made)
    image = RNG.standard_normal((8, 3, 16, 16)).astype(np.float32)
    (got,), (want,) = (interpret(g, n.store, [image]) for g in (made, graph))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_the_loop_ends_before_large_weights():
    made = split(*plain())
    body = loop_of(made).attr("body")
    assert operators(body) == ["gather", "conv", "relu", "conv", "relu", "max_pool", "reshape"]
    assert operators(made) == ["index_tensor", "reshape", "loop", "reshape", "matmul"]


def test_the_body_of_a_dynamic_batch_has_static_sizes():
    body = loop_of(split(*plain("batch"))).attr("body")
    sizes = [n for node in body.nodes for v in node.outputs for n in v.shape]
    assert all(arith.as_int(n) is not None for n in sizes)


def test_rows_that_depend_on_others_are_outside():
    made = split(*with_mixed_rows())
    body = loop_of(made).attr("body")
    assert operators(body).count("conv") == 4
    assert operators(made)[-6:] == ["reduce_mean", "sub", "conv", "max_pool", "reshape", "matmul"]


def test_small_activations_have_no_loop():
    graph, store = plain()
    assert split(graph, store, parse("x86-64-v3")) is graph


def test_one_image_has_no_loop():
    graph, store = plain(1)
    assert split(graph, store) is graph


def test_a_micro_batch_fills_the_cache():
    """The first layer has 11 KiB per image: two fit into half of a cache of 64 KiB."""
    larger = replace(SMALL, caches=(1 << 12, 1 << 13, 1 << 16))
    assert arith.as_int(loop_of(split(*plain(), target=larger)).attr("count")) == 4
    assert arith.as_int(loop_of(split(*plain())).attr("count")) == 8


def test_a_batch_of_any_size_is_searched_in_a_moment():
    """A model may declare any number; a search over all of its divisors would not end."""
    split_of_many = best_split([Layer(1 << 20, 1 << 10, 8)], 1 << 60, parse("x86-64-v3"))
    assert split_of_many is not None and split_of_many.images <= 256


def test_it_can_be_switched_off():
    graph, store = plain()
    with options.override(off={"split_batch"}):
        assert split(graph, store) is graph


def test_the_model_decides_by_bytes(monkeypatch):
    """The layers that the cost model sees: maps of one image, and weights."""
    seen = []
    monkeypatch.setattr(module, "best_split", lambda layers, batch, target: seen.append(layers))
    graph, store = plain()
    split_batch(graph, store, SMALL)
    conv, relu, second, _, _, flat, matmul = seen[0]
    image, maps, half = 3 * 16 * 16 * 4, 8 * 16 * 16 * 4, 8 * 8 * 8 * 4
    assert (conv.image_bytes, conv.weight_bytes) == (image + maps, (8 * 3 * 9 + 8) * 4)
    assert (relu.image_bytes, relu.weight_bytes, relu.border_bytes) == (0, 0, maps)
    assert (second.image_bytes, second.border_bytes) == (maps + half, half)
    assert (flat.image_bytes, flat.border_bytes) == (0, 8 * 2 * 2 * 4)
    assert matmul.weight_bytes == 8 * 2 * 2 * 20_000 * 4


# --- compiled ------------------------------------------------------------------------------------


def large_model() -> onnx.ModelProto:
    """Maps of 6.4 MB per image around a skip connection, then a classifier; dynamic batch."""
    rng = np.random.default_rng(1)
    weights = {
        "w1": rng.standard_normal((16, 3, 3, 3)) / 5,
        "w2": rng.standard_normal((16, 16, 1, 1)) / 4,
        "w3": rng.standard_normal((8, 16, 3, 3)) / 12,
        "w4": rng.standard_normal((8, 10)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"]),
        helper.make_node("Add", ["c", "b"], ["d"]),
        helper.make_node("Conv", ["d", "w3"], ["e"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("MatMul", ["g", "w4"], ["y"]),
        helper.make_node("Softmax", ["y"], ["z"], axis=0),  # over the batch
    ]
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 320, 317])],
        [
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 10]),
            helper.make_tensor_value_info("e", TensorProto.FLOAT, ["batch", 8, 159, 158]),
        ],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_the_report_has_the_work_of_all_iterations():
    def flops(**given) -> int:
        exe = ingot.compile(large_model(), shapes={"batch": 4}, **given)
        rows = [r for r in exe.package.report if r.origin and "Conv" in r.origin]
        return sum(arith.as_int(r.flops) or 0 for r in rows)

    whole = flops(options={"off": "split_batch"})
    assert whole > 4 * 2 * 16 * 27 * 320 * 317
    assert flops() == pytest.approx(whole, rel=0.02)


@pytest.mark.parametrize("fixed", [None, 4])
def test_compiled_model_agrees_with_onnxruntime(fixed):
    model = large_model()
    exe = ingot.compile(model, shapes={} if fixed is None else {"batch": fixed})
    assert "gather" in exe.report()  # of an image, in a loop
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for batch in (1, 4, 3, 1) if fixed is None else (fixed,):
        x = np.random.default_rng(batch).standard_normal((batch, 3, 320, 317), np.float32)
        got, want = exe(x), session.run(None, {"x": x})
        for mine, theirs in zip(got, want, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
