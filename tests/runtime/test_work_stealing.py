"""Work stealing: next_chunk gives out each iteration once; barrier waits for chunks."""

import ctypes
import random
import threading

import pytest

from ingot.codegen import llvm_object
from ingot.runtime.cpu.loader import LoadedObject
from ingot.runtime.cpu.native.work_stealing import UNPUBLISHED, barrier_text, next_chunk_text
from ingot.support.abi import FAILED, QUEUE_BYTES, SERVICES_BYTES, SYNC_BYTES

Chunk = tuple[int, int]


@pytest.fixture(scope="module")
def native():
    triple, cpu, features = llvm_object.host()
    text = next_chunk_text().replace("define internal i1", "define i1")
    loaded = LoadedObject(llvm_object.compile_text(text, triple, cpu, features, 2))
    words = [ctypes.c_void_p, *[ctypes.c_int64] * 5, ctypes.c_void_p]
    function = ctypes.CFUNCTYPE(ctypes.c_bool, *words)(loaded.address("next_chunk"))
    function.loaded = loaded
    return function


class Threads:
    """Threads that ask one at a time, in any order; each at a launch of its own."""

    def __init__(self, native, threads: int, chunks: int):
        self.native, self.threads, self.chunks = native, threads, chunks
        self.shared = (ctypes.c_uint8 * (SYNC_BYTES + QUEUE_BYTES * threads))()
        self.states = [(ctypes.c_int64 * 4)() for _ in range(threads)]

    def begin(self, thread: int) -> None:
        self.states[thread][0] = 0

    def ask(self, thread: int, launch: int, extent: int) -> Chunk | None:
        state = self.states[thread]
        args = (thread, self.threads, extent, launch, self.chunks, ctypes.addressof(state))
        is_given = self.native(ctypes.addressof(self.shared), *args)
        return (state[1], state[2]) if is_given else None


def assert_whole(chunks: list[Chunk], extent: int) -> None:
    done = sorted(i for low, high in chunks for i in range(low, high))
    assert done == list(range(extent))


def test_a_single_thread_gets_one_chunk(native):
    workers = Threads(native, 1, 8)
    assert [workers.ask(0, 1, 100), workers.ask(0, 1, 100)] == [(0, 100), None]
    workers.begin(0)
    assert workers.ask(0, 2, 0) is None


def test_own_chunks_come_first_and_in_order(native):
    workers = Threads(native, 2, 4)
    assert [workers.ask(1, 2, 16) for _ in range(4)] == [(8, 10), (10, 12), (12, 14), (14, 16)]
    assert workers.ask(0, 2, 16) == (0, 2)


def test_every_second_launch_goes_backwards(native):
    """What the launch before wrote last is in cache."""
    workers = Threads(native, 2, 4)
    for launch in (1, 3):
        asked = [workers.ask(1, launch, 16) for _ in range(4)]
        assert asked == [(14, 16), (12, 14), (10, 12), (8, 10)]
        assert workers.ask(0, launch, 16) == (6, 8)
        workers = Threads(native, 2, 4)


def test_an_idle_thread_steals_what_is_left(native):
    workers = Threads(native, 2, 4)
    slow = workers.ask(1, 2, 16)
    quick = [workers.ask(0, 2, 16) for _ in range(8)]
    assert quick[-1] is None and quick[4:7] == [(10, 12), (12, 14), (14, 16)]
    assert workers.ask(1, 2, 16) is None
    assert_whole([slow, *quick[:-1]], 16)


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("chunks", [1, 3, 16, 64])
def test_launches_without_barriers_between(native, threads, chunks):
    """Fast threads are launches ahead of slow ones; extents may be smaller than the chunk count."""
    rng = random.Random(threads * 100 + chunks)
    extents = [rng.choice([0, 1, 2, 7, 100, 1000]) for _ in range(20)]
    workers, at = Threads(native, threads, chunks), [0] * threads
    found: list[list[Chunk]] = [[] for _ in extents]
    weights = [1 + 5 * n for n in range(threads)]
    while min(at) < len(extents):
        thread = rng.choices(range(threads), weights)[0]
        if at[thread] == len(extents):
            continue
        chunk = workers.ask(thread, at[thread] + 1, extents[at[thread]])
        if chunk is None:
            at[thread] += 1
            workers.begin(thread)
        else:
            found[at[thread]].append(chunk)
    for chunks_found, extent in zip(found, extents):
        assert_whole(chunks_found, extent)
    published = ctypes.c_int64.from_buffer(workers.shared).value
    unpublished = sum(
        state[UNPUBLISHED] for state in workers.states
    )  # chunks of no iterations, at the end
    assert published + unpublished == threads * chunks * len(extents)


def test_a_chunk_is_published_when_the_next_is_asked_for(native):
    """A thread that is preempted between two chunks delays no other thread."""
    workers = Threads(native, 2, 4)
    chunks = [workers.ask(1, 1, 8), workers.ask(1, 1, 8), *(workers.ask(0, 1, 8) for _ in range(6))]
    assert_whole(chunks, 8)
    done = ctypes.c_int64.from_buffer(workers.shared)
    assert done.value == 6 and workers.ask(0, 1, 8) is None
    assert done.value == 7 and workers.ask(1, 1, 8) is None
    assert done.value == 8


class Barrier:
    """The barrier of two threads, without a park service."""

    def __init__(self):
        triple, cpu, features = llvm_object.host()
        text = barrier_text(triple, 10).replace("define internal", "define")
        self.loaded = LoadedObject(llvm_object.compile_text(text, triple, cpu, features, 2))
        self.done, self.services = (ctypes.c_int64 * (SYNC_BYTES // 8))(), bytes(SERVICES_BYTES)
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        native = ctypes.CFUNCTYPE(ctypes.c_bool, pointer, word, ctypes.c_char_p, word, word)
        self._barrier = native(self.loaded.address("barrier"))
        fail = ctypes.CFUNCTYPE(None, pointer, ctypes.c_char_p)(self.loaded.address("fail"))
        self.fail = lambda: fail(ctypes.addressof(self.done), self.services)

    def must_leave(self, unpublished: int, wanted: int) -> bool:
        return self._barrier(ctypes.addressof(self.done), 2, self.services, unpublished, wanted)


def test_a_barrier_waits_for_chunks_whichever_thread_ran_them():
    barrier = Barrier()
    assert not barrier.must_leave(
        unpublished=4, wanted=4
    )  # all of them: the other thread did nothing
    assert not barrier.must_leave(unpublished=0, wanted=4)  # the other thread, later
    answers: list[bool] = []
    waiting = threading.Thread(
        target=lambda: answers.append(barrier.must_leave(unpublished=1, wanted=10)), daemon=True
    )
    waiting.start()
    while barrier.done[0] < 5:
        pass
    waiting.join(0.05)
    assert waiting.is_alive() and not answers
    assert not barrier.must_leave(unpublished=5, wanted=10)
    waiting.join(30)
    assert answers == [False]


def test_all_leave_a_barrier_when_one_has_failed():
    barrier, answers = Barrier(), []
    waiting = threading.Thread(
        target=lambda: answers.append(barrier.must_leave(unpublished=1, wanted=10)), daemon=True
    )
    waiting.start()
    barrier.fail()
    waiting.join(30)
    assert answers == [True] and barrier.done[0] >= FAILED
    assert barrier.must_leave(unpublished=0, wanted=1000)
