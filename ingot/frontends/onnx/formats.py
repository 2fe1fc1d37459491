"""What a file is that is not an ONNX protobuf, by its first bytes: the hint of the error.

In: the bytes of a file that could not be parsed. Out: what to do with it. Called by loading.py.
"""

from __future__ import annotations

import re

HEAD_BYTES = 4096  # looked at
_EXPORT = "load it there, then torch.onnx.export(module, args, path)"

# a pattern for the first bytes → the hint
_FORMATS: tuple[tuple[bytes, str], ...] = (
    (rb"PK", f"a PyTorch archive? {_EXPORT}"),  # torch.save, torch.jit.save, torch.export.save
    (rb"# ingot ", "a dump of Ingot's: ingot compile FILE --start-from STAGE continues from it"),
    (rb".{4}ORTM", "a model in ONNX Runtime's own format: compile the .onnx file it was made from"),
    (rb".{4}TFL3", "a TensorFlow Lite model: convert it with tf2onnx"),
    (rb"\x89HDF", "an HDF5 file, as Keras writes: convert it with tf2onnx"),
    (rb"\x1f\x8b|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd", "a compressed file: unpack it first"),
    (rb"version https://git-lfs", "a pointer of Git LFS, not the file: run `git lfs pull`"),
    (rb"\s*<(!|html)", "a web page: was this a link to the file?"),
    (rb"\s*<\s*ir_version", "ONNX's text form: onnx.save(onnx.load(path, format='onnxtxt'), new)"),
    (rb"\s*ir_version\s*:", "a text protobuf: onnx.save(onnx.load(path, format='textproto'), new)"),
    (rb"\s*\{\s*\"", "JSON: onnx.save(onnx.load(path, format='json'), new), if it is a model"),
    (rb".{8}\{\"", "a safetensors file holds weights only: export the model that they belong to"),
)


def hint(data: bytes) -> str:
    """What to try with a file that is not an ONNX model."""
    head = data[:HEAD_BYTES]
    for pattern, text in _FORMATS:
        if re.match(pattern, head, re.DOTALL):
            return text
    return "was the file downloaded completely?"
