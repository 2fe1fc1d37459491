"""What is recorded of PyTorch's suite, in this folder.

    results.json   "entry dtype" → a letter for each sample: . passed, x not; written by run.py
    gaps.json      case, or a pattern of cases (*) → why it does not pass; written by a person

In: results of cases by name. Out: the records, complaints, a table. Called by run.py, the test and
docs. The rules are those of ONNX's suite (tests/conformance/records.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.records import GAP, PASSED, kind, merge, read
from tests.conformance_torch.entries import DTYPES, core_names

FOLDER = Path(__file__).parent
RESULTS, GAPS = FOLDER / "results.json", FOLDER / "gaps.json"
LETTERS = {PASSED: ".", GAP: "x"}


def known() -> dict[str, str]:
    """The recorded results by case: "passed" or "gap"."""
    kinds = {letter: result for result, letter in LETTERS.items()}
    return {
        f"{row} {index}": kinds[letter]
        for row, letters in read(RESULTS).items()
        for index, letter in enumerate(letters)
    }


def write(found: Mapping[str, str]) -> None:
    """Replace the rows of the cases that were run; whole rows, so every sample of a row is run."""
    rows: dict[str, dict[int, str]] = defaultdict(dict)
    for name, result in found.items():
        row, _, index = name.rpartition(" ")
        rows[row][int(index)] = LETTERS[kind(result)]
    merge(RESULTS, {row: "".join(v for _, v in sorted(each.items())) for row, each in rows.items()})


@dataclass
class Count:
    passed: int = 0
    total: int = 0

    def add(self, result: str) -> None:
        self.total += 1
        self.passed += kind(result) != GAP

    def __str__(self) -> str:
        return f"{self.passed}/{self.total}" if self.total else "-"


def table(found: Mapping[str, str]) -> str:
    """A line for each entry: samples passed of each element type; then the core operators."""
    counts: dict[str, dict[str, Count]] = defaultdict(lambda: defaultdict(Count))
    for name, result in found.items():
        entry, dtype, _ = name.rsplit(" ", 2)
        counts[entry][dtype].add(result)
        counts["all"][dtype].add(result)
    width = max(map(len, counts), default=8)
    lines = [f"{'entry':{width}} " + "".join(f"{d:>10}" for d in DTYPES)]
    for entry in sorted(counts, key=lambda name: (name == "all", name)):
        cells = "".join(f"{counts[entry][d]!s:>10}" for d in DTYPES)
        lines.append(f"{entry:{width}} {cells}")
    return "\n".join(lines)


def core_table(entries: Mapping[str, str]) -> dict[str, list[str]]:
    """Each core operator → the entries that reach it. `entries`: entry → its ATen name."""
    found: dict[str, list[str]] = {name: [] for name in sorted(core_names())}
    for entry, name in entries.items():
        found.setdefault(name, []).append(entry)
    return {name: found[name] for name in sorted(core_names())}
