"""Every operator, one file per family. Importing this package fills `graph.opdef.TABLE`."""

from ingot.ops import activation, cast, elementwise, power

__all__ = ["activation", "cast", "elementwise", "power"]
