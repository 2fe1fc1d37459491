"""Operators on strings, and the decoder of images: steps of the host.

A host step has no loops: thread 0 calls its function in runtime/host_steps.py, which is also the
reference. What only moves or compares strings is native (`OpDef.takes_strings`), and so are
look-ups of strings among constants (lookup.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes, strings
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.opdef import PYTHON_WORK, Attrs, OpDef, register, type_error
from ingot.graph.types import TensorType, Type
from ingot.ops import common
from ingot.runtime.host_calls import evaluate


class HostOp(OpDef):
    """An operator that is a host step; it gives `infer` alone."""

    is_host_step = True
    takes_strings = True
    python_reference = True

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        plain = {k: v.name if isinstance(v, DType) else v for k, v in attrs.items()}
        return evaluate(self.name, inputs, plain, strings.current())

    def work_per_byte(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> float:
        return PYTHON_WORK

    def strings_of(self, inputs: Sequence[Type | None], count: int = 1) -> list[TensorType]:
        types = common.tensor_types(self.name, inputs, count)
        for type in types:
            common.require_dtype(self.name, type, dtypes.str_)
        return types


@register
class StringConcat(HostOp):
    """Each string of the first operand, followed by that of the second; they broadcast."""

    name = "string_concat"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, y = self.strings_of(inputs, 2)
        return [TensorType(dtypes.str_, common.broadcast_shapes(x.shape, y.shape))]


@register
class StringSplit(HostOp):
    """The parts of each string along a new last axis, whose size is bound to a symbol, and how many
    each has. `delimiter` "" is white space; `maxsplit` is the most splits, or none."""

    name = "string_split"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = self.strings_of(inputs)
        (symbol,) = attrs["symbols"]
        parts = TensorType(dtypes.str_, (*x.shape, arith.Var(symbol)))
        return [parts, TensorType(dtypes.i64, x.shape)]


@register
class StringNormalizer(HostOp):
    """Strings [C] or [1, C] without the `stopwords`, in the `case` LOWER, UPPER or as they are
    (NONE). The number that is left is bound to a symbol; if there is none, one empty string."""

    name = "string_normalizer"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = self.strings_of(inputs)
        why = f"the strings are {x}, not [C] or [1, C]"
        if x.rank not in (1, 2):
            raise type_error(self.name, why)
        if x.rank == 2:
            common.require_same_dim(self.name, x.shape[0], arith.Const(1), why)
        if attrs["case"] not in ("NONE", "LOWER", "UPPER"):
            raise type_error(self.name, f"case {attrs['case']!r} is not NONE, LOWER or UPPER")
        (symbol,) = attrs["symbols"]
        return [TensorType(dtypes.str_, (*x.shape[:-1], arith.Var(symbol)))]


@register
class RegexFullMatch(HostOp):
    """Whether the `pattern`, of RE2's syntax, matches the whole string."""

    name = "regex_full_match"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = self.strings_of(inputs)
        return [TensorType(dtypes.bool_, x.shape)]


@register
class ParseString(HostOp):
    """Strings as numbers of type `to`: a text that is no number is a run-time error."""

    name = "parse_string"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = self.strings_of(inputs)
        if attrs["to"].is_string:
            raise type_error(self.name, "the result is strings, not numbers")
        return [TensorType(attrs["to"], x.shape)]


@register
class FormatString(HostOp):
    """Numbers as strings: the shortest text that gives the number again; NaN, INF and -INF."""

    name = "format_string"
    takes_strings = False

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = common.tensor_types(self.name, inputs, 1)
        return [TensorType(dtypes.str_, x.shape)]


@register
class DecodeImage(HostOp):
    """The pixels [height, width, channels] of a compressed image, given as bytes. Height and width
    are bound to symbols; `pixel_format` is RGB, BGR or Grayscale."""

    name = "decode_image"
    takes_strings = False

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (data,) = common.tensor_types(self.name, inputs, 1)
        common.require_dtype(self.name, data, dtypes.u8)
        if data.rank != 1:
            raise type_error(self.name, f"the encoded image is {data}, not a vector of bytes")
        if attrs["pixel_format"] not in ("RGB", "BGR", "Grayscale"):
            raise type_error(self.name, f"no pixel format is called {attrs['pixel_format']!r}")
        height, width = map(arith.Var, attrs["symbols"])
        channels = arith.Const(1 if attrs["pixel_format"] == "Grayscale" else 3)
        return [TensorType(dtypes.u8, (height, width, channels))]
