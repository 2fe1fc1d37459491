"""ONNX's Gradient and the optimisers, compiled, against torch's autograd and against formulas."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import ingot
from ingot.frontends.onnx.walker import import_model
from ingot.graph import interp
from ingot.graph.store import ConstantStore

torch = pytest.importorskip("torch")
TRAINING = "ai.onnx.preview.training"
RNG = np.random.default_rng(5)


def model(nodes, arrays, outputs, dynamic=False) -> onnx.ModelProto:
    infos = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(a.dtype),
            [f"n{size}" if dynamic and size > 1 else size for size in a.shape],
        )
        for name, a in arrays.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "training", infos, results)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(TRAINING, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def gradient(xs, outputs, y="y", zs=(), inputs=None):
    given = {"zs": list(zs)} if zs else {}
    return helper.make_node(
        "Gradient", list(inputs or [*xs, *zs]), list(outputs), domain=TRAINING, xs=list(xs), y=y,
        **given,
    )  # fmt: skip


def node(op, inputs, output="y", **attrs):
    return helper.make_node(op, inputs.split(), [output], **attrs)


def f64(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape)


def check(nodes, arrays, function, dynamic=False, is_compiled=True):
    """The derivatives of sum(y) by all inputs, against torch's."""
    names = list(arrays)
    wanted = [f"d{name}" for name in names]
    made = model([*nodes, gradient(names, wanted)], arrays, wanted, dynamic)
    if is_compiled:
        found = ingot.compile(made, jobs=1)(*arrays.values())
    else:  # compiling many functions takes long, and is not what is tested
        store = ConstantStore()
        found = interp.run(import_model(made, store), store, list(arrays.values()))
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays.values()]
    function(*leaves).sum().backward()
    for leaf, got in zip(leaves, found):
        want = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-9, atol=1e-9)


UNARY = {
    "Neg": torch.neg, "Abs": torch.abs, "Exp": torch.exp, "Sin": torch.sin, "Cos": torch.cos,
    "Tan": torch.tan, "Atan": torch.atan, "Sinh": torch.sinh, "Cosh": torch.cosh,
    "Tanh": torch.tanh, "Sigmoid": torch.sigmoid, "Erf": torch.erf, "Relu": torch.relu,
    "Identity": lambda x: x * 1, "Floor": torch.floor, "Sign": torch.sign,
    "LeakyRelu": torch.nn.functional.leaky_relu, "Elu": torch.nn.functional.elu,
    "Softplus": torch.nn.functional.softplus, "Gelu": torch.nn.functional.gelu,
    "Softmax": lambda x: torch.softmax(x, -1), "LogSoftmax": lambda x: torch.log_softmax(x, -1),
}  # fmt: skip
POSITIVE = {"Log": torch.log, "Sqrt": torch.sqrt, "Reciprocal": torch.reciprocal}
SMALL = {"Asin": torch.asin, "Acos": torch.acos}


def test_unary_operators():
    """All in one model: each result is weighted, so that not every slope of sum(y) is alike."""
    tables = {**UNARY, **POSITIVE, **SMALL}
    x, w = f64(4, 5), f64(4, 5)
    arrays = {"w": w}
    nodes, total, terms = [], None, []
    for i, (op, fn) in enumerate(tables.items()):
        low, high = (0.2, 2) if op in POSITIVE else (-0.9, 0.9) if op in SMALL else (-2, 2)
        arrays[f"x{i}"] = x if (low, high) == (-2, 2) else f64(4, 5, low=low, high=high)
        nodes += [node(op, f"x{i}", f"r{i}"), node("Mul", f"r{i} w", f"t{i}")]
        nodes += [node("Add", f"t{i} {total}", f"s{i}")] if total else []
        total = f"s{i}" if total else "t0"
        terms.append(fn)
    nodes.append(node("Identity", total))

    def function(w, *xs):
        return sum(fn(x) * w for fn, x in zip(terms, xs))

    check(nodes, arrays, function, is_compiled=False)


BINARY = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div,
    "Max": torch.maximum, "Min": torch.minimum, "Pow": torch.pow,
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
def test_binary_operators_broadcast(dynamic):
    arrays = {"a": f64(3, 1, 5, low=0.5), "b": f64(4, 1, low=0.5), "w": f64(3, 4, 5)}
    nodes, total = [], ""
    for i, op in enumerate(BINARY):
        nodes += [node(op, "a b", f"r{i}"), node("Mul", f"r{i} w", f"t{i}")]
        nodes += [node("Add", f"t{i} {total}", f"s{i}")] if total else []
        total = f"s{i}" if total else "t0"
    nodes.append(node("Identity", total))

    def function(a, b, w):
        return sum(fn(a, b) * w for fn in BINARY.values())

    check(nodes, arrays, function, dynamic, is_compiled=False)


@pytest.mark.parametrize(("a", "b"), [
    ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 1, 3, 4), (6, 4, 5)),
])  # fmt: skip
def test_matmul(a, b):
    arrays = {"a": f64(*a), "b": f64(*b)}
    nodes = [node("MatMul", "a b", "p"), node("Tanh", "p")]
    check(nodes, arrays, lambda a, b: torch.tanh(a @ b), is_compiled=len(a) == 4)


@pytest.mark.long
def test_a_layer_with_reductions_and_movement():
    arrays = {"x": f64(6, 4), "w": f64(3, 4), "b": f64(3)}
    nodes = [
        node("Gemm", "x w b", "h", transB=1, alpha=0.5),
        node("Relu", "h", "r"),
        node("Transpose", "r", "t", perm=[1, 0]),
        node("ReduceMean", "t", "m"),
        node("ReduceMax", "t", "top"),
        node("Concat", "t t", "c", axis=0),
        node("Mul", "c c", "cc"),
        node("Mul", "cc m", "cm"),
        node("Add", "cm top"),
    ]  # fmt: skip

    def function(x, w, b):
        t = torch.relu(0.5 * (x @ w.T) + b).T
        c = torch.cat([t, t])
        return c * c * t.mean() + t.amax()

    check(nodes, arrays, function)


@pytest.mark.long
def test_a_composite_operator_is_decomposed():
    arrays = {"x": f64(5, 8), "s": f64(8), "b": f64(8), "w": f64(5, 8)}
    nodes = [node("LayerNormalization", "x s b", "n", axis=-1), node("Mul", "n w")]
    check(nodes, arrays, lambda x, s, b, w: torch.layer_norm(x, (8,), s, b, 1e-5) * w)


def test_second_derivative():
    arrays = {"x": f64(7)}
    nodes = [node("Mul", "x x", "s"), node("Mul", "s x", "y"), gradient(["x"], ["d"])]
    nodes += [gradient(["x"], ["dd"], "d")]
    exe = ingot.compile(model(nodes, arrays, ["d", "dd"]), jobs=1)
    d, dd = exe(arrays["x"])
    np.testing.assert_allclose(d, 3 * arrays["x"] ** 2)
    np.testing.assert_allclose(dd, 6 * arrays["x"])


def test_values_other_than_the_named_tensors_are_the_point():
    """dy/dh at h = z, where z is also another operand of y: only h is differentiated by."""
    arrays = {"x": f64(4), "z": f64(4)}
    nodes = [node("Exp", "x", "h"), node("Mul", "h h", "hh"), node("Mul", "hh z")]
    nodes.append(gradient(["h"], ["d", ], inputs=["z"]))  # fmt: skip
    d, y = ingot.compile(model(nodes, arrays, ["d", "y"]), jobs=1)(*arrays.values())
    np.testing.assert_allclose(d, 2 * arrays["z"] ** 2)
    np.testing.assert_allclose(y, np.exp(arrays["x"]) ** 2 * arrays["z"])


def test_an_operator_without_a_derivative_is_named():
    arrays = {"x": f64(2, 3, 8, 8), "w": f64(4, 3, 3, 3)}
    nodes = [node("Conv", "x w", "y", name="first"), gradient(["x"], ["d"])]
    with pytest.raises(ingot.IngotError, match="no derivative") as caught:
        ingot.compile(model(nodes, arrays, ["d"]), jobs=1)
    assert "first" in str(caught.value) and "conv" in str(caught.value)


@pytest.mark.parametrize(("attrs", "reason"), [
    ({"xs": ["x"], "y": "nowhere"}, "nowhere"), ({"xs": ["x", "x"], "y": "y"}, "xs"),
])  # fmt: skip
def test_a_wrong_gradient_is_refused(attrs, reason):
    nodes = [node("Exp", "x"), helper.make_node("Gradient", ["x"], ["d"], domain=TRAINING, **attrs)]
    with pytest.raises(ingot.IngotError, match=reason):
        ingot.compile(model(nodes, {"x": f64(3)}, ["d"]), jobs=1)


# --- optimisers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [pytest.param(0, marks=pytest.mark.long), 3])
def test_optimisers_of_two_variables(count):
    shapes = [(3, 4), (5,)]
    rate, time = np.float32(0.1), np.int64(count)
    x, g, v, h = ([f64(*s, low=0.1).astype(np.float32) for s in shapes] for _ in range(4))
    names = {k: [f"{k}{i}" for i in range(2)] for k in "xgvh"}
    arrays = {"r": rate, "t": time}
    for kind, values in zip("xgvh", (x, g, v, h)):
        arrays |= dict(zip(names[kind], values))
    attrs = {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.95}
    first = helper.make_node(
        "Adam", ["r", "t", *names["x"], *names["g"], *names["v"], *names["h"]],
        [f"a{i}" for i in range(6)], domain=TRAINING, epsilon=1e-3, norm_coefficient_post=0.02,
        **attrs,
    )  # fmt: skip
    second = helper.make_node(
        "Momentum", ["r", "t", *names["x"], *names["g"], *names["v"]],
        [f"m{i}" for i in range(4)], domain=TRAINING, mode="nesterov", **attrs,
    )  # fmt: skip
    third = helper.make_node(
        "Adagrad", ["r", "t", *names["x"], *names["g"], *names["h"]], [f"g{i}_" for i in range(4)],
        domain=TRAINING, decay_factor=0.3, epsilon=1e-3, norm_coefficient=0.01,
    )  # fmt: skip
    outputs = [*first.output, *second.output, *third.output]
    given = {name: np.asarray(array) for name, array in arrays.items()}
    exe = ingot.compile(model([first, second, third], given, outputs), jobs=1)
    found = dict(zip(outputs, exe(*given.values())))
    for i in range(2):
        slope = 0.01 * x[i] + g[i]
        mean, square = 0.9 * v[i] + 0.1 * slope, 0.95 * h[i] + 0.05 * slope**2
        r = 0.1 * np.sqrt(1 - 0.95**count) / (1 - 0.9**count) if count else 0.1
        adam = 0.98 * (x[i] - r * mean / (np.sqrt(square) + 1e-3))
        speed = 0.9 * v[i] + (0.95 if count else 1) * slope
        squares = h[i] + slope**2
        step = 0.1 / (1 + 0.3 * count) * slope / (np.sqrt(squares) + 1e-3)
        wanted = {
            f"a{i}": adam, f"a{2 + i}": mean, f"a{4 + i}": square, f"m{2 + i}": speed,
            f"m{i}": x[i] - 0.1 * (slope + 0.9 * speed), f"g{i}_": x[i] - step,
            f"g{2 + i}_": squares,
        }  # fmt: skip
        for name, want in wanted.items():
            np.testing.assert_allclose(found[name], want, rtol=2e-5, err_msg=name)


def test_refused_optimisers():
    arrays = {"r": np.float32(1), "t": np.int64(0), "x": f64(3)}
    one = helper.make_node("Adam", ["r", "t", "x"], ["y"], domain=TRAINING)
    with pytest.raises(ingot.IngotError, match="operands"):
        ingot.compile(model([one], {k: np.asarray(a) for k, a in arrays.items()}, ["y"]), jobs=1)
