"""Quantise an ONNX file as ONNX Runtime's documentation advises.

    python -m benchmarks.quantised.static METHOD SOURCE TARGET NAME=SIZE… FEEDS…

METHOD: `u8s8`, u8 activations and s8 weights per channel; `s8s8`, s8 activations; both by
quantize_static, ranges by MinMax over the arrays of FEEDS; or `dynamic`, quantize_dynamic. In: a
float model, its dynamic dimensions (the file gets these sizes), calibration inputs in .npz files.
Out: the quantised file. It runs in a process of its own, so that its memory is gone while runtimes
are timed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quant_pre_process,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.tools.onnx_model_utils import fix_output_shapes, make_dim_param_fixed

FIRST_OPSET = 13  # from which on scales may be per channel
Feeds = Mapping[str, np.ndarray]


class Reader(CalibrationDataReader):
    """Yields each of the feeds once."""

    def __init__(self, feeds: Sequence[Feeds]):
        self._rest = iter(feeds)

    def get_next(self) -> Feeds | None:  # type: ignore[override]
        return next(self._rest, None)


def quantise(
    method: str, source: Path, target: Path, sizes: Mapping[str, int], feeds: Sequence[Feeds]
) -> None:
    """Pre-process (shape inference, ONNX Runtime's basic optimisations), calibrate, quantise."""
    with tempfile.TemporaryDirectory(prefix="ingot-quantise-") as scratch:
        fixed, prepared = (str(Path(scratch) / f"{name}.onnx") for name in ("fixed", "prepared"))
        model = _of_opset(onnx.load(source), FIRST_OPSET)
        for name, size in sizes.items():
            make_dim_param_fixed(model.graph, name, size)
        fix_output_shapes(model)
        onnx.save(model, fixed)
        quant_pre_process(fixed, prepared)
        if method == "dynamic":
            quantize_dynamic(prepared, target, per_channel=True)
            return
        quantize_static(
            prepared,
            target,
            Reader(feeds),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8 if method == "u8s8" else QuantType.QInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
        )


def _of_opset(model: onnx.ModelProto, least: int) -> onnx.ModelProto:
    (found,) = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    return model if found >= least else onnx.version_converter.convert_version(model, least)


def read_feeds(files: Sequence[str]) -> list[Feeds]:
    found = []
    for file in files:
        with np.load(file, allow_pickle=False) as data:
            found.append({name: data[name] for name in data.files})
    return found


def main(words: Sequence[str]) -> None:
    method, source, target, *rest = words
    sizes = dict(word.split("=") for word in rest if "=" in word)
    feeds = read_feeds([word for word in rest if "=" not in word])
    quantise(method, Path(source), Path(target), {n: int(v) for n, v in sizes.items()}, feeds)


if __name__ == "__main__":
    main(sys.argv[1:])
