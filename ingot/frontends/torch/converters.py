"""Every converter module: importing this one fills registry.TABLE. Imported by walker."""

from __future__ import annotations

from ingot.frontends.torch import elementwise, linear

FAMILIES = (elementwise, linear)
