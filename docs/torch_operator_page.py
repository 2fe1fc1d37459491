"""The tables of docs/torch-operators.md: the operators of core ATen, and PyTorch's own samples.

In: torch's tags, the converters, and the records of tests/conformance_torch. Out: the block
`torch_operators` of make_pages.py.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests/conformance_torch
from ingot.frontends.torch.fx_walk import ASSERTIONS
from ingot.frontends.torch.program import decompositions
from ingot.frontends.torch.registry import COMPLEX, TABLE
from tests.conformance.records import read
from tests.conformance_torch.results import RESULTS

DTYPES = ("f32", "bf16", "f64", "i64", "bool")
OWN = "core "  # entries with samples of this repository


def entry_rows() -> dict[str, dict[str, str]]:
    """Entry → element type → a letter for each sample."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for row, letters in read(RESULTS).items():
        entry, _, dtype = row.rpartition(" ")
        found[entry][dtype] = letters
    return found


def overloads(name: str) -> list[torch._ops.OpOverload]:
    packet = getattr(torch.ops.aten, name)
    every = [getattr(packet, overload) for overload in packet.overloads()]
    return [op for op in every if torch.Tag.core in op.tags and not op._schema.is_mutable]


def core_names() -> list[str]:
    """Of the dispatcher: `dir(torch.ops.aten)` lists those that were used in this process."""
    every = (n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::"))
    packets = {n.removeprefix("aten::").partition(".")[0] for n in every}
    return sorted(name for name in packets if overloads(name))


def way(op: torch._ops.OpOverload) -> str:
    """How an overload is imported."""
    name = str(op)
    if name in ASSERTIONS:
        return "size"
    if name in TABLE or name in COMPLEX:
        return "converter"
    return "decomposition" if op in decompositions() else "–"


def reaching(name: str, entries: Iterable[str]) -> list[str]:
    """The entries that are called like the operator; a variant comes after a dot."""
    ends = {name, f"nn.functional.{name}", f"{OWN}{name}", f"fft.{name}"}
    return [e for e in entries if e in ends or any(e.startswith(f"{end}.") for end in ends)]


def count(letters: Iterable[str]) -> str:
    every = "".join(letters)
    return f"{every.count('.')} of {len(every)}" if every else "–"


def core_table(rows: dict[str, dict[str, str]]) -> Iterable[str]:
    yield from ("| operator | overloads | imported by | samples passed |", "|---|---|---|---|")
    for name in core_names():
        ops = overloads(name)
        ways = ", ".join(sorted({way(op) for op in ops}))
        found = (letters for e in reaching(name, rows) for letters in rows[e].values())
        yield f"| {name} | {len(ops)} | {ways} | {count(found)} |"


def entry_table(rows: dict[str, dict[str, str]]) -> Iterable[str]:
    yield f"| entry | {' | '.join(DTYPES)} |"
    yield "|---|" + "---|" * len(DTYPES)
    for entry in sorted(rows):
        cells = (count([rows[entry][d]]) if d in rows[entry] else "" for d in DTYPES)
        yield f"| {entry} | {' | '.join(cells)} |"
    totals = (count(row.get(d, "") for row in rows.values()) for d in DTYPES)
    yield f"| all | {' | '.join(totals)} |"


def page() -> str:
    rows = entry_rows()
    lines = ["## Core ATen", "", *core_table(rows), ""]
    return "\n".join([*lines, "## Samples", "", *entry_table(rows)])
