"""A model file, bytes or proto → a parsed ModelProto and access to its external data.

In: path, bytes or ModelProto, untrusted. Out: `Source`. Called by walker.import_model.

Only strip_tensors.py and the protobuf parser read the file; onnx's C++ checker, shape inference and
version converter never do. External data must be in the model's folder: no absolute path, no `..`,
no symbolic link that leads outside, no hard link (it may alias a file outside).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import defs

from ingot.frontends.common.limits import check_count
from ingot.frontends.onnx import formats
from ingot.frontends.onnx.strip_tensors import strip_large_tensors
from ingot.runtime import plan_file
from ingot.support.errors import IngotError

SHOWN_PATH = 200  # characters of a path in an error
SHOWN_FILES = 3  # models of a folder that are listed in an error
LARGE_FILE_BYTES = 8 << 20  # from here on large tensors are mapped, not parsed; heuristic


@dataclass(frozen=True)
class Source:
    """A parsed model, its name in errors, and the folder of its external data."""

    model: onnx.ModelProto
    name: str
    folder: Path | None
    opened: set[str] = field(default_factory=set)  # external data files, relative to the folder
    file: np.ndarray | None = None  # the model file, memory-mapped
    own_key: str = ""  # key of the entries that strip_tensors.py adds: "offset length" in `file`

    def external_bytes(self, tensor: onnx.TensorProto, byte_count: int) -> np.ndarray:
        """The `byte_count` bytes of a tensor with external data, mapped read-only."""
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
            what = f"its shape needs {byte_count} bytes, its external data entry has {length}"
            raise IngotError("bad-model", what, where=where)
        try:
            return self._mapped(location, offset, length, where)
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of symbolic links
            what = f"its external data file cannot be read: {location[:SHOWN_PATH]!r}"
            raise IngotError("bad-model", what, where=where, why=str(error)[:SHOWN_PATH]) from error

    def _mapped(self, location: str, offset: int, length: int, where: str) -> np.ndarray:
        path = self._external_path(location, where)
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())  # of the open file: the path may be changed concurrently
            if stat.st_nlink > 1:
                what = f"its external data file {location!r} has {stat.st_nlink} hard links"
                why = "a hard link may alias a file outside the model's folder"
                hint = "replace it with a copy"
                raise IngotError("bad-model", what, where=where, why=why, hint=hint)
            if offset + length > stat.st_size:
                what = f"bytes {offset} to {offset + length} are beyond the end of {path.name!r}"
                what += f" ({stat.st_size} bytes)"
                raise IngotError("bad-model", what, where=where, hint="is the file complete?")
            self.opened.add(location)
            if length == 0:
                return np.empty(0, np.uint8)
            return np.memmap(file, np.uint8, "r", offset=offset, shape=(length,))

    def _external_path(self, location: str, where: str) -> Path:
        if self.folder is None:
            raise IngotError(
                "bad-model",
                f"this tensor has external data in {location!r}",
                where=where,
                why="the model was given as bytes, so its folder is unknown",
                hint="give the path of the model file instead",
            )
        if not location or _leaves_folder(location):
            raise _escape(location, where)
        folder = self.folder.resolve()
        path = (folder / location).resolve()
        if not path.is_relative_to(folder):
            raise _escape(location, where)
        if not path.is_file():
            what = f"its external data file is missing: {location!r}"
            raise IngotError("bad-model", what, where=where, hint=f"put it in {folder}")
        return path


def load(model: str | Path | bytes | onnx.ModelProto | Source) -> Source:
    """Parse a model; a bad-model error if that fails."""
    match model:
        case Source():
            return model
        case onnx.ModelProto():
            source = Source(model, model.graph.name or "model", None)
        case bytes() | bytearray() | memoryview():
            source = Source(_parse(bytes(model), "the bytes given"), "the bytes given", None)
        case str() | os.PathLike():
            source = _open(Path(model))
        case _:
            what = f"a model is a path, bytes or an onnx.ModelProto, not {type(model).__name__}"
            hint = "a PyTorch module goes through torch.export.export: docs/torch.md"
            raise IngotError("bad-model", what, hint=hint)
    _check_header(source)
    check_count(len(source.model.graph.node), source.name)  # before visiting each of them
    _check_texts(source)
    return source


def opsets(imports: object, ir_version: int = 3) -> dict[str, int]:
    """Domain → version, from an `opset_import` field; domain "ai.onnx" becomes ""."""
    found: dict[str, int] = {}
    for entry in imports:  # type: ignore[attr-defined]
        found["" if entry.domain == "ai.onnx" else entry.domain] = entry.version
    if not found and ir_version < 3:
        found[""] = 1  # files from before operator sets
    return found


def inputs_with_defaults(source: Source) -> list[str]:
    """Inputs that are initializers too: a call may override them, but not before IR version 4, when
    every initializer had to be listed as an input."""
    model = source.model
    tensors = {t.name for t in model.graph.initializer}
    tensors |= {t.values.name for t in model.graph.sparse_initializer}
    return [i.name for i in model.graph.input if i.name in tensors and model.ir_version >= 4]


def _open(path: Path) -> Source:
    """A model file; the large tensors of a large file are not parsed but mapped."""
    try:
        if plan_file.is_plan(str(path)):
            hint = "ingot.load(path), or ingot run on the command line, loads plans"
            raise IngotError(
                "bad-model",
                "this is a compiled plan, not a model",
                where=str(path),
                hint=hint,
            )
        if path.stat().st_size < LARGE_FILE_BYTES:
            return Source(_parse(path.read_bytes(), str(path)), str(path), path.parent)
        data = np.memmap(path, np.uint8, "r")
        key = os.urandom(8).hex()  # unpredictable, so that no file contains it
        small = strip_large_tensors(data, key)
        model = _parse(data.tobytes() if small is None else small, str(path))
        return Source(model, str(path), path.parent, file=data, own_key=key)
    except OSError as error:
        what = f"the model file cannot be read: {error.strerror or error}"
        raise IngotError("bad-model", what, where=str(path), hint=_inside(path)) from error


def _inside(path: Path) -> str:
    """The models in a folder that was given instead of one."""
    found = sorted(p.name for p in path.glob("*.onnx"))[:SHOWN_FILES] if path.is_dir() else []
    return f"the folder holds {', '.join(found)}" if found else ""


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        raise IngotError(
            "bad-model",
            "this is not an ONNX model, or it is truncated",
            where=name,
            why=str(error),
            hint=formats.hint(data),
        ) from error
    return model


def _check_texts(source: Source) -> None:
    """Every name must be UTF-8: protobuf returns bytes for a string that is not."""
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
        what = "the file contains no ONNX graph"
        raise IngotError("bad-model", what, where=source.name, hint="was it copied completely?")
    versions = opsets(model.opset_import, model.ir_version)
    if not versions:
        raise IngotError("bad-model", "the model imports no operator set", where=source.name)
    newest = defs.onnx_opset_version()
    if versions.get("", 1) > newest:
        raise IngotError(
            "unsupported-op",
            f"the model uses operator set {versions['']}; the newest supported one is {newest}",
            where=source.name,
            hint="upgrade the onnx package, or export with an older opset",
        )
    if any(version <= 0 for version in versions.values()):
        raise IngotError("bad-model", f"invalid opset versions {versions}", where=source.name)


def _leaves_folder(location: str) -> bool:
    """Whether a path is absolute or contains `..`, by the rules of any operating system."""
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    absolute = posix.is_absolute() or bool(windows.drive or windows.root)
    return absolute or ".." in posix.parts or ".." in windows.parts or "\0" in location


def _escape(location: str, where: str) -> IngotError:
    return IngotError(
        "bad-model",
        f"its external data is in {location!r}, outside the model's folder",
        where=where,
        why="external data must be in the model's folder or below",
        hint="keep the model and its data in one folder",
    )


def _count(text: str, key: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise IngotError("bad-model", f"invalid external data {key} {text!r}", where=where)
    return int(text)
