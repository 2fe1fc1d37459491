"""A plan: what the cost model decided for one contraction, as data that prints and parses.

    gemm axes=0,1 tile=6x2x8 packing=given:16 blocking=blocks:4 k_unroll=4 prefetch=8 tail=pad

cost/ decides plans from sizes, element type and target; a kernel carries one for each contraction
block (`Kernel.plans`, printed with the kernel); the schedule rules apply it and ask nothing else. A
plan that is edited in the text of a kernel is the one that is compiled.

    algorithm     which rule applies it: gemm, reduction (pooling, sums), depthwise, depthwise_rows
                  (of a row-major map), small_m_gemm, split_k, column_sum, attention, winograd_f2,
                  packed_rows, packed_tiles (weights of a few bits), dot (a row reduction), plain
                  (not vectorised)
    axes          the block's axes along the rows and the lanes of the tile, by position; - is none
    k             the reduce axes in the order of their loops, where there are several
    tile          register tile: rows x vectors x lanes
    packing       panels of the operand that vectors are loaded from: who packs them and how wide
                  they are. given: it is packed already; kernel: a nest of this kernel packs it;
                  @panel: panel by panel, inside the loop over panels
    blocking      the loops around the tile: panels (outermost, all rows inside), rows (outermost,
                  all panels inside), blocks:N (of N row tiles), channels:N, channels_copied:N
                  (depthwise: blocks of N panels; with a copy of their input), rows_copied:NxH
                  (the same, H rows at a time), maps:NxM
                  (depthwise_rows: N maps are copied at a time, a tile has M of them), columns:N,
                  k_chunks:N (small M), tiles:HxW (Winograd), flat_tiles:N (Winograd, N
                  consecutive tiles)
    dot           products that one instruction adds to each lane, which the operand is packed for: an
                  iteration of k takes so many terms (cost/dot_products.py)
    k_unroll      iterations of k that are unrolled
    prefetch      iterations of k between two prefetches of the next panel
    partial_sums  P:N: N iterations of k loop P make one partial sum
    tail          pad: operands and output are padded to whole tiles; guard: the last is partial
    |             after it comes the plan to apply where a step of this one is refused

A contraction over dynamic sizes may have variants, each a kernel of its own, of which a run chooses
by its sizes (lower/variants.py). A variant says which sizes it is for, and the general one is last:

    gemm when=rows<=1 axes=0,1 tile=1x4x16 … else gemm axes=0,1 tile=6x4x16 …
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from ingot.cost.tile import Tile
from ingot.support.errors import IngotError
from ingot.support.node import Node, node

ALGORITHMS = (
    "gemm", "reduction", "depthwise", "depthwise_rows", "small_m_gemm", "split_k", "column_sum",
    "attention", "winograd_f2", "packed_rows", "packed_tiles", "dot", "plain",
)  # fmt: skip
ORDERS = {
    "panels": 0,
    "rows": 0,
    "blocks": 1,
    "channels": 1,
    "channels_copied": 1,
    "rows_copied": 2,
    "maps": 2,
    "columns": 1,
    "k_chunks": 1,
    "tiles": 2,
    "flat_tiles": 1,
}  # fmt: skip  (loop order → how many sizes it takes)


@node
class Packing(Node):
    """Panels of `width` columns, packed by "given" or "kernel"; `per_panel`: inside the loop over
    panels."""

    by: str
    width: int
    per_panel: bool = False


@node
class Blocking(Node):
    """The order of the loops around a register tile, and the sizes of their blocks."""

    order: str
    sizes: tuple[int, ...] = ()


@node
class ContractionPlan(Node):
    """Every decision about one contraction; the words are explained above."""

    algorithm: str
    rows: int | None = None  # positions of block axes
    lanes: int | None = None
    k: tuple[int, ...] = ()
    tile: Tile | None = None
    packing: Packing | None = None
    blocking: Blocking | None = None
    k_unroll: int = 1
    prefetch: int | None = None
    partial_sums: tuple[int, int] | None = None
    tail: str = "guard"
    dot: int | None = None  # terms that one instruction adds
    max_rows: int | None = None  # it is a variant for at most so many rows
    otherwise: ContractionPlan | None = None  # where a step of this one is refused
    general: ContractionPlan | None = None  # for sizes that this variant is not for

    @property
    def choices(self) -> tuple[ContractionPlan, ...]:
        """This plan and its alternatives, each alone, the preferred one first."""
        found: list[ContractionPlan] = []
        rest: ContractionPlan | None = self
        while rest is not None:
            found.append(replace(rest, otherwise=None, general=None))
            rest = rest.otherwise
        return tuple(found)

    @property
    def variants(self) -> tuple[ContractionPlan, ...]:
        """This plan and those for other sizes, each with its alternatives; the general one last."""
        own = replace(self, general=None)
        return (own,) if self.general is None else (own, *self.general.variants)

    def __str__(self) -> str:
        return " else ".join(" | ".join(map(_show, v.choices)) for v in self.variants)


def _show(plan: ContractionPlan) -> str:
    words = [plan.algorithm]
    if plan.max_rows is not None:
        words.append(f"when=rows<={plan.max_rows}")
    if plan.lanes is not None:
        words.append(f"axes={'-' if plan.rows is None else plan.rows},{plan.lanes}")
    if plan.k:
        words.append(f"k={','.join(map(str, plan.k))}")
    if plan.tile is not None:
        words.append(f"tile={plan.tile.rows}x{plan.tile.vectors}x{plan.tile.lanes}")
    if plan.packing is not None:
        where = "@panel" if plan.packing.per_panel else ""
        words.append(f"packing={plan.packing.by}:{plan.packing.width}{where}")
    if plan.blocking is not None:
        sizes = "x".join(map(str, plan.blocking.sizes))
        words.append(f"blocking={plan.blocking.order}{sizes and ':' + sizes}")
    if plan.dot is not None:
        words.append(f"dot={plan.dot}")
    if plan.k_unroll != 1:
        words.append(f"k_unroll={plan.k_unroll}")
    if plan.prefetch is not None:
        words.append(f"prefetch={plan.prefetch}")
    if plan.partial_sums is not None:
        words.append(f"partial_sums={plan.partial_sums[0]}:{plan.partial_sums[1]}")
    if plan.tail != "guard":
        words.append(f"tail={plan.tail}")
    return " ".join(words)


PLAIN = ContractionPlan("plain")


def preferred(plans: Sequence[ContractionPlan]) -> ContractionPlan:
    """The first plan, with the others as its alternatives."""
    *others, made = plans
    for plan in reversed(others):
        made = replace(plan, otherwise=made)
    return made


def by_sizes(variants: Sequence[ContractionPlan]) -> ContractionPlan:
    """The first variant, with the others as plans for other sizes."""
    *special, made = variants
    for plan in reversed(special):
        made = replace(plan, general=made)
    return made


def parse_plan(text: str) -> ContractionPlan:
    """The plan that `text` is; the inverse of `str`."""
    variants = text.split(" else ")
    made = [preferred([_parse(choice) for choice in v.split("|")]) for v in variants]
    is_last_general = len(made) == 1 or made[-1].max_rows is None
    if not (all(plan.max_rows for plan in made[:-1]) and is_last_general):
        _fail(text, "else", "every variant but the last reads when=rows<=N, the last has no when")
    return by_sizes(made)


def _parse(text: str) -> ContractionPlan:
    algorithm, *words = text.split() or [""]
    if algorithm not in ALGORITHMS:
        _fail(text, algorithm, f"the algorithms are {', '.join(ALGORITHMS)}")
    fields: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in _WORDS:
            _fail(text, word, f"a plan has {', '.join(_WORDS)}")
        pattern, build = _WORDS[key]
        found = re.fullmatch(pattern, value)
        if found is None:
            _fail(text, word, f"it reads {key}={_EXAMPLES[key]}")
        fields |= build(found)
    if algorithm == "depthwise" and "tile" in fields:
        tile = fields["tile"]
        fields["tile"] = Tile(tile.rows, tile.vectors, tile.lanes, is_depthwise=True)
    order = fields.get("blocking")
    if order is not None and ORDERS.get(order.order) != len(order.sizes):
        _fail(text, order.order, f"the loop orders are {', '.join(ORDERS)}, with their sizes")
    return ContractionPlan(algorithm, **fields)


def _fail(text: str, word: str, hint: str) -> NoReturn:
    raise IngotError(
        "bad-text", f"{word!r} is no part of a plan", where=f"plan {text!r}", hint=hint
    )


_N = r"([1-9]\d*)"
_WORDS: dict[str, tuple[str, Callable[[re.Match[str]], dict[str, Any]]]] = {
    "when": (f"rows<={_N}", lambda m: {"max_rows": int(m[1])}),
    "axes": (r"(-|\d+),(\d+)", lambda m: {
        "rows": None if m[1] == "-" else int(m[1]), "lanes": int(m[2])}),
    "k": (r"\d+(?:,\d+)+", lambda m: {"k": tuple(map(int, m[0].split(",")))}),
    "tile": (f"{_N}x{_N}x{_N}", lambda m: {"tile": Tile(int(m[1]), int(m[2]), int(m[3]))}),
    "packing": (f"(given|kernel):{_N}(@panel)?", lambda m: {
        "packing": Packing(m[1], int(m[2]), m[3] is not None)}),
    "blocking": (r"([a-z_]+)(?::([1-9]\d*(?:x[1-9]\d*)*))?", lambda m: {
        "blocking": Blocking(m[1], tuple(map(int, m[2].split("x"))) if m[2] else ())}),
    "dot": (_N, lambda m: {"dot": int(m[1])}),
    "k_unroll": (_N, lambda m: {"k_unroll": int(m[1])}),
    "prefetch": (_N, lambda m: {"prefetch": int(m[1])}),
    "partial_sums": (rf"(\d+):{_N}", lambda m: {"partial_sums": (int(m[1]), int(m[2]))}),
    "tail": ("(pad|guard)", lambda m: {"tail": m[1]}),
}  # fmt: skip
_EXAMPLES = {
    "when": "rows<=1",
    "axes": "0,1", "k": "2,3", "tile": "6x2x8", "packing": "given:16", "blocking": "blocks:4",
    "dot": "4",
    "k_unroll": "4", "prefetch": "8", "partial_sums": "0:256", "tail": "pad",
}  # fmt: skip
