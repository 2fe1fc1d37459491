"""Quantise an ONNX file by NNCF, with its defaults for CPUs: symmetric, weights s8 per channel,
activations s8 where they have a sign, else u8 of zero point 0.

    build/quantised/nncf/bin/python benchmarks/quantised/nncf_static.py SOURCE TARGET FEEDS…

It runs in an environment of its own (models.py makes it), since NNCF pins packages; it imports
nothing of this repository. In: a float model, calibration inputs in .npz files. Out: a file of
QuantizeLinear and DequantizeLinear pairs.
"""

from __future__ import annotations

import sys

import nncf
import numpy as np
import onnx


def main(source: str, target: str, files: list[str]) -> None:
    feeds = []
    for file in files:
        with np.load(file, allow_pickle=False) as data:
            feeds.append({name: data[name] for name in data.files})
    made = nncf.quantize(
        onnx.load(source),
        nncf.Dataset(feeds),
        preset=nncf.QuantizationPreset.PERFORMANCE,
        subset_size=len(feeds),
        target_device=nncf.TargetDevice.CPU,
    )
    onnx.save(made, target)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
