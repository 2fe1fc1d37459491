"""Every spelling module, so that importing this one fills registry.TABLE. Imported by walker."""

from __future__ import annotations

import importlib
import importlib.util

FAMILIES = (
    "elementwise", "activation", "movement", "gather", "sources", "reduce", "matmul", "conv",
    "pool", "norm", "softmax", "quant", "rnn", "control",
)  # fmt: skip

for family in FAMILIES:
    if importlib.util.find_spec(f"ingot.frontends.onnx.{family}") is not None:
        importlib.import_module(f"ingot.frontends.onnx.{family}")
