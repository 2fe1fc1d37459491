"""Greedy generation with a KV cache that is updated in place: 64 tokens from a prompt of eight.

    python examples/generate/generate.py

The tokens are compared with those of the same model without a cache (every step computes the whole
sequence again), and with ONNX Runtime's, whose cache is a new, longer array in every step.
"""

from __future__ import annotations

import time

import numpy as np
import onnxruntime
from decoder import HEADS, STATE, VOCABULARY, WIDTH, decoder

import ingot

PROMPT, STEPS, CAPACITY = 8, 64, 128
EMPTY = {name: np.zeros((1, HEADS, 0, WIDTH), np.float32) for name in STATE}


def with_state(exe: ingot.Executable, prompt: np.ndarray) -> list[int]:
    cache, tokens, made = exe.new_state(batch=1), prompt, list[int]()
    for _ in range(STEPS):
        (logits,) = exe(tokens, state=cache)
        made.append(int(logits[0, -1].argmax()))
        tokens = np.array([made[-1:]])
    assert cache.length == PROMPT + STEPS - 1
    return made


def without_cache(exe: ingot.Executable, prompt: np.ndarray) -> list[int]:
    tokens = prompt
    for _ in range(STEPS):
        (logits,) = exe.run(["logits"], {"tokens": tokens, **EMPTY})
        tokens = np.append(tokens, logits[:, -1:].argmax(-1), axis=1)
    return tokens[0, PROMPT:].tolist()


def with_onnxruntime(model: bytes, prompt: np.ndarray) -> list[int]:
    session = onnxruntime.InferenceSession(model)
    past = EMPTY
    tokens, made = prompt, list[int]()
    for _ in range(STEPS):
        logits, *present = session.run(None, {"tokens": tokens, **past})
        past = dict(zip(STATE, present))
        made.append(int(logits[0, -1].argmax()))
        tokens = np.array([made[-1:]])
    return made


def main() -> None:
    model = decoder().SerializeToString()
    exe = ingot.compile(model, state=STATE, capacity=CAPACITY)
    prompt = np.random.default_rng(0).integers(0, VOCABULARY, (1, PROMPT))
    with_state(exe, prompt)  # warm-up
    start = time.perf_counter()
    made = with_state(exe, prompt)
    each_us = (time.perf_counter() - start) / STEPS * 1e6
    plain = ingot.compile(model)
    assert made == without_cache(plain, prompt), "they differ from those without a cache"
    assert made == with_onnxruntime(model, prompt), "they differ from ONNX Runtime's"
    print(" ".join(map(str, made)))
    print(f"{STEPS} tokens, {len(set(made))} different ones, {each_us:.0f} µs each; they agree")


if __name__ == "__main__":
    main()
