"""Untrusted files: damaged bytes, outside data that tries to leave the folder, tensors that lie."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto as P
from onnx import helper, numpy_helper

import ingot
from ingot import dtypes
from ingot.frontends.onnx.loading import Source, load
from ingot.frontends.onnx.tensors import DTYPES, sparse_to_array, to_array
from ingot.support.errors import IngotError
from tests.models.kinds import residual_cnn

SOURCE = Source(onnx.ModelProto(), "test", None)


def refused(call, *args, code: str = "bad-model") -> IngotError:
    with pytest.raises(IngotError) as caught:
        call(*args)
    assert caught.value.code == code, caught.value
    return caught.value


def test_truncated_anywhere() -> None:
    """Every prefix is refused or is a whole model that merely lost optional fields."""
    data = residual_cnn()[0].SerializeToString()
    cuts = [*range(40), *range(40, len(data), 997), *range(len(data) - 40, len(data))]
    for cut in cuts:
        try:
            load(data[:cut])
        except IngotError as error:
            assert error.code == "bad-model"
        else:
            assert cut > len(data) - 40, f"{cut} of {len(data)} bytes passed as a model"


@pytest.mark.parametrize("data", [b"", b"not a model", b"\x00" * 100, bytes(range(256)) * 4])
def test_garbage(data: bytes) -> None:
    refused(load, data)


def field(number: int, payload: bytes) -> bytes:
    """A message field as it lies in a file: for what the library would refuse to write."""
    size, length = len(payload), bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + payload


def whole(graph: bytes) -> bytes:
    version = field(8, b"\x10\x11")
    return b"\x08\x09" + field(7, graph) + version


@pytest.mark.parametrize("depth", [20, 200, 5000])
def test_a_choice_in_a_choice(depth: int) -> None:
    """model.graph.node.attribute.graph.node …, deeper than the parser or we go."""
    graph = b""
    for _ in range(depth):
        graph = field(1, field(4, b"If") + field(5, field(6, graph)))
    if depth == 20:
        assert load(whole(graph)).model.graph.node[0].op_type == "If"
    else:
        refused(load, whole(graph))


def test_a_million_nodes() -> None:
    error = refused(load, whole(field(1, field(4, b"Relu")) * 1_000_000), code="limit")
    assert "200000" in error.what


def test_not_a_model_at_all(tmp_path: Path) -> None:
    assert "cannot be read" in refused(load, tmp_path / "absent.onnx").what
    assert "cannot be read" in refused(load, tmp_path).what
    assert "int" in refused(load, 3).what


def test_versions_are_checked() -> None:
    proto = residual_cnn()[0]
    proto.opset_import[0].version = 999
    assert "999" in refused(load, proto, code="unsupported-op").what
    proto.opset_import[0].version = -1
    refused(load, proto)
    del proto.opset_import[:]
    assert "operator set" in refused(load, proto).what


# --- outside data -------------------------------------------------------------------------------


def outside(location: str, **entries: int) -> onnx.TensorProto:
    tensor = P(name="w", data_type=P.FLOAT, dims=[4], data_location=P.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    np.arange(8, dtype=np.float32).tofile(inside / "sub" / "w.bin")
    return inside


def read(folder: Path, tensor: onnx.TensorProto) -> np.ndarray:
    return to_array(tensor, Source(onnx.ModelProto(), "m", folder))


def test_outside_data_is_read(folder: Path) -> None:
    array = read(folder, outside("sub/w.bin", offset=8, length=16))
    assert array.tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "sub/../../secret.bin",
        "/etc/hostname",
        "..\\secret.bin",
        "C:\\w.bin",
        "",
        "\0",
    ],
)
def test_outside_data_may_not_leave_the_folder(folder: Path, location: str) -> None:
    error = refused(read, folder, outside(location))
    assert "outside the model's folder" in error.what and "'w'" in error.where


def test_links_may_not_leave_the_folder(folder: Path) -> None:
    os.symlink(folder.parent / "secret.bin", folder / "link.bin")
    os.symlink(folder.parent, folder / "up")
    os.symlink(folder / "sub" / "w.bin", folder / "fine.bin")
    assert "outside" in refused(read, folder, outside("link.bin")).what
    assert "outside" in refused(read, folder, outside("up/secret.bin")).what
    assert read(folder, outside("fine.bin", length=16)).tolist() == [0, 1, 2, 3]


def test_hard_links_are_refused(folder: Path) -> None:
    """Nothing in a hard link says where else the file is."""
    os.link(folder.parent / "secret.bin", folder / "hard.bin")
    error = refused(read, folder, outside("hard.bin"))
    assert "2 names" in error.what and "copy" in error.hint and "'w'" in error.where


def test_outside_data_that_cannot_be_opened(folder: Path) -> None:
    os.symlink("round.bin", folder / "round.bin")
    os.mkfifo(folder / "pipe.bin")
    for location in ("round.bin", "pipe.bin", "x" * 5000, "sub/w.bin/deeper"):
        error = refused(read, folder, outside(location))
        assert "'w'" in error.where and len(str(error)) < 6000


def test_outside_data_must_fit(folder: Path) -> None:
    assert "lie outside" in refused(read, folder, outside("sub/w.bin", offset=20)).what
    assert "16 bytes" in refused(read, folder, outside("sub/w.bin", length=12)).what
    assert "missing" in refused(read, folder, outside("no.bin")).what
    assert "missing" in refused(read, folder, outside("sub")).what
    refused(read, folder, outside("sub/w.bin", offset=-4))
    assert "path" in refused(to_array, outside("sub/w.bin"), SOURCE).hint


# --- tensors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", list(DTYPES), ids=lambda code: DTYPES[code].name)
@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0,)])
def test_every_element_type(code: int, shape: tuple[int, ...]) -> None:
    """From raw bytes and from typed fields, as onnx's own helper reads them."""
    dtype = DTYPES[code]
    low = -2 if dtype.is_signed else 0
    numbers = np.asarray(np.random.default_rng(1).integers(low, 2, shape)).astype(np.float32)
    array = numbers.astype(dtype.numpy)
    listed = helper.make_tensor("a", code, shape, numbers.reshape(-1).tolist())
    for tensor in (numpy_helper.from_array(array, "a"), listed):
        got, want = to_array(tensor, SOURCE), numpy_helper.to_array(tensor)
        assert got.dtype == dtype.numpy and got.shape == shape
        assert np.array_equal(got.astype(np.float32), want.astype(np.float32), equal_nan=True)


def test_tensors_that_lie() -> None:
    huge = P(name="w", data_type=P.FLOAT, dims=[1 << 40, 1 << 20], raw_data=b"1234")
    assert "there are 4" in refused(to_array, huge, SOURCE).what
    negative = P(name="w", data_type=P.FLOAT, dims=[-1])
    refused(to_array, negative, SOURCE)
    short = P(name="w", data_type=P.INT64, dims=[3], int64_data=[1, 2])
    assert "entries" in refused(to_array, short, SOURCE).what
    refused(to_array, P(name="w", dims=[1], raw_data=b"1"), SOURCE)
    refused(to_array, P(name="w", data_type=4711, dims=[1], raw_data=b"1"), SOURCE)
    text = P(name="w", data_type=P.STRING, dims=[1], string_data=[b"hi"])
    assert "string" in refused(to_array, text, SOURCE, code="unsupported-op").what


def test_empty_tensors_of_impossible_shape() -> None:
    """There are no bytes to miss, and numpy cannot hold the shape."""
    empty = P(name="w", data_type=P.FLOAT, dims=[1 << 62, 0])
    assert "TB" in refused(to_array, empty, SOURCE, code="limit").what
    none = numpy_helper.from_array(np.zeros(0, np.float32), "s")
    places = numpy_helper.from_array(np.zeros(0, np.int64))
    sparse = helper.make_sparse_tensor(none, places, [0, 1 << 62])
    assert "TB" in refused(sparse_to_array, sparse, SOURCE, "", code="limit").what


def test_sparse_constants() -> None:
    values = numpy_helper.from_array(np.array([1.5, 2.5], np.float32), "s")
    flat = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 5])), [2, 3])
    rows = numpy_helper.from_array(np.array([[0, 1], [1, 2]]))
    placed = helper.make_sparse_tensor(values, rows, [2, 3])
    for sparse in (flat, placed):
        assert sparse_to_array(sparse, SOURCE, "").tolist() == [[0, 1.5, 0], [0, 0, 2.5]]
    outside_shape = helper.make_sparse_tensor(
        values, numpy_helper.from_array(np.array([1, 6])), [2, 3]
    )
    refused(sparse_to_array, outside_shape, SOURCE, "")
    bomb = helper.make_sparse_tensor(values, rows, [1 << 30, 1 << 30])
    refused(sparse_to_array, bomb, SOURCE, "", code="limit")


def test_bool_bytes_are_made_clean() -> None:
    tensor = P(name="b", data_type=P.BOOL, dims=[3], raw_data=b"\x00\x01\x07")
    assert to_array(tensor, SOURCE).view(np.uint8).tolist() == [0, 1, 1]
    assert DTYPES[P.BOOL] is dtypes.bool_


# --- onnx's own C++ -----------------------------------------------------------------------------

# Modules that hand a whole model to C++ code, or open files that a model names.
NEVER = {
    "checker", "compose", "external_data_helper", "hub", "inliner", "model_container", "parser",
    "printer", "reference", "shape_inference", "tools", "utils", "version_converter",
}  # fmt: skip
NEVER_CALLED = {"load", "load_model", "load_external_data_for_model", "load_from_string", "save"}


def test_onnx_helpers_in_c_are_never_used() -> None:
    """A crash in them would be a crash of the user's process."""
    folder = Path(ingot.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        for found in ast.walk(ast.parse(path.read_text())):
            names: set[str] = set()
            match found:
                case ast.Import(names=aliases):
                    names = {a.name.removeprefix("onnx.") for a in aliases if "onnx." in a.name}
                case ast.ImportFrom(module=str(module), names=aliases) if module.startswith("onnx"):
                    names = {module.removeprefix("onnx.").split(".")[0], *(a.name for a in aliases)}
                case ast.Attribute(value=ast.Name(id="onnx"), attr=attr):
                    names = {attr}
            bad = names & (NEVER | NEVER_CALLED)
            assert not bad, f"{path.relative_to(folder)}:{found.lineno} uses onnx's {sorted(bad)}"  # type: ignore[attr-defined]
