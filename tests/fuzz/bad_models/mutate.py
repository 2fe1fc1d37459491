"""A seed and the corpus → one mutant: a valid model with a few things broken.

In: models as bytes. Out: `Mutant`. A third are broken as bytes; the others by their structure: the
protobuf stays well-formed and the model inside stops making sense (or does not).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto as A
from onnx import TensorProto as P

from ingot.frontends.onnx import converters
from ingot.frontends.onnx.registry import TABLE
from tests.fuzz.bad_models.operator_attacks import ALL as ATTACKS

assert converters.FAMILIES  # importing them fills the table

Rng = random.Random
Graph = onnx.GraphProto

GROUPS = {"own/": 0.4, "suite/": 0.4, "domains/": 0.2}  # of the corpus → share of the mutants
BYTES_SHARE = 0.3
ATTACK_SHARE = 0.1
SIZES = [
    -(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 5, 7, 64, 1000, 2**16, 2**31 - 1, 2**31, 2**32, 2**40,
    2**53, 2**62, 2**63 - 1,
]  # fmt: skip
FLOATS = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, -1.0, 1e-45, 3e38, 0.5, 1e9]
TEXTS = ["", "x", "y", "NOTSET", "SAME_UPPER", "VALID", "constant", "reflect", "nonsense", "ij->ji",
         "...->", "reverse", "bidirectional", "Tanh", "\0", "é" * 40]  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    seed: int
    model: str  # the name of the model it was
    steps: tuple[str, ...]  # what was done to it
    data: bytes

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.model}, {', '.join(self.steps)}"


def mutant(seed: int, models: Mapping[str, bytes]) -> Mutant:
    """A seed below zero is an attack on a plain model."""
    rng = Rng(seed)
    if seed < 0:
        attack = ATTACKS[seed % len(ATTACKS)]
        rng = Rng(f"{attack.__name__} {seed // len(ATTACKS)}")  # the same if attacks are added
        data = _structural(models["own/shapes"], rng, [attack])
        return Mutant(seed, "own/shapes", (attack.__name__,), data)
    (group,) = rng.choices(list(GROUPS), GROUPS.values())
    name = rng.choice(sorted(name for name in models if name.startswith(group)))
    data, steps = models[name], []
    kind = rng.random()
    if kind < ATTACK_SHARE:
        step = rng.choice(ATTACKS)
        return Mutant(seed, name, (step.__name__,), _structural(data, rng, [step]))
    if kind < ATTACK_SHARE + BYTES_SHARE:
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            change = rng.choice(BYTE_CHANGES)
            data = change(data, rng, models)
            steps.append(change.__name__)
        return Mutant(seed, name, tuple(steps), data)
    chosen = [rng.choice(CHANGES) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return Mutant(seed, name, tuple(c.__name__ for c in chosen), _structural(data, rng, chosen))


def _structural(data: bytes, rng: Rng, changes: Sequence[Callable[..., None]]) -> bytes:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise AssertionError("the corpus holds a broken model") from error
    for change in changes:
        change(proto, rng)
    return proto.SerializeToString()


# --- bytes --------------------------------------------------------------------------------------


def flip_bits(data: bytes, rng: Rng, models: Mapping[str, bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 40))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def other_bytes(data: bytes, rng: Rng, models: Mapping[str, bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
    return bytes(changed)


def cut_short(data: bytes, rng: Rng, models: Mapping[str, bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def leave_out(data: bytes, rng: Rng, models: Mapping[str, bytes]) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.choice((1, 1, 2, 8, 100)) :]


def put_in(data: bytes, rng: Rng, models: Mapping[str, bytes]) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.randbytes(rng.choice((1, 1, 4, 30))) + data[start:]


def splice(data: bytes, rng: Rng, models: Mapping[str, bytes]) -> bytes:
    """The end of another model; two whole ones merge, as protobuf has it."""
    other = models[rng.choice(sorted(models))]
    if rng.random() < 0.5:
        return data + other
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other)) :]


BYTE_CHANGES = [flip_bits, flip_bits, flip_bits, other_bytes, other_bytes, cut_short, leave_out,
                put_in, splice]  # fmt: skip

# --- places in a model --------------------------------------------------------------------------


def _graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _graph(proto: onnx.ModelProto, rng: Rng) -> Graph:
    found = list(_graphs(proto.graph))
    return found[0] if rng.random() < 0.5 else rng.choice(found)


def _node(proto: onnx.ModelProto, rng: Rng) -> onnx.NodeProto:
    lists = [g.node for g in _graphs(proto.graph) if g.node] + [f.node for f in proto.functions]
    return rng.choice(rng.choice(lists)) if lists else onnx.NodeProto()


def _tensor(proto: onnx.ModelProto, rng: Rng) -> P:
    found = [t for g in _graphs(proto.graph) for t in g.initializer]
    found += [a.t for n in proto.graph.node for a in n.attribute if a.HasField("t")]
    return rng.choice(found) if found else P()


def _info(proto: onnx.ModelProto, rng: Rng) -> onnx.ValueInfoProto:
    graph = _graph(proto, rng)
    found = [*graph.input, *graph.input, *graph.output]
    return rng.choice(found) if found else onnx.ValueInfoProto()


def _names(proto: onnx.ModelProto) -> list[str]:
    names = {
        n for g in _graphs(proto.graph) for node in g.node for n in (*node.input, *node.output)
    }
    return sorted({*names, "", "nowhere"})


def _replace(values: Any, rng: Rng, choices: Sequence[Any]) -> None:
    """One element of a repeated field changed, left out, repeated or added."""
    action = rng.randrange(4)
    if not values or action == 0:
        values.append(rng.choice(choices))
    elif action == 1:
        del values[rng.randrange(len(values))]
    else:
        values[rng.randrange(len(values))] = rng.choice(choices)


# --- types and sizes ----------------------------------------------------------------------------


def change_dims(proto: onnx.ModelProto, rng: Rng) -> None:
    shape = _info(proto, rng).type.tensor_type.shape
    action = rng.randrange(5)
    if not shape.dim or action == 0:
        shape.dim.add(dim_value=rng.choice(SIZES))
    elif action == 1:
        del shape.dim[rng.randrange(len(shape.dim))]
    elif action == 2:
        shape.dim[rng.randrange(len(shape.dim))].dim_param = rng.choice(["n", "x", "", "1", "a b"])
    else:
        shape.dim[rng.randrange(len(shape.dim))].dim_value = rng.choice(SIZES)


def change_input_type(proto: onnx.ModelProto, rng: Rng) -> None:
    type = _info(proto, rng).type
    match rng.randrange(8):
        case 0:
            type.tensor_type.ClearField("shape")
        case 1:
            type.sequence_type.elem_type.tensor_type.elem_type = rng.choice((P.FLOAT, P.STRING, 0))
        case 2:
            inner = type.optional_type.elem_type
            rng.choice((inner, inner.sequence_type.elem_type)).tensor_type.elem_type = P.INT64
        case 3:
            type.map_type.key_type = rng.randrange(30)
            type.map_type.value_type.tensor_type.elem_type = P.FLOAT
        case 4:
            type.sparse_tensor_type.elem_type = P.FLOAT
        case _:
            type.tensor_type.elem_type = rng.randrange(30)


def change_opset(proto: onnx.ModelProto, rng: Rng) -> None:
    action = rng.randrange(6)
    if action == 0:
        del proto.opset_import[:]
    elif action == 1:
        proto.ir_version = rng.choice(SIZES)
    elif proto.opset_import:
        proto.opset_import[0].version = rng.choice([*range(1, 29), 0, -1, 99, 2**62])
        if action == 2:
            proto.opset_import[0].domain = rng.choice(["nowhere", "ai.onnx", "ai.onnx.ml"])


# --- tensors ------------------------------------------------------------------------------------


def change_tensor_dims(proto: onnx.ModelProto, rng: Rng) -> None:
    tensor = _tensor(proto, rng)
    if rng.random() < 0.3 and len(tensor.dims) > 1:
        tensor.dims[:] = rng.sample(list(tensor.dims), len(tensor.dims))
    else:
        _replace(tensor.dims, rng, SIZES)


def change_tensor_type(proto: onnx.ModelProto, rng: Rng) -> None:
    _tensor(proto, rng).data_type = rng.randrange(30)


def change_tensor_data(proto: onnx.ModelProto, rng: Rng) -> None:
    """Other numbers of the same length: sizes, axes and indices are such tensors."""
    tensor = _tensor(proto, rng)
    raw = tensor.raw_data
    if tensor.data_type == P.INT64 and len(raw) >= 8:
        place = 8 * rng.randrange(len(raw) // 8)
        number = rng.choice(SIZES).to_bytes(8, "little", signed=True)
        tensor.raw_data = raw[:place] + number + raw[place + 8 :]
    elif raw:
        tensor.raw_data = rng.randbytes(len(raw))
    elif tensor.string_data:
        _replace(
            tensor.string_data, rng, [*(text.encode() for text in TEXTS), b"\xff\xfe", b"1e999"]
        )


def change_tensor_length(proto: onnx.ModelProto, rng: Rng) -> None:
    tensor = _tensor(proto, rng)
    raw = tensor.raw_data
    match rng.randrange(4):
        case 0:
            tensor.raw_data = raw[: rng.randrange(len(raw) + 1)]
        case 1:
            tensor.raw_data = raw + rng.randbytes(rng.choice((1, 8, 1000)))
        case 2:
            tensor.ClearField("raw_data")
        case _:
            tensor.float_data.append(1.0)


# --- attributes ---------------------------------------------------------------------------------


def change_attribute(proto: onnx.ModelProto, rng: Rng) -> None:
    """A value in range for its type and nothing else."""
    node = _node(proto, rng)
    if not node.attribute:
        return
    a = rng.choice(node.attribute)
    match a.type:
        case A.INT:
            a.i = rng.choice(SIZES)
        case A.INTS:
            _replace(a.ints, rng, SIZES)
        case A.FLOAT:
            a.f = rng.choice(FLOATS)
        case A.FLOATS:
            _replace(a.floats, rng, FLOATS)
        case A.STRING:
            a.s = rng.choice(TEXTS).encode()
        case A.STRINGS:
            _replace(a.strings, rng, [text.encode() for text in TEXTS])
        case A.TENSOR:
            _replace(a.t.dims, rng, SIZES)


def change_attribute_type(proto: onnx.ModelProto, rng: Rng) -> None:
    node = _node(proto, rng)
    if not node.attribute:
        return
    attribute = rng.choice(node.attribute)
    if rng.random() < 0.5:
        attribute.type = rng.randrange(15)
        return
    name = attribute.name
    attribute.Clear()
    attribute.name = name
    _fill(attribute, rng)


def _fill(attribute: A, rng: Rng) -> None:
    kind = rng.choice((A.INT, A.INTS, A.FLOAT, A.STRING, A.TENSOR, A.GRAPH))
    attribute.type = kind
    match kind:
        case A.INT:
            attribute.i = rng.choice(SIZES)
        case A.INTS:
            attribute.ints.extend(rng.choices(SIZES, k=rng.randrange(5)))
        case A.FLOAT:
            attribute.f = rng.choice(FLOATS)
        case A.STRING:
            attribute.s = rng.choice(TEXTS).encode()
        case A.TENSOR:
            attribute.t.data_type = P.FLOAT
            attribute.t.dims.extend(rng.choices(SIZES, k=rng.randrange(3)))
        case A.GRAPH:
            attribute.g.name = "empty"


def add_attribute(proto: onnx.ModelProto, rng: Rng) -> None:
    """One the operator has and the node did not give, or one nobody knows, or one twice."""
    node = _node(proto, rng)
    known = _schema_attributes(node.op_type, node.domain)
    name = rng.choice([*known, *known, "axis", "unheard_of", *(a.name for a in node.attribute)])
    attribute = node.attribute.add(name=name)
    kind = known.get(name)
    if kind is None or rng.random() < 0.2:
        _fill(attribute, rng)
        return
    attribute.type = kind
    match kind:
        case A.INT:
            attribute.i = rng.choice(SIZES)
        case A.INTS:
            attribute.ints.extend(rng.choices(SIZES, k=rng.randrange(5)))
        case A.FLOAT:
            attribute.f = rng.choice(FLOATS)
        case A.STRING:
            attribute.s = rng.choice(TEXTS).encode()


def _schema_attributes(op: str, domain: str) -> dict[str, int]:
    if not onnx.defs.has(op, domain):
        return {}
    rules = onnx.defs.get_schema(op, domain).attributes
    return {name: int(rule.type.value) for name, rule in sorted(rules.items())}


def remove_attribute(proto: onnx.ModelProto, rng: Rng) -> None:
    node = _node(proto, rng)
    if node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


# --- names and wiring ---------------------------------------------------------------------------


def rewire(proto: onnx.ModelProto, rng: Rng) -> None:
    """An operand reads another value, is left out, swapped or added."""
    node = _node(proto, rng)
    if len(node.input) > 1 and rng.random() < 0.3:
        node.input[:] = rng.sample(list(node.input), len(node.input))
    else:
        _replace(node.input, rng, _names(proto))


def rename_output(proto: onnx.ModelProto, rng: Rng) -> None:
    _replace(_node(proto, rng).output, rng, _names(proto))


def rename_node(proto: onnx.ModelProto, rng: Rng) -> None:
    _node(proto, rng).name = rng.choice(["", "it", "a/b c", "\n", "é" * 300])


def change_operator(proto: onnx.ModelProto, rng: Rng) -> None:
    """Another operator on the same operands."""
    node = _node(proto, rng)
    node.domain, node.op_type = rng.choice(OPERATORS)
    if rng.random() < 0.1:
        node.domain = rng.choice(["", "nowhere", "ai.onnx", "ai.onnx.ml", "com.microsoft"])


OPERATORS = sorted({(s.domain, s.name) for s in onnx.defs.get_all_schemas()} | set(TABLE))


def repeat_node(proto: onnx.ModelProto, rng: Rng) -> None:
    """A node twice; with names of its own half of the time."""
    graph = _graph(proto, rng)
    if not graph.node:
        return
    copy = graph.node.add()
    copy.CopyFrom(rng.choice(graph.node))
    if rng.random() < 0.5:
        copy.output[:] = [f"{name}_again" for name in copy.output]
        copy.input[:] = [rng.choice(_names(proto)) for _ in copy.input]
        graph.output.add(name=copy.output[0] if copy.output else "y")


def remove_node(proto: onnx.ModelProto, rng: Rng) -> None:
    graph = _graph(proto, rng)
    if graph.node:
        del graph.node[rng.randrange(len(graph.node))]


def shuffle_nodes(proto: onnx.ModelProto, rng: Rng) -> None:
    graph = _graph(proto, rng)
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in graph.node]
    rng.shuffle(nodes)
    del graph.node[:]
    graph.node.extend(nodes)


def change_outputs(proto: onnx.ModelProto, rng: Rng) -> None:
    graph = _graph(proto, rng)
    match rng.randrange(4):
        case 0:
            del graph.output[:]
        case 1 if graph.output:
            del graph.output[rng.randrange(len(graph.output))]
        case 2 if graph.output:
            rng.choice(graph.output).name = rng.choice(_names(proto))
        case _:
            graph.output.add(name=rng.choice(_names(proto)))


def change_inputs(proto: onnx.ModelProto, rng: Rng) -> None:
    """An input is left out or renamed; a constant becomes an input."""
    graph = _graph(proto, rng)
    action = rng.randrange(4)
    if action == 0 and graph.input:
        del graph.input[rng.randrange(len(graph.input))]
    elif action == 1 and graph.input:
        rng.choice(graph.input).name = rng.choice(_names(proto))
    elif graph.initializer:
        index = rng.randrange(len(graph.initializer))
        tensor = graph.initializer[index]
        entry = graph.input.add(name=tensor.name)
        entry.type.tensor_type.elem_type = tensor.data_type
        for size in tensor.dims:
            entry.type.tensor_type.shape.dim.add(dim_value=size)
        if action == 2:
            del graph.initializer[index]


def remove_constant(proto: onnx.ModelProto, rng: Rng) -> None:
    graph = _graph(proto, rng)
    if graph.initializer:
        del graph.initializer[rng.randrange(len(graph.initializer))]


CHANGES = [
    change_dims, change_dims, change_dims, change_input_type, change_opset, change_tensor_dims,
    change_tensor_type, change_tensor_data, change_tensor_data, change_tensor_length,
    change_attribute, change_attribute, change_attribute, change_attribute_type, add_attribute,
    add_attribute, remove_attribute, rewire, rewire, rename_output, rename_node, change_operator,
    change_operator, repeat_node, remove_node, shuffle_nodes, change_outputs, change_inputs,
    change_inputs, remove_constant,
]  # fmt: skip
