"""One process per mutant: forked from this one, limited in time and memory, its end recorded.

    python -m tests.fuzz.bad_models.child CORPUS FOLDER FIRST LAST    a line of JSON for each seed
    python -m tests.fuzz.bad_models.child CORPUS FOLDER SEED          one, here, with its traceback

In: a pickled corpus, a folder to write in. Called by test_bad_models.py. A mutant may compile or
raise an IngotError that says where; everything else is an escape: another exception, an error of a
verifier (then a stage made the trouble, not the file), a signal, too much time or memory.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from ingot import api, pipeline
from ingot.arith import expr as arith
from ingot.runtime.executable import Executable
from ingot.support.errors import IngotError
from tests.fuzz.bad_models.corpus import SIDE_BYTES, SIDE_FILE
from tests.fuzz.bad_models.mutate import mutant

MEMORY_BYTES = 1 << 30
CPU_SECONDS = 10  # of this process alone: other work on the machine does not count
RUN_SECONDS = 1  # for a run, which may go on for good: its model may hold a loop of 2^60 turns
WALL_SECONDS = 100  # for one that sleeps
WHOLE = 10  # one in so many is compiled to the end and run; the others stop at the program
RUN_ELEMENTS = 1 << 20  # inputs larger than this are not made
OUR_FAULT = {"bad-graph", "bad-loops", "bad-program", "bad-schedule", "bad-text", "codegen-failed"}
MESSAGE_LENGTH = 8000

Record = dict[str, Any]
Note = Callable[..., None]


def attempt(seed: int, models: Mapping[str, bytes], folder: Path, note: Note) -> None:
    """Compile one mutant; `note` what is known after each step."""
    made = mutant(seed, models)
    note(mutant=str(made), steps=made.steps, phase="load")
    (folder / "model.onnx").write_bytes(made.data)
    note(parsed=_parses(made.data), phase="compile")
    is_whole = seed < 0 or seed % WHOLE == 0
    session = api.make_session(jobs=1)
    stop = None if is_whole else "lower"
    package = pipeline.run_stages(str(folder / "model.onnx"), session, stop_after=stop)
    note(outcome="compiled", phase="run")
    if is_whole:
        run_once(Executable(package, 2), made.data, seed, folder, note)


def run_once(exe: Executable, data: bytes, seed: int, folder: Path, note: Note) -> None:
    """Run with small random inputs; keep inputs and answers for another runtime to look at."""
    if exe.package.bundles:  # sequences, optionals and maps: no inputs are made for these
        return
    rng = np.random.default_rng(abs(seed))
    signal.setitimer(signal.ITIMER_PROF, RUN_SECONDS)
    sizes = {s.name: max(1, s.low, s.divisor) for s in exe.package.symbols}
    ports = [info.port for info in exe.inputs]
    shapes = [tuple(arith.evaluate(d, sizes) for d in port.shape) for port in ports]
    if sum(int(np.prod(shape, dtype=object)) for shape in shapes) > RUN_ELEMENTS:
        return
    feeds = {
        port.name: _numbers(rng, shape, dtype, port.dtype == "str")
        for port, shape, dtype in zip(ports, shapes, exe._in_dtypes)
    }
    answers = exe.run(None, feeds)
    note(outcome="ran")
    with open(folder / f"{seed}.answer", "wb") as file:
        pickle.dump((data, feeds, answers), file)


def _numbers(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, is_text: bool
) -> np.ndarray:
    """Small numbers, also as texts."""
    found = rng.integers(0, 3, shape)
    return found.astype(str).astype(object) if is_text else found.astype(dtype)


def _parses(data: bytes) -> bool:
    try:
        onnx.ModelProto().ParseFromString(data)
    except DecodeError:
        return False
    return True


def judge(seed: int, models: Mapping[str, bytes], folder: Path, note: Note) -> None:
    """`attempt`, with its end noted."""
    try:
        attempt(seed, models, folder, note)
    except IngotError as error:
        text = str(error)
        note(outcome="refused", code=error.code, text=text[:MESSAGE_LENGTH])
        if error.code in OUR_FAULT:
            note(escape=f"{text}\n{traceback.format_exc()[-3000:]}")
        elif not error.where:
            note(escape=f"the error says no place: {text}\n{traceback.format_exc()[-2000:]}")
        elif len(text) > MESSAGE_LENGTH:
            note(escape=f"a message of {len(text)} characters: {text[:500]}")
    except BaseException:
        note(escape=traceback.format_exc()[-4000:])


def contained(work: Callable[[Note], None], limited: bool = True) -> Record:
    """What `work` notes in a process of its own, and how that ended."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        if limited:
            _limit()
        work(lambda **facts: _send(writer, facts))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        lines = stream.read().splitlines()
    _, status, usage = os.wait4(process, 0)
    record: Record = {}
    for line in lines:
        record |= json.loads(line)
    record |= {"cpu_s": round(usage.ru_utime + usage.ru_stime, 2)}
    number = os.waitstatus_to_exitcode(status)
    if number and not _may_last(record, number):
        name = signal.Signals(-number).name if number < 0 else f"status {number}"
        record["escape"] = f"the process ended with {name} in phase {record.get('phase')!r}"
    return record


def _may_last(record: Record, number: int) -> bool:
    """A run that was stopped is no escape."""
    return record.get("phase") == "run" and -number in (signal.SIGPROF, signal.SIGALRM)


def _send(writer: int, facts: Record) -> None:
    os.write(writer, json.dumps(facts).encode() + b"\n")


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.alarm(WALL_SECONDS)


def _warm_up(models: Mapping[str, bytes]) -> None:
    """Load and fill, once, what every child would load and fill."""
    for name in ("nested", "lstm", "digits"):
        exe = Executable(pipeline.run_stages(models[f"own/{name}"], api.make_session(jobs=1)))
        assert exe.outputs


def main(corpus_file: str, folder_name: str, first: str, last: str = "") -> None:
    folder = Path(folder_name)
    (folder / SIDE_FILE).write_bytes(SIDE_BYTES)
    models = pickle.loads(Path(corpus_file).read_bytes())
    if not last:
        attempt(int(first), models, folder, lambda **facts: print(facts))
        return
    _warm_up(models)
    gc.collect()
    gc.freeze()  # the children copy fewer pages
    for seed in range(int(first), int(last)):
        found = contained(lambda note, seed=seed: judge(seed, models, folder, note))
        print(json.dumps({"seed": seed} | found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
