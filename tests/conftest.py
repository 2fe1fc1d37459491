"""Hooks for the whole suite: every graph that is verified anywhere must come back from its text."""

from __future__ import annotations

from ingot.graph import verify as graph_verify
from ingot.graph.ir import Graph
from ingot.graph.text import parse, show


def _graph_round_trip(graph: Graph) -> None:
    assert parse(show(graph)) == graph


graph_verify.HOOKS.append(_graph_round_trip)
