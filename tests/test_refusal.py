"""The helper behind most tests of errors: it must see a wrong code, place, number, and no hint."""

from __future__ import annotations

import pytest

from ingot.support.errors import IngotError
from tests.refusal import check, is_told, refused

ERROR = IngotError(
    "bad-input", "axis 1 has 14 elements, not 16", where="node 'conv1'", hint="shapes={'n': 16}"
)


def test_facts_in_any_order_and_any_sentence_pass():
    check(ERROR, "bad-input", 16, 14, where="conv1", hint="'n'")
    with refused("bad-input", "axis 1", where=("'conv1'",)) as caught:
        raise ERROR
    assert caught.value is ERROR


@pytest.mark.parametrize(
    ("code", "facts", "options"),
    [
        ("bad-model", (), {}),
        ("bad-input", (4,), {}),
        ("bad-input", (), {"where": "conv"}),
        ("bad-input", (), {"why": "16"}),
        ("bad-input", (), {"hint": "m"}),
    ],
)
def test_another_error_fails(code, facts, options):
    with pytest.raises(AssertionError, match="bad-input"):
        check(ERROR, code, *facts, **options)


def test_no_hint_fails_unless_that_is_known():
    bare = IngotError("bad-input", "size 3")
    check(bare, "bad-input", 3, hint=False)
    with pytest.raises(AssertionError, match="hint"):
        check(bare, "bad-input", 3)


def test_other_exceptions_and_none_at_all_fail():
    with pytest.raises(ValueError), refused("bad-input"):
        raise ValueError
    with pytest.raises(pytest.fail.Exception), refused("bad-input"):
        pass


def test_a_fact_is_a_whole_word():
    assert is_told(4, "4 of 8") and is_told("i", "(i, 4)") and is_told(-1, "'n' is -1")
    assert is_told("f32[n]", "a f32[n] is") and is_told("2..9", "in 2..9 by 2")
    for fact, text in ((4, "14"), (4, "-4"), (4, "0.4"), (4, "4.5")):
        assert not is_told(fact, text)
    for fact, text in (("n", "no"), ("i", "i_2"), ("a", "bad")):
        assert not is_told(fact, text)
