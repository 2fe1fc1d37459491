"""Traces replayed in another process. As a script: a line of JSON in (kernel and trace), the text
of the scheduled kernel out. As a module: `replayed(kernel, trace)`, through one such process.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from functools import lru_cache

from ingot.loops import ir
from ingot.loops.script_parse import parse
from ingot.loops.script_print import show
from ingot.schedule import Trace, replay
from ingot.support import options


def replayed(kernel: ir.Kernel, trace: Trace) -> ir.Kernel:
    """The kernel after the trace, replayed in a process with another hash seed."""
    process = _process()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps({"kernel": show(kernel), "trace": trace.to_json()}) + "\n")
    process.stdin.flush()
    reply = process.stdout.readline()
    assert reply, "the other process has died"
    return parse(json.loads(reply))


@lru_cache(maxsize=1)
def _process() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.schedule.replay_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=options.child_environment(PYTHONHASHSEED="4711"),
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def _serve() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        made = replay(parse(request["kernel"]), Trace.from_json(request["trace"]))
        print(json.dumps(show(made.kernel)), flush=True)


if __name__ == "__main__":
    _serve()
