"""The PyTorch importer as an entry point of `ingot.frontends` (registry.py).

In: an ExportedProgram, a .pt2 file or an FxModel. Out: a graph. torch is imported only when a model
is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from ingot.support import lazy
from ingot.support.file_digest import ModelIdentity, identity_of

if TYPE_CHECKING:
    from ingot.graph.ir import Graph
    from ingot.graph.store import ConstantStore

KINDS = frozenset({("torch.export.exported_program", "ExportedProgram"),
                   ("ingot.frontends.torch.model", "FxModel")})  # fmt: skip


class TorchImporter:
    name = "torch"

    def accepts(self, model: Any) -> bool:
        if isinstance(model, str | PathLike):
            return str(fspath(model)).endswith(".pt2")
        kind = type(model)
        return (kind.__module__, kind.__name__) in KINDS

    def identity(self, model: Any) -> ModelIdentity | None:
        is_traced = (type(model).__module__, type(model).__name__) in KINDS
        return lazy.load("torch.identity")(model) if is_traced else identity_of(model)

    def import_model(
        self,
        model: Any,
        store: ConstantStore,
        shapes: Mapping[str, Any],
        kernels: Mapping[str, Any],
        example: Mapping[str, tuple[int, ...]],
    ) -> Graph:
        return lazy.load("torch.import")(model, store, shapes, kernels, example)

    def dim_names(self, model: Any) -> dict[str, tuple[str, ...]]:
        return lazy.load("torch.dim_names")(model)


IMPORTER = TorchImporter()
