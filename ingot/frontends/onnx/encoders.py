"""Converters of `ai.onnx.ml`'s encoders: labels, categories, maps; native on strings and numbers.

A table of keys is a constant, sorted, in which elements are looked up (ops/lookup.py). A map is two
vectors, of keys and of values; the border of a call makes them of the caller's dict, and the list
of dicts of what ZipMap gives (runtime/border.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, reshape
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value
from ingot.support.errors import IngotError

ML = "ai.onnx.ml"
# a table by number, with gaps, is used if its size is at most this (heuristic): one load is faster
# than a search, and strings of constants mostly have numbers in a row
DENSE_GROWTH, DENSE_SIZE = 4, 1024
MAX_COLUMNS = 1 << 24  # of a row that an attribute asks for; heuristic
_KINDS = {"strings": object, "int64s": np.int64, "floats": np.float32}


# --- tables -------------------------------------------------------------------------------------


def array_of(values: Any) -> np.ndarray:
    """An attribute as an array; strings as objects."""
    if isinstance(values, np.ndarray):
        return values
    return np.array(values, object if values and isinstance(values[0], str) else None)


def mapped(ctx: Importer, x: Value, keys: np.ndarray, values: np.ndarray, default: Any) -> Value:
    """values[i] where x is keys[i], else the default. Of equal keys the first counts."""
    stored = ctx.g.store.strings.encode(keys) if keys.dtype == object else keys
    distinct, first = np.unique(stored, return_index=True)
    last = np.array([default], values.dtype)
    table = np.concatenate([values.reshape(-1)[first], last])
    kind = dtypes.from_numpy(distinct.dtype)
    if kind.is_int or kind.is_string:
        numbers = [int(n) for n in distinct.astype(np.int64)]
        low, high = (numbers[0], numbers[-1]) if numbers else (0, -1)
        if high - low < DENSE_GROWTH * len(numbers) + DENSE_SIZE:
            dense = np.full(high - low + 2, last[0], values.dtype)
            dense[[n - low for n in numbers]] = table[:-1]
            wide = x if x.dtype.is_string else cast(ctx, x, dtypes.i64)
            return ctx.g.add("dense_lookup", [wide, ctx.g.constant(dense)], low=low)
    tables = [ctx.g.constant(distinct), ctx.g.constant(table)]
    return ctx.g.add("lookup", [cast(ctx, x, kind), *tables])


def positions(ctx: Importer, x: Value, keys: np.ndarray) -> Value:
    """The index of each element among the keys, or -1."""
    return mapped(ctx, x, keys, np.arange(keys.size), -1)


def _given(node: OnnxNode, prefix: str) -> tuple[str, np.ndarray] | None:
    """The one list `prefix`_floats, _int64s, _strings or _tensor of a node."""
    for kind, dtype in _KINDS.items():
        values = node.attr(f"{prefix}_{kind}")
        if values:
            return kind, np.array(values, dtype)
    tensor = node.attr(f"{prefix}_tensor")
    return None if tensor is None else ("tensor", tensor.reshape(-1))


@onnx_op("LabelEncoder", domain=ML, since=2)
def label_encoder(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    keys, values = _given(node, "keys"), _given(node, "values")
    if keys is None or values is None or keys[1].size != values[1].size:
        raise bad_model(node, "its keys and values are not two lists of one length")
    kind, table = values
    names = keys[1]
    if node.opset < 4 and names.dtype == np.float32:  # a NaN is no key then: nothing equals it
        table, names = table[names == names], names[names == names]
    tensor = node.attr("default_tensor")
    default: Any = {"strings": "_Unused", "int64s": -1, "floats": -0.0}.get(kind, 0)
    if kind == "tensor":
        default = "_Unused" if table.dtype == object else default
        default = default if tensor is None else tensor.reshape(-1)[0]
    else:
        default = node.attr(f"default_{kind.removesuffix('s')}", default)
    return [mapped(ctx, ctx.value(node, 0), names, table, default)]


@onnx_op("LabelEncoder", domain=ML)
def label_encoder_1(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Strings to their numbers, or numbers to strings."""
    return [_category(ctx, node, np.array(node.attr("classes_strings", ()), object), None)]


@onnx_op("CategoryMapper", domain=ML)
def category_mapper(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    names = np.array(node.attr("cats_strings", ()), object)
    numbers = np.array(node.attr("cats_int64s", ()), np.int64)
    if names.size != numbers.size:
        raise bad_model(node, f"it has {names.size} strings and {numbers.size} numbers")
    return [_category(ctx, node, names, numbers)]


def _category(
    ctx: Importer, node: OnnxNode, names: np.ndarray, numbers: np.ndarray | None
) -> Value:
    x = ctx.value(node, 0)
    codes = np.arange(names.size, dtype=np.int64) if numbers is None else numbers
    if x.dtype.is_string:
        return mapped(ctx, x, names, codes, node.attr("default_int64", -1))
    return mapped(ctx, x, codes, names, node.attr("default_string", "_Unused"))


@onnx_op("OneHotEncoder", domain=ML)
def one_hot_encoder(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """1 where the element is the category, along a new last axis."""
    x = ctx.value(node, 0)
    kind = "cats_strings" if x.dtype.is_string else "cats_int64s"
    if not node.attr(kind):
        raise bad_model(node, f"it has no {kind} for elements of type {x.dtype}")
    cats = array_of(node.attr(kind))
    if not x.dtype.is_string:
        x = cast(ctx, x, dtypes.i64)
    if not node.attr("zeros", 1):
        x = _known(ctx, x, cats)
    column = reshape(ctx, x, (*x.shape, 1))
    is_here = ctx.g.add("eq", [column, ctx.g.constant(cats)])
    return [cast(ctx, is_here, dtypes.f32)]


def _known(ctx: Importer, x: Value, cats: np.ndarray) -> Value:
    """x; a run-time error if an element is none of the categories."""
    found = positions(ctx, x, cats)
    is_missing = ctx.g.add("lt", [found, ctx.g.constant(np.array(0))])
    count = ctx.g.add("cast", [is_missing], to=dtypes.i64, mode="saturate")
    total = ctx.g.add("reduce_sum", [count], axes=tuple(range(len(x.shape))), keepdims=False)
    flag = ctx.g.add("eq", [total, ctx.g.constant(np.array(0))])
    why = "an element is none of the categories"
    return ctx.g.add("require", [x, flag], expected=True, reason=why)


def check_columns(size: int, node: OnnxNode) -> None:
    """An attribute of a few bytes may ask for a row of any size."""
    if size > MAX_COLUMNS:
        what = f"its rows have {size} columns, more than {MAX_COLUMNS}"
        raise IngotError("limit", what, where=node.where)


# --- maps ---------------------------------------------------------------------------------------


def map_parts(ctx: Importer, node: OnnxNode) -> tuple[Value, Value]:
    """Keys and values of a map, in ascending order of the keys (inputs.py)."""
    name = node.inputs[0]
    parts = replace(node, inputs=[f"{name}.keys", f"{name}.values"])
    return ctx.value(parts, 0), ctx.value(parts, 1)


def _scattered(ctx: Importer, values: Value, at: Value, size: int) -> Value:
    """A row of `size` values, each where `at` says, zero elsewhere; -1 is nowhere."""
    zero = np.zeros(size + 1, values.dtype.numpy)  # the last is where -1 goes
    row = ctx.g.add("scatter_elements", [ctx.g.constant(zero), at, values], axis=0)
    kept = ctx.g.add("slice", [row], starts=(0,), sizes=(size,), steps=(1,))
    return reshape(ctx, kept, (1, size))


@onnx_op("DictVectorizer", domain=ML)
def dict_vectorizer(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    keys, values = map_parts(ctx, node)
    kind = "string_vocabulary" if keys.dtype.is_string else "int64_vocabulary"
    words = array_of(node.attr(kind) or ())
    if not words.size:
        raise bad_model(node, f"it has no {kind}")
    at = positions(ctx, keys, words)
    return [_scattered(ctx, values, at, words.size)]


@onnx_op("CastMap", domain=ML)
def cast_map(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    keys, values = map_parts(ctx, node)
    names = {"TO_FLOAT": dtypes.f32, "TO_STRING": dtypes.str_, "TO_INT64": dtypes.i64}
    to = names.get(node.attr("cast_to", "TO_FLOAT"))
    form = node.attr("map_form", "DENSE")
    if to is None or form not in ("DENSE", "SPARSE"):
        raise bad_model(node, "its cast_to or map_form is unknown")
    if values.dtype.is_string and to is not dtypes.str_:
        made = ctx.g.add("parse_string", [values], to=to)
    elif to is dtypes.str_ and not values.dtype.is_string:
        made = ctx.g.add("format_string", [values])
    else:
        made = cast(ctx, values, to)
    if form == "DENSE":
        return [reshape(ctx, made, (1, *made.shape))]
    size = node.attr("max_map", 1)
    if size < 1:
        raise bad_model(node, f"its max_map is {size}")
    check_columns(size, node)
    return [_scattered(ctx, made, keys, size)]


@onnx_op("ZipMap", domain=ML)
def zip_map(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The scores themselves: the border makes a list of dicts of them, one for each row."""
    x = ctx.value(node, 0)
    labels = node.attr("classlabels_strings") or node.attr("classlabels_int64s")
    if not labels:
        raise bad_model(node, "it has no class labels")
    columns = x.shape[-1] if x.shape else arith.Const(1)
    if x.type.rank not in (1, 2) or arith.as_int(columns) not in (None, len(labels)):
        raise bad_model(node, f"it has {len(labels)} class labels for scores {x.type}")
    ctx.g.store.map_outputs[node.outputs[0]] = tuple(labels)
    return [ctx.g.add("identity", [x])]
