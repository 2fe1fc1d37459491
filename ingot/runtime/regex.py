"""RE2 patterns → functions that say whether a whole string matches.

With the package google-re2, a pattern is what RE2 takes it for, and matching takes linear time. Not
with Python's `re`, which the standard library has: there a pattern is refused that RE2 does not
have (groups that are referred to, lookaround), that only RE2 has (`\\p{Greek}`, `[[:alpha:]]`), or
that repeats a repetition without bound, as `(a+)+` does, for which `re` may take exponential time.
Used by host_steps.py, and by the importer to check a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from ingot.support.errors import IngotError

Matches = Callable[[str], bool]

_MAX_CACHED = 256  # patterns; heuristic
_RE2_ONLY = (r"\p", r"\P", r"\z", r"\Q", r"\C", "[[:", "(?U", "(?P=")
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT"}
_FOREIGN = {"GROUPREF", "GROUPREF_EXISTS", "ASSERT", "ASSERT_NOT", "ATOMIC_GROUP",
            "POSSESSIVE_REPEAT"}  # fmt: skip


@lru_cache(_MAX_CACHED)
def matcher(pattern: str) -> Matches:
    """A function that says whether the pattern matches a whole string."""
    return _by_re2(pattern) or _by_re(pattern)


def _by_re2(pattern: str) -> Matches | None:
    try:
        import re2
    except ImportError:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise _invalid(pattern, str(error)) from error
    return lambda text: compiled.fullmatch(text) is not None


def _by_re(pattern: str) -> Matches:
    odd = [mark for mark in _RE2_ONLY if mark in pattern]
    if odd:
        raise _unsafe(pattern, f"{odd[0]!r} has another meaning in Python's `re`, or none")
    try:
        compiled = re.compile(pattern)
        tree = _parser.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise _invalid(pattern, str(error)) from error
    _check(pattern, tree, is_repeated=False)
    return lambda text: compiled.fullmatch(text) is not None


def _check(pattern: str, items: Iterable[Any], is_repeated: bool) -> None:
    """Refuse what RE2 does not have, and unbounded repetitions of unbounded repetitions."""
    todo = [(items, is_repeated)]
    while todo:
        part, is_inside = todo.pop()
        for kind, argument in part:
            name = str(kind)
            if name in _FOREIGN:
                raise _invalid(pattern, f"RE2 has no {name.lower()}")
            is_unbounded = name in _REPEATS and argument[1] == _constants.MAXREPEAT
            if is_unbounded and is_inside:
                raise _unsafe(pattern, "it repeats a repetition, for which `re` may take very long")
            todo += [(inner, is_inside or is_unbounded) for inner in _parts(name, argument)]


def _parts(name: str, argument: Any) -> list[Any]:
    if name in _REPEATS:
        return [argument[2]]
    if name == "BRANCH":
        return list(argument[1])
    return [argument[-1]] if name == "SUBPATTERN" else []


def _invalid(pattern: str, why: str) -> IngotError:
    return IngotError("bad-model", f"{pattern!r} is not a pattern of RE2", why=why)


def _unsafe(pattern: str, why: str) -> IngotError:
    what = f"the pattern {pattern!r} needs the package google-re2, which is not installed"
    return IngotError("unsupported-op", what, why=why, hint="pip install google-re2")
