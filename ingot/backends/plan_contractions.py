"""Stage: the cost model's decisions, as plans on fused nodes.

    fused(x, w) {body=…}  →  fused(x, w) {body=…, plans=["matmul: gemm axes=0,1 tile=6x2x8 …"]}

A plan belongs to a block of the kernel that lower and merge_axes make of the group, and names the
axes of that block; lower copies it onto the kernel, and the schedule applies it. What passes have
decided before is in the group: the panel width of a packed operand in its layout, the blocks of
Winograd tiles in an attribute. A plan that the node has already (from an edited text) is kept. In:
a Graph of fused nodes, and the back end's table of rules. Out: the same with plans. `plan_kernels`
does it for kernels that no fused node stands for, before they are scheduled.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, bounds_of
from ingot.cost.contraction import is_faster
from ingot.cost.plan import ContractionPlan, by_sizes
from ingot.cost.shape import Given
from ingot.graph.ir import Graph, Node, make_attrs, replace
from ingot.graph.layouts import panel_of
from ingot.graph.opdef import Kind, defn
from ingot.graph.types import Symbol
from ingot.graph.views import Views
from ingot.loops import visit
from ingot.loops.ir import Kernel
from ingot.loops.specialize import with_size, without_likely
from ingot.lower.kernels import group_kernel, place
from ingot.lower.merge_axes import simplify_axes
from ingot.lower.variants import rows_of
from ingot.ops.fused import show_plans
from ingot.passes.edit import map_subgraphs
from ingot.program.ir import Program
from ingot.schedule.decide import Plans, plan_kernel
from ingot.schedule.rules import Rules
from ingot.support.errors import IngotError
from ingot.support.stack import segmented
from ingot.target import Target

UNPLANNED = (Kind.ELEMENTWISE, Kind.INJECTIVE)  # groups of these alone have nothing to decide


def plan_contractions(graph: Graph, target: Target, rules: Rules) -> Graph:
    """Put a plan for each contraction and reduction on its fused node."""
    return _Planner(target, rules).graph(graph, {})


def plan_kernels(program: Program, target: Target, rules: Rules) -> Program:
    """Put plans on kernels that have none: of data-dependent sizes, or written by users."""
    planner = _Planner(target, rules)
    kernels = tuple((name, planner.kernel(kernel)) for name, kernel in program.kernels)
    return replace(program, kernels=kernels)


def given_by(body: Graph) -> Given:
    """What passes have decided for a group."""
    layouts = ((v.name, v.tensor.layout) for v in body.inputs)
    packed = ((name, panel_of(x)) for name, x in layouts if x is not None)
    found = [(name, panel) for name, panel in packed if panel is not None]
    panels = tuple((name, width) for name, (width, _) in found)
    k_blocks = tuple((name, size) for name, (_, size) in found if size > 1)
    blocks = (block for n in body.nodes if (block := n.attr("tile_block", None)) is not None)
    return Given(panels, k_blocks, next(blocks, None), any(map(_is_over_sequence, body.nodes)))


def _is_over_sequence(node: Node) -> bool:
    """Is it a convolution along one axis? A map has many pixels, a sequence may be short."""
    if not defn(node).channels_last:
        return False
    _, _, *space = node.outputs[0].shape
    return sum(n != 1 for n in space) == 1


def _check_plans(kernel: Kernel) -> None:
    """Plans may come from an edited text: each names a block of the kernel, and axes of it."""
    axes = {block.name: len(block.axes) for block in visit.blocks(kernel.body)}
    for name, plan in kernel.plans:
        if name not in axes:
            why, hint = f"{kernel.name} has no block {name!r}", f"blocks: {', '.join(axes)}"
            raise _bad_plan(f"a plan of {name!r} cannot be applied", kernel, why, hint)
        *special, general = plan.variants
        if special and general.rows is None:
            why = "variants are chosen by the rows, and the general plan has none"
            hint = "give its axes as axes=ROWS,LANES, or leave the variants out"
            raise _bad_plan(f"the plan of {name!r} has variants, but no rows", kernel, why, hint)
        every = [p for variant in plan.variants for p in variant.choices]
        used = [i for p in every for i in (p.rows, p.lanes, *p.k) if i is not None]
        if used and max(used) >= axes[name]:
            why = f"the block has {axes[name]} axes, numbered from 0"
            what, hint = f"the plan of {name!r} names axis {max(used)}", f"0 to {axes[name] - 1}"
            raise _bad_plan(what, kernel, why, hint)


def _bad_plan(what: str, kernel: Kernel, why: str, hint: str) -> IngotError:
    return IngotError("bad-graph", what, where=kernel.origin or kernel.name, why=why, hint=hint)


class _Planner:
    def __init__(self, target: Target, rules: Rules):
        self.target, self.rules = target, rules
        # equal groups have equal plans
        self.known: dict[tuple[str, Kernel, Given | None], Plans] = {}

    @segmented
    def graph(self, graph: Graph, outside: Mapping[str, Symbol]) -> Graph:
        symbols, views = {**outside, **graph.symbol_map}, Views(graph)
        nodes = tuple(self.node(node, symbols, views) for node in graph.nodes)
        return replace(graph, nodes=nodes)

    def node(self, node: Node, symbols: Mapping[str, Symbol], views: Views) -> Node:
        if node.op != "fused":
            return map_subgraphs(node, lambda g: self.graph(g, symbols))
        body = node.attr("body")
        if node.attr("plans", ()) or all(defn(n).kind_of(n) in UNPLANNED for n in body.nodes):
            return node
        values = [v for v in (*node.inputs, *node.outputs) if v is not None]
        kernel, _ = simplify_axes(place(group_kernel(body, symbols), values, views).kernel)
        found = self.plans(kernel, node.attr("family"), given_by(body))
        if not found:
            return node
        return replace(node, attrs=make_attrs({**node.attr_map, "plans": show_plans(found)}))

    def kernel(self, kernel: Kernel) -> Kernel:
        _check_plans(kernel)
        return replace(kernel, plans=kernel.plans or self.plans(kernel, kernel.family, None))

    def plans(self, kernel: Kernel, family: str, given: Given | None) -> Plans:
        key = family, kernel, given
        if key not in self.known:
            self.known[key] = self.decided(kernel, family, given)
        return self.known[key]

    def decided(self, kernel: Kernel, family: str, given: Given | None) -> Plans:
        if self.rules.has_variants(family):
            return self.variants(kernel, family, given)
        if given is not None and given.is_sequence and self.rules.has_short_variants(family):
            return self.short_variants(kernel, family, given)
        return self.plan(kernel, family, given)

    def plan(self, kernel: Kernel, family: str, given: Given | None) -> Plans:
        return plan_kernel(kernel, self.target, family, self.rules, given)

    def variants(self, kernel: Kernel, family: str, given: Given | None) -> Plans:
        """A plan for one row and a general one, where the rows are a dynamic size that may be 1 and
        a tile has several; else one plan."""
        plans = self.plan(kernel, family, given)
        size = _rows_size(kernel, plans)
        if size is None:
            return plans
        one = self.plan(with_size(kernel, size, 1), family, given)
        many = self.plan(without_likely(kernel, size), family, given)
        if [block for block, _ in one] != [block for block, _ in many]:
            return plans
        ((block, general),), ((_, special),) = many, one
        if general.rows is None or general.tile is None or general.tile.rows == 1:
            return many
        return ((block, by_sizes([replace(special, max_rows=1), general])),)

    def short_variants(self, kernel: Kernel, family: str, given: Given) -> Plans:
        """Plans for half, a quarter … of the rows of the general tile and the general one, where
        the rows are dynamic and may be so few; else one plan."""
        plans = self.plan(kernel, family, given)
        if [plan.algorithm for _, plan in plans] != ["gemm"]:
            return plans
        ((block, general),) = plans
        made = [general]
        for rows in _fewer_rows(kernel, block, general):
            found = dict(self.plan(kernel, family, replace(given, max_rows=rows))).get(block)
            if found is not None and is_faster(found.tile, made[0].tile, self.target.machine.core):
                made.insert(0, replace(found, max_rows=rows))
        return ((block, by_sizes(made)),)


def _fewer_rows(kernel: Kernel, block: str, plan: ContractionPlan) -> list[int]:
    """Half, a quarter … of the rows of a plan's tile, if a call may have so few."""
    rows = rows_of(kernel, block, plan)
    if rows is None or plan.tile is None or arith.as_int(rows) is not None:
        return []
    least = bounds_of(rows, {s.name: Interval(s.low, s.high) for s in kernel.sizes}).low
    tile_rows = plan.tile.rows
    halves = (tile_rows >> n for n in range(1, tile_rows.bit_length()))
    return [n for n in halves if least is None or least <= n]


def _rows_size(kernel: Kernel, plans: Plans) -> str | None:
    """The dynamic size that is the rows of the only contraction, if it can be 1."""
    if len(plans) != 1:
        return None
    ((block, plan),) = plans
    rows = rows_of(kernel, block, plan)
    found = (s for s in kernel.sizes if rows == arith.Var(s.name) and s.low == 1)
    return next((size.name for size in found if size.high != 1), None)
