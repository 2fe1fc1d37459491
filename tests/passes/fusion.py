"""Fused graphs for the tests of fuse: the groups by the names that their values had before, and the
invariants that every partition keeps."""

from __future__ import annotations

from dataclasses import dataclass

from ingot.graph.ir import Graph, Node, replace
from ingot.graph.opdef import Kind, defn
from ingot.graph.verify import verify
from ingot.passes.edit import constant_ref
from ingot.passes.fuse import DEFAULT_POLICY, FusionPolicy, fuse


@dataclass(frozen=True)
class Group:
    """A kernel of a fused graph; `names` are those that its nodes' outputs had before."""

    node: Node
    names: list[str]

    @property
    def ops(self) -> list[str]:
        return [n.op for n in self.body.nodes]

    @property
    def body(self) -> Graph:
        return self.node.attr("body")

    @property
    def family(self) -> str:
        return self.node.attr("family")

    @property
    def anchor(self) -> str | None:
        """The name that the anchor had before."""
        made = {v.name: n.origin for n in self.body.nodes for v in n.outputs}
        return made.get(self.node.attr("anchor"))


def checked(g: Graph, policy: FusionPolicy = DEFAULT_POLICY) -> Graph:
    """The fused graph; its origins are the names of the values before. It is valid and stays so,
    computes each value of the graph, and has one heavy operator in a group, or attention."""
    named = tuple(replace(n, origin=n.outputs[0].name) for n in g.nodes)
    fused = fuse(replace(g, nodes=named), policy)
    verify(fused)
    assert fuse(fused, policy) == fused
    for group in groups_of(fused):
        heavy = [n for n in group.body.nodes if defn(n).kind in (Kind.REDUCTION, Kind.CONTRACTION)]
        assert len(heavy) <= 1 or group.family == "attention"
        read = {v.name for n in group.body.nodes for v in n.inputs if v is not None}
        inner = {v.name for n in group.body.nodes[:-1] for v in n.outputs}
        assert inner | {v.name for v in group.body.inputs} <= read, "a member nobody reads"
        assert group.body.outputs == group.body.nodes[-1].outputs
    seen = {name for names in every(fused) for name in names}
    assert seen == {n.outputs[0].name for n in g.nodes}
    return fused


def groups_of(fused: Graph) -> list[Group]:
    nodes = [n for n in fused.nodes if n.op == "fused"]
    return [Group(n, [inner.origin for inner in n.attr("body").nodes]) for n in nodes]


def every(fused: Graph) -> list[list[str]]:
    """The former names of each node of a fused graph, constants included."""
    found = {g.node.outputs[0].name: g.names for g in groups_of(fused)}
    return [found.get(n.outputs[0].name, [n.origin]) for n in fused.nodes]


def checked_groups(g: Graph, policy: FusionPolicy = DEFAULT_POLICY) -> list[Group]:
    return groups_of(checked(g, policy))


def names(g: Graph, policy: FusionPolicy = DEFAULT_POLICY) -> list[str]:
    """Each node but constants as the names of its values, in order."""
    fused = checked(g, policy)
    pairs = zip(fused.nodes, every(fused))
    return [" ".join(group) for node, group in pairs if constant_ref(node) is None]
