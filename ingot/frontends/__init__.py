"""Front ends: models of one format each → graphs. What they share is in common/. Level 5.

`find(model)` gives the importer that accepts a model (registry.py). Importers come from the
entry-point group `ingot.frontends`; those of this package are built in. Nothing else in Ingot names
a model format. Importing this package loads no importer and no heavy library.
"""

from ingot.frontends.registry import Importer, find, identity, installed

__all__ = ["Importer", "find", "identity", "installed"]
