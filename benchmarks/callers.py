"""Two callers at once, one thread each: throughput versus ONNX Runtime.

    python benchmarks/callers.py                      four models, five rounds
    python benchmarks/callers.py resnet50 --callers 3

Each runtime has a process of its own. Its callers are Python threads that call one executable or
session at once, for a second in each round; runtimes take turns. The table has calls per second,
medians over rounds, and their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import models  # noqa: E402  # this file is run by its path
from ingot.support.text import columns  # noqa: E402

MODELS = ("resnet50", "mobilenet_v2", "bert_base_32", "lstm_tagger")
RUNTIMES = ("ingot", "onnxruntime")
ROUND_S = 1.0  # of one runtime in a round
HEAD = ("model", "ingot calls/s", "onnxruntime calls/s", "ratio")


def caller_of(runtime: str, case: models.Case) -> Callable[[], object]:
    """What one call of the runtime is, at the sizes of the case, on one thread."""
    feeds = dict(np.load(case.feeds))
    if runtime == "ingot":
        import ingot

        exe = ingot.compile(case.file, threads=1, shapes=dict(case.sizes))
        return lambda: exe.run(None, feeds)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    for name, size in case.sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    session = onnxruntime.InferenceSession(
        str(case.file), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, feeds)


def calls_per_second(call: Callable[[], object], callers: int) -> float:
    counts, start = [0] * callers, time.perf_counter()

    def work(number: int) -> None:
        while time.perf_counter() - start < ROUND_S:
            call()
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def serve(runtime: str, name: str, callers: int, folder: Path) -> None:
    """The child: one round for each line that it reads."""
    call = caller_of(runtime, models.make(name, folder / runtime))  # each writes its own inputs
    call()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(calls_per_second(call, callers), flush=True)


def compare(name: str, callers: int, rounds: int, folder: Path) -> tuple[str, ...]:
    models.make(name, folder)
    words = [sys.executable, __file__, name, "--callers", str(callers), "--folder", str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen([*words, "--serve", r], **pipes) for r in RUNTIMES]  # type: ignore[call-overload]
    found: list[list[float]] = [[], []]
    for child in children:
        line = child.stdout.readline()
        assert line == "ready\n", f"{name}: a runtime failed: {line!r}"
    for _ in range(rounds):
        for child, rates in zip(children, found):
            child.stdin.write("go\n")
            child.stdin.flush()
            rates.append(float(child.stdout.readline()))
    for child in children:
        child.communicate()
    ratio = statistics.median(a / b for a, b in zip(*found))
    return (name, *(f"{statistics.median(rates):.1f}" for rates in found), f"{ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python benchmarks/callers.py")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--callers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=RUNTIMES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.names[0], given.callers, given.folder)
        return
    with TemporaryDirectory() as folder:
        made = [
            compare(name, given.callers, given.rounds, Path(folder))
            for name in given.names or MODELS
        ]
    print("\n".join(columns([HEAD, *made])))


if __name__ == "__main__":
    main()
