"""Calls in the background, and the end of an executable: submit, close, trim, `with`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait

import numpy as np
import pytest
import torch

import ingot
from tests.refusal import refused
from tests.runtime.common import assert_clean, exe, feeds, script
from tests.small import small_model


@pytest.fixture
def own() -> ingot.Executable:
    return exe("residual_cnn").context()


@pytest.fixture
def given() -> list[np.ndarray]:
    return list(feeds("residual_cnn").values())


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return [x.tobytes() for x in a] == [x.tobytes() for x in b]


# --- futures --------------------------------------------------------------------------------------


def test_futures_have_the_results(own: ingot.Executable, given: list[np.ndarray]):
    want = own(*given)
    futures = [own.submit(*given) for _ in range(8)]
    assert all(isinstance(future, Future) for future in futures)
    assert all(same(future.result(), want) for future in futures)
    assert same(own.submit(**feeds("residual_cnn")).result(), want)
    into = [np.empty_like(a) for a in want]
    own.submit(*given, out=into).result()
    assert same(into, want)


def test_a_future_has_the_error(own: ingot.Executable):
    future = own.submit(np.ones(3))
    with refused("bad-input"):
        future.result()


def test_a_forked_process_has_threads_of_its_own():
    """And waits for no call that a thread of its parent was in."""
    code = """
e, x = exe("endless", 1), feeds("endless")["x"]
want = bits(e.submit(x, np.array(3)).result())
running = e.submit(x, np.array(200_000))
while not e._loaded._contexts._known or e._loaded._idle:
    pass
child = os.fork()
if not child:
    good = bits(e.submit(x, np.array(3)).result()) == want
    e.close()
    os._exit(0 if good else 1)
print(os.waitpid(child, 0)[1])
running.result()
"""
    assert_clean(script(code, "endless"), "0")


# --- close ----------------------------------------------------------------------------------------


def uses(e: ingot.Executable, given: list[np.ndarray]) -> list[Callable]:
    return [
        lambda: e(*given),
        lambda: e.run(None, feeds("residual_cnn")),
        lambda: e.submit(*given),
        lambda: e.trim(),
        lambda: e.context(),
        lambda: e.profile(feeds("residual_cnn")),
        lambda: e.threads,
    ]


def test_nothing_after_close(own: ingot.Executable, given: list[np.ndarray]):
    for _ in range(3):
        own(*given)
    own.close()
    for use in uses(own, given):
        with refused("bad-option", "closed"):
            use()
    own.close()
    assert [port.name for port in own.inputs] == list(feeds("residual_cnn")), "as it was"


def test_with(own: ingot.Executable, given: list[np.ndarray]):
    with own as same_one:
        assert same_one is own
        own(*given)
    with refused("bad-option", "closed"):
        own(*given)


def test_close_waits_for_submitted_calls():
    e, x = exe("endless").context(), feeds("endless")["x"]
    futures = [e.submit(x, np.array(5_000)) for _ in range(6)]
    e.close()
    assert all(future.done() for future in futures)
    assert len({future.result()[0].tobytes() for future in futures}) == 1


def test_close_waits_for_a_call_of_another_thread():
    e = exe("endless").context()
    x, ended = feeds("endless")["x"], list[list]()
    e(x, np.array(1))
    thread = threading.Thread(target=lambda: ended.append(e(x, np.array(50_000))))
    thread.start()
    while e._loaded._idle:
        pass  # the context is idle until the call has it
    e.close()
    thread.join(timeout=5)
    assert len(ended) == 1, "it ended well"


def test_close_after_failed_calls():
    """Calls that ended with an error, or were given too little memory, are not waited for."""
    e = exe("lookup").context()
    for _ in range(2):
        with refused("run-failed", hint=False):
            e(np.array([99]))
    e.close()


def test_a_module_closes():
    with ingot.compile(torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),), jobs=1) as e:
        assert e.submit(torch.ones(2, 4)).result().shape == (2, 3)
    with refused("bad-option", "closed"):
        e(torch.ones(2, 4))


# --- trim -----------------------------------------------------------------------------------------


def test_trim_gives_memory_back(own: ingot.Executable, given: list[np.ndarray]):
    wanted = sum(own.memory_for(batch=len(given[0])).values()) - own.memory["weights"]
    for _ in range(3):
        want = own(*given)
    futures = [own.submit(*given) for _ in range(4)]
    wait(futures)
    assert own.trim() >= wanted > 0
    assert own.trim() == 0, "there is none left"
    assert same(own(*given), want) and same(own(*given), want) and same(own(*given), want)
    assert own.trim() > 0


def test_trim_leaves_running_calls_alone():
    e = exe("endless").context()
    x = feeds("endless")["x"]
    future = e.submit(x, np.array(3_000))
    while not future.done():
        e.trim()
    assert same(future.result(), exe("endless")(x, np.array(3_000)))


def test_the_c_device_does_the_same():
    e = ingot.compile(small_model(), "c", jobs=1)
    x = np.ones((5, 4), np.float32)
    want = e(x)
    assert e.trim() > 0 and e.trim() == 0
    assert same(e(x), want)
    e.close()
    with refused("bad-option", "closed"):
        e(x)
