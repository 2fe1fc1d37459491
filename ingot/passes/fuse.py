"""Operator fusion: graph → graph whose kernels are `fused` nodes (ops/fused.py).

A group has one final node; every other member is read only inside the group. So no path leaves a
group and returns, and sorting by the final node is a topological order. A group of one is a `fused`
node too. What becomes no kernel stays as it is: constants and their packing, views, control flow
(its sub-graphs are fused), and nodes that bind symbols, which become more than one kernel.

0. Attention: two matmuls with a softmax between them are one group (passes/match_attention.py). A
   transpose after it that keeps the last axis is included. INGOT_OFF=attention switches it off.
1. Epilogue fusion: a CONTRACTION or REDUCTION takes the elementwise nodes after it that keep its
   shape.
2. Producer fusion: an elementwise or injective node is inlined into the group that reads it, if
   that does not repeat its work:
   - into an elementwise or injective reader of the same or smaller size, or if it is cheap;
   - before a REDUCTION, whose loops may read an element several times, if it is elementwise and
     cheap;
   - before a matmul, if it is cheap and elementwise or a transpose: the operand is packed into
     panels in any case, or read once; not before one by dot products, which reads bytes;
   - before either, if it is cheap and computed from constants only (a cast of the weights);
   and if the group does not grow beyond `FusionPolicy.max_work`.
   A node that widens 8-bit elements is inlined into each such reader, for the others it is stored;
   no epilogue ends with it if its readers can inline it.
3. Opaque nodes, nodes that bind symbols, nodes with sub-graphs and views are not fused.

The limits and switches are a `FusionPolicy`, which the back end gives. Called by the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, replace
from ingot.graph.layouts import panel_of
from ingot.graph.opdef import Kind, defn
from ingot.graph.types import Type, same_size
from ingot.graph.verify import bound_symbols
from ingot.ops.fused import fused_node
from ingot.ops.relayout import packs_constant
from ingot.ops.views import is_view
from ingot.passes.edit import constant_ref, map_subgraphs, same_shape, widens
from ingot.passes.match_attention import AttentionLimits, GraphIndex, match_attention
from ingot.support.stack import segmented

POINTWISE = (Kind.ELEMENTWISE, Kind.INJECTIVE)
ANCHORS = (Kind.REDUCTION, Kind.CONTRACTION)


@dataclass(frozen=True)
class FusionPolicy:
    """What may fuse; the default is the CPU's. All numbers are heuristic."""

    attention: AttentionLimits | None = field(default_factory=AttentionLimits)  # None: off
    max_epilogue: int = 64  # nodes of an epilogue
    producers: tuple[Kind, ...] = POINTWISE  # kinds of nodes that may be inlined into a reader
    fuses_before_anchors: bool = True  # inline producers of a contraction or reduction too
    max_copies: int = 8  # how many times a cheap node may be inlined into one kernel
    max_costly_copies: int = 2  # the same for a node that is not cheap
    max_work: int = 64  # nodes of a group, weighted: a larger one is compute-bound, slow to compile
    costly_work: int = 2  # weight of an elementwise node that is not cheap, such as exp
    tiny_elements: int = 64  # a cheap value of this size is recomputed in each group that reads it


DEFAULT_POLICY = FusionPolicy()


def fuse(graph: Graph, policy: FusionPolicy = DEFAULT_POLICY) -> Graph:
    """Fuse nodes into groups, by the rules at the top of this file."""
    return replace(graph, nodes=tuple(_Fusion(graph, policy).fused_nodes()))


class _GroupBuilder:
    """A group under construction. `copies`: node index → how many times it is inlined."""

    def __init__(self, final: int):
        self.final = final
        self.copies: dict[int, int] = {final: 1}
        self.anchor: int | None = None
        self.before_anchor: set[int] = set()  # anchors, and members whose values flow into one
        self.matmuls: set[int] = set()  # of attention, both


class _Fusion:
    def __init__(self, graph: Graph, policy: FusionPolicy):
        self.nodes, self.policy = graph.nodes, policy
        self.producer = {v.name: i for i, n in enumerate(graph.nodes) for v in n.outputs}
        self.readers: dict[int, list[int]] = {i: [] for i in range(len(graph.nodes))}
        for i, node in enumerate(graph.nodes):
            for j in self._operands(node):
                self.readers[j].append(i)
        self.constants = {n.outputs[0].name for n in graph.nodes if constant_ref(n) is not None}
        outputs = {v.name for v in graph.outputs}
        self.visible = [any(v.name in outputs for v in n.outputs) for n in graph.nodes]
        self.kinds = [_fusion_kind(n) for n in graph.nodes]
        self.groups_of: dict[int, list[_GroupBuilder]] = {}
        self.from_constants: dict[int, bool] = {}  # cache of `_is_from_constants`

    def fused_nodes(self) -> list[Node]:
        """The graph's nodes, each group where its final node was."""
        if self.policy.attention is not None:
            self._start_attention(self.policy.attention)
        for i, kind in enumerate(self.kinds):
            if kind in ANCHORS and i not in self.groups_of:
                self._start_group(self._epilogue(i), anchor=i)
        for i in reversed(range(len(self.nodes))):
            if i not in self.groups_of and constant_ref(self.nodes[i]) is None:
                self._assign(i)
        found = {m.final: m for members in self.groups_of.values() for m in members}
        constants = {self.producer[name] for name in self.constants}
        return [self._node(i, found.get(i)) for i in sorted(found.keys() | constants)]

    # --- attention

    def _start_attention(self, limits: AttentionLimits) -> None:
        operands = [list(self._operands(node)) for node in self.nodes]
        index = GraphIndex(self.nodes, self.kinds, operands, self.readers, self.visible, limits)
        for i, kind in enumerate(self.kinds):
            if kind is Kind.CONTRACTION and i not in self.groups_of:
                inside = match_attention(index, i)
                if inside and not any(j in self.groups_of for j in inside):
                    last = inside[-1]
                    after = self._epilogue(last)
                    nodes = [*inside, *after[1:], *self._trailing_transpose(after[-1])]
                    group = self._start_group(nodes, anchor=i)
                    group.matmuls = {i, last}
                    group.before_anchor |= group.matmuls

    def _trailing_transpose(self, end: int) -> list[int]:
        """A transpose that is the only reader of `end` and keeps its rows contiguous."""
        readers = self.readers[end]
        if self.visible[end] or len(readers) != 1 or not defn(self.nodes[readers[0]]).permutes:
            return []
        perm = self.nodes[readers[0]].attr("perm")
        keeps = self.kinds[readers[0]] is Kind.INJECTIVE and perm[-1] == len(perm) - 1
        return readers if keeps else []

    # --- epilogues

    def _epilogue(self, anchor: int) -> list[int]:
        """The anchor and the longest run of elementwise nodes after it with a single output."""
        if len(self.nodes[anchor].outputs) != 1:
            return [anchor]
        region, best = {anchor: 1}, [anchor]
        for i in range(anchor + 1, len(self.nodes)):
            if len(region) > self.policy.max_epilogue or self._is_closed(region, i):
                break
            if self._may_fuse(anchor, region, i):
                region[i] = 1
                inside = self._ancestors(region, i)
                if self._has_one_end(inside, i):
                    best = inside
        return self._without_widening(best)

    def _without_widening(self, region: list[int]) -> list[int]:
        """The epilogue without nodes at its end that widen what readers could widen: the narrow
        elements are stored."""
        while len(region) > 1 and not self.visible[region[-1]] and self._widens(region[-1]):
            end = region[-1]
            narrow = self.producer.get(self.nodes[end].inputs[0].name)  # type: ignore[union-attr]
            if narrow not in region or not all(map(self._inlines_operands, self.readers[end])):
                break
            inside = self._ancestors(region, narrow)
            if not self._has_one_end(inside, narrow):
                break
            region = inside
        return region

    def _inlines_operands(self, i: int) -> bool:
        """Whether the group of a node may take an elementwise producer."""
        kind, op = self.kinds[i], defn(self.nodes[i])
        return kind in POINTWISE or kind is Kind.REDUCTION or op.reads_axes

    def _is_closed(self, region: Iterable[int], i: int) -> bool:
        """Whether no node from `i` on reads the region."""
        return all(r < i for j in region for r in self.readers[j])

    def _may_fuse(self, anchor: int, region: Iterable[int], i: int) -> bool:
        if self.kinds[i] is not Kind.ELEMENTWISE or i in self.groups_of:
            return False
        reads = any(j in region for j in self._operands(self.nodes[i]))
        return reads and same_shape(self._type(i), self._type(anchor))

    def _ancestors(self, region: Iterable[int], end: int) -> list[int]:
        found, todo = {end}, [end]
        while todo:
            fresh = [j for j in self._operands(self.nodes[todo.pop()]) if j in region]
            todo += [j for j in fresh if j not in found]
            found |= set(fresh)
        return sorted(found)

    def _has_one_end(self, members: list[int], end: int) -> bool:
        inner = [i for i in members if i != end]
        hidden = all(not self.visible[i] for i in inner)
        if not hidden or any(r not in members for i in inner for r in self.readers[i]):
            return False
        copies = self._copies(members, end)
        return all(
            copies[i] <= self.policy.max_copies for i in inner[1:]
        )  # the anchor's value is stored

    def _copies(self, members: list[int], end: int) -> dict[int, int]:
        copies = {end: 1}
        for i in sorted(members, reverse=True):
            if i != end:
                copies[i] = sum(copies[r] for r in self.readers[i])
        return copies

    def _start_group(self, nodes: list[int], anchor: int | None) -> _GroupBuilder:
        members = _GroupBuilder(nodes[-1])
        members.anchor = anchor
        members.before_anchor = set() if anchor is None else {anchor}
        members.copies = self._copies(nodes, nodes[-1])
        for i in nodes:
            self.groups_of[i] = [members]
        return members

    # --- producers

    def _assign(self, i: int) -> None:
        """Add a node to the groups that read it, or start a new group."""
        groups = self._groups_of_readers(i)
        may_fuse = bool(groups) and self.kinds[i] in self.policy.producers and not self.visible[i]
        if groups and self._widens(i):
            self._assign_widening(i, groups)
        elif not may_fuse or (len(groups) > 1 and not self._is_tiny(i)):
            alone = self.kinds[i] is Kind.OPAQUE
            self._start_group([i], anchor=i if alone else None)
        elif not all(self._accepts(group, i) for group in groups):
            self._start_group([i], anchor=None)
        else:
            self.groups_of[i] = groups
            for group in groups:
                self._add(group, i)

    def _assign_widening(self, i: int, groups: list[_GroupBuilder]) -> None:
        """Inline the node where its readers can take it, and store its result for the others."""
        takers = [group for group in groups if self._accepts(group, i)]
        own = self._start_group([i], anchor=None) if self.visible[i] or takers != groups else None
        for group in takers:
            self._add(group, i)
        self.groups_of[i] = takers if own is None else [*takers, own]

    def _groups_of_readers(self, i: int) -> list[_GroupBuilder]:
        found = {id(m): m for r in self.readers[i] for m in self.groups_of[r]}
        return sorted(found.values(), key=lambda m: m.final)

    def _accepts(self, group: _GroupBuilder, i: int) -> bool:
        op = defn(self.nodes[i])
        most = self.policy.max_copies if op.cheap else self.policy.max_costly_copies
        if self.kinds[group.final] is Kind.OPAQUE or self._copies_in(group, i) > most:
            return False
        if sum(self._work(j) for j in group.copies) + self._work(i) > self.policy.max_work:
            return False
        for r in self._readers_in(group, i):
            if op.is_pad and _moves_last_axis(self.nodes[r]):
                return False  # masked loads would keep it from transposing tiles in registers
            if r in group.before_anchor:
                if not op.cheap or not self._may_precede(group, i):
                    return False
            elif not op.cheap and not self._reads_each_once(r, i):
                return False
        return True

    def _may_precede(self, group: _GroupBuilder, i: int) -> bool:
        assert group.anchor is not None
        if not self.policy.fuses_before_anchors:
            return False
        is_pointwise = self.kinds[i] is Kind.ELEMENTWISE
        if self.kinds[group.anchor] is Kind.REDUCTION and is_pointwise:
            return True
        reads_axes = defn(self.nodes[group.anchor]).reads_axes
        if _has_k_blocks(self.nodes[group.anchor]):
            return False  # its inner loop is a dot product of what is in memory
        if group.matmuls or (reads_axes and group.anchor in self.readers[i]):
            return is_pointwise or defn(self.nodes[i]).permutes
        return self._is_from_constants(i)

    def _add(self, group: _GroupBuilder, i: int) -> None:
        group.copies[i] = self._copies_in(group, i)
        if any(r in group.before_anchor for r in self._readers_in(group, i)):
            group.before_anchor.add(i)

    def _readers_in(self, group: _GroupBuilder, i: int) -> list[int]:
        return [r for r in self.readers[i] if r in group.copies]

    def _copies_in(self, group: _GroupBuilder, i: int) -> int:
        return sum(group.copies[r] for r in self._readers_in(group, i))

    # --- queries

    def _operands(self, node: Node) -> Iterator[int]:
        """The producers of a node's operands, once for each operand."""
        return (
            self.producer[v.name] for v in node.inputs if v is not None and v.name in self.producer
        )

    def _type(self, i: int) -> Type:
        return self.nodes[i].outputs[0].type

    def _reads_each_once(self, reader: int, i: int) -> bool:
        """Whether a reader of a value reads each element about once at most."""
        if self.readers[i].count(reader) > 1 and self.kinds[reader] is Kind.INJECTIVE:
            return False
        if same_shape(self._type(reader), self._type(i)):
            return True
        theirs, mine = self._type(reader).numel, self._type(i).numel
        bounds = arith.as_int(theirs), arith.as_int(mine)
        if None not in bounds:
            return bounds[0] <= bounds[1]  # type: ignore[operator]
        return same_size(theirs, mine)

    def _work(self, i: int) -> int:
        is_costly = self.kinds[i] is Kind.ELEMENTWISE and not defn(self.nodes[i]).cheap
        return self.policy.costly_work if is_costly else 1

    @segmented
    def _is_from_constants(self, i: int) -> bool:
        if i not in self.from_constants:
            self.from_constants[i] = self._reads_constants_only(i)
        return self.from_constants[i]

    def _reads_constants_only(self, i: int) -> bool:
        inputs = [v for v in self.nodes[i].inputs if v is not None]
        producers = [self.producer.get(v.name) for v in inputs]
        return bool(producers) and all(
            j is not None and (constant_ref(self.nodes[j]) is not None or self._is_cheap_chain(j))
            for j in producers
        )

    def _is_cheap_chain(self, i: int) -> bool:
        cheap = self.kinds[i] in POINTWISE and defn(self.nodes[i]).cheap
        return cheap and self._is_from_constants(i)

    def _is_tiny(self, i: int) -> bool:
        count = arith.as_int(self._type(i).numel)
        return (
            defn(self.nodes[i]).cheap and count is not None and count <= self.policy.tiny_elements
        )

    def _widens(self, i: int) -> bool:
        return self.kinds[i] is Kind.ELEMENTWISE and widens(self.nodes[i])

    def _node(self, i: int, members: _GroupBuilder | None) -> Node:
        """The node that stands for a group, or for a constant."""
        node = self.nodes[i]
        if node.op == "fused":
            return node
        if members is None or not _becomes_kernel(node) or packs_constant(node, self.constants):
            return map_subgraphs(node, lambda g: fuse(g, self.policy))
        anchor = None if members.anchor is None else self.nodes[members.anchor]
        nodes = _anchor_last([self.nodes[j] for j in sorted(members.copies)], anchor)
        return fused_node(nodes, node.outputs, anchor)


def _anchor_last(nodes: list[Node], anchor: Node | None) -> list[Node]:
    """What does not depend on the anchor comes before it, such as a scale that is computed at run
    time: no nest is then between the anchor's and those of its epilogue."""
    if anchor is None:
        return nodes
    after = {v.name for v in anchor.outputs}
    last = [anchor]
    for node in nodes[nodes.index(anchor) + 1 :]:
        if any(v is not None and v.name in after for v in node.inputs):
            last.append(node)
            after |= {v.name for v in node.outputs}
    return [node for node in nodes if node not in last] + last


def _becomes_kernel(node: Node) -> bool:
    """Whether the node is one kernel, if it is alone in its group."""
    has_graphs = any(True for _ in node.subgraphs)
    return not (bound_symbols(node) or has_graphs or is_view(node)) and defn(node).has_compute


def _moves_last_axis(node: Node) -> bool:
    perm = node.attr("perm") if defn(node).permutes else ()
    return bool(perm) and perm[-1] != len(perm) - 1


def _has_k_blocks(node: Node) -> bool:
    """Is an operand packed for dot-product instructions?"""
    layouts = (v.tensor.layout for v in node.inputs if v is not None)
    return any(x is not None and (panel_of(x) or (0, 1))[1] > 1 for x in layouts)


def _fusion_kind(node: Node) -> Kind:
    """The node's kind; OPAQUE if it must not be fused."""
    op = defn(node)
    alone = bool(bound_symbols(node)) or any(True for _ in node.subgraphs) or not op.has_compute
    kind = Kind.OPAQUE if alone or is_view(node) else op.kind_of(node)
    return Kind.OPAQUE if kind in POINTWISE and len(node.outputs) != 1 else kind
