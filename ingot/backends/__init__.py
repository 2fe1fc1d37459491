"""Back ends, one object for each device family: it names targets and owns the stages that compile
for them (base.py).

`find(target)` gives the back end of a target by its name. Back ends come from the entry-point group
`ingot.backends`; those of this package are built in. Nothing else in Ingot names a back end.
Importing this package loads no back end and no heavy library. Level 8.
"""

from ingot.backends.registry import find, identity, installed

__all__ = ["find", "identity", "installed"]
