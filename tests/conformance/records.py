"""What is recorded of the suite, in this folder, and what must hold of it.

    results.json      case → "passed", "host step", or what went wrong; written by run.py --update
    onnxruntime.json  case → "passed" or "failed" by ONNX Runtime, never compared; written with it
    operators.json    case → the operator that it tests; written with it
    types.json        operator and type parameter → types; written by element_types.py --update
    gaps.json         case, or a pattern of cases (*) → why it does not pass; written by a person

Called by run.py, the tests, and docs/operator_page.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

FOLDER = Path(__file__).parent
RESULTS, PEER = FOLDER / "results.json", FOLDER / "onnxruntime.json"
OPERATORS, GAPS = FOLDER / "operators.json", FOLDER / "gaps.json"
TYPES = FOLDER / "types.json"

PASSED, HOST_STEP, GAP = "passed", "host step", "gap"
Texts = Mapping[str, str]


def read(path: Path) -> dict[str, str]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def merge(path: Path, found: Texts) -> None:
    """Replace the records of the cases that were run; one line per case, sorted."""
    rows = dict(sorted({**read(path), **found}.items()))
    path.write_text(json.dumps(rows, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def kind(result: str | None) -> str:
    """passed, host step or gap."""
    return result if result in (PASSED, HOST_STEP) else GAP


def verdict(result: str) -> str:
    return PASSED if result == PASSED else "failed"


def differing(found: Texts, known: Texts) -> list[str]:
    """Cases that are not as recorded. What exactly went wrong may change."""
    return [name for name, r in found.items() if name not in known or kind(r) != kind(known[name])]


def reason_of(name: str, gaps: Texts) -> str:
    """The reason given for a gap: by the case's name, else by the first pattern that fits."""
    if name in gaps:
        return gaps[name]
    return next((why for pattern, why in gaps.items() if fnmatchcase(name, pattern)), "")


def complaints(results: Texts, gaps: Texts) -> list[str]:
    """Gaps without a reason, reasons for cases that pass, and reasons for no case at all."""
    found = []
    for name, result in results.items():
        why = reason_of(name, gaps).strip()
        if kind(result) == GAP and not why:
            found.append(f"{name} is a gap without a reason in gaps.json: {result}")
        if kind(result) != GAP and why:
            found.append(f"{name} passes, but gaps.json has a reason why it does not")
    for pattern in gaps:
        if not any(fnmatchcase(name, pattern) for name in results):
            found.append(f"gaps.json has {pattern!r}, but no case is called so")
    return found


@dataclass
class Count:
    """Cases of one operator."""

    passed: int = 0
    host_step: int = 0
    gap: int = 0
    peer: int = 0  # that ONNX Runtime passes
    gaps: list[str] = field(default_factory=list)  # names of the cases

    @property
    def total(self) -> int:
        return self.passed + self.host_step + self.gap


def by_operator(results: Texts, peer: Texts, operators: Texts) -> dict[str, Count]:
    counts: dict[str, Count] = {}
    for name, result in results.items():
        count = counts.setdefault(operators.get(name, "?"), Count())
        match kind(result):
            case "passed":
                count.passed += 1
            case "host step":
                count.host_step += 1
            case _:
                count.gap += 1
                count.gaps.append(name)
        count.peer += peer.get(name) == PASSED
    return dict(sorted(counts.items(), key=lambda row: ("." in row[0], row[0])))


def table(counts: Mapping[str, Count]) -> str:
    """Lines of the operators' counts, and their sum."""
    total = Count()
    for count in counts.values():
        total.passed += count.passed
        total.host_step += count.host_step
        total.gap += count.gap
        total.peer += count.peer
    width = max(map(len, counts), default=8)
    head = f"{'operator':{width}}  cases  passed  host step  gap  ONNX Runtime"
    return "\n".join([head, *_rows(counts.items(), width), *_rows([("all", total)], width)])


def _rows(counts: Iterable[tuple[str, Count]], width: int) -> list[str]:
    return [
        f"{op:{width}}  {c.total:5}  {c.passed:6}  {c.host_step or '-':>9}  {c.gap or '-':>3}"
        f"  {c.peer:12}"
        for op, c in counts
    ]
