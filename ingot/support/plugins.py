"""Entry points of installed packages: how back ends, devices and front ends are found.

In: the name of an entry-point group and a table of what Ingot itself brings. Out: `Plugin`s, each
loaded when it is asked for. A plugin that cannot be imported is an error only for those who ask for
it; `ingot doctor` lists it with the reason.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from ingot.support.errors import IngotError
from ingot.support.identity import VERSION, modules_below, source_digest

OWN = "ingot"  # the distribution that brings the built-in plugins
T = TypeVar("T")


@dataclass(frozen=True)
class Plugin:
    """`value` is "module:attribute"; `package` the distribution that declares it."""

    group: str
    name: str
    value: str
    package: str
    version: str

    def load(self) -> Any:
        """The object. An import error names the package and the cause."""
        module, _, attribute = self.value.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except IngotError:
            raise
        except Exception as error:  # a foreign package may fail in any way while it is imported
            raise IngotError(
                "bad-target",
                f"{self.name!r} of the package {self.package} cannot be loaded",
                where=f"entry point {self.group}: {self.name} = {self.value}",
                why=f"{type(error).__name__}: {error}",
                hint=f"repair or uninstall {self.package}; Ingot works without it",
            ) from error

    @property
    def identity(self) -> tuple[str, str, str]:
        """Name, version and source digest, for cache keys; nothing is imported."""
        if self.package == OWN:
            return self.name, self.version, source_digest()
        return self.name, self.version, _foreign_digest(self.value.partition(":")[0])


def find(group: str, built_in: Mapping[str, str], name: str) -> Plugin | None:
    """The plugin of that name; a built-in one is found without looking at other packages."""
    if name in built_in:
        return Plugin(group, name, built_in[name], OWN, VERSION)
    return next((p for p in _installed(group) if p.name == name), None)


@dataclass(frozen=True)
class Installed(Generic[T]):
    """A plugin that some package declares, and its object; `error` says why there is none."""

    plugin: Plugin
    loaded: T | None
    error: str = ""


def installed(group: str, built_in: Mapping[str, str]) -> list[Installed[Any]]:
    """Every plugin, loaded; one that fails to load does not hide the others."""
    return [_try_to_load(plugin) for plugin in all_of(group, built_in)]


def _try_to_load(plugin: Plugin) -> Installed[Any]:
    try:
        return Installed(plugin, plugin.load())
    except IngotError as error:
        return Installed(plugin, None, error.why or error.what)


def all_of(group: str, built_in: Mapping[str, str]) -> list[Plugin]:
    """The built-in plugins, then those of other packages by name."""
    own = [Plugin(group, name, value, OWN, VERSION) for name, value in built_in.items()]
    return [*own, *(p for p in _installed(group) if p.name not in built_in)]


def _installed(group: str) -> list[Plugin]:
    from importlib import metadata  # 40 ms: only for those who ask for another package's plugin

    found = [
        Plugin(group, point.name, point.value, point.dist.name, point.dist.version)
        for point in metadata.entry_points(group=group)
        if point.dist is not None
    ]
    return sorted(found, key=lambda plugin: plugin.name)


@lru_cache(maxsize=32)
def _foreign_digest(module: str) -> str:
    """The digest of all modules of the package that a module belongs to."""
    spec = find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None:
        return "not found"
    is_package = spec.submodule_search_locations is not None
    files = modules_below(os.path.dirname(spec.origin)) if is_package else [spec.origin]
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(files):
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()
