"""The words of the pages: terms of the glossary have a file, and private vocabulary stays out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])
ROW = re.compile(r"^\| (?P<terms>[^|]+) \| (?P<meaning>[^|]+) \| `(?P<file>[^`|]+)` \|$", re.M)

# a word that no other compiler uses in this sense → what the field says
PRIVATE = {
    r"open (size|batch|length|dimension|axis)|sizes? (are |is )?(left )?open": "dynamic dimension",
    r"by element": "element-wise",
    r"rich(er)? operators?|small(er)? operators?": "composite, primitive operators",
    r"rid(e|es|ing) on": "fuse into the epilogue",
    r"(few|fewer|large|two|skinny|matrix) products?|skinny": "GEMM, small-M GEMM, Winograd",
    r"turned|turning": "transpose; become",
    r"share[ds]? out|shared between threads": "split over the threads",
    r"written out": "unrolled, inlined",
    r"spell(s|ed|ing|ings)?": "write; importer, converter",
    r"no numbers?": "NaN",
    r"contest|yardsticks?|arbiter": "benchmark, reference, roofline probe",
    r"beside": "versus, next to",
    r"gang|crew|doors?": "thread pool; native fast path; entry points",
    r"answers?": "outputs",
    r"told|tells": "reports, is given",
    r"lies?": "is stored, is",
    r"marks|notes": "annotations",
    r"laws?": "invariant",
}


def prose(page: Path) -> str:
    """A page in one line, without code, inline code, links and the tables that benchmarks fill."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"<!-- bench: \w+ -->.*?<!-- bench: end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.M)
    text = re.sub(r"`[^`]*`|\[[^]]*\]\([^)]*\)", "", text)
    return " ".join(text.split())


def private_words(text: str) -> list[str]:
    found = []
    for pattern, better in PRIVATE.items():
        for match in re.finditer(rf"\b({pattern})\b", text, re.I):
            found.append(f"{match[0]!r}: say {better}")
    return found


def glossary() -> list[re.Match]:
    return list(ROW.finditer((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")))


def test_every_term_of_the_glossary_has_a_file():
    missing = [f"{row['terms']}: {row['file']}" for row in glossary()
               if not (ROOT / row["file"]).is_file()]  # fmt: skip
    assert not missing


@pytest.mark.parametrize(
    "term",
    ["GEMM", "micro-kernel", "register tile", "panel", "packing", "epilogue fusion", "anchor",
     "family", "ContractionPlan", "work stealing", "barrier", "arena", "dynamic dimension",
     "symbol", "version", "view, alias", "layout", "relayout", "Winograd F(2×2, 3×3)",
     "GEMV, small-M GEMM", "split-k", "row reduction", "depthwise", "legalize", "lane", "tail",
     "remark", "launch", "chunk", "package", "module", "device", "port", "plan file",
     "native fast path", "target", "machine", "roofline"],
)  # fmt: skip
def test_the_glossary_explains(term: str):
    assert term in {row["terms"] for row in glossary()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_the_words_of_the_field(page: Path):
    assert not private_words(prose(page))


def test_private_words_are_found():
    assert len(private_words("GEMMs of an open size; what is done by element rides on tiles")) == 3
    assert not private_words("The element-wise epilogue of a GEMM with a dynamic dimension")
