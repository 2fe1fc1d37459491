"""Graph → groups of nodes, each to become one kernel. In: a graph whose operators have loops. Out:
a list of `Group`s, in an order in which every group's inputs are there. `lower` calls it.

A group has one final node; every other member is read only inside the group. So no path leaves a
group and comes back, and sorting by the final node is an order. Constants are in no group.

0. Two products with rows between them (attention) are one group: passes/two_products.py. A
   transpose after it that keeps the last axis comes along. INGOT_ATTENTION=0 leaves them apart.
1. A CONTRACTION or REDUCTION takes the elementwise nodes after it that keep its shape (epilogue).
2. An elementwise or injective node joins the group that reads it, if its work is not multiplied:
   - into an elementwise or injective reader of the same or smaller size, or if it is cheap;
   - before a REDUCTION, whose loops may read an element several times, if it is elementwise and
     cheap;
   - before a product that reads its operands axis by axis, if it is cheap and elementwise or a
     permutation: the operand is copied into panels in any case, or read once;
   - before either, if it is cheap and made from constants alone (a cast of the weights);
   and if the group does not grow beyond MAX_WORK.
3. Opaque nodes, nodes that bind symbols, nodes with sub-graphs and views stand alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.layouts import order
from ingot.graph.opdef import Kind, defn
from ingot.graph.types import TensorType, Type
from ingot.graph.verify import bound_symbols
from ingot.passes.edit import constant_ref, same_shape, same_size
from ingot.passes.reshaped import moves_nothing
from ingot.passes.two_products import Facts, rows_between
from ingot.support import knobs

MAX_COPIES = 8  # how often a cheap node's formula may be written out inside a kernel
MAX_COSTLY_COPIES = 2
MAX_EPILOGUE = 64
MAX_WORK = 64  # of a group: memory is long forgotten then, and compile time grows with its square
COSTLY_WORK = 2  # of an elementwise node that is not cheap, as exp; others count 1
TINY_ELEMENTS = 64  # cheap values of this size are computed again in each group that reads them

POINTWISE = (Kind.ELEMENTWISE, Kind.INJECTIVE)
ANCHORS = (Kind.REDUCTION, Kind.CONTRACTION)


@dataclass(frozen=True)
class Group:
    """Nodes of one kernel, in order. The last makes the outputs; `anchor` is the reduction,
    contraction or opaque node, if there is one; of two products, the first."""

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    anchor: Node | None

    @property
    def family(self) -> str:
        """The file in ops/ that defines the anchor, which is the key of its schedule rules."""
        if self.anchor is None:
            return "elementwise"
        if sum(defn(n).kind is Kind.CONTRACTION for n in self.nodes) > 1:
            return "attention"
        return type(defn(self.anchor)).__module__.rpartition(".")[2]


def fuse(graph: Graph) -> list[Group]:
    """Every node but constants is in a group, by the rules at the top of this file."""
    return _Fusion(graph).groups()


class _Members:
    """A group while it grows: node index → how often its formula is written out."""

    def __init__(self, final: int):
        self.final = final
        self.copies: dict[int, int] = {final: 1}
        self.anchor: int | None = None
        self.before_anchor: set[int] = set()  # anchors and members whose values reach one
        self.products: set[int] = set()  # of two products with rows between them, both


class _Fusion:
    def __init__(self, graph: Graph):
        self.nodes = graph.nodes
        self.maker = {v.name: i for i, n in enumerate(graph.nodes) for v in n.outputs}
        self.readers: dict[int, list[int]] = {i: [] for i in range(len(graph.nodes))}
        for i, node in enumerate(graph.nodes):
            for j in self._operands(node):
                self.readers[j].append(i)
        outputs = {v.name for v in graph.outputs}
        self.visible = [any(v.name in outputs for v in n.outputs) for n in graph.nodes]
        self.kinds = [_fusion_kind(n) for n in graph.nodes]
        self.homes: dict[int, list[_Members]] = {}

    def groups(self) -> list[Group]:
        if knobs.current().attention:
            self._start_attention()
        for i, kind in enumerate(self.kinds):
            if kind in ANCHORS and i not in self.homes:
                self._start(self._epilogue(i), anchor=i)
        for i in reversed(range(len(self.nodes))):
            if i not in self.homes and constant_ref(self.nodes[i]) is None:
                self._place(i)
        found = {m.final: m for members in self.homes.values() for m in members}
        return [self._group(found[final]) for final in sorted(found)]

    # --- two products

    def _start_attention(self) -> None:
        operands = [list(self._operands(node)) for node in self.nodes]
        facts = Facts(self.nodes, self.kinds, operands, self.readers, self.visible)
        for i, kind in enumerate(self.kinds):
            if kind is Kind.CONTRACTION and i not in self.homes:
                inside = rows_between(facts, i)
                if inside and not any(j in self.homes for j in inside):
                    last = inside[-1]
                    after = self._epilogue(last)
                    home = self._start([*inside, *after[1:], *self._moves(after[-1])], anchor=i)
                    home.products = {i, last}
                    home.before_anchor |= home.products

    def _moves(self, end: int) -> list[int]:
        """A transpose that alone reads the end, and stores whole rows as they were made."""
        readers = self.readers[end]
        if self.visible[end] or len(readers) != 1 or not defn(self.nodes[readers[0]]).permutes:
            return []
        perm = self.nodes[readers[0]].attr("perm")
        keeps = self.kinds[readers[0]] is Kind.INJECTIVE and perm[-1] == len(perm) - 1
        return readers if keeps else []

    # --- epilogues

    def _epilogue(self, anchor: int) -> list[int]:
        """The anchor and the longest run of nodes after it with one visible end."""
        if len(self.nodes[anchor].outputs) != 1:
            return [anchor]
        region, best = {anchor: 1}, [anchor]
        for i in range(anchor + 1, len(self.nodes)):
            if len(region) > MAX_EPILOGUE or self._is_closed(region, i):
                break
            if self._may_ride(anchor, region, i):
                region[i] = 1
                inside = self._ancestors(region, i)
                if self._has_one_end(inside, i):
                    best = inside
        return best

    def _is_closed(self, region: Iterable[int], i: int) -> bool:
        """Nothing from `i` on reads the region."""
        return all(r < i for j in region for r in self.readers[j])

    def _may_ride(self, anchor: int, region: Iterable[int], i: int) -> bool:
        if self.kinds[i] is not Kind.ELEMENTWISE or i in self.homes:
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
        return all(copies[i] <= MAX_COPIES for i in inner[1:])  # the anchor's value is stored

    def _copies(self, members: list[int], end: int) -> dict[int, int]:
        copies = {end: 1}
        for i in sorted(members, reverse=True):
            if i != end:
                copies[i] = sum(copies[r] for r in self.readers[i])
        return copies

    def _start(self, nodes: list[int], anchor: int | None) -> _Members:
        members = _Members(nodes[-1])
        members.anchor = anchor
        members.before_anchor = set() if anchor is None else {anchor}
        members.copies = self._copies(nodes, nodes[-1])
        for i in nodes:
            self.homes[i] = [members]
        return members

    # --- producers

    def _place(self, i: int) -> None:
        """Put a node into the groups that read it, or start one with it."""
        homes = self._homes_of_readers(i)
        may_join = bool(homes) and self.kinds[i] in POINTWISE and not self.visible[i]
        if not may_join or (len(homes) > 1 and not self._is_tiny(i)):
            alone = self.kinds[i] is Kind.OPAQUE
            self._start([i], anchor=i if alone else None)
        elif not all(self._accepts(home, i) for home in homes):
            self._start([i], anchor=None)
        else:
            self.homes[i] = homes
            for home in homes:
                self._join(home, i)

    def _homes_of_readers(self, i: int) -> list[_Members]:
        found = {id(m): m for r in self.readers[i] for m in self.homes[r]}
        return sorted(found.values(), key=lambda m: m.final)

    def _accepts(self, home: _Members, i: int) -> bool:
        op = defn(self.nodes[i])
        most = MAX_COPIES if op.cheap else MAX_COSTLY_COPIES
        if self.kinds[home.final] is Kind.OPAQUE or self._copies_in(home, i) > most:
            return False
        if sum(self._work(j) for j in home.copies) + self._work(i) > MAX_WORK:
            return False
        for r in self._readers_in(home, i):
            if r in home.before_anchor:
                if not op.cheap or not self._may_precede(home, i):
                    return False
            elif not op.cheap and not self._reads_each_once(r, i):
                return False
        return True

    def _may_precede(self, home: _Members, i: int) -> bool:
        assert home.anchor is not None
        is_pointwise = self.kinds[i] is Kind.ELEMENTWISE
        if self.kinds[home.anchor] is Kind.REDUCTION and is_pointwise:
            return True
        reads_axes = defn(self.nodes[home.anchor]).reads_axes
        if home.products or (reads_axes and home.anchor in self.readers[i]):
            return is_pointwise or defn(self.nodes[i]).permutes
        return self._is_from_constants(i)

    def _join(self, home: _Members, i: int) -> None:
        home.copies[i] = self._copies_in(home, i)
        if any(r in home.before_anchor for r in self._readers_in(home, i)):
            home.before_anchor.add(i)

    def _readers_in(self, home: _Members, i: int) -> list[int]:
        return [r for r in self.readers[i] if r in home.copies]

    def _copies_in(self, home: _Members, i: int) -> int:
        return sum(home.copies[r] for r in self._readers_in(home, i))

    # --- facts

    def _operands(self, node: Node) -> Iterator[int]:
        """The nodes that make a node's operands, once for each operand."""
        return (self.maker[v.name] for v in node.inputs if v is not None and v.name in self.maker)

    def _type(self, i: int) -> Type:
        return self.nodes[i].outputs[0].type

    def _reads_each_once(self, reader: int, i: int) -> bool:
        """Whether a reader of a value looks at each element at most about once."""
        if self.readers[i].count(reader) > 1 and self.kinds[reader] is Kind.INJECTIVE:
            return False
        if same_shape(self._type(reader), self._type(i)):
            return True
        theirs, mine = _numel(self._type(reader)), _numel(self._type(i))
        if theirs is None or mine is None:
            return False
        bounds = arith.as_int(theirs), arith.as_int(mine)
        if None not in bounds:
            return bounds[0] <= bounds[1]  # type: ignore[operator]
        return same_size(theirs, mine)

    def _work(self, i: int) -> int:
        is_costly = self.kinds[i] is Kind.ELEMENTWISE and not defn(self.nodes[i]).cheap
        return COSTLY_WORK if is_costly else 1

    def _is_from_constants(self, i: int) -> bool:
        inputs = [v for v in self.nodes[i].inputs if v is not None]
        made = [self.maker.get(v.name) for v in inputs]
        return bool(made) and all(
            j is not None and (constant_ref(self.nodes[j]) is not None or self._is_cheap_chain(j))
            for j in made
        )

    def _is_cheap_chain(self, i: int) -> bool:
        cheap = self.kinds[i] in POINTWISE and defn(self.nodes[i]).cheap
        return cheap and self._is_from_constants(i)

    def _is_tiny(self, i: int) -> bool:
        numel = _numel(self._type(i))
        count = None if numel is None else arith.as_int(numel)
        return defn(self.nodes[i]).cheap and count is not None and count <= TINY_ELEMENTS

    def _group(self, members: _Members) -> Group:
        nodes = tuple(self.nodes[i] for i in sorted(members.copies))
        made = {v.name for n in nodes for v in n.outputs}
        reads = (v for n in nodes for v in n.inputs if v is not None and v.name not in made)
        anchor = None if members.anchor is None else self.nodes[members.anchor]
        outputs = self.nodes[members.final].outputs
        return Group(nodes, tuple(dict.fromkeys(reads)), outputs, anchor)


def is_view(node: Node) -> bool:
    """Whether a node only gives its operand's bytes another shape: no kernel is needed for it."""
    if defn(node).permutes:
        return _is_same_order(node)
    if not defn(node).is_view or node.inputs[0] is None:
        return False
    is_laid = any(v.tensor.layout is not None for v in (node.inputs[0], *node.outputs))
    if is_laid and not moves_nothing(node):
        return False
    before, after = _numel(node.inputs[0].type), _numel(node.outputs[0].type)
    return before is not None and after is not None and same_size(before, after)


def _is_same_order(transpose: Node) -> bool:
    """Whether the layouts on both sides make a transpose the same bytes."""
    source, (out,) = transpose.inputs[0], transpose.outputs
    assert source is not None
    before, after = order(source.tensor), order(out.tensor)
    if before is None or after is None:
        return False
    perm = transpose.attr("perm")
    return tuple(perm[axis] for axis in after) == before


def _fusion_kind(node: Node) -> Kind:
    """The node's kind; OPAQUE for whatever has to stand alone."""
    op = defn(node)
    alone = bool(bound_symbols(node)) or any(True for _ in node.subgraphs) or not op.has_compute
    kind = Kind.OPAQUE if alone or is_view(node) else op.kind_of(node)
    return Kind.OPAQUE if kind in POINTWISE and len(node.outputs) != 1 else kind


def _numel(type: Type) -> arith.Expr | None:
    return type.numel if isinstance(type, TensorType) else None
