"""A model file, bytes or proto → a parsed ModelProto and the means to read its outside data.

In: path, bytes or ModelProto, untrusted. Out: `Source`. Called by walker.import_model.

Only slim.py and the protobuf parser touch the file; onnx's C++ checker, shape inference and version
converter never do. Outside data must lie in the model's own folder: no absolute path, no `..`, no
symbolic link that leads elsewhere, no file with a second name (a hard link hides where it is from).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import defs

from ingot.frontends.onnx.limits import check_count
from ingot.frontends.onnx.slim import slim
from ingot.runtime import plan_file
from ingot.support.errors import IngotError

SHOWN_PATH = 200  # characters
LARGE_FILE_BYTES = 8 << 20  # read in two steps, so that its tensors stay where they are


@dataclass(frozen=True)
class Source:
    """A parsed model, what to call it in errors, and the folder its outside data may lie in."""

    model: onnx.ModelProto
    name: str
    folder: Path | None
    opened: set[str] = field(default_factory=set)  # files with outside data, within the folder
    file: np.ndarray | None = None  # the model's own bytes, mapped
    own_key: str = ""  # of the entry that says where in them a tensor's data lies

    def outside_bytes(self, tensor: onnx.TensorProto, byte_count: int) -> np.ndarray:
        """The `byte_count` bytes of a tensor kept in another file, mapped read-only."""
        where = f"tensor {tensor.name!r}"
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if self.file is not None and self.own_key in entries:
            offset, length = map(int, entries[self.own_key].split())
            if length != byte_count:
                shape = list(tensor.dims)
                what = f"shape {shape} needs {byte_count} bytes of data, there are {length}"
                raise IngotError("bad-model", what, where=where)
            return self.file[offset : offset + length]
        location = entries.get("location", "")
        offset = _count(entries.get("offset", "0"), "offset", where)
        length = _count(entries.get("length", str(byte_count)), "length", where)
        if length != byte_count:
            what = f"its shape needs {byte_count} bytes, its entry says {length}"
            raise IngotError("bad-model", what, where=where)
        try:
            return self._mapped(location, offset, length, where)
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            what = f"the file with its data cannot be read: {location[:SHOWN_PATH]!r}"
            raise IngotError("bad-model", what, where=where, why=str(error)[:SHOWN_PATH]) from error

    def _mapped(self, location: str, offset: int, length: int, where: str) -> np.ndarray:
        path = self._outside_path(location, where)
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())  # of what was opened: a path may change meanwhile
            if stat.st_nlink > 1:
                what = f"the file with its data, {location!r}, has {stat.st_nlink} names"
                why = "a hard link may lead to a file outside the model's folder"
                hint = "put a copy in its place"
                raise IngotError("bad-model", what, where=where, why=why, hint=hint)
            if offset + length > stat.st_size:
                what = f"bytes {offset} to {offset + length} lie outside {path.name!r}"
                what += f" ({stat.st_size} bytes)"
                raise IngotError("bad-model", what, where=where, hint="is the file complete?")
            self.opened.add(location)
            if length == 0:
                return np.empty(0, np.uint8)
            return np.memmap(file, np.uint8, "r", offset=offset, shape=(length,))

    def _outside_path(self, location: str, where: str) -> Path:
        if self.folder is None:
            raise IngotError(
                "bad-model",
                f"the data of this tensor is in another file, {location!r}",
                where=where,
                why="the model was given as bytes, so its folder is not known",
                hint="give the path of the model file instead",
            )
        if not location or _leaves_folder(location):
            raise _escape(location, where)
        folder = self.folder.resolve()
        path = (folder / location).resolve()
        if not path.is_relative_to(folder):
            raise _escape(location, where)
        if not path.is_file():
            what = f"the file with its data is missing: {location!r}"
            raise IngotError("bad-model", what, where=where, hint=f"put it in {folder}")
        return path


def load(model: str | Path | bytes | onnx.ModelProto) -> Source:
    """Parse a model; anything that is not one is a bad-model error."""
    match model:
        case onnx.ModelProto():
            source = Source(model, model.graph.name or "model", None)
        case bytes() | bytearray() | memoryview():
            source = Source(_parse(bytes(model), "the bytes given"), "the bytes given", None)
        case str() | os.PathLike():
            source = _open(Path(model))
        case _:
            what = f"a model is a path, bytes or an onnx.ModelProto, not {type(model).__name__}"
            hint = "a PyTorch module is exported first: torch.onnx.export(module, args, path)"
            raise IngotError("bad-model", what, hint=hint)
    _check_header(source)
    check_count(len(source.model.graph.node), source.name)  # before a look at each of them
    _check_texts(source)
    return source


def opsets(imports: object, ir_version: int = 3) -> dict[str, int]:
    """Domain → version, from an `opset_import` field; "ai.onnx" is spelled ""."""
    found: dict[str, int] = {}
    for entry in imports:  # type: ignore[attr-defined]
        found["" if entry.domain == "ai.onnx" else entry.domain] = entry.version
    if not found and ir_version < 3:
        found[""] = 1  # files older than opsets
    return found


def _open(path: Path) -> Source:
    """A model file; the large tensors of a large one are left in it."""
    try:
        if plan_file.is_plan(str(path)):
            hint = "ingot.load(path), or ingot run on the command line, takes plans"
            raise IngotError(
                "bad-model", "this is a plan, compiled already", where=str(path), hint=hint
            )
        if path.stat().st_size < LARGE_FILE_BYTES:
            return Source(_parse(path.read_bytes(), str(path)), str(path), path.parent)
        data = np.memmap(path, np.uint8, "r")
        key = os.urandom(8).hex()  # which no file can know
        small = slim(data, key)
        model = _parse(data.tobytes() if small is None else small, str(path))
        return Source(model, str(path), path.parent, file=data, own_key=key)
    except OSError as error:
        what = f"the model file cannot be read: {error.strerror or error}"
        raise IngotError("bad-model", what, where=str(path)) from error


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        raise IngotError(
            "bad-model",
            "this is not an ONNX model, or part of it is missing",
            where=name,
            why=str(error),
            hint=_hint(data),
        ) from error
    return model


def _hint(data: bytes) -> str:
    if data.startswith(b"PK"):  # torch.save, torch.jit.save and torch.export.save write archives
        return "is it PyTorch's? load it there, then torch.onnx.export(module, args, path)"
    return "was the file downloaded completely?"


def _check_texts(source: Source) -> None:
    """Every name is text: protobuf hands over bytes where a name is not UTF-8."""
    pending: list[Message] = [source.model]
    while pending:
        message = pending.pop()
        for spec, value in message.ListFields():
            values = [value] if isinstance(value, Message | str | bytes) else value
            if spec.type == spec.TYPE_MESSAGE:
                pending.extend(values)
            is_name = spec.type == spec.TYPE_STRING and spec.name != "doc_string"
            if is_name and not all(isinstance(text, str) for text in values):
                what = f"a {message.DESCRIPTOR.name} has a {spec.name} that is not UTF-8 text"
                raise IngotError("bad-model", what, where=source.name)


def _check_header(source: Source) -> None:
    model = source.model
    if model.ir_version <= 0 or not model.HasField("graph"):
        what = "the file holds no ONNX graph"
        raise IngotError("bad-model", what, where=source.name, hint="was it copied completely?")
    versions = opsets(model.opset_import, model.ir_version)
    if not versions:
        raise IngotError("bad-model", "the model imports no operator set", where=source.name)
    newest = defs.onnx_opset_version()
    if versions.get("", 1) > newest:
        raise IngotError(
            "unsupported-op",
            f"the model uses operator set {versions['']}; the newest one known here is {newest}",
            where=source.name,
            hint="upgrade the onnx package, or export with an older opset",
        )
    if any(version <= 0 for version in versions.values()):
        raise IngotError("bad-model", f"operator set versions are {versions}", where=source.name)


def _leaves_folder(location: str) -> bool:
    """Whether a path could lead out of the folder by its spelling, on any system."""
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    absolute = posix.is_absolute() or bool(windows.drive or windows.root)
    return absolute or ".." in posix.parts or ".." in windows.parts or "\0" in location


def _escape(location: str, where: str) -> IngotError:
    return IngotError(
        "bad-model",
        f"the tensor's data would be read from {location!r}, outside the model's folder",
        where=where,
        why="a model file may only name files beside or below it",
        hint="keep the model and its data in one folder",
    )


def _count(text: str, key: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise IngotError("bad-model", f"external data: {key} is {text!r}", where=where)
    return int(text)
