"""Peak memory and compile time of a model with gigabytes of weights, in an external data file.

    python benchmarks/big_model.py [--gigabytes 3] [--folder DIR]

Writes layers of 64 MB each (a GEMV and an activation), compiles the model in a process of its own
with an empty cache, and loads it from the cache in another. Prints the time and the peak resident
memory of each process (VmHWM; mapped files count as far as they are resident). The bound is 1.3
times the weights plus 500 MB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

SIDE = 4096
LAYER_BYTES = SIDE * SIDE * 4
ROOT = Path(__file__).parents[1]

COMPILE = """
import time; start = time.perf_counter()
import os, sys
import ingot
exe = ingot.compile(sys.argv[1])
took = time.perf_counter() - start
import numpy as np
x = np.ones((1, 4096), np.float32)
y = exe(x)[0]
peak = next(l.split()[1] for l in open("/proc/self/status") if l.startswith("VmHWM"))
stages = sorted(exe.times_s.items(), key=lambda row: -row[1])[:4]
print(f"{took:.2f} {int(peak) / 1024:.0f} {float(abs(y).sum())!r}")
print(*(f"{name}={time_s:.2f}" for name, time_s in stages))
"""


def write_model(folder: Path, layers: int) -> Path:
    """Seeded random weights; the file is written layer by layer."""
    nodes, tensors, last = [], [], "x"
    rng = np.random.default_rng(0)
    with open(folder / "weights.bin", "wb") as file:
        for layer in range(layers):
            block = rng.standard_normal((SIDE, SIDE), np.float32) * np.float32(SIDE**-0.5)
            tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT)
            tensor.dims.extend(block.shape)
            tensor.data_location = TensorProto.EXTERNAL
            place = {"location": "weights.bin", "offset": file.tell(), "length": block.nbytes}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            tensors.append(tensor)
            file.write(block.data)
            nodes += [
                helper.make_node(
                    "MatMul", [last, f"w{layer}"], [f"p{layer}"], name=f"matmul{layer}"
                ),
                helper.make_node("LeakyRelu", [f"p{layer}"], [f"a{layer}"], name=f"act{layer}"),
            ]
            last = f"a{layer}"
    shape = [1, SIDE]
    graph = helper.make_graph(
        nodes, "big",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)], tensors,
    )  # fmt: skip
    path = folder / "big.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def compile_in_a_process(path: Path, cache: Path) -> list[str]:
    environment = {**os.environ, "INGOT_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    environment["INGOT_CACHE_LIMIT_BYTES"] = str(64 << 30)
    command = [sys.executable, "-c", COMPILE, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout.split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--folder", help="folder for the temporary files")
    options = parser.parse_args()
    layers = round(options.gigabytes * 1e9 / LAYER_BYTES)
    weights_mb = layers * LAYER_BYTES / 2**20
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        start = time.perf_counter()
        path = write_model(Path(name), layers)
        print(f"{layers} layers, {weights_mb:.0f} MB of weights, written in "
              f"{time.perf_counter() - start:.0f} s")  # fmt: skip
        allowed = 1.3 * weights_mb + 500
        outputs = []
        for what in ("cold", "from the cache"):
            took, peak, output, *stages = compile_in_a_process(path, Path(name, "cache"))
            outputs.append(output)
            verdict = "within" if float(peak) <= allowed else "OVER"
            print(f"{what:15} {took:>7} s   peak {peak:>6} MB, {verdict} {allowed:.0f} MB   "
                  f"{' '.join(stages)}")  # fmt: skip
        assert outputs[0] == outputs[1], outputs


if __name__ == "__main__":
    main()
