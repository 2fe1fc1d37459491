"""One pool of worker threads per process. A call claims the workers that are free; it never waits.

Workers are daemon threads that stay inside `worker_main` (native code, so the interpreter's lock is
free): they spin briefly and then park in the kernel. Claiming and letting go happen in native code
too (`gang_run`), so an interrupt cannot lose a worker. A forked child starts with an empty pool; at
exit the idle workers are stopped, and a busy one ends with the process.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import math
import os
import threading
from pathlib import Path

from ingot.runtime.services import Services, permanent
from ingot.support.abi import POOL, SLOT, SLOT_BYTES


def usable_cores() -> int:
    """Cores this process may use: its affinity, bounded by the control group's quota."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # no affinity on this system
        cores = os.cpu_count() or 1
    quota = cgroup_quota()
    return max(1, min(cores, math.ceil(quota)) if quota else cores)


def cgroup_quota() -> float | None:
    try:
        text = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if text[0] == "max" else int(text[0]) / int(text[1])
    except (OSError, ValueError, IndexError):
        return None


class Worker:
    """A thread and its mailbox, which outlives it. Not a `threading.Thread`: its `start` waits, and
    an interrupt in there now and then comes out as a RuntimeError, which says "no more threads"."""

    def __init__(self, services: Services):
        self.slot = permanent(SLOT_BYTES)
        self._services = services
        self._is_running = _thread.allocate_lock()
        ctypes.c_int64.from_address(self.slot + SLOT["services"]).value = services.address
        self._is_running.acquire()
        _thread.start_new_thread(self._work, ())

    def _work(self) -> None:
        try:
            self._services.worker_main(self.slot)
        finally:
            self._is_running.release()

    @property
    def is_alive(self) -> bool:
        return self._is_running.locked()

    def stop(self) -> None:
        """For good, if it is idle; no call can claim it afterwards."""
        if self._services.worker_stop(self.slot) and self._is_running.acquire(timeout=1.0):
            self._is_running.release()


class Pool:
    """At most `limit` workers, made when calls want them."""

    def __init__(self, limit: int):
        self.limit = limit
        self.count = 0
        self.workers: list[Worker] = []
        self.address = permanent(POOL["slots"] + 8 * limit)
        self._lock = threading.Lock()

    def grow(self, count: int, services: Services) -> None:
        """Have `count` workers, or as many as the limit and the system allow. The table is what
        counts, so one that an interrupt kept out of it is put in by the next call."""
        present = ctypes.c_int64.from_address(self.address + POOL["count"])
        with self._lock:
            while present.value < min(count, self.limit):
                if len(self.workers) == present.value:
                    try:
                        self.workers.append(Worker(services))
                    except RuntimeError:  # no more threads: calls run on those there are
                        self.limit = present.value
                        break
                services.pool_add(self.address, self.workers[present.value].slot)
            self.count = present.value

    def stop(self) -> None:
        with self._lock:
            self.limit = 0
            for worker in self.workers:
                worker.stop()


_current: dict[str, Pool] = {}


def pool() -> Pool:
    """The process's pool; its size is settled at first use."""
    return _current.get("pool") or _current.setdefault("pool", Pool(usable_cores() - 1))


def _stop() -> None:
    if _current:
        pool().stop()


# the parent's threads do not come along to a forked child, nor may its lock be trusted there
os.register_at_fork(after_in_child=_current.clear)
atexit.register(_stop)
