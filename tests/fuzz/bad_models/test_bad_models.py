"""Mutants of valid models, each in a process of its own with 10 seconds and 1 GB: none escapes.

Printed: how many there were, how many were protobufs, refused, compiled and run. A failure names
seeds; `python -m tests.fuzz.bad_models.child CORPUS FOLDER SEED` shows one with its traceback.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from tests.fuzz.bad_models.corpus import corpus
from tests.fuzz.bad_models.domain_seeds import domain_models
from tests.fuzz.bad_models.operator_attacks import ALL as ATTACKS
from tests.fuzz.bad_models.peers import compare_all
from tests.refusal import is_told

PARSED_SHARE = 0.3
SHOWN = 5


def run_mutants(folder: Path, first: int, count: int) -> list[dict[str, Any]]:
    """One server process forks a child for each mutant; its records."""
    source = folder / "corpus.pickle"
    source.write_bytes(pickle.dumps(corpus()))
    command = [sys.executable, "-m", "tests.fuzz.bad_models.child", str(source), str(folder)]
    one_thread = {"OPENBLAS_NUM_THREADS": "1"}  # a fork carries no threads over
    done = subprocess.run(
        [*command, str(first), str(first + count)],
        env=os.environ | one_thread,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_mutants(folder: Path, first: int, count: int) -> None:
    records = run_mutants(folder, first, count)
    assert [r["seed"] for r in records] == list(range(first, first + count))
    parsed = sum(r.get("parsed", False) for r in records)
    outcomes = Counter(r.get("outcome", "escaped") for r in records)
    codes = Counter(r["code"] for r in records if r.get("outcome") == "refused")
    print(f"\n{count} mutants, {parsed} parsed, {dict(outcomes)}, refused as {dict(codes)}")
    escaped = [r for r in records if "escape" in r]
    shown = "\n\n".join(f"{r.get('mutant', r['seed'])}\n{r['escape']}" for r in escaped[:SHOWN])
    assert not escaped, f"{len(escaped)} escaped\n{shown}"
    assert parsed >= PARSED_SHARE * count
    assert outcomes["compiled"] + outcomes["ran"] > 0.1 * count, "few mutants got far"
    checked, wrong = compare_all(folder)
    print(f"{checked} run by ONNX Runtime too")
    assert not wrong, "\n".join(wrong[:SHOWN])
    assert checked > 0


# attack → code and a fact of the error, for attacks that do not compile
ERRORS = {
    "calls_itself": ("bad-model", "'F'"), "cycle": ("bad-model", "'Relu_k0'"),
    "huge_fill": ("limit", "64 TB"), "huge_tensor": ("bad-model", "'lie'"),
    "leads_out": ("bad-model", "'far'"), "sparse_bomb": ("limit", "'sparse'"),
    "unfolds": ("limit", "200000"), "wide_rank": ("limit", "32"),
}  # fmt: skip


def test_attacks_are_contained_and_named(tmp_path: Path) -> None:
    """Each attack in two variants, compiled to the end where it compiles."""
    records = run_mutants(tmp_path, -2 * len(ATTACKS), 2 * len(ATTACKS))
    texts: dict[str, str] = {}
    for r in records:
        assert "escape" not in r, f"{r.get('mutant')}\n{r['escape']}"
        texts[r["steps"][0]] = texts.get(r["steps"][0], "") + r.get("text", "")
    assert set(texts) == {attack.__name__ for attack in ATTACKS}
    for name, (code, fact) in ERRORS.items():
        assert f"[{code}]" in texts[name] and is_told(fact, texts[name]), f"{name}: {texts[name]}"


def test_the_seeds_of_other_domains_are_valid() -> None:
    onnxruntime.set_default_logger_severity(4)
    for name, proto in domain_models().items():
        assert onnxruntime.InferenceSession(proto.SerializeToString()).get_outputs(), name


def test_no_mutant_escapes(tmp_path: Path) -> None:
    check_mutants(tmp_path, 0, 700)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_no_mutant_of_many_escapes(tmp_path: Path, part: int) -> None:
    check_mutants(tmp_path, 10_000 + 2000 * part, 2000)
