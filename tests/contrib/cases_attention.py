"""Cases of the attention operators: Attention, QAttention, MultiHeadAttention."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.contrib.data import bytes_, made_of, one, real, whole
from tests.contrib.harness import Case

HEADS, SIZE = 2, 4
HIDDEN = HEADS * SIZE


def masks(batch: int, rows: int, keys: int, key: object) -> dict[str, np.ndarray]:
    """A mask in each form; a sequence sees at least one key."""
    lengths = whole(batch, key=key, low=1, high=keys + 1)
    starts = whole(batch, key=(key, "s"), high=keys) % lengths
    raw = whole(batch, keys, key=key, high=2)
    raw[:, 0] = 1
    each = whole(batch, rows, keys, key=key, high=2)
    each[:, :, 0] = 1
    sums = np.arange(batch + 1, dtype=np.int32) * rows
    return {
        "lengths": lengths, "left": np.concatenate([lengths, starts]).astype(np.int32),
        "sums": np.concatenate([lengths, sums, sums]).astype(np.int32), "raw": raw, "each": each,
    }  # fmt: skip


def attention() -> list[Case]:
    cases = []
    kinds = ["", "lengths", "left", "raw", "each", "raw", "lengths", "each", "", "raw", "left", ""]
    for k, kind in enumerate(kinds):
        batch, rows, past = 1 + k % 3, 1 + k % 5, (k % 4) * (k % 2)
        x, w = real(batch, rows, 6, key=k), real(6, 3 * HIDDEN, key=k)
        values = HIDDEN
        attrs: dict[str, Any] = {"num_heads": HEADS, "unidirectional": int(k % 3 == 1)}
        if k in (4, 8):  # values of another size
            values = 6
            w = real(6, 2 * HIDDEN + values, key=k)
            attrs["qkv_hidden_sizes"] = [HIDDEN, HIDDEN, values]
        attrs |= {"mask_filter_value": -500.0} if k == 5 else {}
        attrs |= {"scale": 0.3} if k == 6 else {}
        keys = rows + past
        mask = masks(batch, rows, keys, k).get(kind)
        before = real(2, batch, HEADS, past, SIZE, key=k) if past else None
        bias = real(w.shape[1], key=k) if k % 4 != 2 else None
        extra = (
            real(batch if k % 2 else 1, HEADS, rows, keys, key="b")
            if k % 3 == 0 and not past
            else None
        )
        outputs = (0, 1) if past or k % 5 == 0 else (0,)
        outputs = (0,) if values != HIDDEN else outputs
        more = {"const": (1, 2), "dynamic": k % 2 == 0 and k != 8 and kind != "left"}
        fixed = [(0, 2), (4, 0), (4, 2), (4, 4), (5, 1), (5, 0)]
        inputs = [x, w, bias, mask, before, extra]
        case = Case("Attention", inputs, attrs, outputs, fixed=fixed, note=kind, **more)
        case.composed = [] if bias is not None else with_zero_bias(case, w.shape[1])
        cases.append(case)
        cases.append(quantised(k, kind))
    return cases


def with_zero_bias(case: Case, size: int) -> list:
    """The same node with a bias of zeros: ONNX Runtime crashes where there is none."""
    node = case.node()
    node.input[2] = "zeros"
    return [made_of("Constant", "", "zeros", value_floats=[0.0] * size), node]


def quantised(k: int, kind: str) -> Case:
    batch, rows, past = 1 + k % 3, 1 + k % 5, (k % 4) * (k % 2)
    x = bytes_(batch, rows, 6, key=k, dtype=np.uint8)
    w = bytes_(6, 3 * HIDDEN, key=k, dtype=np.int8)
    per_column = k % 3 == 2
    scale = np.abs(real(3 * HIDDEN, key=k)) * 0.02 if per_column else one(0.01)
    zeros = [np.asarray(3 + k, x.dtype), np.asarray(0, np.int8)]
    zeros[1] = np.zeros(3 * HIDDEN, np.int8) if per_column else zeros[1]
    mask = masks(batch, rows, rows + past, k).get(kind if kind != "left" else "lengths")
    before = real(2, batch, HEADS, past, SIZE, key=k) if past else None
    inputs = [
        x, w, real(3 * HIDDEN, key=k), one(0.02), scale, mask, zeros[0] if k % 4 else None,
        zeros[1] if k % 4 == 1 or per_column else None, before,
    ]  # fmt: skip
    if inputs[6] is None:
        inputs[7] = None
    attrs = {"num_heads": HEADS, "unidirectional": int(k % 3 == 1)}
    outputs = (0, 1) if past or k % 5 == 0 else (0,)
    const = (1, 2, 3, 4, 6, 7)
    return Case("QAttention", inputs, attrs, outputs, const, dynamic=k % 2 == 0,
                fixed=[(0, 2), (8, 0), (8, 2), (8, 4)], note=kind)  # fmt: skip


def multi_head() -> list[Case]:
    cases = []
    kinds = ["", "lengths", "raw", "each", "raw", "", "lengths", "raw", "", "each", "raw", ""]
    for k, kind in enumerate(kinds):
        batch, rows = 1 + k % 3, 1 + k % 5
        is_cross = k % 4 == 2
        new = rows + 3 if is_cross else rows
        past = 0 if is_cross or k % 2 else k % 5
        keys = new + past
        q, key = real(batch, rows, HIDDEN, key=k), real(batch, new, HIDDEN, key=(k, "k"))
        v_size = 6 if k in (3, 9) else HIDDEN
        v = real(batch, new, v_size, key=(k, "v"))
        bias = real(2 * HIDDEN + v_size, key=k) if k % 3 else None
        if k == 5:  # keys and values as heads
            key, v = (real(batch, HEADS, 7, SIZE, key=(k, n)) for n in "kv")
            keys, bias = 7, None
        extra = real(batch if k % 2 else 1, HEADS if k % 4 else 1, rows, keys, key="b")
        before = [real(batch, HEADS, past, SIZE, key=(k, n)) if past else None for n in "kv"]
        inputs = [q, key, v, bias, masks(batch, rows, keys, k).get(kind),
                  extra if k % 2 == 0 else None, *before]  # fmt: skip
        attrs: dict[str, Any] = {"num_heads": HEADS}
        attrs |= {"unidirectional": 1} if k % 3 == 1 and not is_cross else {}
        attrs |= {"scale": 0.4} if k == 7 else {}
        outputs = (0, 1, 2) if past or k % 5 == 1 else (0,)
        fixed = [(0, 2), (1, 2), (2, 2), (5, 0), (5, 1)]
        fixed += [(i, a) for i in (6, 7) for a in (1, 3)]
        fixed += [(i, a) for i in (1, 2) for a in (1, 3)] if k == 5 else []
        more = {"const": (3,), "dynamic": k % 3 != 0, "fixed": fixed, "note": kind}
        cases.append(Case("MultiHeadAttention", inputs, attrs, outputs, **more))
    return [*cases, *packed()]


def packed() -> list[Case]:
    """Packed Q, K and V, or K and V, which the CPU build does not take: in standard operators."""
    cases = []
    for k in range(4):
        parts, rows, batch = 3 if k % 2 else 2, 3 + k, 1 + k // 2
        whole_ = real(batch, rows, HEADS, parts, SIZE, key=k)
        q = real(batch, rows, HIDDEN, key=(k, "q"))
        names = ["q", "k", "v"][-parts:]
        source = "i0" if parts == 3 else "i1"
        nodes = [
            made_of("Split", source, " ".join(f"{n}p" for n in names), axis=3, num_outputs=parts),
            made_of("Constant", "", "three", value_ints=[3]),
            *[made_of("Squeeze", f"{n}p three", f"{n}s") for n in names],
            *[made_of("Transpose", f"{n}s", f"{n}h", perm=[0, 2, 1, 3]) for n in names],
        ]
        if parts == 2:
            nodes += [
                made_of("Constant", "", "shape", value_ints=[0, 0, HEADS, SIZE]),
                made_of("Reshape", "i0 shape", "qs"),
                made_of("Transpose", "qs", "qh", perm=[0, 2, 1, 3]),
            ]
        nodes += [
            made_of("Transpose", "kh", "kt", perm=[0, 1, 3, 2]), made_of("MatMul", "qh kt", "s"),
            made_of("Constant", "", "scale", value_float=0.5), made_of("Mul", "s scale", "sc"),
            made_of("Softmax", "sc", "w", axis=-1), made_of("MatMul", "w vh", "y"),
            made_of("Transpose", "y", "ym", perm=[0, 2, 1, 3]),
            made_of("Constant", "", "flat", value_ints=[0, 0, HIDDEN]),
            made_of("Reshape", "ym flat"),
        ]  # fmt: skip
        inputs = [whole_] if parts == 3 else [q, whole_]
        cases.append(Case("MultiHeadAttention", inputs, {"num_heads": HEADS, "scale": 0.5},
                          composed=nodes, note="packed"))  # fmt: skip
    return cases


def decoder() -> list[Case]:
    """Self-attention with a past in a larger buffer, and cross-attention."""
    cases = []
    for k in range(12):
        batch, past, is_cross, longest = 1 + k % 3, k % 5, k % 4 == 3, 8
        q = real(batch, 1, HIDDEN, key=k)
        if is_cross:
            key, v = (real(batch, HEADS, 5, SIZE, key=(k, n)) for n in "kv")
            keys = 5
        else:
            key, v = (real(batch, 1, HIDDEN, key=(k, n)) for n in "kv")
            keys = past + 1
        before = [real(batch, HEADS, longest, SIZE, key=(k, "p", n)) for n in "kv"]
        mask = masks(batch, 1, keys, k)["raw"] if k % 3 == 0 else None
        extra = real(1, HEADS, 1, keys, key=k) if k % 3 == 1 and not is_cross else None
        own = [None] * 3 if is_cross else [*before, np.array([past], np.int32)]
        bias = real(3 * HIDDEN, key=k) if k % 2 == 0 else None
        inputs = [q, key, v, mask, extra, *own, None, None, bias]
        attrs = {"num_heads": HEADS} | ({"scale": 0.7} if k == 4 else {})
        attrs |= {} if is_cross else {"past_present_share_buffer": 1}
        outputs = (0,) if is_cross else (0, 1, 2)
        cases.append(Case("DecoderMaskedMultiHeadAttention", inputs, attrs, outputs, const=(10,)))
    return cases


CASES = [*attention(), *multi_head(), *decoder()]
