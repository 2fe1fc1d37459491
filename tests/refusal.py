"""What Ingot must refuse: a test asserts an error's code, place, facts and hint, not its sentences.

    with refused("bad-input", 3, 4, where="x"):        about x, and it tells both 3 and 4
        exe(X[:, :3])
    with refused("bad-option", "bach", hint="batch"):  the hint has the name that was meant
        ingot.compile(model, shapes={"bach": 1})

Facts are what the user needs to find the fault: names, sizes, numbers, options. They are whole
words: "14" does not tell 4, and "no" does not tell n.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ingot.support.errors import IngotError

Fact = str | int | float
Facts = Fact | tuple[Fact, ...]


@contextmanager
def refused(
    code: str,
    *facts: Fact,
    where: Facts = (),
    why: Facts = (),
    hint: bool | Facts = True,
) -> Iterator[pytest.ExceptionInfo[IngotError]]:
    """The suite raises an error that `check` takes; it is `caught.value` afterwards."""
    with pytest.raises(IngotError) as caught:
        yield caught
    check(caught.value, code, *facts, where=where, why=why, hint=hint)


def check(
    error: IngotError,
    code: str,
    *facts: Fact,
    where: Facts = (),
    why: Facts = (),
    hint: bool | Facts = True,
) -> IngotError:
    """facts  told by what, why or hint
    where  the user's own names for the place, told by where or what
    why    facts that the reason must tell: for steps, whose names are in `what` in any case
    hint   facts of the hint; True: there is one; False: it has none today
    """
    assert isinstance(error, IngotError), repr(error)
    assert error.code == code, f"the code is not {code}:\n{error}"
    _tells(error, facts, error.what, error.why, error.hint)
    _tells(error, where, error.where, error.what)
    _tells(error, why, error.why)
    if isinstance(hint, bool):
        assert error.hint or not hint, f"there is no hint:\n{error}"
    else:
        _tells(error, hint, error.hint)
    return error


def is_told(fact: Fact, text: str) -> bool:
    """Whether `fact` is in `text`, not as a part of a longer word or of another number."""
    word = str(fact)
    before = r"(?<!\w)(?<!\d\.)" if re.match(r"\w", word) else ""
    before += "(?<!-)" if re.match(r"\d", word) else ""
    after = r"(?!\w)(?!\.\d)" if re.search(r"\w$", word) else ""
    return re.search(before + re.escape(word) + after, text) is not None


def _tells(error: IngotError, facts: Facts, *texts: str) -> None:
    for fact in facts if isinstance(facts, tuple) else (facts,):
        assert any(is_told(fact, text) for text in texts), f"{fact!r} is not told by:\n{error}"
