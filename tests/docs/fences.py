"""The code blocks of the pages. In: Markdown. Out: `Fence`s, in order. Called by tests/docs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([
    *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md"),
])  # fmt: skip
_FENCE = re.compile(
    r"(?P<mark><!-- made: \w+ -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_TO_THE_END = re.compile(r"<!-- made: \w+ -->\n## .*", re.DOTALL)  # docs/make_pages.py: headings


@dataclass(frozen=True)
class Fence:
    page: str  # relative to the repository
    language: str
    text: str
    line: int
    is_made: bool  # docs/make_pages.py fills it, and test_pages.py compares

    @property
    def first_line(self) -> str:
        return self.text.strip().partition("\n")[0]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.first_line}"


def fences(path: Path) -> Iterator[Fence]:
    text = path.read_text(encoding="utf-8")
    end = _TO_THE_END.search(text)
    for match in _FENCE.finditer(text):
        is_made = bool(match["mark"]) or (end is not None and match.start() > end.start())
        line = text.count("\n", 0, match.start("language")) + 1
        page = str(path.relative_to(ROOT))
        yield Fence(page, match["language"], match["text"], line, is_made)


ALL = tuple(fence for path in PAGES for fence in fences(path) if not fence.is_made)
