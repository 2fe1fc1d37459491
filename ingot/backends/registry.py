"""Target text → back end. In: "cpu", "x86-64-v3+avx512f", "c", "acme:v2". Out: a `Backend`.

A target's text is `name`, `name:variant` or either with `+feature`s. If `name` is that of a back
end, the target is its own; any other name is a CPU (x86-64-v3, aarch64 …) and belongs to the
default back end, which reports unknown names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ingot.support import plugins
from ingot.support.plugins import Installed, Plugin

if TYPE_CHECKING:
    from ingot.backends.base import Backend

GROUP = "ingot.backends"
BUILT_IN = {"cpu": "ingot.backends.cpu:BACKEND", "c": "ingot.backends.c:BACKEND"}
DEFAULT = "cpu"


def find(target: str) -> Backend:
    """The back end that a target belongs to; it is loaded now."""
    return _plugin(target).load()


def identity(target: str) -> tuple[str, str, str]:
    """Name, version and source digest of a target's back end, for cache keys."""
    return _plugin(target).identity


def names() -> list[str]:
    """The names of all back ends; none is loaded."""
    return [plugin.name for plugin in plugins.all_of(GROUP, BUILT_IN)]


def installed() -> list[Installed[Backend]]:
    """Every back end; one that fails to load does not hide the others."""
    return plugins.installed(GROUP, BUILT_IN)


def _plugin(target: str) -> Plugin:
    name = re.split(r"[:+]", target.strip(), maxsplit=1)[0]
    found = plugins.find(GROUP, BUILT_IN, name) or plugins.find(GROUP, BUILT_IN, DEFAULT)
    assert found is not None, "the default back end is built in"
    return found
