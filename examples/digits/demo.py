"""`make demo`: compile a small trained model, print its report, check its outputs, time it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import ingot
from ingot.support.dump import Dump

HERE = Path(__file__).parent


def main() -> None:
    data = np.load(HERE / "test.npz")
    images, labels, expected = data["images"], data["labels"], data["logits"]

    record = Dump()
    start = time.perf_counter()
    exe = ingot.compile(HERE / "digits.onnx", dump=record)
    print(f"compiled {exe} in {time.perf_counter() - start:.2f} s")
    print(record.table(), end="\n\n")
    print(exe.report(), end="\n\n")

    (logits,) = exe(images)
    error = float(np.abs(logits - expected).max() / np.abs(expected).max())
    accuracy = float((logits.argmax(1) == labels).mean())
    print(f"{len(images)} held-out digits: accuracy {accuracy:.4f}")
    print(f"largest difference from the trained model: {error:.1e} of its largest logit")
    if error > 1e-4 or accuracy < 0.97:
        raise SystemExit("the outputs of the compiled model differ from those of the trained one")

    for batch in (1, len(images)):
        x = np.ascontiguousarray(images[:batch])
        print(f"batch {batch:3}: {median_us(lambda x=x: exe(x)):8.1f} µs per call")


def median_us(call, rounds: int = 200) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e6


if __name__ == "__main__":
    main()
