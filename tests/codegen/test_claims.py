"""next_part: each iteration of a launch is done once, whoever is slow; barrier waits for parts."""

import ctypes
import random
import threading

import pytest

from ingot.codegen import llvm_object
from ingot.codegen.llvm_claims import UNTOLD, barrier_text, next_part_text
from ingot.runtime.loader import LoadedObject
from ingot.support.abi import CLAIM_BYTES, FAILED, SERVICES_BYTES, SYNC_BYTES

Part = tuple[int, int]


@pytest.fixture(scope="module")
def native():
    triple, cpu, features = llvm_object.host()
    text = next_part_text().replace("define internal i1", "define i1")
    loaded = LoadedObject(llvm_object.compile_text(text, triple, cpu, features, 2))
    words = [ctypes.c_void_p, *[ctypes.c_int64] * 5, ctypes.c_void_p]
    function = ctypes.CFUNCTYPE(ctypes.c_bool, *words)(loaded.address("next_part"))
    function.loaded = loaded
    return function


class Team:
    """Threads that ask one at a time, in any order; each at a launch of its own."""

    def __init__(self, native, threads: int, parts: int):
        self.native, self.threads, self.parts = native, threads, parts
        self.shared = (ctypes.c_uint8 * (SYNC_BYTES + CLAIM_BYTES * threads))()
        self.states = [(ctypes.c_int64 * 4)() for _ in range(threads)]

    def begin(self, thread: int) -> None:
        self.states[thread][0] = 0

    def ask(self, thread: int, launch: int, extent: int) -> Part | None:
        state = self.states[thread]
        args = (thread, self.threads, extent, launch, self.parts, ctypes.addressof(state))
        is_given = self.native(ctypes.addressof(self.shared), *args)
        return (state[1], state[2]) if is_given else None


def assert_whole(parts: list[Part], extent: int) -> None:
    done = sorted(i for low, high in parts for i in range(low, high))
    assert done == list(range(extent))


def test_a_thread_alone_does_all_of_it_at_once(native):
    team = Team(native, 1, 8)
    assert [team.ask(0, 1, 100), team.ask(0, 1, 100)] == [(0, 100), None]
    team.begin(0)
    assert team.ask(0, 2, 0) is None


def test_own_parts_come_first_and_in_order(native):
    team = Team(native, 2, 4)
    assert [team.ask(1, 1, 16) for _ in range(4)] == [(8, 10), (10, 12), (12, 14), (14, 16)]
    assert team.ask(0, 1, 16) == (0, 2)


def test_who_is_done_takes_what_is_left(native):
    team = Team(native, 2, 4)
    slow = team.ask(1, 1, 16)
    quick = [team.ask(0, 1, 16) for _ in range(8)]
    assert quick[-1] is None and quick[4:7] == [(10, 12), (12, 14), (14, 16)]
    assert team.ask(1, 1, 16) is None
    assert_whole([slow, *quick[:-1]], 16)


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("parts", [1, 3, 16, 64])
def test_launches_without_barriers_between(native, threads, parts):
    """Quick threads are launches ahead of slow ones; extents may be smaller than the parts."""
    rng = random.Random(threads * 100 + parts)
    extents = [rng.choice([0, 1, 2, 7, 100, 1000]) for _ in range(20)]
    team, at = Team(native, threads, parts), [0] * threads
    found: list[list[Part]] = [[] for _ in extents]
    weights = [1 + 5 * n for n in range(threads)]
    while min(at) < len(extents):
        thread = rng.choices(range(threads), weights)[0]
        if at[thread] == len(extents):
            continue
        part = team.ask(thread, at[thread] + 1, extents[at[thread]])
        if part is None:
            at[thread] += 1
            team.begin(thread)
        else:
            found[at[thread]].append(part)
    for parts_found, extent in zip(found, extents):
        assert_whole(parts_found, extent)
    told = ctypes.c_int64.from_buffer(team.shared).value
    untold = sum(state[UNTOLD] for state in team.states)  # parts of no iterations, at the end
    assert told + untold == threads * parts * len(extents)


def test_a_part_is_told_of_when_the_next_is_asked_for(native):
    """Who loses its core between two parts holds nobody up."""
    team = Team(native, 2, 4)
    parts = [team.ask(1, 1, 8), team.ask(1, 1, 8), *(team.ask(0, 1, 8) for _ in range(6))]
    assert_whole(parts, 8)
    done = ctypes.c_int64.from_buffer(team.shared)
    assert done.value == 6 and team.ask(0, 1, 8) is None
    assert done.value == 7 and team.ask(1, 1, 8) is None
    assert done.value == 8


class Meeting:
    """Two threads' barrier, without anything to sleep in."""

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

    def must_leave(self, untold: int, wanted: int) -> bool:
        return self._barrier(ctypes.addressof(self.done), 2, self.services, untold, wanted)


def test_a_barrier_waits_for_parts_whoever_did_them():
    meeting = Meeting()
    assert not meeting.must_leave(untold=4, wanted=4)  # all of them: the other thread did nothing
    assert not meeting.must_leave(untold=0, wanted=4)  # the other thread, later
    answers: list[bool] = []
    waiting = threading.Thread(
        target=lambda: answers.append(meeting.must_leave(untold=1, wanted=10)), daemon=True
    )
    waiting.start()
    while meeting.done[0] < 5:
        pass
    waiting.join(0.05)
    assert waiting.is_alive() and not answers
    assert not meeting.must_leave(untold=5, wanted=10)
    waiting.join(30)
    assert answers == [False]


def test_all_leave_a_barrier_when_one_has_failed():
    meeting, answers = Meeting(), []
    waiting = threading.Thread(
        target=lambda: answers.append(meeting.must_leave(untold=1, wanted=10)), daemon=True
    )
    waiting.start()
    meeting.fail()
    waiting.join(30)
    assert answers == [True] and meeting.done[0] >= FAILED
    assert meeting.must_leave(untold=0, wanted=1000)
