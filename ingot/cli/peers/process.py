"""The parent's end of the pipe to a runtime's process. In: requests. Out: replies, or PeerError."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ingot.cli.peers.task import Task
from ingot.support import options


class PeerError(Exception):
    """A request to a runtime failed; the text is the runtime's own error message."""


CHILD = "ingot.cli.peers.child"  # the module that the process runs


def _without_torch_caches(folder: Path) -> dict[str, str]:
    """torch.compile keeps headers in a folder of the benchmark, and reads no graph that an earlier
    process compiled."""
    names = ("FX_GRAPH_CACHE", "AUTOGRAD_CACHE")
    off = {f"TORCHINDUCTOR_{name}": "0" for name in names}
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder), **off}


class Peer:
    """A runtime's process; a context manager that ends it."""

    def __init__(self, name: str, cache: Path, threads: int, limit_s: float, child: str = CHILD):
        self.name, self.limit_s = name, limit_s
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed by __exit__
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        environment = options.child_environment(
            PYTHONPATH=path, INGOT_CACHE_DIR=str(cache), OMP_NUM_THREADS=str(threads),
            **_without_torch_caches(cache.parent / "inductor"),
        )  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", child, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *why: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._stderr.close()

    def load(self, task: Task) -> dict[str, Any]:
        return self._request("load", **asdict(task))

    def run(self, seconds: float) -> list[float]:
        return self._request("run", seconds=seconds)["times_s"]

    def save_outputs(self, file: Path) -> None:
        self._request("outputs", file=str(file))

    def peak_bytes(self) -> int:
        return self._request("memory")["peak_bytes"]

    def _request(self, command: str, **details: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"command": command, **details}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerError(self._exit_reason()) from None
        ready, _, _ = select.select([self._process.stdout], [], [], self.limit_s)
        if not ready:
            raise PeerError(f"no reply to {command!r} within {self.limit_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(self._exit_reason())
        return json.loads(line)

    def _exit_reason(self) -> str:
        """The error message of the traceback on stderr, or the signal that ended the process."""
        status = self._process.wait()
        self._stderr.seek(0)
        text = self._stderr.read().decode(errors="replace")
        if status < 0:
            return f"its process was killed by signal {-status}"
        trace = text.rpartition("Traceback (most recent call last):")[2]
        found = re.search(r"^(?:ingot\.support\.errors\.)?(\S.*)", trace, re.MULTILINE | re.DOTALL)
        return found[1].strip() if found else text.strip()[-500:] or f"exit code {status}"
