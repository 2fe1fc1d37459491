"""Things no accident does to a model: bombs, loops without end, paths that lead out, deep nests.

In: a ModelProto that is changed, a random generator. Called by mutate.py; test_bad_models.py runs
each one by itself and looks at the answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto as P
from onnx import helper, numpy_helper

from tests.models.parts import graph, info, node

Rng = random.Random
Model = onnx.ModelProto


def _put(proto: Model, nodes: list[onnx.NodeProto], result: str, **constants: object) -> None:
    """Nodes and constants added, `result` an output."""
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    proto.graph.node.extend(nodes)
    proto.graph.output.add(name=result)


def _i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def huge_fill(proto: Model, rng: Rng) -> None:
    sizes = _i64(1 << rng.choice((31, 40, 62)), *rng.choices((1, 2, 1 << 40), k=rng.randrange(3)))
    _put(proto, [node("ConstantOfShape", "bomb_shape", "bomb")], "bomb", bomb_shape=sizes)


def growing_tiles(proto: Model, rng: Rng) -> None:
    """Each node doubles what the one before made."""
    nodes = [node("Tile", f"t{i} t_two", f"t{i + 1}") for i in range(rng.choice((10, 30, 60)))]
    first = {"t0": np.ones(2, rng.choice((np.float32, np.int64))), "t_two": _i64(2)}
    _put(proto, nodes, nodes[-1].output[0], **first)


def growing_concats(proto: Model, rng: Rng) -> None:
    nodes = [node("Concat", f"t{i} t{i}", f"t{i + 1}", axis=0) for i in range(rng.choice((10, 50)))]
    _put(proto, nodes, nodes[-1].output[0], t0=np.ones(2, rng.choice((np.float32, np.int64))))


def huge_expand(proto: Model, rng: Rng) -> None:
    shape = _i64(*rng.choices((1 << 20, 1 << 40, 3), k=3))
    _put(proto, [node("Expand", "e_one e_shape", "e")], "e", e_one=np.ones(1, np.float32),
         e_shape=shape)  # fmt: skip


def huge_range(proto: Model, rng: Rng) -> None:
    kind = rng.choice((np.int64, np.int32, np.float32))
    limit = rng.choice((10**6, 10**9))
    step = rng.choice((1, -1, 0)) if kind is not np.float32 else rng.choice((1e-30, 0.0, -1.0))
    _put(proto, [node("Range", "r_a r_b r_c", "r"), node("ReduceSum", "r", "r_sum", keepdims=0)],
         "r_sum", r_a=kind(0), r_b=kind(limit), r_c=kind(step))  # fmt: skip


def huge_pad(proto: Model, rng: Rng) -> None:
    pads = _i64(rng.choice((1 << 20, 1 << 40, -(1 << 40))), rng.choice((0, 1 << 62)))
    mode = rng.choice(("constant", "reflect", "edge", "wrap"))
    _put(proto, [node("Pad", "p_x p_n", "p", mode=mode)], "p", p_x=np.ones(3, np.float32), p_n=pads)


def huge_tensor(proto: Model, rng: Rng) -> None:
    """A constant that says it is far larger than its bytes, or whose size overflows."""
    dims = rng.choice(
        ([1 << 40], [1 << 32, 1 << 32], [1 << 62, 4], [3, -1], [0, 1 << 62], [1] * 99)
    )
    tensor = P(name="lie", data_type=P.FLOAT, dims=dims, raw_data=b"\0" * rng.choice((0, 4, 16)))
    proto.graph.initializer.append(tensor)
    _put(proto, [node("Identity", "lie", "lie_out")], "lie_out")


def sparse_bomb(proto: Model, rng: Rng) -> None:
    values = numpy_helper.from_array(np.ones(1, np.float32), "sparse")
    indices = numpy_helper.from_array(_i64(rng.choice((0, 5, 1 << 40))))
    size = rng.choice((1 << 20, 1 << 27, 1 << 40))
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [size]))
    _put(proto, [node("ReduceSum", "sparse", "sparse_sum", keepdims=0)], "sparse_sum")


def endless_loop(proto: Model, rng: Rng) -> None:
    body = graph(
        "body",
        [node("Identity", "go", "go_on"), node("Add", "s s", "s_next")],
        [info("turn", [], P.INT64), info("go", [], P.BOOL), info("s", [])],
        [info("go_on", [], P.BOOL), info("s_next", [])],
    )
    if rng.random() < 0.5:  # each turn makes a row
        body.node.append(node("Identity", "s_next", "row"))
        body.output.add(name="row")
    outputs = "end rows" if len(body.output) == 3 else "end"
    _put(proto, [node("Loop", "turns yes start", outputs, body=body)], "end",
         turns=np.int64(1 << 60), yes=np.array(True), start=np.float32(1))  # fmt: skip


def growing_sizes(proto: Model, rng: Rng) -> None:
    """A size that every node makes larger, by data or by a symbol."""
    op = rng.choice(("Mul", "Add", "Sub", "Div", "Mod", "Max"))
    start = [node("Shape", "x_sizes", "z0")]
    count = rng.choice((5, 30, 70))
    nodes = [node(op, f"z{i} {rng.choice((f'z{i}', 'z0', 'z_c'))}", f"z{i + 1}")
             for i in range(count)]  # fmt: skip
    proto.graph.input.append(info("x_sizes", rng.choice((["m"], ["m", "k"]))))
    last = [node("ConstantOfShape", f"z{count}", "z_made")] if rng.random() < 0.5 else []
    _put(proto, [*start, *nodes, *last], "z_made" if last else f"z{count}", z_c=_i64(3))


def deep_nest(proto: Model, rng: Rng) -> None:
    """A choice in a choice, many times over."""
    inner = graph("leaf", [node("Identity", "nest_flag", "z0")], [], [info("z0", [], P.BOOL)])
    for level in range(1, rng.choice((3, 10, 20, 30))):
        other = graph("o", [node("Not", "nest_flag", f"o{level}")], [], [info(f"o{level}", [])])
        choice = node("If", "nest_flag", f"z{level}", then_branch=inner, else_branch=other)
        inner = graph("n", [choice], [], [info(f"z{level}", [], P.BOOL)])
    proto.graph.node.append(node("If", "nest_flag", "nest", then_branch=inner, else_branch=inner))
    _put(proto, [], "nest", nest_flag=np.array(rng.random() < 0.5))


def calls_itself(proto: Model, rng: Rng) -> None:
    """A function that calls itself, or two that call each other."""
    names = rng.choice((("F", "F"), ("F", "G")))
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("loops", 1)]
    for name, other in {names[0]: names[1], names[1]: names[0]}.items():
        inner = [node(other, "a", "b", domain="loops")]
        proto.functions.append(helper.make_function("loops", name, ["a"], ["b"], inner, versions))
    proto.opset_import.append(helper.make_opsetid("loops", 1))
    _put(proto, [node("F", "f_in", "f_out", domain="loops")], "f_out", f_in=np.float32(1))


def unfolds(proto: Model, rng: Rng) -> None:
    """Functions of ten calls each of the next: a small file of 10^depth nodes."""
    depth = rng.choice((2, 8, 20))
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("unfold", 1)]
    for level in range(depth):
        op, domain = (f"L{level + 1}", "unfold") if level + 1 < depth else ("Relu", "")
        body = [node(op, f"v{i}", f"v{i + 1}", domain=domain) for i in range(10)]
        made = helper.make_function("unfold", f"L{level}", ["v0"], ["v10"], body, versions)
        proto.functions.append(made)
    proto.opset_import.append(helper.make_opsetid("unfold", 1))
    _put(proto, [node("L0", "u_in", "u_out", domain="unfold")], "u_out", u_in=np.float32(1))


def cycle(proto: Model, rng: Rng) -> None:
    length = rng.choice((1, 2, 1000))
    nodes = [node("Relu", f"k{(i + 1) % length}", f"k{i}") for i in range(length)]
    rng.shuffle(nodes)
    _put(proto, nodes, "k0")


def long_chain(proto: Model, rng: Rng) -> None:
    op = rng.choice(("Identity", "Neg", "Relu", "Not"))
    start = np.array(True) if op == "Not" else np.ones(3, np.float32)
    nodes = [node(op, f"l{i}", f"l{i + 1}") for i in range(rng.choice((50, 400)))]
    _put(proto, nodes, nodes[-1].output[0], l0=start)


def leads_out(proto: Model, rng: Rng) -> None:
    """Data in a file that is not the model's."""
    location = rng.choice(("/etc/passwd", "../side.bin", "a/../../side.bin", "side.bin/", ".", "",
                           "nowhere.bin", "\0", "C:\\x", "x" * 5000, "side.bin", "model.onnx",
                           "/dev/zero", "é.bin"))  # fmt: skip
    tensor = P(name="far", data_type=P.FLOAT, dims=[4], data_location=P.EXTERNAL)
    offset = rng.choice(("0", "-1", "8", "9" * 30, "x", "3", str(1 << 62)))
    length = rng.choice(("16", "15", "-16", "", str(1 << 62)))
    for key, value in {"location": location, "offset": offset, "length": length}.items():
        tensor.external_data.add(key=key, value=value)
    proto.graph.initializer.append(tensor)
    _put(proto, [node("Identity", "far", "far_out")], "far_out")


def big_einsum(proto: Model, rng: Rng) -> None:
    equation = rng.choice(("i,j,k,l,m,n,o,p->", "ii->i", "i" * 60 + "->i", "a,a", "->", "ab..c->"))
    count = equation.partition("->")[0].count(",") + 1
    _put(proto, [node("Einsum", " ".join(["q_x"] * count), "q", equation=equation)], "q",
         q_x=np.ones(rng.choice((3, 1000)), np.float32))  # fmt: skip


def wide_rank(proto: Model, rng: Rng) -> None:
    """A tensor of very many axes."""
    axes = _i64(*range(rng.choice((8, 33, 70, 500))))
    nodes = [node("Unsqueeze", "w_x w_axes", "w"), node("ReduceMax", "w", "w_max", keepdims=0)]
    _put(proto, nodes, rng.choice(("w", "w_max")), w_x=np.ones(2, np.float32), w_axes=axes)


def long_indices(proto: Model, rng: Rng) -> None:
    where = _i64(*rng.choices((0, -1, 5, 1 << 40, -(1 << 62)), k=3))
    op = rng.choice(("Gather", "GatherElements", "OneHot"))
    if op == "OneHot":
        _put(proto, [node("OneHot", "g_i g_depth g_values", "g")], "g", g_i=where,
             g_depth=np.int64(rng.choice((5, 1 << 31, 1 << 60, -3))),
             g_values=np.array([0, 1], np.float32))  # fmt: skip
    else:
        _put(proto, [node(op, "g_x g_i", "g")], "g", g_x=np.ones(4, np.float32), g_i=where)


ATTACKS: list[Callable[[Model, Rng], None]] = [
    huge_fill, growing_tiles, growing_concats, huge_expand, huge_range, huge_pad, huge_tensor,
    sparse_bomb, growing_sizes, endless_loop, deep_nest, calls_itself, unfolds, cycle, long_chain,
    leads_out, big_einsum, wide_rank, long_indices,
]  # fmt: skip
