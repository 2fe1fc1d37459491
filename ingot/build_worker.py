"""The process that compiles a build in the background. In: a request on standard input, one line of
JSON and the model's bytes. Out: a build in the model cache, and a reply: {"error": text or null}.

Run as `python -m ingot.build_worker` by build_requests.py; the options are in its environment.
It runs at low priority, on one core, and ends when its parent does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from ingot import api
from ingot.support.errors import IngotError

_NICENESS = 10  # a tenth of the CPU time of a busy normal process (Linux's weights: 110 to 1024)
_TIME_LIMIT_S = 3600  # of one build, all stages; then SIGALRM ends the process; heuristic
_POLL_S = 1.0  # between two looks whether the parent still runs


def main() -> None:
    request = json.loads(sys.stdin.buffer.readline())
    _live_with(request["parent"])
    os.nice(_NICENESS)
    signal.alarm(_TIME_LIMIT_S)
    replies = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not mix with the reply
    try:
        compile_into_cache(request, sys.stdin.buffer.read(request["model_bytes"]))
        error = None
    except IngotError as failure:
        error = "; ".join(filter(None, (failure.what, failure.where, failure.why)))
    os.write(replies, json.dumps({"error": error}).encode())


def compile_into_cache(request: Mapping[str, Any], model: bytes) -> None:
    """As ingot.compile with these options: it leaves its result in the model cache."""
    ranges = {k: tuple(v) if isinstance(v, list) else v for k, v in request["shapes"].items()}
    api.compile(
        request["path"] or model,
        request["target"],
        shapes=ranges,
        outputs=request["outputs"] or None,
        state=request["state"],
        profile=request["profile"],
        jobs=1,  # in this process: the cores are for the parent's calls
        time_limit_s=request["time_limit_s"],
        memory_limit_bytes=request["memory_limit_bytes"],
    )


def _live_with(parent: int) -> None:
    """End when the parent has ended, however it did; the kernel then gives this process another."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main()
