"""What is recorded of the architectures, in this folder.

    results.json   case → "passed, 1 graph", "torch refuses: …" or what went wrong; written by
                   run.py --update
    gaps.json      case, or a pattern of cases (*) → why it does not pass; written by a person

In: results by case. Out: kinds, complaints, tables. Called by run.py, the tests and docs. The rules
of gaps are those of ONNX's suite (tests/conformance/records.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.conformance import records
from tests.torch.architectures import audio, text, vision
from tests.torch.architectures.cases import PASSED, REFUSED, SIZES, WAYS

FOLDER = Path(__file__).parent
RESULTS, GAPS = FOLDER / "results.json", FOLDER / "gaps.json"
KINDS = {"text": text.TABLE, "images": vision.TABLE, "sound": audio.TABLE}
ABSENT = "–"


def kind(result: str) -> str:
    """passed, gap, or absent where torch itself fails."""
    if result.startswith(PASSED):
        return records.PASSED
    return ABSENT if result.startswith(REFUSED) else records.GAP


def complaints(found: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    """Gaps without a reason, reasons for what passes, and cases that are not as recorded."""
    gaps = records.read(GAPS)
    here = {p: why for p, why in gaps.items() if any(records.reason_of(n, {p: why}) for n in found)}
    kinds = {name: kind(result) for name, result in found.items() if kind(result) != ABSENT}
    wrong = records.complaints(kinds, here)
    changed = [name for name in found if name in known and kind(found[name]) != kind(known[name])]
    return wrong + [f"{name} is not as in results.json: {found[name]}" for name in changed]


def table(found: Mapping[str, str]) -> str:
    """A line for each architecture and size: the graphs, and what does not pass."""
    lines = [f"{'architecture':22} {'size':5} {'compile':>10} {'resize':>8} {'export':>8}  remarks"]
    for name, size in dict.fromkeys(tuple(case.split()[:2]) for case in found):
        row = {way: found.get(f"{name} {size} {way}", "") for way in WAYS}
        cells = [short(result).rjust(10 if way == "compile" else 8) for way, result in row.items()]
        lines.append(f"{name:22} {size:5} {' '.join(cells)}  {remarks(row.values())}".rstrip())
    return "\n".join(lines)


def short(result: str) -> str:
    if kind(result) == records.PASSED:
        return result.removeprefix(PASSED).strip(", ") or PASSED
    return kind(result) if result else ""


def remarks(row: Iterable[str]) -> str:
    return "; ".join(result for result in row if result and kind(result) != records.PASSED)


def page() -> str:
    """The table of docs/torch.md."""
    found = records.read(RESULTS)
    lines = ["| | size | torch.compile | then another size | torch.export | architectures |"]
    lines.append("|" + "---|" * 6)
    for title, rows in KINDS.items():
        for size in SIZES:
            cells = [counted(found, rows, size, way) for way in WAYS]
            names = sorted(n for n in rows if f"{n} {size} compile" in found)
            if names:
                shown = ", ".join(names) if size == "small" else f"{len(names)} of them"
                lines.append(f"| {title} | {size} | {' | '.join(cells)} | {shown} |")
    return "\n".join(lines)


def counted(found: Mapping[str, str], names: Iterable[str], size: str, way: str) -> str:
    """Passed of those that torch itself can run."""
    kinds = [kind(found[c]) for name in names if (c := f"{name} {size} {way}") in found]
    total = len(kinds) - kinds.count(ABSENT)
    return f"{kinds.count(records.PASSED)} of {total}"
