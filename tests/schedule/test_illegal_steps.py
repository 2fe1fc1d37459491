"""Every primitive reports illegal steps: what, where, why, what to try; as in docs/schedule.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ingot.schedule import Schedule, primitives
from ingot.support.errors import IngotError
from tests.schedule.illegal_steps import REFUSALS

PAGE = (Path(__file__).parents[2] / "docs" / "schedule.md").read_text()
SHARED = {"__init__", "base", "cache_stage", "copies", "recheck", "tails"}  # no primitives
CASES = [(name, i) for name, cases in REFUSALS.items() for i in range(len(cases))]


def entry(name: str) -> str:
    """The part of the page about a primitive: from its signature to the next one, or a heading."""
    starts = re.split(r"^(?=\*\*`|## )", PAGE, flags=re.M)
    (found,) = [part for part in starts if part.startswith(f"**`{name}(")]
    return found


def refusal(name: str, number: int) -> IngotError:
    with pytest.raises(IngotError) as caught:
        REFUSALS[name][number]()
    return caught.value


def test_every_primitive_has_a_refusal_and_an_entry():
    assert set(REFUSALS) == set(primitives.__all__)
    assert set(primitives.__all__) <= set(vars(Schedule))
    files = {path.stem for path in Path(primitives.__file__).parent.glob("*.py")}
    assert set(primitives.__all__) <= files
    assert files - set(primitives.__all__) == SHARED
    for name in primitives.__all__:
        entry(name)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_a_refusal_says_what_where_why_and_what_to_try(name: str, number: int):
    error = refusal(name, number)
    assert error.code == "bad-schedule"
    assert error.what.startswith(f"{name}(")
    assert "← here" in error.where or "kernel product: Y = alloc(f32[7, 20]" in error.where
    assert error.why and error.hint


@pytest.mark.parametrize("name", REFUSALS)
def test_the_page_has_the_refusals_that_the_code_makes(name: str):
    errors = [refusal(name, number) for number in range(len(REFUSALS[name]))]
    made = [f"{e.what}: {e.why} | try: {e.hint}" for e in errors]
    documented = re.findall(rf"^`({name}\([^`]* \| try: [^`]*)`$", entry(name), re.M)
    assert documented == made


@pytest.mark.parametrize("name", REFUSALS)
def test_an_entry_shows_before_and_after_and_says_when_it_is_legal(name: str):
    text = entry(name)
    assert "→" in text, "before → after"
    other = ("`", "    ", "|")
    rule = [x for x in text.splitlines()[1:] if x and not x.startswith(other)]
    assert rule, "its legality rule"
