"""Strings as tensors: what moves and compares them, the border, plan files, threads, refusals."""

from __future__ import annotations

import os
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto as P
from onnx import helper
from onnx.reference import ReferenceEvaluator

import ingot
from ingot.cli.compare import distance
from ingot.graph import interp
from ingot.graph.store import ConstantStore
from ingot.pipeline import open_session, run_stages
from ingot.program import interp as program_interp
from ingot.strings import StringTable
from ingot.support.errors import IngotError

WORDS = np.array(["a", "b", "", "é", "b", "new", "日本", "a b"], object)
S = P.STRING


def info(name: str, code: int, shape):
    return helper.make_tensor_value_info(name, code, shape)


def strings(name: str, *texts: str, shape=None):
    return helper.make_tensor(name, S, shape or [len(texts)], [t.encode() for t in texts])


def integers(name: str, *values: int):
    return helper.make_tensor(name, P.INT64, [len(values)], values)


def model(nodes, inputs, outputs, constants=(), opset=20) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "strings", inputs, outputs, constants)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def node(op: str, inputs: str, outputs: str, **attrs):
    return helper.make_node(op, inputs.split(","), outputs.split(","), **attrs)


def moving() -> onnx.ModelProto:
    """Most of what moves strings, and a comparison with constants."""
    return model(
        [
            node("Equal", "x,k", "is_k"),
            node("Where", "is_k,k,x", "w"),
            node("Concat", "w,x", "c", axis=0),
            node("Transpose", "c", "t", perm=[1, 0]),
            node("Gather", "t,i", "g", axis=0),
            node("Slice", "t,one,two,zero", "s"),
            node("Tile", "s,reps", "tiled"),
            node("Unsqueeze", "g,zero", "u"),
            node("Reshape", "u,flat", "r"),
            node("Split", "r", "left,right", num_outputs=2),
            node("Expand", "k,wide", "e"),
        ],
        [info("x", S, ["n", 3])],
        [info("is_k", P.BOOL, None)]
        + [info(name, S, None) for name in ("w", "tiled", "left", "right", "e")],
        [
            strings("k", "a", "b", "é"),
            *(
                integers(*row)
                for row in [
                    ("i", 2, 0), ("one", 1), ("two", 2), ("zero", 0), ("reps", 2, 1),
                    ("flat", -1), ("wide", 2, 3),
                ]
            ),
        ],
    )  # fmt: skip


def given(rows: int = 2, seed: int = 0) -> np.ndarray:
    return WORDS[np.random.default_rng(seed).integers(0, len(WORDS), (rows, 3))]


def check(made: onnx.ModelProto, feeds: dict, exe=None) -> None:
    """ONNX's own evaluator is the judge: ONNX Runtime 1.31 loses strings in some transposes."""
    expected = ReferenceEvaluator(made).run(None, feeds)
    got = (exe or ingot.compile(made)).run(None, feeds)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.tolist() == b.tolist()


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_moving_strings_is_as_onnx_defines_it(rows):
    check(moving(), {"x": given(rows)})


def test_repeated_calls_with_other_strings():
    made = moving()
    exe = ingot.compile(made)
    for seed in range(4):
        check(made, {"x": given(3, seed)}, exe)


def test_interpreters_agree():
    """Numbers of strings are the same in every way to run a graph."""
    session = open_session("cpu")
    graph = run_stages(moving(), session, stop_after="import")
    store: ConstantStore = session.store
    numbers = store.strings.encode(given())
    values = interp.run(graph, store, [numbers])
    program = run_stages(graph, session, "specialize", "lower")
    lowered = program_interp.run(program, store, {"x": numbers})
    for a, b, c in zip(values, lowered, ingot.compile(moving())(given()), strict=True):
        if c.dtype == object:
            a, b = store.strings.decode(a), store.strings.decode(b)
        assert a.tolist() == b.tolist() == c.tolist()


def test_control_flow_carries_strings():
    def branch(name: str, text: str):
        return helper.make_graph(
            [
                helper.make_node("Constant", [], [f"{name}_c"], value=strings("v", text)),
                node("Concat", f"x,{name}_c", f"{name}_y", axis=0),
            ],
            name,
            [],
            [info(f"{name}_y", S, [None])],
        )

    body = helper.make_graph(
        [
            node("Gather", "x,step", "one", axis=0),
            node("Identity", "go", "go_on"),
            node("Identity", "last", "before"),
            node("Identity", "one", "next"),
        ],
        "body",
        [info("step", P.INT64, []), info("go", P.BOOL, []), info("last", S, [])],
        [info("go_on", P.BOOL, []), info("next", S, []), info("before", S, [])],
    )
    made = model(
        [
            node("If", "flag", "y", then_branch=branch("a", "yes"), else_branch=branch("b", "no")),
            node("Loop", "trips,,start", "last_out,scan", body=body),
        ],
        [info("x", S, [3]), info("flag", P.BOOL, []), info("trips", P.INT64, [])],
        [info("y", S, None), info("last_out", S, None), info("scan", S, None)],
        [strings("start", "first", shape=[])],
    )
    x, exe = given()[0], ingot.compile(made)
    for flag in (True, False):
        y, last, scan = exe(x, np.array(flag), np.array(3))
        assert y.tolist() == [*x, "yes" if flag else "no"]
        assert last.tolist() == x[2] and scan.tolist() == ["first", *x[:2]]


def test_more_that_moves_strings():
    constant = helper.make_node
    made = model(
        [
            constant("Constant", [], ["three"], value_strings=["p", "a", "r"]),
            constant("Constant", [], ["one"], value_string="d"),
            node("Where", "c3,three,x", "w"),
            node("Equal", "w,one", "e"),
            node("Compress", "w,c2", "y", axis=0),
            node("ScatterElements", "x,i,u", "s", axis=1),
            node("GatherND", "s,p", "g"),
            node("OneHot", "k,depth,two", "h"),
            node("Flatten", "s", "f", axis=0),
        ],
        [info("x", S, ["n", 3])],
        [info("e", P.BOOL, None)] + [info(name, S, None) for name in "ygfh"],
        [
            helper.make_tensor("c3", P.BOOL, [3], [True, False, False]),
            helper.make_tensor("c2", P.BOOL, [2], [False, True]),
            helper.make_tensor("i", P.INT64, [2, 1], [1, 0]),
            helper.make_tensor("p", P.INT64, [2, 2], [1, 0, 0, 1]),
            helper.make_tensor("depth", P.INT64, [], [2]),
            integers("k", 1, 0),
            strings("u", "X", "Y", shape=[2, 1]),
            strings("two", "off", "on"),
        ],
    )
    x = np.array([["a", "b", "c"], ["d", "e", "f"]], object)
    e, y, g, f, h = ingot.compile(made)(x)
    assert not e.any() and y.tolist() == [["p", "e", "f"]] and g.tolist() == ["Y", "X"]
    assert f.tolist() == [["a", "X", "c", "Y", "e", "f"]]
    assert h.tolist() == [["off", "on"], ["on", "off"]]


def test_padding_is_the_empty_string():
    made = model(
        [node("Pad", "x,p", "y"), node("Pad", "x,p,v", "z")],
        [info("x", S, ["n"])], [info("y", S, None), info("z", S, None)],
        [integers("p", 1, 2), strings("v", "pad", shape=[])],
    )  # fmt: skip
    y, z = ingot.compile(made)(np.array(["q"], object))
    assert y.tolist() == ["", "q", "", ""] and z.tolist() == ["pad", "q", "pad", "pad"]


# --- the border ---------------------------------------------------------------------------------


def forms() -> list:
    texts = ["a", "", "日本"]
    kinds = [
        np.array(texts, object),
        np.array(texts),
        np.array([t.encode() for t in texts], object),
    ]
    kinds += [texts, np.array(texts, np.dtypes.StringDType()), np.array(texts, object)[::-1][::-1]]
    return kinds


@pytest.mark.parametrize("x", forms(), ids=lambda x: str(getattr(x, "dtype", type(x))))
def test_forms_of_strings(x):
    made = model([node("Identity", "x", "y")], [info("x", S, [3])], [info("y", S, [3])])
    (y,) = ingot.compile(made)(x)
    assert y.dtype == object and y.tolist() == ["a", "", "日本"]
    assert all(type(text) is str for text in y)


@pytest.mark.parametrize(
    ("x", "why"),
    [
        (np.ones(3), "its dtype is float64"),
        (np.array(["a", 1, "b"], object), "an element is 1, of type int"),
        (np.array(["a", "b", None], object), "an element is None"),
        (np.array([b"\xff", b"", b""], object), "invalid start byte"),
        (7, "it is a int"),
        ({"a": 1}, "it is a dict"),
    ],
)
def test_what_is_no_string_is_refused(x, why):
    made = model([node("Identity", "x", "y")], [info("x", S, [3])], [info("y", S, [3])])
    with pytest.raises(IngotError, match="input 'x' is not an array of strings") as caught:
        ingot.compile(made)(x)
    assert why in caught.value.why


def test_out_arrays():
    made = model(
        [node("Identity", "x", "y"), node("Equal", "x,x", "e")],
        [info("x", S, ["n"])], [info("y", S, ["n"]), info("e", P.BOOL, ["n"])],
    )  # fmt: skip
    exe, x = ingot.compile(made), np.array(["p", "q"], object)
    y, e = np.empty(2, object), np.empty(2, bool)
    results = exe.run(None, {"x": x}, out={"y": y, "e": e})
    assert results[0] is y and results[1] is e and y.tolist() == ["p", "q"] and e.all()
    for wrong, what in [(np.empty(3, object), "has shape"), (np.empty(2, "U1"), "object array")]:
        with pytest.raises(IngotError, match=what):
            exe.run(None, {"x": x}, out=[wrong, None])


def test_a_plan_file_keeps_the_strings(tmp_path):
    ingot.compile(moving()).save(tmp_path / "m.plan")
    check(moving(), {"x": given(5)}, ingot.load(tmp_path / "m.plan"))


def test_another_version_has_its_own_numbers():
    made = model(
        [node("Concat", "c,x", "t", axis=0), node("Equal", "a,b", "e"),
         node("Where", "e,a,b", "y")],
        [info("x", S, ["k"]), info("a", S, ["n"]), info("b", S, ["m"])],
        [info("y", S, None), info("t", S, None)], [strings("c", "one", "two")],
    )  # fmt: skip
    exe = ingot.compile(made)
    a, b = np.array(["p", "q"], object), np.array(["p", "r"], object)
    assert exe(a, a, b)[0].tolist() == ["p", "r"]
    y, t = exe(a, a, b[:1])
    assert y.tolist() == ["p", "p"] and t.tolist() == ["one", "two", "p", "q"]


def test_python_threads_do_not_share_numbers():
    exe, made = ingot.compile(moving()), moving()
    evaluator = ReferenceEvaluator(made)
    wrong: list = []

    def work(seed: int) -> None:
        for number in range(60):
            rows = np.array([[f"{seed}.{number}.{i}.{j}" for j in range(3)] for i in range(4)])
            x = np.where(np.arange(12).reshape(4, 3) % 2, rows, "é").astype(object)
            for a, b in zip(exe(x), evaluator.run(None, {"x": x})):
                if a.tolist() != b.tolist():
                    wrong.append((seed, number))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_runs_it():
    exe = ingot.compile(moving())
    want = [a.tolist() for a in exe(given())]
    child = os.fork()
    if not child:
        os._exit(0 if [a.tolist() for a in exe(given())] == want else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- refusals -----------------------------------------------------------------------------------


NUMERIC = [
    "Add",
    "MatMul",
    "Less",
    "And",
    "Max",
    "Relu",
    "ReduceSum",
    "Abs",
    "CumSum",
    "Softmax",
    "TopK",
    "Cos",
    "NonZero",
    "Mod",
    "Pow",
]


@pytest.mark.parametrize("op", NUMERIC)
def test_operators_of_numbers_refuse_strings(op):
    two = op in ("Add", "MatMul", "Less", "And", "Max", "Mod", "Pow")
    operands = "x,x" if two else "x,k" if op in ("CumSum", "TopK") else "x"
    made = model([node(op, operands, "y")], [info("x", S, [2, 2])], [info("y", S, None)],
                 [integers("k", 1)] if op != "CumSum" else
                 [helper.make_tensor("k", P.INT64, [], [1])])  # fmt: skip
    with pytest.raises(IngotError, match="not defined on strings") as caught:
        ingot.compile(made)
    assert op in caught.value.where


def test_a_state_of_strings_is_refused():
    made = model([node("Identity", "x", "y")], [info("x", S, [2])], [info("y", S, [2])])
    with pytest.raises(IngotError, match="holds strings"):
        ingot.compile(made, state={"x": "y"})


def test_damaged_constants():
    made = model([node("Identity", "c", "y")], [], [info("y", S, None)], [strings("c", "a", "b")])
    made.graph.initializer[0].string_data[0] = b"\xff\xfe"
    with pytest.raises(IngotError, match="not UTF-8"):
        ingot.compile(made)
    del made.graph.initializer[0].string_data[0]
    with pytest.raises(IngotError, match="needs 2 strings"):
        ingot.compile(made)


def test_a_table_on_another():
    base = StringTable(texts=["x", "y"])
    own = StringTable(base)
    assert [own.add(t) for t in ("", "y", "new", "x", "new")] == [0, 2, 3, 1, 3]
    assert list(own) == ["", "x", "y", "new"] and len(base) == 3 and len(own) == 4


def test_distance_of_strings():
    a, b = np.array(["p", "q"], object), np.array(["p", "q"])
    assert distance(a, b) == 0 and distance(a, b[::-1]) == float("inf")
