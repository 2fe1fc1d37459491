"""Entry points of installed packages: how back ends, devices and front ends are found.

In: the name of an entry-point group and a table of what Ingot itself brings. Out: `Plugin`s by
name, each loaded when it is asked for. A plugin that cannot be imported is an error only for
whoever asks for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from ingot.support.errors import IngotError

OWN = "ingot"  # the distribution that brings the built-in plugins


@dataclass(frozen=True)
class Plugin:
    """`value` is "module:attribute"; `package` the distribution that declares it."""

    group: str
    name: str
    value: str
    package: str

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
                hint=f"repair or uninstall {self.package}; the rest of Ingot works without it",
            ) from error


def find(group: str, built_in: Mapping[str, str], name: str) -> Plugin | None:
    """The plugin of that name; a built-in one is found without looking at other packages."""
    if name in built_in:
        return Plugin(group, name, built_in[name], OWN)
    return next((p for p in _installed(group) if p.name == name), None)


def all_of(group: str, built_in: Mapping[str, str]) -> list[Plugin]:
    """The built-in plugins, then those of other packages by name."""
    own = [Plugin(group, name, value, OWN) for name, value in built_in.items()]
    return [*own, *(p for p in _installed(group) if p.name not in built_in)]


def _installed(group: str) -> list[Plugin]:
    found = [
        Plugin(group, point.name, point.value, point.dist.name)
        for point in metadata.entry_points(group=group)
        if point.dist is not None
    ]
    return sorted(found, key=lambda plugin: plugin.name)
