"""NodeProto → OnnxNode: names, attributes as Python and numpy values, checked against the schema.

In: protos of an untrusted file. Out: decoded nodes. Called by walker and functions. Schemas come
from the onnx library, not from the file, so they are trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import onnx
from onnx import defs

from ingot.frontends.onnx.loading import Source
from ingot.frontends.onnx.registry import OnnxNode
from ingot.frontends.onnx.tensors import sparse_to_array, to_array
from ingot.support.errors import IngotError

A = onnx.AttributeProto
Attributes = Mapping[str, onnx.AttributeProto]


@dataclass(frozen=True)
class Frame:
    """The context of a list of nodes: operator sets, and the attributes of the enclosing call."""

    source: Source
    versions: Mapping[str, int]
    call: Attributes = field(default_factory=dict)  # targets of `ref_attr_name` in a function body
    path: str = ""  # prefix of the names of nodes in a function body
    depth: int = 0


def read_node(proto: onnx.NodeProto, index: int, frame: Frame) -> OnnxNode:
    """A node with decoded attributes and a checked number of operands."""
    node = bare_node(proto, index, frame)
    schema = schema_of(node.domain, node.op, node.opset)
    if schema is not None:
        _check_operands(node, schema)
    expected = dict(schema.attributes) if schema is not None else {}
    for name, attribute in attributes_of(proto, frame, node.where).items():
        want = _kind(expected[name]) if name in expected else 0
        node.attrs[name] = _read_attribute(attribute, want, frame.source, node.where)
    for name, rule in expected.items():
        if rule.required and name not in node.attrs:
            raise _bad(node.where, f"attribute {name!r} is missing")
    return node


def bare_node(proto: onnx.NodeProto, index: int, frame: Frame) -> OnnxNode:
    """The node without its attributes: operator, name, inputs and outputs."""
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    name = frame.path + (proto.name or f"{proto.op_type}#{index}")
    node = OnnxNode(proto.op_type, domain, name, list(proto.input), list(proto.output))
    node.opset = frame.versions.get(domain) or newest_opset(domain)
    return node


@cache
def newest_opset(domain: str) -> int:
    """The version of a domain that the model does not import: the newest, as in ONNX Runtime."""
    if not domain:
        return defs.onnx_opset_version()
    known = [s.since_version for s in defs.get_all_schemas_with_history() if s.domain == domain]
    return max(known, default=1)


def attributes_of(proto: onnx.NodeProto, frame: Frame, where: str) -> dict[str, A]:
    """Name → attribute, references to the enclosing function's attributes resolved."""
    found: dict[str, A] = {}
    for attribute in proto.attribute:
        if attribute.name in found:
            raise _bad(where, f"duplicate attribute {attribute.name!r}")
        if not attribute.ref_attr_name:
            found[attribute.name] = attribute
        elif attribute.ref_attr_name in frame.call:  # if absent, the default applies
            found[attribute.name] = frame.call[attribute.ref_attr_name]
    return found


def schema_of(domain: str, op: str, opset: int) -> defs.OpSchema | None:
    try:
        return defs.get_schema(op, opset, domain)
    except defs.SchemaError:
        return None


def _kind(rule: defs.OpSchema.Attribute) -> int:
    return int(rule.type.value)  # type: ignore[attr-defined]  # an enum, missing in the stubs


def _check_operands(node: OnnxNode, schema: defs.OpSchema) -> None:
    count = len(node.inputs)
    if not schema.min_input <= count <= schema.max_input:
        bounds = f"{schema.min_input} to {schema.max_input}"
        raise _bad(node.where, f"it has {count} operands, {node.op} expects {bounds}")
    if len(node.outputs) > schema.max_output:
        raise _bad(
            node.where,
            f"it has {len(node.outputs)} outputs, not {schema.max_output}",
        )


# --- attributes ---------------------------------------------------------------------------------

# attribute type → (its field, how to decode the field)
_READERS: dict[int, tuple[str, Callable[[Any, Source, str], Any]]] = {
    A.FLOAT: ("f", lambda v, s, w: float(v)),
    A.INT: ("i", lambda v, s, w: int(v)),
    A.STRING: ("s", lambda v, s, w: _text(v, w)),
    A.TENSOR: ("t", to_array),
    A.SPARSE_TENSOR: ("sparse_tensor", sparse_to_array),
    A.GRAPH: ("g", lambda v, s, w: v),
    A.TYPE_PROTO: ("tp", lambda v, s, w: v),
    A.FLOATS: ("floats", lambda v, s, w: list(v)),
    A.INTS: ("ints", lambda v, s, w: list(v)),
    A.STRINGS: ("strings", lambda v, s, w: _texts(v, w)),
    A.TENSORS: ("tensors", lambda v, s, w: [to_array(x, s, w) for x in v]),
    A.SPARSE_TENSORS: ("sparse_tensors", lambda v, s, w: [sparse_to_array(x, s, w) for x in v]),
    A.GRAPHS: ("graphs", lambda v, s, w: list(v)),
    A.TYPE_PROTOS: ("type_protos", lambda v, s, w: list(v)),
}
_VALUE_FIELDS = frozenset(field_name for field_name, _ in _READERS.values())


def _read_attribute(attribute: A, want: int, source: Source, where: str) -> Any:
    kind = attribute.type or want  # the oldest files omit the type
    if kind not in _READERS:
        raise _bad(where, f"attribute {attribute.name!r} has the unknown type {kind}")
    if want and kind != want:
        got, needed = (A.AttributeType.Name(k).lower() for k in (kind, want))
        raise _bad(where, f"attribute {attribute.name!r} is of type {got}, not {needed}")
    field_name, read = _READERS[kind]
    filled = {f.name for f, _ in attribute.ListFields()} & _VALUE_FIELDS
    if filled - {field_name}:
        found = ", ".join(sorted(filled))
        raise _bad(where, f"attribute {attribute.name!r} has type {field_name}, but holds {found}")
    try:
        return read(getattr(attribute, field_name), source, where)
    except IngotError as error:
        what = f"attribute {attribute.name!r}: {error.what}"
        raise IngotError(error.code, what, where=where, why=error.why, hint=error.hint) from error


def _texts(data: Sequence[bytes], where: str) -> list[str]:
    """Each string is decoded once: the nodes of a forest have millions of a few."""
    known = {each: _text(each, where) for each in set(data)}
    return [known[each] for each in data]


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad(where, "a string attribute is not UTF-8") from error


def _bad(where: str, what: str) -> IngotError:
    return IngotError("bad-model", what, where=where)
