"""GridSample, RoiAlign, NonMaxSuppression, bilinear Resize alone: Ingot and ONNX Runtime in turns.

    python -m benchmarks.vision_ops            1 and 2 threads, one second for each row

Prints the least time of each and their ratio (above 1: Ingot is faster), and the largest difference
of the results. In: nothing. Called by hand.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import ingot

SECONDS = 1.0  # of alternating runs for each row
Arrays = dict[str, np.ndarray]


def model_of(op: str, feeds: Arrays, known: Arrays, opset: int, **attrs: Any) -> onnx.ModelProto:
    """One node whose operands are the feeds, then the constants; "" stands for an absent one."""
    node = helper.make_node(op, [*feeds, *known], ["y"], **attrs)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    held = [numpy_helper.from_array(a, n) for n, a in known.items() if n]
    output = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([node], op, inputs, [output], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 10
    return model


def rows() -> Iterator[tuple[str, onnx.ModelProto, Arrays]]:
    rng = np.random.default_rng(0)
    for n, c, size in ((1, 64, 64), (8, 3, 224)):
        grid = rng.uniform(-1.1, 1.1, (n, size, size, 2)).astype(np.float32)
        feeds = {"x": rng.standard_normal((n, c, size, size)).astype(np.float32), "grid": grid}
        name = f"GridSample {n}x{c}x{size}x{size}"
        yield name, model_of("GridSample", feeds, {}, 16, mode="bilinear"), feeds
    for count in (100, 300):
        corner = rng.uniform(0, 500, (count, 2))
        rois = np.concatenate([corner, corner + rng.uniform(20, 300, (count, 2))], 1)
        feeds = {
            "x": rng.standard_normal((1, 256, 50, 50)).astype(np.float32),
            "rois": rois.astype(np.float32),
            "batch": np.zeros(count, np.int64),
        }
        attrs = {"output_height": 7, "output_width": 7, "spatial_scale": 1 / 16}
        yield f"RoiAlign {count} regions", model_of("RoiAlign", feeds, {}, 16, **attrs), feeds
    known = {"most": np.array([200]), "overlap": np.array([0.45], np.float32)}
    known["least"] = np.array([0.25], np.float32)
    for n in (1000, 8400):
        for classes in (1, 80):
            corner = rng.uniform(0, 640, (1, n, 2))
            boxes = np.concatenate([corner, corner + rng.uniform(10, 120, (1, n, 2))], -1)
            scores = rng.uniform(0, 1, (1, classes, n)) ** 4
            feeds = {"boxes": boxes.astype(np.float32), "scores": scores.astype(np.float32)}
            name = f"NonMaxSuppression {n} boxes, {classes} classes"
            yield name, model_of("NonMaxSuppression", feeds, known, 11), feeds
    feeds = {"x": rng.standard_normal((1, 64, 64, 64)).astype(np.float32)}
    known = {"": np.zeros(0), "scales": np.array([1, 1, 2, 2], np.float32)}
    yield "Resize 1x64x64x64 to 128x128", model_of("Resize", feeds, known, 13, mode="linear"), feeds


def least_times(runs: Mapping[str, Any], feeds: Arrays) -> dict[str, float]:
    """The least time of each, in turns, so that both meet the same load of the machine."""
    found = dict.fromkeys(runs, float("inf"))
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for name, run in runs.items():
            start = time.perf_counter()
            run(None, feeds)
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def difference(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a.astype(np.float64) - b).max(initial=0)) if a.shape == b.shape else np.inf


def main() -> None:
    for name, model, feeds in rows():
        for threads in (1, 2):
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            exe = ingot.compile(model, threads=threads)
            apart = difference(exe.run(None, feeds)[0], session.run(None, feeds)[0])
            times = least_times({"ingot": exe.run, "ort": session.run}, feeds)
            ratio = times["ort"] / times["ingot"]
            print(
                f"{name:42} {threads} threads: Ingot {times['ingot'] * 1e3:8.3f} ms, ONNX Runtime "
                f"{times['ort'] * 1e3:8.3f} ms, ratio {ratio:5.2f}, difference {apart:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
