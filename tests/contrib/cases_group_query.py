"""Cases of GroupQueryAttention and RotaryEmbedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.contrib.data import one, real, rng, whole
from tests.contrib.harness import Case

SIZE, LONGEST = 16, 24  # of a head, and the rows of the rotary tables


def tables(size: int = SIZE) -> list[np.ndarray]:
    angles = np.arange(LONGEST)[:, None] / 10 ** (np.arange(size // 2)[None] / size)
    return [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]


def group_query(
    key: object, batch: int = 1, rows: int = 1, past: int = 0, heads: int = 4, kv_heads: int = 2,
    capacity: int = 0, lengths: list[int] | None = None, packed: bool = False, bias: int = 0,
    rotary: bool = False, sink: bool = False, positions: bool = False, outputs: Any = (0, 1, 2),
    dynamic: bool = False, known: bool = False, **attrs: Any,
) -> Case:  # fmt: skip
    """`lengths` are those of the sequences with the new rows; `capacity` the rows of the cache."""
    total = past + rows
    lengths = lengths or [total] * batch
    q = real(batch, rows, (heads + 2 * kv_heads * packed) * SIZE, key=(key, "q"))
    k, v = (None if packed else real(batch, rows, kv_heads * SIZE, key=(key, n)) for n in "kv")
    cache = [
        real(batch, kv_heads, capacity or past, SIZE, key=(key, n)) if past or capacity else None
        for n in ("pk", "pv")
    ]
    inputs = [
        q, k, v, *cache, np.array(lengths, np.int32) - 1, one(total, np.int32),
        *(tables() if rotary else [None, None]),
        (np.arange(rows)[None] + np.array(lengths)[:, None] - rows).astype(np.int64)
        if positions else None,
        real(1 if bias == 1 else batch, 1 if bias == 1 else heads, rows, total, key=key)
        if bias else None,
        real(heads, key=(key, "sink")) if sink else None,
    ]  # fmt: skip
    attrs = {"num_heads": heads, "kv_num_heads": kv_heads, "do_rotary": int(rotary), **attrs}
    fixed = [(i, 2) for i in range(3)] + [(i, a) for i in (3, 4) for a in (1, 3)]
    fixed += [(10, 0), (10, 1), (11, 0), (9, 0)]
    const = (7, 8, 6) if known else (7, 8)
    return Case("GroupQueryAttention", inputs, attrs, outputs, const, dynamic, fixed, note=str(key))


def group_queries() -> list[Case]:
    return [
        group_query("prompt", batch=2, rows=5),
        group_query("prompt_equal_heads", rows=4, heads=3, kv_heads=3, dynamic=True),
        group_query("step", past=6, known=True),
        group_query("step_dynamic", batch=3, past=6, dynamic=True),
        group_query("lengths", batch=3, past=7, lengths=[8, 5, 3]),
        group_query("lengths_dynamic", batch=3, past=7, lengths=[4, 8, 6], dynamic=True),
        group_query("buffer", batch=2, past=5, capacity=12, lengths=[6, 3], known=True),
        group_query("buffer_dynamic", batch=2, past=5, capacity=12, dynamic=True),
        group_query("first_in_buffer", rows=5, capacity=9),
        group_query("chunk", rows=4, past=3, dynamic=True),
        group_query("packed", batch=2, rows=5, packed=True),
        group_query("packed_step", batch=2, past=3, packed=True, rotary=True, dynamic=True),
        group_query("rotary", batch=2, rows=6, rotary=True),
        group_query("rotary_interleaved", past=5, rotary=True, rotary_interleaved=1, batch=2,
                    lengths=[6, 4]),
        group_query("positions", rows=3, past=2, rotary=True, positions=True),
        group_query("window", rows=7, local_window_size=3),
        group_query("window_step", batch=2, past=8, lengths=[9, 5], local_window_size=4),
        group_query("softcap", rows=6, softcap=5.0, dynamic=True),
        group_query("scale", batch=2, past=4, scale=0.7),
        group_query("sink", batch=2, rows=4, sink=True),
        group_query("smooth", past=4, smooth_softmax=1, dynamic=True),
        group_query("bias", batch=2, rows=4, bias=2),
        group_query("one_bias_step", past=4, bias=1, softcap=3.0),
        group_query("scores", rows=4, qk_output=1, outputs=(0, 1, 2, 3)),
        group_query("weights", past=4, qk_output=2, outputs=(0, 1, 2, 3)),
        group_query("both_ways", rows=5, causal=0, dynamic=True),
        group_query("both_ways_step", batch=2, past=5, lengths=[6, 4], causal=0),
        group_query("many_heads", batch=2, rows=3, heads=8, kv_heads=1),
    ]  # fmt: skip


def rotary() -> list[Case]:
    cases = []
    for k in range(12):
        batch, rows, heads = 1 + k % 3, 1 + k % 5, 1 + k % 2
        is_short = k in (4, 5, 9, 10)  # part of a head is rotated
        turned = SIZE // 2 if is_short else SIZE
        shape = (batch, heads, rows, SIZE) if k % 2 else (batch, rows, heads * SIZE)
        x = real(*shape, key=k)
        positions = whole(batch, rows, key=k, high=LONGEST, dtype=np.int64)
        positions = positions if k % 3 else np.array([int(rng(k).integers(0, 9))])
        attrs: dict[str, Any] = {"interleaved": int(k % 4 >= 2)}
        attrs |= {"rotary_embedding_dim": turned, "num_heads": heads} if is_short else {}
        fixed = [(0, 2), (1, 0)] if k % 2 == 0 else [(0, 3), (1, 0)]
        cases.append(Case("RotaryEmbedding", [x, positions, *tables(turned)], attrs,
                          const=(2, 3), dynamic=k % 3 == 1, fixed=fixed[:1]))  # fmt: skip
    return cases


CASES = [*group_queries(), *rotary()]
