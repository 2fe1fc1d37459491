"""One runtime in a process of its own: `python -m ingot.cli.peers.child openvino`.

In: commands, a JSON object a line, on stdin. Out: answers, one a line, on what was stdout; what the
runtime's library prints there goes to stderr. Whatever fails ends the process with a traceback,
which process.py reads.

    {"do": "load", …Task}             {"import_s": 0.1, "load_s": 0.3, "version": "1.31.1"}
    {"do": "answer", "file": "a.npz"} {}
    {"do": "run", "seconds": 0.3}     {"times_s": […]}       the first run of a turn is not in it
    {"do": "memory"}                  {"peak_bytes": …}
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from ingot.cli.peers.task import Task, save_answers
from ingot.support import lazy

MOST_RUNS = 5000  # in one turn


def main(name: str) -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    runtime: Any = None
    for line in sys.stdin:
        order = json.loads(line)
        match order.pop("do"):
            case "load":
                runtime, reply = _load(name, Task.read(order))
            case "answer":
                save_answers(order["file"], runtime.answers())
                reply = {}
            case "run":
                reply = {"times_s": _times(runtime, order["seconds"])}
            case "memory":
                reply = {"peak_bytes": peak_bytes()}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _load(name: str, task: Task) -> tuple[Any, dict[str, Any]]:
    begun = time.perf_counter()
    runtime_class = lazy.load(f"peer.{name}")
    imported = time.perf_counter()
    runtime = runtime_class(task)
    took = {"import_s": imported - begun, "load_s": time.perf_counter() - imported}
    return runtime, {**took, "version": runtime.version}


def _times(runtime: Any, seconds: float) -> list[float]:
    """Run again and again until the time is up; once at least."""
    runtime.run()  # wakes its threads and warms the caches that another used meanwhile
    times: list[float] = []
    first = start = time.perf_counter()
    while not times or (start - first < seconds and len(times) < MOST_RUNS):
        runtime.run()
        end = time.perf_counter()
        times.append(end - start)
        start = end
    return times


def peak_bytes() -> int:
    """The most memory this process has had. The kernel's own word where there is one: ru_maxrss
    may hold what the parent had before this program began."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(sys.argv[1])
