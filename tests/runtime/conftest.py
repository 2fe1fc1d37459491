"""Every runtime test has a pool of its own with three workers, whatever the machine has, and wakes
them for the smallest piece of work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ingot.runtime.cpu import pool as pools
from ingot.support import options
from tests.runtime.reloaded import crowd


@pytest.fixture(autouse=True)
def workers() -> Iterator[pools.Pool]:
    before = dict(pools._current)
    own = crowd(3)
    with options.override(work_per_thread_us=0):
        yield own
    own.stop()
    pools._current.clear()
    pools._current.update(before)
