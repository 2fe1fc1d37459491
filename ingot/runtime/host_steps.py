"""The table of host steps: what Python does during a run, for strings and compressed images.

In: operands and attributes; strings are object arrays of str. Out: the results. A step is named as
the operator that it does (ops/strings.py). Everything else that a model computes is native code.
Called by host_calls.py.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.dtypes import DType
from ingot.runtime.regex import matcher
from ingot.support.errors import IngotError

Inputs = Sequence[Any]  # arrays; None for an operand that is absent
Attrs = Mapping[str, Any]
Step = Callable[[Inputs, Attrs], list[np.ndarray]]

_FALSE, _TRUE = ("0", "false", "False"), ("1", "true", "True")


def _objects(values: Sequence[str], shape: tuple[int, ...]) -> np.ndarray:
    made = np.empty(len(values), object)
    made[:] = values
    return made.reshape(shape)


def string_concat(inputs: Inputs, attrs: Attrs) -> list[np.ndarray]:
    """Each string of the first operand, followed by that of the second."""
    return [np.asarray(np.add(*inputs), object)]


def string_split(inputs: Inputs, attrs: Attrs) -> list[np.ndarray]:
    """The parts of each string along a new last axis, filled up with empty strings, and how many
    each has. Without a delimiter, parts are separated by white space."""
    (x,) = inputs
    by, most = attrs.get("delimiter") or None, attrs.get("maxsplit")
    rows = [text.split(by, -1 if most is None else most) for text in x.reshape(-1)]
    width = max(map(len, rows), default=0)
    parts = [part for row in rows for part in (*row, *[""] * (width - len(row)))]
    counts = np.array([len(row) for row in rows], np.int64).reshape(x.shape)
    return [_objects(parts, (*x.shape, width)), counts]


def string_normalizer(inputs: Inputs, attrs: Attrs) -> list[np.ndarray]:
    """Strings without the stop words, in another case. If none is left, one empty string."""
    (x,) = inputs
    cases: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}
    change = cases[attrs["case"]]
    same: Callable[[str], str] = str if attrs["is_case_sensitive"] else str.lower
    stopwords = {same(word) for word in attrs["stopwords"]}
    kept = [change(text) for text in x.reshape(-1) if same(text) not in stopwords] or [""]
    return [_objects(kept, (*x.shape[:-1], len(kept)))]


def regex_full_match(inputs: Inputs, attrs: Attrs) -> list[np.ndarray]:
    """Whether the pattern matches the whole string."""
    (x,) = inputs
    matches = matcher(attrs["pattern"])
    return [np.array([matches(text) for text in x.reshape(-1)], bool).reshape(x.shape)]


def parse_string(inputs: Inputs, attrs: Attrs) -> list[np.ndarray]:
    """Strings as numbers: decimal integers, and floats in plain or scientific notation."""
    (x,) = inputs
    dtype = dtypes.of(attrs["to"])
    return [_parsed(x.reshape(-1).tolist(), dtype).reshape(x.shape)]


def _parsed(texts: list[str], dtype: DType) -> np.ndarray:
    if dtype.is_bool:
        return np.array([_flag(text) for text in texts], bool)
    if dtype.is_int:
        numbers = [_integer(text, dtype) for text in texts]
        return np.array(numbers, np.uint64 if dtype.name == "u64" else np.int64).astype(dtype.numpy)
    floats = np.array([float(text) for text in texts], np.float64)
    wide = floats if dtype.bits >= 32 else floats.astype(np.float32)
    with np.errstate(all="ignore"):
        return wide.astype(dtype.numpy)


def _flag(text: str) -> bool:
    if text not in (*_FALSE, *_TRUE):
        raise IngotError("run-failed", f"the string {text!r} is no bool")
    return text in _TRUE


def _integer(text: str, dtype: DType) -> int:
    try:
        number = int(text)
    except ValueError:
        number = int(float(text))  # "3.0", "1e5": truncated as a float is
    if not dtype.lowest <= number <= dtype.highest:
        raise IngotError("run-failed", f"the number {text!r} does not fit {dtype}")
    return number


def format_string(inputs: Inputs, attrs: Attrs) -> list[np.ndarray]:
    """Numbers as strings: the shortest text that gives the number again; NaN, INF and -INF."""
    (x,) = inputs
    return [_objects([_text(value) for value in x.reshape(-1)], x.shape)]


def _text(value: Any) -> str:
    kind = dtypes.from_numpy(value.dtype)
    if not kind.is_float:
        return str(value)
    number = float(value)
    if number != number:
        return "NaN"
    if number in (float("inf"), -float("inf")):
        return "INF" if number > 0 else "-INF"
    return str(value)


def decode_image(inputs: Inputs, attrs: Attrs) -> list[np.ndarray]:
    """Pixels [height, width, channels] of a compressed image."""
    try:
        from PIL import Image
    except ImportError:
        what = "decoding an image needs the package pillow, which is not installed"
        raise IngotError("run-failed", what, hint="pip install pillow") from None
    (data,) = inputs
    layout = attrs["pixel_format"]
    with Image.open(io.BytesIO(data.tobytes())) as image:
        mode = "L" if layout == "Grayscale" else "RGB"
        pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    if layout == "Grayscale":
        return [pixels[:, :, None]]
    return [pixels[:, :, ::-1] if layout == "BGR" else pixels]


STEPS: dict[str, Step] = {
    "string_concat": string_concat,
    "string_split": string_split,
    "string_normalizer": string_normalizer,
    "regex_full_match": regex_full_match,
    "parse_string": parse_string,
    "format_string": format_string,
    "decode_image": decode_image,
}
