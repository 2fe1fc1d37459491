"""One compilation in a child process: a request and a model in, the reason of a failure out.

The child is `python -m ingot.build_worker`. It compiles into the model cache, from where its parent
loads the build, so that the parent's calls lose no time to the compiler: not even the GIL. Request,
model, reply and messages are temporary files: unlike a pipe's end, a copy of them that a forked
process holds delays nobody. Used by builds.py; `ingot.compile` gives the request.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, BinaryIO

from ingot.support.errors import IngotError

WORKER = "ingot.build_worker"
_SHOWN = 500  # characters of a crashed child's last messages in an error


class ChildBuild:
    """A child that compiles. `environment` holds the options (support/options.py); `model` is a
    model given as bytes, empty for one that the request names by its path."""

    def __init__(
        self, request: Mapping[str, Any], model: bytes = b"", environment: Mapping[str, str] = {}
    ):
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        self._reply, self._messages = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        with tempfile.TemporaryFile() as order:
            about = {**request, "parent": os.getpid(), "model_bytes": len(model)}
            order.write(json.dumps(about).encode() + b"\n")
            order.write(model)
            order.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", WORKER],
                stdin=order,
                stdout=self._reply,
                stderr=self._messages,
                env={**environment, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is for the parent, which may go on
            )

    @property
    def process_id(self) -> int:
        return self._process.pid

    def wait(self) -> None:
        """Until it has ended; an IngotError if it failed."""
        status = self._process.wait()
        reply, messages = _content(self._reply), _content(self._messages)
        try:
            error = json.loads(reply)["error"]
        except (ValueError, KeyError):  # it wrote no reply: it crashed or was killed
            why = f"it ended with status {status}" + (messages and f": {messages[-_SHOWN:]}")
            raise IngotError("codegen-failed", "the compiling process failed", why=why) from None
        if error:
            raise IngotError("codegen-failed", error)

    def kill(self) -> None:
        self._process.kill()

    def forget(self) -> None:
        """In a forked process: the child is the parent's, never wait for it."""
        self._process.returncode = 0


def _content(file: BinaryIO) -> str:
    with file:
        file.seek(0)
        return file.read().decode(errors="replace").strip()
