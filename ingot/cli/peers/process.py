"""This side of the pipe to a runtime's process. In: orders. Out: replies, or why there is none."""

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
from ingot.support import knobs


class Refused(Exception):
    """A runtime could not do what it was asked; the text is its own reason."""


CHILD = "ingot.cli.peers.child"  # what the process runs


class Peer:
    """A runtime's process; it lives in a `with`."""

    def __init__(self, name: str, cache: Path, threads: int, limit_s: float, child: str = CHILD):
        self.name, self.limit_s = name, limit_s
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # closed by __exit__
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        environment = knobs.child_environment(
            PYTHONPATH=path, INGOT_CACHE_DIR=str(cache), OMP_NUM_THREADS=str(threads)
        )
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", child, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment,
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *why: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._complaints.close()

    def load(self, task: Task) -> dict[str, Any]:
        return self._ask("load", **asdict(task))

    def run(self, seconds: float) -> list[float]:
        return self._ask("run", seconds=seconds)["times_s"]

    def answer(self, file: Path) -> None:
        self._ask("answer", file=str(file))

    def peak_bytes(self) -> int:
        return self._ask("memory")["peak_bytes"]

    def _ask(self, order: str, **details: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": order, **details}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Refused(self._last_words()) from None
        ready, _, _ = select.select([self._process.stdout], [], [], self.limit_s)
        if not ready:
            raise Refused(f"no answer to {order!r} in {self.limit_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise Refused(self._last_words())
        return json.loads(line)

    def _last_words(self) -> str:
        """The reason in a traceback, or the signal that ended the process."""
        status = self._process.wait()
        self._complaints.seek(0)
        text = self._complaints.read().decode(errors="replace")
        if status < 0:
            return f"its process was ended by signal {-status}"
        trace = text.rpartition("Traceback (most recent call last):")[2]
        found = re.search(r"^(?:ingot\.support\.errors\.)?(\S.*)", trace, re.MULTILINE | re.DOTALL)
        return found[1].strip() if found else text.strip()[-500:] or f"exit code {status}"
