"""Which entries of op_db are cases: operators of core ATen, nn.functional, and some composite ones.

Called by cases.py. The types of the cases, and how many samples of each.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from tests.conformance_torch import own_samples

DTYPES = {
    "f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64, "i64": torch.int64,
    "bool": torch.bool,
}  # fmt: skip
COUNTS = {"f32": 6, "bf16": 6, "f64": 2, "i64": 2, "bool": 2}

ALSO = frozenset({
    "softmax", "log_softmax", "__getitem__", "index_put", "matmul", "einsum", "native_batch_norm",
    "_native_batch_norm_legit", "native_layer_norm", "cdist", "fft.rfft", "fft.irfft",
})  # fmt: skip

UNDEFINED = frozenset({"empty", "empty_strided"})  # results that are not initialised


@cache
def core_names() -> frozenset[str]:
    """Names of the operators of core ATen, without overloads."""
    aten, found = torch.ops.aten, set()
    for name in dir(aten):
        packet = getattr(aten, name)
        if hasattr(packet, "overloads"):
            tags = [getattr(packet, overload).tags for overload in packet.overloads()]
            found |= {name} if any(torch.Tag.core in t for t in tags) else set()
    return frozenset(found)


@cache
def entries() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, Any] = {}
    for info in op_db:
        is_case = info.aten_name in core_names() or info.name in ALSO
        if is_case or info.name.startswith("nn.functional."):
            variant = f".{info.variant_test_name}" if info.variant_test_name else ""
            found[f"{info.name}{variant}"] = info
    return found | {f"core {name}": own for name, own in own_samples.TABLE.items()}
