"""One pool of worker threads per process. A call leases the workers that are free, and never waits.

Workers are daemon threads that stay inside `worker_main` (native code, so the interpreter's lock is
free): they spin briefly and then park in the kernel. A forked child starts with an empty pool; at
exit the workers are told to stop.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import threading
from pathlib import Path

from ingot.runtime.services import Services
from ingot.support.abi import SLOT, SLOT_BYTES

_CACHE_LINE = 64


def usable_cores() -> int:
    """Cores this process may use: its affinity, bounded by the control group's quota."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # no affinity on this system
        cores = os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(cores, math.ceil(quota)) if quota else cores)


def _cgroup_quota() -> float | None:
    try:
        text = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if text[0] == "max" else int(text[0]) / int(text[1])
    except (OSError, ValueError, IndexError):
        return None


class Worker:
    """A thread and its mailbox."""

    def __init__(self, services: Services):
        self._memory = ctypes.create_string_buffer(SLOT_BYTES + _CACHE_LINE)
        start = ctypes.addressof(self._memory)
        self.slot = -(-start // _CACHE_LINE) * _CACHE_LINE
        self._services = services
        ctypes.c_int64.from_address(self.slot + SLOT["services"]).value = services.address
        self._thread = threading.Thread(
            target=services.worker_main, args=(self.slot,), name="ingot-worker", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Tell the worker to leave; it must be idle."""
        ctypes.c_int32.from_address(self.slot + SLOT["stop"]).value = 1
        command = ctypes.c_int32.from_address(self.slot + SLOT["command"])
        command.value = (command.value + 1) & 0x7FFFFFFF
        wake = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(self._services.wake_address)
        wake(self._services.address, self.slot)
        self._thread.join(timeout=1.0)


class Pool:
    def __init__(self) -> None:
        self._free: list[Worker] = []
        self._count = 0
        self._lock = threading.Lock()

    def lease(self, wanted: int, services: Services) -> list[Worker]:
        """Up to `wanted` workers that nobody else has; fewer, or none, rather than waiting."""
        if wanted <= 0:
            return []
        with self._lock:
            leased = [self._free.pop() for _ in range(min(wanted, len(self._free)))]
            limit = usable_cores() - 1
            while len(leased) < wanted and self._count < limit:
                self._count += 1
                leased.append(Worker(services))
            return leased

    def give_back(self, workers: list[Worker]) -> None:
        self._free.extend(workers)  # atomic under the interpreter's lock

    def stop(self) -> None:
        with self._lock:
            while self._free:
                self._free.pop().stop()
                self._count -= 1


_pool = Pool()


def pool() -> Pool:
    return _pool


def _forget_parent() -> None:
    """In a forked child: the parent's threads did not come along, nor may its lock be trusted."""
    global _pool
    _pool = Pool()


os.register_at_fork(after_in_child=_forget_parent)
atexit.register(lambda: _pool.stop())
