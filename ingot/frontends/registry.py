"""Model → importer. In: a path, bytes or a library's model object. Out: an `Importer`.

    class Acme:
        name = "acme"
        def accepts(self, model): …       whether it is a model of this format; cheap
        def identity(self, model): …      its digest for the model cache; None: not cacheable
        def import_model(self, model, store, shapes, kernels, example): …     a typed graph
        def dim_names(self, model): …     the dimensions' names in the file, by input

An importer is asked before anything is compiled, also for a model that the cache holds, so its
module imports the format's library only where that is used. docs/frontends.md is a guide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ingot.support import plugins
from ingot.support.file_digest import ModelIdentity
from ingot.support.plugins import Installed, Plugin

if TYPE_CHECKING:
    from ingot.graph.ir import Graph
    from ingot.graph.store import ConstantStore

GROUP = "ingot.frontends"
BUILT_IN = {
    "onnx": "ingot.frontends.onnx.importer:IMPORTER",
    "torch": "ingot.frontends.torch.importer:IMPORTER",
}
DEFAULT = "onnx"


class Importer(Protocol):
    """`shapes`: sizes or ranges of dynamic dimensions, by their names in the model. `kernels`: the
    user's kernels by operator, as functions from its attributes to those of a `kernel` node.
    `example`: shapes of all inputs that the graph must accept; empty: any that it can."""

    name: str

    def accepts(self, model: Any) -> bool: ...

    def identity(self, model: Any) -> ModelIdentity | None: ...

    def import_model(
        self,
        model: Any,
        store: ConstantStore,
        shapes: Mapping[str, Any],
        kernels: Mapping[str, Any],
        example: Mapping[str, tuple[int, ...]],
    ) -> Graph: ...

    def dim_names(self, model: Any) -> dict[str, tuple[str, ...]]:
        """For each input, the name of each dimension; empty for one that has none."""
        ...

    # An importer may also have `inputs_with_defaults(model)`: names of inputs that are constants
    # unless `example` has a shape for them; and `with_outputs(model, names)`: what import_model
    # takes for the model with these values, or results of these nodes, as its outputs.


def find(model: Any) -> Importer:
    """The first importer that accepts the model: built-in ones, then those of other packages. If
    there is none, the default one, which reports what is wrong with the model."""
    return _plugin(model).load()


def identity(model: Any) -> tuple[tuple[str, str, str], ModelIdentity | None]:
    """For cache keys: the importer's name, version and source digest, and the model's digest."""
    plugin = _plugin(model)
    return plugin.identity, plugin.load().identity(model)


def installed() -> list[Installed[Importer]]:
    """Every importer; one that fails to load does not hide the others."""
    return plugins.installed(GROUP, BUILT_IN)


def _plugin(model: Any) -> Plugin:
    own = {name: plugins.find(GROUP, BUILT_IN, name) for name in BUILT_IN}
    for plugin in own.values():
        if plugin is not None and plugin.load().accepts(model):
            return plugin
    for found in installed():
        if found.loaded is not None and found.loaded.accepts(model):
            return found.plugin
    default = own[DEFAULT]
    assert default is not None, "the default importer is built in"
    return default
