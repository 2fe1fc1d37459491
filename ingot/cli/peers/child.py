"""One runtime in a process of its own: `python -m ingot.cli.peers.child openvino`.

In: requests on stdin, one JSON object per line. Out: replies, one per line, on the original stdout;
what the runtime's library prints to stdout goes to stderr. A failure ends the process with a
traceback, which process.py reads.

    {"command": "load", …Task}               {"import_s": 0.1, "load_s": 0.3, "first_s": 0.01, …}
    {"command": "outputs", "file": "a.npz"}  {}
    {"command": "run", "seconds": 0.3}       {"times_s": […]}, without the warm-up run
    {"command": "memory"}                    {"peak_bytes": …}
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from ingot.cli.peers.task import Task, save_outputs
from ingot.support import lazy

MAX_RUNS = 5000  # timed in one round, at most; heuristic


def main(name: str) -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    runtime: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        match request.pop("command"):
            case "load":
                runtime, reply = _load(name, Task.read(request))
            case "outputs":
                save_outputs(request["file"], runtime.outputs())
                reply = {}
            case "run":
                reply = {"times_s": _times(runtime, request["seconds"])}
            case "memory":
                reply = {"peak_bytes": peak_bytes()}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _load(name: str, task: Task) -> tuple[Any, dict[str, Any]]:
    start = time.perf_counter()
    runtime_class = lazy.load(f"peer.{name}")
    if hasattr(runtime_class, "prepare"):  # imports, and what is done once per machine
        runtime_class.prepare(task)
    imported = time.perf_counter()
    runtime = runtime_class(task)
    loaded = time.perf_counter()
    runtime.run()
    times = {"import_s": imported - start, "load_s": loaded - imported,
             "first_s": time.perf_counter() - loaded}  # fmt: skip
    return runtime, {**times, "version": runtime.version, "uses": getattr(runtime, "uses", [])}


def _times(runtime: Any, seconds: float) -> list[float]:
    """Run repeatedly until the time is up, at least once."""
    runtime.run()  # warm-up: wakes its threads, fills the caches that other runtimes used
    times: list[float] = []
    first = start = time.perf_counter()
    while not times or (start - first < seconds and len(times) < MAX_RUNS):
        runtime.run()
        end = time.perf_counter()
        times.append(end - start)
        start = end
    return times


def peak_bytes() -> int:
    """Peak resident memory of this process. From /proc where possible: ru_maxrss may include what
    the parent had before exec."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(sys.argv[1])
