"""Weights in files of their own, from the model file to a compiled run: places, errors, memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as P

import ingot
from tests.models.parts import info, model, node
from tests.refusal import refused

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(3).standard_normal((2, 4)).astype(np.float32)


def external(name: str, dims: list[int], location: str, code: int = P.FLOAT, **place: int) -> P:
    tensor = P(name=name, data_type=code, dims=dims, data_location=P.EXTERNAL)
    for key, value in {"location": location, **place}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def write(folder: Path, tensors: list[P]) -> Path:
    """y = x @ a + b + c, with those tensors."""
    nodes = [node("MatMul", "x a", "p"), node("Add", "p b", "q"), node("Add", "q c", "y")]
    proto = model("outside", nodes, [info("x", [2, 4])], [info("y", [2, 4])])
    proto.graph.initializer.extend(tensors)
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return path


def agree(path: Path) -> None:
    (want,) = onnxruntime.InferenceSession(path).run(None, {"x": X})
    (got,) = ingot.compile(path, jobs=1)(X)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def fill(path: Path, count: int, skip: int = 0) -> None:
    path.parent.mkdir(exist_ok=True)
    numbers = np.random.default_rng(len(path.name)).standard_normal(count).astype(np.float32)
    path.write_bytes(b"\xff" * skip + numbers.tobytes())


def test_several_files_offsets_and_one_range_twice(tmp_path: Path) -> None:
    """An offset need not be a multiple of the element's size, and files may be longer."""
    fill(tmp_path / "first.bin", 40, skip=3)
    fill(tmp_path / "more" / "second.data", 8)
    tensors = [
        external("a", [4, 4], "first.bin", offset=3, length=64),
        external("b", [4], "more/second.data", offset=16),
        external("c", [4], "more/second.data", offset=16, length=16),
    ]
    agree(write(tmp_path, tensors))


def test_narrow_types_and_empty_tensors(tmp_path: Path) -> None:
    """Half a byte per element, and a tensor without any."""
    (tmp_path / "w").write_bytes(bytes(range(16, 32)))
    proto = model(
        "narrow", [node("Cast", "w", "f", to=P.FLOAT), node("Concat", "f e", "y", axis=0)],
        [], [info("y", [5])], opset=21,
    )  # fmt: skip
    proto.graph.initializer.append(external("w", [5], "w", P.UINT4, offset=1, length=3))
    proto.graph.initializer.append(external("e", [0], "w", length=0))
    proto.ir_version = 10
    onnx.save(proto, tmp_path / "m.onnx")
    (got,) = ingot.compile(tmp_path / "m.onnx", jobs=1)()
    assert got.tolist() == [1, 1, 2, 1, 3]


def test_a_model_given_by_its_proto_has_no_folder(tmp_path: Path) -> None:
    tensors = [external(name, [4], "w.bin") for name in "abc"]
    proto = onnx.load(write(tmp_path, tensors), load_external_data=False)
    with refused("bad-model", "w.bin", where="a", hint="path"):
        ingot.compile(proto)


def test_missing_and_short_files_are_named(tmp_path: Path) -> None:
    fill(tmp_path / "w.bin", 16)
    tensors = [external("a", [4, 4], "w.bin"), external("b", [4], "w.bin"),
               external("c", [4], "w.bin", offset=52)]  # fmt: skip
    path = write(tmp_path, tensors)
    with refused("bad-model", "w.bin", 52, 68, 64, where="c"):
        ingot.compile(path)
    (tmp_path / "w.bin").unlink()
    with refused("bad-model", "w.bin", where="a", hint=str(tmp_path)):
        ingot.compile(path)
    (tmp_path / "w.bin").mkdir()
    with refused("bad-model", "w.bin", where="a"):
        ingot.compile(path)


# --- memory ---------------------------------------------------------------------------------------

LOOKUP = """
import json, sys
import numpy as np
import ingot
def anonymous():
    rows = [line.split() for line in open("/proc/self/smaps_rollup")]
    return {row[0]: int(row[1]) << 10 for row in rows if len(row) == 3}["Anonymous:"]
tiny, path, rows = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
ingot.compile(tiny, jobs=1)(np.zeros(len(rows), np.int64))   # what every compilation loads
start = anonymous()
for kind in ("compiled", "cached"):
    exe = ingot.compile(path, jobs=1)
    assert ("cache" in exe.times_s) == (kind == "cached")
    found = exe(np.array(rows))[0].tolist()
    print(json.dumps([anonymous() - start, exe.package.constants.nbytes, found]))
"""


def lookup_model(folder: Path, name: str, rows: int, width: int) -> Path:
    """A table in a sparse file, in which row r holds r where it is asked for."""
    proto = model(
        name, [node("Gather", "table ids", "y", axis=0)],
        [info("ids", ["n"], P.INT64)], [info("y", ["n", width])],
    )  # fmt: skip
    proto.graph.initializer.append(external("table", [rows, width], f"{name}.bin", offset=4096))
    with open(folder / f"{name}.bin", "wb") as file:
        for row in asked(rows):
            file.seek(4096 + row * width * 4)
            file.write(np.full(width, row, np.float32).tobytes())
        file.truncate(4096 + rows * width * 4)
    onnx.save(proto, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def asked(rows: int) -> list[int]:
    return [0, rows // 2 + 1, rows - 1]


def check_memory(folder: Path, rows: int, width: int, limit_bytes: int) -> None:
    """A lookup in a process that compiles the model, and then finds it in the cache."""
    tiny, path = (lookup_model(folder, n, r, width) for n, r in (("tiny", 9), ("table", rows)))
    environment = os.environ | {
        "INGOT_CACHE_DIR": str(folder / "cache"), "INGOT_CACHE_LIMIT_BYTES": str(64 << 30),
        "INGOT_CACHE_MODELS": "1", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [sys.executable, "-c", LOOKUP, str(tiny), str(path), json.dumps(asked(rows))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        anonymous, constants, found = json.loads(line)
        assert found == [[float(row)] * width for row in asked(rows)]
        assert constants >= rows * width * 4
        assert anonymous < limit_bytes, f"{anonymous >> 20} MB of anonymous memory"


def test_weights_are_mapped_once_and_not_in_memory_of_the_process(tmp_path: Path) -> None:
    check_memory(tmp_path, 1 << 16, 256, 16 << 20)


@pytest.mark.long
def test_more_than_two_gigabytes(tmp_path: Path) -> None:
    """A protobuf ends at 2 GB; external data does not, nor do offsets in it."""
    check_memory(tmp_path, 9 << 16, 1024, 64 << 20)
