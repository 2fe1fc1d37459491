"""The thread pool: one per process. A call leases the workers that are free; it never waits.

Workers are daemon threads inside `worker_main` (native code, without the GIL): they spin briefly,
then park in a futex. Native code (`pool_run`) also leases and releases them, so an interrupt cannot
lose a worker. A forked child starts with an empty pool. At exit idle workers are stopped; a busy
one ends with the process.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import math
import os
import threading
from pathlib import Path

from ingot.runtime.cpu.services import Services, permanent
from ingot.support.abi import POOL, WORKER, WORKER_BYTES


def usable_cores() -> int:
    """Cores that this process may use: its CPU affinity, limited by the cgroup's CPU quota."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # no affinity on this system
        cores = os.cpu_count() or 1
    quota = cgroup_quota()
    return max(1, min(cores, math.ceil(quota)) if quota else cores)


def cgroup_quota() -> float | None:
    """CPU quota of the cgroup, in cores; None: no limit."""
    try:
        text = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if text[0] == "max" else int(text[0]) / int(text[1])
    except (OSError, ValueError, IndexError):
        return None


class Worker:
    """A worker thread and its WORKER record (support/abi.py), which outlives it. Not a
    `threading.Thread`: an interrupt in its `start` can surface as the RuntimeError that means "no
    more threads"."""

    def __init__(self, services: Services):
        self.record = permanent(WORKER_BYTES)
        self._services = services
        self._is_running = _thread.allocate_lock()
        ctypes.c_int64.from_address(self.record + WORKER["services"]).value = services.address
        self._is_running.acquire()
        _thread.start_new_thread(self._work, ())

    def _work(self) -> None:
        try:
            self._services.worker_main(self.record)
        finally:
            self._is_running.release()

    @property
    def is_alive(self) -> bool:
        return self._is_running.locked()

    def stop(self) -> None:
        """Stop it for good if it is idle; no call can lease it afterwards."""
        if self._services.worker_stop(self.record) and self._is_running.acquire(timeout=1.0):
            self._is_running.release()


class Pool:
    """At most `limit` workers, started when calls want them."""

    def __init__(self, limit: int):
        self.limit = limit
        self.count = 0
        self.workers: list[Worker] = []
        self.address = permanent(POOL["workers"] + 8 * limit)
        self._lock = threading.Lock()

    def grow(self, count: int, services: Services) -> None:
        """Start workers until there are `count`, or as many as the limit and the system allow. The
        native table decides: the next call adds a worker that an interrupt kept out of it."""
        present = ctypes.c_int64.from_address(self.address + POOL["count"])
        with self._lock:
            while present.value < min(count, self.limit):
                if len(self.workers) == present.value:
                    try:
                        self.workers.append(Worker(services))
                    except RuntimeError:  # no more threads: calls use the existing workers
                        self.limit = present.value
                        break
                services.pool_add(self.address, self.workers[present.value].record)
            self.count = present.value

    def stop(self) -> None:
        with self._lock:
            self.limit = 0
            for worker in self.workers:
                worker.stop()


_current: dict[str, Pool] = {}


def pool() -> Pool:
    """The process's thread pool; its limit is set at first use."""
    return _current.get("pool") or _current.setdefault("pool", Pool(usable_cores() - 1))


def _stop() -> None:
    if _current:
        pool().stop()


# a forked child has none of the parent's threads, and its copy of the lock may be held
os.register_at_fork(after_in_child=_current.clear)
atexit.register(_stop)
