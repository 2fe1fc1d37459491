"""The LLVM text of every kernel of the benchmark models: proof that a refactoring changed no code.

    python -m benchmarks.kernel_texts write FILE [MODEL …] [--targets x86-64-v3,x86-64-v4]
    python -m benchmarks.kernel_texts compare BEFORE AFTER

`write` compiles each model at its fixed sizes as far as the printer, without LLVM, and keeps one
digest for each launch, in program order, with its origin and plan. Texts mention no name of the
model, so that equal digests are equal code. `compare` lists the launches whose code differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from benchmarks import models
from ingot import api, pipeline
from ingot.codegen import llvm
from ingot.program import ir

TARGETS = ("x86-64-v3", "x86-64-v4")


def launches(name: str, target: str, folder: Path) -> list[dict[str, str]]:
    """One row for each launch of a model: what it is, and the digest of its kernel's text."""
    case = models.make(name, folder)
    session = api.make_session(target, dict(case.sizes))
    last = pipeline.last_program_stage(session.stages)
    program = pipeline.run_stages(str(case.file), session, stop_after=last)
    digests = {n: _digest(llvm.kernel_text(kernel)) for n, kernel in program.kernels}
    return [
        {"kernel": s.kernel, "origin": s.origin, "digest": digests[s.kernel]}
        for s in _walk(program.body)
        if isinstance(s, ir.Launch)
    ]


def _walk(s: Any) -> list[Any]:
    found, todo = [], [s]
    while todo:
        s = todo.pop()
        found.append(s)
        inside = s.stmts if isinstance(s, ir.Seq) else ()
        inside = (*inside, *(getattr(s, f, None) for f in ("then", "orelse", "body")))
        todo += [x for x in reversed(inside) if x is not None]
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write(file: Path, targets: list[str], names: list[str]) -> None:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for target in targets:
                found[f"{name} {target}"] = launches(name, target, Path(folder))
                print(name, target, len(found[f"{name} {target}"]), flush=True)
    file.write_text(json.dumps(found, indent=0))


def compare(before: Path, after: Path) -> int:
    """Print launches whose code differs, model by model; how many there are."""
    old, new = (json.loads(f.read_text()) for f in (before, after))
    count = 0
    for key in [k for k in old if k in new]:
        sides = [[row["digest"] for row in side[key]] for side in (old, new)]
        changes = SequenceMatcher(None, *sides, autojunk=False).get_opcodes()
        changes = [c for c in changes if c[0] != "equal"]
        differing = sum(max(c[2] - c[1], c[4] - c[3]) for c in changes)
        count += differing
        print(f"{key}: {len(sides[1])} launches, {differing} differ")
        for _, i, j, k, m in changes:
            for sign, rows in (("-", old[key][i:j]), ("+", new[key][k:m])):
                for row in rows:
                    print(f"  {sign} {row['digest']} {row['kernel']}  {row['origin']}")
    missing = sorted(set(old) ^ set(new))
    if missing:
        print("in one file only:", ", ".join(missing))
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    writer = commands.add_parser("write")
    writer.add_argument("file", type=Path)
    writer.add_argument("--targets", default=",".join(TARGETS))
    writer.add_argument("models", nargs="*")
    comparer = commands.add_parser("compare")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    choice = parser.parse_args()
    if choice.command == "compare":
        sys.exit(1 if compare(choice.before, choice.after) else 0)
    names = choice.models or [*models.DEFAULT, *models.DEFAULT_BATCHES]
    write(choice.file, choice.targets.split(","), names)


if __name__ == "__main__":
    main()
