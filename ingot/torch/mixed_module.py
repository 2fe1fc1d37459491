"""A module of which some nodes run in PyTorch, called as the module. Made by `ingot.compile` with
fallback=True, of a model that Ingot cannot run as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, NoReturn

from ingot.frontends.torch.model import FxModel
from ingot.frontends.torch.weights import ModuleWeights
from ingot.runtime.executable import Executable
from ingot.runtime.module_arguments import Nesting, check_fixed
from ingot.support.errors import IngotError
from ingot.torch.mixed import Compile, MixedCall, mixed_call


class MixedModule:
    """`fallback`: the nodes that run in PyTorch, each with the reason; `executables`: those of the
    parts that Ingot runs."""

    def __init__(self, model: FxModel, call: MixedCall):
        assert model.signature is not None
        self.signature, self._call = model.signature, call
        self._nesting = Nesting(model.signature)
        self._weights = ModuleWeights(model)
        self._names = [p.name for p in model.placeholders]

    @property
    def fallback(self) -> Mapping[str, str]:
        return self._call.fallback

    @property
    def executables(self) -> list[Executable]:
        return self._call.executables

    @property
    def threads(self) -> int:
        return min((exe.threads for exe in self.executables), default=1)

    @threads.setter
    def threads(self, count: int) -> None:
        for exe in self.executables:
            exe.threads = count

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        leaves = self._nesting.leaves(args, kwargs)
        given = dict(self._weights.tensors())
        for value, leaf in zip(leaves, self.signature.leaves):
            if leaf.port:
                given[leaf.port] = value
            elif leaf.kind == "fixed":
                check_fixed(value, leaf)
        results = self._call([given.get(name) for name in self._names])
        found = []
        for about, result in zip(self.signature.results, results):
            fixed = {"fixed": about.value, "state": given.get(about.port)}
            is_leaf = about.kind == "leaf"
            found.append(leaves[about.leaf] if is_leaf else fixed.get(about.kind, result))
        return self._nesting.nested(found, as_tensors=True)

    def report(self, **sizes: int) -> str:
        rows = [f"in PyTorch: {why}" for why in self.fallback.values()]
        return "\n".join([*rows, *(exe.report(**sizes) for exe in self.executables)])

    def refresh(self) -> None:
        """Take over weights that changed without a trace."""
        self._call.refresh()

    def save(self, path: str | PathLike) -> NoReturn:
        what = "a model of which some nodes run in PyTorch cannot be saved"
        nodes = ", ".join(self.fallback)
        raise IngotError("bad-option", what, where=nodes, hint="compile it without fallback=True")

    def __repr__(self) -> str:
        return f"<ingot.MixedModule: {len(self.fallback)} nodes in PyTorch>"


def mixed_module(model: FxModel, compile: Compile, kernels: Any = None) -> MixedModule | None:
    """None: Ingot runs all of it."""
    call = mixed_call(model, compile, kernels)
    return None if call is None else MixedModule(model, call)
