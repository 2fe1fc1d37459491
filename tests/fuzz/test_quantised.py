"""Random quantised networks, compiled, beside ONNX Runtime without optimisations: each layer by
itself, within one step, and the whole network, in which a flipped tie may spread."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.quantised.exactness import Agreement, check_layers, check_whole
from tests.fuzz.quantised import network
from tests.models.test_targets import runs_here

VNNI, AVX2, SSE = "x86-64-v4+avx512vnni", "x86-64-v3", "x86-64-v2"
# Seeds whose networks once gave a wrong answer, a crash or a refusal.
ONCE_WRONG: list[int] = []


def run(seed: int, target: str) -> None:
    if not runs_here(target):
        pytest.skip(f"no {target} here")
    proto, feeds = network(np.random.default_rng(seed))
    for each in check_layers(proto, [feeds], target, ())["ingot"]:
        assert each.largest < 1.01, f"seed {seed}: {each}"
    for each in check_whole(proto, [feeds], target, ())["ingot"]:
        assert is_near(each), f"seed {seed}, the whole network: {each}"


def is_near(found: Agreement) -> bool:
    """Hardly any output is far away: a wrong layer changes nearly all of them."""
    return found.within_one > 0.9 and (found.largest < 16 or found.equal > 0.9)


@pytest.mark.parametrize("seed", sorted({*range(2), *ONCE_WRONG}))
def test_networks(seed: int) -> None:
    run(seed, (VNNI, AVX2)[seed % 2])


@pytest.mark.long
@pytest.mark.parametrize("target", [VNNI, AVX2, SSE])
@pytest.mark.parametrize("seed", range(1000, 1150))
def test_many_networks(seed: int, target: str) -> None:
    run(seed, target)
