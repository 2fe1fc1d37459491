"""Every error code has a way in, and docs/errors.md shows it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from ingot.support.errors import CODES, IngotError

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
from error_examples import EXAMPLES  # noqa: E402  # in the folder of the page


def test_every_code_has_an_example_and_an_entry():
    assert list(EXAMPLES) == list(CODES)
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", page, re.M) == list(CODES)


@pytest.mark.parametrize("code", CODES)
def test_the_example_raises_its_code(code: str):
    with pytest.raises(IngotError) as caught:
        EXAMPLES[code]()
    assert caught.value.code == code
    assert EXAMPLES[code].__doc__, "the page's advice"
