"""Untrusted files: damaged bytes, external data outside the folder, inconsistent tensors."""

from __future__ import annotations

import ast
import errno
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
from tests.refusal import check, refused

SOURCE = Source(onnx.ModelProto(), "test", None)


def refusal(call, *args) -> IngotError:
    with pytest.raises(IngotError) as caught:
        call(*args)
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
    with refused("bad-model"):
        load(data)


def field(number: int, payload: bytes) -> bytes:
    """An encoded message field: for what the library would refuse to write."""
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
        check(refusal(load, whole(graph)), "bad-model")


def test_a_million_nodes() -> None:
    error = refusal(load, whole(field(1, field(4, b"Relu")) * 1_000_000))
    check(error, "limit", 200000, hint=False)


def test_not_a_model_at_all(tmp_path: Path) -> None:
    absent, reasons = tmp_path / "absent.onnx", (errno.ENOENT, errno.EISDIR)
    for path, reason in zip((absent, tmp_path), reasons):
        fact = os.strerror(reason)  # the system's own words
        check(refusal(load, path), "bad-model", fact, where=str(path), hint=False)
    check(refusal(load, 3), "bad-model", "onnx.ModelProto", "int", hint="torch.export.export")


def test_versions_are_checked() -> None:
    proto = residual_cnn()[0]
    proto.opset_import[0].version = 999
    check(refusal(load, proto), "unsupported-op", 999, where="residual_cnn", hint="onnx")
    proto.opset_import[0].version = -1
    check(refusal(load, proto), "bad-model", -1, where="residual_cnn", hint=False)
    del proto.opset_import[:]
    check(refusal(load, proto), "bad-model", where="residual_cnn", hint=False)


# --- external data ------------------------------------------------------------------------------


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


def test_external_data_is_read(folder: Path) -> None:
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
def test_external_data_may_not_leave_the_folder(folder: Path, location: str) -> None:
    check(refusal(read, folder, outside(location)), "bad-model", repr(location), where="'w'")


def test_links_may_not_leave_the_folder(folder: Path) -> None:
    os.symlink(folder.parent / "secret.bin", folder / "link.bin")
    os.symlink(folder.parent, folder / "up")
    os.symlink(folder / "sub" / "w.bin", folder / "fine.bin")
    for location in ("link.bin", "up/secret.bin"):
        check(refusal(read, folder, outside(location)), "bad-model", repr(location), where="'w'")
    assert read(folder, outside("fine.bin", length=16)).tolist() == [0, 1, 2, 3]


def test_hard_links_are_refused(folder: Path) -> None:
    """A hard link does not show where else the file is."""
    os.link(folder.parent / "secret.bin", folder / "hard.bin")
    check(refusal(read, folder, outside("hard.bin")), "bad-model", "'hard.bin'", 2, where="'w'")


def test_external_data_that_cannot_be_opened(folder: Path) -> None:
    os.symlink("round.bin", folder / "round.bin")
    os.mkfifo(folder / "pipe.bin")
    for location in ("round.bin", "pipe.bin", "x" * 5000, "sub/w.bin/deeper"):
        error = refusal(read, folder, outside(location))
        check(error, "bad-model", location[:200], where="'w'", hint=False)
        assert len(str(error)) < 6000


def test_external_data_must_fit(folder: Path) -> None:
    error = refusal(read, folder, outside("sub/w.bin", offset=20))
    check(error, "bad-model", 20, 36, "'w.bin'", 32, where="'w'")
    error = refusal(read, folder, outside("sub/w.bin", length=12))
    check(error, "bad-model", 16, 12, where="'w'", hint=False)
    for location in ("no.bin", "sub"):
        error = refusal(read, folder, outside(location))
        check(error, "bad-model", repr(location), where="'w'", hint=str(folder))
    error = refusal(read, folder, outside("sub/w.bin", offset=-4))
    check(error, "bad-model", "offset", -4, where="'w'", hint=False)
    error = refusal(to_array, outside("sub/w.bin"), SOURCE)
    check(error, "bad-model", "'sub/w.bin'", where="'w'", hint="path")


# --- tensors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [c for c in DTYPES if c != P.STRING], ids=lambda c: DTYPES[c].name)
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


def test_inconsistent_tensors() -> None:
    huge = P(name="w", data_type=P.FLOAT, dims=[1 << 40, 1 << 20], raw_data=b"1234")
    told = (f"[{1 << 40}, {1 << 20}]", 1 << 62, 4)
    check(refusal(to_array, huge, SOURCE), "bad-model", *told, where="'w'", hint=False)
    negative = P(name="w", data_type=P.FLOAT, dims=[-1])
    check(refusal(to_array, negative, SOURCE), "bad-model", "[-1]", where="'w'", hint=False)
    short = P(name="w", data_type=P.INT64, dims=[3], int64_data=[1, 2])
    check(refusal(to_array, short, SOURCE), "bad-model", "[3]", 3, 2, where="'w'", hint=False)
    for number in (0, 4711):
        error = refusal(to_array, P(name="w", data_type=number, dims=[1], raw_data=b"1"), SOURCE)
        check(error, "bad-model", number, where="'w'", hint=False)
    number = P(name="w", data_type=P.COMPLEX64, dims=[1], float_data=[1, 2])
    check(refusal(to_array, number, SOURCE), "unsupported-op", "complex64", where="'w'")
    text = P(name="w", data_type=P.STRING, dims=[1], raw_data=b"hi")
    check(refusal(to_array, text, SOURCE), "bad-model", "string_data", where="'w'", hint=False)


def test_empty_tensors_of_impossible_shape() -> None:
    """There are no bytes to miss, and numpy cannot hold the shape."""
    empty = P(name="w", data_type=P.FLOAT, dims=[1 << 62, 0])
    told = (f"f32[{1 << 62}, 0]", "64 TB")
    check(refusal(to_array, empty, SOURCE), "limit", *told, where="'w'", hint=False)
    none = numpy_helper.from_array(np.zeros(0, np.float32), "s")
    places = numpy_helper.from_array(np.zeros(0, np.int64))
    sparse = helper.make_sparse_tensor(none, places, [0, 1 << 62])
    told = (f"f32[0, {1 << 62}]", "64 TB")
    check(refusal(sparse_to_array, sparse, SOURCE, ""), "limit", *told, where="'s'", hint=False)


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
    error = refusal(sparse_to_array, outside_shape, SOURCE, "")
    check(error, "bad-model", where="'s'", hint=False)
    bomb = helper.make_sparse_tensor(values, rows, [1 << 30, 1 << 30])
    error = refusal(sparse_to_array, bomb, SOURCE, "")
    check(error, "limit", f"f32[{1 << 30}, {1 << 30}]", "64 TB", where="'s'", hint=False)


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
