"""Sizes of a model file as other runtimes need them. Called by bench.py; shapes.py has the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ingot import frontends


def file_sizes(model: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Sizes by the model file's own names, as other runtimes need them; without a name that
    stands for two sizes ("?")."""
    found: dict[str, set[int]] = {}
    for port, names in frontends.find(model).dim_names(model).items():
        for name, size in zip(names, shapes.get(port, ())):
            if name:
                found.setdefault(name, set()).add(size)
    return {name: min(sizes) for name, sizes in found.items() if len(sizes) == 1}
