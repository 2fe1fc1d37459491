"""A worker process: requests on standard input, object bytes or results on standard output.

Run as `python -m ingot.codegen.llvm_worker [NAME …]`; it imports those modules of support/lazy.py
at once, before they are needed. A message is a 4-byte length and that many bytes. A request is JSON
(text, triple, cpu, features, level) or a call (call_messages.py); a reply is one byte, 0 and the
object or result, or 1 and a message. If LLVM crashes, only this process ends; workers.py turns that
into an error. The process ends at the end of its input, so it does not outlive the compiler.
"""

from __future__ import annotations

import json
import os
import struct
import sys

from ingot.codegen import call_messages, llvm_object
from ingot.support import lazy

_STDIN, _STDOUT, _STDERR = 0, 1, 2


def read_message(descriptor: int) -> bytes | None:
    """The next message; None if the other side has closed the pipe, even inside a message."""
    head = _read(descriptor, 4)
    return None if head is None else _read(descriptor, *struct.unpack("<I", head))


def write_message(descriptor: int, data: bytes) -> None:
    rest = memoryview(struct.pack("<I", len(data)) + data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _read(descriptor: int, size: int) -> bytes | None:
    blocks = []
    while size:
        block = os.read(descriptor, min(size, 1 << 20))
        if not block:
            return None
        blocks.append(block)
        size -= len(block)
    return b"".join(blocks)


def reply_to(request: bytes) -> bytes:
    if request.startswith(call_messages.CALL):
        return call_messages.answer(request)
    fields = json.loads(request)
    try:
        return b"\0" + llvm_object.compile_text(**fields)
    except RuntimeError as error:
        return b"\1" + str(error).encode()


def main() -> None:
    replies = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)  # what a library prints must not mix with the replies
    for name in sys.argv[1:]:
        lazy.load(name)
    try:
        while (request := read_message(_STDIN)) is not None:
            write_message(replies, reply_to(request))
    except BrokenPipeError:  # the compiler has exited
        pass


if __name__ == "__main__":
    main()
