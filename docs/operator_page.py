"""The tables of docs/operators.md: every ONNX operator, what Ingot takes of it, and what proves it.

In: the onnx library's schemas, the converters, and the records of tests/conformance. Out: the
block `operators` of make_pages.py. An operator is imported by a converter, or replaced by the
function body of its schema; the opsets are those for which one of the two is there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onnx import defs

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests/conformance
from ingot.frontends.onnx import converters, registry
from ingot.frontends.onnx.functions import is_importable
from tests.conformance import records

assert converters.FAMILIES  # importing them fills the table

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft")
# short forms of lists of types, longest first
TYPE_GROUPS = {
    "i8 i16 i32 i64 u8 u16 u32 u64": "i8–i64 u8–u64",
    "i8 i16 i32 i64": "i8–i64",
    "u8 u16 u32 u64": "u8–u64",
    "f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0fnu": "float8",
    "f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz": "float8 without e8m0",
    "complex64 complex128": "complex",
}
SHOWN_CASES = 4


@dataclass(frozen=True)
class Operator:
    domain: str
    name: str
    versions: tuple[int, ...]  # of the standard's schema; empty if it has none
    last: int  # newest opset in which the standard has it: it may be retired

    @property
    def key(self) -> str:
        """As the records of the suite name it."""
        return f"{self.domain}.{self.name}" if self.domain else self.name


def operators(domain: str) -> list[Operator]:
    """The standard's, and those that have a converter."""
    history: dict[str, dict[int, bool]] = {}  # version → is the operator retired in it?
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == domain:
            history.setdefault(schema.name, {})[schema.since_version] = schema.deprecated
    own = {name for d, name in registry.TABLE if d == domain}
    return [_operator(domain, n, history.get(n, {})) for n in sorted({*history, *own})]


def _operator(domain: str, name: str, history: dict[int, bool]) -> Operator:
    newest = max(history, default=0)
    last = newest - 1 if history.get(newest) else newest_opset(domain)
    return Operator(domain, name, tuple(sorted(history)), last)


def newest_opset(domain: str) -> int:
    return {"": defs.onnx_opset_version(), "ai.onnx.ml": defs.onnx_ml_opset_version()}.get(
        domain, 1
    )


def opsets(op: Operator) -> str:
    """Ranges of opsets in which it is imported."""
    first = op.versions[0] if op.versions else 1
    taken = [n for n in range(first, op.last + 1) if is_importable(op.domain, op.name, n)]
    return ", ".join(_ranges(taken)) or "–"


def _ranges(numbers: list[int]) -> Iterator[str]:
    start = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            low, high = numbers[start], numbers[end - 1]
            yield str(low) if low == high else f"{low}–{high}"
            start = end


def is_function(op: Operator) -> bool:
    """Is it replaced by the function body of its schema?"""
    return registry.lookup(op.domain, op.name, op.last) is None and opsets(op) != "–"


def types(op: Operator, recorded: records.Texts) -> str:
    """Types that compile, and those of the standard that do not."""
    rows = {}
    for key, text in recorded.items():
        name, _, parameter = key.partition(" ")
        if name == op.key:
            taken, _, refused = text.partition("|")
            rows[parameter] = _short(taken) + (
                f"; not {_short(refused)}" if refused.strip() else ""
            )
    if len(set(rows.values())) == 1:
        return next(iter(rows.values()))
    return "<br>".join(f"{parameter}: {text}" for parameter, text in rows.items())


def _short(names: str) -> str:
    text = " ".join(names.split())
    for long, short in TYPE_GROUPS.items():
        text = text.replace(long, short)
    return text or "none"


def domain_table(domain: str) -> str:
    """A section: the table of a domain's operators."""
    results, peer = records.read(records.RESULTS), records.read(records.PEER)
    recorded = records.read(records.TYPES)
    counts = records.by_operator(results, peer, records.read(records.OPERATORS))
    rows = ["| operator | opsets | element types | cases | passed | ONNX Runtime |",
            "|---|---|---|---|---|---|"]  # fmt: skip
    for op in operators(domain):
        count = counts.get(op.key, records.Count())
        passed = str(count.passed + count.host_step)
        if count.host_step:
            passed += f" ({count.host_step} with a host step)"
        cells = [str(count.total), passed, str(count.peer)] if count.total else ["–"] * 3
        name = f"{op.name} ƒ" if is_function(op) else op.name
        rows.append(f"| {' | '.join([name, opsets(op), types(op, recorded) or '–', *cells])} |")
    found = operators(domain)
    taken = sum(opsets(op) != "–" for op in found)
    return f"## {domain or 'ai.onnx'}\n\n{taken} of {len(found)} operators.\n\n" + "\n".join(rows)


def gap_list() -> str:
    """Each gap of the suite with its reason."""
    results, gaps = records.read(records.RESULTS), records.read(records.GAPS)
    tested = records.read(records.OPERATORS)
    by_reason: dict[tuple[str, str], list[str]] = {}
    for name, result in results.items():
        if records.kind(result) == records.GAP:
            why = records.reason_of(name, gaps) or f"no reason is written: {_plain(result)}"
            by_reason.setdefault((tested.get(name, "?"), why), []).append(name)
    rows = ["| operator | cases | reason |", "|---|---|---|"]
    rows += [
        f"| {op} | {_listed(names)} | {why} |" for (op, why), names in sorted(by_reason.items())
    ]
    passed = sum(records.kind(r) != records.GAP for r in results.values())
    share = f"{passed:,} of {len(results):,} cases = {passed / len(results):.1%} pass."
    return f"## Gaps\n\n{share}\n\n" + "\n".join(rows if by_reason else ["There are none."])


def _listed(names: Iterable[str]) -> str:
    names = [f"`{name.removeprefix('test_')}`" for name in names]
    more = f" and {len(names) - SHOWN_CASES} more" if len(names) > SHOWN_CASES else ""
    return ", ".join(names[:SHOWN_CASES]) + more


def _plain(text: str) -> str:
    return text.replace("|", ";").replace("ingot.support.errors.", "")


def page() -> str:
    return "\n\n".join([*map(domain_table, DOMAINS), gap_list()])
