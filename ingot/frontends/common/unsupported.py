"""The error for a model whose operators Ingot does not have: it lists all of them, with the nodes
that use them. Raised by every importer before it reads a node; `ingot check` prints the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.support.errors import IngotError


class UnsupportedOperators(IngotError):
    """`nodes`: the names of the nodes that use each operator."""

    def __init__(
        self, nodes: Mapping[str, Sequence[str]], what: str, *,
        where: str = "", why: str = "", hint: str = "",
    ):  # fmt: skip
        super().__init__("unsupported-op", what, where=where, why=why, hint=hint)
        self.nodes = {operator: list(names) for operator, names in nodes.items()}
