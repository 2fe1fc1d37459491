"""Device name → device. In: "cpu", or the name of an entry point. Out: a `Device`.

Ingot's own devices are in a table; other packages add theirs by the entry-point group
`ingot.devices`. A device is imported when a package needs it: one that fails to import is an error
only then.
"""

from __future__ import annotations

from functools import cache

from ingot.runtime.device import Device
from ingot.runtime.package import Package
from ingot.support import plugins
from ingot.support.errors import IngotError

GROUP = "ingot.devices"
BUILT_IN = {"cpu": "ingot.runtime.cpu.device:DEVICE", "c": "ingot.runtime.c.device:DEVICE"}


@cache
def find(name: str) -> Device:
    """The device of that name; it is loaded now."""
    found = plugins.find(GROUP, BUILT_IN, name)
    if found is None:
        raise IngotError(
            "bad-target",
            f"no device is called {name!r}",
            why=f"the devices are {', '.join(p.name for p in plugins.all_of(GROUP, BUILT_IN))}",
            hint=f"install the package that adds {name!r} (entry-point group {GROUP})",
        )
    return found.load()


def why_not(package: Package) -> str:
    """Why a package cannot run on this machine; empty if it can."""
    reasons = (find(module.device).why_not(package) for module in package.modules)
    return next(filter(None, reasons), "")
