"""Forks, exits and interrupts, each in a process of its own: a hang there is an error here."""

from __future__ import annotations

import pytest

from tests.runtime.common import assert_clean, script

FORKS = """
e, given = exe("residual_cnn"), feeds("residual_cnn")
want = bits(e.run(None, given))
assert e._loaded._free_contexts()[0].threads_used == 2
def in_child():
    assert bits(e.run(None, given)) == want
    crowd(3)
    assert bits(e.run(None, given)) == want and e._loaded._free_contexts()[-1].threads_used == 2
    other = exe("lstm")
    other.run(None, feeds("lstm"))
"""

CHILD = """
    pid = os.fork()
    if not pid:
        in_child()
        {leave}
    assert os.waitpid(pid, 0)[1] == 0
    assert bits(e.run(None, given)) == want
assert e._loaded._free_contexts()[-1].threads_used == 2
"""


@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)"])
def test_fork_after_first_use(leave: str):
    code = FORKS + "for _ in range(3):" + CHILD.format(leave=leave)
    assert_clean(script(code, "residual_cnn", "lstm"))


def test_fork_while_another_thread_is_in_a_call():
    busy = """
stop = threading.Event()
long = exe("endless", 2)
turns = {**feeds("endless"), "trips": np.array(500)}
def work():
    while not stop.is_set():
        long.run(None, turns)
        e.run(None, given)
thread = threading.Thread(target=work)
thread.start()
"""
    end = "\nstop.set()\nthread.join()\n"
    loop = CHILD.format(leave="os._exit(0)").replace(
        "assert e._loaded._free_contexts()[-1].threads_used == 2", ""
    )
    code = FORKS + busy + "for _ in range(10):" + loop + end
    assert_clean(script(code, "residual_cnn", "lstm", "endless"))


def test_fork_while_another_thread_compiles_a_version():
    """The child has no thread that would release the lock: it compiles the version itself."""
    code = """
from ingot.runtime.versions import Versions
from ingot.support.errors import IngotError
e, parent = exe("rows"), os.getpid()
shapes = [a.shape for a in feeds("rows").values()]
begun, may_end = threading.Event(), threading.Event()
def make(shapes):
    begun.set()
    if os.getpid() == parent:
        assert may_end.wait(60)
    return e
versions = Versions(make)
find = lambda: versions.find(e.package, shapes, IngotError("bad-input", "other sizes"))
thread = threading.Thread(target=find)
thread.start()
assert begun.wait(60)
pid = os.fork()
if not pid:
    signal.alarm(30)  # ends a child that hangs
    os._exit(0 if find() is e and find() is e else 1)
status = os.waitpid(pid, 0)[1]
may_end.set()
thread.join()
assert status == 0 and find() is e, status
"""
    assert_clean(script(code, "rows"))


def test_a_child_of_a_child():
    code = """
e, given = exe("rows"), feeds("rows")
want = bits(e.run(None, given))
for generation in range(3):
    pid = os.fork()
    if pid:
        status = os.waitpid(pid, 0)[1]
        os._exit(0 if status == 0 and bits(e.run(None, given)) == want else 1)
    crowd(3)
    assert bits(e.run(None, given)) == want
"""
    assert_clean(script(code, "rows"))


def test_exit_with_a_parked_pool():
    code = """
e = exe("residual_cnn", 4)
e.run(None, feeds("residual_cnn"))
time.sleep(0.05)  # long enough to park
from ingot.runtime.cpu.pool import pool
print([w.is_alive for w in pool().workers])
"""
    assert_clean(script(code, "residual_cnn"), "[True, True, True]")


def test_exit_stops_the_workers():
    code = """
import atexit
from ingot.runtime.cpu.pool import pool
def look():  # registered first, so called last
    assert not any(w.is_alive for w in workers)
    assert bits(e.run(None, given)) == want and e._loaded._free_contexts()[0].threads_used == 1
    print("calls at exit run alone")
atexit._clear(); atexit.register(look)
from ingot.runtime.cpu import pool as module
atexit.register(module._stop)
e, given = exe("rows", 3), feeds("rows")
want = bits(e.run(None, given))
workers = list(pool().workers)
assert len(workers) == 2
"""
    assert_clean(script(code, "rows"), "calls at exit run alone")


@pytest.mark.parametrize("daemon", [True, False])
def test_exit_while_another_thread_is_in_a_call(daemon: bool):
    code = f"""
e, given = exe("endless", 3), feeds("endless")
def work():
    turns = 1_000_000_000 if {daemon} else 10_000
    e.run(None, {{**given, "trips": np.array(turns)}})
    print("done", flush=True)
threading.Thread(target=work, daemon={daemon}).start()
time.sleep(0.1)
"""
    for _ in range(3 if daemon else 1):
        assert_clean(script(code, "endless"), "" if daemon else "done")


def test_interrupt_during_a_long_run():
    """The run ends, then Python raises; the executable and its workers are as before."""
    code = """
e, given = exe("endless", 2), feeds("endless")
want = bits(e.run(None, given))
threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    while True:
        e.run(None, {**given, "trips": np.array(2_000)})
except KeyboardInterrupt:
    pass
assert bits(e.run(None, given)) == want and e._loaded._free_contexts()[-1].threads_used == 2
print("sound")
"""
    assert_clean(script(code, "endless"), "sound")


def test_interrupts_anywhere_lose_nothing():
    """A signal lands at a thousand random places of calls; workers and memory stay whole."""
    code = """
import random
random.seed(0)
e, given = exe("rows", 3), feeds("rows")
want = bits(exe("rows", 1).run(None, given))
def interrupt(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
caught = 0
while caught < 1000:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-4))
        while True:
            e.run(None, given)
    except KeyboardInterrupt:
        caught += 1
    assert len(e._loaded._free_contexts()) <= 1
signal.setitimer(signal.ITIMER_REAL, 0)
end = time.monotonic() + 20
while True:  # a worker may still be on its way out of the interrupted call
    assert bits(e.run(None, given)) == want
    if e._loaded._free_contexts()[-1].threads_used == 3 or time.monotonic() > end:
        break
assert e._loaded._free_contexts()[-1].threads_used == 3, e._loaded._free_contexts()[-1].threads_used
print("whole")
"""
    assert_clean(script(code, "rows"), "whole")


def test_interrupts_while_the_pool_grows():
    code = """
import random
random.seed(1)
from ingot.runtime.cpu.pool import pool
e, given = exe("rows", 4), feeds("rows")
is_armed = False
def interrupt(*_):
    if is_armed:  # a signal may be under way still when its timer is stopped
        raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
for _ in range(1000):
    crowd(3)
    e.threads = 4  # drops the fast path, which is for the pool before
    is_armed = True
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 3e-4))
        for _ in range(20):
            e.run(None, given)
        signal.setitimer(signal.ITIMER_REAL, 0)
        is_armed = False
    except KeyboardInterrupt:
        is_armed = False
    end = time.monotonic() + 20
    while True:  # a worker may still be on its way into the pool, or out of the interrupted call
        e.run(None, given)
        if e._loaded._free_contexts()[-1].threads_used == 4 or time.monotonic() > end:
            break
    used = e._loaded._free_contexts()[-1].threads_used
    assert used == 4, used
    pool().stop()
print("grown")
"""
    assert_clean(script(code, "rows"), "grown")
