"""A large model file → its protobuf without the bytes of large tensors, which stay in the file.

In: the mapped file, untrusted. Out: bytes for the protobuf parser, in which each initializer of a
megabyte or more says where in the file its raw data lies. Called by loading.py. Parsed as it is, a
file is in memory three times: as bytes, as a proto, and as arrays.

    ModelProto.graph = 7    GraphProto.initializer = 5    TensorProto.raw_data = 9

Only the fields on this path are looked into; anything unusual on it and the file is left as it is.
"""

from __future__ import annotations

import numpy as np

GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
EXTERNAL_DATA, DATA_LOCATION, KEY, VALUE = 13, 14, 1, 2
LARGE_BYTES = 1 << 20
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Unusual(Exception):
    """The bytes are not laid out as expected; the parser shall judge them."""


def slim(data: np.ndarray, key: str) -> bytes | None:
    """The model, with an `external_data` entry `key` = "offset length" in each tensor that was left
    out; None if there is nothing to gain."""
    view = data.data
    try:
        fields = _fields(view, 0, len(view))
        graphs = [row for row in fields if row[0] == GRAPH]
        if len(graphs) != 1:
            return None
        _, _, start, end = graphs[0]
        graph = _slim_graph(view, start, end, key)
    except Unusual:
        return None
    if graph is None:
        return None
    parts = [
        _message(GRAPH, graph) if number == GRAPH else bytes(view[begin:stop])
        for number, begin, _, stop in fields
    ]
    return b"".join(parts)


def _slim_graph(view: memoryview, start: int, end: int, key: str) -> bytes | None:
    parts, left_out = [], 0
    for number, begin, inside, stop in _fields(view, start, end):
        small = None
        if number == INITIALIZER and stop - inside > LARGE_BYTES:
            small = _slim_tensor(view, inside, stop, key)
        left_out += small is not None
        parts.append(bytes(view[begin:stop]) if small is None else _message(INITIALIZER, small))
    return b"".join(parts) if left_out else None


def _slim_tensor(view: memoryview, start: int, end: int, key: str) -> bytes | None:
    fields = _fields(view, start, end)
    raw = [row for row in fields if row[0] == RAW_DATA]
    if len(raw) != 1 or any(row[0] in (EXTERNAL_DATA, DATA_LOCATION) for row in fields):
        return None
    _, _, inside, stop = raw[0]
    place = _message(KEY, key.encode()) + _message(VALUE, f"{inside} {stop - inside}".encode())
    kept = [bytes(view[begin:last]) for number, begin, _, last in fields if number != RAW_DATA]
    where = _varint(DATA_LOCATION << 3 | _VARINT) + _varint(1)  # TensorProto.EXTERNAL
    return b"".join([*kept, _message(EXTERNAL_DATA, place), where])


def _fields(view: memoryview, at: int, end: int) -> list[tuple[int, int, int, int]]:
    """(number, where its tag begins, where its content begins, where it ends) of each field."""
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
            raise Unusual("a group")
        if at > end or tag >> 3 == 0:
            raise Unusual("a field that leaves its message")
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
    raise Unusual("a number that does not end")


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
