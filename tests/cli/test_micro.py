"""`make micro`: its shapes, a real benchmark of small ones, and the summary."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import convs, gemm, patterns
from benchmarks.micro import command, table
from benchmarks.micro.models import Case, node
from benchmarks.micro.rounds import Result
from ingot.cli.peers.rounds import Entry


def seeded(module, seed: int = 5) -> list[Case]:
    return module.cases(np.random.default_rng(seed))


def test_gemms_from_a_seed():
    found = seeded(gemm)
    large = [case for case in found if case.kind == "large"]
    assert len(large) >= 60
    assert all(min(*c.inputs["a"], *c.inputs["b"]) >= 256 for c in large)
    assert {1, 16} <= {case.inputs["a"][0] for case in found if case.kind == "small-M"}
    assert [case.name for case in seeded(gemm)] == [case.name for case in found]
    assert [case.name for case in seeded(gemm, 6)] != [case.name for case in found]


def test_convolutions_of_every_kind():
    found = seeded(convs)
    assert len(found) >= 60 and len({case.kind for case in found}) == len(convs.KINDS)
    assert all(case.flops > 0 for case in found)


@pytest.mark.parametrize("module", [gemm, convs, patterns])
def test_few_are_from_all_over(module):
    few = command.spread(seeded(module), 7)
    assert len(few) == 7 and len({case.kind for case in few}) >= 3


def test_a_real_benchmark(tmp_path: Path, capsys):
    """All outputs match: convolutions, layer-norm, and a GEMM with and without constant B."""

    def small(random: np.random.Generator) -> list[Case]:
        shape = convs.ConvShape(8, 4, (6, 7), 3, stride=2, group=2)
        return [
            convs._case("grouped", shape),
            convs._case("transposed", replace(shape, group=1, transposed=True)),
            Case("norm", "rows", (node("LayerNormalization", "xwb", axis=-1, epsilon=1e-5),),
                 {"x": (5, 9)}, {"w": (9,), "b": (9,)}),
        ]  # fmt: skip

    quick = ["--threads", "1", "--rounds", "1", "--round-s", "0", "--out", str(tmp_path)]
    command.main("small", small, convs.IMPLEMENTATIONS, quick)
    command.main("gemm", lambda r: [gemm._case("irregular", 3, 17, 13)],
                 gemm.IMPLEMENTATIONS, quick)  # fmt: skip
    said = capsys.readouterr().out
    assert "DIFFERS" not in said and "failed" not in said, said
    assert "seed 5" in said and "below 0.95" in said and "worst of Ingot constant B" in said
    kept = json.loads((tmp_path / "small.json").read_text(encoding="utf-8"))
    assert [r["case"] for r in kept["results"]][2] == "norm" and kept["seed"] == 5
    assert all(e["distance"] < 1e-5 for r in kept["results"] for e in r["entries"] if e["distance"])


def test_what_the_summary_counts():
    def result(name: str, ours_ms: float) -> Result:
        case = Case(name, "k", (), {})
        entries = [("Ingot", ours_ms), ("ONNX Runtime", 2.0), ("torch", 1.0)]
        return Result(case, 2, tuple(Entry(n, 2, rounds_ms=(t,)) for n, t in entries))

    results = [result("slow", 2.0), result("near", 1 / 0.9), result("quick", 0.5)]
    (found,) = table.summaries(results, convs.IMPLEMENTATIONS)
    assert found["below"] == {"0.95": 2, "0.85": 1}
    assert found["geometric_mean"] == pytest.approx((0.5 * 0.9 * 2.0) ** (1 / 3))
    assert [w["case"] for w in found["worst"]] == ["slow", "near", "quick"]
    assert "slow 0.50" in table.summary_lines([found])[-1]
