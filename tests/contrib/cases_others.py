"""Cases of the operators that are alone, or have a standard counterpart."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.contrib.data import made_of, one, real, whole
from tests.contrib.harness import Case


def simple() -> list[Case]:
    cases = []
    for k in range(10):
        more = {"dynamic": k % 2 == 1}
        kind = [np.float32, np.int64, np.uint8, np.float64, np.bool_][k % 5]
        x = whole(2, 3, 4, key=k).astype(kind)
        axis = one([-1, 0, 2, -3, 3][k % 5], np.int32)
        cases.append(Case("ExpandDims", [x, axis], const=(1,), **more))
        depth = 1 + k % 3
        at = np.stack([whole(5, key=(k, n), high=size) for n, size in enumerate(x.shape)], axis=1)
        at = at[:, :depth].astype((np.int32, np.int64)[k % 2])
        cases.append(Case("GatherND", [x, at], **more, fixed=[(1, 1)]))
        step = [None, 2, -1, 0.5, 3][k % 5]
        kind = np.float32 if step == 0.5 or k % 2 else np.int64
        ends = [one(v, kind) for v in ((0, 7 + k) if step != -1 else (7 + k, 0))]
        ends += [] if step is None else [one(step, kind)]
        ends = [e.reshape(1) for e in ends] if k % 3 == 0 else ends
        cases.append(Case("Range", ends, const=(0, 1, 2) if k % 4 == 0 else ()))
        diagonal = None if k % 3 == 0 else one(k % 5 - 2, np.int64)
        cases.append(Case("Trilu", [real(2, 3 + k, 4, key=k), diagonal], {"upper": k % 2},
                          const=(1,), **more))  # fmt: skip
        cases.append(padded(k))
        a, b = real(1 + k, 5, key=k), real(3, 5, key=(k, "b"))
        kind = np.float64 if k % 4 == 3 else np.float32
        attrs = {"metric": "euclidean"} if k % 2 else {"metric": "sqeuclidean"}
        cases.append(Case("CDist", [a.astype(kind), b.astype(kind)], attrs, **more))
        values = whole(1 + 3 * k, key=k, high=9).astype(np.float32)
        cases.append(Case("Unique", [values], outputs=(0, 1, 2), **more))
        size = 1 + k % 4
        ids = whole(1 + k % 3, 6 + k, key=k, high=4, dtype=np.int64)
        scores = real(1 + k % 3, 12, key=k)
        cases.append(Case("NGramRepeatBlock", [ids, scores], {"ngram_size": size}, **more,
                          fixed=[(0, 1)]))  # fmt: skip
    return cases


def padded(k: int) -> Case:
    x = real(2, 4, 5, key=k)
    pads = whole(6, key=k, low=-1 if k % 3 == 0 else 0, high=2, dtype=np.int64)
    mode = ("constant", "edge", "reflect")[k % 3]
    value = None if k % 2 else one(1.5).reshape((1,) if k % 4 else ())
    value = None if mode != "constant" else value
    pads = pads.reshape(1, 6) if k % 5 == 4 else pads
    return Case("Pad", [x, pads, value], {"mode": mode}, const=(1,), dynamic=k % 2 == 1)


def transforms() -> list[Case]:
    """Not in the CPU build: the standard's DFT."""
    cases = []
    for k in range(10):
        size = 2 * (1 + 3 * k)
        x = real(*[(1,), (2,), (3, 2)][k % 3], size, key=k)
        attrs: dict[str, Any] = {"signal_ndim": 1, "onesided": 1, "normalized": 0}
        nodes = [
            made_of("Constant", "", "last", value_ints=[-1]),
            made_of("Unsqueeze", "i0 last", "wide"),
            made_of("Constant", "", "one", value_int=-2),
            made_of("DFT", "wide absent one", onesided=1),
        ]
        nodes[-1].input[1] = ""
        cases.append(Case("Rfft", [x], attrs, composed=nodes, dynamic=k % 2 == 1, tolerance=1e-5))
        spectrum = np.fft.rfft(x.astype(np.float64))
        parts = np.stack([spectrum.real, spectrum.imag], axis=-1).astype(np.float32)
        cases.append(inverse(parts, k, attrs))
    return cases


def inverse(parts: np.ndarray, k: int, attrs: dict) -> Case:
    """The mirrored half is conjugated and appended, then the standard's inverse DFT."""
    count = parts.shape[-2]
    nodes = [
        made_of("Constant", "", "inner", value_ints=[*range(count - 2, 0, -1)] or [0]),
        made_of("Gather", "i0 inner", "mirror", axis=-2),
        made_of("Constant", "", "sign", value_floats=[1.0, -1.0]),
        made_of("Mul", "mirror sign", "other"),
        made_of("Concat", "i0 other", "whole", axis=-2),
        made_of("Constant", "", "axis", value_int=-2),
        made_of("DFT", "whole absent axis", "y", inverse=1),
        made_of("Constant", "", "zero", value_int=0),
        made_of("Gather", "y zero", axis=-1),
    ]
    nodes[6].input[1] = ""
    if count <= 2:
        nodes = [made_of("Identity", "i0", "whole"), *nodes[5:]]
    return Case("Irfft", [parts], attrs, composed=nodes, dynamic=k % 2 == 0, tolerance=1e-5)


def gates() -> list[Case]:
    cases = []
    for k in range(10):
        rows, size = [(3,), (2, 5), (1, 1), (2, 3, 2), (4,)][k % 5], 8 + 4 * (k % 3)
        x, y, gate = (real(*rows, size, key=(k, n)) for n in "xyg")
        more = {"dynamic": k % 2 == 1, "fixed": [(0, len(rows))]}
        cases.append(Case("GatedAdd", [x, y, real(*rows, 1, key=k)], **more))
        scale = one(0.5 + k) if k % 3 == 0 else None
        cases.append(Case("ScaledSiLU", [x, scale], {} if k % 2 else {"alpha": 1.7}, **more))
        name = ("silu", "swish", "sigmoid")[k % 3]
        part = size if k % 2 else 4
        cases.append(Case("GatedRMSNorm", [x, real(part, key=k), gate], {"activation": name},
                          const=(1,), **more))  # fmt: skip
        attrs = {"num_branches": 2} if k % 2 else {}
        attrs |= {"epsilon": 1e-3} if k % 4 == 0 else {}
        branches = (2, size // 2) if k % 2 else (x.shape[-2], size)
        kinds = [None, (branches[1],), branches, (branches[0] * branches[1],)]
        shape = kinds[k % 4]
        scale = None if shape is None else real(*shape, key=k)
        cases.append(Case("BranchwiseRMSNorm", [x, scale], attrs, const=(1,)))
        window = {"size": 1 + k % 4, "step": 1 + k % 3, "dim": -1 if k % 2 else len(rows)}
        window |= {"dim": 0, "size": 1} if k > 7 else {}
        cases.append(Case("UnfoldTensor", [x], window, dynamic=k % 2 == 1))
    return cases


CASES = [*simple(), *transforms(), *gates()]
