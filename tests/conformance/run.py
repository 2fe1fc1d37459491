"""`make conformance`: every case of ONNX's suite, in two processes that survive a crash or a hang.

    python -m tests.conformance.run                   all cases; compares with results.json
    python -m tests.conformance.run --match conv      cases whose name contains a word
    python -m tests.conformance.run --gaps --update   cases that did not pass; writes results.json

In: nothing. Out: a table of cases passed and gaps, and the exit code 1 where a case differs from
what results.json says of it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import threading
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue

RESULTS = Path(__file__).parent / "results.json"
CASE_LIMIT_S = 120  # of one case, compilation included; the slowest take a few seconds
WORKERS = 2


def serve(connection: Connection) -> None:
    """A worker: names of cases in, results out."""
    from tests.conformance import cases

    cases.suite()
    cases.forbid_references()
    connection.send("ready")
    while (name := connection.recv()) is not None:
        connection.send(cases.run_case(name))


class Worker:
    """A process that runs cases, started again after a crash or a hang."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.connection.recv()

    def run(self, name: str) -> str:
        try:
            self.connection.send(name)
            if self.connection.poll(CASE_LIMIT_S):
                return self.connection.recv()
            found = f"hang: more than {CASE_LIMIT_S} s"
        except (EOFError, OSError):
            self.process.join()
            found = f"crash: exit code {self.process.exitcode}"
        self.process.kill()
        self.start()
        return found


def run_all(names: list[str], show: bool = False) -> dict[str, str]:
    """The result of each case."""
    todo: SimpleQueue[str] = SimpleQueue()
    for name in names:
        todo.put(name)
    found: dict[str, str] = {}

    def work() -> None:
        worker = Worker()
        while True:
            try:
                name = todo.get_nowait()
            except Empty:
                break
            found[name] = worker.run(name)
            if show:
                print(f"{name}: {found[name]}", flush=True)
        worker.process.kill()

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: found[name] for name in sorted(found)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--match", default="", help="only cases whose name contains this")
    parser.add_argument("--gaps", action="store_true", help="only cases that did not pass")
    parser.add_argument("--update", action="store_true", help="write results.json")
    parser.add_argument("--show", action="store_true", help="print each case")
    args = parser.parse_args()
    from tests.conformance.cases import names

    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    chosen = [name for name in names() if args.match in name]
    if args.gaps:
        chosen = [name for name in chosen if known.get(name) != "passed"]
    if not chosen:
        print(f"no case is called like {args.match!r}")
        return 2
    start = time.perf_counter()
    found = run_all(chosen, args.show)
    passed = sum(result == "passed" for result in found.values())
    print(f"{passed} of {len(found)} passed in {time.perf_counter() - start:.0f} s")
    for reason, count in Counter(r for r in found.values() if r != "passed").most_common(40):
        print(f"{count:5} {reason}")
    if args.update:
        RESULTS.write_text(json.dumps(dict(sorted({**known, **found}.items())), indent=0) + "\n")
        return 0
    changed = [n for n, r in found.items() if (r == "passed") != (known.get(n) == "passed")]
    for name in changed:
        print(f"differs from results.json: {name}: {found[name]}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
