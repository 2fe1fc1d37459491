"""Plans print and parse, and a text that is no plan is refused with its place."""

from __future__ import annotations

import pytest

from ingot.cost.plan import ALGORITHMS, PLAIN, Blocking, ContractionPlan, Packing, parse_plan
from ingot.cost.tile import Tile
from tests.refusal import refused

PLANS = [
    PLAIN,
    ContractionPlan("gemm", 0, 1, (), Tile(6, 2, 8), Packing("given", 16), Blocking("blocks", (4,)),
                    4, 8, (0, 256), "pad"),
    ContractionPlan("gemm", None, 3, (5, 4), Tile(1, 1, 8), Packing("kernel", 8, per_panel=True)),
    ContractionPlan("depthwise", 1, 2, (), Tile(4, 1, 8, is_depthwise=True), None,
                    Blocking("channels_copied", (2,)), 5),
    ContractionPlan("depthwise_rows", 2, 3, (4, 6, 5), Tile(19, 1, 8), None,
                    Blocking("maps", (4, 2)), 5, tail="pad"),
    ContractionPlan("gemm", 0, 1, (), Tile(8, 2, 16), Packing("given", 32), Blocking("rows"), 4,
                    tail="pad", dot=4),
    ContractionPlan("winograd_f2", 1, 2, (), Tile(6, 2, 8), None, Blocking("tiles", (1, 28))),
]  # fmt: skip


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_plan_prints_and_parses(plan: ContractionPlan):
    assert parse_plan(str(plan)) == plan


def test_the_text_names_every_decision():
    text = str(PLANS[1])
    assert text == (
        "gemm axes=0,1 tile=6x2x8 packing=given:16 blocking=blocks:4 k_unroll=4 prefetch=8 "
        "partial_sums=0:256 tail=pad"
    )


@pytest.mark.parametrize("text, word", [
    ("magic tile=6x2x8", "magic"),
    ("gemm tile=6x16", "tile=6x16"),
    ("gemm tile=0x2x8", "tile=0x2x8"),
    ("gemm rows=6", "rows=6"),
    ("gemm packing=later:16", "packing=later:16"),
    ("gemm blocking=blocks", "blocks"),
    ("gemm blocking=spiral:2", "spiral"),
    ("", ""),
])  # fmt: skip
def test_what_is_no_plan_is_refused(text: str, word: str):
    with refused("bad-text", *([word] if word else []), where="plan"):
        parse_plan(text)


def test_every_algorithm_has_a_name_of_its_own():
    assert len(set(ALGORITHMS)) == len(ALGORITHMS)
