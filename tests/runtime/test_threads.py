"""Many callers and many workers: the same bits whoever calls, and however many threads help."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import onnxruntime
import pytest
import torch

from ingot.runtime.cpu import context as contexts
from ingot.runtime.cpu import pool as pools
from ingot.runtime.cpu.context import Context
from ingot.runtime.cpu.pool import Pool, Worker
from ingot.runtime.cpu.services import Services, permanent
from ingot.support.abi import WORKER, WORKER_BYTES
from tests.runtime.common import CASES, assert_clean, bits, exe, feeds, package, script


def together(count: int, work: Callable[[int], None]) -> None:
    """Run work(0) … work(count-1) at once; the first exception of any is raised here."""
    start, failures = threading.Barrier(count), []

    def one(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("threads", [1, 2])
def test_eight_callers_of_one_executable(threads: int):
    run, given = exe("rows", threads).run, feeds("rows")
    want = bits(run(None, given))

    def work(_: int) -> None:
        for _ in range(1000):
            assert bits(run(None, given)) == want

    together(8, work)


def test_callers_with_different_inputs_do_not_mix():
    run, given = exe("rows", 2).run, feeds("rows")
    cases = [
        {n: np.tile(a, (1 + i, 1)) + np.float32(i) for n, a in given.items()} for i in range(6)
    ]
    wants = [bits(run(None, case)) for case in cases]

    def work(number: int) -> None:
        for turn in range(200):
            which = (number + turn) % len(cases)
            assert bits(run(None, cases[which])) == wants[which]

    together(6, work)


@pytest.mark.parametrize(
    "name",
    ["residual_cnn", "transformer_block", "lstm", "wide_lstm", "dynamic_sequence", "endless"],
)
def test_bits_do_not_depend_on_threads(name: str):
    compiled, given = exe(name, 1), feeds(name)
    want = bits(compiled.run(None, given))
    for threads in (2, 3, 4, 64, 1):
        compiled.threads = threads
        for _ in range(20):
            assert bits(compiled.run(None, given)) == want
            used = compiled._loaded._free_contexts()[-1].threads_used
            assert name == "lstm" or used == min(threads, 4)


def test_a_call_has_no_more_workers_than_the_pool(workers: Pool):
    compiled = exe("transformer_block", 64)
    compiled.run(None, feeds("transformer_block"))
    (context,) = compiled._loaded._free_contexts()
    assert context.threads_used == context.threads == 4 and workers.count == 3


def test_no_more_threads_than_pieces_of_work(workers: Pool):
    assert package("relu").max_threads == 1
    exe("relu", 4).run(None, feeds("relu"))
    assert workers.count == 0


def test_a_pool_without_workers_runs_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(pools._current, "pool", Pool(0))
    compiled = exe("rows", 2)
    assert bits(compiled.run(None, feeds("rows"))) == bits(exe("rows", 1).run(None, feeds("rows")))
    assert compiled._loaded._free_contexts()[-1].threads_used == 1


def test_a_system_without_threads_runs_alone(monkeypatch: pytest.MonkeyPatch, workers: Pool):
    def refuse(services: object) -> Worker:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(pools, "Worker", refuse)
    compiled = exe("rows", 3)
    compiled.run(None, feeds("rows"))
    assert compiled._loaded._free_contexts()[-1].threads_used == 1 and workers.limit == 0


class Absent:
    """A worker that does not look for a job until it is released."""

    def __init__(self, services: Services):
        self.services, self.record = services, permanent(WORKER_BYTES)
        ctypes.c_int64.from_address(self.record + WORKER["services"]).value = services.address

    def come(self) -> None:
        main = self.services.worker_main
        threading.Thread(target=main, args=(self.record,), daemon=True).start()

    def stop(self) -> None:
        assert self.services.worker_stop(self.record)


@pytest.mark.parametrize("name", ["rows", "residual_cnn", "transformer_block"])
def test_nobody_waits_for_a_worker_that_does_not_come(
    monkeypatch: pytest.MonkeyPatch, workers: Pool, name: str
):
    monkeypatch.setattr(pools, "Worker", Absent)
    compiled, given, answers = exe(name, 3), feeds(name), []
    want = bits(exe(name, 1).run(None, given))

    def call() -> None:
        answers.extend(bits(compiled.run(None, given)) for _ in range(5))

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(60)
    assert answers == [want] * 5 and compiled._loaded._free_contexts()[-1].threads_used == 3
    for worker in workers.workers:
        assert isinstance(worker, Absent)
        worker.come()  # what it missed was withdrawn; it helps with what comes
    for _ in range(50):
        assert bits(compiled.run(None, given)) == want


@contextmanager
def in_the_background(run: Callable[[], object]) -> Iterator[None]:
    """`run`, over and over, in another thread."""
    done = threading.Event()

    def again() -> None:
        while not done.is_set():
            run()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_two_calls_with_workers_at_once(workers: Pool):
    """A second call that finds workers taken lets the pool grow, and then has workers too."""
    long, short, given = exe("endless", 2), exe("rows", 3), feeds("rows")
    want = bits(exe("rows", 1).run(None, given))
    turns = {**feeds("endless"), "trips": np.array(300)}
    with in_the_background(lambda: long.run(None, turns)):
        while workers.count < 3:
            assert bits(short.run(None, given)) == want
        for _ in range(300):
            assert bits(short.run(None, given)) == want


def test_a_call_whose_workers_are_taken_goes_on_alone(workers: Pool):
    long, short, given = exe("endless", 4), exe("rows", 4), feeds("rows")
    want = bits(exe("rows", 1).run(None, given))
    turns = {**feeds("endless"), "trips": np.array(300)}
    thread_counts = set()
    with in_the_background(lambda: long.run(None, turns)):
        while 1 not in thread_counts:
            assert bits(short.run(None, given)) == want
            thread_counts.add(short._loaded._free_contexts()[-1].threads_used)


def test_freeing_one_executable_while_another_runs():
    steady, given = exe("residual_cnn", 2), feeds("residual_cnn")
    want = bits(steady.run(None, given))
    done = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            for turn in range(10):
                other = exe("rows" if turn % 2 else "lstm", 2)
                other.run(None, feeds("rows" if turn % 2 else "lstm"))
                del other
                gc.collect()
            done.set()
        while not done.is_set():
            assert bits(steady.run(None, given)) == want

    together(3, work)


def test_torch_and_onnxruntime_pools_live_beside_ours():
    model, given = CASES["residual_cnn"]()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    compiled = exe("residual_cnn", 2)
    want, theirs = bits(compiled.run(None, given)), session.run(None, given)
    a = torch.ones(256, 256)

    def work(number: int) -> None:
        for _ in range(50):
            if number == 0:
                assert bits(compiled.run(None, given)) == want
            elif number == 1:
                np.testing.assert_array_equal(session.run(None, given)[0], theirs[0])
            else:
                assert float((a @ a)[0, 0]) == 256.0

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        together(3, work)
    finally:
        torch.set_num_threads(before)


def test_changing_threads_keeps_the_contexts_few():
    compiled, given = exe("transformer_block", 1), feeds("transformer_block")
    want = bits(compiled.run(None, given))
    for threads in (4, 2, 1, 3, 4):
        compiled.threads = threads
        assert bits(compiled.run(None, given)) == want
    assert [context.threads for context in compiled._loaded._free_contexts()] == [4]


def test_contexts_are_as_many_as_calls_at_once():
    compiled, given = exe("rows", 2), feeds("rows")
    together(5, lambda _: [compiled.run(None, given) for _ in range(100)])
    assert 1 <= len(compiled._loaded._free_contexts()) <= 5


def test_contexts_are_freed_with_the_executable(monkeypatch: pytest.MonkeyPatch):
    """Every arena and scratch that was taken is given back, whatever became of the call."""
    held: set[int] = set()
    take, give = contexts.aligned_alloc, contexts.free

    def counted_take(size: int) -> int:
        address = take(size)
        held.add(address)
        return address

    def counted_give(address: int | None) -> None:
        held.discard(address or 0)
        give(address)

    monkeypatch.setattr(contexts, "aligned_alloc", counted_take)
    monkeypatch.setattr(contexts, "free", counted_give)
    compiled = [exe("transformer_block", 3)]
    together(4, lambda _: compiled[0].run(None, feeds("transformer_block")))
    assert len(held) >= 2, "an arena and scratch, at least"
    compiled.clear()
    gc.collect()
    assert not held


def test_an_abandoned_context_is_dropped_whole(monkeypatch: pytest.MonkeyPatch):
    compiled, given = exe("rows", 2), feeds("rows")
    want = bits(compiled.run(None, given))

    def interrupted(self: Context, *_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Context, "prepare", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compiled.run(None, given)
    assert compiled._loaded._free_contexts() == []
    assert bits(compiled.run(None, given)) == want
    assert compiled._loaded._free_contexts()[-1].threads_used == 2


def test_memory_does_not_grow_with_calls():
    done = script(
        """
import resource
given = feeds("transformer_block")
def rounds(count):
    for _ in range(count):
        e = exe("transformer_block", 2)
        for length in range(5, 25):
            x = np.ones((40, length, 8), np.float32)
            e.run(None, {"x": x, "mask": np.ones((40, length), bool)})
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rounds(10)
before = rounds(5)
grown_kb = rounds(60) - before
assert grown_kb < 10_000, grown_kb
""",
        "transformer_block",
    )
    assert_clean(done)
