"""Symbolic integer expressions: indices, extents, offsets, tensor sizes. Level 1."""
