"""TensorProto → numpy: every element type Ingot has, from raw bytes, typed fields or another file.

In: an untrusted TensorProto. Out: an array of exactly the declared shape. Called by reading and
walker. A tensor whose data does not match its shape is rejected before anything is allocated.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.limits import check_rank, check_size
from ingot.frontends.onnx.loading import Source
from ingot.graph.types import TensorType
from ingot.graph.types import tensor as tensor_type
from ingot.support.errors import IngotError

P = onnx.TensorProto
DTYPES: dict[int, DType] = {
    P.FLOAT: dtypes.f32, P.UINT8: dtypes.u8, P.INT8: dtypes.i8, P.UINT16: dtypes.u16,
    P.INT16: dtypes.i16, P.INT32: dtypes.i32, P.INT64: dtypes.i64, P.BOOL: dtypes.bool_,
    P.FLOAT16: dtypes.f16, P.DOUBLE: dtypes.f64, P.UINT32: dtypes.u32, P.UINT64: dtypes.u64,
    P.BFLOAT16: dtypes.bf16, P.FLOAT8E4M3FN: dtypes.f8e4m3fn, P.FLOAT8E5M2: dtypes.f8e5m2,
    P.FLOAT8E4M3FNUZ: dtypes.of("f8e4m3fnuz"), P.FLOAT8E5M2FNUZ: dtypes.of("f8e5m2fnuz"),
    P.UINT4: dtypes.u4, P.INT4: dtypes.i4, P.FLOAT4E2M1: dtypes.of("f4e2m1fn"),
    P.FLOAT8E8M0: dtypes.of("f8e8m0fnu"), P.UINT2: dtypes.of("u2"), P.INT2: dtypes.of("i2"),
    P.STRING: dtypes.str_,
}  # fmt: skip

# limits of a dense form, because a few bytes of sparse data may declare any size; heuristic
SPARSE_BYTES = 64 << 10  # always allowed
SPARSE_GROWTH = 64  # dense bytes / sparse bytes

# the typed field of the elements, if it is not int32_data
_FIELDS: dict[int, str] = {
    P.FLOAT: "float_data", P.DOUBLE: "double_data", P.INT64: "int64_data",
    P.UINT32: "uint64_data", P.UINT64: "uint64_data",
}  # fmt: skip


def dtype_of(code: int, where: str) -> DType:
    """The element type of a TensorProto.DataType code."""
    if code in DTYPES:
        return DTYPES[code]
    known = code in P.DataType.values() and code != P.UNDEFINED
    name = P.DataType.Name(code).lower() if known else f"number {code}"
    raise IngotError(
        "unsupported-op" if known else "bad-model",
        f"tensors of element type {name} are not supported",
        where=where,
        hint="supported are integers, floats, bool and strings" if known else "",
    )


def type_proto(type: TensorType) -> onnx.TypeProto:
    """A type as the standard writes it; sizes that are expressions are left open."""
    code = next(code for code, dtype in DTYPES.items() if dtype is type.dtype)
    return onnx.helper.make_tensor_type_proto(code, [arith.as_int(size) for size in type.shape])


def to_array(tensor: onnx.TensorProto, source: Source, where: str = "") -> np.ndarray:
    """The tensor as an array; strings as an object array, which the constant store encodes.
    `where` is the location in errors for an unnamed tensor."""
    where = f"tensor {tensor.name!r}" if tensor.name else where
    dtype = dtype_of(tensor.data_type, where)
    shape = tuple(tensor.dims)
    if any(size < 0 for size in shape):
        raise IngotError("bad-model", f"its shape {list(shape)} has a negative size", where=where)
    check_rank(len(shape), where)
    if tensor.HasField("segment"):
        raise IngotError("bad-model", "segmented tensors are not supported", where=where)
    count = math.prod(shape)
    if dtype.is_string:
        flat = _strings(tensor, count, where)
    elif tensor.data_location == P.EXTERNAL:
        flat = _from_bytes(source.external_bytes(tensor, _byte_count(dtype, count)), dtype, count)
    elif tensor.HasField("raw_data"):
        raw = np.frombuffer(tensor.raw_data, np.uint8)
        _check_length(raw.size, _byte_count(dtype, count), "bytes", shape, where)
        flat = _from_bytes(raw, dtype, count)
    else:
        flat = _from_field(tensor, dtype, count, where)
    check_size(tensor_type(dtype, *shape), where)  # numpy rejects some shapes of empty tensors
    return flat.reshape(shape)


def _strings(tensor: onnx.TensorProto, count: int, where: str) -> np.ndarray:
    if tensor.data_location == P.EXTERNAL or tensor.HasField("raw_data"):
        raise IngotError("bad-model", "strings are not in string_data", where=where)
    _check_length(len(tensor.string_data), count, "strings", tuple(tensor.dims), where)
    flat = np.empty(count, object)
    try:
        flat[:] = [text.decode("utf-8") for text in tensor.string_data]
    except UnicodeDecodeError as error:
        raise IngotError("bad-model", "a string is not UTF-8", where=where) from error
    return flat


def sparse_to_array(sparse: onnx.SparseTensorProto, source: Source, where: str) -> np.ndarray:
    """The dense form of a sparse constant, limited to 64 times the bytes in the file."""
    shape = tuple(sparse.dims)
    where = f"sparse tensor {sparse.values.name!r}" if sparse.values.name else where
    if any(size < 0 for size in shape):
        raise IngotError("bad-model", f"negative size in dense shape {list(shape)}", where=where)
    check_size(tensor_type(dtype_of(sparse.values.data_type, where), *shape), where)
    if sparse.values.data_type == P.STRING:
        raise IngotError("unsupported-op", "sparse tensors of strings", where=where)
    values = to_array(sparse.values, source, where)
    indices = to_array(sparse.indices, source, where)
    limit = max(SPARSE_BYTES, SPARSE_GROWTH * (values.nbytes + indices.nbytes))
    if math.prod(shape) * values.itemsize > limit:
        what = f"its dense shape {list(shape)} is too large for {values.size} values"
        raise IngotError("limit", what, where=where)
    if indices.ndim == 2:
        if indices.shape[1] != len(shape):
            raise IngotError("bad-model", "its indices do not fit its rank", where=where)
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        inside = ((indices >= 0) & (indices < np.array(shape))).all()
        indices = indices @ np.array(strides, np.int64)
    else:
        inside = ((indices >= 0) & (indices < math.prod(shape))).all()
    if not inside or indices.shape != values.shape or indices.dtype != np.int64:
        raise IngotError("bad-model", "its indices do not fit its shape and values", where=where)
    dense = np.zeros(math.prod(shape), values.dtype)
    dense[indices] = values
    return dense.reshape(shape)


def _byte_count(dtype: DType, count: int) -> int:
    return (count * dtype.bits + 7) // 8


def _from_bytes(raw: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    if dtype.bits < 8:
        return _unpack(raw, dtype, count)
    if dtype.is_bool:
        return raw != 0  # a byte other than 0 and 1 is an invalid numpy bool
    little = raw.view(dtype.numpy.newbyteorder("<")) if dtype.bits > 8 else raw.view(dtype.numpy)
    return little.astype(dtype.numpy, copy=False)


def _unpack(raw: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """Elements of 2 or 4 bits, the first in the lowest bits of its byte."""
    shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    mask = np.uint8((1 << dtype.bits) - 1)
    bits = ((raw[:, None] >> shifts) & mask).reshape(-1)[:count]
    if dtype.is_float:
        return bits.view(dtype.numpy)  # ml_dtypes stores the bits in the low end of a byte
    if not dtype.is_signed:
        return bits.astype(dtype.numpy)
    sign = np.int16(1 << (dtype.bits - 1))
    return ((bits.astype(np.int16) ^ sign) - sign).astype(np.int8).astype(dtype.numpy)


def _from_field(tensor: onnx.TensorProto, dtype: DType, count: int, where: str) -> np.ndarray:
    data = getattr(tensor, _FIELDS.get(tensor.data_type, "int32_data"))
    packed = 8 // dtype.bits if dtype.bits < 8 else 1
    _check_length(len(data), -(-count // packed), "entries", tuple(tensor.dims), where)
    if tensor.data_type in _FIELDS:
        return np.array(data, _FIELD_DTYPE[tensor.data_type]).astype(dtype.numpy, copy=False)
    wide = np.array(data, np.int32)
    if dtype is dtypes.i32:
        return wide
    if dtype.is_bool:
        return wide != 0
    _check_range(wide, dtype, where)
    if dtype.bits == 16:
        return wide.astype(np.uint16).view(dtype.numpy)
    return _from_bytes(wide.astype(np.uint8), dtype, count)


def _check_range(wide: np.ndarray, dtype: DType, where: str) -> None:
    """The numbers are elements, or their bits; below a byte, several in one number."""
    bits = max(8, dtype.bits)
    bad = (wide < -(1 << (bits - 1))) | (wide >= 1 << bits)
    if bad.any():
        at = int(np.argmax(bad))
        what = f"element {at} is {wide[at]}, which {dtype} does not hold"
        hint = f"a file from another writer may say {wide[at] % (1 << bits)}"
        raise IngotError("bad-model", what, where=where, hint=hint)


_FIELD_DTYPE: dict[int, Any] = {
    P.FLOAT: np.float32, P.DOUBLE: np.float64, P.INT64: np.int64,
    P.UINT32: np.uint64, P.UINT64: np.uint64,
}  # fmt: skip


def _check_length(got: int, want: int, unit: str, shape: tuple[int, ...], where: str) -> None:
    if got != want:
        what = f"shape {list(shape)} needs {want} {unit} of data, there are {got}"
        hint = "the file is cut off, or was written for another shape or element type"
        raise IngotError("bad-model", what, where=where, hint=hint)
