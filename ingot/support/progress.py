"""What a person sees of a compilation: log records, and a bar on a terminal if it takes long.

    logging.getLogger("ingot").setLevel(logging.INFO)     compile times, cache hits, slow kernels
    logging.getLogger("ingot").setLevel(logging.DEBUG)    each stage, the kernel cache

`shown` is entered once around a compilation, by api.py or the command line; the pipeline reports
its stages to `at_stage`, and the worker processes' queue its jobs to `at_job`. The bar is drawn by
support/bar.py, with the package rich, which is loaded when the bar appears. It is on stderr and
goes when the compilation ends. The option `progress` switches it off; it appears only for a
compilation of the main thread, so that builds in the background draw nothing.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ingot.support import lazy, options

LOG = logging.getLogger("ingot")
LOG.addHandler(logging.NullHandler())

DELAY_S = 1.0  # a compilation that is shorter draws no bar
SLOW_S = 1.0  # work on one kernel from here on is logged as slow


class _Bar:
    """A bar that appears after a delay, unless the work is done by then. Updates may come from
    several threads."""

    def __init__(self, delay_s: float):
        self._lock = threading.Lock()
        self._drawn: Any = None
        self._is_over = False
        self._done, self._total, self._text = 0, 1, "compiling"
        self._timer = threading.Timer(delay_s, self._appear)
        self._timer.daemon = True
        if delay_s > 0:
            self._timer.start()
        else:
            self._appear()

    def _appear(self) -> None:
        drawn = lazy.load("support.bar").StageBar()
        with self._lock:
            if not self._is_over:
                self._drawn = drawn
                drawn.start()
                drawn.show(self._done, self._total, self._text)

    def show(self, done: int, total: int, text: str) -> None:
        with self._lock:
            self._done, self._total, self._text = done, total, text
            self._draw(text)

    def add(self, detail: str) -> None:
        """More about the same stage."""
        with self._lock:
            self._draw(f"{self._text} {detail}")

    def _draw(self, text: str) -> None:
        if self._drawn is not None:
            self._drawn.show(self._done, self._total, text)

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._drawn is not None:
                self._drawn.stop()


_bar: ContextVar[_Bar | None] = ContextVar("ingot progress", default=None)


@contextmanager
def shown(delay_s: float | None = None) -> Iterator[None]:
    """Show the progress of the compilation inside; one inside another is part of it."""
    if _bar.get() is not None or not _is_wanted():
        yield
        return
    bar = _Bar(DELAY_S if delay_s is None else delay_s)
    token = _bar.set(bar)
    try:
        yield
    finally:
        _bar.reset(token)
        bar.close()


def _is_wanted() -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and options.current().progress and is_terminal()


def is_terminal() -> bool:
    """Is stderr a terminal? It is missing in a process without a console."""
    return sys.stderr is not None and sys.stderr.isatty()


def at_stage(done: int, total: int, name: str) -> None:
    """So many stages have run; `name` is the next."""
    bar = _bar.get()
    if bar is not None:
        bar.show(done, total, name)


def at_job(done: int, total: int) -> None:
    """So many of the jobs of this stage are done."""
    bar = _bar.get()
    if bar is not None:
        bar.add(f"{done}/{total}")


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Log what is slow."""
    start = time.perf_counter()
    yield
    took = time.perf_counter() - start
    if took >= SLOW_S:
        LOG.info("slow: %s took %.1f s", what, took)
