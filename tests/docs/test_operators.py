"""docs/operators.md: its tables say what the importer and the records of the suite say."""

from __future__ import annotations

import pytest

from ingot.frontends.onnx import registry
from tests.conformance import records
from tests.docs.test_pages import DOCS, MAKER, read

PAGE = MAKER.operator_page


def operator(key: str) -> object:
    domain, _, name = key.rpartition(".")
    return next(op for op in PAGE.operators(domain) if op.name == name)


def test_every_domain_and_imported_operator_has_a_row():
    text = read(DOCS / "operators.md")
    for domain, name in registry.TABLE:
        assert domain in PAGE.DOMAINS, f"{domain} is not a section of the page"
        section = text.partition(f"## {domain or 'ai.onnx'}\n")[2].partition("\n## ")[0]
        assert f"\n| {name} |" in section or f"\n| {name} ƒ |" in section


def test_opsets_are_those_with_a_converter_or_a_body(monkeypatch):
    assert PAGE.opsets(operator("Conv")) == "1–28"
    assert PAGE.opsets(operator("Scatter")) == "9–10", "retired in opset 11"
    assert PAGE.opsets(operator("GroupNormalization")) == "18–28"
    assert PAGE.is_function(operator("HannWindow")) and not PAGE.is_function(operator("Conv"))
    assert PAGE.opsets(operator("com.microsoft.FastGelu")) == "1"
    nowhere = PAGE.Operator("", "Nowhere", (1,), 28)
    assert PAGE.opsets(nowhere) == "–" and not PAGE.is_function(nowhere)
    monkeypatch.setitem(registry.TABLE, ("", "Nowhere"), [(3, None)])
    PAGE.is_importable.cache_clear()
    monkeypatch.setattr(registry, "lookup", lambda d, o, n: (n >= 3 and n != 5) or None)
    assert PAGE.opsets(nowhere) == "3–4, 6–28"
    PAGE.is_importable.cache_clear()


def test_types_are_shortened_and_refused_ones_named():
    recorded = {
        "Conv T": "f16 f32 | bf16", "Cast T1": "i8 i16 i32 i64 | ", "Cast T2": "bool | complex64",
    }  # fmt: skip
    assert PAGE.types(operator("Conv"), recorded) == "f16 f32; not bf16"
    assert PAGE.types(operator("Cast"), recorded) == "T1: i8–i64<br>T2: bool; not complex64"
    assert PAGE.types(operator("Abs"), recorded) == ""


@pytest.mark.parametrize("reason", ["it depends on the weather", ""])
def test_gaps_are_listed_with_their_reason(monkeypatch, reason):
    files = {
        records.RESULTS: {"test_a": "Error: a | b", "test_b": "passed"},
        records.GAPS: {"test_*": reason} if reason else {},
        records.OPERATORS: {"test_a": "Abs", "test_b": "Abs"},
    }
    monkeypatch.setattr(records, "read", files.__getitem__)
    text = PAGE.gap_list()
    assert "1 of 2 cases = 50.0% pass" in text
    assert f"| Abs | `a` | {reason or 'no reason is written: Error: a ; b'} |" in text
