"""A code-generation process: requests on standard input, object bytes on standard output.

Run as `python -m ingot.codegen.llvm_worker`. A message is a 4-byte length and that many bytes. A
request is JSON (text, triple, cpu, features, level); an answer is one byte, 0 and the object or 1
and LLVM's words. A crash of LLVM ends this process only; workers.py turns it into an error.
"""

from __future__ import annotations

import json
import struct
import sys
from typing import IO

from ingot.codegen import llvm_object


def read_message(stream: IO[bytes]) -> bytes | None:
    head = stream.read(4)
    if len(head) < 4:
        return None
    (size,) = struct.unpack("<I", head)
    return stream.read(size)


def write_message(stream: IO[bytes], data: bytes) -> None:
    stream.write(struct.pack("<I", len(data)) + data)
    stream.flush()


def answer(request: bytes) -> bytes:
    fields = json.loads(request)
    try:
        return b"\0" + llvm_object.compile_text(**fields)
    except RuntimeError as error:
        return b"\1" + str(error).encode()


def main() -> None:
    while (request := read_message(sys.stdin.buffer)) is not None:
        write_message(sys.stdout.buffer, answer(request))


if __name__ == "__main__":
    main()
