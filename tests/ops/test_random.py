"""Random operators: the generator against its published vectors, distributions by quantiles, and
when numbers repeat. Seeds are fixed, so every figure here is the same in each run.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from ingot.loops.numeric import philox

LONG = pytest.mark.long
VALUE = helper.make_tensor_value_info
NORMAL_CDF = np.vectorize(lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2))))
F16, BF16, F32, F64 = (
    getattr(TensorProto, name) for name in ("FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE")
)


def model(nodes, inputs=(), outputs=("y",), opset=22) -> onnx.ModelProto:
    infos = [VALUE(name, kind, shape) for name, kind, shape in inputs]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "random", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def compiled(*nodes, seed: int | None = 3, **given) -> ingot.Executable:
    exe = ingot.compile(model(nodes, **given), jobs=1)
    if seed is not None:
        exe.seed(seed)
    return exe


def one(op: str, **attrs):
    return helper.make_node(op, [], ["y"], **attrs)


def distance(sample: np.ndarray, cdf) -> float:
    """Kolmogorov and Smirnov's statistic times sqrt(n): above 1.95 in 0.1 % of all samples."""
    ordered = np.sort(sample.reshape(-1).astype(np.float64))
    n = len(ordered)
    expected = cdf(ordered)
    above = np.arange(1, n + 1) / n - expected
    below = expected - np.arange(n) / n
    return max(above.max(), below.max()) * math.sqrt(n)


def test_the_generator_has_its_published_vectors():
    """Known answers of Philox4x32-10 (Random123's kat_vectors): words 0 and 1 of three blocks."""
    ones = (1 << 64) - 1
    rows = [
        (0, 0, 0, 0xE169C58D6627E8D5),
        (ones, ones, ones, 0x41C83B0E408F276D),
        (0x85A308D3243F6A88, 0x0370734413198A2E, 0x299F31D0A4093822, 0x94FDCCEBD16CFE09),
    ]
    for low, high, key, wanted in rows:
        made = philox(*(np.array([v], np.uint64) for v in (low, high, key)))
        assert int(made[0]) == wanted


@pytest.mark.parametrize("dtype", [F32, pytest.param(F64, marks=LONG)])
def test_uniform(dtype):
    (y,) = compiled(one("RandomUniform", shape=[40, 500], low=-3.0, high=5.0, dtype=dtype))()
    assert y.dtype == helper.tensor_dtype_to_np_dtype(dtype) and y.min() >= -3 and y.max() <= 5
    assert distance(y, lambda x: (x + 3) / 8) < 1.95
    assert len(np.unique(y)) > 19_960
    serial = np.corrcoef(y.reshape(-1)[:-1], y.reshape(-1)[1:])[0, 1]
    assert abs(serial) < 3.3 / math.sqrt(y.size)


@pytest.mark.parametrize("dtype", [F32, pytest.param(F64, marks=LONG)])
def test_normal(dtype):
    (y,) = compiled(one("RandomNormal", shape=[200, 100], mean=2.0, scale=0.5, dtype=dtype))()
    z = (y.astype(np.float64) - 2) / 0.5
    assert distance(z, NORMAL_CDF) < 1.95
    assert abs(z.mean()) < 3.3 / math.sqrt(z.size) and abs(z.var() - 1) < 3.3 * math.sqrt(
        2 / z.size
    )
    assert abs((z**4).mean() - 3) < 3.3 * math.sqrt(96 / z.size)
    assert 3.5 < abs(z).max() < 5.5


@pytest.mark.parametrize("dtype", [F16, pytest.param(BF16, marks=LONG)])
@LONG
def test_narrow_types_are_the_rounded_f32_numbers(dtype):
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["y"], seed=5.0, dtype=dtype),
        helper.make_node("RandomNormalLike", ["x"], ["w"], seed=5.0),
        helper.make_node("Cast", ["w"], ["z"], to=dtype),
    ]
    exe = compiled(*nodes, inputs=[("x", F32, ["n", "k"])], outputs=["y", "z"])
    y, z = exe(np.zeros((7, 33), np.float32))
    assert y.shape == (7, 33) and np.array_equal(y, z)


def test_threads_vectors_and_shapes_change_no_number(monkeypatch):
    node = helper.make_node("RandomUniformLike", ["x"], ["y"])
    exes = [compiled(node, inputs=[("x", F32, shape)]) for shape in (["n", "k"], [601, 97])]
    exes[1:] += [ingot.compile(model([node], [("x", F32, [601, 97])]), target="x86-64-v2", jobs=1)]
    x, found = np.zeros((601, 97), np.float32), []
    for exe in exes:
        for threads in (1, 2):
            exe.threads = threads
            exe.seed(11)
            found += [exe(x)[0], exe(x)[0]]
    assert all(np.array_equal(found[i], found[i % 2]) for i in range(len(found)))
    assert not np.array_equal(found[0], found[1])
    exes[0].seed(11)
    prefix = exes[0](x[:5])[0]
    assert np.array_equal(prefix, found[0][:5])


def test_calls_and_nodes_differ_without_a_seed():
    nodes = [helper.make_node("RandomNormal", [], [name], shape=[3000]) for name in "ab"]
    exe = compiled(*nodes, outputs="ab", seed=None)
    a, b = exe()
    c, d = exe()
    pairs = [(a, b), (a, c), (a, d), (b, c), (b, d)]
    assert all(abs(np.corrcoef(p, q)[0, 1]) < 3.5 / math.sqrt(3000) for p, q in pairs)
    other = compiled(*nodes, outputs="ab", seed=None)
    assert not np.array_equal(other()[0], a)


def test_a_seed_of_the_model_repeats_in_every_call_and_model():
    first = compiled(one("RandomNormal", shape=[100], seed=2.5), seed=None)
    second = compiled(
        one("RandomUniform", shape=[8]),
        helper.make_node("RandomNormal", [], ["z"], shape=[100], seed=2.5),
        outputs=["z"],
    )
    assert np.array_equal(first()[0], first()[0]) and np.array_equal(first()[0], second()[0])
    other = compiled(one("RandomNormal", shape=[100], seed=2.6), seed=None)
    assert not np.array_equal(first()[0], other()[0])


def test_seed_restarts_the_calls_also_of_a_plan_file(tmp_path):
    exe = compiled(one("RandomUniform", shape=[50]))
    drawn = [exe()[0] for _ in range(3)]
    exe.save(tmp_path / "plan")
    loaded = ingot.load(tmp_path / "plan")
    assert [p.name for p in loaded.inputs] == [] and not np.array_equal(loaded()[0], drawn[0])
    for again in (exe, loaded, exe.context()):
        again.seed(3)
        assert all(np.array_equal(again()[0], d) for d in drawn)
    with pytest.raises(ingot.IngotError, match="seed"):
        exe.seed(1.5)


def test_callers_in_several_threads_get_different_numbers():
    exe = compiled(one("RandomUniform", shape=[64]))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: exe()[0].tobytes(), range(200)))
    assert len(set(found)) == 200
    exe.seed(3)
    assert {exe()[0].tobytes() for _ in range(200)} == set(found)


@LONG
def test_other_versions_and_names_work():
    node = helper.make_node("RandomUniformLike", ["x"], ["y"])
    exe = compiled(
        helper.make_node("Add", ["a", "b"], ["x"]), node,
        inputs=[("a", F32, ["n"]), ("b", F32, ["n"])],
    )  # fmt: skip
    two = exe(np.zeros(3, np.float32), np.zeros(3, np.float32))[0]
    exe.seed(3)
    wide = exe(a=np.zeros(1, np.float32), b=np.zeros(3, np.float32))[0]
    assert two.shape == wide.shape == (3,)
    assert exe(np.zeros(0, np.float32), np.zeros(0, np.float32))[0].shape == (0,)


@LONG
def test_the_c_back_end_draws_the_same():
    node = one("RandomNormal", shape=[5, 9])
    exe = ingot.compile(model([node]), target="c", jobs=1)
    exe.seed(3)
    assert np.allclose(exe()[0], compiled(node)()[0], rtol=1e-5, atol=1e-6)


# --- discrete -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    [None, *[pytest.param(d, marks=LONG) for d in (F64, TensorProto.INT32, TensorProto.BOOL, F16)]],
)
def test_bernoulli(dtype):
    attrs = {} if dtype is None else {"dtype": dtype}
    node = helper.make_node("Bernoulli", ["x"], ["y"], **attrs)
    exe = compiled(node, inputs=[("x", F32, ["n", 6])])
    rates = np.array([0, 1, 0.5, 0.1, 0.9, np.nan], np.float32)
    (y,) = exe(np.tile(rates, (5000, 1)))
    assert y.dtype == helper.tensor_dtype_to_np_dtype(dtype or F32)
    mean = y.astype(np.float64).mean(axis=0)
    assert mean[0] == 0 and mean[1] == 1 and mean[5] == 0
    assert np.all(abs(mean[2:5] - rates[2:5]) < 3.5 * 0.5 / math.sqrt(5000))


@pytest.mark.parametrize("dtype", [pytest.param(TensorProto.INT32, marks=LONG), TensorProto.INT64])
def test_multinomial(dtype):
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=8000, dtype=dtype)
    exe = compiled(node, inputs=[("x", F32, ["b", "c"])])
    weights = np.array([[1, 2, 3, 4, 0], [0, 0, 5, 0, 0], [7, 1, 1, 1, 2]], np.float64)
    with np.errstate(divide="ignore"):
        (y,) = exe((np.log(weights) + 50).astype(np.float32))
    assert y.shape == (3, 8000) and y.dtype == helper.tensor_dtype_to_np_dtype(dtype)
    share = weights / weights.sum(1, keepdims=True)
    found = np.array([np.bincount(row, minlength=5) for row in y]) / 8000
    assert np.all(abs(found - share) <= 3.5 * np.sqrt(share * (1 - share) / 8000))


def dropout(x, ratio, training, opset=22, **attrs):
    node = helper.make_node("Dropout", ["x", "r", "t"], ["y", "z"], **attrs)
    kinds = [("x", helper.np_dtype_to_tensor_dtype(x.dtype), ["n", "k"])]
    kinds += [("r", F32, []), ("t", TensorProto.BOOL, [])]
    exe = compiled(node, inputs=kinds, outputs=["y", "z"], opset=opset)
    return exe(x, np.float32(ratio), np.bool_(training))


@pytest.mark.parametrize(("dtype", "opset"), [
    (np.float32, 22), pytest.param(np.float16, 22, marks=LONG),
    pytest.param(np.float64, 13, marks=LONG), pytest.param(np.float32, 12, marks=LONG),
])  # fmt: skip
def test_dropout_while_training(dtype, opset):
    x = np.random.default_rng(0).uniform(1, 2, (90, 111)).astype(dtype)
    y, z = dropout(x, 0.25, True, opset)
    assert z.dtype == np.bool_ and abs(z.mean() - 0.75) < 3.5 * 0.44 / math.sqrt(x.size)
    assert np.all(y[~z] == 0)
    np.testing.assert_allclose(y[z], (x.astype(np.float64) / 0.75)[z], rtol=1e-3, atol=0)
    kept = (y != 0).mean(axis=0)
    assert kept.min() > 0.5 and kept.max() < 0.95


def test_dropout_edges():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for ratio, training in ((0.0, True), (0.7, False)):
        y, z = dropout(x, ratio, training)
        assert np.array_equal(x, y) and z.all()
    again = [dropout(x, 0.5, True, seed=4)[0] for _ in range(2)]
    assert np.array_equal(*again)


@pytest.mark.parametrize(("opset", "attrs", "random"), [
    pytest.param(1, {"is_test": 1}, False, marks=LONG), (6, {}, True), (7, {}, False),
    pytest.param(10, {}, False, marks=LONG),
])  # fmt: skip
def test_dropout_of_old_opsets(opset, attrs, random):
    node = helper.make_node("Dropout", ["x"], ["y", "z"], ratio=0.5, **attrs)
    exe = compiled(node, inputs=[("x", F32, [400])], outputs=["y", "z"], opset=opset)
    x = np.ones(400, np.float32)
    y, z = exe(x)
    assert z.dtype == (np.bool_ if opset >= 10 else np.float32)
    assert (120 < z.sum() < 280) if random else (np.array_equal(y, x) and z.all())


# --- in loops -----------------------------------------------------------------------------------


def looped(seed: float | None) -> onnx.ModelProto:
    """Three iterations; each draws twice."""
    given = {} if seed is None else {"seed": seed}
    body = helper.make_graph(
        [
            helper.make_node("RandomUniform", [], ["u"], shape=[40], **given),
            helper.make_node("Add", ["acc", "u"], ["sum"]),
            helper.make_node("Identity", ["cond"], ["go"]),
        ],
        "body",
        [VALUE("i", TensorProto.INT64, []), VALUE("cond", TensorProto.BOOL, []),
         VALUE("acc", F32, [40])],
        [VALUE("go", TensorProto.BOOL, []), VALUE("sum", F32, [40]), VALUE("u", F32, [40])],
    )  # fmt: skip
    node = helper.make_node("Loop", ["trips", "", "x"], ["last", "all"], body=body)
    inputs = [("trips", TensorProto.INT64, []), ("x", F32, [40])]
    return model([node], inputs, ["last", "all"])


@pytest.mark.parametrize("seed", [None, pytest.param(1.0, marks=LONG)])
def test_iterations_of_a_loop_differ(seed):
    exe = ingot.compile(looped(seed), jobs=1)
    exe.seed(3)
    x = np.zeros(40, np.float32)
    last, every = exe(np.int64(5), x)
    assert every.shape == (5, 40) and len(np.unique(every)) == 200
    np.testing.assert_allclose(last, every.sum(0), rtol=1e-6)
    again = exe(np.int64(5), x)[1]
    assert np.array_equal(again, every) == (seed is not None)


@LONG
def test_iterations_of_a_scan_differ():
    inner = helper.make_graph(
        [helper.make_node("RandomUniformLike", ["v"], ["w"])],
        "inner", [VALUE("v", F32, ["k"])], [VALUE("w", F32, ["k"])],
    )  # fmt: skip
    outer = helper.make_graph(
        [helper.make_node("Scan", ["m"], ["r"], body=inner, num_scan_inputs=1)],
        "outer", [VALUE("m", F32, ["j", "k"])], [VALUE("r", F32, ["j", "k"])],
    )  # fmt: skip
    node = helper.make_node("Scan", ["x"], ["y"], body=outer, num_scan_inputs=1)
    exe = compiled(node, inputs=[("x", F32, ["i", "j", "k"])])
    (y,) = exe(np.zeros((3, 4, 50), np.float32))
    assert len(np.unique(y)) == 600
