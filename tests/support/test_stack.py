"""Segmented stacks: depth, results, errors and context of walks that change threads."""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar

import pytest

from ingot.support.stack import LEVELS, segmented

LABEL: ContextVar[str] = ContextVar("label", default="none")


@segmented
def depth(n: int) -> int:
    return 0 if n == 0 else 1 + depth(n - 1)


def test_a_walk_is_deeper_than_the_recursion_limit():
    assert depth(20 * sys.getrecursionlimit()) == 20 * sys.getrecursionlimit()


def test_a_shallow_walk_stays_on_its_thread():
    @segmented
    def thread(n: int) -> int:
        return threading.get_ident() if n == 0 else thread(n - 1)

    assert thread(LEVELS // 2) == threading.get_ident()
    assert thread(LEVELS * 2) != threading.get_ident()


def test_an_error_reaches_the_caller_and_nothing_is_left():
    @segmented
    def fails(n: int) -> int:
        return {}["missing"] if n == 0 else fails(n - 1)

    before = threading.active_count()
    for _ in range(3):
        with pytest.raises(KeyError):
            fails(1_000)
    assert threading.active_count() == before
    assert depth(LEVELS) == LEVELS


def test_context_variables_travel():
    @segmented
    def label(n: int) -> str:
        return LABEL.get() if n == 0 else label(n - 1)

    token = LABEL.set("mine")
    try:
        assert label(1_000) == "mine"
    finally:
        LABEL.reset(token)


def test_a_generator_cannot_be_segmented():
    with pytest.raises(AssertionError):

        @segmented
        def each(n: int):
            yield n
