"""A code-generation process: requests on standard input, object bytes on standard output.

Run as `python -m ingot.codegen.llvm_worker`. A message is a 4-byte length and that many bytes. A
request is JSON (text, triple, cpu, features, level); an answer is one byte, 0 and the object or 1
and LLVM's words. A crash of LLVM ends this process only; workers.py turns it into an error. The
process ends when its input does, so it does not outlive the compiler.
"""

from __future__ import annotations

import json
import os
import struct

from ingot.codegen import llvm_object

_STDIN, _STDOUT, _STDERR = 0, 1, 2


def read_message(descriptor: int) -> bytes | None:
    """The next message; None if the other side is gone, half-way through one included."""
    head = _read(descriptor, 4)
    return None if head is None else _read(descriptor, *struct.unpack("<I", head))


def write_message(descriptor: int, data: bytes) -> None:
    rest = memoryview(struct.pack("<I", len(data)) + data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _read(descriptor: int, size: int) -> bytes | None:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def answer(request: bytes) -> bytes:
    fields = json.loads(request)
    try:
        return b"\0" + llvm_object.compile_text(**fields)
    except RuntimeError as error:
        return b"\1" + str(error).encode()


def main() -> None:
    replies = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)  # whatever a library prints must not mix with the answers
    try:
        while (request := read_message(_STDIN)) is not None:
            write_message(replies, answer(request))
    except BrokenPipeError:  # the compiler is gone
        pass


if __name__ == "__main__":
    main()
