"""Strips the data of large tensors from a model file before it is parsed.

In: the mapped file, untrusted. Out: bytes for the protobuf parser, in which each initializer of a
megabyte or more has the file offset of its raw data instead of the data, which is then mapped.
Called by loading.py. Without this, weights are in memory three times: as bytes, proto and arrays.

    ModelProto.graph = 7    GraphProto.initializer = 5    TensorProto.raw_data = 9

Only the fields on this path are decoded; if the encoding is unexpected, the file is parsed whole.
"""

from __future__ import annotations

import numpy as np

# field numbers of onnx.proto: ModelProto, GraphProto, TensorProto, StringStringEntryProto
GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
EXTERNAL_DATA, DATA_LOCATION, KEY, VALUE = 13, 14, 1, 2
LARGE_BYTES = 1 << 20  # size of an initializer from which it is stripped; heuristic
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protobuf


class UnexpectedEncoding(Exception):
    """The encoding is not as expected; the protobuf parser decides whether it is valid."""


def strip_large_tensors(data: np.ndarray, key: str) -> bytes | None:
    """The model, with an `external_data` entry `key` = "offset length" in each stripped tensor;
    None if there is none."""
    view = data.data
    try:
        fields = _fields(view, 0, len(view))
        graphs = [row for row in fields if row[0] == GRAPH]
        if len(graphs) != 1:
            return None
        _, _, start, end = graphs[0]
        graph = _strip_graph(view, start, end, key)
    except UnexpectedEncoding:
        return None
    if graph is None:
        return None
    messages = [
        _message(GRAPH, graph) if number == GRAPH else bytes(view[begin:stop])
        for number, begin, _, stop in fields
    ]
    return b"".join(messages)


def _strip_graph(view: memoryview, start: int, end: int, key: str) -> bytes | None:
    messages, stripped = [], 0
    for number, begin, inside, stop in _fields(view, start, end):
        small = None
        if number == INITIALIZER and stop - inside > LARGE_BYTES:
            small = _strip_tensor(view, inside, stop, key)
        stripped += small is not None
        messages.append(bytes(view[begin:stop]) if small is None else _message(INITIALIZER, small))
    return b"".join(messages) if stripped else None


def _strip_tensor(view: memoryview, start: int, end: int, key: str) -> bytes | None:
    fields = _fields(view, start, end)
    raw = [row for row in fields if row[0] == RAW_DATA]
    if len(raw) != 1 or any(row[0] in (EXTERNAL_DATA, DATA_LOCATION) for row in fields):
        return None
    _, _, inside, stop = raw[0]
    entry = _message(KEY, key.encode()) + _message(VALUE, f"{inside} {stop - inside}".encode())
    kept = [bytes(view[begin:last]) for number, begin, _, last in fields if number != RAW_DATA]
    location = _varint(DATA_LOCATION << 3 | _VARINT) + _varint(1)  # TensorProto.EXTERNAL
    return b"".join([*kept, _message(EXTERNAL_DATA, entry), location])


def _fields(view: memoryview, at: int, end: int) -> list[tuple[int, int, int, int]]:
    """(field number, offset of the tag, offset of the content, end) of each field."""
    found = []
    while at < end:
        begin = at
        tag, at = _read_varint(view, at, end)
        kind, inside = tag & 7, at
        if kind == _VARINT:
            _, at = _read_varint(view, at, end)
        elif kind == _BYTES:
            size, inside = _read_varint(view, at, end)
            at = inside + size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise UnexpectedEncoding("a group")
        if at > end or tag >> 3 == 0:
            raise UnexpectedEncoding("a field that exceeds its message")
        found.append((tag >> 3, begin, inside, at))
    return found


def _read_varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise UnexpectedEncoding("an unterminated varint")


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
