"""Importers: model files → graphs. Level 5."""
