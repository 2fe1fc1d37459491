"""Limits on compile time and memory, checked by stages that have a cheaper alternative.

    limits.reached()      which limit is exceeded; empty: none
    limits.note("…")      what was simplified, for exe.report()

A limit never fails a compilation. Past one, kernels get a plain schedule and a lower LLVM
optimisation level.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field


@dataclass
class Limits:
    """None: no limit. Seconds count from construction; bytes are this process's resident memory."""

    time_limit_s: float | None = None
    memory_limit_bytes: int | None = None
    notes: list[str] = field(default_factory=list)
    _start: float = field(default_factory=time.monotonic)

    @property
    def is_set(self) -> bool:
        return self.time_limit_s is not None or self.memory_limit_bytes is not None

    def reached(self) -> str:
        if self.time_limit_s is not None and time.monotonic() - self._start >= self.time_limit_s:
            return f"time_limit_s={self.time_limit_s:g} was reached"
        limit = self.memory_limit_bytes
        if limit is not None and resident_bytes() >= limit:
            return f"memory_limit_bytes={limit} was reached"
        return ""

    def note(self, text: str) -> None:
        self.notes.append(text)


def resident_bytes() -> int:
    """The resident memory of this process."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
