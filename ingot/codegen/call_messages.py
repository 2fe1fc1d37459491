"""Calls of Python functions as messages to a worker process, and the replies.

In: a function of a module, or a `partial` of one, and its argument. Out: bytes. calls.py makes
requests and reads replies, llvm_worker.py answers them.

Messages are pickled: both ends are Ingot's own, and the pipe is private. Files never are. Nodes of
the IR refuse to be pickled elsewhere; here their fields are sent. Identities of loops and blocks
are not: each process numbers its own.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from ingot.arith.expr import Expr
from ingot.support import options
from ingot.support.node import Node

CALL = b"P"  # the first byte of a request to call; JSON starts with a brace
OK, FAILED = b"\0", b"\1"  # the first byte of a reply


def requests(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[bytes]:
    """A message for each call `function(item)`, under the options in force."""
    common = _dumps((function, options.current()))
    for item in items:
        yield CALL + pickle.dumps((common, _dumps(item)), pickle.HIGHEST_PROTOCOL)


def answer(request: bytes) -> bytes:
    """In a worker process: do the call of a request."""
    common, item = pickle.loads(request[len(CALL) :])
    function, in_force = _function(common)
    try:
        with options.using(in_force):
            return OK + _dumps(function(pickle.loads(item)))
    except Exception as error:  # the compiler's process repeats the call, and raises it there
        return FAILED + repr(error).encode()


def result(reply: bytes) -> Any:
    return pickle.loads(reply[len(OK) :])


@lru_cache(maxsize=8)
def _function(common: bytes) -> tuple[Callable[[Any], Any], options.Options]:
    return pickle.loads(common)


def _dumps(value: Any) -> bytes:
    data = io.BytesIO()
    _Pickler(data, pickle.HIGHEST_PROTOCOL).dump(value)
    return data.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        names = _fields(type(value))  # type: ignore[arg-type]
        if names is None:
            return NotImplemented
        return type(value), tuple([getattr(value, name) for name in names])


@lru_cache(maxsize=256)
def _fields(kind: type) -> tuple[str, ...] | None:
    """The arguments that make a node anew; None for what is not a node."""
    if issubclass(kind, Expr):
        return kind._fields
    if not issubclass(kind, Node):
        return None
    fields: tuple[Any, ...] = dataclasses.fields(kind)  # type: ignore[arg-type]
    return tuple(f.name for f in fields if f.name != "uid")  # the last one, where there is one
